"""One credit for all leaves below a collection: which partitions it covers, and how each of them is asked.

The collection's own partition is the coordinator. It numbers each partition below it (`leaves`); subscriptions and balancer use
these numbers. This module turns a number into a partition of a leaf, and a subid of the coordinator into the subid of the leaf,
where a direct subscription of the same JID has another one. A numbered partition is asked until it is deleted, so that no
held credit is missed. Must not know what credit is.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, Protocol

from broker.model.frozen import frozen
from broker.model.names import Partition
from broker.model.nodes import NodeRecord
from broker.model.problems import CoreUnavailable, CorruptRecord, Problem
from broker.model.pull_subscriptions import is_pull_subscription
from broker.model.results import Refused
from broker.redis_core.commands.credit import (
    CreditReport,
    Demand,
    HandOut,
    HeldCredit,
    Holding,
    Holdings,
    ListHoldings,
    PoolPartitions,
    Registered,
    RegisterPoolPartitions,
    RegisterPoolSubscription,
    RegisterSubscription,
)
from broker.redis_core.commands.internal import AnyCommand, Leave, Left, Outcome, Scanned, fulfil
from broker.redis_core.commands.repeated import leave_empty, subscribers
from broker.redis_core.credit.balancer import Balancer
from broker.redis_core.operations.operation import collection, pool_of, to_coordinator_subid, to_leaf_subid
from broker.redis_core.partitions.pipeline import PartitionPipeline
from broker.redis_core.records.cache import NodeCache
from broker.redis_core.records.tree import Tree
from broker.redis_core.registry.partitioner import COORDINATOR
from broker.tasks import FAILED, start

DEMAND_SECONDS = 10.0
"""How long a coordinator is trusted to remember a partition's demand: a failover may have lost it."""

CHECK_SECONDS = 1.0
"""Shortest interval between checks that a collection still exists after a report for it."""

FIND_SECONDS = 2.0
"""Shortest interval at which a pulling subscriber reads again which partitions are below the collection."""

_NOT_THERE = Refused(Problem.PARTITION_NOT_FOUND, "no partition below the collection has this number")
_SHUT = (Problem.FORBIDDEN, Problem.CLOSED_NODE, Problem.APPROVAL_REQUIRED, Problem.UNSUPPORTED)
"""Refusals of a leaf that does not admit a subscriber: the leaf is skipped."""


@frozen
class CollectionPartition:
    """A partition that may hold credit of a collection, and its depth below it; None: it has left the collection."""

    partition: Partition
    level: int | None


class Router(Protocol):
    """The interface of a node's router that collections use."""

    balancer: Balancer
    pool: "CollectionCredit"

    def pipeline(self, number: int = 0) -> PartitionPipeline:
        """Return the pipeline of a partition."""

    def submit(self, command: AnyCommand, reply: Callable[[Any], None]) -> None:
        """Submit a command."""

    async def register_all(self) -> bool:
        """Register all subscriptions in all partitions again; returns whether all partitions answered."""


Routers = Callable[[str], Router]
"""Finds the router of a node."""

Background = Callable[[Callable[[], Coroutine[Any, Any, Any]]], None]


