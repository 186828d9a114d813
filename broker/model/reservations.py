"""What may be asked about items that are reserved before they are published (RX1), and how it turns out. Values only."""

from dataclasses import dataclass

from broker.model.hints import NO_HINTS, Hints
from broker.model.names import Jid


@dataclass(frozen=True, slots=True)
class Reserve:
    """Reserve the id of an item that is yet to be published, for a while."""

    node: str
    sender: Jid


@dataclass(frozen=True, slots=True)
class Redeem:
    """Publish an item under the id that its sender has reserved: the first body counts, however often it is sent."""

    node: str
    sender: Jid
    item_id: str
    envelope: bytes
    body_bytes: int
    key: str = ""
    hints: Hints = NO_HINTS


@dataclass(frozen=True, slots=True)
class Reserved:
    """The id is the sender's to publish under until `until_ms` of Redis's clock."""

    item_id: str
    until_ms: int
