"""Commands on subscriptions and affiliations. Values only."""

from collections.abc import Mapping

from broker.model.frozen import frozen
from broker.model.items.qos import Qos, Sending
from broker.model.names import Jid
from broker.model.nodes.subscriptions import Change
from broker.model.nodes.tree import Scope
from broker.model.pages import Page


@frozen
class Subscribe:
    """Subscribe with so much credit; `jid` is the sender's, bare or full.

    `partitions` limits it to these (none: all). `group` or `epoch` makes the subscriber own them, so others are excluded (E26 to
    E28); `start` makes it read the log from there without consuming anything (E2). It expires (P31) at `until_ms`, 0 for
    never, or after `lease_ms`. `scope` is for a collection; with a `selector` it receives the items that this selects.
    At most `batch` items share a stanza. `again`: where a JID may have several subscriptions, change the present one. A lease is
    refused if its owner has `most` on the node, unless that is 0; one to a collection covers all that is below. A lease over
    `destinations`, names and wildcards, has a record instead of a node: `node` is its name, the resource of `jid`.
    `client` is the program that asks, as it names itself.
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
    batch: int = 1
    most: int = 0
    destinations: tuple[str, ...] = ()
    client: str = ""

    @property
    def sending(self) -> Sending:
        """How items are to be sent."""
        return Sending(self.qos, self.batch)


@frozen
class SetSubscriptionOptions:
    """Change an existing subscription (XEP-0060 subscription options); values of None stay as they are."""

    node: str
    sender: Jid
    jid: Jid
    subid: str
    credit: int
    qos: Qos | None = None
    until_ms: int | None = None
    scope: Scope | None = None
    selector: str | None = None
    batch: int | None = None


@frozen
class Options:
    """Read the options of a subscription."""

    node: str
    sender: Jid
    jid: Jid
    subid: str


@frozen
class Unsubscribe:
    """Unsubscribe; locks stay until they end or expire (Q34), unless `release` gives the items back (R14)."""

    node: str
    sender: Jid
    jid: Jid
    subid: str
    release: bool = False


@frozen
class RenewOwnership:
    """Renew all partition ownerships of the sender on a node: the heartbeat of an owner (EX16)."""

    node: str
    sender: Jid


@frozen
class Presence:
    """Report that a resource came or went; when a subscription's last one goes, the subscription and its locks end (Q33)."""

    sender: Jid
    available: bool


@frozen
class Subscriptions:
    """List all subscriptions of the sender's bare JID: of the whole service, or with a `node` to that one (P10)."""

    sender: Jid
    node: str | None


@frozen
class Affiliations:
    """List the affiliations of the sender's bare JID: of the whole service, or with a `node` to that one (P10)."""

    sender: Jid
    node: str | None


@frozen
class ListSubscribers:
    """List the subscribers of a node as its owner: a page of them, or without one as many as are shown at once."""

    node: str
    sender: Jid
    page: Page | None = None


@frozen
class ManageSubscribers:
    """Approve, refuse or remove subscriptions to a node as its owner; a failed change does not stop the others (P26)."""

    node: str
    sender: Jid
    changes: tuple[Change, ...]


@frozen
class Approve:
    """Allow or refuse the pending subscriptions of a bare JID as an owner; without any it changes nothing (P27)."""

    node: str
    sender: Jid
    jid: Jid
    subid: str
    allow: bool


@frozen
class ListPending:
    """List the sender's nodes with pending subscriptions."""

    sender: Jid


@frozen
class ListRequests:
    """List the pending subscriptions of a node as its owner, the oldest first."""

    node: str
    sender: Jid


@frozen
class SendPending:
    """Send an owner the pending subscriptions of a node again."""

    node: str
    sender: Jid


@frozen
class Affiliate:
    """Set affiliations by bare JID; the value `none` removes one."""

    node: str
    sender: Jid
    changes: Mapping[Jid, str]


SubscriptionCommand = (
    Subscribe
    | RenewOwnership
    | SetSubscriptionOptions
    | Options
    | Unsubscribe
    | Subscriptions
    | Affiliations
    | ListSubscribers
    | ManageSubscribers
    | Approve
    | ListPending
    | ListRequests
    | SendPending
    | Presence
    | Affiliate
)
"""Commands on subscriptions."""
