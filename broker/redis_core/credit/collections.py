"""One credit over all leaves below a collection: which partitions that concerns, and how each is asked.

A collection's own partition is the coordinator. It has given a number to each partition below (`leaves`), by which
subscriptions and balancer know it; here a number becomes a partition of a leaf, and the name that a subscription has with the
coordinator the one that it has there, since a direct subscription is another one. What is noted is asked until it is gone for
good, so nothing that is held in a leaf is ever missed. Must not know what credit is.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any, Protocol

from broker.model.names import Partition
from broker.model.problems import CoreUnavailable, Problem
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
from broker.redis_core.operations.operation import above, below, collection, pool
from broker.redis_core.partitions.pipeline import PartitionPipeline
from broker.redis_core.records.cache import NodeCache
from broker.redis_core.records.tree import Tree
from broker.redis_core.registry.partitioner import COORDINATOR
from broker.tasks import start

ASKED_SECONDS = 10.0
"""For so long a coordinator is taken to know what a partition wants: it may have lost that in a failover."""

LOOK_SECONDS = 1.0
"""So often, at most, it is looked whether a collection that is heard of is still there."""

FIND_SECONDS = 2.0
"""So often, at most, who comes for what it holds has it looked which partitions that concerns."""

_NOT_THERE = Refused(Problem.PARTITION_NOT_FOUND, "nothing below the collection has this number")
_GONE = (Problem.NODE_NOT_FOUND, Problem.PARTITION_NOT_FOUND)
_SHUT = (Problem.FORBIDDEN, Problem.CLOSED_NODE, Problem.APPROVAL_REQUIRED, Problem.UNSUPPORTED)
"""Refusals of a leaf that does not admit a subscriber: it is passed over."""


@dataclass(frozen=True, slots=True)
class CollectionPartition:
    """A partition that a pool's credit may lie in, so many levels below the collection; None: it is below it no more."""

    partition: Partition
    level: int | None


class Gate(Protocol):
    """What pools need of a node's routes."""

    balancer: Balancer
    pool: "CollectionCredit"

    def pipeline(self, number: int = 0) -> PartitionPipeline:
        """Give the pipeline of a partition."""

    def submit(self, command: AnyCommand, reply: Callable[[Any], None]) -> None:
        """Take a command."""


Gates = Callable[[str], Gate]
"""Finds the routes of a node."""

Background = Callable[[Callable[[], Coroutine[Any, Any, Any]]], None]


