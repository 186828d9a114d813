"""Background maintenance after each heartbeat: sweep due partitions, take over from dead frontends, scan one idle partition.

All of it is idempotent, so several frontends may do it at once. Must not know how a sweep changes a partition.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Collection, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol
from zlib import crc32

import structlog

from broker.model.items.items import Notice
from broker.model.names import Partition
from broker.model.problems import CoreUnavailable, OperationDefect
from broker.model.results import Refused
from broker.redis_core.commands.internal import Ask, Outcome, Scanned, Sweep, TakeOver
from broker.redis_core.groups.ownership import Ownership
from broker.redis_core.maintenance import relay
from broker.redis_core.maintenance.heartbeat import (
    HEARTBEAT_SECONDS,
    MAX_SWEEPS,
    DeadFrontend,
    Heartbeat,
    HeartbeatResult,
)
from broker.redis_core.metrics import Metrics
from broker.redis_core.nodes.counting import count_nodes
from broker.redis_core.nodes.history import Histories
from broker.redis_core.partitions.pipeline import PartitionPipeline
from broker.redis_core.partitions.served_partitions import ServedPartitions
from broker.redis_core.records.store import LISTED, NodeStore, in_name_pages, in_pages
from broker.redis_core.registry.partitioner import FIRST_PARTITION
from broker.redis_core.routing.router import NodeRouter
from broker.redis_core.subscriptions.approvals import Approvals
from broker.redis_core.subscriptions.leases import Leases

log = structlog.get_logger()

TAKEOVER_BATCH = 500
"""Partitions of a dead frontend that are taken over together."""

RETRY_SECONDS = 10.0
"""The longest pause before a takeover that failed in part is tried again; one that takes little time has a shorter pause."""

SWEEP_BATCH = 50
"""Partitions that are swept together when all are: more would keep other commands waiting, fewer would take too long."""

CLOCK_SECONDS = 2.0
"""By how much the clock of a master may be ahead of that of the one before it."""

LATE_SECONDS = 1.0
"""How long a call of a takeover may take; after a longer one the same is looked at again, from so much earlier on."""

SCAN_EVERY = 18
"""Heartbeats between two background scans: idle cost stays under 20 commands a second, those in operations included."""

COMPARE_BATCH = 1
"""Cached records that each scan compares with Redis: more would cost an idle frontend too much."""


class Pipelines(Protocol):
    """The interface of the core that the sweeper uses."""

    frontend: str
    served: ServedPartitions
    metrics: Metrics
    owners: Ownership
    approvals: Approvals
    histories: Histories
    leases: Leases

    def router(self, node: str) -> NodeRouter:
        """Return the router of a node."""

    def routers(self) -> list[NodeRouter]:
        """Return the routers of all nodes that are cached here."""

    def pipelines(self) -> list[PartitionPipeline]:
        """Return all open pipelines."""

    def drop_idle(self) -> None:
        """Drop idle pipelines when there are many."""

    def notify(self, notice: Notice) -> None:
        """Hand a notice to the door."""

    def disconnected(self, by: str) -> None:
        """End this frontend at the request of `by`."""

    def background(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Run something in the background."""


