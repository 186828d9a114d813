"""A subscription as lists show it. Values only; must not know what it grants."""

from enum import Enum

from broker.model.frozen import frozen
from broker.model.names import Jid


class State(Enum):
    """The state of a subscription (XEP-0060 §4.2); only `SUBSCRIBED` ones are sent anything (P4)."""

    NONE = "none"
    PENDING = "pending"
    SUBSCRIBED = "subscribed"


@frozen
class Subscription:
    """One JID's subscription to one node; the node's owner also sees its credit and what it holds in all partitions."""

    node: str
    jid: Jid
    subid: str
    state: State
    credit: int = 0
    held: int = 0

    @property
    def place(self) -> str:
        """Its place in a list of the node's subscriptions."""
        return f"{self.jid} {self.subid}"


@frozen
class Change:
    """The state that an owner sets for a subscription; without a `subid` it is the JID's only one."""

    jid: Jid
    subid: str
    state: str
