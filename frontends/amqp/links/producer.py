"""A link over which a producer sends: each message becomes a publish, and is settled when Redis has it (E6 to E9, E12, E14).

Must not know how a link is attached, nor what a message is made of.
"""

from functools import partial
from typing import Any, Final

from broker.model.commands import Publish
from broker.model.core import COMMAND_BYTES
from broker.model.hints import Hints
from broker.model.nodes import NodeRecord
from broker.model.options import MAX_PAYLOAD_BYTES
from broker.model.problems import MalformedRequest
from broker.model.results import Published, Refused, Result
from frontends.amqp.errors import INTERNAL, NOT_ALLOWED, Fault, fault
from frontends.amqp.links import attach_options
from frontends.amqp.links.context import LinkContext
from frontends.amqp.messages import message as messages
from frontends.amqp.protocol.links import Incoming

MESSAGE_BYTES: Final = MAX_PAYLOAD_BYTES + 65_536
"""Longest message: a payload, and what stands around it."""

WINDOW: Final = 1_000
"""Messages that a producer may send ahead."""


class Producer:
    """One producer's link."""

    def __init__(self, link: Incoming, context: LinkContext, record: NodeRecord, partition: int | None) -> None:
        """Take messages for a node, or for a partition of it."""
        self.link = link
        self._core = context.core
        self._tails = context.tails
        self._connection = context.connection
        self._sender = context.sender
        self._node = record.name
        self._queues = record.config.queueing
        self._partition = partition

    def start(self) -> None:
        """Let the peer send."""
        self.link.grant(WINDOW)

    def stop(self) -> None:
        """Nothing is left to be done: what is under way is settled for nobody."""

    def wake(self) -> None:
        """Take what has arrived."""
        try:
            for delivery, raw, settled in self.link.messages(MESSAGE_BYTES, self._connection.begun):
                self._take(delivery, raw, settled)
        except Fault as refusal:
            self.link.end(refusal)
        else:
            self.link.grant(WINDOW)

    def _take(self, delivery: Any, raw: bytes, settled: bool) -> None:  # noqa: ANN401, FBT001  (as the link gives them)
        try:
            command = self._publish(raw)
        except MalformedRequest as refusal:
            self._settle(delivery, fault(refusal), settled=settled)
            return
        except Fault as refusal:
            self._settle(delivery, refusal, settled=settled)
            return
        size = COMMAND_BYTES + len(raw)
        self._connection.hold(size)
        self._core.submit(command, partial(self._answered, delivery, size, settled=settled))

    def _publish(self, raw: bytes) -> Publish:
        message = messages.taken(raw)
        number = self._partition
        if message.partition is not None:
            asked = attach_options.partition(message.partition)
            if number is not None and asked != number:
                raise Fault(NOT_ALLOWED, f"the link is of partition {number}, the message for another")
            number = asked
        hints = message.hints
        if not self._queues:
            # What every client may say in a header means nothing in a log; a delay is asked for, and refused.
            hints = Hints(hints.delay_ms)
        told = (message.envelope, message.body_bytes)
        return Publish(self._node, self._sender, None, *told, partition=number, key=message.key, hints=hints)

    def _answered(self, delivery: Any, size: int, result: Result, *, settled: bool) -> None:  # noqa: ANN401
        self._connection.hold(-size)
        match result:
            case Published():
                self._tails.on_growth(self._node)
                self._settle(delivery, None, settled=settled)
            case Refused():
                self._settle(delivery, fault(result), settled=settled)
            case _:
                self._settle(delivery, Fault(INTERNAL), settled=settled)

    def _settle(self, delivery: Any, refusal: Fault | None, *, settled: bool) -> None:  # noqa: ANN401
        if refusal and settled and self.link.alive:
            # Nobody waits to hear of a message that was settled when it was sent: the link is told.
            self.link.end(refusal)
        self.link.settle(delivery, refusal)
