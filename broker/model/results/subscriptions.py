"""How what is asked about subscriptions turns out. Values only."""

from dataclasses import dataclass

from broker.model.items import Owned
from broker.model.names import Jid
from broker.model.nodes import Affiliation
from broker.model.qos import Qos
from broker.model.results.log import Stream
from broker.model.subscriptions import State, Subscription
from broker.model.tree import Scope


@dataclass(frozen=True, slots=True)
class Subscribed:
    """A subscription as it stands, with the credit that was granted (Q9), or that is asked for while it is pending (P5).

    One that `reads` is a stream's; `streams` say where it has just begun. One to a collection has a `scope`.
    With a `group` it is that of an owner, and these partitions are its own (E11, E27); none while it waits for one (EX19).
    At `until_ms` of Redis's clock it ends by itself unless it is renewed (P31); 0 is never. With a `selector` it is handed
    what that selects.
    """

    jid: Jid
    subid: str
    credit: int
    qos: Qos = Qos.UNACKNOWLEDGED
    reads: bool = False
    streams: tuple[Stream, ...] = ()
    scope: Scope | None = None
    group: str = ""
    owned: tuple[Owned, ...] = ()
    until_ms: int = 0
    state: State = State.SUBSCRIBED
    selector: str = ""


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
class SubscriptionList:
    """Subscriptions; `more` when there are others. Of a page `index` is the number of the first one of `count`."""

    subscriptions: tuple[Subscription, ...]
    more: bool = False
    index: int = 0
    count: int = 0


@dataclass(frozen=True, slots=True)
class AffiliationList:
    """How one bare JID stands to nodes, by their names."""

    affiliations: tuple[tuple[str, Affiliation], ...]


@dataclass(frozen=True, slots=True)
class Unaffiliated:
    """Affiliations could not be changed as was asked, and none was; `kept` are those that were asked for, as they are (P26)."""

    detail: str
    kept: tuple[tuple[Jid, Affiliation], ...]


@dataclass(frozen=True, slots=True)
class Managed:
    """Subscriptions were changed; `failed` are those that were not, as they are (P26)."""

    failed: tuple[Subscription, ...]


SubscriptionResult = Subscribed | Kept | Unsubscribed | SubscriptionList | AffiliationList | Managed | Unaffiliated
"""How what is asked about subscriptions turns out."""
