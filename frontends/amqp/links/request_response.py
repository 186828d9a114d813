"""Links of questions and their answers on one connection: what a node's runtime information is asked and told over (EX17).

Must not know how a link is attached, nor how an answer is written.
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
"""Answers that may wait until the peer takes them."""


class ResponseConsumer:
    """A link over which a peer is answered."""

    def __init__(self, link: Outgoing) -> None:
        """Begin with none."""
        self.link = link
        self._waiting: deque[bytes] = deque()

    def start(self) -> None:
        """Begin."""
        self.link.prepare()

    def stop(self) -> None:
        """Forget what was not taken."""
        self._waiting.clear()

    def wake(self) -> None:
        """Send what there is credit for."""
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
        """Tell whether no more will be kept."""
        return len(self._waiting) >= _ANSWERS_MOST

    def tell(self, answer: bytes) -> None:
        """Send an answer, or keep it until there is credit."""
        self._waiting.append(answer)
        self.wake()


class RequestReceiver(ABC):
    """A link over which a peer asks."""

    def __init__(self, link: Incoming) -> None:
        """Begin closed."""
        self.link = link

    def start(self) -> None:
        """Let the peer ask."""
        self.link.grant(WINDOW)

    def wake(self) -> None:
        """Take what has arrived."""
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
        """Answer no more."""

    @abstractmethod
    def _take(self, delivery: Any, raw: bytes) -> None:  # noqa: ANN401  (as the link gives it)
        """Take a question; raises Malformed."""


class RequestProducer(RequestReceiver):
    """A link over which a node's information is asked for; `answers` are those of its connection, by their addresses."""

    def __init__(
        self, link: Incoming, context: LinkContext, answers: Mapping[str, ResponseConsumer], node: str
    ) -> None:
        """Take questions about a node."""
        super().__init__(link)
        self._context = context
        self._answers = answers
        self._node = node

    def stop(self) -> None:
        """Nothing is left to be done."""

    def _take(self, delivery: Any, raw: bytes) -> None:  # noqa: ANN401  (as the link gives it)
        asked = node_info.request(raw)
        answers = self._answers.get(asked.reply_to)
        if answers is None:
            self.link.settle(delivery, Fault(NOT_FOUND, "no link of this connection receives at that address"))
        elif answers.full:
            self.link.settle(delivery, Fault(LIMIT, "answers wait to be received"))
        else:
            command = Partitions(self._node, self._context.sender)
            self._context.core.submit(command, partial(self._answered, delivery, asked, answers))

    def _answered(self, delivery: Any, asked: node_info.Request, answers: ResponseConsumer, result: Result) -> None:  # noqa: ANN401
        match result:
            case Extents():
                answers.tell(node_info.answer(result, asked.correlation))
                self.link.settle(delivery, None)
            case Refused():
                self.link.settle(delivery, fault(result))
            case _:
                self.link.settle(delivery, Fault(INTERNAL))
        self._context.connection.flush()
