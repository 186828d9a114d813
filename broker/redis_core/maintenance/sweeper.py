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
from broker.redis_core.maintenance.heartbeat import MAX_SWEEPS, Heartbeat, HeartbeatResult
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

TAKEOVER_BATCH = 500
"""Partitions of a lapsed frontend that are taken over together."""

SWEEP_BATCH = 50
"""Partitions that are visited together when all are: so many that it is soon done, so few that others get their turn."""

BUSY_MARK_EVERY = 6
"""Of so many turns that have more urgent work, one tells what is sent."""

SCAN_EVERY = 18
"""Heartbeats between two looks in passing: idle cost stays under 20 commands a second, those in scripts counted."""


COMPARE_BATCH = 1
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
        self._taking_over: set[str] = set()
        self._sweeping = 0
        self._measured_ms = 0
        self._turns = 0
        self._scanned_nodes = 0
        self._to_scan: list[Partition] = []
        self._to_compare: list[NodeRouter] = []

    async def act(self, visits: HeartbeatResult) -> None:
        """Do what one turn of the heartbeat has found."""
        if visits.disconnected_by:
            self._core.disconnected(visits.disconnected_by)
            return
        await self._sweep_due(visits.due)
        for notice in relay.understood(visits.notices):
            self._core.notify(notice)
        if visits.state_unknown:
            self._core.background(self.sweep_all)
        self._begin_takeovers(visits.dead)
        if visits.early:
            return
        self._report_sent()
        for routes in self._core.every():
            routes.tick()
        self._turns += 1
        if self._turns % SCAN_EVERY == 0:
            await self._scan_next()
            self._core.background(self._finish)

    def _begin_takeovers(self, frontends: Iterable[str]) -> None:
        for frontend in frontends:
            if frontend != self._core.frontend and frontend not in self._taking_over:
                self._taking_over.add(frontend)
                log.warning("frontend is dead", frontend=frontend)
                self._core.background(partial(self._take_over, frontend))

    def _report_sent(self) -> None:
        """Have pipelines tell what is sent, and look for what was lost: not so many that what is due has to wait for them.

        While much is due, or a frontend is being replaced, that is put off for a few turns: each of them is a visit.
        """
        if (self._taking_over or self._sweeping > MAX_SWEEPS // 4) and self._turns % BUSY_MARK_EVERY:
            return
        room = self._heartbeat.free_sweeps
        for pipeline in self._core.pipelines():
            if room > 0 and (pipeline.doubtful or pipeline.unmarked) and pipeline.quiet:
                pipeline.mark()
                room -= 1

    async def _sweep_due(self, partitions: Sequence[Partition]) -> None:
        """Begin visits; as soon as half of them are done, and more may be due, the next beat comes."""
        self._sweeping += len(partitions)
        self._heartbeat.free_sweeps = MAX_SWEEPS - self._sweeping
        try:
            await self._read_records(partitions)
        except asyncio.CancelledError:
            # This frontend is going in order. They are on no list any more: it tells of them with its last words.
            for partition in partitions:
                self._heartbeat.announce(partition, int(self._heartbeat.now_ms()))
            raise
        for partition in partitions:
            self._sweep(partition, partial(self._swept, partition))

    async def _read_records(self, partitions: Sequence[Partition]) -> None:
        """Read the records that are not known here together: for each alone it would take a round trip."""
        routes = {partition.node: self._core.routes(partition.node) for partition in partitions}
        unknown = [node for node, each in routes.items() if each.known.record is None]
        # Where Redis is away, each finds that for itself.
        with contextlib.suppress(CoreUnavailable, ScriptDefect):
            for record in await self._store.read_all(unknown) if unknown else ():
                routes[record.name].known.met(record)

    def _sweep(self, partition: Partition, reply: Callable[[Outcome], None], *, passing: bool = False) -> None:
        self._core.routes(partition.node).submit(Sweep(partition.node, partition.number, passing), reply)

    def _swept(self, partition: Partition, outcome: Outcome) -> None:
        """Owe a visit that failed again: nobody else knows of it."""
        self._sweeping -= 1
        self._heartbeat.free_sweeps = MAX_SWEEPS - self._sweeping
        if self._heartbeat.more_due and self._sweeping <= MAX_SWEEPS // 2:
            self._heartbeat.more_due = False
            self._heartbeat.beat_now()
        if isinstance(outcome, Refused) and outcome.problem not in _AWAY_FOR_GOOD:
            self._heartbeat.announce(partition, int(self._heartbeat.now_ms()))

    async def _scan_next(self) -> None:
        """Visit one partition, the next in the list each time, round and round: finds what events missed."""
        await self._compare_records(COMPARE_BATCH)
        if not self._core.frontend:
            # It cannot send, and frontends that can are there.
            return
        if not self._to_scan:
            names = await self._store.names(self._scanned_nodes, 1)
            self._scanned_nodes = self._scanned_nodes + 1 if names else 0
            self._to_scan = await self._store.partitions(names)
        for partition in self._to_scan[:1]:
            # What comes after it finds the node's record read.
            self._sweep(partition, partial(self._scanned, partition), passing=True)
        del self._to_scan[:1]

    def _scanned(self, partition: Partition, _: Outcome) -> None:
        if partition.number == 0:
            self._core.background(partial(self._core.owners.settle, partition.node))
            # What an owner has approved and a frontend that died has not made.
            self._core.background(partial(self._core.approvals.settle, partition.node))
            # Credit that a crash has lost between two partitions, or that a failover has brought back, is found again.
            self._core.background(self._core.routes(partition.node).audit)

    async def sweep_all(self) -> None:
        """Visit every partition once, as a frontend does that has just started or does not know what is due."""
        try:
            for _first in range(0, len(self._core.every()), LISTED):
                await self._compare_records(LISTED)
            async for partitions in self._partitions():
                await self._in_batches(partitions, SWEEP_BATCH, self._sweep_one)
        except CoreUnavailable:
            self._heartbeat.mark_state_unknown()
            raise

    async def _sweep_one(self, partition: Partition) -> bool:
        await self._ask(Sweep(partition.node, partition.number, passing=True))
        if partition.number == COORDINATOR:
            await self._core.routes(partition.node).audit()
        return True

    async def _in_batches(
        self, partitions: Sequence[Partition], at_once: int, work: Callable[[Partition], Coroutine[Any, Any, bool]]
    ) -> bool:
        """Do the same in many partitions, in a part of them at once; tells whether all went well."""
        well = True
        for first in range(0, len(partitions), at_once):
            some = partitions[first : first + at_once]
            await self._read_records(some)
            well = all(await asyncio.gather(*map(work, some))) and well
        return well

    async def _take_over(self, frontend: str) -> None:
        """Take over from a lapsed frontend, everywhere; only when all is done is it struck off the list."""
        try:
            living = await self._heartbeat.live_frontends()
            # What it owed comes first and is looked for in bulk: thousands of idle nodes must not stand in its way. Each of
            # those that live begins with its share, and looks at the others' after that: they may die on the way.
            complete, others = True, list[Partition]()
            async for found in self._partitions():
                mine: list[Partition] = []
                for each in found:
                    (mine if _first_frontend(each, living) in {self._core.frontend, ""} else others).append(each)
                complete = await self._take_over_all(mine, frontend) and complete
            for at in range(0, len(others), LISTED):
                complete = await self._take_over_all(others[at : at + LISTED], frontend) and complete
            if complete:
                self._heartbeat.report_taken_over(frontend)
            await self.sweep_all()
        finally:
            self._taking_over.discard(frontend)

    async def _take_over_all(self, partitions: Sequence[Partition], frontend: str) -> bool:
        found = await self._store.concerned(partitions, frontend)
        return await self._in_batches(found, TAKEOVER_BATCH, partial(self.take_over_partition, frontend=frontend))

    async def take_over_partition(self, partition: Partition, frontend: str) -> bool:
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

    async def _compare_records(self, most: int) -> None:
        """Compare records that are known here, the next ones each time, with Redis; one of another life is read anew.

        Redis may have lost the record of a life that is known here: no script would notice, for its partitions are still there.
        Or it has lost the name alone, in the list of all nodes.
        """
        if not self._to_compare:
            self._to_compare = [routes for routes in self._core.every() if routes.known.record]
        some, self._to_compare = self._to_compare[:most], self._to_compare[most:]
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


def _first_frontend(partition: Partition, living: Sequence[str]) -> str:
    """Say which of the living frontends looks at a partition first; the same for all who ask."""
    return living[crc32(str(partition).encode()) % len(living)] if living else ""
