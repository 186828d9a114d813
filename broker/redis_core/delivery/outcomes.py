"""Tells publishers how their items have ended, and reports to Redis that they were told.

A script announces an outcome until that report: if this process dies, or its stream breaks before everything is written,
a later sweep announces it again, so a publisher is told at least once. Must not know how an item ends.
"""

import asyncio
import time
from functools import partial
from typing import Final

from broker.model.items import ItemEnded
from broker.model.names import Partition
from broker.redis_core.commands.admin_parts import OutcomeDue
from broker.redis_core.commands.internal import EndOutcomes
from broker.redis_core.ports import DoorPort

_PATIENCE_SECONDS: Final = 4.0
"""How long written outcomes are waited for: a little less than the interval of announcements."""

_LOOK_SECONDS: Final = 0.02

_READ_SECONDS: Final = 1.0
"""How long an outcome has been on the socket when it counts as told: a server drops what it has not read if the stream breaks."""


class OutcomeSender:
    """Sends outcomes and reports those that have left the process."""

    def __init__(self, core: DoorPort) -> None:
        """Send through `core`; report once its door is flushed and its stream has not broken meanwhile."""
        self._core = core
        self._told: dict[Partition, list[str]] = {}

    def send(self, partition: Partition, due: OutcomeDue) -> None:
        """Tell a publisher how its item has ended."""
        # Redis has no name for the item that is shorter and lasts: the id may have a new item.
        name = f"outcome:{partition.incarnation}:{partition.number}:{due.position}"
        self._core.tell(ItemEnded(partition.node, due.outcome.publisher, due.outcome, name))
        if partition not in self._told:
            self._told[partition] = []
            self._core.background(partial(self._report, partition))
        self._told[partition].append(due.position)

    async def _report(self, partition: Partition) -> None:
        """Report what was told in this turn of the event loop and while it was written."""
        until, breaks = time.monotonic() + _PATIENCE_SECONDS, self._core.breaks
        try:
            # The door writes at the end of the turn, and tells nobody when that is done.
            await asyncio.sleep(0)
            while not (written := self._core.flushed()) and time.monotonic() < until:  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            positions = self._told.pop(partition)
        if written:
            await asyncio.sleep(_READ_SECONDS)
        if written and self._core.breaks == breaks:
            await self._core.ask_partition(
                EndOutcomes(partition.node, partition.incarnation, partition.number, tuple(positions))
            )
