"""Attaches links: validates what the peer asks for, asks the core, and answers. Must not know bytes."""

import secrets
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from zlib import crc32

from broker.model import offsets
from broker.model.commands import Bind, Command, Describe, Read, Subscribe, Unbind, Unsubscribe
from broker.model.items.qos import Qos
from broker.model.nodes.nodes import NodeRecord
from broker.model.nodes.pull_subscriptions import new_pull_name, pull_jid
from broker.model.nodes.subscriptions import client_name
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import Bound, Described, Refused, Replay, Result, Subscribed
from frontends.amqp.constants import EPOCH, GAP, GROUP, PARTITION
from frontends.amqp.errors import LOCKED, NOT_IMPLEMENTED, Fault, fault
from frontends.amqp.links import attach_options, filters
from frontends.amqp.links.context import LinkContext
from frontends.amqp.links.log_consumer import LogConsumer, LogRead
from frontends.amqp.links.producer import MESSAGE_BYTES, Producer
from frontends.amqp.links.queue_consumer import LEASE_MS, LinkSubscription, QueueConsumer
from frontends.amqp.links.replies import Replies
from frontends.amqp.links.request_response import QUESTION_BYTES, RequestProducer, RequestReceiver, ResponseConsumer
from frontends.amqp.protocol.links import Incoming, Outgoing, ProtonLink, symbol
from frontends.errors import ERRORS

Part = LogConsumer | QueueConsumer | Producer | ResponseConsumer | RequestReceiver
"""The handler of an attached link: it is started, woken by events, and stopped."""

_REPLIES: Final = "$reply/"
_T = TypeVar("_T")


