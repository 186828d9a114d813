"""The stanza ids of deliveries, which contain everything that a reply must return. Must not know the content.

A reply may reach any frontend (SX13), and its id is the only part that the receiver must repeat.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from broker.model.items import Delivery
from broker.model.names import Partition
from broker.model.qos import Stage
from frontends.xmpp.xml.text import escaped

_LETTERS: Final = {
    Stage.UNACKNOWLEDGED: "",
    Stage.ACKNOWLEDGED: "a:",
    Stage.ASSURED: "s:",
    Stage.DELIVER: "d:",
    Stage.STREAM: "r:",
    Stage.GAP: "g:",
}
_STAGES: Final = {letter: stage for stage, letter in _LETTERS.items()}

# The partition is last: a node's name may contain any character.
_ID: Final = re.compile(r"sq:([asdrg]:|)([0-9]{1,19}):([0-9]{1,20}-[0-9]{1,20}):(.{1,2100})", re.ASCII | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Named:
    """The lock of a delivery, and its stage."""

    partition: Partition
    position: str
    token: int
    stage: Stage


def written(delivery: Delivery) -> str:
    """Write the id of a delivery's stanza, escaped for an attribute."""
    return f"sq:{_LETTERS[delivery.stage]}{delivery.token}:{delivery.position}:{_partition(delivery.partition)}"


@lru_cache(maxsize=1_024)
def _partition(partition: Partition) -> str:
    return escaped(str(partition))


def read(text: str) -> Named | None:
    """Parse what `written` wrote; None for any other id.

    The core detects forged ids: the token must be that of a lock which the sender holds.
    """
    found = _ID.fullmatch(text)
    if found is None:
        return None
    try:
        partition = Partition.parse(found[4])
    except ValueError:
        return None
    return Named(partition, found[3], int(found[2]), _STAGES[found[1]])
