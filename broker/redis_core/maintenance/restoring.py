"""Brings nodes up to now after a copy of the data was put back. Must not know how the copy was made, nor what its items are.

The copy's numbers are raised to a time, so that no token, fence or position of after the copy is given again, even by a clock
that is behind the old one. Each step may be repeated, also beside frontends that serve.
"""

import asyncio
from collections.abc import Awaitable
from typing import Protocol

from broker.model.commands import RestoreNode
from broker.model.nodes.nodes import NodeRecord
from broker.model.results import Refused, Restored, Result, ScheduleMoved
from broker.redis_core.commands.internal import Ask, NumbersRaised, RaiseNumbers
from broker.redis_core.records.store import NodeStore
from broker.redis_core.registry.admission import admit


class CatchUp(Protocol):
    """Moves the schedules of a node to now."""

    def __call__(self, node: NodeRecord, *, check: bool) -> Awaitable[tuple[ScheduleMoved, ...] | Refused]:
        """Return which have moved; with `check` none does."""


class Restoring:
    """Carries out `RestoreNode`."""

    def __init__(self, store: NodeStore, ask: Ask, catch_up: CatchUp) -> None:
        """Raise numbers by `ask`, and move schedules by `catch_up`."""
        self._store = store
        self._ask = ask
        self._catch_up = catch_up

    async def restore(self, command: RestoreNode) -> Result:
        """Bring a node up to now, or find out what would change."""
        node = await admit(self._store, command, command.node)
        if isinstance(node, Refused):
            return node
        asked = [RaiseNumbers(node.name, each.number, command.floor_ms, command.check) for each in node.partitions]
        token = now_ms = 0
        for raised in await asyncio.gather(*map(self._ask, asked)):
            if isinstance(raised, Refused):
                return raised
            assert isinstance(raised, NumbersRaised)
            token, now_ms = max(token, raised.token), raised.now_ms
        moved = () if node.config.collects else await self._catch_up(node, check=command.check)
        return moved if isinstance(moved, Refused) else Restored(token, now_ms, moved)
