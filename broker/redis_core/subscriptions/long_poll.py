"""Long polling of a pull subscription: read what it holds, and wait while there is nothing new.

A delivery by this process wakes its waiting polls at once. For deliveries by others, one poll per node reads Redis repeatedly for
all that wait. Redis's pub/sub would need another connection and another right for each user to save one cheap script. Must
not know how items are handed out.
"""

import asyncio
import time
from dataclasses import replace
from typing import Final
from weakref import WeakValueDictionary

from broker.model.commands import Fetch, ReadOutcome
from broker.model.names import Jid
from broker.model.problems import Problem
from broker.model.results import Ended, Fetched, Refused, Result
from broker.redis_core.commands.internal import Ask, Outcome

LOOK_SECONDS: Final = 0.15
"""Interval at which one poll reads a node for all that wait for it."""

_OWN_LOOK_SECONDS: Final = 3.0
"""Longest interval between two reads of any one poll: it may have missed a wake-up, and its lease must be renewed."""

_TOGETHER_SECONDS: Final = 0.25

_RENEW_SECONDS: Final = 1.0


class _Waiting:
    """The polls of one node: the first of them reads for all."""

    def __init__(self) -> None:
        """Begin with no polls."""
        self.events: dict[object, asyncio.Event] = {}
        self._stamp = 0

    def pause(self, one: object, lease_ms: int | None) -> float:
        """Return how long a poll waits until its next read."""
        if next(iter(self.events)) is one:
            return LOOK_SECONDS
        own = _OWN_LOOK_SECONDS if lease_ms is None else min(_OWN_LOOK_SECONDS, lease_ms / 3_000)
        # Aligned to common moments, so that polls are read together in one call.
        return max(LOOK_SECONDS, own - (time.monotonic() + own) % _TOGETHER_SECONDS)

    def note(self, one: object, stamp: int) -> None:
        """Note what a poll found: if the first one finds a new delivery, wake all."""
        if next(iter(self.events)) is one and stamp != self._stamp:
            self._stamp = stamp
            for other, event in self.events.items():
                if other is not one:
                    event.set()

    def leave(self, one: object) -> None:
        """Remove a poll; the next one reads for the others."""
        first = next(iter(self.events)) is one
        del self.events[one]
        if first and self.events:
            next(iter(self.events.values())).set()


class LongPoll:
    """Runs the long polls of this process; the door limits how many there are."""

    def __init__(self, ask: Ask) -> None:
        """Read by `ask`."""
        self._ask = ask
        self._filled: WeakValueDictionary[Jid, asyncio.Event] = WeakValueDictionary()
        self._waiting: dict[str, _Waiting] = {}
        self._closing = False

    def wake(self, jid: Jid) -> None:
        """Wake the poll of a subscription to which a script of this process handed an item."""
        event = self._filled.get(jid)
        if event is not None:
            event.set()

    def close(self) -> None:
        """End all polls: clients come again to another process."""
        self._closing = True
        for event in list(self._filled.values()):
            event.set()

    async def fetch(self, command: Fetch) -> Result:
        """Return what a pull subscription holds, as soon as there is something or the wait is over."""
        event, one = self._filled.setdefault(command.jid, asyncio.Event()), object()
        waiting = self._waiting.setdefault(command.node, _Waiting())
        waiting.events[one] = event
        try:
            return await self._wait_and_fetch(command, event, waiting, one)
        finally:
            waiting.leave(one)
            if not waiting.events:
                del self._waiting[command.node]

    async def outcome(self, command: ReadOutcome) -> Result:
        """Return how an item has ended, as soon as it has or the wait is over."""
        ends = time.monotonic() + command.wait_seconds
        pause = LOOK_SECONDS
        while True:
            found = await self._ask(command)
            left = ends - time.monotonic()
            if not isinstance(found, Ended) or found.outcome or not found.awaited or left <= 0:
                return found  # type: ignore[return-value]  # nothing of the core's own is asked
            if self._closing:
                return Refused(Problem.UNAVAILABLE, "this process is stopping")
            await asyncio.sleep(min(pause, left))
            # Whoever has waited for long can wait a little longer.
            pause = min(pause * 1.5, _TOGETHER_SECONDS * 4)

    async def _wait_and_fetch(self, command: Fetch, event: asyncio.Event, waiting: _Waiting, one: object) -> Result:
        ends = time.monotonic() + command.wait_seconds
        renewed = 0.0
        while True:
            # A second poll of the same subscription may miss this event; it reads a little later.
            event.clear()
            renews = command.lease_ms is not None and time.monotonic() - renewed > _pause(command.lease_ms)
            look = replace(command, lease_ms=command.lease_ms if renews else 0)
            outcome = await self._ask(look)
            renewed = time.monotonic() if renews else renewed
            left = ends - time.monotonic()
            if isinstance(outcome, Fetched):
                waiting.note(one, outcome.stamp)
            if isinstance(outcome, Fetched) and outcome.returned and not outcome.items:
                # The sweep that hands out the returned items is already running.
                continue
            if _is_answer(outcome) or left <= 0:
                return outcome  # type: ignore[return-value]  # nothing of the core's own is asked
            if self._closing:
                return Refused(Problem.UNAVAILABLE, "this process is stopping")
            if not _was_cut(outcome):
                await _wait(event, min(waiting.pause(one, command.lease_ms), left))


def _is_answer(outcome: Outcome) -> bool:
    return not isinstance(outcome, Fetched) or bool(outcome.items)


def _was_cut(outcome: Outcome) -> bool:
    """Return whether there is more than one script could return to all that asked together."""
    return isinstance(outcome, Fetched) and outcome.more


def _pause(lease_ms: int) -> float:
    return min(_RENEW_SECONDS, lease_ms / 3_000)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
