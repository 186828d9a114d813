"""The locks held by a consumer's link: renews each half-way to its deadline while the link lives, and ends locks.

It repeats an end while Redis is away, even after the link is gone. Must not know links.
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
from frontends.amqp.messages.lock_ref import LOCK_MS, LockRef

PAUSE_SECONDS: Final = 0.2
_LEAST_SECONDS: Final = 0.25
_CLOCK_ERROR_SECONDS: Final = 1.0
"""Redis's time is known from the last renewal of the subscription; the estimate may be off by this much."""

_ENDED: Final = frozenset({Problem.ITEM_NOT_FOUND, Problem.LOCK_LOST})

Then = Callable[[Refused | None], None]
"""Called with the result of ending a lock."""


@dataclass(slots=True)
class _Lock:
    lock_ref: LockRef
    renews_at: float


class LockKeeper:
    """The locks of one link, by message number. `changed` is called when the next renewal is earlier or a lock is lost."""

    def __init__(self, core: Core, changed: Callable[[], None]) -> None:
        """Start without locks."""
        self._core = core
        self._changed = changed
        self._locks: dict[int, _Lock] = {}
        self._clock_offset = 0.0
        self._renews_at = math.inf

    def __len__(self) -> int:
        """Count the locks."""
        return len(self._locks)

    def set_redis_time(self, now_ms: int) -> None:
        """Take the time of Redis now, or a moment ago."""
        self._clock_offset = now_ms / 1000 - time.monotonic()

    def add(self, number: int, lock_ref: LockRef, deadline_ms: int) -> None:
        """Add a lock."""
        self._locks[number] = lock = _Lock(lock_ref, self._renewal(deadline_ms))
        self._schedule(lock)

    def pop(self, number: int) -> LockRef | None:
        """Remove a lock; None if it is lost already."""
        lock = self._locks.pop(number, None)
        return lock.lock_ref if lock else None

    def clear(self) -> None:
        """Remove all locks."""
        self._locks.clear()

    @property
    def due_seconds(self) -> float:
        """Return the seconds until the next renewal."""
        return self._renews_at - time.monotonic()

    def renew(self) -> None:
        """Renew the locks that are due."""
        if self.due_seconds > 0:
            return
        now = time.monotonic()
        for number, lock in self._locks.items():
            if lock.renews_at <= now:
                lock.renews_at = math.inf
                self._core.submit(lock.lock_ref.renew(), partial(self._on_renewed, number))
        self._renews_at = min((lock.renews_at for lock in self._locks.values()), default=math.inf)

    def _on_renewed(self, number: int, result: Result) -> None:
        lock = self._locks.get(number)
        if lock is None:
            return
        if isinstance(result, Refused) and not result.problem.is_ours:
            # The lock has expired, or the queue's owner has ended it: a later outcome is too late.
            del self._locks[number]
            self._changed()
            return
        lock.renews_at = time.monotonic() + PAUSE_SECONDS
        if isinstance(result, Renewed):
            lock.renews_at = self._renewal(result.deadline_ms)
        self._schedule(lock)

    def _renewal(self, deadline_ms: int) -> float:
        now = time.monotonic()
        return now + max(_LEAST_SECONDS, (deadline_ms / 1000 - now - self._clock_offset - _CLOCK_ERROR_SECONDS) / 2)

    def _schedule(self, lock: _Lock) -> None:
        if lock.renews_at < self._renews_at:
            self._renews_at = lock.renews_at
            self._changed()

    def end(self, command: Retract | Unlock, then: Then, *, certain: bool, began: float | None = None) -> None:
        """End a lock, and retry while Redis is away. With `certain`, an end that a retry finds done already counts as refused."""
        self._core.submit(command, partial(self._on_ended, command, then, began, certain=certain))

    def _on_ended(
        self, command: Retract | Unlock, then: Then, began: float | None, result: Result, *, certain: bool
    ) -> None:
        refusal, now = result if isinstance(result, Refused) else None, time.monotonic()
        if refusal and refusal.problem.is_ours and now < (began or now) + LOCK_MS / 1000:
            again = partial(self.end, command, then, certain=certain, began=began or now)
            asyncio.get_running_loop().call_later(PAUSE_SECONDS, again)
        else:
            # The first of two attempts may have succeeded although its reply was lost.
            done = began and not certain and refusal and refusal.problem in _ENDED
            then(None if done else refusal)
