"""What a node's queues ask of the collections above it: subscribers for items that wait.

An operation says that items wait, again after a while, and again when it has answered a collection. The collections are asked one
after another, each time beginning with another one. Must not know how a collection chooses.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Final

from broker.model.names import Partition
from broker.model.nodes.nodes import NodeRecord
from broker.model.problems import CoreUnavailable, CorruptRecord
from broker.redis_core.collections.turns import Turns
from broker.redis_core.commands.collections import Asks
from broker.redis_core.records.cache import NodeCache
from broker.redis_core.records.tree import Tree
from broker.tasks import start

if TYPE_CHECKING:
    import asyncio

FIND_SECONDS: Final = 2.0
"""Shortest interval at which a process reads the tree again: which collections are above a node, or what is below one."""


class Askers:
    """Asks for the queues of one node."""

    def __init__(self, cache: NodeCache, tree: Tree, turns: Callable[[str], Turns]) -> None:
        """Find the collections in `tree`, and ask each by its `turns`."""
        self._cache = cache
        self._tree = tree
        self._turns_of = turns
        self._first = count()
        self._above: tuple[str, ...] = ()
        self._found_at, self._found_for = 0.0, 0
        self._finding: asyncio.Task[None] | None = None
        self._asking: dict[Partition, Asks | None] = {}

    @property
    def idle(self) -> bool:
        """Whether nobody is being asked."""
        return not self._asking

    def ask(self, partition: Partition, asks: Asks) -> None:
        """Ask by this word when the round under way has ended."""
        under_way = partition in self._asking
        self._asking[partition] = asks if under_way else None
        if not under_way:
            start(self._ask_all(partition, asks))

    async def _ask_all(self, partition: Partition, first: Asks) -> None:
        asks: Asks | None = first
        try:
            while asks is not None:
                await self._ask_in_turn(partition, asks)
                asks, self._asking[partition] = self._asking[partition], None
        except (CoreUnavailable, CorruptRecord):
            # The queue asks again.
            pass
        finally:
            del self._asking[partition]

    async def _ask_in_turn(self, partition: Partition, asks: Asks) -> None:
        above = list(enumerate(await self._find_above(), 1))
        first = next(self._first) % max(1, len(above))
        wanted = asks.wanted
        for level, name in [*above[first:], *above[:first]]:
            if wanted <= 0:
                return
            wanted -= await self._turns_of(name).ask(partition, level, replace(asks, wanted=wanted))

    async def _find_above(self) -> tuple[str, ...]:
        """Return the collections above, read again now and then: behind the caller, since a master on the way may be away."""
        record = await self._cache.read()
        # Most nodes have none, and their record says so.
        if record is None or not record.parent:
            return ()
        if record.revision != self._found_for:
            await self._find(record)
        elif self._finding is None and time.monotonic() - self._found_at > FIND_SECONDS:
            self._finding = start(self._find_again(record))
        return self._above

    async def _find_again(self, record: NodeRecord) -> None:
        try:
            await self._find(record)
        except (CoreUnavailable, CorruptRecord):
            # What was found before stays.
            self._found_at = time.monotonic()
        finally:
            self._finding = None

    async def _find(self, record: NodeRecord) -> None:
        self._above, self._found_for = await self._tree.find_above(record), record.revision
        self._found_at = time.monotonic()
