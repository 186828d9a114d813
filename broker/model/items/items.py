"""Items, deliveries and notices. Must not know encodings: an envelope here is values, not bytes."""

from collections.abc import Mapping
from dataclasses import field

from broker.model.frozen import frozen
from broker.model.items.attempts import Attempt
from broker.model.items.dependencies import Dependent, ParentState
from broker.model.items.hints import USUAL_PRIORITY
from broker.model.items.outcomes import ItemOutcome
from broker.model.items.progress import Progress
from broker.model.items.qos import Stage
from broker.model.names import Jid, Partition
from broker.model.nodes.nodes import NodeRecord
from broker.model.nodes.subscriptions import Subscription
from broker.model.positions import Position

XML = "application/xml"
"""Content type of an XMPP payload element, stored as UTF-8 text that can stand alone."""


@frozen
class Envelope:
    """A payload with its content type and headers; `broker.codec` turns it into bytes and back."""

    body: bytes
    content_type: str = XML
    headers: Mapping[str, str] = field(default_factory=dict)


@frozen
class Delivery:
    """An item handed to one subscriber under one lock; `deadline_ms` is Redis's clock, ms since 1970.

    `partitioned`: the node has several partitions. At the stage `DELIVER` the receiver has the item already, so publisher,
    envelope and group key are empty; before that, the deadline of an assured item is the earliest possible one. An
    entry of a log has no lock, and its token is 0. `collection` names the collection that the subscription is to (H6), and
    `subid` the subscription where the subscriber may have several. At most `batch` items share a stanza. At the stage `DELIVER`,
    `message` is the name of the stanza that brought the item together with others. `ready_ms` is when the delay of an item, or
    the last of its parents, ended; 0 for items that were ready since their publish. `attempt` is the number of tries, this one
    included; `untried` are the deliveries before it that were none. `reply`: somebody wants to know the item's end.
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
    batch: int = 1
    message: str = ""
    ready_ms: int = 0
    untried: int = 0
    reply: bool = False


@frozen
class Lock:
    """An item that a subscriber holds, as `locks` lists it; `partition` None when the node has only one."""

    item_id: str
    token: int
    attempt: int
    of: int
    deadline_ms: int
    partition: int | None = None


@frozen
class Listed:
    """An item as a browse shows it: waiting, delayed, dependent, locked, dying (on its way to another node), or kept in a log.

    A dependent item waits until others have ended.
    """

    place: Position
    item_id: str
    state: str
    publisher: Jid
    published_ms: int
    envelope: bytes
    progress: Progress | None = None


@frozen
class LockDetails:
    """A lock on an item: its holder, when it began and ends by Redis's clock, and the frontend that was to send it.

    `progress` is what the holder has told last.
    """

    holder: Jid
    token: int
    since_ms: int
    deadline_ms: int
    frontend: str
    progress: Progress | None = None


@frozen
class ItemDetails:
    """An item as its node's owner sees it; `state` as in `Listed`, and `kept` in a log.

    `attempts` are its tries so far, a present one included. A delayed item waits until `until_ms`; an item with a time to live
    expires at `ends_ms`.
    `holders` are those who had it before and are still subscribed, the last one first. `history` has its last attempts in this
    node that ended without an acknowledgement, the oldest first. A dependent item waits for its `parents`;
    `awaited_by` are items that wait for it, at most fifty.
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
    lock: LockDetails | None
    holders: tuple[Jid, ...]
    priority: int = USUAL_PRIORITY
    ends_ms: int = 0
    history: tuple[Attempt, ...] = ()
    parents: tuple[ParentState, ...] = ()
    awaited_by: tuple[Dependent, ...] = ()


@frozen
class LockEnded:
    """Notice to a holder that its lock ended without its request (Q35), through a `collection` if one is named.

    Where a JID may have several subscriptions, `subid` says which one held it. `cancelled`: the item is gone.
    """

    node: str
    subscriber: Jid
    item_id: str
    token: int
    collection: str = ""
    subid: str = ""
    cancelled: bool = False


@frozen
class Owned:
    """An owned partition: the group's epoch (E27), and the fence, which alone authorises (EX11).

    The lease ends at `until_ms` of Redis's clock unless it is renewed (EX16). `credit` is the owner's in this partition.
    """

    partition: int
    group: str
    epoch: int
    fence: int
    until_ms: int
    credit: int


@frozen
class OwnershipGained:
    """Notice to a group member that it was assigned a partition."""

    node: str
    subscriber: Jid
    owned: Owned


@frozen
class OwnershipLost:
    """Notice to an owner that it no longer owns a partition (E28).

    `reason`: `stolen` by a higher epoch, `moved` to another member, `lapsed` for want of a renewal, or `gone` when its
    deliveries bounced.
    """

    node: str
    subscriber: Jid
    partition: int
    group: str
    epoch: int
    fence: int
    reason: str


@frozen
class NodeEvent:
    """Notice to a subscriber about the node: `what` is `delete`, with an optional redirect, or `purge`."""

    node: str
    subscriber: Jid
    what: str
    redirect: str = ""


@frozen
class NodeConfigured:
    """Notice to a subscriber that the node's configuration has changed (P23)."""

    subscriber: Jid
    record: NodeRecord


@frozen
class SubscriptionChanged:
    """Notice to a subscriber that others have changed the state of its subscription.

    `offline`: it ended because its JID went offline, so only a JID that has come back meanwhile can be told.
    """

    subscription: Subscription
    offline: bool = False


@frozen
class ApprovalAsked:
    """Notice to an owner that a subscription waits for approval."""

    owner: Jid
    subscription: Subscription


@frozen
class TreeEvent:
    """Notice to a subscriber of `through` that a child of `collection`, which is that or below it, came or went."""

    through: str
    subscriber: Jid
    collection: str
    child: str
    came: bool
    subid: str = ""


@frozen
class ItemEnded:
    """Notice to a publisher of how an item has ended; it may come again, under the same `name`."""

    node: str
    subscriber: Jid
    outcome: ItemOutcome
    name: str


Notice = (
    LockEnded
    | ItemEnded
    | SubscriptionChanged
    | ApprovalAsked
    | NodeEvent
    | NodeConfigured
    | TreeEvent
    | OwnershipGained
    | OwnershipLost
)
