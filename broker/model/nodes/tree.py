"""The tree of nodes (XEP-0248): collections contain nodes, leaves contain items. Pure; must not know how they are stored."""

from collections.abc import Mapping
from enum import Enum
from typing import Final

from broker.model.frozen import frozen
from broker.model.problems import MalformedRequest, Problem

DEPTH: Final = 8
"""Most collections above a node: questions about the tree are asked at every level."""

MAX_CHILDREN: Final = 500
"""Most children of a collection: with the longest names, a reply has no room for more."""

COLLECTION: Final = "pubsub#collection"
CHILDREN: Final = "pubsub#children"


class NodeType(Enum):
    """What a node contains."""

    LEAF = "leaf"
    COLLECTION = "collection"


class SubscriptionType(Enum):
    """What a subscription to a collection is for (XEP-0248 §5.1)."""

    ITEMS = "items"
    NODES = "nodes"
    ALL = "all"


@frozen
class Scope:
    """What a subscription to a collection is for, and how many levels below it; `depth` None: all of them."""

    kind: SubscriptionType
    depth: int | None

    def __str__(self) -> str:
        """Return the scope as operations store it."""
        return f"{self.kind.value} {'all' if self.depth is None else self.depth}"

    @staticmethod
    def parse(text: str) -> "Scope":
        """Read what `str` wrote."""
        kind, depth = text.split(" ")
        return Scope(SubscriptionType(kind), None if depth == "all" else int(depth))

    @property
    def works(self) -> bool:
        """Whether it is for items, each of which goes to one subscriber."""
        return self.kind is not SubscriptionType.NODES

    def reaches(self, level: int) -> bool:
        """Return whether it includes nodes so many levels below the collection."""
        return self.depth is None or level <= self.depth


class Association(Enum):
    """Who may associate nodes with a collection."""

    ALL = "all"
    OWNERS = "owners"
    WHITELIST = "whitelist"


@frozen
class TreeRequest:
    """A requested place in the tree: the collection above (empty: the root) and the children; None: unchanged."""

    parent: str | None = None
    children: tuple[str, ...] | None = None


def tree_request(options: Mapping[str, tuple[str, ...]]) -> tuple[Mapping[str, tuple[str, ...]], TreeRequest]:
    """Split options into configuration and place in the tree; raises MalformedRequest."""
    parent: str | None = None
    if COLLECTION in options:
        # The service shows the root as an empty value; no value means the same.
        parents = [name for name in options[COLLECTION] if name]
        if len(parents) > 1:
            raise MalformedRequest(Problem.NOT_ACCEPTABLE, f"{COLLECTION} takes one value: the graph is a tree")
        parent = parents[0] if parents else ""
    children = None
    if CHILDREN in options:
        children = tuple(dict.fromkeys(name for name in options[CHILDREN] if name))
    rest = {name: values for name, values in options.items() if name not in {COLLECTION, CHILDREN}}
    return rest, TreeRequest(parent, children)