@dataclass(slots=True)
class LinkAttacher:
    """Attaches the links of one connection."""

    context: LinkContext
    answers: dict[str, ResponseConsumer] = field(default_factory=dict)
    replies: Replies = field(init=False)

    def __post_init__(self) -> None:
        """Begin without replies."""
        self.replies = Replies(self.context, self.answers)

    async def attach(self, link: ProtonLink) -> Part | None:
        """Attach a link; None if it has ended meanwhile. Raises Fault and MalformedRequest."""
        if isinstance(link, Incoming):
            return await self._attach_incoming(link)
        assert isinstance(link, Outgoing), "a link goes one way or the other"
        return self._replies(link) if link.dynamic else await self._attach_outgoing(link)

    async def _attach_incoming(self, link: Incoming) -> Part | None:
        if link.dynamic:
            raise Fault(NOT_IMPLEMENTED, "an attach does not create nodes")
        where, wanted = attach_options.address(link.address), attach_options.parse_options(link.properties)
        record = await self._describe(where.node)
        if not link.alive:
            return None
        if where.info:
            link.accept({}, most_bytes=QUESTION_BYTES)
            return RequestProducer(link, self.context, self.answers, where.node)
        publishable(record, wanted.partition)
        told = {} if wanted.partition is None else {PARTITION: symbol(str(wanted.partition))}
        link.accept(told, most_bytes=MESSAGE_BYTES)
        return Producer(link, self.context, record, wanted.partition, self.replies)

    def _replies(self, link: Outgoing) -> ResponseConsumer:
        """Give the peer a reply address of its own on this connection."""
        address = _REPLIES + secrets.token_hex(8)
        link.accept({}, address=address)
        return self._response_link(link, address)

    def _response_link(self, link: Outgoing, *addresses: str | None) -> ResponseConsumer:
        answers = ResponseConsumer(link)
        for address in addresses:
            if address:
                self.answers[address] = answers
        return answers

    def left(self, part: Part) -> None:
        """Forget the addresses of a link that has ended."""
        for address in [each for each, answers in self.answers.items() if answers is part]:
            del self.answers[address]
        if isinstance(part, ResponseConsumer):
            self.replies.left(part)

    async def _attach_outgoing(self, link: Outgoing) -> Part | None:
        where, wanted = attach_options.address(link.address), attach_options.parse_options(link.properties)
        if where.info:
            return await self._info_link(link, where.node)
        asked, copies, name = link.filters, link.copies, link.name
        record = await self._describe(where.node)
        if record.config.queueing and not copies:
            return await self._queue_consumer(link, record, wanted, filters.selector(asked))
        if record.config.collects:
            raise fault(MalformedRequest(Problem.UNSUPPORTED, "a collection has no log: name the leaf"))
        start = filters.start(asked)
        count = record.config.partitions
        if wanted.partition is None:
            # E10: the service chooses the partition; for a link of the same name it prefers the same one.
            first = crc32(name.encode()) % count
            numbers = [(first + step) % count for step in range(count if wanted.group else 1)]
        else:
            numbers = [wanted.partition]
        found, bound = await self._bind_first(where.node, wanted, numbers, start.begin)
        number = bound.partition if bound else numbers[0]
        if not link.alive:
            if bound:
                self._unbind(where.node, wanted.group, bound)
            return None
        told: dict[str, Any] = {PARTITION: symbol(str(number))}
        if bound:
            told |= {GROUP: wanted.group, EPOCH: bound.epoch}
        if found.gap:
            told[GAP] = True
        link.accept(told)
        begins, seconds = start.first_after(found.latest), record.config.lock_seconds
        read = LogRead(where.node, number, found.after, begins, wanted.group, bound, seconds)
        return LogConsumer(link, self.context, read)

    async def _find_start(self, node: str, partition: int, begin: str, group: str = "") -> Replay:
        """Find the start of a link; a time in the future means after the newest event. Raises Fault."""
        outcome = await self.context.core.ask(Read(node, self.context.sender, partition, begin, 0, group))
        if (
            isinstance(outcome, Refused)
            and outcome.problem is Problem.OFFSET_NOT_FOUND
            and offsets.read_partition(begin) is None
        ):
            outcome = await self.context.core.ask(Read(node, self.context.sender, partition, offsets.LATEST, 0, group))
        return _answer(outcome, Replay)

    async def _queue_consumer(
        self, link: Outgoing, record: NodeRecord, wanted: attach_options.LinkOptions, selector: str
    ) -> Part | None:
        """Subscribe a consumer of a queue, each link by its own pull subscription and so with its own credit."""
        if wanted.partition is not None or wanted.group:
            raise fault(
                MalformedRequest(
                    Problem.UNSUPPORTED, "a queue's consumer receives from all partitions, without a group"
                )
            )
        jid, collects = pull_jid(self.context.sender, new_pull_name()), record.config.collects
        command = Subscribe(
            *(record.name, self.context.sender, jid, 0, Qos.PULLED),
            selector=selector,
            lease_ms=LEASE_MS,
            client=client_name(self.context.connection.client),
        )
        await self._ask(command, Subscribed)
        several = collects or record.config.partitions > 1
        subscription = LinkSubscription(record.name, several, self.context.sender, jid)
        if not link.alive:
            self.context.core.submit(
                Unsubscribe(subscription.node, self.context.sender, jid, "", release=True), lambda _result: None
            )
            return None
        link.accept({}, moves=True)
        return QueueConsumer(link, self.context, subscription)

    async def _bind_first(
        self, node: str, wanted: attach_options.LinkOptions, numbers: list[int], begin: str
    ) -> tuple[Replay, Bound | None]:
        """Find the start in the first available partition, and become its owner (E28, EX19) if there is a group."""
        refusal = Refused(Problem.PARTITION_OWNED)
        for number in numbers:
            # Checked before an owner is evicted: a link that cannot start must take nothing.
            found = await self._find_start(node, number, begin)
            if not wanted.group:
                return found, None
            outcome = await self.context.core.ask(Bind(node, self.context.sender, number, wanted.group, wanted.epoch))
            if not isinstance(outcome, Refused) or ERRORS[outcome.problem].amqp != LOCKED:
                return found, _answer(outcome, Bound)
            refusal = outcome
        raise fault(refusal)

    def _unbind(self, node: str, group: str, bound: Bound) -> None:
        command = Unbind(node, self.context.sender, bound.partition, group, bound.fence, kept=False)
        self.context.core.submit(command, lambda _result: None)

    async def _info_link(self, link: Outgoing, node: str) -> Part | None:
        """Let a peer receive answers at the node's own address, or at one of its choice."""
        await self._describe(node)
        if not link.alive:
            return None
        link.accept({})
        return self._response_link(link, link.address, link.reply_address)

    async def _describe(self, node: str) -> NodeRecord:
        described = await self._ask(Describe(node, self.context.sender, as_owner=False), Described)
        return described.record

    async def _ask(self, command: Command, kind: type[_T]) -> _T:
        return _answer(await self.context.core.ask(command), kind)


def _answer(outcome: Result, kind: type[_T]) -> _T:
    if isinstance(outcome, Refused):
        raise fault(outcome)
    assert isinstance(outcome, kind), f"{type(outcome).__name__} is not {kind.__name__}"
    return outcome


def publishable(record: NodeRecord, partition: int | None) -> None:
    """Check that a node accepts messages, and has the partition if one is given; raises Fault."""
    if record.config.collects:
        raise fault(Refused(Problem.PUBLISH_UNSUPPORTED, "a collection holds no items: publish to a leaf"))
    if partition is not None:
        check_partition(record, partition)


def check_partition(record: NodeRecord, partition: int) -> int:
    """Return a partition that the node has; raises Fault."""
    if partition >= record.config.partitions:
        raise fault(Refused(Problem.PARTITION_NOT_FOUND, "the node has no such partition"))
    return partition
