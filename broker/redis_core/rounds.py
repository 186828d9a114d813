"""What the pulse has a frontend do: visit partitions that are due, rescue what lapsed frontends owe, look in passing.

All of it is idempotent and may be done by several frontends at once. Must not know how a visit changes a partition.
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Protocol

import structlog

from broker.model.commands import Stats
from broker.model.items import Notice
from broker.model.names import Jid, Partition
from broker.model.problems import CoreUnavailable, Problem
from broker.model.results import Counted, Refused
from broker.redis_core import proxy
from broker.redis_core.approvals import Approvals
from broker.redis_core.directory import Directory
from broker.redis_core.internal import Ask, Expire, Outcome, Resend, Scanned
from broker.redis_core.lane import Lane
from broker.redis_core.metrics import Metrics
from broker.redis_core.owners import Owners
from broker.redis_core.places import BANK
from broker.redis_core.pulse import Pulse, Visits
from broker.redis_core.routes import Routes

log = structlog.get_logger()

_AWAY_FOR_GOOD = (Problem.NODE_NOT_FOUND, Problem.PARTITION_NOT_FOUND)

LOOK_EVERY = 10
"""Turns of the pulse between two looks in passing: idle cost stays under 20 commands a second, those in scripts counted."""


class Lanes(Protocol):
    """What the rounds need of the core."""

    frontend: str
    metrics: Metrics
    owners: Owners
    approvals: Approvals

    def routes(self, node: str) -> Routes:
        """Give the lanes of a node's partitions."""

    def every(self) -> list[Routes]:
        """Give the routes of all nodes that are known here."""

    def lanes(self) -> list[Lane]:
        """Give the lanes there are."""

    def notify(self, notice: Notice) -> None:
        """Hand a notice to the door."""

    def disconnected(self, by: str) -> None:
        """Hear that this frontend is to end, and who wants it."""

    def background(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Run something that nobody waits for."""


class Rounds:
    """One frontend's share of what keeps all queues moving."""

    def __init__(
        self, core: Lanes, directory: Directory, pulse: Pulse, ask: Ask, finish: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """Work on the lanes of `core`, owe to `pulse` what could not be done, `finish` assured messages in passing."""
        self._core = core
        self._directory = directory
        self._pulse = pulse
        self._ask = ask
        self._finish = finish
        self._rescuing: set[str] = set()
        self._turns = 0
        self._looked = 0
        self._next: list[Partition] = []

    async def act(self, visits: Visits) -> None:
        """Do what one turn of the pulse has found."""
        if visits.disconnected_by:
            self._core.disconnected(visits.disconnected_by)
            return
        for partition in visits.due:
            self._visit(partition, partial(self._visited, partition))
        for notice in proxy.understood(visits.notices):
            self._core.notify(notice)
        if visits.blind:
            self._core.background(self.visit_all)
        self._missed(visits.lapsed)
        for lane in self._core.lanes():
            if (lane.doubtful or lane.unmarked) and lane.quiet:
                lane.mark()
        for routes in self._core.every():
            routes.lending.breathe()
        self._turns += 1
        if self._turns % LOOK_EVERY == 0:
            await self._look_in_passing()
            self._core.background(self._finish)

    def _missed(self, frontends: Iterable[str]) -> None:
        for frontend in frontends:
            if frontend != self._core.frontend and frontend not in self._rescuing:
                self._rescuing.add(frontend)
                log.warning("frontend lapsed", frontend=frontend)
                self._core.background(partial(self._rescue, frontend))

    def _visit(self, partition: Partition, reply: Callable[[Outcome], None]) -> None:
        self._core.routes(partition.node).submit(Expire(partition.node, partition.number), reply)

    def _visited(self, partition: Partition, outcome: Outcome) -> None:
        """Owe a visit that failed again: nobody else knows of it."""
        if isinstance(outcome, Refused) and outcome.problem not in _AWAY_FOR_GOOD:
            self._pulse.announce(partition, int(self._pulse.now_ms()))

    async def _look_in_passing(self) -> None:
        """Visit one partition, the next in the list each time, round and round: finds what events missed."""
        if not self._core.frontend:
            # It cannot send, and frontends that can are there.
            return
        if not self._next:
            names = await self._directory.names(self._looked, 1)
            self._looked = self._looked + 1 if names else 0
            self._next = await self._directory.partitions(names)
        for partition in self._next[:1]:
            # What comes after it finds the node's record read.
            self._visit(partition, partial(self._looked_at, partition))
        del self._next[:1]

    def _looked_at(self, partition: Partition, _: Outcome) -> None:
        if partition.number == 0:
            self._core.background(partial(self._core.owners.settle, partition.node))
            self._core.background(self._core.routes(partition.node).recount_pool)
            # What an owner has approved and a frontend that died has not made.
            self._core.background(partial(self._core.approvals.settle, partition.node))
        if partition.number == BANK + 1:
            # Credit that a crash has lost between two partitions, or that a failover has brought back, is counted anew.
            self._core.background(self._core.routes(partition.node).recount)

    async def visit_all(self) -> None:
        """Visit every partition once, as a frontend does that has just started or does not know what is due."""
        try:
            async for partition in self._partitions():
                await self._ask(Expire(partition.node, partition.number))
                if partition.number == BANK + 1:
                    await self._core.routes(partition.node).recount()
                elif partition.number == BANK:
                    await self._core.routes(partition.node).recount_pool()
        except CoreUnavailable:
            self._pulse.blinded()
            raise

    async def _rescue(self, frontend: str) -> None:
        """Take over from a lapsed frontend, everywhere; only when all is done is it struck off the list."""
        try:
            # What it owed comes first and is looked for in bulk: thousands of idle nodes must not stand in its way.
            complete, first = True, 0
            while names := await self._directory.names(first):
                for partition in await self._directory.concerned(names, frontend):
                    complete = await self.rescue_partition(partition, frontend) and complete
                first += len(names)
            if complete:
                self._pulse.rescued(frontend)
            await self.visit_all()
        finally:
            self._rescuing.discard(frontend)

    async def rescue_partition(self, partition: Partition, frontend: str) -> bool:
        """Take over what a frontend owes in one partition; False when that has to be tried again."""
        scan, upto = "0", None
        while True:
            outcome = await self._ask(Resend(partition.node, frontend, None, upto, scan, partition.number))
            if not isinstance(outcome, Scanned):
                return isinstance(outcome, Refused) and outcome.problem in _AWAY_FOR_GOOD
            scan, upto = outcome.scan, outcome.upto
            if scan == "0":
                return True

    async def measure(self) -> None:
        """Set the gauges of every node, and of no other."""
        there = set()
        async for names in self._names():
            for node in names:
                counted = await self._ask(Stats(node, Jid("")))
                if isinstance(counted, Counted):
                    self._core.metrics.gauge(node, counted)
                    there.add(node)
        self._core.metrics.keep(there)

    async def _partitions(self) -> AsyncIterator[Partition]:
        async for names in self._names():
            for partition in await self._directory.partitions(names):
                yield partition

    async def _names(self) -> AsyncIterator[tuple[str, ...]]:
        first = 0
        while names := await self._directory.names(first):
            yield names
            first += len(names)
