"""The interface between workers, publishers and transports: values and three protocols. Must not know any transport."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, Protocol, TypedDict
from urllib.parse import quote

from stanzaq.durations import Duration
from stanzaq.retry import Release

LINE_CHARACTERS: Final = 200
"""The longest note, and the longest reason over HTTP."""

TASK: Final = "task"
"""The header that names one of several tasks of a queue."""

PASSED: Final = "payload"
"""The header of an item whose payload is what others return that it waits for: `PASSED_ONE` or `PASSED_ALL`."""

PASSED_ONE: Final = "result"
PASSED_ALL: Final = "results"

READY: Final = "ready for items of %s, up to %d at once"
"""The log line of each new subscription: the node and the credit."""


@dataclass(frozen=True, slots=True)
class Content:
    """A payload: bytes and their media type."""

    body: bytes
    type: str


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Lock:
    """A worker's lock on an item; the token grows with every lock of the item."""

    node: str
    item: str
    token: int
    partition: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is: a share from 0 to 1, and a note."""

    share: float | None
    note: str

    def __post_init__(self) -> None:
        """Refuse what no service takes; raises ValueError."""
        if self.share is not None and not 0 <= self.share <= 1:
            msg = f"share: {self.share!r} is not from 0 to 1"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class Delivery:
    """An item delivered to this worker, under a lock that ends at `deadline` by the service's clock.

    `max_attempts` 0 is no limit. `collection` is the collection that it came through; empty if there is none. `reply` tells that
    somebody asked for the handler's result.
    """

    lock: Lock
    attempt: int
    max_attempts: int
    deadline: datetime
    content: Content
    headers: Mapping[str, str]
    key: str
    published: datetime
    collection: str = ""
    reply: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an item has ended: `acknowledged`, with the worker's result if there is one, `dead`, `cancelled` or `expired`."""

    state: str
    reason: str = ""
    result: Content | None = None


Parent = str | tuple[str, str]
"""An item to wait for: its id, or its node and its id."""


class SendThen(TypedDict, total=False):
    """How an item is sent with an acknowledgement, by the arguments of `Job.then`."""

    key: str
    delay: Duration
    priority: int | None
    ttl: Duration | None
    headers: Mapping[str, str] | None


class SendMany(SendThen, total=False):
    """How items are sent, by the arguments of `Publisher.publish`."""

    at: datetime | None
    after: Iterable[Parent]
    regardless: bool
    keep: bool
    confirm: Literal["", "synced", "replicated"]


class SendOne(SendMany, total=False):
    """How one item is sent."""

    id: str | None


@dataclass(frozen=True, slots=True)
class Hints:
    """A publisher's options for an item: group key, priority, delay and time to live in seconds, or `at` a Unix time.

    It waits for the items `after`, each a node and an id; `regardless` of how they end. Its own end stays readable with `keep`.
    `confirm` is how durable it is to be before the service answers, "": as the node says.
    """

    key: str = ""
    delay: float = 0.0
    priority: int | None = None
    ttl: float | None = None
    at: float | None = None
    reply: bool = False
    after: tuple[tuple[str, str], ...] = ()
    regardless: bool = False
    keep: bool = False
    confirm: str = ""

    @property
    def parents(self) -> str:
        """Return the items to wait for, each with its node ('' for the own one), in the words of the service."""
        return " ".join(f"{_word(node)}#{_word(item)}" if node else _word(item) for node, item in self.after)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """An item on its way to a node. `name` is unique among all items of a publisher, whatever their ids.

    Exactly-once takes two steps: the service holds the item, then delivers it. The second one began at `since` (Unix time, 0
    before), in the name of `sender`.
    """

    name: str
    node: str
    item: str
    content: Content
    headers: Mapping[str, str]
    hints: Hints
    since: float = 0.0
    sender: str = ""

    def __post_init__(self) -> None:
        """Refuse what no transport can send; raises TypeError."""
        texts: list[tuple[str, object]] = [("node", self.node), ("id", self.item), ("key", self.hints.key)]
        texts += [("headers", text) for pair in self.headers.items() for text in pair]
        for name, text in texts:
            if not isinstance(text, str):
                msg = f"{name}: {text!r} is a {type(text).__name__}; give a str"
                raise TypeError(msg)
        priority: object = self.hints.priority
        if not isinstance(priority, int | None):
            msg = f"priority: {priority!r} is a {type(priority).__name__}; give an int from 0 to 9"
            raise TypeError(msg)


def _word(name: str) -> str:
    """Return a name as one word."""
    return quote(name, safe="!$&'()*+,/:;=?@[]")


def line(text: str) -> str:
    """Return a text as one line of the length that the service accepts."""
    return "".join(char if char.isprintable() else " " for char in text)[:LINE_CHARACTERS]


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule of a node as the service tells it: `state` is `active`, `paused` or `ended`; counts are of its times.

    `said` has all that the service tells, in its own words.
    """

    id: str
    state: str
    next: datetime | None
    last: datetime | None
    published: int
    missed: int
    skipped: int
    said: Mapping[str, str] = field(compare=False)

    @classmethod
    def read(cls, words: Mapping[str, Any]) -> "Schedule":
        """Read the words of the service."""
        told = {name.replace("-", "_"): str(value) for name, value in words.items()}
        coming, gone = (datetime.fromisoformat(told[name]) if name in told else None for name in ("next", "last"))
        published, missed, skipped = (int(told[name]) for name in ("published", "missed", "skipped"))
        return cls(told["id"], told["state"], coming, gone, published, missed, skipped, told)


@dataclass(frozen=True, slots=True)
class Scheduling:
    """A request for a schedule: when, in the service's words, and the item that it publishes."""

    node: str
    id: str
    when: Mapping[str, str]
    content: Content
    headers: Mapping[str, str]
    hints: Hints


