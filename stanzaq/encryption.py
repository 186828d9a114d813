"""Encryption of payloads by AES-GCM with keys of the program, which the service never sees. Needs the extra `encryption`.

An encrypted payload is a JWE in compact form (RFC 7516) with `dir` and AES-GCM (RFC 7518 §5.3), which programs in other
languages read too. Its protected header has the id of the key, the type of the payload, and the node that it was published to.
Must not know transports.
"""

import base64
import binascii
import json
import secrets
from collections.abc import Collection, Mapping
from typing import Final

try:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
except ModuleNotFoundError as fault:
    _MISSING = "the encryption of payloads needs cryptography: pip install 'stanzaq[encryption]'"
    raise ModuleNotFoundError(_MISSING, name=fault.name) from fault

from stanzaq.codec import JOSE
from stanzaq.retry import Reject
from stanzaq.transport.interface import Content

_KINDS: Final = {16: "A128GCM", 24: "A192GCM", 32: "A256GCM"}
"""The names of the algorithm, by the bytes of its key."""

_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_PARTS: Final = 5


class AesGcm:
    """A codec: `Worker(..., codec=AesGcm({"2026-01": key}, "2026-01"))`, and the same for a `Publisher`."""

    def __init__(self, keys: Mapping[str, bytes], current: str, *, accept_plain: bool = False) -> None:
        """Decrypt with all `keys`, by their ids, and encrypt with the `current` one. Each has 32 bytes, or 16 or 24.

        To `accept_plain` payloads lets a queue come to be encrypted while it has others: whoever may publish can then leave
        encryption out. Raises ValueError.
        """
        for name, key in keys.items():
            if len(key) not in _KINDS:
                msg = f"the key {name!r} is not 32 bytes: make one by secrets.token_bytes(32), and keep it in a vault"
                raise ValueError(msg)
        if current not in keys:
            msg = f"the current key {current!r} is not among the keys {', '.join(map(repr, keys)) or '(none)'}"
            raise ValueError(msg)
        self._ciphers = {name: (AESGCM(key), _KINDS[len(key)]) for name, key in keys.items()}
        self._current = current
        self._accepts_plain = accept_plain

    def encode(self, content: Content, node: str) -> Content:
        """Encrypt a payload for a node."""
        cipher, kind = self._ciphers[self._current]
        told = {"alg": "dir", "enc": kind, "kid": self._current, "cty": content.type, "node": node}
        header = _write(json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode())
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = cipher.encrypt(nonce, content.body, header)
        parts = (header, b"", _write(nonce), _write(sealed[:-_TAG_BYTES]), _write(sealed[-_TAG_BYTES:]))
        return Content(b".".join(parts), JOSE)

    def decode(self, content: Content, nodes: Collection[str]) -> Content:
        """Decrypt a payload that was published to one of these nodes; raises Reject."""
        if not _is_sealed(content):
            if self._accepts_plain:
                return content
            told = content.type or "its type is not told"
            msg = f"the payload ({told}) is not encrypted: its publisher needs the codec, or this one accept_plain=True"
            raise Reject(msg)
        try:
            header, _, nonce, body, tag = content.body.split(b".")
            said = json.loads(_read(header))
            sealed = _read(nonce), _read(body) + _read(tag)
            name, where, type_ = (str(said[each]) for each in ("kid", "node", "cty"))
        except (ValueError, KeyError, TypeError) as fault:
            msg = "the payload is no JWE of this library: it was changed on its way, or something else has written it"
            raise Reject(msg) from fault
        if name not in self._ciphers:
            msg = f"the payload is encrypted with the key {name!r}, which this program has not: add it, and redrive the item"
            raise Reject(msg)
        try:
            plain = self._ciphers[name][0].decrypt(*sealed, header)
        except (InvalidTag, ValueError) as fault:
            msg = f"the payload was changed on its way, or {name!r} is another key where it was encrypted: it cannot be trusted"
            raise Reject(msg) from fault
        if where not in nodes:
            msg = f"the payload was encrypted for {where}, and somebody has brought it to {', '.join(sorted(nodes))}"
            raise Reject(msg)
        return Content(plain, type_)


def _is_sealed(content: Content) -> bool:
    if content.type:
        return content.type.partition(";")[0].strip().lower() == JOSE
    return content.body.startswith(b"eyJ") and content.body.count(b".") == _PARTS - 1


def _write(raw: bytes) -> bytes:
    return base64.urlsafe_b64encode(raw).rstrip(b"=")


def _read(text: bytes) -> bytes:
    if b"=" in text or b"+" in text or b"/" in text:
        msg = "not base64url"
        raise ValueError(msg)
    try:
        return base64.b64decode(text + b"=" * (-len(text) % 4), b"-_", validate=True)
    except binascii.Error as fault:
        raise ValueError(str(fault)) from fault
