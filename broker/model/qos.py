"""Quality of service (urn:xmpp:qos) of deliveries. Values only; must not know any stanza."""

from enum import Enum
from typing import Final


class Qos(Enum):
    """A subscription's level: at most once, at least once or exactly once; items of a `PULLED` one are fetched instead."""

    UNACKNOWLEDGED = "unacknowledged"
    ACKNOWLEDGED = "acknowledged"
    ASSURED = "assured"
    PULLED = "pulled"


SENT: Final = (Qos.UNACKNOWLEDGED, Qos.ACKNOWLEDGED, Qos.ASSURED)
"""Levels at which items are pushed."""


class Stage(Enum):
    """What is sent for a delivery: the item at its level, or for an assured item that has arrived, the order to work on it.

    A log reader is sent entries as a stream; a gap says that it has lost entries before this one.
    """

    UNACKNOWLEDGED = "unacknowledged"
    ACKNOWLEDGED = "acknowledged"
    ASSURED = "assured"
    DELIVER = "deliver"
    STREAM = "stream"
    GAP = "gap"
