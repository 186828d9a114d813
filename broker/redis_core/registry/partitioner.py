"""Which of a node's partitions a command concerns. Pure; must not know pipelines or Redis.

An id that the service made begins with its partition's number. Any other id has a home by its hash, where an item is that
has neither a partition nor a group key of its publisher's. An item that has, that came from another node, or that was
there before the node grew, may be anywhere, and is looked for.
"""

import re
from enum import Enum, auto
from typing import Protocol
from zlib import crc32

from broker.model.commands import Bounce, Confirm, Publish, Renew, Retract, Unlock

COORDINATOR = 0
"""The partition that knows every subscription and its credit, and whose turn it is."""

_MADE = re.compile(r"([0-9]{1,4})-[0-9]+-[0-9]+", re.ASCII)


class Place(Enum):
    """Where a command goes that concerns no one partition."""

    ANY = auto()
    """One partition, each in its turn."""

    ALL = auto()
    """Each partition; their answers become one."""

    SUBSCRIPTION = auto()
    """The coordinator first, which then lets the others know of a subscription."""

    DEPARTURE = auto()
    """Each partition that may know a subscription, which ends there."""

    LEASE = auto()
    """The coordinator, which knows whether a lease lasts, then whoever holds items for it."""

    NOWHERE = auto()
    """A partition that the node does not have."""


class NamesPartition(Protocol):
    """A command to one partition, which it names."""

    @property
    def partition(self) -> int:
        """Its number."""


def hashed(text: str, count: int) -> int:
    """Choose one of `count` partitions by a text, the same one as long as the count is the same (E14)."""
    return crc32(text.encode()) % count


def home(item_id: str, count: int) -> int:
    """Give the partition where an item of this id is, unless its publisher chose another."""
    made = _MADE.fullmatch(item_id)
    number = int(made[1]) if made else count
    return number if number < count else hashed(item_id, count)


def arrival(item_id: str, key: str, count: int) -> int:
    """Give the partition, of `count`, that takes an item from another node."""
    return hashed(key, count) if key else home(item_id, count)


def named(command: NamesPartition, _count: int) -> int:
    """Give the partition that a command names."""
    return command.partition


def of_publish(command: Publish, count: int) -> int | Place:
    """Give the partition that takes an item: the one named, else by the group key, else by the id (E6, E8, E14)."""
    if command.partition is not None:
        return command.partition
    if command.key:
        return hashed(command.key, count)
    return home(command.item_id, count) if command.item_id else Place.ANY


def of_item(command: Retract | Unlock | Renew, count: int) -> int:
    """Give the partition where an item is looked for first."""
    return home(command.item_id, count) if command.partition is None else command.partition


def unnamed(command: Retract | Unlock | Renew) -> bool:
    """Tell whether an item may be elsewhere than it is looked for first: its holder has not said where it is."""
    return command.partition is None


def of_delivery(command: Bounce | Confirm, _count: int) -> int:
    """Give the partition that a delivery came from."""
    return command.partition.number


def unplaced(command: object, _count: int) -> Place:
    """Raise TypeError: whoever gives such a command names the partition."""
    msg = f"{type(command).__name__} has no place in a node: whoever gives it names the partition"
    raise TypeError(msg)
