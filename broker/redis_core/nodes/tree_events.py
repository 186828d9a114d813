"""Applies a change of a node to the collections above it: what may not be held any more ends (XEP-0248 §4.3.2).

Subscribers are notified. Must not know what has changed, or how credit is lent.
"""

import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from broker.model.items.items import TreeEvent
from broker.model.names import Jid, bare_jid
from broker.model.nodes.nodes import NodeRecord
from broker.model.nodes.tree import Scope, SubscriptionType
from broker.model.problems import CorruptRecord
from broker.redis_core.commands.internal import Scanned
from broker.redis_core.commands.repeated import subscribers
from broker.redis_core.nodes.records import Records
from broker.redis_core.ports import HandlerPort


class TreeEvents:
    """Carries changes up the tree."""

    def __init__(self, records: Records, core: HandlerPort) -> None:
        """Withdraw what is held, and notify subscribers, through `core`."""
        self._tree = records.tree
        self._read = records.store.read_with_admins
        self._ask: Callable[[Any], Awaitable[Any]] = core.ask_partition
        self._withdraw = core.withdraw_references
        self._notify = core.tell

    async def apply_above(self, *records: NodeRecord) -> None:
        """Update the collections above a node, which it may have entered or left, or whose subscribers it may admit no more."""
        above = [name for record in records for name in await self._tree.find_above(record)]
        await self.apply_in(tuple(dict.fromkeys(above)))

    async def apply_in(self, collections: Sequence[str]) -> None:
        """Withdraw what subscribers of readable collections hold in queues where they may not."""
        for each in collections:
            with contextlib.suppress(CorruptRecord):
                await self._withdraw(each)

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

    async def find_workers_above(self, record: NodeRecord) -> list[Jid]:
        """Return those who work on a node through collections above it."""
        found: list[Jid] = []
        for level, collection in enumerate(await self._tree.find_above(record), 1):
            with contextlib.suppress(CorruptRecord):
                for (jid, _whose), scope in (await self.scopes(collection)).items():
                    if scope and scope.works and scope.reaches(level) and record.is_readable(bare_jid(jid)):
                        found.append(jid)
        return found

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
