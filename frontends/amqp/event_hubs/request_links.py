"""Request links: each request is answered on a response link of the same session.

Must not know how a link is attached or how requests are handled.
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

OK, ACCEPTED, WRONG, UNKNOWN_WHO, LATER = 200, 202, 400, 401, 503
_NOT_THERE, _FAILED = 404, 500
_CODES: Final = {UNAUTHORIZED: UNKNOWN_WHO, NOT_FOUND: _NOT_THERE, DELETED: _NOT_THERE, INTERNAL: _FAILED}
_AT_ONCE: Final = 10

_log = structlog.get_logger("stanzaq.amqp")


Ask = Callable[[management.ManagementRequest], Awaitable[tuple[int, str] | tuple[int, str, bytes]]]
"""Handles a request; returns a status code, a description and perhaps a value. Raises Fault and MalformedRequest."""

Consumers = Mapping[tuple[object, str], ResponseConsumer]
"""Response links by session and address."""


class RequestLink(RequestReceiver):
    """A link on which a peer sends requests; the answers go to a response link of its session."""

    def __init__(self, link: Incoming, context: LinkContext, path: str, ask: Ask, consumers: Consumers) -> None:
        """Accept requests at a path."""
        super().__init__(link)
        self._connection = context.connection
        self._path = path
        self._ask = ask
        self._consumers = consumers
        self._tasks: set[Task[None]] = set()

    def stop(self) -> None:
        """Cancel open requests."""
        for task in self._tasks:
            task.cancel()

    def _take(self, delivery: Any, raw: bytes) -> None:  # noqa: ANN401  (as the link gives it)
        asked = management.request(raw)
        session = self.link.session
        # The Python SDK does not name its response address.
        answers = self._consumers.get((session, asked.reply_to)) or self._consumers.get((session, self._path))
        if answers is None:
            self.link.settle(delivery, Fault(NOT_FOUND, "no link of this session receives the answers"))
        elif answers.full or len(self._tasks) >= _AT_ONCE:
            self.link.settle(delivery, Fault(LIMIT, "too many answers wait for credit"))
        else:
            self.link.settle(delivery, None)
            task = serve(self._answer(asked, answers), self._fail)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer(self, asked: management.ManagementRequest, answers: ResponseConsumer) -> None:
        answers.send_answer(await self._make_answer(asked))
        self._connection.flush()

    async def _make_answer(self, asked: management.ManagementRequest) -> bytes:
        try:
            return management.answer(asked, *await self._ask(asked))
        except Fault as refusal:
            return _refuse(asked, refusal)
        except MalformedRequest as refusal:
            return _refuse(asked, fault(refusal))
        except Exception:  # noqa: BLE001  (logged, and reported to the peer)
            _log.exception("a request of Event Hubs failed", command=asked.said.get("type"))
            return management.answer(asked, _FAILED, "internal error")

    def _fail(self, error: Exception) -> None:
        """End the link with an error, so that the peer does not wait for an answer."""
        _log.error("a request failed", exc_info=error)
        self.link.end(Fault(INTERNAL))
        self._connection.flush()


def _refuse(asked: management.ManagementRequest, refusal: Fault) -> bytes:
    return management.answer(asked, _CODES.get(refusal.condition, WRONG), refusal.detail)