class CollectionCredit:
    """The partitions below one collection."""

    def __init__(
        self,
        known: NodeCache,
        tree: Tree,
        routers: Routers,
        background: Background,
    ) -> None:
        """Begin with an empty cache; the partitions below the node are read from `tree`."""
        self._cache = known
        self._tree = tree
        self._routers = routers
        self._background = background
        self._by_number: dict[int, CollectionPartition] = {}
        self._numbers: dict[Partition, int] = {}
        self._pool = ""
        self._lock = asyncio.Lock()
        self._next_read: asyncio.Task[None] | None = None
        self._checked_at = 0.0
        self._known_at = 0.0
        self._evicting: set[tuple[Partition, str]] = set()
        self._unregistered = False

    async def numbers(self) -> Sequence[int]:
        """Return the present numbers; callers that come during a read wait for the next one."""
        reading = self._next_read
        if reading is None:
            reading = self._next_read = start(self._read_next())
        await asyncio.shield(reading)
        return sorted(self._by_number)

    async def partitions(self) -> Sequence[Partition]:
        """Return the partitions; the list is at most FIND_SECONDS old."""
        if time.monotonic() - self._known_at > FIND_SECONDS:
            await self.numbers()
        return list(self._numbers)

    def ask(self, number: int, command: AnyCommand) -> asyncio.Future[Any]:
        """Send a command that is addressed to the coordinator's numbers and subids to a partition below."""
        return start(self._ask_number(number, command))

    async def _ask_number(self, number: int, command: AnyCommand) -> Outcome:
        # The coordinator hands its grants to any process that calls it, also to one that knows no numbers yet.
        if number not in self._by_number:
            try:
                await self.numbers()
            except CoreUnavailable as error:
                return Refused(error.problem, error.detail)
        return await self._ask_leaf(self._by_number.get(number), command)

    async def _read_next(self) -> None:
        async with self._lock:
            self._next_read = None
            await self._read()

    async def _read(self) -> None:
        self._known_at = time.monotonic()
        record = await self._record()
        if record is None or not record.config.collects:
            self._pool, self._by_number, self._numbers = "", {}, {}
            return
        levels = await self._tree.find_leaves(record)
        reached = await self._ask_coordinator(RegisterPoolPartitions(record.name, tuple(levels), ()))
        self._unregistered |= reached.added
        gone = await self._tree.find_deleted([each for each in reached.partitions.values() if each not in levels])
        if gone:
            reached = await self._ask_coordinator(RegisterPoolPartitions(record.name, (), gone))
        self._pool = pool_of(record.partition(COORDINATOR))
        self._by_number = {
            number: CollectionPartition(each, levels.get(each)) for number, each in reached.partitions.items()
        }
        self._numbers = {each: number for number, each in reached.partitions.items()}
        if self._unregistered:
            self._background(self._register_all)

    async def _register_all(self) -> None:
        """Register all subscriptions, since partitions have come here, perhaps without a word to anybody.

        If that fails, whoever reads the partitions next tries again; what is read meanwhile does not begin a second run.
        """
        self._unregistered, registered = False, False
        try:
            registered = await self._routers(self._cache.node).register_all()
        finally:
            self._unregistered |= not registered

    async def _record(self) -> NodeRecord | None:
        """Read the collection's record. Until one of another version can be read, the collection is unavailable."""
        try:
            return await self._cache.renew()
        except CorruptRecord as error:
            raise CoreUnavailable(FAILED.detail, told=str(error)) from error

    async def _ask_coordinator(self, command: RegisterPoolPartitions) -> PoolPartitions:
        reached = await ask_pipeline(self._routers(command.node).pipeline(COORDINATOR), command)
        if not isinstance(reached, PoolPartitions):
            msg = "the coordinator of a collection did not answer"
            raise CoreUnavailable(msg)
        return reached

    async def _ask_leaf(self, unit: CollectionPartition | None, command: AnyCommand) -> Outcome:
        if unit is None:
            return _NOT_THERE
        leaf, pool = unit.partition, self._pool
        pipeline = self._routers(leaf.node).pipeline(leaf.number)
        match command:
            case RegisterSubscription():
                return await self._register(unit, pipeline, command)
            case HandOut():
                whose = to_leaf_subid(pool, command.subid)
                given = replace(command, node=leaf.node, subid=whose, pool=pool, incarnation=leaf.incarnation)
                carried: Outcome = await ask_pipeline(pipeline, given)
                return carried
            case ListHoldings():
                return await self._holdings(leaf, pipeline, command)
            case Leave():
                outcome: Outcome = await ask_pipeline(pipeline, self._leave(leaf, command))
                gone = isinstance(outcome, Refused) and outcome.problem.is_gone
                # The coordinator does not know the subids of a leaf.
                return replace(outcome, ended=()) if isinstance(outcome, Left) else Left((), 0) if gone else outcome
        msg = f"{type(command).__name__} is nothing for a partition below a collection"
        raise TypeError(msg)

    def _leave(self, leaf: Partition, leave: Leave) -> Leave:
        """Translate a command from the coordinator's subids to the leaf's."""
        if is_pull_subscription(leave.jid):
            # No leaf knows it, but for what it holds.
            return replace(leave, node=leaf.node, incarnation=leaf.incarnation)
        pool = self._pool
        whose = leave.subid and to_leaf_subid(pool, leave.subid)
        return replace(leave, node=leaf.node, pool=pool, subid=whose, incarnation=leaf.incarnation)

    async def _holdings(self, leaf: Partition, pipeline: PartitionPipeline, command: ListHoldings) -> Outcome:
        """Ask a leaf what subscribers of the collection hold there, and translate to the coordinator's subids."""
        pool = self._pool
        subids = tuple(to_leaf_subid(pool, subid) for subid in command.subids)
        asked = replace(command, node=leaf.node, subids=subids, incarnation=leaf.incarnation)
        found: Outcome = await ask_pipeline(pipeline, asked)
        if not isinstance(found, Holdings):
            return found
        # A row that was asked for by its subid belongs to this collection, even after its subscription has ended.
        rows = [
            replace(each, subid=to_coordinator_subid(pool, each.subid))
            for each in found.rows
            if each.pool == pool or command.subids
        ]
        return replace(found, rows=tuple(rows))

    async def _register(
        self, unit: CollectionPartition, pipeline: PartitionPipeline, register: RegisterSubscription
    ) -> Outcome:
        """Register a subscriber if its scope includes the leaf and the leaf admits it; otherwise remove it from the leaf."""
        leaf, scope = unit.partition, register.scope
        outcome: Outcome = Refused(Problem.FORBIDDEN)
        if scope is not None and scope.works and unit.level is not None and scope.reaches(unit.level):
            join = RegisterPoolSubscription(
                leaf.node,
                register.jid,
                to_leaf_subid(self._pool, register.subid),
                register.jid,
                register.sending,
                register.registration,
                self._pool,
                register.several,
                leaf.incarnation,
                register.selector,
            )
            outcome = await ask_pipeline(pipeline, join)
        if isinstance(outcome, Refused) and outcome.problem in _SHUT:
            born = register.registration
            leave = self._leave(leaf, Leave(register.node, register.jid, subid=register.subid, born=born, told=True))
            _ended, outcome = await leave_empty(partial(ask_pipeline, pipeline), leave)
            return Registered(0, int(born), shut=True) if isinstance(outcome, Left) else outcome
        return outcome

    def on_report(self, pool: str, partition: Partition, report: CreditReport, rows: Sequence[HeldCredit]) -> None:
        """Handle a leaf's report of held credit; `pool` names the collection, which may be an earlier incarnation."""
        self._check_sometimes()
        if pool == self._pool and partition in self._numbers:
            self._report(self._numbers[partition], report, rows)
        else:
            self._background(partial(self._report_later, pool, partition, report, rows))

    async def request_credit(self, pool: str, partition: Partition, demand: Demand) -> int | None:
        """Report a leaf's demand to the coordinator; returns the amount granted now, or None when the report failed."""
        self._check_sometimes()
        number = await self._number(pool, partition)
        if number is None:
            return 0
        kind, *names = demand.whom.split()
        whom = [kind, *(to_coordinator_subid(pool, name) if name.isdigit() else name for name in names)]
        wants = Demand(number, demand.version, demand.wanted, " ".join(whom))
        return await self._routers(self._cache.node).balancer.request_credit(wants)

    async def _report_later(
        self, pool: str, partition: Partition, report: CreditReport, rows: Sequence[HeldCredit]
    ) -> None:
        number = await self._number(pool, partition)
        if number is not None:
            self._report(number, report, rows)

    async def _number(self, pool: str, partition: Partition) -> int | None:
        """Return the number of a leaf's partition; subscribers that came through a deleted collection are removed from it."""
        if pool != self._pool or partition not in self._numbers:
            await self.numbers()
        if pool != self._pool:
            await self._evict(pool, partition)
            return None
        return self._numbers.get(partition)

    def _report(self, number: int, report: CreditReport, rows: Sequence[HeldCredit]) -> None:
        named = [replace(each, subid=to_coordinator_subid(self._pool, each.subid)) for each in rows]
        self._routers(self._cache.node).balancer.report(
            holdings(number, report.version, named), no_demand(number, report)
        )

    def _check_sometimes(self) -> None:
        if time.monotonic() - self._checked_at > CHECK_SECONDS:
            self._checked_at = time.monotonic()
            self._background(self._check)

    async def _check(self) -> None:
        """Check that the collection is still the same incarnation: reports for a deleted one are ignored."""
        record = await self._record()
        if record is None or pool_of(record.partition(COORDINATOR)) != self._pool:
            await self.numbers()

    async def _evict(self, pool: str, leaf: Partition) -> None:
        """Remove subscribers that came through a deleted collection from a leaf, with all that they hold there."""
        if (leaf, pool) in self._evicting:
            return
        self._evicting.add((leaf, pool))
        try:
            ask = partial(ask_pipeline, self._routers(leaf.node).pipeline(leaf.number))
            async for part in subscribers(ask, leaf.node, leaf.number):
                for jid in part.jids if isinstance(part, Scanned) else ():
                    await leave_empty(ask, Leave(leaf.node, jid, pool=pool, incarnation=leaf.incarnation, told=True))
        finally:
            self._evicting.discard((leaf, pool))


