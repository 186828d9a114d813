"""Leases: subscriptions that end by themselves, and whose items are not sent but come for. Values only; must not know a door.

A lease is a subscription of a full JID whose resource is made up, so that one user may have many, each with credit of its own.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from broker.model.names import Jid, Partition, resource

_RESOURCE: Final = re.compile(r"lease-[0-9a-f]{16}")


def lease_jid(owner: Jid, name: str) -> Jid:
    """Give the JID of a lease of `owner`; its name is 16 hexadecimal digits."""
    return Jid(f"{owner}/lease-{name}")


def is_lease(jid: str) -> bool:
    """Tell whether a JID is a lease's: nobody is there to be told anything."""
    return _RESOURCE.fullmatch(resource(jid)) is not None


def own_view(node: str, jid: Jid) -> bool:
    """Tell whether a node is a collection that was made for one lease alone, and ends with it."""
    return is_lease(jid) and node == resource(jid)


@dataclass(frozen=True, slots=True)
class Fetch:
    """Read what the lease of `jid` holds, of each partition what was locked after a token that the asker has seen.

    When that is nothing, wait for something so many seconds. With `lease_ms` it lasts so long from the end of this on.
    Who only looks, and does not come for anything, begins no lock.
    """

    node: str
    sender: Jid
    jid: Jid
    lease_ms: int | None = None
    wait_seconds: float = 0.0
    after: Mapping[Partition, int] = field(default_factory=dict)
    comes: bool = True


@dataclass(frozen=True, slots=True)
class HeldItem:
    """An item as its holder reads it, with its lock; of the attempts so many were `tries`, with this one."""

    partition: Partition
    item_id: str
    token: int
    attempt: int
    deadline_ms: int
    publisher: Jid
    envelope: bytes
    key: str
    published_ms: int
    tries: int = 1


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a lease holds, the oldest locks first; it ends at `until_ms` of Redis's clock. `more`: a limit cut the list.

    As long as the `stamp` is the same, nobody has been handed anything there. A lease that `returned` had let items run out
    without fetching them, and is handed items again from now on.
    """

    items: tuple[HeldItem, ...]
    until_ms: int
    more: bool = False
    stamp: int = 0
    returned: bool = False
