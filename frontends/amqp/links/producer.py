"""A producer's link: each message becomes a publish, and is settled when Redis has it (E6 to E9, E12, E14).

Must not know how a link is attached or how a message is encoded.
"""

from dataclasses import replace
from functools import partial
from typing import Any, Final

from broker.model.commands import Publish
from broker.model.core import COMMAND_BYTES
from broker.model.items.hints import USUAL_PRIORITY
from broker.model.items.outcomes import ReplyMode
from broker.model.nodes.nodes import NodeRecord
from broker.model.nodes.options import MAX_PAYLOAD_BYTES
from broker.model.problems import MalformedRequest
from broker.model.results import Published, Refused, Result
from frontends.amqp import refusal_log
from frontends.amqp.errors import INTERNAL, NOT_ALLOWED, Fault, fault
from frontends.amqp.links import attach_options
from frontends.amqp.links.context import LinkContext
from frontends.amqp.links.replies import Replies, WantedReply
from frontends.amqp.messages import message as messages
from frontends.amqp.protocol.links import Incoming

MESSAGE_BYTES: Final = MAX_PAYLOAD_BYTES + 65_536
"""The longest message: a payload and its other sections."""

WINDOW: Final = 1_000
"""The most messages that a producer may send ahead."""


class Producer:
    """One producer's link."""

    def __init__(
        self,
        link: Incoming,
        context: LinkContext,
        record: NodeRecord,
        partition: int | None,
        replies: Replies | None = None,
    ) -> None:
        """Accept messages for a node, or for one of its partitions; `replies` are sent for those that name a link for them."""
        self._replies = replies
        self.link = link
        self._core = context.core
        self._tails = context.tails
        self._connection = context.connection
        self._sender = context.sender
        self._node = record.name
        self._queues = record.config.queueing
        self._partition = partition

    def start(self) -> None:
        """Grant the first credit."""
        self.link.grant(WINDOW)

    def stop(self) -> None:
        """Do nothing: open publishes go on, and their outcomes are dropped."""

    def wake(self) -> None:
        """Publish the messages that have arrived."""
        try:
            for delivery, raw, settled in self.link.messages(MESSAGE_BYTES, self._connection.begun):
                self._take(delivery, raw, settled)
        except Fault as refusal:
            self.link.end(refusal)
        else:
            self.link.grant(WINDOW)

    def _take(self, delivery: Any, raw: bytes, settled: bool) -> None:  # noqa: ANN401, FBT001  (as the link gives them)
        try:
            command, wanted = self._publish(raw)
        except MalformedRequest as refusal:
            self._settle(delivery, fault(refusal), settled=settled)
            return
        except Fault as refusal:
            self._settle(delivery, refusal, settled=settled)
            return
        size = COMMAND_BYTES + len(raw)
        self._connection.hold(size)
        self._core.submit(command, partial(self._on_result, delivery, size, settled=settled, wanted=wanted))

    def _publish(self, raw: bytes) -> tuple[Publish, WantedReply | None]:
        message = messages.parse(raw)
        number = self._partition
        if message.partition is not None:
            asked = attach_options.partition(message.partition)
            if number is not None and asked != number:
                raise Fault(NOT_ALLOWED, f"the link publishes to partition {number}, the message names another")
            number = asked
        hints = message.hints
        if not self._queues:
            # In a log, clients' usual header fields mean nothing; annotations are explicit requests, which the core refuses.
            hints = replace(hints, priority=USUAL_PRIORITY, ttl_ms=0)
        wanted = self._replies.parse_wanted(message) if self._replies and self._queues and message.reply_to else None
        if wanted:
            # This process is not told of ends: it looks for them.
            hints = replace(hints, reply=ReplyMode.KEPT)
        told = (message.envelope, message.body_bytes)
        command = Publish(self._node, self._sender, None, *told, partition=number, key=message.key, hints=hints)
        return command, wanted

    def _on_result(
        self,
        delivery: Any,  # noqa: ANN401
        size: int,
        result: Result,
        *,
        settled: bool,
        wanted: WantedReply | None = None,
    ) -> None:
        self._connection.hold(-size)
        match result:
            case Published():
                if self._replies and wanted:
                    self._replies.wait(self._node, result.item_id, wanted)
                self._tails.on_growth(self._node)
                self._settle(delivery, None, settled=settled)
            case Refused():
                self._settle(delivery, fault(result), settled=settled)
            case _:
                self._settle(delivery, Fault(INTERNAL), settled=settled)

    def _settle(self, delivery: Any, refusal: Fault | None, *, settled: bool) -> None:  # noqa: ANN401
        if refusal:
            refusal_log.log(refusal, self._sender, self._node)
        if refusal and settled and self.link.alive:
            # No outcome can be sent for a message that was sent settled: end the link instead.
            self.link.end(refusal)
        self.link.settle(delivery, refusal)