OWN = ""
"""The node's own coordinator, among coordinators that are named by their collections."""


class CreditReports:
    """Carries the credit reports of scripts to the coordinators of the node and of the collections above it."""

    def __init__(self, own: Balancer, routers: Routers, background: Background, sweep: Callable[[int], None]) -> None:
        """Begin with no demand reported; `own` reports to the node's coordinator, `sweep` sweeps a partition to report anew."""
        self._own = own
        self._routers = routers
        self._background = background
        self._sweep = sweep
        self._turns = count()
        # By partition: the report since which it has its demand, when it was reported, and the coordinators that know it.
        # A coordinator remembers a demand until it has granted it.
        self._reported: dict[int, tuple[str, float, set[str]]] = {}
        # Partitions for which coordinators are being asked, and what to ask by the last report that came meanwhile.
        self._asking: dict[int, Callable[[], None] | None] = {}
        # Partitions whose demand may not have reached a coordinator: without a sweep, no script may run there for long.
        self._unreported: set[int] = set()

    @property
    def idle(self) -> bool:
        """Whether all reports have reached their coordinators."""
        return not self._unreported

    def tick(self) -> None:
        """Sweep the partitions whose demand did not reach a coordinator."""
        unreported, self._unreported = self._unreported, set()
        for number in unreported:
            self._sweep(number)

    def handle(self, partition: Partition, partitions: int, report: CreditReport) -> None:
        """Carry one credit report of a partition."""
        self._own.deliver(report.grants)
        rows: dict[str, list[HeldCredit]] = defaultdict(list)
        for each in report.holdings:
            rows[each.pool].append(each)
        if report.wanted == 0:
            self._reported.pop(partition.number, None)
            self._unreported.discard(partition.number)
            self._ask_next(partition.number, None)
        known = self._find_informed(partition.number, report.since) if report.wanted else set()
        # A coordinator that has granted credit may have forgotten the demand.
        known.difference_update(rows)
        own = holdings(partition.number, report.version, rows.pop(OWN, []))
        for pool, theirs in rows.items():
            self._routers(collection(pool)).pool.on_report(pool, partition, report, theirs)
        # The first partition is the coordinator itself.
        coordinated = partitions > 1 and partition.number != COORDINATOR
        demand = demand_of(partition.number, report, OWN) if coordinated and OWN not in known else None
        if demand and not report.pools:
            known.add(OWN)
            self._own.report(own, demand).add_done_callback(partial(self._demand_reported, partition.number, known))
        elif own and coordinated:
            self._own.report(own, no_demand(partition.number, report))
        if report.pools:
            self._ask(partition, report, known, [OWN, *report.pools] if coordinated else report.pools)

    def _find_informed(self, number: int, since: str) -> set[str]:
        """Return the coordinators that know a partition's demand since a report."""
        before, asked_at, known = self._reported.get(number, ("", 0.0, set[str]()))
        if since != before or time.monotonic() - asked_at > DEMAND_SECONDS:
            known = set()
            self._reported[number] = since, time.monotonic(), known
        return known

    def _demand_reported(self, number: int, known: set[str], reported: asyncio.Future[Outcome]) -> None:
        if reported.cancelled() or reported.exception() or isinstance(reported.result(), Refused):
            known.discard(OWN)
            self._unreported.add(number)

    def _ask(self, partition: Partition, report: CreditReport, known: set[str], coordinators: Sequence[str]) -> None:
        """Tell the demand to the coordinators that do not know it, one after another until enough credit is granted.

        It begins with another one each time.
        """
        if self._ask_next(partition.number, partial(self._ask, partition, report, known, coordinators)):
            return
        found = [(pool, demand_of(partition.number, report, pool)) for pool in coordinators if pool not in known]
        demands = [(pool, demand) for pool, demand in found if demand]
        if demands:
            first = next(self._turns) % len(demands)
            self._asking[partition.number] = None
            self._background(partial(self._ask_in_turn, partition, known, [*demands[first:], *demands[:first]]))

    def _ask_next(self, number: int, ask: Callable[[], None] | None) -> bool:
        """Ask by this report when the present round has ended; returns False when there is none."""
        asking = number in self._asking
        if asking:
            self._asking[number] = ask
        return asking

    async def _ask_in_turn(self, partition: Partition, known: set[str], demands: Sequence[tuple[str, Demand]]) -> None:
        had = 0
        try:
            for pool, demand in demands:
                if had >= demand.wanted:
                    break
                known.add(pool)
                granted = await self._request(pool, partition, replace(demand, wanted=demand.wanted - had))
                if granted is None:
                    known.discard(pool)
                    self._unreported.add(partition.number)
                had += granted or 0
        finally:
            ask = self._asking.pop(partition.number)
        if ask:
            ask()

    async def _request(self, pool: str, partition: Partition, demand: Demand) -> int | None:
        try:
            if pool == OWN:
                return await self._own.request_credit(demand)
            return await self._routers(collection(pool)).pool.request_credit(pool, partition, demand)
        except CoreUnavailable:
            return None


def holdings(number: int, version: int, rows: Sequence[HeldCredit]) -> list[Holding]:
    """Convert what a script reports to be held in a partition."""
    return [Holding(number, each.subid, version, each.held, each.last, each.state) for each in rows]


def no_demand(number: int, report: CreditReport) -> Demand | None:
    """Return an empty demand if the partition wants no more credit."""
    return Demand(number, report.version, 0, "A") if report.wanted == 0 else None


def demand_of(number: int, report: CreditReport, pool: str) -> Demand | None:
    """Return what a partition wants of a collection, or of the node itself; None when none of its credit is useful."""
    whom = report.whom
    if not isinstance(whom, str):
        names = [subid for subid, theirs in whom if theirs == pool]
        whom = f"W {' '.join(names)}" if names else ""
    return Demand(number, report.version, report.wanted, whom) if report.wanted and whom else None


def ask_pipeline(pipeline: PartitionPipeline, command: AnyCommand) -> asyncio.Future[Any]:
    """Submit a command to a pipeline and return its outcome as a future."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    pipeline.submit(command, partial(fulfil, future))
    return future
