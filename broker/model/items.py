"""Items and what becomes of them on their way to a worker. Knows no encoding: an envelope here is values, not bytes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from broker.model.hints import USUAL_PRIORITY
from broker.model.names import Jid, Partition
from broker.model.nodes import NodeRecord
from broker.model.positions import Place
from broker.model.qos import Stage
from broker.model.subscriptions import Subscription

XML = "application/xml"
"""Content type of an XMPP payload element, stored as UTF-8 text that stands alone."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """A payload with its content type and headers: what `broker.codec` turns into bytes and back."""

    body: bytes
    content_type: str = XML
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Delivery:
    """An item handed to one subscriber under one lock; `deadline_ms` is Redis's clock, ms since 1970.

    `partitioned` says that the node has several partitions. At the stage `DELIVER` its receiver has the item, so publisher,
    envelope and group key are empty. Before that the deadline of an assured item is the earliest that it can have. An
    entry of a stream is under no lock, and its token is 0. With a `collection` the subscription is to that (H6), and with a
    `subid` it is that one of the several that the subscriber may have.
    """

    partition: Partition
    position: str
    item_id: str
    subscriber: Jid
    token: int
    attempt: int
    of: int
    deadline_ms: int
    publisher: Jid
    envelope: bytes
    sequence: int
    stage: Stage = Stage.UNACKNOWLEDGED
    key: str = ""
    partitioned: bool = False
    collection: str = ""
    subid: str = ""


@dataclass(frozen=True, slots=True)
class Lock:
    """An item that a subscriber holds, as `locks` lists it; `partition` None when the node has only one."""

    item_id: str
    token: int
    attempt: int
    of: int
    deadline_ms: int
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Listed:
    """An item as a browse shows it: waiting, delayed, locked, dying (on its way to another node), or kept in a log."""

    place: Place
    item_id: str
    state: str
    publisher: Jid
    published_ms: int
    envelope: bytes


@dataclass(frozen=True, slots=True)
class Grip:
    """Who has an item under which lock, since when and until when by Redis's clock, and which frontend was to send it."""

    holder: Jid
    token: int
    since_ms: int
    deadline_ms: int
    frontend: str


@dataclass(frozen=True, slots=True)
class Seen:
    """An item as its node's owner sees it; `state` as in `Listed`, and `kept` in a log.

    `attempts` are its deliveries so far. It waits until `until_ms` when it is delayed, and perishes at `ends_ms` if at all.
    `holders` are those who had it before, the last one first, as far as they are still subscribed.
    """

    partition: int
    position: str
    item_id: str
    state: str
    publisher: Jid
    key: str
    published_ms: int
    envelope: bytes
    attempts: int
    until_ms: int
    grip: Grip | None
    holders: tuple[Jid, ...]
    priority: int = USUAL_PRIORITY
    ends_ms: int = 0


@dataclass(frozen=True, slots=True)
class LockEnded:
    """Notice to a holder that its lock, through a `collection` if one is named, ended without its asking (Q35).

    Where a JID may have several subscriptions, `subid` says which one held it.
    """

    node: str
    subscriber: Jid
    item_id: str
    token: int
    collection: str = ""
    subid: str = ""


@dataclass(frozen=True, slots=True)
class Owned:
    """A partition as its owner has it: the group's epoch (E27), and the fence, which alone authorises (EX11).

    The lease ends at `until_ms` of Redis's clock unless it is renewed (EX16). `credit` is what lies in this partition.
    """

    partition: int
    group: str
    epoch: int
    fence: int
    until_ms: int
    credit: int


@dataclass(frozen=True, slots=True)
class OwnershipGained:
    """Notice to a member of a group that a partition was handed to it."""

    node: str
    subscriber: Jid
    owned: Owned


@dataclass(frozen=True, slots=True)
class OwnershipLost:
    """Notice to an owner that a partition is no longer its own (E28).

    `reason`: `stolen` by a higher epoch, `moved` to another member, `lapsed` for want of a renewal, or `gone` when nothing
    reached it any more.
    """

    node: str
    subscriber: Jid
    partition: int
    group: str
    epoch: int
    fence: int
    reason: str


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """Notice to a subscriber about the node itself: `what` is `delete`, perhaps with where to go instead, or `purge`."""

    node: str
    subscriber: Jid
    what: str
    redirect: str = ""


@dataclass(frozen=True, slots=True)
class NodeConfigured:
    """Notice to a subscriber that the node is configured anew (P23)."""

    subscriber: Jid
    record: NodeRecord


@dataclass(frozen=True, slots=True)
class SubscriptionChanged:
    """Notice to a subscriber that its subscription is in another state, without its own doing."""

    subscription: Subscription


@dataclass(frozen=True, slots=True)
class ApprovalAsked:
    """Notice to an owner that a subscription waits for an approval."""

    owner: Jid
    subscription: Subscription


@dataclass(frozen=True, slots=True)
class TreeEvent:
    """Notice to one who subscribed to `through`, that or a collection below it, that a child of `collection` came or went."""

    through: str
    subscriber: Jid
    collection: str
    child: str
    came: bool
    subid: str = ""


Notice = (
    LockEnded
    | SubscriptionChanged
    | ApprovalAsked
    | NodeEvent
    | NodeConfigured
    | TreeEvent
    | OwnershipGained
    | OwnershipLost
)
