"""How an item has ended, for the publisher that asked for it. Values only."""

from enum import Enum, IntEnum
from typing import Final, Self

from broker.model.frozen import frozen
from broker.model.names import Jid

RESULT_BYTES: Final = 65_536
"""The largest result of a worker, with its headers."""


class ReplyMode(IntEnum):
    """What a publisher asks for: nothing; to be told of the end of its item; or only that it can look for it."""

    NONE = 0
    TOLD = 1
    KEPT = 2


class End(Enum):
    """How an item has left its queue."""

    ACKNOWLEDGED = "acknowledged"
    DEAD = "dead"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


@frozen
class ItemOutcome:
    """The end of an item; `envelope` is the worker's result, empty without one. `publisher` asked for it."""

    item_id: str
    state: End
    reason: str
    envelope: bytes
    publisher: Jid

    @classmethod
    def read(cls, line: bytes) -> Self:
        """Read the record of operations (lua/lib/outbox/outcome_record.lua)."""
        state, *lengths, rest = line.split(b" ", 4)
        parts = []
        for length in map(int, lengths):
            parts.append(rest[:length].decode())
            rest = rest[length + 1 :]
        publisher, item, reason = parts
        return cls(item, End(state.decode()), reason, rest, Jid(publisher.removeprefix("@")))
