"""The rules by which an id or a key chooses a partition. Pure; must not know commands, pipelines or Redis.

An id that the service made begins with its partition's number. Any other id has a home by its hash, where its item is stored
unless the publisher named a partition or a group key. An item that came from another node may be in
any partition and is searched for.
"""

import re
from enum import Enum, auto

from broker.redis_core.registry.key_hash import hash_key

FIRST_PARTITION = 0
"""The first partition, which knows each subscription that is no owner's."""

_MADE = re.compile(r"([0-9]{1,4})-[0-9]+-[0-9]+", re.ASCII)


class PartitionChoice(Enum):
    """Which partitions a command goes to that is not for one known partition."""

    ANY = auto()
    """Any one partition, in rotation."""

    ALL = auto()
    """Every partition; their answers are merged."""

    SUBSCRIPTION = auto()
    """The first partition, and for a log reader all that it reads."""

    DEPARTURE = auto()
    """Every partition that may know a subscription, which ends there."""

    RECEIVER = auto()
    """The first partition, which knows the lease, and all that may have items for it."""

    NOWHERE = auto()
    """A partition that the node does not have."""


def choose_by_hash(text: str, count: int) -> int:
    """Choose one of `count` partitions by a text; the choice is stable for the same count (E14)."""
    # The sign is dropped as in the SDKs for .NET, Java and JavaScript; Python's keeps it, so that `%` counts from the other end.
    return abs(hash_key(text)) % count if count > 1 else 0


def partition_of_id(item_id: str, count: int) -> int:
    """Return the partition of an item with this id, unless its publisher chose another."""
    # Most nodes have one partition, and every command about an item asks.
    if count == 1:
        return 0
    number = partition_of_made_id(item_id, count)
    return choose_by_hash(item_id, count) if number is None else number


def partition_of_made_id(item_id: str, count: int) -> int | None:
    """Return the partition, of `count`, in which the service made an id; None for any other id."""
    made = _MADE.fullmatch(item_id)
    return int(made[1]) if made and int(made[1]) < count else None


def arrival(item_id: str, key: str, count: int) -> int:
    """Return the partition, of `count`, that stores an item from another node."""
    return choose_by_hash(key, count) if key else partition_of_id(item_id, count)
