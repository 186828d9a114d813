"""The tree of nodes (XEP-0248): the collections above a node, the nodes below a collection, and checks of moves.

Only a child's record decides: it names its parent and the parent's incarnation. A collection's list of children is an index
that readers check, so after a crash between the two a name is skipped. Must not know forms, or who is notified of a change.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from broker import keys
from broker.model.commands import Associate, Configure, Declare
from broker.model.names import Partition, bare_jid
from broker.model.nodes.destinations import is_wildcard, matches
from broker.model.nodes.nodes import Affiliation, NodeRecord
from broker.model.nodes.tree import DEPTH, Association, NodeType
from broker.model.problems import Problem
from broker.model.results import Refused
from broker.redis_core.records.store import NodeStore
from broker.redis_core.redis_client.client import Server, Value

Moving = Declare | Configure | Associate
"""A command that may put a node below a collection."""

MOVED: int = 10_000
"""Most nodes below a collection that are read: a larger collection cannot be moved."""

_NODE_TYPE = "pubsub#node_type"
_COLLECTION = NodeType.COLLECTION.value.encode()
_CYCLE = Refused(Problem.TREE_INVALID, "a collection cannot be below itself")
_DEEP = Refused(Problem.TREE_INVALID, f"at most {DEPTH} collections are above a node")
_LARGE = Refused(Problem.TREE_INVALID, f"a collection with more than {MOVED} nodes below it stays where it is")
_NO_PARENT = Refused(Problem.NODE_NOT_FOUND, "there is no such collection")
_LEAF = Refused(Problem.TREE_INVALID, "the node is a leaf: only collections have children")
_CLOSED = Refused(Problem.FORBIDDEN, "the collection's owners do not let you associate nodes with it")
_FULL = Refused(Problem.TOO_MANY_CHILDREN, "the collection has as many children as it may")


class Tree:
    """Reads and changes the tree; keeps all state in Redis."""

    def __init__(self, server: Server, store: NodeStore) -> None:
        """Use `server`; records are read from `store`."""
        self._server = server
        self._store = store

    async def find_above(self, record: NodeRecord) -> tuple[str, ...]:
        """Return the names of the collections above a node, nearest first: none twice, and at most `DEPTH`."""
        found: list[str] = []
        async for name in self._walk_up(record):
            if name in {record.name, *found} or len(found) == DEPTH:
                break
            found.append(name)
        return tuple(found)

    async def _walk_up(self, record: NodeRecord) -> AsyncIterator[str]:
        """Yield the names of the collections above a node. Other fields of their records may be corrupt."""
        name, life = record.parent, record.parent_life
        while name:
            head = "HMGET", keys.of_node("node", name), "incarnation", "parent", "parent_life"
            found, kind = await self._server.commands([head, ("HGET", keys.of_node("options", name), _NODE_TYPE)])
            incarnation, *place = [(value or b"").decode() for value in found]
            # A deleted collection has left its children to the root, even if its name is used again.
            if not life or incarnation != life or kind != _COLLECTION:
                return
            yield name
            name, life = place

    async def children(self, record: NodeRecord) -> tuple[str, ...]:
        """Return the children of a collection, oldest first."""
        if not record.config.collects:
            return ()
        return await self._children(record.name, record.incarnation)

    async def _children(self, name: str, incarnation: str) -> tuple[str, ...]:
        return tuple(child for child, theirs in await self._check_children(name, incarnation) if theirs)

    async def first_level(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the names of nodes that are below no collection: the root shows them (H3)."""
        placed = await self._read_parents(names)
        incarnations = await self._store.incarnations(sorted({parent for parent, _life in placed if parent}))
        return tuple(
            name
            for name, (parent, incarnation) in zip(names, placed, strict=True)
            if not parent or incarnations.get(parent) != incarnation
        )

    async def collections(self, names: Sequence[str]) -> frozenset[str]:
        """Return those names that are collections'."""
        kinds = await self._server.commands([("HGET", keys.of_node("options", name), _NODE_TYPE) for name in names])
        return frozenset(name for name, kind in zip(names, kinds, strict=True) if kind == _COLLECTION)

    async def find_below(self, record: NodeRecord) -> list[list[str]]:
        """Return the nodes below a collection by level, at most `MOVED` in all."""
        levels: list[list[str]] = []
        seen = {record.name}
        collections = {record.name: record.incarnation} if record.config.collects else {}
        while collections and len(levels) < DEPTH:
            found = [name for each in collections.items() for name in await self._children(*each)]
            names = [name for name in found if name not in seen]
            names = names[: MOVED + 1 - len(seen)]
            seen.update(names)
            if names:
                levels.append(names)
            those = await self.collections(names)
            collections = await self._store.incarnations([name for name in names if name in those])
        return levels

    async def find_leaves(self, record: NodeRecord) -> dict[Partition, int]:
        """Return the partitions of all leaves of a collection, or of a lease's destinations, and the level of each."""
        named = await self._find_by_destinations(record.destinations)
        found = dict.fromkeys(await self._partitions_of_leaves(named), 1)
        for level, names in enumerate(await self.find_below(record), 1):
            found |= dict.fromkeys(await self._partitions_of_leaves(names), level)
        return found

    async def _partitions_of_leaves(self, names: Sequence[str]) -> list[Partition]:
        collections = await self.collections(names)
        return await self._store.partitions([name for name in names if name not in collections])

    async def _find_by_destinations(self, wanted: Sequence[str]) -> list[str]:
        """Return the nodes that destinations name, at most `MOVED`."""
        wild = [each for each in wanted if is_wildcard(each)]
        found = [each for each in wanted if each not in wild]
        first = 0
        while wild and len(found) < MOVED and (names := await self._store.names(first)):
            found += [name for name in names if any(matches(each, name) for each in wild)]
            first += len(names)
        return list(dict.fromkeys(found))[:MOVED]

    async def check_move(
        self, command: Moving, child: str, record: NodeRecord | None, parent: NodeRecord | None
    ) -> Refused | None:
        """Refuse to put a node below a collection; `record` is the node's own, None when it is about to be created."""
        if parent is None:
            return _NO_PARENT
        if not parent.config.collects:
            return _LEAF
        if record is not None and (record.parent, record.parent_life) == (parent.name, parent.incarnation):
            return None
        if not _admits(parent, command):
            return _CLOSED
        return await self._check_shape(child, record, parent)

    async def _check_shape(self, child: str, record: NodeRecord | None, parent: NodeRecord) -> Refused | None:
        above = (parent.name, *await self.find_above(parent))
        if child in above:
            return _CYCLE
        levels = [] if record is None else await self.find_below(record)
        if sum(map(len, levels)) >= MOVED:
            return _LARGE
        return _DEEP if len(above) + len(levels) > DEPTH else None

    async def note_child(self, parent: NodeRecord, child: str) -> Refused | None:
        """Note a child in its collection before its record says so: readers skip a note without a child."""
        for tidied in (False, True):
            fixed: dict[str, Value] = {
                "incarnation": parent.incarnation,
                "child": child,
                "since": await self._store.now_ms(),
                "most": parent.config.children_max,
            }
            names = [keys.of_node(name, parent.name) for name in self._server.operations["add_child"].keys]
            answer = await self._server.run(self._server.write_call("add_child", names, fixed))
            if answer.code == b"ok":
                return None
            if answer.code == b"stale":
                return _NO_PARENT
            if not tidied:
                await self._tidy(parent)
        return _FULL

    async def remove_child(self, parent: str, child: str) -> None:
        """Remove a former child from a collection's list."""
        await self._server.command("ZREM", keys.of_node("children", parent), child)

    async def has_cycle(self, record: NodeRecord) -> bool:
        """Return whether two concurrent moves have put a collection below itself; at least one of the two sees it."""
        seen = {record.name}
        async for name in self._walk_up(record):
            if name in seen:
                return True
            seen.add(name)
        return False

    async def _tidy(self, parent: NodeRecord) -> None:
        stale = [name for name, theirs in await self._check_children(parent.name, parent.incarnation) if not theirs]
        if stale:
            await self._server.command("ZREM", keys.of_node("children", parent.name), *stale)

    async def _check_children(self, parent: str, incarnation: str) -> list[tuple[str, bool]]:
        """Return the noted children of a collection, and whether each is one."""
        noted = await self._server.command("ZRANGE", keys.of_node("children", parent), 0, -1)
        names = [name.decode() for name in noted]
        truth = (parent, incarnation)
        return [(name, placed == truth) for name, placed in zip(names, await self._read_parents(names), strict=True)]

    async def _read_parents(self, names: Sequence[str]) -> list[tuple[str, str]]:
        asked = [("HMGET", keys.of_node("node", name), "parent", "parent_life") for name in names]
        found = await self._server.commands(asked)
        return [((parent or b"").decode(), (incarnation or b"").decode()) for parent, incarnation in found]


def move_record(record: NodeRecord, parent: NodeRecord | None) -> NodeRecord:
    """Return a node's record with another place in the tree; None is the root."""
    if parent is None:
        return replace(record, parent="", parent_life="")
    return replace(record, parent=parent.name, parent_life=parent.incarnation)


def _admits(parent: NodeRecord, command: Moving) -> bool:
    sender = bare_jid(command.sender)
    affiliation = parent.affiliation_of(command)
    match parent.config.association:
        case _ if parent.is_owned_by(command):
            return True
        case Association.ALL:
            return affiliation is not Affiliation.OUTCAST
        case Association.WHITELIST:
            return sender in parent.config.association_whitelist.split("\n") and affiliation is not Affiliation.OUTCAST
        case _:
            return False
