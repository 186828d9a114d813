"""Pages of node names: only nodes that the asker may see (P9) and that are below no collection (H3).

A page is found by ranks, so it costs the same however many nodes there are; one round trip reads the access data of many names.
Must not know what else is in a node's record.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from broker import keys
from broker.model.commands import Children, Nodes
from broker.model.names import bare_jid
from broker.model.problems import Problem
from broker.model.results import Listing, Refused
from broker.redis_core.records.store import NodeStore
from broker.redis_core.records.tree import Tree
from broker.redis_core.redis_client.client import Server, Value
from broker.redis_core.registry.admission import admit
from broker.redis_core.registry.authorization import visible

LOOKED_AT: Final = 2_000
"""Names that one page checks if it has something to show by then: clients take an empty page for the last one."""

_LEAST: Final = 50
_UNKNOWN: Final = Refused(Problem.ITEM_NOT_FOUND, "there is no such node to continue from: begin again")


class NodeListing:
    """The list of nodes, as each JID may see it."""

    def __init__(self, server: Server, store: NodeStore, tree: Tree) -> None:
        """Show every node to those whose role lets them."""
        self._server = server
        self._store = store
        self._tree = tree

    async def page(self, command: Nodes) -> Listing | Refused:
        """Return a page of node names."""
        shown: list[tuple[int, str]] = []
        looked, after, before, index = 0, command.after, command.before, command.index
        # One more than asked for shows whether there are more; a limit of 0 asks for the total only.
        count = max(command.limit + 1, _LEAST) if command.limit else 0
        while True:
            fixed: dict[str, Value] = {
                "after": after,
                "before": before,
                "backwards": "1" if command.backwards else "",
                "index": index,
                "count": count,
            }
            page = await self._server.run(self._server.write_call("list_nodes", [keys.of_service("all_nodes")], fixed))
            if page.code != b"ok":
                # The name to continue from is deleted meanwhile: return what was found, and the client continues from there.
                return await self._mark_collections(_listing(command, shown, 0, more=True)) if shown else _UNKNOWN
            first, total, names = page.first, page.total, [name.decode() for name in page.names]
            top = set(await self._tree.first_level(names))
            seen = [each for each in await self._find_visible(command, first, names) if each[1] in top]
            shown = [*seen, *shown] if command.backwards else [*shown, *seen]
            looked += len(names)
            ended = len(names) < count or (command.backwards and first == 0)
            if ended or len(shown) > command.limit or not count or (shown and looked >= LOOKED_AT):
                return await self._mark_collections(
                    _listing(command, shown, total, more=not ended or len(shown) > command.limit)
                )
            after, before = ("", names[0]) if command.backwards else (names[-1], "")

    async def children(self, command: Children) -> Listing | Refused:
        """Return the children of a collection, never more than a page; a leaf has none."""
        record = await admit(self._store, command, command.node)
        if isinstance(record, Refused):
            return record
        seen = await self._find_visible(command, 0, await self._tree.children(record))
        return await self._mark_collections(Listing(tuple(name for _number, name in seen), 0, len(seen), more=False))

    async def _mark_collections(self, listing: Listing) -> Listing:
        """Mark the collections of a listing."""
        return replace(listing, collections=await self._tree.collections(listing.nodes))

    async def _find_visible(self, command: Nodes | Children, first: int, names: Sequence[str]) -> list[tuple[int, str]]:
        """Return the names that the sender may see with their ranks, which begin with `first`."""
        numbered = list(enumerate(names, first))
        if self._store.roles.lets(command):
            return numbered
        access = await self._store.access(names, bare_jid(command.sender))
        return [
            each for each, (affiliation, model) in zip(numbered, access, strict=True) if visible(affiliation, model)
        ]


def _listing(command: Nodes, shown: Sequence[tuple[int, str]], total: int, *, more: bool) -> Listing:
    first = max(0, len(shown) - command.limit) if command.backwards else 0
    page = shown[first : first + command.limit]
    return Listing(tuple(name for _number, name in page), page[0][0] if page else 0, total, more)
