"""Outcomes of log commands. Values only."""

from broker.model.frozen import frozen
from broker.model.names import Jid


@frozen
class LogStart:
    """Where a subscription began to read a partition: after `offset`; `gap`: retention has removed entries before it (EX7)."""

    partition: int
    offset: str
    gap: bool


@frozen
class Event:
    """An entry of the log, as reading shows it."""

    offset: str
    timestamp_ms: int
    item_id: str
    key: str
    publisher: Jid
    envelope: bytes


@frozen
class Replay:
    """Entries of a partition's log in order, and how far it reaches; reading continues after the offset `after`.

    `gap`: retention has removed entries that were asked for. `more`: a limit cut the list.
    """

    partition: int
    events: tuple[Event, ...]
    earliest: str
    latest: str
    after: str
    gap: bool
    more: bool


@frozen
class Extents:
    """Each partition of a node, without its entries."""

    partitions: tuple[Replay, ...]


@frozen
class Bound:
    """The sender owns the reading of a partition under this epoch (E27) and this fence, which alone authorises (EX11).

    The lease ends at `until_ms` of Redis's clock unless it is renewed.
    """

    partition: int
    epoch: int
    fence: int
    until_ms: int


LogResult = Replay | Bound | Extents
"""Outcomes of log commands."""
