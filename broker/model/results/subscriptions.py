"""Outcomes of commands on subscriptions. Values only."""

from typing import ClassVar

from broker.model.frozen import frozen
from broker.model.items.items import Owned
from broker.model.items.qos import Qos, Sending
from broker.model.names import Jid
from broker.model.nodes.nodes import Affiliation
from broker.model.nodes.subscriptions import State, Subscription
from broker.model.nodes.tree import Scope
from broker.model.problems import Problem
from broker.model.results.log import LogStart


@frozen
class Subscribed:
    """A subscription with the credit that was granted (Q9), or requested while it is pending (P5).

    `reads`: it is a log reader's, and `streams` say where it has begun. One to a collection has a `scope`. With a `group` it is
    an owner's, with the partitions that it owns (E11, E27); none while it waits for one (EX19). It expires at `until_ms` of
    Redis's clock unless it is renewed (P31); 0 is never. With a `selector` it receives the items that this selects. At most
    `batch` items share a stanza.
    """

    jid: Jid
    subid: str
    credit: int
    qos: Qos = Qos.UNACKNOWLEDGED
    reads: bool = False
    streams: tuple[LogStart, ...] = ()
    scope: Scope | None = None
    group: str = ""
    owned: tuple[Owned, ...] = ()
    until_ms: int = 0
    state: State = State.SUBSCRIBED
    selector: str = ""
    batch: int = 1

    @property
    def sending(self) -> Sending:
        """How items are sent."""
        return Sending(self.qos, self.batch)


@frozen
class OwnershipsRenewed:
    """The partition ownerships of the sender on a node are renewed (EX16)."""

    owned: tuple[Owned, ...]


@frozen
class Unsubscribed:
    """The subscription is gone."""

    jid: Jid
    subid: str


@frozen
class SubscriptionList:
    """Subscriptions; `more` when there are others. For a page, `index` is the rank of its first one among `count`."""

    subscriptions: tuple[Subscription, ...]
    more: bool = False
    index: int = 0
    count: int = 0


@frozen
class AffiliationList:
    """The affiliations of one bare JID, by node names."""

    affiliations: tuple[tuple[str, Affiliation], ...]


@frozen
class Unaffiliated:
    """No affiliation was changed, since the request as a whole was refused; `kept` are the requested ones as they are (P26)."""

    problem: ClassVar[Problem] = Problem.NOT_ACCEPTABLE
    detail: str
    kept: tuple[tuple[Jid, Affiliation], ...]


@frozen
class Managed:
    """Subscriptions were changed; `failed` are those that were not, as they are (P26)."""

    failed: tuple[Subscription, ...]


SubscriptionResult = (
    Subscribed | OwnershipsRenewed | Unsubscribed | SubscriptionList | AffiliationList | Managed | Unaffiliated
)
"""Outcomes of commands on subscriptions."""
