"""Commands on the outbox of a partition, and to the partition that takes an item from one."""

import math
from typing import Any, Self

from broker.model.frozen import frozen
from broker.model.names import Jid, Partition


@frozen
class ReadOutbox:
    """Read entries of a partition that are due, which counts as an attempt; nodes that are `held` get no items meanwhile."""

    node: str
    incarnation: str
    partition: int
    held: tuple[str, ...] = ()


@frozen
class Entry:
    """An entry: its name (`KIND/…`, see lua/lib/outbox/outbox.lua), which attempt this is, and what the operation tells of it."""

    name: str
    attempt: int
    content: tuple[Any, ...]

    @property
    def kind(self) -> str:
        """What it is."""
        return self.name.partition("/")[0]

    @property
    def about(self) -> str:
        """What its name has after the kind."""
        return self.name.partition("/")[2]


@frozen
class OutboxPage:
    """Entries that were due, Redis's time in ms, and whether there are more; others may read them from `until` on (monotonic)."""

    now_ms: int
    entries: tuple[Entry, ...]
    more: bool
    until: float = math.inf


@frozen
class EndEntry:
    """End an entry; with a `target` an item goes on instead, to that node, unless it has been read since this `attempt`."""

    node: str
    incarnation: str
    partition: int
    name: str
    target: str = ""
    attempt: int = 0

    @classmethod
    def of(cls, partition: Partition, name: str, target: str = "", attempt: int = 0) -> Self:
        """End an entry of a partition, or let its item go on."""
        return cls(partition.node, partition.incarnation, partition.number, name, target, attempt)


@frozen
class AcceptEntry:
    """Store an item from another node or of a schedule, once by its ticket."""

    node: str
    incarnation: str
    partition: int
    item_id: str
    ticket: str
    key: str
    publisher: Jid
    envelope: bytes
    hints: str = ""


@frozen
class ExpireTicket:
    """Let a ticket expire: the item's old node knows that it has arrived."""

    node: str
    ticket: str
    partition: int
