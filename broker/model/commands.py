"""What may be asked of the core, in the imperative. Values only: no defaults that hide a decision of the asker's.

`sender` is always the full JID that the asker's server vouched for. `request` names one request of that sender, so that its
replay is recognised (Q27); the empty string names none. `partition` is where the item is, else it is looked for.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from broker.model.access import (
    Affiliate,
    Affiliations,
    Approve,
    ListPending,
    ListSubscribers,
    ManageSubscribers,
    SendPending,
    Subscriptions,
)
from broker.model.frontends import Disconnect, Frontends
from broker.model.hints import NO_HINTS, Hints
from broker.model.leases import Fetch
from broker.model.names import Jid, Partition
from broker.model.oversight import Overview, Release, ShowHistory, Survey, Transfer
from broker.model.positions import Place
from broker.model.qos import Qos, Stage
from broker.model.reading import Partitions, Reading
from broker.model.reservations import Redeem, Reserve
from broker.model.tree import Associate, Children, Dissociate, Nodes, Scope


@dataclass(frozen=True, slots=True)
class Publish:
    """Add one item, or replace the one with its id; without an id the core makes one.

    A `ticket` lets it take effect once, however often it is asked for with the same one (QoS assured); with a `digest` of what
    is said, whoever says something else under the ticket is told so. Without a
    `partition` the group `key` chooses one, then the item's id, then where credit is free (E14). `options` are fields by
    their wire names that the node must be configured with (P18).
    """

    node: str
    sender: Jid
    item_id: str | None
    envelope: bytes
    body_bytes: int
    ticket: str = ""
    partition: int | None = None
    key: str = ""
    options: Mapping[str, tuple[str, ...]] | None = None
    hints: Hints = NO_HINTS
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Hold:
    """Keep a publish until its sender says `Deliver`: the first of two with one `msg_id` counts (QoS assured, S9, S10).

    Without an item id of the publish's own, one is made that begins with `stem`, which leaves room for it.
    """

    sender: Jid
    msg_id: str
    publish: Publish
    stem: str


@dataclass(frozen=True, slots=True)
class Deliver:
    """Let what is held under a `msg_id` take effect, once (S11)."""

    sender: Jid
    msg_id: str


@dataclass(frozen=True, slots=True)
class Retract:
    """Acknowledge an item that the sender holds, or delete one as owner or publisher."""

    node: str
    sender: Jid
    item_id: str
    token: int | None = None
    request: str = ""
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Unlock:
    """Give an item back undone; the hints delay it, say why, or send it straight to the dead letters (Q32).

    `untried`: nobody has worked on it, so it does not count as a try.
    """

    node: str
    sender: Jid
    item_id: str
    token: int | None = None
    delay_ms: int = 0
    reason: str = ""
    dead_letter: bool = False
    request: str = ""
    partition: int | None = None
    untried: bool = False


@dataclass(frozen=True, slots=True)
class Renew:
    """Start the lock time of a held item anew: the node's, or so long from now on."""

    node: str
    sender: Jid
    item_id: str
    token: int | None = None
    partition: int | None = None
    lock_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Locks:
    """List what the sender holds on a node."""

    node: str
    sender: Jid


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Take part as a worker with so much credit; `jid` is the sender's, bare or full.

    `partitions` are the ones wished for (none: all). With a `group` or an `epoch` they are owned, which shuts others out (E26 to
    E28); with a `start` the log is read from there and nothing is consumed (E2). It ends by itself (P31) at `until_ms`, 0 for
    never, or after `lease_ms`. One to a collection may have a `scope`, one with a `selector` takes the work that this selects.
    `again`: of several, it is to be the one that there is.
    """

    node: str
    sender: Jid
    jid: Jid
    credit: int | None
    qos: Qos = Qos.UNACKNOWLEDGED
    partitions: tuple[int, ...] = ()
    group: str = ""
    epoch: int | None = None
    start: str = ""
    until_ms: int = 0
    scope: Scope | None = None
    selector: str = ""
    again: bool = False
    lease_ms: int = 0


@dataclass(frozen=True, slots=True)
class Keep:
    """Renew the leases of all that the sender owns on a node: the heartbeat of an owner (EX16)."""

    node: str
    sender: Jid


@dataclass(frozen=True, slots=True)
class Adjust:
    """Change a subscription that exists (XEP-0060 subscription options); what else is None stays as it is."""

    node: str
    sender: Jid
    jid: Jid
    subid: str
    credit: int
    qos: Qos | None = None
    until_ms: int | None = None
    scope: Scope | None = None
    selector: str | None = None


@dataclass(frozen=True, slots=True)
class Options:
    """Read the options of a subscription."""

    node: str
    sender: Jid
    jid: Jid
    subid: str


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """Leave; locks stay until they are ended or expire (Q34), unless what is held is given back with it (R14)."""

    node: str
    sender: Jid
    jid: Jid
    subid: str
    release: bool = False


@dataclass(frozen=True, slots=True)
class Presence:
    """A resource came or went; when the last one that a subscription counts on goes, its locks end and it is removed (Q33)."""

    sender: Jid
    available: bool


@dataclass(frozen=True, slots=True)
class Bounce:
    """What was sent for a delivery came back undelivered from `sender`; `gone`: no later one can succeed (P30)."""

    sender: Jid
    partition: Partition
    position: str
    token: int
    gone: bool
    stage: Stage = Stage.UNACKNOWLEDGED


@dataclass(frozen=True, slots=True)
class Confirm:
    """`sender` has confirmed what was sent for a delivery (urn:xmpp:qos)."""

    sender: Jid
    partition: Partition
    position: str
    token: int
    stage: Stage


@dataclass(frozen=True, slots=True)
class Browse:
    """Look at items without touching their locks; `item_ids` empty means `limit` of them in order.

    These are the first, or those that follow the place `after`; with `backwards` the last, or those that lie before `before`.
    With a `subid`, which may be empty, it is to be clear which of the sender's subscriptions is meant (XEP-0060 §6.5.9.1).
    """

    node: str
    sender: Jid
    item_ids: tuple[str, ...]
    limit: int
    after: Place | None = None
    before: Place | None = None
    backwards: bool = False
    subid: str | None = None


@dataclass(frozen=True, slots=True)
class Declare:
    """Create a node; `node` None asks for a made-up name; `options` are configuration fields by their wire names."""

    node: str | None
    sender: Jid
    options: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Configure:
    """Change configuration fields of a node."""

    node: str
    sender: Jid
    options: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Describe:
    """Read a node's record; `as_owner` refuses all but its owners (XEP-0060 §8.2)."""

    node: str
    sender: Jid
    as_owner: bool


@dataclass(frozen=True, slots=True)
class Purge:
    """Drop all items that wait; locked ones are left to their holders (P25)."""

    node: str
    sender: Jid


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a node with all that is in it; `redirect` is a URI that its subscribers are told to go to (P24)."""

    node: str
    sender: Jid
    redirect: str = ""


@dataclass(frozen=True, slots=True)
class Stats:
    """Count what a node holds."""

    node: str
    sender: Jid


Command = (
    Publish
    | Hold
    | Deliver
    | Reserve
    | Redeem
    | Retract
    | Unlock
    | Renew
    | Locks
    | Fetch
    | Subscribe
    | Reading
    | Partitions
    | Keep
    | Adjust
    | Options
    | Unsubscribe
    | Subscriptions
    | Affiliations
    | ListSubscribers
    | ManageSubscribers
    | Approve
    | ListPending
    | SendPending
    | Presence
    | Bounce
    | Confirm
    | Browse
    | Declare
    | Configure
    | Describe
    | Affiliate
    | Associate
    | Dissociate
    | Children
    | Purge
    | Delete
    | Stats
    | Nodes
    | Survey
    | Transfer
    | Release
    | Overview
    | ShowHistory
    | Frontends
    | Disconnect
)
