"""Commands to one partition as a part of an administrator's command, and to the target of a hand-over."""

from broker.model.attempts import Attempt
from broker.model.frozen import frozen
from broker.model.items import ItemDetails
from broker.model.names import Jid
from broker.model.outcomes import ItemOutcome


@frozen
class InspectPartition:
    """Read items of one partition with all details: those named, or at most `limit` entries between two positions."""

    node: str
    sender: Jid
    partition: int
    item_ids: tuple[str, ...]
    limit: int
    after: str = "0-0"
    upto: str = "+"


@frozen
class InspectedPartition:
    """Items of one partition, and the position up to which it was read; empty at the end."""

    items: tuple[ItemDetails, ...]
    come: str


@frozen
class MoveFromPartition:
    """Move items of one partition to other nodes, each given by its position, its id and its target."""

    node: str
    sender: Jid
    partition: int
    departures: tuple[tuple[str, str, str], ...]


@frozen
class MovedFromPartition:
    """Of the first `tried` items, `count` are moved; the rest must be requested again."""

    count: int
    tried: int


@frozen
class Handover:
    """A script's announcement of an item to bring `to` a node, or to be a dead letter; `note`: where it may have arrived."""

    position: str
    to: str
    note: str


@frozen
class OutcomeDue:
    """A script's announcement: the publisher of the item that was at a position is to be told how it has ended."""

    position: str
    outcome: ItemOutcome


@frozen
class ReadHandovers:
    """Read items that are on their way to another node, up to `max_bytes` of payload, and `note` their target."""

    node: str
    incarnation: str
    partition: int
    positions: tuple[str, ...]
    note: str
    max_bytes: int


@frozen
class HandoverItem:
    """An item on its way; a moved item has `>NODE` in place of its last holder."""

    position: str
    item_id: str
    publisher: Jid
    envelope: bytes
    attempts: int
    holder: bytes
    reason: str
    key: str
    note: str
    history: tuple[Attempt, ...] = ()


@frozen
class AcceptHandover:
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
class EndHandover:
    """Remove an item that has arrived elsewhere, or note that it has certainly not arrived."""

    node: str
    incarnation: str
    position: str
    partition: int
    arrived: bool


@frozen
class Remaining:
    """How many items of a partition are still on their way."""

    count: int


@frozen
class ExpireTickets:
    """Let a ticket expire: the item's old node knows that it has arrived."""

    node: str
    ticket: str
    partition: int
