"""How what is asked about items turns out. Values only."""

from dataclasses import dataclass

from broker.model.items import Listed, Lock
from broker.model.names import Jid, Partition
from broker.model.positions import Place


@dataclass(frozen=True, slots=True)
class Published:
    """The item is in the log under `item_id`; `duplicate` when the node ignores repeats and this was one (X1).

    `differs`: it was one that said something else.
    """

    item_id: str
    duplicate: bool = False
    differs: bool = False


@dataclass(frozen=True, slots=True)
class Retracted:
    """The item is gone; `holder` is whom to notify (Q20), None when nobody held it; `replayed` when it was gone before (Q27).

    With a `collection` it was held through that, with a `subid` by that one of several subscriptions.
    """

    holder: Jid | None
    replayed: bool = False
    collection: str = ""
    subid: str = ""


@dataclass(frozen=True, slots=True)
class Unlocked:
    """The lock is ended; `holder` is whom to notify (Q29); what it was held through is as in `Retracted`."""

    holder: Jid
    replayed: bool = False
    collection: str = ""
    subid: str = ""


@dataclass(frozen=True, slots=True)
class Renewed:
    """The lock holds until `deadline_ms`."""

    token: int
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class Held:
    """What the sender holds; at most 1,000 for each JID, the earliest deadline first."""

    locks: tuple[Lock, ...]


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


@dataclass(frozen=True, slots=True)
class Reserved:
    """The id is the sender's to publish under until `until_ms` of Redis's clock."""

    item_id: str
    until_ms: int


@dataclass(frozen=True, slots=True)
class Browsed:
    """Items in order; `more` when a limit cut the list, and then `reached` is how far it was looked through.

    `count` is how many there are in all.
    """

    items: tuple[Listed, ...]
    more: bool
    count: int = 0
    reached: Place | None = None


ItemResult = Published | Reserved | Retracted | Unlocked | Renewed | Held | Fetched | Browsed
"""How what is asked about items turns out."""
