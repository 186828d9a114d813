"""Commands to one partition as a part of an administrator's command."""

from broker.model.frozen import frozen
from broker.model.items.items import ItemDetails
from broker.model.names import Jid


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
