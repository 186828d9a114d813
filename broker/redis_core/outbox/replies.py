"""Delivers replies: tells publishers how their items have ended, and then ends the entries of the outbox.

If this process dies, or its stream breaks before everything is written, the entry is there still and comes again, so a
publisher is told at least once. Must not know how an item ends.
"""

import asyncio
import time
from functools import partial
from typing import Final

from broker.model.items.items import ItemEnded
from broker.model.items.outcomes import ItemOutcome
from broker.model.names import Partition
from broker.redis_core.commands.outbox import EndEntry, OutboxPage
from broker.redis_core.ports import DoorPort

_PATIENCE_SECONDS: Final = 4.0
"""How long written outcomes are waited for: a little less than until the next attempt."""

_LOOK_SECONDS: Final = 0.02

_READ_SECONDS: Final = 1.0
"""How long an outcome has been on the socket when it counts as told: a server drops what it has not read if the stream breaks."""


class ReplyDeliverer:
    """Sends outcomes, and ends the entries of those that have left the process."""

    def __init__(self, core: DoorPort) -> None:
        """Send through `core`; end entries once its door is flushed and its stream has not broken meanwhile."""
        self._core = core
        self._entries: dict[Partition, list[str]] = {}

    async def deliver(self, partition: Partition, page: OutboxPage) -> None:
        """Tell publishers how their items have ended; later, while the door has too much to write."""
        if self._core.congested():
            return
        breaks = self._core.breaks
        for entry in page.entries:
            outcome = ItemOutcome.read(*entry.content)
            # Redis has no name for the item that is shorter and lasts: the id may have a new item.
            name = f"outcome:{partition.incarnation}:{partition.number}:{entry.about}"
            self._core.tell(ItemEnded(partition.node, outcome.publisher, outcome, name))
        if partition not in self._entries:
            self._entries[partition] = []
            self._core.background(partial(self._end, partition, breaks))
        self._entries[partition] += [entry.name for entry in page.entries]

    async def _end(self, partition: Partition, breaks: int) -> None:
        """End what was told in this turn of the event loop and while it was written."""
        until = time.monotonic() + _PATIENCE_SECONDS
        try:
            # The door writes at the end of the turn, and tells nobody when that is done.
            await asyncio.sleep(0)
            while not (written := self._core.flushed()) and time.monotonic() < until:  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            names = self._entries.pop(partition)
        if written:
            await asyncio.sleep(_READ_SECONDS)
        if written and self._core.breaks == breaks:
            await asyncio.gather(*(self._core.ask_partition(EndEntry.of(partition, name)) for name in names))
