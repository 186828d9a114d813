"""Receives that wait: for a pull subscription until items come, and for the end of an item.

A partition keeps who waits, and the operation by which an item may go out names who has waited longest; the process that ran it
wakes that one. A wake-up may be lost with a process, so each looks again after a while. Must not know how items are locked.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from broker.model.commands import ReadOutcome, Receive, Retract
from broker.model.names import Partition
from broker.model.problems import Problem
from broker.model.results import AcknowledgedAndReceived, Ended, HeldItem, Received, Refused, Result, Retracted
from broker.redis_core.commands.internal import Ask, Outcome, PassOn, ReceiveNow
from broker.redis_core.operations.operation import subid

LOOK_SECONDS: Final = 5.0
"""Longest interval between two looks of one that waits: its wake-up may have been lost."""

SHORT_SECONDS: Final = 0.5
"""Interval between two looks beside waiting items, while a collection has no credit free."""

OUTCOME_SECONDS: Final = (0.15, 1.0)
"""Shortest and longest interval between two looks for the end of an item."""

_STOPPING: Final = Refused(Problem.UNAVAILABLE, "this process is stopping")


class Count(Protocol):
    """Adds to a counter."""

    def __call__(self, what: str, amount: int = 1, node: str = "", waits_ms: Sequence[int] = ()) -> None:
        """Add to a counter of a node; `waits_ms` are waits for a first delivery."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """One that waits, and the partitions that have woken it."""

    event: asyncio.Event = field(default_factory=asyncio.Event)
    woken: set[Partition] = field(default_factory=set)

    async def wait(self, seconds: float) -> frozenset[Partition]:
        """Wait for a wake-up for so many seconds; returns the partitions that it came from."""
        try:
            async with asyncio.timeout(seconds):
                await self.event.wait()
        except TimeoutError:
            pass
        self.event.clear()
        woken, self.woken = frozenset(self.woken), set()
        return woken


class Receiving:
    """Those that wait in this process; the door limits how many there are."""

    def __init__(self, ask: Ask, count: Count, process: str, pass_on: Callable[[PassOn], None]) -> None:
        """Receive by `ask`, to be woken under the name `process`; a wake-up for nobody is passed on."""
        self._ask = ask
        self._count = count
        self._process = process
        self._pass_on = pass_on
        self._waiting: defaultdict[str, list[_Waiting]] = defaultdict(list)
        self._closing = False

    def wake(self, partition: Partition, whose: str) -> None:
        """Wake those that wait for a subscription; if none does, let the partition wake another one."""
        if whose not in self._waiting:
            self._pass_on(PassOn(partition.node, whose, partition.number, partition.incarnation))
            return
        for each in self._waiting[whose]:
            each.woken.add(partition)
            each.event.set()

    def close(self) -> None:
        """End all waits: clients come again to another process."""
        self._closing = True
        for each in self._waiting.values():
            for waiting in each:
                waiting.event.set()

    async def receive(self, command: Receive) -> Result:
        """Return what a pull subscription holds, as soon as there is something or the wait is over; at once if all is owned."""
        if command.wait_seconds <= 0:
            return self._answer(await self._ask(ReceiveNow(command.node, command)))
        whose, waiting = subid(command.jid), _Waiting()
        self._waiting[whose].append(waiting)
        try:
            return self._answer(await self._wait_and_receive(command, waiting))
        finally:
            self._waiting[whose].remove(waiting)
            if not self._waiting[whose]:
                del self._waiting[whose]

    def acknowledge(self, command: Retract) -> Coroutine[None, None, Result]:
        """Acknowledge an item, and receive what its holder asks for with that."""
        return self._acknowledge(command, self._ask(command))

    async def _acknowledge(self, command: Retract, answer: Awaitable[Outcome]) -> Result:
        assert command.next is not None
        found, more = await answer, command.next
        if isinstance(found, AcknowledgedAndReceived):
            outcome, received = found.outcome, found.received
        else:
            assert isinstance(found, Retracted | Refused)
            # More than one partition is to be asked, which fills the subscription up to its credit.
            outcome = found
            receive = Receive(more.node, command.sender, command.sender, more.lease_ms, takes=more.most > 0)
            held = await self._ask(ReceiveNow(more.node, receive))
            assert isinstance(held, Received | Refused)
            received = held
            if isinstance(held, Received):
                received = replace(held, items=tuple(item for item in held.items if item.locked_now))
        self._answer(received)
        return AcknowledgedAndReceived(outcome, received)

    async def _wait_and_receive(self, command: Receive, waiting: _Waiting) -> Outcome:
        ends = time.monotonic() + command.wait_seconds
        look = LOOK_SECONDS if command.lease_ms is None else min(LOOK_SECONDS, command.lease_ms / 3_000)
        now = ReceiveNow(command.node, command, self._process)
        while True:
            found = await self._ask(now)
            if not isinstance(found, Received) or found.items:
                return found
            if self._closing:
                return _STOPPING
            if found.owned or not now.process:
                return found
            left = ends - time.monotonic()
            # What is in doubt, or on its way back, frees credit before long, and nobody is woken for that.
            pause = min(SHORT_SECONDS, look) if found.short else look
            woken = await waiting.wait(max(0.0, min(pause, left)))
            # The last look leaves no word: nobody waits any more.
            process = self._process if ends > time.monotonic() and not self._closing else ""
            now = ReceiveNow(command.node, command, process, woken, found.held if woken else {})

    def _answer(self, outcome: Outcome) -> Result:
        """Count what was locked now, for each node."""
        new: dict[str, list[HeldItem]] = {}
        for item in outcome.items if isinstance(outcome, Received) else ():
            if item.locked_now:
                new.setdefault(item.partition.node, []).append(item)
        for node, items in new.items():
            waits_ms = [item.waited_ms for item in items if item.waited_ms is not None and item.waited_ms >= 0]
            self._count("delivered", len(items), node, waits_ms)
        return outcome  # type: ignore[return-value]  # nothing of the core's own is asked

    async def outcome(self, command: ReadOutcome) -> Result:
        """Return how an item has ended, as soon as it has or the wait is over."""
        ends = time.monotonic() + command.wait_seconds
        pause, longest = OUTCOME_SECONDS
        while True:
            found = await self._ask(command)
            left = ends - time.monotonic()
            if not isinstance(found, Ended) or found.outcome or not found.awaited or left <= 0:
                return found  # type: ignore[return-value]  # nothing of the core's own is asked
            if self._closing:
                return _STOPPING
            await asyncio.sleep(min(pause, left))
            # Whoever has waited for long can wait a little longer.
            pause = min(pause * 1.5, longest)
