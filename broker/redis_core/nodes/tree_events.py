"""Applies a change of a node to the collections above it: their subscribers are registered anew and notified (XEP-0248 §4.3.2).

Must not know what has changed, or how credit is shared.
"""

import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from broker.model.items import TreeEvent
from broker.model.names import Jid
from broker.model.nodes import NodeRecord
from broker.model.problems import CorruptRecord
from broker.model.tree import Scope, SubscriptionType
from broker.redis_core.commands.internal import Scanned
from broker.redis_core.commands.repeated import subscribers
from broker.redis_core.ports import HandlerPort
from broker.redis_core.records.records import Records


class TreeEvents:
    """Carries changes up the tree."""

    def __init__(self, records: Records, core: HandlerPort) -> None:
        """Register a collection's subscriptions in its leaves, and notify subscribers, through `core`."""
        self._tree = records.tree
        self._read = records.store.read_with_admins
        self._ask: Callable[[Any], Awaitable[Any]] = core.ask_partition
        self._register_all = core.register_all
        self._notify = core.tell

    async def register_above(self, *records: NodeRecord) -> None:
        """Update the collections above a node, which it may have entered or left, and those that it is a destination of."""
        served = [name for record in records for name in await self._tree.find_served(record)]
        await self.register_in(tuple(dict.fromkeys(served)))

    async def register_in(self, collections: Sequence[str]) -> None:
        """Register all subscribers of readable collections in the partitions that are below them now."""
        for each in collections:
            with contextlib.suppress(CorruptRecord):
                await self._register_all(each)

    async def tell(self, record: NodeRecord, *, came: bool) -> None:
        """Notify the subscribers of tree events above a node that it came or went."""
        for level, collection in enumerate(await self._tree.find_above(record), 1):
            scopes: dict[tuple[Jid, str], Scope | None] = {}
            with contextlib.suppress(CorruptRecord):
                scopes = await self.scopes(collection)
            many = Counter(jid for jid, _whose in scopes)
            for (jid, whose), scope in scopes.items():
                if scope and scope.kind is not SubscriptionType.ITEMS and scope.reaches(level):
                    told = whose if many[jid] > 1 else ""
                    self._notify(TreeEvent(collection, jid, record.parent, record.name, came, told))

    async def scopes(self, node: str) -> dict[tuple[Jid, str], Scope | None]:
        """List subscriptions with their scopes: a shared one is in every partition, an owner's only in its own."""
        record = await self._read(node)
        found: dict[tuple[Jid, str], Scope | None] = {}
        for partition in () if record is None else record.partitions:
            async for part in subscribers(self._ask, node, partition.number):
                if not isinstance(part, Scanned):
                    return found
                found |= dict(zip(zip(part.jids, part.subids, strict=True), part.scopes, strict=True))
        return found
