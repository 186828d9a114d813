"""Passwords for the doors as bcrypt hashes, one `JID:HASH` a line, in the format of `htpasswd -B`.

Hashing is slow by design: it runs in a thread, few at a time. A successful check is cached for a while under a key of this
process. Must not know any door.
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
"""The most passwords that wait to be checked: guessing must not delay others for long."""

_BCRYPT_BYTES: Final = 72
"""bcrypt ignores the rest of a password, and its library refuses it."""


class TooMany(Exception):  # noqa: N818  (named after the state)
    """Too many passwords wait to be checked for this one to join."""


class Passwords:
    """The passwords of all JIDs."""

    def __init__(self, lines: str) -> None:
        """Parse the lines, which the settings have validated."""
        pairs = [line.strip().partition(":") for line in lines.splitlines() if line.strip()]
        self._hashes = {prepared(jid): hashed.encode() for jid, _, hashed in pairs}
        # Checking an unknown name costs as much as the most expensive known one, so timing does not reveal names.
        dearest = max((int(hashed[4:6]) for hashed in self._hashes.values()), default=12)
        self._nobody = bcrypt.hashpw(secrets.token_bytes(16), bcrypt.gensalt(dearest)) if pairs else b""
        self._key = secrets.token_bytes(32)
        self._remembered: dict[bytes, float] = {}
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._waiting = 0

    def __bool__(self) -> bool:
        """Tell whether there is any password."""
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
