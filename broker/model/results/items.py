"""Outcomes of commands on items. Values only."""

from collections.abc import Mapping
from dataclasses import field

from broker.model.frozen import frozen
from broker.model.items.items import Listed, Lock
from broker.model.items.outcomes import ItemOutcome
from broker.model.names import Jid, Partition
from broker.model.positions import Position


@frozen
class Published:
    """The item is in the log under `item_id`; `duplicate`: the node ignores repeats and this was one (X1).

    `differs`: the repeat had different content.
    """

    item_id: str
    duplicate: bool = False
    differs: bool = False


@frozen
class Retracted:
    """The item is gone; `holder` is to be notified (Q20), None when nobody held it; `replayed`: it was gone before (Q27).

    `collection` and `subid` name the holder's subscription, if it was through a collection or one of several.
    """

    holder: Jid | None
    replayed: bool = False
    collection: str = ""
    subid: str = ""


@frozen
class RetractedBatch:
    """All items are gone: what became of each, in the order of the command."""

    ended: tuple[Retracted, ...]


@frozen
class Cancelled:
    """The item is gone, and its holder is notified; `replayed`: it was gone before."""

    replayed: bool = False


@frozen
class Ended:
    """How the item has ended; None if that is not kept, or not for the sender; `awaited`: it is or will be."""

    outcome: ItemOutcome | None
    awaited: bool = False


@frozen
class Unlocked:
    """The lock is ended; `holder` is to be notified (Q29); `collection` and `subid` as in `Retracted`."""

    holder: Jid
    replayed: bool = False
    collection: str = ""
    subid: str = ""


@frozen
class Renewed:
    """The lock holds until `deadline_ms`."""

    token: int
    deadline_ms: int


@frozen
class HeldLocks:
    """The sender's locks; at most 1,000 for each JID, earliest deadline first."""

    locks: tuple[Lock, ...]


@frozen
class HeldItem:
    """An item as its holder reads it, with its lock.

    `attempt`, `untried` and `reply` are as in a `Delivery`, and `of` attempts may be made. `waited_ms` tells how long it waited
    for its first attempt, which this is, and -1 that this is a later one; None where its holder has had it before.
    """

    partition: Partition
    item_id: str
    token: int
    attempt: int
    deadline_ms: int
    publisher: Jid
    envelope: bytes
    key: str
    published_ms: int
    untried: int = 0
    reply: bool = False
    of: int = 1
    lock_seconds: int = 0
    waited_ms: int | None = None

    @property
    def locked_now(self) -> bool:
        """Whether it was locked by the receive that returns it."""
        return self.waited_ms is not None


@frozen
class Received:
    """What a pull subscription holds, oldest locks first; it expires at `until_ms`, Redis's clock. `more`: a limit cut the list.

    `held` has how many it holds in each partition that was asked. Its `credit` is known where its lease is. `owned`: it
    gets nothing, because each partition has an owner (E28). `short`: items wait, and a collection has no credit free for it.
    """

    items: tuple[HeldItem, ...]
    until_ms: int
    more: bool = False
    held: Mapping[Partition, int] = field(default_factory=dict, hash=False)
    credit: int = 0
    owned: bool = False
    short: bool = False


@frozen
class Reserved:
    """The sender may publish under this id until `until_ms` of Redis's clock."""

    item_id: str
    until_ms: int


@frozen
class Browsed:
    """Items in order; `more`: a limit cut the list, which was read up to `reached`.

    `count` is the number of all items.
    """

    items: tuple[Listed, ...]
    more: bool
    count: int = 0
    reached: Position | None = None


ItemResult = (
    Published
    | Reserved
    | Retracted
    | RetractedBatch
    | Cancelled
    | Ended
    | Unlocked
    | Renewed
    | HeldLocks
    | Received
    | Browsed
)
"""Outcomes of commands on items."""