class Sweeper:
    """One frontend's share of the maintenance of all nodes."""

    def __init__(
        self,
        core: Pipelines,
        store: NodeStore,
        heartbeat: Heartbeat,
        ask: Ask,
        finish: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        """Sweep through the pipelines of `core`, announce failed sweeps to `heartbeat`, and `finish` prepared messages."""
        self._core = core
        self._store = store
        self._heartbeat = heartbeat
        self._ask = ask
        self._finish = finish
        self._taking_over: set[str] = set()
        self._retry_at: dict[str, float] = {}
        self._sweeping = 0
        self._walk = asyncio.Lock()
        self._requests = self._covered = 0
        self._measured_ms = 0
        self._turns = 0
        self._scanned_nodes = 0
        self._to_scan: list[Partition] = []
        self._to_compare: list[NodeRouter] = []

    async def act(self, result: HeartbeatResult) -> None:
        """Do the work that one heartbeat returned."""
        if result.disconnected_by:
            self._core.disconnected(result.disconnected_by)
            return
        await self._sweep_due(result.due)
        for notice in relay.decode_all(result.notices):
            self._core.notify(notice)
        if result.state_unknown:
            self._core.background(self.sweep_all)
            self._core.served.doubt()
        if self._core.served.due:
            self._core.background(self._core.served.renew)
        self._begin_takeovers(result.dead)
        if result.early:
            return
        self._core.drop_idle()
        for pipeline in self._core.pipelines():
            if pipeline.quiet and pipeline.reply_lost:
                pipeline.sweep()
        self._turns += 1
        if self._turns % SCAN_EVERY == 0:
            self._core.background(self._scan_next)
            self._core.background(self._finish)

    def _begin_takeovers(self, dead: Sequence[DeadFrontend]) -> None:
        now, names = time.monotonic(), {each.name for each in dead}
        self._retry_at = {each: at for each, at in self._retry_at.items() if each in names and at > now}
        for each in dead:
            if each.name not in {self._core.frontend, *self._taking_over, *self._retry_at}:
                self._taking_over.add(each.name)
                log.warning("frontend is dead", frontend=each.name)
                self._core.background(partial(self._take_over, each))

    async def _sweep_due(self, partitions: Sequence[Partition]) -> None:
        """Begin sweeps; once half of all sweeps are done and more partitions may be due, send the next heartbeat."""
        # Of several masters one may be silent: it must keep back no heartbeat, nor what is due elsewhere.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HEARTBEAT_SECONDS):
                await self._read_records(partitions)
        self._sweeping += len(partitions)
        self._heartbeat.free_sweeps = MAX_SWEEPS - self._sweeping
        for partition in partitions:
            self._sweep(partition, partial(self._swept, partition))

    async def _read_records(self, partitions: Sequence[Partition]) -> None:
        """Read the missing node records in one round trip."""
        routers = {partition.node: self._core.router(partition.node) for partition in partitions}
        unknown = [node for node, each in routers.items() if each.cache.record is None]
        # When Redis is away, each sweep fails by itself.
        with contextlib.suppress(CoreUnavailable, OperationDefect):
            for record in await self._store.read_all(unknown) if unknown else ():
                routers[record.name].cache.store_record(record)

    def _sweep(self, partition: Partition, reply: Callable[[Outcome], None], *, passing: bool = False) -> None:
        self._core.router(partition.node).submit(Sweep(partition.node, partition.number, passing), reply)

    def _swept(self, partition: Partition, outcome: Outcome) -> None:
        """Announce a failed sweep again: the partition is on no list any more."""
        self._sweeping -= 1
        self._heartbeat.free_sweeps = MAX_SWEEPS - self._sweeping
        if self._heartbeat.more_due and self._sweeping <= MAX_SWEEPS // 2:
            self._heartbeat.more_due = False
            self._heartbeat.beat_now()
        self._announce_failed(partition, outcome)

    def _announce_failed(self, partition: Partition, outcome: Outcome) -> None:
        if isinstance(outcome, Refused) and not outcome.problem.is_gone:
            self._heartbeat.announce(partition, int(self._heartbeat.now_ms()))

    async def _scan_next(self) -> None:
        """Sweep one partition, in the order of the list, to find what events missed."""
        await self._compare_records(COMPARE_BATCH)
        if not self._core.frontend:
            # This process cannot send, and live frontends can.
            return
        if not self._to_scan:
            names = await self._store.swept_names(self._scanned_nodes, 1)
            self._scanned_nodes = self._scanned_nodes + 1 if names else 0
            self._to_scan = await self._store.partitions(names)
            if names and not self._to_scan:
                await self._store.unlist(names[0])
        for partition in self._to_scan[:1]:
            # The sweep caches the node's record for `_on_swept`.
            self._sweep(partition, partial(self._on_swept, partition), passing=True)
        del self._to_scan[:1]

    def _on_swept(self, partition: Partition, _: Outcome) -> None:
        if partition.number == FIRST_PARTITION:
            self._core.background(partial(self._repair, partition.node))

    async def _repair(self, node: str) -> None:
        """Finish what a frontend may have left halfway when it died, and find what a crash or a failover has lost."""
        repairs = (
            # It died after a member came or went, and before partitions were assigned.
            self._core.owners.rebalance(node),
            # Between an owner's approval and the subscription.
            self._core.approvals.decide_pending(node),
            # Between the steps of a lease over several queues.
            self._core.leases.end_unused(node),
        )
        for outcome in await asyncio.gather(*repairs, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def sweep_all(self) -> None:
        """Sweep every partition once: after a start, or when due partitions may have been lost.

        Those who ask for it meanwhile wait, and share one walk that begins after they have asked.
        """
        self._requests += 1
        asked = self._requests
        async with self._walk:
            if self._covered < asked:
                covered = self._requests
                await self._sweep_all()
                self._covered = covered

    async def _sweep_all(self) -> None:
        try:
            for _first in range(0, len(self._core.routers()), LISTED):
                await self._compare_records(LISTED)
            async for names in in_name_pages(self._store.swept_names):
                sweep = partial(self._sweep_one, unfinished=await self._store.find_unfinished(names))
                async for page in self._store.partition_pages(names):
                    await self._run_in_batches(page, SWEEP_BATCH, sweep)
        except CoreUnavailable:
            self._heartbeat.mark_state_unknown()
            raise

    async def _sweep_one(self, partition: Partition, unfinished: Collection[str]) -> bool:
        # What is due here may be on no list.
        self._announce_failed(partition, await self._ask(Sweep(partition.node, partition.number, passing=True)))
        # To ask each node would take four times as long.
        if partition.number == FIRST_PARTITION and partition.node in unfinished:
            await self._repair(partition.node)
        return True

    async def _run_in_batches(
        self, partitions: Sequence[Partition], at_once: int, work: Callable[[Partition], Coroutine[Any, Any, bool]]
    ) -> bool:
        """Run `work` for many partitions, `at_once` at a time; returns whether all succeeded. Raises CoreUnavailable.

        Another fault is logged: it is that of one partition, such as an unreadable record.
        """
        well = True
        self._core.drop_idle()
        for first in range(0, len(partitions), at_once):
            some = partitions[first : first + at_once]
            await self._read_records(some)
            outcomes = await asyncio.gather(*map(work, some), return_exceptions=True)
            for partition, outcome in zip(some, outcomes, strict=True):
                if isinstance(outcome, CoreUnavailable):
                    raise outcome
                if isinstance(outcome, BaseException):
                    about = {"node": partition.node, "partition": partition.number}
                    log.error("a partition cannot be maintained", exc_info=outcome, **about)
            well = all(outcome is True for outcome in outcomes) and well
        return well

    async def _take_over(self, dead: DeadFrontend) -> None:
        """Take over all deliveries of a dead frontend; only then report it, so that it leaves the list of frontends."""
        began = time.monotonic()
        try:
            living = await self._heartbeat.live_frontends()
            served = await self._core.served.of(dead.name)
            # Each live frontend begins with its share, then checks the shares of others, which may die meanwhile.
            complete = True
            for mine in (True, False):
                share = [
                    each for each in served if (_first_frontend(each, living) in {self._core.frontend, ""}) is mine
                ]
                for page in in_pages(share):
                    complete = await self._take_over_all(page, dead) and complete
            if complete:
                self._heartbeat.report_taken_over(dead.name)
            else:
                self._pause_takeover(dead.name, began)
            await self.sweep_all()
        except CoreUnavailable:
            raise
        except Exception:
            self._pause_takeover(dead.name, began)
            raise
        finally:
            self._taking_over.discard(dead.name)

    def _pause_takeover(self, frontend: str, began: float) -> None:
        """Try again later: what cannot be read fails each time."""
        now = time.monotonic()
        self._retry_at[frontend] = now + min(RETRY_SECONDS, 10 * (now - began))

    async def _take_over_all(self, partitions: Sequence[Partition], dead: DeadFrontend) -> bool:
        try:
            found = await self._store.find_partitions_of(partitions, dead.name)
        except CoreUnavailable:
            # A master is away: those of others are taken over.
            found = list(partitions)
        return await self._run_in_batches(found, TAKEOVER_BATCH, partial(self.take_over_partition, previous=dead))

    async def take_over_partition(self, partition: Partition, previous: DeadFrontend) -> bool:
        """Send again what a frontend may not have sent in one partition; returns False when it must be tried again.

        What it was handed is told from the present time of each master, so clocks may differ. A call that runs later than it was
        sent looks at too little, so after a late one all is looked at once more.
        """
        spare, upto = CLOCK_SECONDS + LATE_SECONDS, None
        while True:
            scan, longest = "0", 0.0
            while True:
                began = time.monotonic()
                age_ms = math.ceil((began - previous.sent_until + spare) * 1000)
                outcome = await self._ask(
                    TakeOver(partition.node, previous.name, age_ms, None, upto, scan, partition.number)
                )
                if not isinstance(outcome, Scanned):
                    return isinstance(outcome, Refused) and outcome.problem.is_gone
                scan, upto = outcome.scan, outcome.upto
                longest = max(longest, time.monotonic() - began)
                if scan == "0":
                    break
            if longest <= spare - CLOCK_SECONDS:
                return True
            spare = CLOCK_SECONDS + 2 * longest

    async def send_again(self, sent_until: float, still: Callable[[], bool]) -> None:
        """Send again what was handed to this frontend from that time on, in all its partitions, while this is `still` wanted."""
        left = set(self._core.served.noted)
        mine = DeadFrontend(self._core.frontend, sent_until)

        async def search(partition: Partition) -> bool:
            found = await self.take_over_partition(partition, mine)
            if found:
                left.discard(partition)
            return found

        while left and still():
            if not await self._run_in_batches([*left], TAKEOVER_BATCH, search):
                await asyncio.sleep(HEARTBEAT_SECONDS)

    async def measure(self) -> None:
        """Measure new and changed nodes, for gauges and their history.

        The gauges of other nodes keep their values, but for the age of waiting items; those of deleted nodes are dropped.
        """
        metrics = self._core.metrics
        there = {name async for names in in_name_pages(self._store.names) for name in names}
        # Redis may still receive changes within this millisecond.
        upto = await self._store.now_ms() - 1
        changed = await self._store.find_changed(self._measured_ms, upto)
        metrics.keep(there)
        wanted = [name for name in there if name in changed or name not in metrics.measured]
        for names in in_pages(wanted):
            records = {record.name: record for record in await self._store.records(names)}
            measured = await count_nodes(self._store, tuple(records.values()))
            for name, counted in measured.items():
                metrics.gauge(name, counted, needs_owners=records[name].config.needs_owners)
            if measured:
                await self._core.histories.note(upto, measured)
        self._measured_ms = upto

    async def _compare_records(self, most: int) -> None:
        """Compare the next cached records with Redis, and forget a record of another incarnation or revision.

        If Redis lost the record of a cached incarnation, no operation would notice, since the partitions are still there. Nor
        would one if a frontend died after it had changed a record and before it told the partitions. Redis may also have lost
        only the name in the list of all nodes: it is added again.
        """
        if not self._to_compare:
            self._to_compare = [router for router in self._core.routers() if router.cache.record]
        some, self._to_compare = self._to_compare[:most], self._to_compare[most:]
        cached = [(router, record) for router in some if (record := router.cache.record)]
        if not cached:
            return
        present = await self._store.are_present([record for _, record in cached])
        for (router, _), there in zip(cached, present, strict=True):
            if not there:
                router.forget()
        await self._store.relist([record for (_, record), there in zip(cached, present, strict=True) if there])


def _first_frontend(partition: Partition, living: Sequence[str]) -> str:
    """Return which live frontend takes over a partition first; the same for all callers."""
    return living[crc32(str(partition).encode()) % len(living)] if living else ""
