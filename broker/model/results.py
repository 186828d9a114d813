"""How a command turned out: outcomes are values, a refusal is one of them. Must not know how an outcome is worded on a wire."""

from dataclasses import dataclass

from broker.model.items import Listed, Lock, Owned
from broker.model.names import Jid
from broker.model.nodes import NodeRecord
from broker.model.problems import Problem
from broker.model.qos import Qos


@dataclass(frozen=True, slots=True)
class Refused:
    """The command changed nothing; `detail` is a sentence for the person who reads the error."""

    problem: Problem
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Published:
    """The item is in the log under `item_id`; `duplicate` when the node ignores repeats and this was one (X1)."""

    item_id: str
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class Retracted:
    """The item is gone; `holder` is whom to notify (Q20), None when nobody held it; `replayed` when it was gone before (Q27)."""

    holder: Jid | None
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Unlocked:
    """The lock is ended; `holder` is whom to notify (Q29)."""

    holder: Jid
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Renewed:
    """The lock holds until `deadline_ms`."""

    token: int
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class Held:
    """What the sender holds; at most 1,000 for each JID, the earliest deadline first."""

    locks: tuple[Lock, ...]


@dataclass(frozen=True, slots=True)
class Stream:
    """Where a subscription began to read a partition: after `offset`; `gap`: what went with the retention lay before it (EX7)."""

    partition: int
    offset: str
    gap: bool


@dataclass(frozen=True, slots=True)
class Event:
    """An entry of the log, as reading shows it."""

    offset: str
    timestamp_ms: int
    item_id: str
    key: str
    publisher: Jid
    envelope: bytes


@dataclass(frozen=True, slots=True)
class Replay:
    """Entries of a partition's log in order, and how far it reaches; `after` is the offset to go on after.

    `gap`: what went with the retention was asked for too. `more`: a limit cut the list.
    """

    partition: int
    events: tuple[Event, ...]
    earliest: str
    latest: str
    after: str
    gap: bool
    more: bool


@dataclass(frozen=True, slots=True)
class Extents:
    """Each partition of a node, without its entries."""

    partitions: tuple[Replay, ...]


@dataclass(frozen=True, slots=True)
class Subscribed:
    """A subscription as it stands, with the credit that was granted (Q9).

    One that `reads` is a stream's; `streams` say where it has just begun.
    With a `group` it is that of an owner, and these partitions are its own (E11, E27); none while it waits for one (EX19).
    """

    jid: Jid
    subid: str
    credit: int
    qos: Qos = Qos.UNACKNOWLEDGED
    reads: bool = False
    streams: tuple[Stream, ...] = ()
    group: str = ""
    owned: tuple[Owned, ...] = ()


@dataclass(frozen=True, slots=True)
class Kept:
    """The leases of what the sender owns on a node are renewed (EX16)."""

    owned: tuple[Owned, ...]


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    """The subscription is gone."""

    jid: Jid
    subid: str


@dataclass(frozen=True, slots=True)
class Browsed:
    """Items in order; `more` when the limit cut the list."""

    items: tuple[Listed, ...]
    more: bool


@dataclass(frozen=True, slots=True)
class Declared:
    """The node exists now."""

    node: str


@dataclass(frozen=True, slots=True)
class Described:
    """A node's record."""

    record: NodeRecord


@dataclass(frozen=True, slots=True)
class Purged:
    """So many waiting items were dropped; `more` when a part alone was, and others wait."""

    count: int
    more: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """The command took effect and has nothing to say."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What a node holds now; `oldest_ms` is the age of the oldest item that waits, 0 when none does."""

    waiting: int
    eligible: int
    delayed: int
    in_flight: int
    dying: int
    oldest_ms: int
    subscribers: int
    credit_free: int
    kept: int = 0
    kept_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Listing:
    """Names of nodes, in order of creation."""

    nodes: tuple[str, ...]


Result = (
    Refused
    | Published
    | Retracted
    | Unlocked
    | Renewed
    | Held
    | Subscribed
    | Replay
    | Extents
    | Kept
    | Unsubscribed
    | Browsed
    | Declared
    | Described
    | Purged
    | Done
    | Counted
    | Listing
)
