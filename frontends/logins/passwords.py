"""Passwords for the doors as bcrypt hashes, one `JID:HASH` a line, in the format of `htpasswd -B`.

Hashing is slow by design: it runs in a thread, few at a time, and names take turns. A successful check is cached, for a while
from its last use, under a key of this process. Must not know any door.
"""

import asyncio
import hashlib
import hmac
import secrets
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

import bcrypt

from broker.model.names import Jid, lower_jid
from frontends.logins.failed_logins import FailedLogins

REMEMBERED_SECONDS: Final = 60.0
_REMEMBERED_MOST: Final = 10_000
_AT_ONCE: Final = 2
WAITING_MOST: Final = 100
"""The most passwords of one name that wait to be checked. All unknown names are one, so that guesses do not delay others."""

_BCRYPT_BYTES: Final = 72
"""bcrypt ignores the rest of a password, and its library refuses it."""


class TooMany(Exception):  # noqa: N818  (named after the state)
    """Too many passwords of this name wait to be checked for this one to join."""


class Passwords:
    """The passwords of all JIDs."""

    def __init__(self, lines: str, failed: FailedLogins, clock: Callable[[], float] = time.monotonic) -> None:
        """Parse the lines, which the settings have validated; note `failed` logins, which slow the next ones."""
        self._failed = failed
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._remembered: dict[bytes, float] = {}
        self._threads = asyncio.Semaphore(_AT_ONCE)
        self._waiting = Counter[Jid | None]()
        self.replace(lines)

    def replace(self, lines: str) -> None:
        """Take these lines from now on; successful checks by hashes that stay are still remembered."""
        pairs = [line.strip().partition(":") for line in lines.splitlines() if line.strip()]
        self._hashes = {lower_jid(jid): hashed.encode() for jid, _, hashed in pairs}
        # Checking an unknown name costs as much as the most expensive known one, so its time does not reveal names. Under a flood
        # of guesses its turn does (SECURITY.md): else a flood would keep everybody out.
        dearest = max((int(hashed[4:6]) for hashed in self._hashes.values()), default=12)
        self._nobody = bcrypt.gensalt(dearest) + b"." * 31
        self._turns = {name: asyncio.Lock() for name in (*self._hashes, None)}

    def __bool__(self) -> bool:
        """Tell whether there is any password."""
        return bool(self._hashes)

    def as_now(self, jid: Jid) -> Callable[[], bool]:
        """Return a function that tells whether the JID still has the password that it has now."""
        hashed = self._hashes.get(jid)
        return lambda: self._hashes.get(jid) == hashed

    async def is_right(self, jid: Jid, password: str, address: str) -> bool:
        """Tell whether this is the JID's password, which came from an address; raises TooMany and TooSoon."""
        hashed = self._hashes.get(jid)
        proof = b"\0".join((hashed or b"", jid.encode(), password.encode()))
        mark = hmac.digest(self._key, proof, hashlib.sha256)
        if self._remembers(mark):
            return True
        name = jid if hashed else None
        if self._waiting[name] >= WAITING_MOST:
            raise TooMany
        self._waiting[name] += 1
        try:
            # Only one of each name waits for a thread: between two of them, everybody else has a turn.
            async with self._turns[name]:
                # The one before may have been the same.
                right = self._remembers(mark)
                if not right:
                    self._failed.judge(name or "", address)
                    async with self._threads:
                        right = await asyncio.to_thread(self._check, hashed, password.encode())
                    if right:
                        self._remember(mark)
                        self._failed.forget(jid, address)
                    else:
                        self._failed.tell(jid, address, "the name or the password is wrong")
                        self._failed.slow(name or "", address)
                # It may have been replaced meanwhile.
                return right and self._hashes.get(jid) == hashed
        finally:
            self._waiting[name] -= 1

    def _check(self, known: bytes | None, password: bytes) -> bool:
        fits = len(password) <= _BCRYPT_BYTES and b"\0" not in password
        return bcrypt.checkpw(password if fits else b"", known or self._nobody) and known is not None and fits

    def _remembers(self, mark: bytes) -> bool:
        """Tell whether a password was right not long ago; with that it is remembered for longer."""
        now = self._clock()
        found = self._remembered.get(mark, 0.0) > now
        if found:
            self._remembered[mark] = now + REMEMBERED_SECONDS
        return found

    def _remember(self, mark: bytes) -> None:
        now = self._clock()
        if len(self._remembered) >= _REMEMBERED_MOST:
            self._remembered = {each: ends for each, ends in self._remembered.items() if ends > now}
        if len(self._remembered) < _REMEMBERED_MOST:
            self._remembered[mark] = now + REMEMBERED_SECONDS
