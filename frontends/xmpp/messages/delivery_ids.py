"""The ids of stanzas that carry deliveries: all that a reply must bring back. Must not know what such a stanza holds.

A reply may reach any frontend (SX13), and its id is the only thing in it that its sender has to repeat.
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

# The partition stands last: a node's name may hold any character.
_ID: Final = re.compile(r"sq:([asdrg]:|)([0-9]{1,19}):([0-9]{1,20}-[0-9]{1,20}):(.{1,2100})", re.ASCII | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Named:
    """The lock that a delivery was for, and what was sent."""

    partition: Partition
    position: str
    token: int
    stage: Stage


def written(delivery: Delivery) -> str:
    """Write the id of a delivery's stanza, ready to stand in an attribute."""
    return f"sq:{_LETTERS[delivery.stage]}{delivery.token}:{delivery.position}:{_partition(delivery.partition)}"


@lru_cache(maxsize=1_024)
def _partition(partition: Partition) -> str:
    return escaped(str(partition))


def read(text: str) -> Named | None:
    """Read what `written` wrote; None for every other id.

    What a forger can write here is judged by the core: the token must be that of a lock which the sender holds.
    """
    found = _ID.fullmatch(text)
    if found is None:
        return None
    try:
        partition = Partition.parse(found[4])
    except ValueError:
        return None
    return Named(partition, found[3], int(found[2]), _STAGES[found[1]])
