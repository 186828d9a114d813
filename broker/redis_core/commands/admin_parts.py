"""What is asked of one partition as a part of an administrator's command, and of the node where a transfer arrives."""

from dataclasses import dataclass

from broker.model.items import Seen
from broker.model.names import Jid


@dataclass(frozen=True, slots=True)
class InspectItems:
    """Look closely at items of one partition: those named, or those between two positions, `limit` entries of them at most."""

    node: str
    sender: Jid
    partition: int
    item_ids: tuple[str, ...]
    limit: int
    after: str = "0-0"
    upto: str = "+"


@dataclass(frozen=True, slots=True)
class InspectedItems:
    """Items of one partition, and up to where it was looked through; empty at the end."""

    items: tuple[Seen, ...]
    come: str


@dataclass(frozen=True, slots=True)
class MoveItems:
    """Let items leave one partition for other nodes, each named by its position, its id and where it goes."""

    node: str
    sender: Jid
    partition: int
    departures: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class MovedItems:
    """Of the first so many departures, `count` have left; the others are to be asked for again."""

    count: int
    tried: int


@dataclass(frozen=True, slots=True)
class Handover:
    """A script tells of an item that is to be brought `to` a node, or without one as a dead letter; `note`: where it may be."""

    position: str
    to: str
    note: str


@dataclass(frozen=True, slots=True)
class ReadHandovers:
    """Read items that are on their way to another node, up to `max_bytes` of payload, and `note` where they are brought."""

    node: str
    incarnation: str
    partition: int
    positions: tuple[str, ...]
    note: str
    max_bytes: int


@dataclass(frozen=True, slots=True)
class HandoverItem:
    """An item that is on its way; of one that is sent, `>NODE` stands in the place of its last holder."""

    position: str
    item_id: str
    publisher: Jid
    envelope: bytes
    attempts: int
    holder: bytes
    reason: str
    key: str
    note: str


@dataclass(frozen=True, slots=True)
class AcceptHandover:
    """Take in an item that comes from another node, once by its ticket; of `count` partitions it goes to this one."""

    node: str
    partition: int
    count: int
    item_id: str
    ticket: str
    key: str
    publisher: Jid
    envelope: bytes


@dataclass(frozen=True, slots=True)
class EndHandover:
    """Forget an item that has arrived elsewhere, or hear that it has surely not."""

    node: str
    incarnation: str
    position: str
    partition: int
    arrived: bool


@dataclass(frozen=True, slots=True)
class Remaining:
    """How many items of a partition are on their way still."""

    count: int


@dataclass(frozen=True, slots=True)
class ExpireTickets:
    """Let a ticket be forgotten: the item's old node knows that it has arrived."""

    node: str
    ticket: str
    partition: int