class CollectionCredit:
    """The partitions below one collection."""

    def __init__(
        self,
        known: NodeCache,
        tree: Tree,
        gates: Gates,
        background: Background,
    ) -> None:
        """Know nothing yet; what is below the node is read from `tree`."""
        self._cache = known
        self._tree = tree
        self._gates = gates
        self._background = background
        self._units: dict[int, CollectionPartition] = {}
        self._numbers: dict[Partition, int] = {}
        self._text = ""
        self._lock = asyncio.Lock()
        self._awaited: asyncio.Task[None] | None = None
        self._looked = 0.0
        self._known_at = 0.0
        self._evicting: set[tuple[Partition, str]] = set()

    async def numbers(self) -> Sequence[int]:
        """Give the numbers that there are now: whoever asks while they are read waits until they are read anew."""
        awaited = self._awaited
        if awaited is None:
            awaited = self._awaited = start(self._read_next())
        await asyncio.shield(awaited)
        return sorted(self._units)

    @property
    def known(self) -> Iterable[Partition]:
        """The partitions that are known here."""
        return self._numbers

    async def partitions(self) -> Sequence[Partition]:
        """Give the partitions that there were a little while ago at most."""
        if time.monotonic() - self._known_at > FIND_SECONDS:
            await self.numbers()
        return list(self._numbers)

    def ask(self, number: int, command: AnyCommand) -> asyncio.Future[Any]:
        """Give a command that is worded for the coordinator to a partition below."""
        return start(self._asked(self._units.get(number), command))

    async def _read_next(self) -> None:
        async with self._lock:
            self._awaited = None
            await self._read()

    async def _read(self) -> None:
        self._known_at = time.monotonic()
        record = await self._cache.renew()
        if record is None or not record.config.collects:
            self._text, self._units, self._numbers = "", {}, {}
            return
        levels = await self._tree.leaves(record)
        reached = await self._coordinated(RegisterPoolPartitions(record.name, tuple(levels), ()))
        gone = await self._tree.gone([each for each in reached.partitions.values() if each not in levels])
        if gone:
            reached = await self._coordinated(RegisterPoolPartitions(record.name, (), gone))
        self._text = pool(record.partition(COORDINATOR))
        self._units = {
            number: CollectionPartition(each, levels.get(each)) for number, each in reached.partitions.items()
        }
        self._numbers = {each: number for number, each in reached.partitions.items()}

    async def _coordinated(self, command: RegisterPoolPartitions) -> PoolPartitions:
        reached = await awaited(self._gates(command.node).pipeline(COORDINATOR), command)
        if not isinstance(reached, PoolPartitions):
            msg = "the coordinator of a collection did not answer"
            raise CoreUnavailable(msg)
        return reached

    async def _asked(self, unit: CollectionPartition | None, command: AnyCommand) -> Outcome:
        if unit is None:
            return _NOT_THERE
        leaf, text = unit.partition, self._text
        pipeline = self._gates(leaf.node).pipeline(leaf.number)
        match command:
            case RegisterSubscription():
                return await self._registered(unit, pipeline, command)
            case HandOut():
                whose = below(text, command.subid)
                given = replace(command, node=leaf.node, subid=whose, pool=text, incarnation=leaf.incarnation)
                carried: Outcome = await awaited(pipeline, given)
                return carried
            case ListHoldings():
                return await self._holdings(leaf, pipeline, command)
            case Leave():
                outcome: Outcome = await awaited(pipeline, self._leave(leaf, command))
                gone = isinstance(outcome, Refused) and outcome.problem in _GONE
                # By which names it ended here is nobody's business.
                return replace(outcome, ended=()) if isinstance(outcome, Left) else Left((), 0) if gone else outcome
        msg = f"{type(command).__name__} is nothing for a partition below a collection"
        raise TypeError(msg)

    def _leave(self, leaf: Partition, leave: Leave) -> Leave:
        """Word for a leaf what is worded for the coordinator."""
        text = self._text
        whose = leave.subid and below(text, leave.subid)
        return replace(leave, node=leaf.node, pool=text, subid=whose, incarnation=leaf.incarnation)

    async def _holdings(self, leaf: Partition, pipeline: PartitionPipeline, command: ListHoldings) -> Outcome:
        """Ask a leaf what subscribers through the collection hold there, and name them as the coordinator does."""
        text = self._text
        subids = tuple(below(text, subid) for subid in command.subids)
        asked = replace(command, node=leaf.node, subids=subids, incarnation=leaf.incarnation)
        found: Outcome = await awaited(pipeline, asked)
        if not isinstance(found, Holdings):
            return found
        # One that was asked for by its name is of this pool, also when it is subscribed no more.
        rows = [
            replace(each, subid=above(text, each.subid)) for each in found.rows if each.pool == text or command.subids
        ]
        return replace(found, rows=tuple(rows))

    async def _registered(
        self, unit: CollectionPartition, pipeline: PartitionPipeline, register: RegisterSubscription
    ) -> Outcome:
        """Register a subscriber where its scope reaches and the leaf admits it; anywhere else it may hold nothing."""
        leaf, scope = unit.partition, register.scope
        outcome: Outcome = Refused(Problem.FORBIDDEN)
        if scope is not None and scope.works and unit.level is not None and scope.reaches(unit.level):
            join = RegisterPoolSubscription(
                leaf.node,
                register.jid,
                below(self._text, register.subid),
                register.jid,
                register.qos,
                register.registration,
                self._text,
                register.several,
                leaf.incarnation,
                register.selector,
            )
            outcome = await awaited(pipeline, join)
        if isinstance(outcome, Refused) and outcome.problem in _SHUT:
            born = register.registration
            leave = self._leave(leaf, Leave(register.node, register.jid, subid=register.subid, born=born, told=True))
            _ended, outcome = await leave_empty(partial(awaited, pipeline), leave)
            return Registered(0, int(born), shut=True) if isinstance(outcome, Left) else outcome
        return outcome

    def hear(self, text: str, partition: Partition, report: CreditReport, rows: Sequence[HeldCredit]) -> None:
        """Take what subscribers of the pool `text`, which may be of an earlier life of the collection, hold in a leaf."""
        self._look_sometimes()
        if text == self._text and partition in self._numbers:
            self._told(self._numbers[partition], report, rows)
        else:
            self._background(partial(self._hear_of, text, partition, report, rows))

    async def want(self, text: str, partition: Partition, demand: Demand) -> int | None:
        """Tell the coordinator what a leaf wants; gives how much it is granted, None when that could not be told."""
        self._look_sometimes()
        number = await self._number(text, partition)
        if number is None:
            return 0
        kind, *names = demand.whom.split()
        whom = [kind, *(above(text, name) if name.isdigit() else name for name in names)]
        wants = Demand(number, demand.version, demand.wanted, " ".join(whom))
        return await self._gates(self._cache.node).balancer.want(wants)

    async def _hear_of(self, text: str, partition: Partition, report: CreditReport, rows: Sequence[HeldCredit]) -> None:
        number = await self._number(text, partition)
        if number is not None:
            self._told(number, report, rows)

    async def _number(self, text: str, partition: Partition) -> int | None:
        """Give the number of a leaf's partition; whoever came there through a collection that is no more is put out."""
        if text != self._text or partition not in self._numbers:
            await self.numbers()
        if text != self._text:
            await self._evict(text, partition)
            return None
        return self._numbers.get(partition)

    def _told(self, number: int, report: CreditReport, rows: Sequence[HeldCredit]) -> None:
        named = [replace(each, subid=above(self._text, each.subid)) for each in rows]
        self._gates(self._cache.node).balancer.tell(holdings(number, report.version, named), sated(number, report))

    def _look_sometimes(self) -> None:
        if time.monotonic() - self._looked > LOOK_SECONDS:
            self._looked = time.monotonic()
            self._background(self._look)

    async def _look(self) -> None:
        """Find out whether the collection is still the same: what is heard of one that is gone is nothing to act on."""
        record = await self._cache.renew()
        if record is None or pool(record.partition(COORDINATOR)) != self._text:
            await self.numbers()

    async def _evict(self, text: str, leaf: Partition) -> None:
        """Remove those from a partition who came through a collection that is no more, with all that they hold."""
        if (leaf, text) in self._evicting:
            return
        self._evicting.add((leaf, text))
        try:
            ask = partial(awaited, self._gates(leaf.node).pipeline(leaf.number))
            async for part in subscribers(ask, leaf.node, leaf.number):
                for jid in part.jids if isinstance(part, Scanned) else ():
                    await leave_empty(ask, Leave(leaf.node, jid, pool=text, incarnation=leaf.incarnation, told=True))
        finally:
            self._evicting.discard((leaf, text))


