"""The interface between workers and what carries items to them: values and two protocols. Must not know any transport."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from stanzaq.retry import Release


@dataclass(frozen=True, slots=True)
class Content:
    """A payload: bytes, and the media type that its publisher gave them."""

    body: bytes
    type: str


@dataclass(frozen=True, slots=True)
class Lock:
    """One worker's hold on an item; the token is larger for every later lock of it."""

    node: str
    item: str
    token: int
    partition: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Delivery:
    """An item that the service has handed to this worker, under a lock that the service ends at `deadline` by its own clock."""

    lock: Lock
    attempt: int
    max_attempts: int
    deadline: datetime
    content: Content
    headers: Mapping[str, str]
    key: str
    published: datetime


class Receiver(Protocol):
    """What a transport tells a worker."""

    def deliver(self, delivery: Delivery) -> None:
        """Take an item; the same lock may be delivered again."""

    def lost(self, lock: Lock) -> None:
        """Hear that a lock has ended without the worker's doing."""

    def deleted(self, node: str, item: str) -> None:
        """Hear that an item is gone: it was acknowledged here, or somebody has deleted it."""

    def locks(self, node: str) -> set[Lock]:
        """Give the locks on a node that the worker takes for its own now."""


class Transport(Protocol):
    """A way to the service. Requests wait out lost connections and are repeated until they are answered."""

    async def run(self, receiver: Receiver, nodes: Mapping[str, int]) -> None:
        """Receive items of nodes, up to so many at once of each, until `close`; raises StanzaqError when that cannot be."""

    async def acknowledge(self, lock: Lock) -> bool:
        """End an item's work; False when the lock had ended before."""

    async def release(self, lock: Lock, how: Release) -> bool:
        """Give an item back; False when the lock had ended before."""

    async def renew(self, lock: Lock) -> datetime | None:
        """Start the lock time anew; gives the new deadline, None when the lock had ended before."""

    async def lock_seconds(self, node: str) -> float:
        """Give how long locks of a node last."""

    async def pause(self) -> None:
        """Receive no further items; what is held stays held."""

    async def close(self) -> None:
        """Leave: the service hands what is still held to others."""
