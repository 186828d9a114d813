"""What is shown of queues and messages, before it is written in any form. Values only, made from results of the core."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from broker import codec, payloads
from broker.model.items import Listed
from broker.model.names import Jid
from broker.model.results import Counted, Fetched, HeldItem
from frontends.rest import paths
from frontends.rest.paths import Place
from frontends.rest.subscriptions.requests import Lease


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


def message(node: str, item: Listed) -> Message:
    """Give a message as a browse lists it; raises CorruptRecord."""
    envelope = codec.unpack(item.envelope)
    return Message(
        node,
        item.item_id,
        item.state,
        item.publisher,
        item.published_ms,
        payloads.kind(envelope),
        envelope.body,
        payloads.said(envelope),
        payloads.element(envelope),
    )


ACTIONS: Final = ("release", "renew", "dead-letter")


def held(lease: Lease, item: HeldItem) -> Message:
    """Give a message as a subscription holds it; raises CorruptRecord."""
    envelope = codec.unpack(item.envelope)
    path, query = lease.message(item)
    actions = {action: f"{path}/{action}{query}" for action in ACTIONS}
    return Message(
        item.partition.node,
        item.item_id,
        "locked",
        item.publisher,
        item.published_ms,
        payloads.kind(envelope),
        envelope.body,
        payloads.said(envelope),
        payloads.element(envelope),
        Lock(path + query, actions, item.attempt, item.deadline_ms),
    )


def lease(of: Lease, found: Fetched) -> Held:
    """Give what a subscription holds."""
    return Held(of.href, of.node, found.until_ms, [held(of, item) for item in found.items], found.more)


def children(names: Sequence[str], above: str, collections: Collection[str] = ()) -> list[Child]:
    """Give what is directly below a part of the tree, whose steps are the slashes in names (RX4); a collection is no queue."""
    beginning = f"{above}/" if above else ""
    found: dict[str, bool] = {}
    for name in names:
        if name.startswith(beginning) and name != beginning:
            step, slash, _ = name.removeprefix(beginning).partition("/")
            # An empty step is no part of a path: such a name stands as it is.
            child = f"{beginning}{step}" if step else name
            itself = (not slash or not step) and name not in collections
            found[child] = found.get(child, False) or itself
    return [Child(name, is_queue) for name, is_queue in found.items()]


def following(place: Place, limit: str | None, after: str, below: str) -> str:
    """Give the link to the next page; the cursors are where its two lists go on."""
    given = {"after": after, "below": below} | ({"limit": limit} if limit else {})
    path = paths.queue(place.node) if place.node else paths.QUEUES
    return f"{path}?{urlencode({name: value for name, value in given.items() if value})}"
