"""Shared keys of Event Hubs, the tokens signed with them, and what each token permits. Pure.

A shared access signature has a path that it opens, an expiry and a key name, and is signed with that key. Time is an
argument, in seconds since 1970. Must not know links.
"""

import hmac
import re
import secrets
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote_plus

from broker.model.frozen import frozen
from broker.model.names import Jid, lower_jid

_URL: Final = re.compile(r"[a-z]+://[^/]*/?")
_WORD: Final = re.compile(r"/(ConsumerGroups|Partitions)/", re.IGNORECASE)
_WORDS: Final = {"consumergroups": "/ConsumerGroups/", "partitions": "/Partitions/"}
_SCHEME: Final = "SharedAccessSignature "
_FIELDS: Final = frozenset({"sr", "sig", "se", "skn"})
_MOMENT: Final = re.compile(r"[0-9]{1,15}", re.ASCII)
_TOKEN_CHARS: Final = 4_096
_GRANTS_MOST: Final = 100
"""The most paths that one connection may open; SDKs open one path on each connection."""


def path(text: str | None) -> str:
    """Normalize an address: remove the host that some SDKs put before it, and write its keywords in one case."""
    return _WORD.sub(lambda word: _WORDS[word[1].lower()], _URL.sub("", text or "", count=1).strip("/"))


class UntrustedToken(Exception):  # noqa: N818  (named after the state of a token)
    """A token is refused; the message says why."""


@frozen
class Grant:
    """What a token opens, for whom, until when."""

    jid: Jid
    path: str
    ends: Callable[[], float] = field(repr=False)
    """Tells until when, in seconds since 1970; 0 once what signed the token is no longer one of its JID."""

    def opens(self, path: str) -> bool:
        """Tell whether an address is at or below the opened path; an empty path opens everything."""
        return not self.path or path == self.path or path.startswith(f"{self.path}/")


class Keys:
    """The shared keys and their JIDs."""

    def __init__(self, lines: str) -> None:
        """Parse lines of NAME JID KEY, which the settings have validated."""
        self._nobody = secrets.token_bytes(32)
        self.replace(lines)

    def replace(self, lines: str) -> None:
        """Take these lines from now on."""
        parts = [line.split() for line in lines.splitlines() if line.strip()]
        self._known = {name: (lower_jid(jid), key.encode()) for name, jid, key in parts}

    def __bool__(self) -> bool:
        """Tell whether there is any key."""
        return bool(self._known)

    def grant(self, token: str, now: float) -> Grant:
        """Return what a token opens; raises UntrustedToken."""
        said = _fields(token)
        jid, key = self._known.get(_name(said["skn"]), (None, self._nobody))
        # The signature covers path and expiry exactly as they stand in the token.
        right = b64encode(hmac.digest(key, f"{said['sr']}\n{said['se']}".encode(), "sha256"))
        if not hmac.compare_digest(right, unquote_plus(said["sig"]).encode()) or jid is None:
            msg = "the token is not signed with a known key"
            raise UntrustedToken(msg)
        if not _MOMENT.fullmatch(said["se"]) or int(said["se"]) <= now:
            msg = "the token has expired"
            raise UntrustedToken(msg)
        until = float(said["se"])
        return Grant(jid, path(unquote_plus(said["sr"])), lambda: until if (jid, key) in self._known.values() else 0.0)


@dataclass(slots=True)
class Grants:
    """The grants of one connection, all for the JID of the first."""

    jid: Jid | None = None
    _by_path: dict[str, Grant] = field(default_factory=dict)

    def add(self, grant: Grant) -> None:
        """Add a grant, or renew one of the same path; raises UntrustedToken."""
        if self.jid not in {None, grant.jid}:
            msg = "the connection belongs to another JID"
            raise UntrustedToken(msg)
        if grant.path not in self._by_path and len(self._by_path) >= _GRANTS_MOST:
            msg = "the connection has opened too many paths"
            raise UntrustedToken(msg)
        self.jid = grant.jid
        self._by_path[grant.path] = grant

    def opens(self, path: str, now: float) -> bool:
        """Tell whether an address is open now."""
        return any(grant.ends() > now and grant.opens(path) for grant in self._by_path.values())

    def valid(self, now: float) -> bool:
        """Drop grants that have expired or whose key is gone; tell whether any is left."""
        self._by_path = {path: grant for path, grant in self._by_path.items() if grant.ends() > now}
        return bool(self._by_path)


def _fields(token: str) -> Mapping[str, str]:
    if len(token) > _TOKEN_CHARS or not token.startswith(_SCHEME):
        msg = "the token is not a shared access signature"
        raise UntrustedToken(msg)
    pairs = [part.partition("=") for part in token.removeprefix(_SCHEME).strip().split("&")]
    said = {name: value for name, _, value in pairs}
    if said.keys() != _FIELDS or len(pairs) != len(_FIELDS):
        msg = "a token has sr, sig, se and skn"
        raise UntrustedToken(msg)
    return said


def _name(said: str) -> str:
    """Parse a key's name, which some SDKs encode twice; no name has a character that encoding changes."""
    return unquote_plus(unquote_plus(said))