Save = Callable[[Outgoing], Awaitable[None]]


class Prepare(Protocol):
    """Makes a node what the program declares, before the first subscription to it, and when it is `missing`."""

    async def __call__(self, node: str, /, *, missing: bool) -> None:
        """Declare a node; raises StanzaqError if it cannot be used."""


class Receiver(Protocol):
    """The events that a transport reports to a worker."""

    def deliver(self, delivery: Delivery) -> None:
        """Receive an item; the same lock may be delivered again."""

    def lost(self, lock: Lock) -> None:
        """Receive notice that a lock ended without the worker's doing."""

    def deleted(self, node: str, item: str) -> None:
        """Receive notice that an item is gone: acknowledged here, or deleted by somebody."""

    def locks(self, node: str) -> set[Lock]:
        """Return the locks on a node that the worker believes it holds."""

    def locks_of(self, node: str, item: str) -> list[Lock]:
        """Return the locks on an item that the worker believes it holds."""


class Transport(Protocol):
    """A connection to the service. Requests wait while it is lost, and are repeated until they are answered."""

    async def run(self, receiver: Receiver, nodes: Mapping[str, int], prepare: Prepare) -> None:
        """Receive items of nodes, at most the given number at once from each, until `close`; raises StanzaqError if refused."""

    async def acknowledge(self, lock: Lock, result: Content | None = None, then: Sequence[Outgoing] = ()) -> bool:
        """Acknowledge an item, with a result for its publisher, and publish others with that, all or nothing.

        False if the lock had already ended. Raises StanzaqError with the condition `not-acceptable` if one may not be published.
        """

    async def release(self, lock: Lock, how: Release) -> bool:
        """Return an item; False if the lock had already ended."""

    async def renew(self, lock: Lock, progress: Progress | None = None, *, begun: bool = False) -> datetime | None:
        """Restart the lock time, and tell how far the job is, or that it has `begun`.

        Returns the new deadline, or None if the lock had already ended.
        """

    async def lock_seconds(self, node: str) -> float:
        """Return the lock time of a node."""

    async def publish(self, outgoing: Outgoing) -> None:
        """Send an item; the service has stored it on return. Raises StanzaqError if the service refuses it."""

    async def pause(self) -> None:
        """Receive no further items; existing locks stay."""

    async def close(self) -> None:
        """Disconnect: the service hands items still held to others."""

    def sender(self) -> "Sender":
        """Return what publishes over the same connection, which `run` keeps."""


class Sender(Protocol):
    """A publisher's connection to the service. Requests wait while it is lost, and are repeated until they are answered."""

    async def run(self) -> None:
        """Stay connected until `close`; raises StanzaqError if refused."""

    async def publish(self, outgoing: Outgoing) -> None:
        """Send an item; the service has stored it on return. Raises StanzaqError if the service refuses it."""

    async def cancel(self, node: str, item: str) -> bool:
        """Cancel an item; False if there is none. Raises StanzaqError if the service refuses."""

    def reply(self, node: str, item: str) -> Callable[[], Awaitable[Outcome]]:
        """Begin to expect the end of an item that is about to be published with a reply; returns what waits for it."""

    async def outcome(self, node: str, item: str) -> Outcome:
        """Read how an item has ended. Raises StanzaqError, `item-not-found` if that is not kept or is others' to read."""

    async def schedule(self, request: Scheduling) -> Schedule:
        """Make or replace a schedule. Raises StanzaqError if the service refuses."""

    async def schedules(self, node: str) -> list[Schedule]:
        """List the schedules of a node. Raises StanzaqError if the service refuses."""

    async def switch_schedule(self, node: str, name: str, *, paused: bool) -> Schedule:
        """Pause or resume a schedule. Raises StanzaqError if the service refuses."""

    async def unschedule(self, node: str, name: str) -> bool:
        """Delete a schedule; False if there is none. Raises StanzaqError if the service refuses."""

    async def options(self, node: str) -> dict[str, str] | None:
        """Return the options of a node, None if there is none. Raises StanzaqError, `forbidden` if it has other owners."""

    async def create(self, node: str, options: Mapping[str, str]) -> None:
        """Create a node. Raises StanzaqError if the service refuses, `conflict` if the node exists."""

    async def configure(self, node: str, options: Mapping[str, str]) -> None:
        """Change options of a node. Raises StanzaqError if the service refuses."""

    async def affiliations(self, node: str) -> dict[str, str]:
        """Return the affiliations with a node, by bare JID or domain. Raises StanzaqError if the service refuses."""

    async def affiliate(self, node: str, changes: Mapping[str, str]) -> None:
        """Change affiliations, all of them or none. Raises StanzaqError if the service refuses."""

    async def requests(self, node: str) -> list[str]:
        """Return who waits for an approval. Raises StanzaqError if the service refuses."""

    async def decide(self, node: str, jid: str, *, allow: bool) -> None:
        """Approve or refuse the requests of an account. Raises StanzaqError if the service refuses."""

    async def publish_once(self, outgoing: Outgoing, save: Save) -> None:
        """Send an item exactly once, also over restarts of this process if each step is saved. Raises StanzaqError."""

    async def close(self) -> None:
        """Disconnect."""
