"""How what is asked about nodes turns out. Values only."""

from dataclasses import dataclass

from broker.model.nodes import NodeRecord


@dataclass(frozen=True, slots=True)
class Declared:
    """The node exists now."""

    node: str


@dataclass(frozen=True, slots=True)
class Described:
    """A node's record, with its children if it is a collection."""

    record: NodeRecord
    children: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Purged:
    """So many waiting items were dropped; `more` when a part alone was, and others wait."""

    count: int
    more: bool = False


@dataclass(frozen=True, slots=True)
class Counted:
    """What a node holds now; `oldest_ms` is the age of the oldest item that waits, 0 when none does.

    The last three count what there has ever been, so that two looks make a rate: entries that the log took (an item, a version of
    one, what is written anew to be moved), those of them that are done with, and deliveries that have ended, well or not.
    """

    waiting: int
    eligible: int
    delayed: int
    in_flight: int
    dying: int
    oldest_ms: int
    subscribers: int
    credit_free: int
    kept: int = 0
    kept_bytes: int = 0
    published: int = 0
    finished: int = 0
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class Listing:
    """Names of nodes, in order of creation; `more` when a limit cut the list.

    `index` is the number of the first one among all nodes, also those that the asker may not see, and `count` how many these are.
    `collections` are those of them that are no leaves.
    """

    nodes: tuple[str, ...]
    index: int = 0
    count: int = 0
    more: bool = False
    collections: frozenset[str] = frozenset()


NodeResult = Declared | Described | Purged | Counted | Listing
"""How what is asked about nodes turns out."""
