"""Links of requests: one question at a time becomes an answer on the link of answers in the same session.

Must not know how a link is attached, nor what is asked.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import structlog

from broker.model.problems import MalformedRequest
from broker.tasks import serve
from frontends.amqp.errors import DELETED, INTERNAL, LIMIT, NOT_FOUND, UNAUTHORIZED, Fault, fault
from frontends.amqp.event_hubs import management
from frontends.amqp.links.context import LinkContext
from frontends.amqp.links.request_response import RequestReceiver, ResponseConsumer
from frontends.amqp.protocol.links import Incoming

if TYPE_CHECKING:
    from asyncio import Task

OK, ACCEPTED, WRONG, UNKNOWN_WHO = 200, 202, 400, 401
_NOT_THERE, _FAILED = 404, 500
_CODES: Final = {UNAUTHORIZED: UNKNOWN_WHO, NOT_FOUND: _NOT_THERE, DELETED: _NOT_THERE, INTERNAL: _FAILED}
_AT_ONCE: Final = 10

_log = structlog.get_logger("stanzaq.amqp")


Ask = Callable[[management.Request], Awaitable[tuple[int, str] | tuple[int, str, bytes]]]
"""Answers a request by a code, why, and perhaps a value; raises Fault and MalformedRequest."""

Consumers = Mapping[tuple[object, str], ResponseConsumer]
"""The links of answers, by their session and their address."""


class RequestLink(RequestReceiver):
    """A link over which a peer asks; it is answered over one of its session."""

    def __init__(self, link: Incoming, context: LinkContext, path: str, ask: Ask, consumers: Consumers) -> None:
        """Take requests at a path."""
        super().__init__(link)
        self._connection = context.connection
        self._path = path
        self._ask = ask
        self._consumers = consumers
        self._tasks: set[Task[None]] = set()

    def stop(self) -> None:
        """Answer no more."""
        for task in self._tasks:
            task.cancel()

    def _take(self, delivery: Any, raw: bytes) -> None:  # noqa: ANN401  (as the link gives it)
        asked = management.request(raw)
        session = self.link.session
        # The Python SDK does not say where it receives.
        answers = self._consumers.get((session, asked.reply_to)) or self._consumers.get((session, self._path))
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
        answers.tell(await self._answered(asked))
        self._connection.flush()

    async def _answered(self, asked: management.Request) -> bytes:
        try:
            return management.answer(asked, *await self._ask(asked))
        except (Fault, MalformedRequest) as wrong:
            refusal = wrong if isinstance(wrong, Fault) else fault(wrong)
            return management.answer(asked, _CODES.get(refusal.condition, WRONG), refusal.detail)
        except Exception:  # noqa: BLE001  (logged, and told to the peer)
            _log.exception("a request of Event Hubs failed", command=asked.said.get("type"))
            return management.answer(asked, _FAILED, "it failed here")

    def _failed(self, error: Exception) -> None:
        """End the link: who asked is not left to wait for an answer that does not come."""
        _log.error("a request failed", exc_info=error)
        self.link.end(Fault(INTERNAL))
        self._connection.flush()
