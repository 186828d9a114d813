"""How a lease's owner comes for what it holds: a look, and while there is nothing new a wait for something.

What this process hands out wakes who waits here at once; for what others hand out Redis is asked again and again, by one for
all who wait for the same node. Not by Redis's pub/sub: that would be a connection and a right more for every user, to save one
cheap script. Must not know how items are handed out.
"""

import asyncio
import time
from dataclasses import replace
from typing import Final
from weakref import WeakValueDictionary

from broker.model.commands import Fetch
from broker.model.names import Jid
from broker.model.problems import Problem
from broker.model.results import Fetched, Refused, Result
from broker.redis_core.commands.internal import Ask, Outcome

LOOK_SECONDS: Final = 0.15
"""Between two looks at a node for all who wait for it."""

_OWN_LOOK_SECONDS: Final = 3.0
"""Between two of one's own at most, who may have missed a wake that another took for itself, and whose lease has to last."""

_TOGETHER_SECONDS: Final = 0.25

_RENEW_SECONDS: Final = 1.0


class _Waiting:
    """Who waits for what one node hands out: the first of them looks for all."""

    def __init__(self) -> None:
        """Begin with nobody."""
        self.events: dict[object, asyncio.Event] = {}
        self._stamp = 0

    def pause(self, one: object, lease_ms: int | None) -> float:
        """Give how long one of them waits until it looks."""
        if next(iter(self.events)) is one:
            return LOOK_SECONDS
        own = _OWN_LOOK_SECONDS if lease_ms is None else min(_OWN_LOOK_SECONDS, lease_ms / 3_000)
        # At moments that are the same for all, as far as that goes: who looks together is one call.
        return max(LOOK_SECONDS, own - (time.monotonic() + own) % _TOGETHER_SECONDS)

    def seen(self, one: object, stamp: int) -> None:
        """Hear what one has found: when the first finds that somebody has been handed something, all look."""
        if next(iter(self.events)) is one and stamp != self._stamp:
            self._stamp = stamp
            for other, event in self.events.items():
                if other is not one:
                    event.set()

    def leave(self, one: object) -> None:
        """Wait no more; the next one looks for the others."""
        first = next(iter(self.events)) is one
        del self.events[one]
        if first and self.events:
            next(iter(self.events.values())).set()


class LongPoll:
    """Looks and waits for all who ask in this process; as many wait as the door lets in."""

    def __init__(self, ask: Ask) -> None:
        """Look by `ask`."""
        self._ask = ask
        self._filled: WeakValueDictionary[Jid, asyncio.Event] = WeakValueDictionary()
        self._waiting: dict[str, _Waiting] = {}
        self._closing = False

    def filled(self, jid: Jid) -> None:
        """Hear that a script run here has handed something to a lease."""
        event = self._filled.get(jid)
        if event is not None:
            event.set()

    def close(self) -> None:
        """Let nobody wait any more: another process serves who comes again."""
        self._closing = True
        for event in list(self._filled.values()):
            event.set()

    async def fetch(self, command: Fetch) -> Result:
        """Read what a lease holds, as soon as that is something, or when the time is over."""
        event, one = self._filled.setdefault(command.jid, asyncio.Event()), object()
        waiting = self._waiting.setdefault(command.node, _Waiting())
        waiting.events[one] = event
        try:
            return await self._fetched(command, event, waiting, one)
        finally:
            waiting.leave(one)
            if not waiting.events:
                del self._waiting[command.node]

    async def _fetched(self, command: Fetch, event: asyncio.Event, waiting: _Waiting, one: object) -> Result:
        ends = time.monotonic() + command.wait_seconds
        renewed = 0.0
        while True:
            # Of two who wait for one lease the other may miss this one's wake, and then looks a little later.
            event.clear()
            renews = command.lease_ms is not None and time.monotonic() - renewed > _pause(command.lease_ms)
            look = replace(command, lease_ms=command.lease_ms if renews else 0)
            outcome = await self._ask(look)
            renewed = time.monotonic() if renews else renewed
            left = ends - time.monotonic()
            if isinstance(outcome, Fetched):
                waiting.seen(one, outcome.stamp)
            if isinstance(outcome, Fetched) and outcome.returned and not outcome.items:
                # The visit that hands it what waits is under way already, before this look.
                continue
            if _tells(outcome) or left <= 0:
                return outcome  # type: ignore[return-value]  # nothing of the core's own is asked
            if self._closing:
                return Refused(Problem.UNAVAILABLE, "this process is going")
            if not _cut(outcome):
                await _wait(event, min(waiting.pause(one, command.lease_ms), left))


def _tells(outcome: Outcome) -> bool:
    return not isinstance(outcome, Fetched) or bool(outcome.items)


def _cut(outcome: Outcome) -> bool:
    """Tell whether there is something that was too much for one script, since others asked with it."""
    return isinstance(outcome, Fetched) and outcome.more


def _pause(lease_ms: int) -> float:
    return min(_RENEW_SECONDS, lease_ms / 3_000)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
