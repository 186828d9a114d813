"""A subscription as lists show it. Values only; must not know what it grants."""

from enum import Enum
from typing import Final

from broker.model.frozen import frozen
from broker.model.names import Jid

MOST_CLIENT_CHARS: Final = 128


def client_name(text: str) -> str:
    """Return the name of a program as it is stored: printable, and at most 128 characters."""
    return "".join(char for char in text if char.isprintable())[:MOST_CLIENT_CHARS]


class State(Enum):
    """The state of a subscription (XEP-0060 §4.2); only `SUBSCRIBED` ones are sent anything (P4)."""

    NONE = "none"
    PENDING = "pending"
    SUBSCRIBED = "subscribed"


@frozen
class Subscription:
    """One JID's subscription to one node; the node's owner also sees its credit and what it holds in all partitions.

    `client` is the program that made it, as that names itself; empty if it does not.
    """

    node: str
    jid: Jid
    subid: str
    state: State
    credit: int = 0
    held: int = 0
    client: str = ""

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
