"""Bearer tokens (RFC 6750): JWTs of one issuer for one audience. Must not know HTTP's headers.

Only asymmetric signatures are accepted: whoever can verify a token cannot forge one, and no token chooses its algorithm freely.
"""

import asyncio
import json
import time
import urllib.request
from typing import Any, Final

import jwt
import structlog

from broker.model.names import Jid, read_bare_jid

log = structlog.get_logger()

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
LEEWAY_SECONDS: Final = 10
"""The allowed difference between two clocks."""

KEYS_SECONDS: Final = 300.0
AGAIN_SECONDS: Final = 10.0
"""How long fetched keys are used, and the shortest time between two fetches."""
_FETCH_SECONDS: Final = 5.0
_KEYS_BYTES: Final = 262_144


class Untrusted(Exception):  # noqa: N818  (named after the state of a token)
    """A token is refused; the text is for its bearer."""


class Tokens:
    """Verifies tokens."""

    def __init__(self, keys: str, issuer: str, audience: str, claim: str) -> None:
        """Trust `keys`: a URL, a JWKS, or a public key in PEM; without any, no token is accepted."""
        self._url = keys if "://" in keys[:8] else ""
        self._issuer = issuer
        self._audience = audience
        self._claim = claim
        self._keys: dict[str | None, Any] = {} if self._url or not keys else _read(keys)
        self._fetched = -AGAIN_SECONDS
        self._fetching = asyncio.Lock()
        self._there = bool(keys)

    def __bool__(self) -> bool:
        """Tell whether any key is configured."""
        return self._there

    async def bearer(self, token: str) -> Jid:
        """Return the JID of a token; raises Untrusted."""
        try:
            key = await self._key(jwt.get_unverified_header(token).get("kid"))
            said = jwt.decode(
                token,
                key,
                algorithms=ALGORITHMS,
                audience=self._audience,
                issuer=self._issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud", self._claim]},
            )
        except (jwt.PyJWTError, ValueError, TypeError) as fault:
            raise Untrusted(str(fault)) from None
        try:
            return read_bare_jid(str(said[self._claim]))
        except ValueError as fault:
            msg = f"{self._claim}: {fault}"
            raise Untrusted(msg) from None

    async def _key(self, kid: str | None) -> Any:  # noqa: ANN401  (one of the library's many types)
        if self._url:
            await self._renew(kid)
        found = self._keys.get(kid)
        # A key without a name fits any token; a single named key fits tokens that name none.
        if found is None and (None in self._keys or (kid is None and len(self._keys) == 1)):
            found = self._keys.get(None) or next(iter(self._keys.values()))
        if found is None:
            msg = "it is signed with an unknown key"
            raise Untrusted(msg)
        return found

    async def _renew(self, kid: str | None) -> None:
        async with self._fetching:
            age = time.monotonic() - self._fetched
            if age < AGAIN_SECONDS or (age < KEYS_SECONDS and (kid in self._keys or kid is None)):
                return
            self._fetched = time.monotonic()
            try:
                self._keys = _read(await asyncio.to_thread(self._fetch))
            except (OSError, ValueError, jwt.PyJWTError) as fault:
                # Keep the old keys: an unreachable server does not make them wrong.
                log.warning("the keys of tokens cannot be fetched", path=self._url, error=str(fault))

    def _fetch(self) -> str:
        with urllib.request.urlopen(self._url, timeout=_FETCH_SECONDS) as answer:  # noqa: S310  (validated by the settings)
            return bytes(answer.read(_KEYS_BYTES)).decode()


def _read(text: str) -> dict[str | None, Any]:
    """Parse keys, by name."""
    if text.lstrip().startswith("{"):
        return {key.key_id: key.key for key in jwt.PyJWKSet.from_dict(json.loads(text)).keys}
    return {None: text}
