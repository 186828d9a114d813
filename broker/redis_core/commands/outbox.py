"""Commands on the outbox of a partition, and to the partition that takes an item from one; items as the outbox has them."""

import math
from typing import Any, Self

from broker.model.commands import Publish
from broker.model.frozen import frozen
from broker.model.items.hints import NO_HINTS, Hints
from broker.model.names import Jid, Partition, bare_jid


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


@frozen
class FollowingItem:
    """An item that is published with the acknowledgement of another one, at `since_ms` by Redis's clock.

    Its record is `since-ms delay-ms priority ttl-ms node-length item-length key-length jid-length node item key jid envelope`;
    the operation that acknowledges writes the first word.
    """

    node: str
    item_id: str
    key: str
    publisher: Jid
    hints: Hints
    envelope: bytes
    since_ms: int = 0

    @classmethod
    def of(cls, publish: Publish) -> Self:
        """Return the item of a publish, which has an id."""
        assert publish.item_id
        about = publish.node, publish.item_id, publish.key, bare_jid(publish.sender)
        return cls(*about, publish.hints, publish.envelope)

    def pack(self) -> bytes:
        """Return the record as bytes, without its first word."""
        names = [each.encode() for each in (self.node, self.item_id, self.key, self.publisher)]
        head = f"{self.hints.times} {' '.join(str(len(name)) for name in names)} "
        return b"".join((head.encode(), *names, self.envelope))

    @classmethod
    def read(cls, record: bytes) -> Self:
        """Read the record."""
        *numbers, rest = record.split(b" ", 8)
        since_ms, delay_ms, priority, ttl_ms, *lengths = map(int, numbers)
        names = []
        for length in lengths:
            names.append(rest[:length].decode())
            rest = rest[length:]
        node, item, key, publisher = names
        return cls(node, item, key, Jid(publisher), Hints(delay_ms, priority, ttl_ms), rest, since_ms)

    def hints_at(self, now_ms: int) -> str:
        """Return its hints for an operation: what is left of its times, which count from the acknowledgement."""
        passed = max(0, now_ms - self.since_ms)
        delay_ms, ttl_ms = max(0, self.hints.delay_ms - passed), self.hints.ttl_ms
        left = Hints(delay_ms, self.hints.priority, max(1, ttl_ms - passed) if ttl_ms else 0)
        return "" if left == NO_HINTS else left.times
