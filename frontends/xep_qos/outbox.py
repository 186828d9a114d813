"""What a sender must not forget: the messages that nobody has confirmed yet. Must not know how they are sent."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Step(StrEnum):
    """What is asked of the receiver next; the value is the name of the element that asks."""

    ACKNOWLEDGED = "acknowledged"
    ASSURED = "assured"
    DELIVER = "deliver"


@dataclass(frozen=True, slots=True)
class Outstanding:
    """A message on its way: `message` is the XML of the embedded one, `since` when its step was reached (Unix time).

    A msgId means something only together with the full JID that used it, the `sender`.
    """

    msg_id: str
    sender: str
    to: str
    message: str
    step: Step
    since: float


class Outbox(Protocol):
    """Where outstanding messages are kept. What has to survive a restart of the sender is kept on disk by its implementer."""

    def save(self, sent: Outstanding) -> None:
        """Keep a message, in place of what was kept under its msgId; it is safe when this returns."""

    def forget(self, msg_id: str) -> None:
        """Drop a message that is delivered, or whose failure was told."""

    def pending(self) -> Sequence[Outstanding]:
        """Give all that are kept."""


class MemoryOutbox:
    """An outbox that ends with its process."""

    def __init__(self) -> None:
        """Start empty."""
        self._kept: dict[str, Outstanding] = {}

    def save(self, sent: Outstanding) -> None:
        """Keep a message."""
        self._kept[sent.msg_id] = sent

    def forget(self, msg_id: str) -> None:
        """Drop a message."""
        self._kept.pop(msg_id, None)

    def pending(self) -> Sequence[Outstanding]:
        """Give all that are kept."""
        return list(self._kept.values())
