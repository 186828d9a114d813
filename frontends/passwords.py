"""Passwords of whoever comes through a door, kept as bcrypt hashes, one `JID:HASH` a line, as `htpasswd -B` writes them.

A hash is made to be slow: it is computed in a thread, few at a time, and what was right is remembered for a while under a key of
this process alone. Must not know any door.
"""

import asyncio
import hashlib
import hmac
import secrets
import time
from typing import Final

import bcrypt

from broker.model.names import Jid, prepared

REMEMBERED_SECONDS: Final = 60.0
_REMEMBERED_MOST: Final = 10_000
_AT_ONCE: Final = 2
WAITING_MOST: Final = 100
"""Passwords that may wait to be checked: guessing must not keep the others waiting for long."""

_BCRYPT_BYTES: Final = 72
"""More of a password bcrypt does not see, and its library refuses."""


class TooMany(Exception):  # noqa: N818  (what there is)
    """So many passwords wait to be checked that this one will not be."""


class Passwords:
    """Who has which password."""

    def __init__(self, lines: str) -> None:
        """Read the lines; each was judged when the settings were read."""
        pairs = [line.strip().partition(":") for line in lines.splitlines() if line.strip()]
        self._hashes = {prepared(jid): hashed.encode() for jid, _, hashed in pairs}
        # An unknown name costs what the dearest known one does, so that nobody learns by the clock who is known.
        dearest = max((int(hashed[4:6]) for hashed in self._hashes.values()), default=12)
        self._nobody = bcrypt.hashpw(secrets.token_bytes(16), bcrypt.gensalt(dearest)) if pairs else b""
        self._key = secrets.token_bytes(32)
        self._remembered: dict[bytes, float] = {}
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._waiting = 0

    def __bool__(self) -> bool:
        """Tell whether anybody has one."""
        return bool(self._hashes)

    async def right(self, jid: Jid, password: str) -> bool:
        """Tell whether this is the JID's password; raises TooMany."""
        mark = hmac.digest(self._key, f"{jid}\0{password}".encode(), hashlib.sha256)
        if self._remembered.get(mark, 0.0) > time.monotonic():
            return True
        if self._waiting >= WAITING_MOST:
            raise TooMany
        self._waiting += 1
        try:
            async with self._turn:
                right = await asyncio.to_thread(self._check, jid, password.encode())
        finally:
            self._waiting -= 1
        if right:
            self._remember(mark)
        return right

    def _check(self, jid: Jid, password: bytes) -> bool:
        known = self._hashes.get(jid)
        fits = len(password) <= _BCRYPT_BYTES and b"\0" not in password
        return bcrypt.checkpw(password if fits else b"", known or self._nobody) and known is not None and fits

    def _remember(self, mark: bytes) -> None:
        now = time.monotonic()
        if len(self._remembered) >= _REMEMBERED_MOST:
            self._remembered = {each: ends for each, ends in self._remembered.items() if ends > now}
        if len(self._remembered) < _REMEMBERED_MOST:
            self._remembered[mark] = now + REMEMBERED_SECONDS
