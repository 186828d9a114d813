"""Quality of service (urn:xmpp:qos): how surely a subscriber's deliveries arrive. Words only; must not know any stanza."""

from enum import Enum
from typing import Final


class Qos(Enum):
    """What a subscription asks for: at most once, at least once, or exactly once; who is `PULLED` from comes for its items."""

    UNACKNOWLEDGED = "unacknowledged"
    ACKNOWLEDGED = "acknowledged"
    ASSURED = "assured"
    PULLED = "pulled"


SENT: Final = (Qos.UNACKNOWLEDGED, Qos.ACKNOWLEDGED, Qos.ASSURED)
"""How surely those are sent that are sent at all."""


class Stage(Enum):
    """What is sent for a delivery: the item by its level, or that an assured one, which has arrived, is to be worked on.

    A reader of the log is sent its entries as a stream; at a gap others before this one are lost to it.
    """

    UNACKNOWLEDGED = "unacknowledged"
    ACKNOWLEDGED = "acknowledged"
    ASSURED = "assured"
    DELIVER = "deliver"
    STREAM = "stream"
    GAP = "gap"
