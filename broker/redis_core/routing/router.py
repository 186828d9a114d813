"""The partitions of one node: to which of them each command goes, and what is asked of several.

Commands wait here while the node's record is read, and keep their order. Must not know what any command does.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, Protocol, assert_never

import structlog

from broker.model.commands import Adjust, Fetch, Renew, Retract, Subscribe, Unlock, Unsubscribe
from broker.model.names import Jid, Partition
from broker.model.problems import CoreUnavailable, Problem
from broker.model.results import Fetched, Refused
from broker.redis_core.commands.credit import CreditReport, ReregisterSubscription
from broker.redis_core.commands.internal import (
    GONE,
    AnyCommand,
    Begun,
    FindItem,
    Found,
    Leave,
    Outcome,
    PullItems,
    Scanned,
    ignored,
)
from broker.redis_core.commands.repeated import subscribers
from broker.redis_core.credit.balancer import Balancer
from broker.redis_core.credit.collections import CollectionCredit, CreditReports, Gates, awaited
from broker.redis_core.operations.operation import subid
from broker.redis_core.operations.subscriptions import UNSELECTED
from broker.redis_core.partitions.pipeline import PartitionPipeline
from broker.redis_core.ports import NodePort
from broker.redis_core.records.cache import NodeCache
from broker.redis_core.records.tree import Tree
from broker.redis_core.registry.merge import fetched
from broker.redis_core.registry.partitioner import COORDINATOR, Place
from broker.redis_core.registry.rows import ROWS, gathered, place
from broker.redis_core.routing.former_partitions import FormerPartitions
from broker.redis_core.routing.partitioned_subscriptions import PartitionedSubscriptions
from broker.redis_core.subscriptions import log_readers
from broker.tasks import FAILED, Reply, Tasks, start, then

if TYPE_CHECKING:
    from broker.model.nodes import NodeRecord

log = structlog.get_logger()

_NOWHERE = Refused(Problem.PARTITION_NOT_FOUND, "the node has no such partition")
_NotOne = Literal[Place.ALL, Place.SUBSCRIPTION, Place.DEPARTURE, Place.LEASE, Place.NOWHERE]
"""Where a command goes that is for several partitions, or for none."""

_ELSEWHERE = (Problem.ITEM_NOT_FOUND, Problem.FORBIDDEN, Problem.LOCKED_BY_ANOTHER, Problem.LOCK_LOST)
"""Refusals after which an item is looked for in other partitions than its home."""


class MakePipeline(Protocol):
    """How a pipeline is made."""

    def __call__(self, *, number: int, router: NodePort) -> PartitionPipeline:
        """Make the pipeline of one partition."""


class NodeRouter:
    """The pipelines of one node."""

    def __init__(self, known: NodeCache, make: MakePipeline, tasks: Tasks, tree: Tree, gates: Gates) -> None:
        """Make pipelines by `make` when they are first needed; `tasks` run what takes more than one script.

        What is below a node that is a collection is read from `tree`, and asked through the `gates` of other nodes.
        """
        self.known = known
        self._make = make
        self._tasks = tasks
        self._gates = gates
        self._partitioned = PartitionedSubscriptions(self.ask, self._others)
        self.balancer = Balancer(known.node, self.ask)
        self.pool = CollectionCredit(known, tree, gates, tasks.background)
        self._reports = CreditReports(self.balancer, gates, tasks.background, self._visit)
        self._turns = count()
        self._collected = False
        self._pipelines: dict[int, PartitionPipeline] = {}
        self._former_partitions = FormerPartitions(self.pipeline, self.submit)
        self._learnt: NodeRecord | None = None
        self._queued: list[tuple[AnyCommand, Reply]] = []
        self._reading: asyncio.Task[None] | None = None

    def submit(self, command: AnyCommand, reply: Reply) -> None:
        """Take a command; those for one partition take effect in their order."""
        record = self.known.record
        if record is not None and self._reading is None:
            self._route(command, reply, record.config.partitions, cached=True)
        else:
            self._queue(command, reply)

    def ask(self, number: int, command: AnyCommand) -> asyncio.Future[Any]:
        """Give a command to one partition, of a collection to one below it."""
        if number != COORDINATOR and self._collects:
            return self.pool.ask(number, command)
        return awaited(self.pipeline(number), command)

    async def audit(self) -> None:
        """Hold what the coordinator believes against what partitions say: credit that crashes have lost comes back."""
        await self.known.read()
        if self._count > 1 or self._collects:
            for whose in await self.balancer.audit(await self._others(self._count)):
                self.submit(ReregisterSubscription(self.known.node, whose), ignored)

    async def register_all(self) -> None:
        """Make all subscriptions known in all partitions anew, a part of them at a time: some may have come, or be shut now."""
        if self._count > 1 or self._collects:
            async for part in subscribers(partial(self.ask, COORDINATOR), self.known.node, COORDINATOR):
                if not isinstance(part, Scanned):
                    return
                whose = [ReregisterSubscription(self.known.node, each) for each in part.subids if each]
                await asyncio.gather(*(self._partitioned.take(each, self._count) for each in whose))

    async def _others(self, partitions: int) -> Sequence[int]:
        """Give the numbers of those partitions besides the coordinator that share its credit."""
        return await self.pool.numbers() if self._collects else range(COORDINATOR + 1, max(partitions, self._count))

    def heard(self, partition: Partition, partitions: int, report: CreditReport) -> None:
        """Hear what a script of a partition says of credit."""
        self._reports.heard(partition, partitions, report)

    def ended(self, jid: Jid) -> None:
        """Hear that a JID's subscription has ended in one partition: where there are others, it ends there too."""
        if self.known.record is None or self._count > 1 or self._collects:
            self.submit(Leave(self.known.node, jid), ignored)

    @property
    def _collects(self) -> bool:
        """The node is a collection, or was one when it was last read."""
        if self.known.record is not None:
            self._collected = self.known.record.config.collects
        return self._collected

    @property
    def _count(self) -> int:
        record = self.known.record
        return 1 if record is None else record.config.partitions

    def pipeline(self, number: int = 0) -> PartitionPipeline:
        """Give the pipeline of a partition."""
        pipeline = self._pipelines.get(number)
        if pipeline is None:
            pipeline = self._pipelines[number] = self._make(number=number, router=self)
        return pipeline

    def pipelines(self) -> list[PartitionPipeline]:
        """Give the pipelines there are."""
        return list(self._pipelines.values())

    def forget(self) -> None:
        """Read the node's record anew with the next command."""
        self.known.forget()

    @property
    def quiet(self) -> bool:
        """Nothing is under way."""
        return self._reading is None and all(pipeline.quiet for pipeline in self._pipelines.values())

    @property
    def idle(self) -> bool:
        """Nothing under way, nothing owed: it may be dropped."""
        return self._reading is None and self._reports.idle and all(each.idle for each in self._pipelines.values())

    def tick(self) -> None:
        """Tell coordinators again what they could not be told."""
        self.balancer.tick()
        self._reports.tick()

    def _visit(self, number: int) -> None:
        self.pipeline(number).mark()

    def _queue(self, command: AnyCommand, reply: Reply) -> None:
        self._queued.append((command, reply))
        if self._reading is None:
            self._reading = start(self._read())

    async def _read(self) -> None:
        hindrance: Refused | None = FAILED
        partitions = 0
        try:
            record = await self.known.read()
            hindrance = GONE if record is None else None
            partitions = 0 if record is None else record.config.partitions
        except CoreUnavailable as error:
            hindrance = Refused(error.problem, error.detail)
        except Exception:
            log.exception("record not read", node=self.known.node)
        finally:
            # Also when the task was cancelled.
            self._reading = None
            queued, self._queued = self._queued, []
            for command, reply in queued:
                then(reply, self._read_for, command, partitions)(hindrance)

    def _read_for(self, command: AnyCommand, partitions: int, reply: Reply, hindrance: Refused | None) -> None:
        if hindrance is None:
            self._route(command, reply, partitions, cached=False)
        else:
            reply(hindrance)

    def _route(self, command: AnyCommand, reply: Reply, partitions: int, *, cached: bool) -> None:
        """Send a command on; by a cached record nothing is refused, for the node may have grown."""
        record = self.known.record
        if record is not self._learnt:
            self._learnt = record
            self._former_partitions.learn(record)
        where = place(command, partitions)
        if isinstance(where, int):
            searched = ROWS[type(command)].searched
            if searched and searched(command):
                reply = then(reply, self._unless_elsewhere, command, where)
            self._former_partitions.bring(command, reply, where)
        elif where is Place.ANY:
            self.pipeline(next(self._turns) % partitions).submit(command, reply)
        elif where is Place.NOWHERE and cached:
            self.known.forget()
            self._queue(command, reply)
        else:
            self._spread(command, reply, partitions, where)

    def _spread(self, command: AnyCommand, reply: Reply, partitions: int, where: _NotOne) -> None:
        """Give a command that concerns no one partition to those that it concerns."""
        match where:
            case Place.ALL:
                self._everywhere(command, reply, partitions)
            case Place.SUBSCRIPTION:
                assert isinstance(command, Subscribe | Adjust | ReregisterSubscription)
                self._subscribe(command, reply, partitions)
            case Place.DEPARTURE if partitions > 1 or self._collects:
                assert isinstance(command, Unsubscribe | Leave)
                self._tasks.answer(self._left(command, partitions), reply)
            case Place.DEPARTURE:
                self._everywhere(command, reply, partitions)
            case Place.LEASE:
                assert isinstance(command, Fetch)
                self._tasks.answer(self._fetched(command), reply)
            case Place.NOWHERE:
                reply(_NOWHERE)
            case _:
                assert_never(where)

    def _subscribe(self, command: Subscribe | Adjust | ReregisterSubscription, reply: Reply, partitions: int) -> None:
        record = self.known.record
        if not (isinstance(command, Subscribe) and record is not None and log_readers.reads(command, record)):
            self._hand_subscription(command, reply, partitions)
        elif command.selector:
            reply(Refused(Problem.OPTIONS_INVALID, UNSELECTED))
        else:
            self._tasks.answer(self._followed(command), reply)

    def _hand_subscription(
        self, command: Subscribe | Adjust | ReregisterSubscription, reply: Reply, partitions: int
    ) -> None:
        if partitions > 1 or self._collects:
            self._tasks.answer(self._subscribed(command, partitions), reply)
        else:
            self.pipeline(COORDINATOR).submit(command, then(reply, self._coordinator_told, command))

    def _coordinator_told(
        self, command: Subscribe | Adjust | ReregisterSubscription, reply: Reply, outcome: Outcome
    ) -> None:
        if isinstance(outcome, Begun):
            # The node has grown, and this is a subscription in many partitions now.
            self._hand_subscription(command, reply, self._count)
        else:
            reply(outcome)

    def _everywhere(self, command: AnyCommand, reply: Reply, partitions: int, had: Sequence[Outcome] = ()) -> None:
        """Give each partition a command and answer with what their outcomes come to; `had` are those of the first ones."""
        part = ROWS[type(command)].part
        left = {number: part(command, number) if part else command for number in range(len(had), partitions)}
        self._ask_each(left, then(reply, self._everywhere_told, command, had))

    def _everywhere_told(
        self, command: AnyCommand, had: Sequence[Outcome], reply: Reply, outcomes: Mapping[int, Outcome]
    ) -> None:
        known = [*had, *outcomes.values()]
        if len(known) < self._count:
            # The node has grown, which the scripts have told.
            self._everywhere(command, reply, self._count, known)
        else:
            alone = len(known) == 1 and ROWS[type(command)].part is None
            reply(known[0] if alone else gathered(command, known))

    def _ask_each(self, commands: Mapping[int, AnyCommand], reply: Callable[[Mapping[int, Outcome]], None]) -> None:
        """Give partitions, by their numbers, each its command, and answer with all outcomes in the same order."""
        outcomes: dict[int, Any] = dict.fromkeys(commands)
        left = len(commands)
        if not left:
            reply(outcomes)

        def taken(number: int, outcome: Outcome) -> None:
            nonlocal left
            outcomes[number] = outcome
            left -= 1
            if not left:
                reply(outcomes)

        for number, command in commands.items():
            self.pipeline(number).submit(command, partial(taken, number))

    async def _subscribed(self, command: Subscribe | Adjust | ReregisterSubscription, partitions: int) -> Outcome:
        return await self._partitioned.take(command, partitions)

    async def _fetched(self, command: Fetch) -> Outcome:
        """Ask whether a lease lasts, then what it holds: in the partitions of a queue, or of those below a collection."""
        record = await self.known.read()
        if record is None:
            return GONE
        coordinator = record.partition(COORDINATOR)
        seen, comes = command.after.get(coordinator, 0), command.comes
        asked = PullItems(command.node, command.sender, command.jid, command.lease_ms, seen, comes=comes)
        first: Outcome = await self.ask(COORDINATOR, asked)
        if not isinstance(first, Fetched) or (self._count == 1 and not self._collects):
            return first

        def part(of: Partition) -> asyncio.Future[Any]:
            after = command.after.get(of, 0)
            found = PullItems(of.node, command.sender, command.jid, None, after, of.number, of.incarnation, comes)
            return awaited((self if of.node == coordinator.node else self._gates(of.node)).pipeline(of.number), found)

        before = set(self.pool.known)
        others = await self.pool.partitions() if self._collects else record.partitions[COORDINATOR + 1 :]
        if record.config.destinations and not before.issuperset(others):
            # Nobody who makes a node knows whose destination it is: who comes for items has it subscribed there.
            self.submit(ReregisterSubscription(command.node, subid(command.jid)), ignored)
        # What one cannot be asked now is not shown now: a leaf that is gone, or shut to the lease, holds nothing for it.
        parts = [found for found in await asyncio.gather(*map(part, others)) if isinstance(found, Fetched)]
        return fetched(first, parts)

    async def _left(self, command: Unsubscribe | Leave, partitions: int) -> Outcome:
        return gathered(command, await self._partitioned.leave(command, partitions))

    async def _followed(self, command: Subscribe) -> Outcome:
        # Which partition is read follows from how many there are, and one that is not there is refused.
        record = await self.known.renew()
        return GONE if record is None else await self._partitioned.follow(command, record.config.partitions)

    def _unless_elsewhere(self, command: Retract | Unlock | Renew, home: int, reply: Reply, outcome: Outcome) -> None:
        """Answer, unless the item, or an answer to the same request, may be in another partition: there it is looked for."""
        if not (isinstance(outcome, Refused) and outcome.problem in _ELSEWHERE):
            reply(outcome)
            return
        request = "" if isinstance(command, Renew) else command.request
        find = FindItem(command.node, command.sender, command.item_id, command.token, request, home)
        asked = {number: replace(find, partition=number) for number in range(self._count) if number != home}
        self._ask_each(asked, then(reply, self._found, command, outcome))

    def _found(
        self, command: Retract | Unlock | Renew, outcome: Refused, reply: Reply, finds: Mapping[int, Outcome]
    ) -> None:
        """Send a command to where its sender holds the item or was answered before, or else where the item is."""
        found = {number: find for number, find in finds.items() if isinstance(find, Found)}
        held = [number for number, find in found.items() if find.held]
        answered = [number for number, find in found.items() if find.answered]
        there = [number for number, find in found.items() if find.there and outcome.problem is Problem.ITEM_NOT_FOUND]
        # As one partition judges (lua/lib/delivery/ack_rules.lua): without its token a lock may be a later one than was answered.
        first = answered + held if command.token is None else held + answered
        for number in first + there:
            self.pipeline(number).submit(command, reply)
            return
        if self.known.record is None or self._count > len(finds) + 1:
            # The node has changed meanwhile: from the beginning.
            self.submit(command, reply)
            return
        # Where one cannot be asked, nobody can say that the item is gone.
        hindered = (find for find in finds.values() if isinstance(find, Refused) and find.problem.retryable)
        reply(next(hindered, outcome))
