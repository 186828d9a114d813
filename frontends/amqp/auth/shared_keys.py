"""Whom tokens of Event Hubs are believed for: shared keys, the tokens that are signed with them, and what these open. Pure.

A shared access signature says the path that it opens, when it ends and under whose name it is, and is signed with the key of that
name. Time is an argument, in seconds since 1970. Must not know links.
"""

import hmac
import re
import secrets
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote_plus

from broker.model.names import Jid, prepared

_URL: Final = re.compile(r"[a-z]+://[^/]*/?")
_WORD: Final = re.compile(r"/(ConsumerGroups|Partitions)/", re.IGNORECASE)
_WORDS: Final = {"consumergroups": "/ConsumerGroups/", "partitions": "/Partitions/"}
_SCHEME: Final = "SharedAccessSignature "
_FIELDS: Final = frozenset({"sr", "sig", "se", "skn"})
_MOMENT: Final = re.compile(r"[0-9]{1,15}", re.ASCII)
_TOKEN_CHARS: Final = 4_096
_GRANTS_MOST: Final = 100
"""Paths that one connection may open: SDKs use one connection for one."""


def path(text: str | None) -> str:
    """Give an address in one form: without the host that some SDKs put before it, and with its words in one case."""
    return _WORD.sub(lambda word: _WORDS[word[1].lower()], _URL.sub("", text or "", count=1).strip("/"))


class Untrusted(Exception):  # noqa: N818  (what a token is)
    """A token is not believed, and why."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What a token opens, for whom, until when."""

    jid: Jid
    path: str
    until: float

    def opens(self, path: str) -> bool:
        """Tell whether an address lies at or below what it opens; an empty path opens all."""
        return not self.path or path == self.path or path.startswith(f"{self.path}/")


class Keys:
    """Who has which shared key."""

    def __init__(self, lines: str) -> None:
        """Read lines of NAME JID KEY; each was judged when the settings were read."""
        parts = [line.split() for line in lines.splitlines() if line.strip()]
        self._known = {name: (prepared(jid), key.encode()) for name, jid, key in parts}
        self._nobody = secrets.token_bytes(32)

    def __bool__(self) -> bool:
        """Tell whether anybody has one."""
        return bool(self._known)

    def grant(self, token: str, now: float) -> Grant:
        """Give what a token opens; raises Untrusted."""
        said = _fields(token)
        jid, key = self._known.get(_name(said["skn"]), (None, self._nobody))
        # What is signed are path and end as they stand in the token.
        right = b64encode(hmac.digest(key, f"{said['sr']}\n{said['se']}".encode(), "sha256"))
        if not hmac.compare_digest(right, unquote_plus(said["sig"]).encode()) or jid is None:
            msg = "the token is not signed with a key that is known"
            raise Untrusted(msg)
        if not _MOMENT.fullmatch(said["se"]) or int(said["se"]) <= now:
            msg = "the token is over"
            raise Untrusted(msg)
        return Grant(jid, path(unquote_plus(said["sr"])), float(said["se"]))


@dataclass(slots=True)
class Grants:
    """What the tokens of one connection have opened: all for one JID, which it has said first."""

    jid: Jid | None = None
    _by_path: dict[str, Grant] = field(default_factory=dict)

    def add(self, grant: Grant) -> None:
        """Take one more, or one that goes on where an earlier one ends; raises Untrusted."""
        if self.jid not in {None, grant.jid}:
            msg = "the connection is another's"
            raise Untrusted(msg)
        if grant.path not in self._by_path and len(self._by_path) >= _GRANTS_MOST:
            msg = "the connection has opened too much"
            raise Untrusted(msg)
        self.jid = grant.jid
        self._by_path[grant.path] = grant

    def opens(self, path: str, now: float) -> bool:
        """Tell whether an address is opened now."""
        return any(grant.until > now and grant.opens(path) for grant in self._by_path.values())

    def valid(self, now: float) -> bool:
        """Tell whether anything is, and forget what is no more."""
        self._by_path = {path: grant for path, grant in self._by_path.items() if grant.until > now}
        return bool(self._by_path)


def _fields(token: str) -> Mapping[str, str]:
    if len(token) > _TOKEN_CHARS or not token.startswith(_SCHEME):
        msg = "the token is no shared access signature"
        raise Untrusted(msg)
    pairs = [part.partition("=") for part in token.removeprefix(_SCHEME).strip().split("&")]
    said = {name: value for name, _, value in pairs}
    if said.keys() != _FIELDS or len(pairs) != len(_FIELDS):
        msg = "a token says sr, sig, se and skn"
        raise Untrusted(msg)
    return said


def _name(said: str) -> str:
    """Read a key's name, which some SDKs write encoded twice; none has a character that encoding changes."""
    return unquote_plus(unquote_plus(said))
