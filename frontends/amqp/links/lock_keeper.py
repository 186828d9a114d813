"""What a worker's link holds: locks that are renewed while the link lives, half-way to their end, and how they end.

An end is repeated while Redis is away, and outlives the link. Must not know links.
"""

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from broker.model.commands import Retract, Unlock
from broker.model.core import Core
from broker.model.problems import Problem
from broker.model.results import Refused, Renewed, Result
from frontends.amqp.messages.lock_ref import LockRef

LEASE_MS: Final = 10_000
"""So long after a frontend has died its workers' items go to others."""

AWAY: Final = frozenset({Problem.UNAVAILABLE, Problem.TIMED_OUT, Problem.OUT_OF_MEMORY})
"""Why Redis may take the same again."""

PAUSE_SECONDS: Final = 0.2
_LEAST_SECONDS: Final = 0.25
_DOUBT_SECONDS: Final = 1.0
"""The time of Redis is known from the last renewal of the lease, which may lie so far back."""

_ENDED: Final = frozenset({Problem.ITEM_NOT_FOUND, Problem.LOCK_LOST})

Then = Callable[[Refused | None], None]
"""Hears how a lock's end went."""


@dataclass(slots=True)
class _Lock:
    lock_ref: LockRef
    renews_at: float


class LockKeeper:
    """The locks of one link, by the numbers of its messages; `changed` hears that there is another time to look, or one less."""

    def __init__(self, core: Core, changed: Callable[[], None]) -> None:
        """Hold nothing."""
        self._core = core
        self._changed = changed
        self._locks: dict[int, _Lock] = {}
        self._ahead = 0.0
        self._renews_at = math.inf

    def __len__(self) -> int:
        """Count them."""
        return len(self._locks)

    def heard(self, now_ms: int) -> None:
        """Hear what time it is for Redis, or was a moment ago."""
        self._ahead = now_ms / 1000 - time.monotonic()

    def add(self, number: int, lock_ref: LockRef, deadline_ms: int) -> None:
        """Hold one more."""
        self._locks[number] = lock = _Lock(lock_ref, self._renewal(deadline_ms))
        self._remind(lock)

    def pop(self, number: int) -> LockRef | None:
        """Hold one no more; None when it is lost."""
        lock = self._locks.pop(number, None)
        return lock.lock_ref if lock else None

    def clear(self) -> None:
        """Hold nothing any more."""
        self._locks.clear()

    @property
    def due_seconds(self) -> float:
        """Give in how many seconds one is to be renewed."""
        return self._renews_at - time.monotonic()

    def renew(self) -> None:
        """Renew those that are due."""
        if self.due_seconds > 0:
            return
        now = time.monotonic()
        for number, lock in self._locks.items():
            if lock.renews_at <= now:
                lock.renews_at = math.inf
                self._core.submit(lock.lock_ref.renew(), partial(self._renewed, number))
        self._renews_at = min((lock.renews_at for lock in self._locks.values()), default=math.inf)

    def _renewed(self, number: int, result: Result) -> None:
        lock = self._locks.get(number)
        if lock is None:
            return
        if isinstance(result, Refused) and result.problem not in AWAY:
            # Time was too short, or the queue's owner has ended it: what the worker says of it comes too late.
            del self._locks[number]
            self._changed()
            return
        lock.renews_at = time.monotonic() + PAUSE_SECONDS
        if isinstance(result, Renewed):
            lock.renews_at = self._renewal(result.deadline_ms)
        self._remind(lock)

    def _renewal(self, deadline_ms: int) -> float:
        now = time.monotonic()
        return now + max(_LEAST_SECONDS, (deadline_ms / 1000 - now - self._ahead - _DOUBT_SECONDS) / 2)

    def _remind(self, lock: _Lock) -> None:
        if lock.renews_at < self._renews_at:
            self._renews_at = lock.renews_at
            self._changed()

    def end(self, command: Retract | Unlock, then: Then, *, certain: bool, began: float | None = None) -> None:
        """End a lock, and again while Redis is away; a `certain` end of two is known to be the sender's own."""
        self._core.submit(command, partial(self._ended, command, then, began, certain=certain))

    def _ended(
        self, command: Retract | Unlock, then: Then, began: float | None, result: Result, *, certain: bool
    ) -> None:
        refusal, now = result if isinstance(result, Refused) else None, time.monotonic()
        if refusal and refusal.problem in AWAY and now < (began or now) + LEASE_MS / 1000:
            again = partial(self.end, command, then, certain=certain, began=began or now)
            asyncio.get_running_loop().call_later(PAUSE_SECONDS, again)
        else:
            # The first of two may have run all the same.
            done = began and not certain and refusal and refusal.problem in _ENDED
            then(None if done else refusal)
