"""Moves of nodes in the tree: by a field of the node, by one of its parent, or by an association (XEP-0248 §6).

Each move is one change of the child's record. The notes in both collections are written before and after it, so that a crash
leaves one note too many at most. Must not know what a place in the tree means for subscribers.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from broker.model.commands import Associate, Configure, Declare, Dissociate
from broker.model.frozen import frozen
from broker.model.names import Jid, bare_jid
from broker.model.nodes.nodes import Affiliation, NodeRecord
from broker.model.nodes.options import NodeConfig
from broker.model.nodes.tree import TreeRequest
from broker.model.problems import Problem
from broker.model.results import Done, Refused, Result
from broker.redis_core.commands.internal import GONE
from broker.redis_core.records.store import NodeStore
from broker.redis_core.records.tree import Tree, move_record

_RETRIES = 5
_BUSY = Refused(Problem.UNAVAILABLE, "the node is being changed by others")
_LEAF = Refused(Problem.TREE_INVALID, "a leaf has no children: pubsub#children is a field of collections")
_CROSSED = Refused(Problem.TREE_INVALID, "another change has put the collection below itself: it is at the root now")
_ROOT = Refused(Problem.NOT_ASSOCIATED, "the node is not a child of this collection")
_NOT_YOURS = Refused(Problem.FORBIDDEN, "only owners of the collection or of the node may separate them")


@frozen
class TreePlace:
    """A node's place: below `parent` (None: the root), with the children `added` and without those `removed`."""

    parent: NodeRecord | None
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class TreeMoves:
    """Judges and carries out moves in the tree."""

    def __init__(
        self,
        tree: Tree,
        store: NodeStore,
        read: Callable[[str], Awaitable[NodeRecord | None]],
        renewed: Callable[[NodeRecord, NodeRecord], Awaitable[None]],
    ) -> None:
        """Read records with administrators as owners by `read`; `renewed` receives each changed record, before and after."""
        self._tree = tree
        self._store = store
        self._read = read
        self._renewed = renewed

    async def check_place(
        self, command: Declare | Configure, node: str, record: NodeRecord | None, config: NodeConfig, tree: TreeRequest
    ) -> TreePlace | Refused:
        """Check a node's new place before anything is changed."""
        parent = None if record is None else await self._parent(record)
        if tree.parent is not None:
            parent = await self._read(tree.parent) if tree.parent else None
            refused = await self._tree.check_move(command, node, record, parent) if tree.parent else None
            if refused is not None:
                return refused
        if tree.children is None or (not tree.children and not config.collects):
            return TreePlace(parent)
        if not config.collects:
            return _LEAF
        if len(tree.children) > config.children_max:
            return Refused(Problem.TOO_MANY_CHILDREN, f"the collection has at most {config.children_max} children")
        # Check the children as if the node were in its new place with its new configuration.
        here = record or NodeRecord(node, "", 0, config, {bare_jid(command.sender): Affiliation.OWNER})
        here = move_record(replace(here, config=config), parent)
        had = () if record is None else await self._tree.children(record)
        added = tuple(child for child in tree.children if child not in had)
        refused = await self._check_children(command, added, here)
        return refused or TreePlace(parent, added, tuple(child for child in had if child not in tree.children))

    async def _check_children(
        self, command: Declare | Configure, names: Sequence[str], parent: NodeRecord
    ) -> Refused | None:
        """Refuse children that the sender may not move or that cannot be below the collection."""
        for name in names:
            child = await self._read(name)
            if child is None:
                return Refused(Problem.NODE_NOT_FOUND, f"there is no node {name!r}")
            if not child.is_owned_by(command):
                return Refused(Problem.FORBIDDEN, f"only its owners move the node {name!r}")
            if refused := await self._tree.check_move(command, name, child, parent):
                return refused
        return None

    async def _parent(self, record: NodeRecord) -> NodeRecord | None:
        """Return the collection above a node; None is the root."""
        above = await self._tree.find_above(record)
        return await self._store.read(above[0]) if above else None

    async def change(
        self, record: NodeRecord, config: NodeConfig, parent: NodeRecord | None
    ) -> NodeRecord | Refused | None:
        """Store a configuration and a place; None when the record has changed since it was read."""
        renewed = move_record(replace(record, config=config), parent)
        stays = (record.parent, record.parent_life) == (renewed.parent, renewed.parent_life)
        refused = None if stays or parent is None else await self._tree.note_child(parent, record.name)
        if refused is not None:
            return refused
        revision = await self._store.configure(record, renewed)
        if revision is None:
            return None
        renewed = replace(renewed, revision=revision)
        if record.parent and record.parent != renewed.parent:
            await self._tree.remove_child(record.parent, record.name)
        await self._renewed(record, renewed)
        if not stays and config.collects and await self._tree.has_cycle(renewed):
            await self.change(renewed, config, None)
            return _CROSSED
        return renewed

    async def place_children(self, sender: Jid, node: str, place: TreePlace) -> Refused | None:
        """Add and remove the children of a place, one by one."""
        for name in (*place.removed, *place.added):
            command = (Dissociate if name in place.removed else Associate)(node, sender, name)
            outcome = await (self.dissociate(command) if isinstance(command, Dissociate) else self.associate(command))
            # A child that has left by itself need not be removed.
            if isinstance(outcome, Refused) and outcome.problem is not Problem.NOT_ASSOCIATED:
                return outcome
        return None

    async def associate(self, command: Associate) -> Result:
        """Make a node the child of a collection."""
        for _attempt in range(_RETRIES):
            parent, child = await self._read(command.node), await self._read(command.child)
            if parent is None or child is None:
                return GONE
            if not child.is_owned_by(command):
                return Refused(Problem.FORBIDDEN, f"only its owners move the node {command.child!r}")
            if refused := await self._tree.check_move(command, command.child, child, parent):
                return refused
            changed = await self.change(child, child.config, parent)
            if changed is not None:
                return changed if isinstance(changed, Refused) else Done()
        return _BUSY

    async def dissociate(self, command: Dissociate) -> Result:
        """Move a child of a collection to the root: its own owners may, and those of the collection."""
        for _attempt in range(_RETRIES):
            parent, child = await self._read(command.node), await self._read(command.child)
            if parent is None:
                return GONE
            if not any(each and each.is_owned_by(command) for each in (parent, child)):
                return _NOT_YOURS
            if child is None or (child.parent, child.parent_life) != (parent.name, parent.incarnation):
                return _ROOT
            changed = await self.change(child, child.config, None)
            if changed is not None:
                return changed if isinstance(changed, Refused) else Done()
        return _BUSY

    async def detach_children(self, record: NodeRecord, children: Sequence[str]) -> None:
        """Store in the children of a deleted collection that they are below the root, as they already are (XEP-0248 §7.2)."""
        for child in await self._store.read_all(children):
            if (child.parent, child.parent_life) == (record.name, record.incarnation):
                await self.change(child, child.config, None)
