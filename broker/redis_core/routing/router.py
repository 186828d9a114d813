"""The router of one node: decides which partitions a command goes to, and merges the answers of several.

Commands wait here while the node's record is read, and keep their order. Must not know what any command does.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, Protocol, assert_never

import structlog

from broker.model.commands import (
    HolderCommand,
    Publish,
    Renew,
    SetSubscriptionOptions,
    Subscribe,
    Unsubscribe,
)
from broker.model.frozen import frozen
from broker.model.names import Jid, Partition
from broker.model.nodes.options import PublishModel
from broker.model.problems import CoreUnavailable, Problem
from broker.model.results import Refused
from broker.redis_core.collections.asking import Askers
from broker.redis_core.collections.turns import Turns
from broker.redis_core.commands.collections import Asks
from broker.redis_core.commands.internal import (
    GONE,
    AnyCommand,
    FindItem,
    Found,
    Leave,
    Outcome,
    ReceivedFrom,
    ReceiveNow,
    ignore_outcome,
)
from broker.redis_core.operations.subscriptions import UNSELECTED
from broker.redis_core.partitions.pipeline import PartitionPipeline, ask_pipeline
from broker.redis_core.ports import NodePort
from broker.redis_core.records.cache import NodeCache
from broker.redis_core.records.tree import Tree
from broker.redis_core.registry import authorization as may
from broker.redis_core.registry.partitioner import FIRST_PARTITION, PartitionChoice
from broker.redis_core.registry.rows import ROWS, choose_partition, merge_outcomes
from broker.redis_core.routing.partitioned_subscriptions import PartitionedSubscriptions
from broker.redis_core.routing.receiver import Receiver
from broker.redis_core.subscriptions import log_readers
from broker.tasks import FAILED, Reply, Tasks, start, then

if TYPE_CHECKING:
    from broker.model.nodes.nodes import NodeRecord

log = structlog.get_logger()

_NOWHERE = Refused(Problem.PARTITION_NOT_FOUND, "the node has no such partition")
_NotOne = Literal[
    PartitionChoice.ALL,
    PartitionChoice.SUBSCRIPTION,
    PartitionChoice.DEPARTURE,
    PartitionChoice.RECEIVER,
    PartitionChoice.NOWHERE,
]
"""Choices of several partitions, or of none."""

_ELSEWHERE = (Problem.ITEM_NOT_FOUND, Problem.FORBIDDEN, Problem.LOCKED_BY_ANOTHER, Problem.LOCK_LOST)
"""Refusals after which other partitions are searched for an item."""


class MakePipeline(Protocol):
    """Makes pipelines."""

    def __call__(self, *, number: int, router: NodePort) -> PartitionPipeline:
        """Make the pipeline of one partition."""


@frozen
class RoutingContext:
    """What all routers of a core share.

    `tasks` run work that takes more than one operation. Collections are found in `tree`, and other nodes asked through their
    `routers`. `subscribed` tells whether a JID is subscribed to a node.
    """

    tasks: Tasks
    tree: Tree
    routers: "Callable[[str], NodeRouter]"
    subscribed: Callable[[str, Jid], Coroutine[Any, Any, bool]]


class NodeRouter:
    """Routes the commands of one node to the pipelines of its partitions."""

    def __init__(self, cache: NodeCache, make: MakePipeline, context: RoutingContext) -> None:
        """Make pipelines by `make` when they are first needed."""
        tasks, routers = context.tasks, context.routers
        self._subscribed = context.subscribed
        self.cache = cache
        self._make = make
        self._tasks = tasks
        self._routers = routers
        self._partitioned = PartitionedSubscriptions(self.ask)
        self.turns = Turns(cache, context.tree, self._pipeline_of)
        self._askers = Askers(cache, context.tree, lambda name: routers(name).turns)
        self._receiver = Receiver(cache, context.tree, self._pipeline_of, self.turns)
        self._turns = count()
        self._collected = False
        self._pipelines: dict[int, PartitionPipeline] = {}
        self._queued: list[tuple[AnyCommand, Reply]] = []
        self._reading: asyncio.Task[None] | None = None

    def submit(self, command: AnyCommand, reply: Reply) -> None:
        """Route a command; commands for one partition run in their order."""
        record = self.cache.record
        if record is not None and self._reading is None:
            self._route(command, reply, record.config.partitions, cached=True)
        else:
            self._queue(command, reply)

    def ask(self, number: int, command: AnyCommand) -> asyncio.Future[Any]:
        """Send a command to one partition."""
        return ask_pipeline(self.pipeline(number), command)

    def on_asks(self, partition: Partition, asks: Asks) -> None:
        """Ask the collections above for subscribers."""
        self._askers.ask(partition, asks)

    def on_turn_due(self) -> None:
        """Take a turn of the collection."""
        self.turns.take()

    def on_subscription_ended(self, jid: Jid) -> None:
        """End a subscription in all partitions that has ended in one of them."""
        if self.cache.record is None or self._count > 1:
            self.submit(Leave(self.cache.node, jid), ignore_outcome)

    @property
    def _collects(self) -> bool:
        if self.cache.record is not None:
            self._collected = self.cache.record.config.collects
        return self._collected

    @property
    def _count(self) -> int:
        record = self.cache.record
        return 1 if record is None else record.config.partitions

    def pipeline(self, number: int = 0) -> PartitionPipeline:
        """Return the pipeline of a partition."""
        pipeline = self._pipelines.get(number)
        if pipeline is None:
            pipeline = self._pipelines[number] = self._make(number=number, router=self)
        return pipeline

    def _pipeline_of(self, partition: Partition) -> PartitionPipeline:
        """Return the pipeline of a partition of this node, or of one below it."""
        return (
            self.pipeline(partition.number)
            if partition.node == self.cache.node
            else self._routers(partition.node).pipeline(partition.number)
        )

    def pipelines(self) -> list[PartitionPipeline]:
        """Return all open pipelines."""
        return list(self._pipelines.values())

    def forget(self) -> None:
        """Drop the cached record; the next command reads it again."""
        self.cache.forget()

    async def apply_tree(self) -> None:
        """Apply a change of what is below the collection, and end what is to end there. Raises CorruptRecord."""
        record = await self.cache.renew()
        self._receiver.forget()
        if record is not None and record.config.collects:
            await self.turns.withdraw(record)

    @property
    def quiet(self) -> bool:
        """Whether no command is waiting or under way."""
        return self._reading is None and all(pipeline.quiet for pipeline in self._pipelines.values())

    @property
    def size(self) -> int:
        """How many pipelines are open; a router takes as much room as one."""
        return len(self._pipelines) + 1

    def drop_idle(self) -> list[Partition]:
        """Drop idle pipelines, and return whose they were."""
        idle = {number: each for number, each in self._pipelines.items() if each.idle}
        self._pipelines = {number: each for number, each in self._pipelines.items() if number not in idle}
        return [each.partition for each in idle.values()]

    @property
    def empty(self) -> bool:
        """Whether the router may be dropped: it has no pipelines, and nothing is under way or still to be reported."""
        return not self._pipelines and self._reading is None and self.turns.idle and self._askers.idle

    def _queue(self, command: AnyCommand, reply: Reply) -> None:
        self._queued.append((command, reply))
        if self._reading is None:
            self._reading = start(self._read())

    async def _read(self) -> None:
        refused: Refused | None = FAILED
        partitions = 0
        try:
            record = await self.cache.read()
            refused = GONE if record is None else None
            partitions = 0 if record is None else record.config.partitions
        except CoreUnavailable as error:
            refused = Refused(error.problem, error.detail)
        except Exception:
            log.exception("record not read", node=self.cache.node)
        finally:
            # Also when the task was cancelled.
            self._reading = None
            queued, self._queued = self._queued, []
            for command, reply in queued:
                then(reply, self._read_for, command, partitions)(refused)

    def _read_for(self, command: AnyCommand, partitions: int, reply: Reply, refused: Refused | None) -> None:
        if refused is None:
            self._route(command, reply, partitions, cached=False)
        else:
            reply(refused)

    def _route(self, command: AnyCommand, reply: Reply, partitions: int, *, cached: bool) -> None:
        """Route a command; a cached record never refuses one, for the node may be another of its name by now."""
        record = self.cache.record
        if (
            isinstance(command, Publish)
            and record is not None
            and record.config.publish_model is PublishModel.SUBSCRIBERS
            and may.must_be_subscribed(record, command)
        ):
            step = partial(self._route, replace(command, subscribed=True), partitions=partitions, cached=cached)
            self._tasks.answer(self._check_subscribed(command), then(reply, _on_admitted, step))
            return
        where = choose_partition(command, partitions)
        if isinstance(where, int):
            if ROWS[type(command)].searched and getattr(command, "partition", None) is None:
                reply = then(reply, self._search_elsewhere, command, where)
            self.pipeline(where).submit(command, reply)
        elif where is PartitionChoice.ANY:
            self.pipeline(next(self._turns) % partitions).submit(command, reply)
        elif where is PartitionChoice.NOWHERE and cached:
            self.cache.forget()
            self._queue(command, reply)
        else:
            self._route_to_several(command, reply, partitions, where)

    async def _check_subscribed(self, command: Publish) -> Refused | None:
        if await self._subscribed(self.cache.node, command.sender):
            return None
        # The record may be older than the publisher's affiliation.
        record = await self.cache.renew()
        return may.NOT_SUBSCRIBED if record is not None and may.must_be_subscribed(record, command) else None

    def _route_to_several(self, command: AnyCommand, reply: Reply, partitions: int, where: _NotOne) -> None:
        """Send a command to the several partitions that it is for."""
        match where:
            case PartitionChoice.ALL:
                self._send_to_all(command, reply, partitions)
            case PartitionChoice.SUBSCRIPTION:
                assert isinstance(command, Subscribe | SetSubscriptionOptions)
                self._subscribe(command, reply, partitions)
            case PartitionChoice.DEPARTURE if partitions > 1:
                assert isinstance(command, Unsubscribe | Leave)
                self._tasks.answer(self._end_subscription(command, partitions), reply)
            case PartitionChoice.DEPARTURE:
                self._send_to_all(command, reply, partitions)
            case PartitionChoice.RECEIVER:
                assert isinstance(command, ReceiveNow)
                self._receive(command, reply)
            case PartitionChoice.NOWHERE:
                reply(_NOWHERE)
            case _:
                assert_never(where)

    def _receive(self, now: ReceiveNow, reply: Reply) -> None:
        """Receive, from one partition without a task."""
        if self._count == 1 and not self._collects:
            self.pipeline(FIRST_PARTITION).submit(now.from_only_partition(), then(reply, _answer_received))
        else:
            self._tasks.answer(self._receiver.receive(now), reply)

    def _subscribe(self, command: Subscribe | SetSubscriptionOptions, reply: Reply, partitions: int) -> None:
        record = self.cache.record
        if isinstance(command, Subscribe) and record is not None and log_readers.makes_log_reader(command, record):
            # The partition to read depends on their number, and what the node is may have changed: read the record first.
            self._tasks.answer(self.cache.renew(), then(reply, self._subscribe_to_log, command))
        elif isinstance(command, SetSubscriptionOptions) and partitions > 1:
            self._tasks.answer(self._partitioned.set_options(command, partitions), reply)
        else:
            self.pipeline(FIRST_PARTITION).submit(command, reply)

    def _subscribe_to_log(self, command: Subscribe, reply: Reply, record: "NodeRecord | Refused | None") -> None:
        if record is None or isinstance(record, Refused):
            reply(record or GONE)
        elif not log_readers.makes_log_reader(command, record):
            self.pipeline(FIRST_PARTITION).submit(command, reply)
        elif command.selector:
            reply(Refused(Problem.OPTIONS_INVALID, UNSELECTED))
        else:
            self._tasks.answer(self._partitioned.subscribe_log(command, record.config.partitions), reply)

    def _send_to_all(self, command: AnyCommand, reply: Reply, partitions: int) -> None:
        """Send a command to all partitions and merge their outcomes."""
        part = ROWS[type(command)].part
        asked = {number: part(command, number) if part else command for number in range(partitions)}
        self._ask_each(asked, then(reply, _merge_all, command))

    def _ask_each(self, commands: Mapping[int, AnyCommand], reply: Callable[[Mapping[int, Outcome]], None]) -> None:
        """Send each partition its command, and answer with all outcomes in the same order."""
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

    async def _end_subscription(self, command: Unsubscribe | Leave, partitions: int) -> Outcome:
        return merge_outcomes(command, await self._partitioned.leave(command, partitions))

    def _search_elsewhere(self, command: HolderCommand, home: int, reply: Reply, outcome: Outcome) -> None:
        """Answer, unless another partition may have the item or an answer to the same request: then search them."""
        if not (isinstance(outcome, Refused) and outcome.problem in _ELSEWHERE):
            reply(outcome)
            return
        request = "" if isinstance(command, Renew) else command.request
        find = FindItem(command.node, command.sender, command.item_id, command.token, request, home)
        asked = {number: replace(find, partition=number) for number in range(self._count) if number != home}
        self._ask_each(asked, then(reply, self._send_to_holder, command, outcome))

    def _send_to_holder(
        self, command: HolderCommand, outcome: Refused, reply: Reply, finds: Mapping[int, Outcome]
    ) -> None:
        """Send a command to the partition where its sender holds the item or was answered before, else where the item is."""
        found = {number: find for number, find in finds.items() if isinstance(find, Found)}
        held = [number for number, find in found.items() if find.held]
        answered = [number for number, find in found.items() if find.answered]
        there = [number for number, find in found.items() if find.there and outcome.problem is Problem.ITEM_NOT_FOUND]
        # The same rule as within a partition (lua/lib/locks/ack_rules.lua): without a token, prefer the present lock.
        first = answered + held if command.token is None else held + answered
        for number in first + there:
            self.pipeline(number).submit(command, reply)
            return
        if self.cache.record is None:
            # The node has changed meanwhile: start over.
            self.submit(command, reply)
            return
        # A partition that cannot be asked may have the item, so the answer is to try again.
        hindered = (find for find in finds.values() if isinstance(find, Refused) and find.problem.retryable)
        reply(next(hindered, outcome))


def _merge_all(command: AnyCommand, reply: Reply, outcomes: Mapping[int, Outcome]) -> None:
    """Answer with the outcomes of all partitions together."""
    known = list(outcomes.values())
    alone = len(known) == 1 and ROWS[type(command)].part is None
    reply(known[0] if alone else merge_outcomes(command, known))


def _answer_received(reply: Reply, outcome: ReceivedFrom | Refused) -> None:
    """Answer with what one partition has given."""
    reply(outcome.received if isinstance(outcome, ReceivedFrom) else outcome)


def _on_admitted(step: Callable[[Reply], None], reply: Reply, outcome: Outcome | None) -> None:
    """Go on with a publish that was let through so far."""
    if isinstance(outcome, Refused):
        reply(outcome)
    else:
        step(reply)
