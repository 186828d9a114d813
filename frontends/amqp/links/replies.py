"""Replies to messages that a connection has published: when an item ends, its end is sent on the link that the message named.

The end is looked for: this process is told of none. A reply is dropped with its link, and the end stays readable for as long as
the node says. Must not know how an item is published or how a reply is encoded.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import structlog

from broker.model.commands import ReadOutcome
from broker.model.frozen import frozen
from broker.model.items.outcomes import ItemOutcome
from broker.model.problems import CorruptRecord
from broker.model.results import Ended, Refused
from broker.tasks import serve
from frontends.amqp.errors import LIMIT, Fault
from frontends.amqp.links.context import LinkContext
from frontends.amqp.links.request_response import ResponseConsumer
from frontends.amqp.messages import message as messages

MOST: Final = 1_000
"""The most messages of a connection whose ends are awaited."""

_LOOK_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = 1.0

_log = structlog.get_logger("stanzaq.amqp")


@frozen
class WantedReply:
    """The link of a reply, and the encoded id that it refers to."""

    answers: ResponseConsumer
    correlation: bytes


class Replies:
    """The replies of one connection."""

    def __init__(self, context: LinkContext, answers: Mapping[str, ResponseConsumer]) -> None:
        """Send replies on the links `answers`, by their addresses."""
        self._context = context
        self._answers = answers
        self._waiting: dict[asyncio.Task[None], ResponseConsumer] = {}

    def parse_wanted(self, message: messages.Message) -> WantedReply | None:
        """Return the reply that a message asks for; None if its address is not of this connection. Raises Fault."""
        answers = self._answers.get(message.reply_to)
        if answers is not None and len(self._waiting) >= MOST:
            raise Fault(LIMIT, f"a connection waits for at most {MOST} replies")
        return None if answers is None else WantedReply(answers, message.correlation)

    def wait(self, node: str, item: str, wanted: WantedReply) -> None:
        """Send the end of an item when it has come."""
        if wanted.answers.link.alive:
            task = serve(self._wait(node, item, wanted), lambda error: _log.error("a reply failed", exc_info=error))
            self._waiting[task] = wanted.answers
            task.add_done_callback(lambda done: self._waiting.pop(done, None))

    async def _wait(self, node: str, item: str, wanted: WantedReply) -> None:
        while True:
            if wanted.answers.full:
                # The peer gives no credit: the end stays in Redis meanwhile.
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            found = await self._context.core.ask(ReadOutcome(node, self._context.sender, item, _LOOK_SECONDS))
            if isinstance(found, Ended) and found.outcome and not wanted.answers.full:
                wanted.answers.send_answer(_reply(node, found.outcome, wanted.correlation))
                self._context.connection.flush()
                return
            if isinstance(found, Refused) and found.problem.retryable:
                await asyncio.sleep(_PAUSE_SECONDS)
            elif not (isinstance(found, Ended) and (found.awaited or found.outcome)):
                # The node is deleted, or the end is not kept any longer.
                return

    def left(self, answers: ResponseConsumer) -> None:
        """Drop the replies of a link that has ended."""
        for task in [task for task, whose in self._waiting.items() if whose is answers]:
            task.cancel()

    def stop(self) -> None:
        """Drop all replies."""
        for task in list(self._waiting):
            task.cancel()


def _reply(node: str, end: ItemOutcome, correlation: bytes) -> bytes:
    """Write the end of an item, without a result that cannot be read."""
    try:
        return messages.reply(end, correlation)
    except CorruptRecord as wrong:
        _log.error("a result cannot be read", node=node, item=end.item_id, error=str(wrong))
        return messages.reply(replace(end, envelope=b""), correlation)