OWN = ""
"""The coordinator of the node itself, among those that are named by their pools."""


class CreditReports:
    """Carries what scripts say of credit to the coordinators: that of the node, and those of the collections above it."""

    def __init__(self, own: Balancer, gates: Gates, background: Background, visit: Callable[[int], None]) -> None:
        """Begin with nothing asked; `own` carries for the node's coordinator, a `visit` has a partition report anew."""
        self._own = own
        self._gates = gates
        self._background = background
        self._visit = visit
        self._turns = count()
        # Which coordinators know what each partition wants: one keeps that until it has granted it. With the report since which
        # it is wanted, and when they were asked.
        self._asked: dict[int, tuple[str, float, set[str]]] = {}
        self._asking: set[int] = set()
        # Partitions whose coordinators may not have heard what is wanted: it may be long until a script runs there by itself.
        self._untold: set[int] = set()

    @property
    def idle(self) -> bool:
        """Nothing is owed to a coordinator."""
        return not self._untold

    def tick(self) -> None:
        """Have those partitions report anew whose report did not reach a coordinator."""
        untold, self._untold = self._untold, set()
        for number in untold:
            self._visit(number)

    def heard(self, partition: Partition, partitions: int, report: CreditReport) -> None:
        """Hear what a script of a partition says."""
        self._own.carry(report.grants)
        rows: dict[str, list[HeldCredit]] = defaultdict(list)
        for each in report.holdings:
            rows[each.pool].append(each)
        if not report.wanted:
            self._asked.pop(partition.number, None)
            self._untold.discard(partition.number)
        known = self._known(partition.number, report.since) if report.wanted else set()
        # A coordinator that has granted something may know no more what is wanted.
        known.difference_update(rows)
        own = holdings(partition.number, report.version, rows.pop(OWN, []))
        for text, theirs in rows.items():
            self._gates(collection(text)).pool.hear(text, partition, report, theirs)
        # The first partition is the coordinator, and has said to itself what it wants.
        coordinated = partitions > 1 and partition.number != COORDINATOR
        whom = whose(report, OWN) if report.wanted and coordinated and OWN not in known else ""
        demand = Demand(partition.number, report.version, report.wanted, whom) if whom else None
        if demand and not report.pools:
            known.add(OWN)
            self._own.tell(own, demand).add_done_callback(partial(self._wanted, partition.number, known))
        elif own and coordinated:
            self._own.tell(own, sated(partition.number, report))
        if report.pools:
            self._ask(partition, report, known, [OWN] if demand else [])

    def _known(self, number: int, since: str) -> set[str]:
        """Give which coordinators know what a partition has wanted since a report."""
        before, asked_at, known = self._asked.get(number, ("", 0.0, set[str]()))
        if since != before or time.monotonic() - asked_at > ASKED_SECONDS:
            known = set()
            self._asked[number] = since, time.monotonic(), known
        return known

    def _wanted(self, number: int, known: set[str], told: asyncio.Future[Outcome]) -> None:
        if told.cancelled() or told.exception() or isinstance(told.result(), Refused):
            known.discard(OWN)
            self._untold.add(number)

    def _ask(self, partition: Partition, report: CreditReport, known: set[str], own: list[str]) -> None:
        """Ask one coordinator after another for credit, each time beginning with another, until there is enough."""
        if partition.number in self._asking:
            return
        texts = own + [text for text in report.pools if text not in known and whose(report, text)]
        if texts:
            first = next(self._turns) % len(texts)
            self._asking.add(partition.number)
            self._background(partial(self._asked_in_turn, partition, report, known, [*texts[first:], *texts[:first]]))

    async def _asked_in_turn(
        self, partition: Partition, report: CreditReport, known: set[str], texts: Sequence[str]
    ) -> None:
        wanted = report.wanted
        try:
            for text in texts:
                demand = Demand(partition.number, report.version, wanted, whose(report, text))
                known.add(text)
                if text == OWN:
                    granted = await self._own.want(demand)
                else:
                    granted = await self._gates(collection(text)).pool.want(text, partition, demand)
                if granted is None:
                    known.discard(text)
                    self._untold.add(partition.number)
                wanted -= granted or 0
                if wanted <= 0:
                    return
        finally:
            self._asking.discard(partition.number)


def holdings(number: int, version: int, rows: Sequence[HeldCredit]) -> list[Holding]:
    """Read what a script says of what is held in a partition."""
    return [Holding(number, each.subid, version, each.held, each.last, each.state) for each in rows]


def sated(number: int, report: CreditReport) -> Demand | None:
    """Say that a partition wants nothing any more, if that is so."""
    return None if report.wanted else Demand(number, report.version, 0, "A")


def whose(report: CreditReport, text: str) -> str:
    """Say of whom credit of one pool, or of the node itself, is wanted; empty when none of its is of use."""
    if isinstance(report.whom, str):
        return report.whom
    names = [subid for subid, pool in report.whom if pool == text]
    return f"W {' '.join(names)}" if names else ""


def awaited(pipeline: PartitionPipeline, command: AnyCommand) -> asyncio.Future[Any]:
    """Give a pipeline a command, whose outcome is awaited."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    pipeline.submit(command, partial(fulfil, future))
    return future
