"""Which of a node's partitions a command concerns. Pure; must not know pipelines or Redis.

An id that the service made begins with its partition's number. Any other id has a home by its hash, where an item is that
has neither a partition nor a group key of its publisher's. An item that has, that came from another node, or that was
there before the node grew, may be anywhere, and is looked for.
"""

import re
from collections.abc import Sequence
from enum import Enum, auto
from typing import Any, TypeGuard
from zlib import crc32

from broker.model.commands import (
    Adjust,
    Bind,
    Bounce,
    Browse,
    Commit,
    Confirm,
    Locks,
    Options,
    Publish,
    Purge,
    Read,
    Release,
    Renew,
    Retract,
    Stats,
    Subscribe,
    Unbind,
    Unlock,
    Unsubscribe,
)
from broker.redis_core.commands.admin_parts import Admit, Arrived, Handed, Letters, SurveyPart, TransferPart
from broker.redis_core.commands.credit import GrantCredit, ListUsage, Reach, Reregister
from broker.redis_core.commands.former import IF_KNOWN
from broker.redis_core.commands.internal import Attach, Detach, Expire, Find, KeepOne, Leave, Resend, Subscribers

COORDINATOR = 0
"""The partition that knows every subscription and its credit, and whose turn it is."""

_MADE = re.compile(r"([0-9]{1,4})-[0-9]+-[0-9]+", re.ASCII)


class Place(Enum):
    """Where a command goes that concerns no one partition."""

    ALL = auto()
    ANY = auto()
    NOWHERE = auto()


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


def place(command: Any, count: int) -> int | Place:
    """Give the number of the partition that a command concerns, or what there is instead of one; raises TypeError for others."""
    match command:
        case Publish(partition=None):
            if command.key:
                return hashed(command.key, count)
            return home(command.item_id, count) if command.item_id else Place.ANY
        case Retract(partition=None) | Unlock(partition=None) | Renew(partition=None):
            return home(command.item_id, count)
        case (
            Publish(partition=int(number))
            | Retract(partition=int(number))
            | Unlock(partition=int(number))
            | Renew(partition=int(number))
            | Letters(partition=number)
            | Admit(partition=number)
            | Handed(partition=number)
            | Arrived(partition=number)
            | Expire(partition=number)
            | Resend(partition=number)
            | Find(partition=number)
            | Commit(partition=number)
            | Read(partition=number)
            | Bind(partition=number)
            | Unbind(partition=number)
            | Attach(partition=number)
            | Detach(partition=number)
            | KeepOne(partition=number)
            | Subscribers(partition=number)
            | SurveyPart(partition=number)
            | TransferPart(partition=number)
        ):
            pass
        case Bounce() | Confirm():
            number = command.partition.number
        case Options() | Reach() | GrantCredit() | ListUsage():
            number = COORDINATOR
        case (
            Subscribe()
            | Adjust()
            | Unsubscribe()
            | Leave()
            | Reregister()
            | Locks()
            | Browse()
            | Purge()
            | Release()
            | Stats()
        ):
            return Place.ALL
        case _:
            msg = f"{type(command).__name__} has no place in a node: whoever gives it names the partition"
            raise TypeError(msg)
    return number if number < count else Place.NOWHERE


def may_be_elsewhere(command: Any) -> TypeGuard[Retract | Unlock | Renew]:
    """Tell whether a command's item may be in another partition than its place, for it names none."""
    return isinstance(command, Retract | Unlock | Renew) and command.partition is None


def former_places(command: Any, former: Sequence[int], number: int) -> list[int]:
    """Give the other partitions than `number` where an item went while its node had `former` numbers of them, the last first."""
    if type(command) not in IF_KNOWN or not command.item_id:
        return []
    places = dict.fromkeys(place(command, count) for count in reversed(former))
    return [each for each in places if isinstance(each, int) and each != number]
