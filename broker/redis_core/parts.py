"""What is asked of one partition as a part of an administrator's command, and of the node where a transfer arrives."""

from dataclasses import dataclass

from broker.model.items import Seen
from broker.model.names import Jid


@dataclass(frozen=True, slots=True)
class SurveyPart:
    """Look closely at items of one partition: those named, or those between two positions, `limit` entries of them at most."""

    node: str
    sender: Jid
    partition: int
    item_ids: tuple[str, ...]
    limit: int
    after: str = "0-0"
    upto: str = "+"


@dataclass(frozen=True, slots=True)
class SurveyedPart:
    """Items of one partition, and up to where it was looked through; empty at the end."""

    items: tuple[Seen, ...]
    come: str


@dataclass(frozen=True, slots=True)
class TransferPart:
    """Let items leave one partition for other nodes, each named by its position, its id and where it goes."""

    node: str
    sender: Jid
    partition: int
    departures: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class Admit:
    """Take in an item that comes from another node, once by its ticket."""

    node: str
    item_id: str
    ticket: str
    key: str
    publisher: Jid
    envelope: bytes
