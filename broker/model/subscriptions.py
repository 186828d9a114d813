"""A subscription as others see it: whose, to what, and how far it has come. Values only; must not know what it grants."""

from dataclasses import dataclass
from enum import Enum

from broker.model.names import Jid


class State(Enum):
    """How far a subscription has come (XEP-0060 §4.2); nothing is sent to one that is not `SUBSCRIBED` (P4)."""

    NONE = "none"
    PENDING = "pending"
    SUBSCRIBED = "subscribed"


@dataclass(frozen=True, slots=True)
class Subscription:
    """One JID's subscription to one node; the node's owner is told what it may hold in all, and what it holds."""

    node: str
    jid: Jid
    subid: str
    state: State
    credit: int = 0
    held: int = 0

    @property
    def place(self) -> str:
        """Where it stands in a list of those to its node."""
        return f"{self.jid} {self.subid}"


@dataclass(frozen=True, slots=True)
class Change:
    """What an owner wants a subscription to be; without a `subid` it is the one that the JID has."""

    jid: Jid
    subid: str
    state: str
