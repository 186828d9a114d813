"""What is asked about subscriptions, and about who may subscribe. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass

from broker.model.names import Jid
from broker.model.pages import Page
from broker.model.qos import Qos
from broker.model.subscriptions import Change
from broker.model.tree import Scope


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Take part as a worker with so much credit; `jid` is the sender's, bare or full.

    `partitions` are the ones asked for (none: all). With a `group` or an `epoch` they are owned, which shuts others out (E26 to
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
class Keep:
    """Renew the leases of all that the sender owns on a node: the heartbeat of an owner (EX16)."""

    node: str
    sender: Jid


@dataclass(frozen=True, slots=True)
class Presence:
    """A resource came or went; when the last one that a subscription counts on goes, its locks end and it is removed (Q33)."""

    sender: Jid
    available: bool


@dataclass(frozen=True, slots=True)
class Subscriptions:
    """List all subscriptions of the sender's bare JID: of the whole service, or with a `node` to that one (P10)."""

    sender: Jid
    node: str | None


@dataclass(frozen=True, slots=True)
class Affiliations:
    """List the affiliations of the sender's bare JID: of the whole service, or with a `node` to that one (P10)."""

    sender: Jid
    node: str | None


@dataclass(frozen=True, slots=True)
class ListSubscribers:
    """List who is subscribed to a node, as its owner: a page of them by their places, or without one as many as are shown."""

    node: str
    sender: Jid
    page: Page | None = None


@dataclass(frozen=True, slots=True)
class ManageSubscribers:
    """Approve, refuse or remove subscriptions to a node, as its owner; what cannot be done does not hinder the rest (P26)."""

    node: str
    sender: Jid
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Approve:
    """Answer, as an owner, whether what waits of a bare JID is allowed; where nothing does it changes nothing (P27)."""

    node: str
    sender: Jid
    jid: Jid
    subid: str
    allow: bool


@dataclass(frozen=True, slots=True)
class ListPending:
    """Name the nodes of the sender where subscriptions wait for its approval."""

    sender: Jid


@dataclass(frozen=True, slots=True)
class SendPending:
    """Send the sender, an owner, what waits for approval at a node, once more."""

    node: str
    sender: Jid


@dataclass(frozen=True, slots=True)
class Affiliate:
    """Set affiliations by bare JID; the value `none` removes one."""

    node: str
    sender: Jid
    changes: Mapping[Jid, str]


SubscriptionCommand = (
    Subscribe
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
    | Affiliate
)
"""What is asked about subscriptions."""
