"""What is shown of queues and messages, before it is written in any form. Values only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from broker.model.names import Jid
from broker.model.results import Counted
from frontends.rest import paths


@dataclass(frozen=True, slots=True)
class Child:
    """A queue, or a part of the tree that has queues below it."""

    name: str
    is_queue: bool


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a queue; `element`: what it says is one, and may stand in another document."""

    node: str
    item_id: str
    state: str
    publisher: Jid
    published_ms: int
    content_type: str
    body: bytes
    headers: Mapping[str, str]
    element: bytes | None
    lock: "Lock | None" = None

    @property
    def href(self) -> str:
        """Its path: in its queue, or in the subscription that holds it."""
        return self.lock.href if self.lock else paths.message(self.node, self.item_id)

    @property
    def content_href(self) -> str:
        """The path of what it says."""
        return paths.content(self.node, self.item_id)


@dataclass(frozen=True, slots=True)
class Lock:
    """How a subscription holds a message: the how-many-th delivery it is, until when, and where to go with it."""

    href: str
    actions: Mapping[str, str]
    attempt: int
    expires_ms: int


@dataclass(frozen=True, slots=True)
class Held:
    """What a subscription holds; `more` when that is not all."""

    href: str
    title: str
    expires_ms: int
    messages: Sequence[Message]
    more: bool


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a queue or of the tree: what is below it, and its messages; the root has no name."""

    name: str
    title: str
    is_queue: bool
    children: Sequence[Child]
    messages: Sequence[Message]
    counted: Counted | None
    options: Mapping[str, str] | None
    following: str

    @property
    def href(self) -> str:
        """Its path."""
        return paths.queue(self.name) if self.name else paths.QUEUES
