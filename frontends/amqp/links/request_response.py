"""Request and response links of one connection, for the runtime information of nodes (EX17).

Must not know how a link is attached or how an answer is encoded.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from broker.model.commands import Partitions
from broker.model.results import Extents, Refused, Result
from frontends.amqp.errors import DECODE, INTERNAL, LIMIT, NOT_FOUND, TOO_BIG, Fault, fault
from frontends.amqp.links import node_info
from frontends.amqp.links.context import LinkContext
from frontends.amqp.protocol import types
from frontends.amqp.protocol.links import Incoming, Outgoing

QUESTION_BYTES: Final = 16_384
WINDOW: Final = 10
_ANSWERS_MOST: Final = 10
"""The most answers that wait for the peer's credit."""


class ResponseConsumer:
    """A link that delivers answers to the peer."""

    def __init__(self, link: Outgoing) -> None:
        """Start without answers."""
        self.link = link
        self._waiting: deque[bytes] = deque()

    def start(self) -> None:
        """Prepare the link."""
        self.link.prepare()

    def stop(self) -> None:
        """Drop waiting answers."""
        self._waiting.clear()

    def wake(self) -> None:
        """Send waiting answers as far as there is credit."""
        while self._waiting and self.link.open_for() > 0:
            answer = self._waiting.popleft()
            if len(answer) > self.link.most_bytes:
                self.link.end(Fault(TOO_BIG, f"the answer has {len(answer)} bytes, more than the link takes"))
                return
            self.link.send(answer)
        if self.link.draining:
            self.link.drained()

    @property
    def full(self) -> bool:
        """Tell whether the queue of answers is full."""
        return len(self._waiting) >= _ANSWERS_MOST

    def send_answer(self, answer: bytes) -> None:
        """Send an answer, or queue it until there is credit."""
        self._waiting.append(answer)
        self.wake()


class RequestReceiver(ABC):
    """A link on which the peer sends requests."""

    def __init__(self, link: Incoming) -> None:
        """Start without credit."""
        self.link = link

    def start(self) -> None:
        """Grant the first credit."""
        self.link.grant(WINDOW)

    def wake(self) -> None:
        """Handle the requests that have arrived."""
        try:
            for delivery, raw, _settled in self.link.messages(QUESTION_BYTES, 0):
                try:
                    self._take(delivery, raw)
                except types.Malformed as wrong:
                    self.link.settle(delivery, Fault(DECODE, str(wrong)))
        except Fault as refusal:
            self.link.end(refusal)
        else:
            self.link.grant(WINDOW)

    @abstractmethod
    def stop(self) -> None:
        """Stop answering."""

    @abstractmethod
    def _take(self, delivery: Any, raw: bytes) -> None:  # noqa: ANN401  (as the link gives it)
        """Handle a request; raises Malformed."""


class RequestProducer(RequestReceiver):
    """A link for requests about a node; `answers` are the connection's response links by address."""

    def __init__(
        self, link: Incoming, context: LinkContext, answers: Mapping[str, ResponseConsumer], node: str
    ) -> None:
        """Accept requests about a node."""
        super().__init__(link)
        self._context = context
        self._answers = answers
        self._node = node

    def stop(self) -> None:
        """Do nothing."""

    def _take(self, delivery: Any, raw: bytes) -> None:  # noqa: ANN401  (as the link gives it)
        asked = node_info.request(raw)
        answers = self._answers.get(asked.reply_to)
        if answers is None:
            self.link.settle(delivery, Fault(NOT_FOUND, "no link of this connection receives at that address"))
        elif answers.full:
            self.link.settle(delivery, Fault(LIMIT, "too many answers wait for credit"))
        else:
            command = Partitions(self._node, self._context.sender)
            self._context.core.submit(command, partial(self._on_result, delivery, asked, answers))

    def _on_result(
        self,
        delivery: Any,  # noqa: ANN401
        asked: node_info.NodeInfoRequest,
        answers: ResponseConsumer,
        result: Result,
    ) -> None:
        match result:
            case Extents():
                answers.send_answer(node_info.answer(result, asked.correlation))
                self.link.settle(delivery, None)
            case Refused():
                self.link.settle(delivery, fault(result))
            case _:
                self.link.settle(delivery, Fault(INTERNAL))
        self._context.connection.flush()
