"""Stores a sender's messages until they are confirmed. Must not know how they are sent."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Step(StrEnum):
    """The next request to the receiver; the value is the name of its element."""

    ACKNOWLEDGED = "acknowledged"
    ASSURED = "assured"
    DELIVER = "deliver"


@dataclass(frozen=True, slots=True)
class Outstanding:
    """An open message: `message` is the XML of the embedded one, `since` when its step was reached (Unix time).

    A msgId is unique only together with the full JID that used it, the `sender`.
    """

    msg_id: str
    sender: str
    to: str
    message: str
    step: Step
    since: float


class Outbox(Protocol):
    """Where open messages are stored; to survive a restart of the sender, an implementation stores them on disk."""

    def save(self, sent: Outstanding) -> None:
        """Store a message, replacing the one with its msgId; it must be safe on return."""

    def forget(self, msg_id: str) -> None:
        """Drop a message that is delivered, or whose failure was reported."""

    def pending(self) -> Sequence[Outstanding]:
        """Return all stored messages."""


class MemoryOutbox:
    """An outbox in memory."""

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
        """Return all stored messages."""
        return list(self._kept.values())
