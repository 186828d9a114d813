"""Quality of service (urn:xmpp:qos) of deliveries. Values only; must not know any stanza."""

from enum import Enum
from typing import Final

from broker.model.frozen import frozen


class Qos(Enum):
    """A subscription's level: at most once, at least once or exactly once; items of a `PULLED` one are fetched instead."""

    UNACKNOWLEDGED = "unacknowledged"
    ACKNOWLEDGED = "acknowledged"
    ASSURED = "assured"
    PULLED = "pulled"


SENT: Final = (Qos.UNACKNOWLEDGED, Qos.ACKNOWLEDGED, Qos.ASSURED)
"""Levels at which items are pushed."""


MAX_BATCH: Final = 100
"""The most items in one stanza."""


@frozen
class Sending:
    """How items are sent to a subscriber: at which level, and at most how many in one stanza."""

    qos: Qos = Qos.UNACKNOWLEDGED
    batch: int = 1

    def __str__(self) -> str:
        """Return the word that stands for it in Redis, which for a batch of one is the level alone."""
        return self.qos.value if self.batch == 1 else f"{self.qos.value}{self.batch}"

    @staticmethod
    def parse(word: str) -> "Sending":
        """Read what `str` wrote."""
        level = word.rstrip("0123456789")
        return Sending(Qos(level), int(word[len(level) :] or 1))


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
