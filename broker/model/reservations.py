"""What may be asked about items that are reserved before they are published (RX1). Values only, as other commands are."""

from dataclasses import dataclass

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
