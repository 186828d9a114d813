"""Chooses the partition of a command. Pure; must not know pipelines or Redis.

An id that the service made begins with its partition's number. Any other id has a home by its hash, where its item is stored
unless the publisher named a partition or a group key. An item that came from another node, or is older than the last growth of
the node, may be in any partition and is searched for.
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
    """Where a command goes that is not for one known partition."""

    ANY = auto()
    """Any one partition, in rotation."""

    ALL = auto()
    """Every partition; their answers are merged."""

    SUBSCRIPTION = auto()
    """The coordinator first, then all others, which register the subscription."""

    DEPARTURE = auto()
    """Every partition that may know a subscription, which ends there."""

    LEASE = auto()
    """The coordinator, which knows the lease, then all partitions that hold items for it."""

    NOWHERE = auto()
    """A partition that the node does not have."""


class NamesPartition(Protocol):
    """A command that names its partition."""

    @property
    def partition(self) -> int:
        """The partition's number."""


def hashed(text: str, count: int) -> int:
    """Choose one of `count` partitions by a text; the choice is stable for the same count (E14)."""
    return crc32(text.encode()) % count


def home(item_id: str, count: int) -> int:
    """Return the partition of an item with this id, unless its publisher chose another."""
    made = _MADE.fullmatch(item_id)
    number = int(made[1]) if made else count
    return number if number < count else hashed(item_id, count)


def arrival(item_id: str, key: str, count: int) -> int:
    """Return the partition, of `count`, that stores an item from another node."""
    return hashed(key, count) if key else home(item_id, count)


def named(command: NamesPartition, _count: int) -> int:
    """Return the partition that a command names."""
    return command.partition


def of_publish(command: Publish, count: int) -> int | Place:
    """Return the partition of a publish: the one named, else by the group key, else by the id (E6, E8, E14)."""
    if command.partition is not None:
        return command.partition
    if command.key:
        return hashed(command.key, count)
    return home(command.item_id, count) if command.item_id else Place.ANY


def of_item(command: Retract | Unlock | Renew, count: int) -> int:
    """Return the partition where an item is looked for first."""
    return home(command.item_id, count) if command.partition is None else command.partition


def unnamed(command: Retract | Unlock | Renew) -> bool:
    """Return whether an item may be elsewhere, since its holder has not named the partition."""
    return command.partition is None


def of_delivery(command: Bounce | Confirm, _count: int) -> int:
    """Return the partition that a delivery came from."""
    return command.partition.number


def unplaced(command: object, _count: int) -> Place:
    """Raise TypeError: such a command is sent to a partition by its caller."""
    msg = f"{type(command).__name__} has no place in a node: whoever gives it names the partition"
    raise TypeError(msg)
