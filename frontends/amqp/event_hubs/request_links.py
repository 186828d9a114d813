"""Links of requests: one question at a time becomes an answer on the link of answers in the same session.

Must not know how a link is attached, nor what is asked.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import structlog

from broker.tasks import serve
from frontends.amqp.errors import INTERNAL, LIMIT, NOT_FOUND, Fault
from frontends.amqp.event_hubs import management
from frontends.amqp.links.request_response import RequestReceiver, ResponseConsumer
from frontends.amqp.protocol.links import Incoming

if TYPE_CHECKING:
    from asyncio import Task

_AT_ONCE: Final = 10

_log = structlog.get_logger("stanzaq.amqp")


class RequestLink(RequestReceiver):
    """A link over which a peer asks; `answers` finds the link that it is to be answered on."""

    def __init__(
        self,
        link: Incoming,
        ask: Callable[[management.Request], Awaitable[bytes]],
        answers: Callable[[str], ResponseConsumer | None],
        flush: Callable[[], None],
    ) -> None:
        """Take requests, which `ask` answers whatever they are."""
        super().__init__(link)
        self._ask = ask
        self._answers = answers
        self._flush = flush
        self._tasks: set[Task[None]] = set()

    def stop(self) -> None:
        """Answer no more."""
        for task in self._tasks:
            task.cancel()

    def _take(self, delivery: Any, raw: bytes) -> None:  # noqa: ANN401  (as the link gives it)
        asked = management.request(raw)
        answers = self._answers(asked.reply_to)
        if answers is None:
            self.link.settle(delivery, Fault(NOT_FOUND, "no link of this session receives the answers"))
        elif answers.full or len(self._tasks) >= _AT_ONCE:
            self.link.settle(delivery, Fault(LIMIT, "answers wait to be received"))
        else:
            self.link.settle(delivery, None)
            task = serve(self._answer(asked, answers), self._failed)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer(self, asked: management.Request, answers: ResponseConsumer) -> None:
        answers.tell(await self._ask(asked))
        self._flush()

    def _failed(self, error: Exception) -> None:
        """End the link: who asked is not left to wait for an answer that does not come."""
        _log.error("a request failed", exc_info=error)
        self.link.end(Fault(INTERNAL))
        self._flush()
