"""What follows from a heartbeat: due partitions are swept, a dead frontend's deliveries taken over, idle partitions looked at.

All of it is idempotent and may be done by several frontends at once. Must not know how a visit changes a partition.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, Protocol
from zlib import crc32

import structlog

from broker.model.items import Notice
from broker.model.names import Partition
from broker.model.problems import CoreUnavailable, Problem, ScriptDefect
from broker.model.results import Counted, Refused
from broker.redis_core.commands.internal import Ask, Outcome, Scanned, Sweep, TakeOver
from broker.redis_core.delivery import relay
from broker.redis_core.groups.ownership import Ownership
from broker.redis_core.maintenance.heartbeat import DUE_AT_ONCE, Heartbeat, HeartbeatResult
from broker.redis_core.metrics import Metrics
from broker.redis_core.nodes.history import Histories
from broker.redis_core.partitions.pipeline import PartitionPipeline
from broker.redis_core.records.store import LISTED, NodeStore
from broker.redis_core.registry.merge import added_up
from broker.redis_core.registry.partitioner import COORDINATOR
from broker.redis_core.routing.router import NodeRouter
from broker.redis_core.subscriptions.approvals import Approvals

log = structlog.get_logger()

_AWAY_FOR_GOOD = (Problem.NODE_NOT_FOUND, Problem.PARTITION_NOT_FOUND)

RESCUED_AT_ONCE = 500
"""Partitions of a lapsed frontend that are taken over together."""

LOOKED_AT_ONCE = 50
"""Partitions that are visited together when all are: so many that it is soon done, so few that others get their turn."""

BUSY_TURNS = 6
"""Of so many turns that have more urgent work, one tells what is sent."""

LOOK_EVERY = 18
"""Heartbeats between two looks in passing: idle cost stays under 20 commands a second, those in scripts counted."""


COMPARED = 1
"""With each look so many records that are known here are compared with Redis: more would cost an idle frontend too much."""


class Pipelines(Protocol):
    """What the sweeper needs of the core."""

    frontend: str
    metrics: Metrics
    owners: Ownership
    approvals: Approvals
    histories: Histories

    def routes(self, node: str) -> NodeRouter:
        """Give the pipelines of a node's partitions."""

    def every(self) -> list[NodeRouter]:
        """Give the routes of all nodes that are known here."""

    def pipelines(self) -> list[PartitionPipeline]:
        """Give the pipelines there are."""

    def notify(self, notice: Notice) -> None:
        """Hand a notice to the door."""

    def disconnected(self, by: str) -> None:
        """Hear that this frontend is to end, and who wants it."""

    def background(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Run something that nobody waits for."""


class Sweeper:
    """One frontend's share of what keeps all queues moving."""

    def __init__(
        self,
        core: Pipelines,
        store: NodeStore,
        heartbeat: Heartbeat,
        ask: Ask,
        finish: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        """Work on the pipelines of `core`, owe to `heartbeat` what could not be done, `finish` assured messages in passing."""
        self._core = core
        self._store = store
        self._heartbeat = heartbeat
        self._ask = ask
        self._finish = finish
        self._rescuing: set[str] = set()
        self._visiting = 0
        self._measured_ms = 0
        self._turns = 0
        self._looked = 0
        self._next: list[Partition] = []
        self._compared: list[NodeRouter] = []

    async def act(self, visits: HeartbeatResult) -> None:
        """Do what one turn of the heartbeat has found."""
        if visits.disconnected_by:
            self._core.disconnected(visits.disconnected_by)
            return
        await self._visit_due(visits.due)
        for notice in relay.understood(visits.notices):
            self._core.notify(notice)
        if visits.blind:
            self._core.background(self.visit_all)
        self._missed(visits.lapsed)
        if visits.early:
            return
        self._mark()
        for routes in self._core.every():
            routes.tick()
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

    def _mark(self) -> None:
        """Have pipelines tell what is sent, and look for what was lost: not so many that what is due has to wait for them.

        While much is due, or a frontend is being replaced, that is put off for a few turns: each of them is a visit.
        """
        if (self._rescuing or self._visiting > DUE_AT_ONCE // 4) and self._turns % BUSY_TURNS:
            return
        room = self._heartbeat.room
        for pipeline in self._core.pipelines():
            if room > 0 and (pipeline.doubtful or pipeline.unmarked) and pipeline.quiet:
                pipeline.mark()
                room -= 1

    async def _visit_due(self, partitions: Sequence[Partition]) -> None:
        """Begin visits; as soon as half of them are done, and more may be due, the next beat comes."""
        self._visiting += len(partitions)
        self._heartbeat.room = DUE_AT_ONCE - self._visiting
        try:
            await self._know(partitions)
        except asyncio.CancelledError:
            # This frontend is going in order. They are on no list any more: it tells of them with its last words.
            for partition in partitions:
                self._heartbeat.announce(partition, int(self._heartbeat.now_ms()))
            raise
        for partition in partitions:
            self._visit(partition, partial(self._visited, partition))

    async def _know(self, partitions: Sequence[Partition]) -> None:
        """Read the records that are not known here together: for each alone it would take a round trip."""
        routes = {partition.node: self._core.routes(partition.node) for partition in partitions}
        unknown = [node for node, each in routes.items() if each.known.record is None]
        # Where Redis is away, each finds that for itself.
        with contextlib.suppress(CoreUnavailable, ScriptDefect):
            for record in await self._store.read_all(unknown) if unknown else ():
                routes[record.name].known.met(record)

    def _visit(self, partition: Partition, reply: Callable[[Outcome], None], *, passing: bool = False) -> None:
        self._core.routes(partition.node).submit(Sweep(partition.node, partition.number, passing), reply)

    def _visited(self, partition: Partition, outcome: Outcome) -> None:
        """Owe a visit that failed again: nobody else knows of it."""
        self._visiting -= 1
        self._heartbeat.room = DUE_AT_ONCE - self._visiting
        if self._heartbeat.full and self._visiting <= DUE_AT_ONCE // 2:
            self._heartbeat.full = False
            self._heartbeat.hasten()
        if isinstance(outcome, Refused) and outcome.problem not in _AWAY_FOR_GOOD:
            self._heartbeat.announce(partition, int(self._heartbeat.now_ms()))

    async def _look_in_passing(self) -> None:
        """Visit one partition, the next in the list each time, round and round: finds what events missed."""
        await self._forget_lost(COMPARED)
        if not self._core.frontend:
            # It cannot send, and frontends that can are there.
            return
        if not self._next:
            names = await self._store.names(self._looked, 1)
            self._looked = self._looked + 1 if names else 0
            self._next = await self._store.partitions(names)
        for partition in self._next[:1]:
            # What comes after it finds the node's record read.
            self._visit(partition, partial(self._looked_at, partition), passing=True)
        del self._next[:1]

    def _looked_at(self, partition: Partition, _: Outcome) -> None:
        if partition.number == 0:
            self._core.background(partial(self._core.owners.settle, partition.node))
            # What an owner has approved and a frontend that died has not made.
            self._core.background(partial(self._core.approvals.settle, partition.node))
            # Credit that a crash has lost between two partitions, or that a failover has brought back, is found again.
            self._core.background(self._core.routes(partition.node).audit)

    async def visit_all(self) -> None:
        """Visit every partition once, as a frontend does that has just started or does not know what is due."""
        try:
            for _first in range(0, len(self._core.every()), LISTED):
                await self._forget_lost(LISTED)
            async for partitions in self._partitions():
                await self._each(partitions, LOOKED_AT_ONCE, self._visit_one)
        except CoreUnavailable:
            self._heartbeat.blinded()
            raise

    async def _visit_one(self, partition: Partition) -> bool:
        await self._ask(Sweep(partition.node, partition.number, passing=True))
        if partition.number == COORDINATOR:
            await self._core.routes(partition.node).audit()
        return True

    async def _each(
        self, partitions: Sequence[Partition], at_once: int, work: Callable[[Partition], Coroutine[Any, Any, bool]]
    ) -> bool:
        """Do the same in many partitions, in a part of them at once; tells whether all went well."""
        well = True
        for first in range(0, len(partitions), at_once):
            some = partitions[first : first + at_once]
            await self._know(some)
            well = all(await asyncio.gather(*map(work, some))) and well
        return well

    async def _rescue(self, frontend: str) -> None:
        """Take over from a lapsed frontend, everywhere; only when all is done is it struck off the list."""
        try:
            living = await self._heartbeat.living()
            # What it owed comes first and is looked for in bulk: thousands of idle nodes must not stand in its way. Each of
            # those that live begins with its share, and looks at the others' after that: they may die on the way.
            complete, others = True, list[Partition]()
            async for found in self._partitions():
                mine: list[Partition] = []
                for each in found:
                    (mine if _first_of(each, living) in {self._core.frontend, ""} else others).append(each)
                complete = await self._rescue_all(mine, frontend) and complete
            for at in range(0, len(others), LISTED):
                complete = await self._rescue_all(others[at : at + LISTED], frontend) and complete
            if complete:
                self._heartbeat.rescued(frontend)
            await self.visit_all()
        finally:
            self._rescuing.discard(frontend)

    async def _rescue_all(self, partitions: Sequence[Partition], frontend: str) -> bool:
        found = await self._store.concerned(partitions, frontend)
        return await self._each(found, RESCUED_AT_ONCE, partial(self.rescue_partition, frontend=frontend))

    async def rescue_partition(self, partition: Partition, frontend: str) -> bool:
        """Take over what a frontend owes in one partition; False when that has to be tried again."""
        scan, upto = "0", None
        while True:
            outcome = await self._ask(TakeOver(partition.node, frontend, None, upto, scan, partition.number))
            if not isinstance(outcome, Scanned):
                return isinstance(outcome, Refused) and outcome.problem in _AWAY_FOR_GOOD
            scan, upto = outcome.scan, outcome.upto
            if scan == "0":
                return True

    async def measure(self) -> None:
        """Measure the nodes that are new here or that something has happened to, for gauges and their history.

        The others have what they had, but for the age of what waits; the gauges of nodes that are gone are dropped.
        """
        metrics = self._core.metrics
        there = {name async for names in self._names() for name in names}
        # What is told in this millisecond may not be complete.
        upto = await self._store.now_ms() - 1
        changed = await self._store.changed(self._measured_ms, upto)
        metrics.keep(there)
        wanted = [name for name in there if name in changed or name not in metrics.measured]
        for first in range(0, len(wanted), LISTED):
            records = await self._store.records(wanted[first : first + LISTED])
            counts = await self._store.counts([each for record in records for each in record.partitions])
            measured: dict[str, Counted] = {}
            for record in records:
                outcomes = [counts[each] for each in record.partitions if each in counts]
                if outcomes:
                    measured[record.name] = added_up(outcomes)
                    metrics.gauge(record.name, measured[record.name])
            if measured:
                await self._core.histories.note(upto, measured)
        metrics.age()
        self._measured_ms = upto

    async def _partitions(self) -> AsyncIterator[list[Partition]]:
        async for names in self._names():
            yield await self._store.partitions(names)

    async def _forget_lost(self, most: int) -> None:
        """Compare records that are known here, the next ones each time, with Redis; one of another life is read anew.

        Redis may have lost the record of a life that is known here: no script would notice, for its partitions are still there.
        Or it has lost the name alone, in the list of all nodes.
        """
        if not self._compared:
            self._compared = [routes for routes in self._core.every() if routes.known.record]
        some, self._compared = self._compared[:most], self._compared[most:]
        if not some:
            return
        lives = await self._store.lives([routes.known.node for routes in some])
        there = []
        for routes in some:
            record = routes.known.record
            if record and record.incarnation == lives.get(record.name):
                there.append(record)
            elif record:
                routes.forget()
        await self._store.list_again(there)

    async def _names(self) -> AsyncIterator[tuple[str, ...]]:
        first = 0
        while names := await self._store.names(first):
            yield names
            first += len(names)


def _first_of(partition: Partition, living: Sequence[str]) -> str:
    """Say which of the living frontends looks at a partition first; the same for all who ask."""
    return living[crc32(str(partition).encode()) % len(living)] if living else ""
