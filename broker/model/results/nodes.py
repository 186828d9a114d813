"""Outcomes of commands on nodes. Values only."""

from broker.model.frozen import frozen
from broker.model.nodes.nodes import NodeRecord


@frozen
class Declared:
    """The node exists now."""

    node: str


@frozen
class Described:
    """A node's record, with its children if it is a collection.

    Without `reads`, the asker may publish or ask for a subscription, but not read the node: the record names no other JID.
    """

    record: NodeRecord
    children: tuple[str, ...] = ()
    reads: bool = True


@frozen
class Purged:
    """So many waiting items were dropped; `more`: others wait for the next call."""

    count: int
    more: bool = False


@frozen
class Counted:
    """What a node holds now; `oldest_ms` is the age of the oldest eligible item, at least, and 0 when there is none.

    Four are totals since the node's creation, so that two reads make a rate: `published` log entries (an item, a version of one,
    or a rewrite for a move), of which items were `finished` (acknowledged) or `removed` in any other way, and `attempts`, the
    deliveries that ended in any way. `dependent` items wait for others. Nobody owns `partitions_unowned` of a queue's several
    partitions; of one partition it is 0.
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
    removed: int = 0
    attempts: int = 0
    dependent: int = 0
    partitions_unowned: int = 0


@frozen
class Listing:
    """Names of nodes, in order of creation; `more`: a limit cut the list.

    `index` is the rank of the first one among all nodes, hidden ones included, and `count` the number of these. `collections` are
    those of the names that are not leaves.
    """

    nodes: tuple[str, ...]
    index: int = 0
    count: int = 0
    more: bool = False
    collections: frozenset[str] = frozenset()


NodeResult = Declared | Described | Purged | Counted | Listing
"""Outcomes of commands on nodes."""
