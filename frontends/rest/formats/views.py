"""Views of queues and messages, independent of their written form. Values only."""

from collections.abc import Mapping, Sequence

from broker.model.frozen import frozen
from broker.model.items.progress import Progress
from broker.model.names import Jid
from broker.model.results import Counted
from frontends.rest import paths


@frozen
class Child:
    """A queue, or a part of the tree with queues below it."""

    name: str
    is_queue: bool


@frozen
class Message:
    """A message; `element` is its body if that is an XML element, which another document may contain."""

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
    progress: Progress | None = None

    @property
    def href(self) -> str:
        """Its path: in its queue, or in the subscription that holds it."""
        return self.lock.href if self.lock else paths.message(self.node, self.item_id)

    @property
    def content_href(self) -> str:
        """The path of its body."""
        return paths.content(self.node, self.item_id)


@frozen
class Lock:
    """The lock of a held message: its address, actions, token, attempt of so many, expiry and duration; and the group key.

    `reply`: somebody wants to know the end of the message.
    """

    href: str
    actions: Mapping[str, str]
    token: int
    attempt: int
    max_attempts: int
    expires_ms: int
    seconds: int
    key: str
    reply: bool


@frozen
class HeldMessages:
    """The messages that a subscription holds; `more` if that is not all, `owned` if others own all partitions."""

    href: str
    title: str
    expires_ms: int
    messages: Sequence[Message]
    more: bool
    owned: bool = False


@frozen
class Page:
    """A page of a queue or the tree: its children and messages. The root has no name."""

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
