"""Delivers what is due in the outboxes of partitions: one loop, with a deliverer for each kind of entry.

An operation that has made an entry, or a sweep that finds one that is due, tells the caller, which reads the outbox until nothing
is due. Reading counts an attempt and puts the next one off, so two processes do not deliver the same, and what fails comes again
later and later. An entry is there until its deliverer ends it: after a crash it is delivered again, and its receiver takes it
once. Must not know what an entry is.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

import structlog

from broker.model.names import Partition
from broker.redis_core.commands.outbox import Entry, OutboxPage, ReadOutbox
from broker.redis_core.ports import HandlerPort

log = structlog.get_logger()

_PAGES: Final = 8
"""Pages of one partition that are delivered at once: one that a silent receiver keeps back must not keep back the others."""

_OWN_SECONDS: Final = 4.5
"""How long entries are this process's own: a little less than until their next attempt."""

Deliver = Callable[[Partition, OutboxPage], Awaitable[None]]
"""Delivers entries of one kind, and ends those that have arrived."""


class Outbox:
    """Follows the outboxes of all partitions."""

    def __init__(
        self, core: HandlerPort, deliverers: Mapping[str, Deliver], held: Callable[[], tuple[str, ...]]
    ) -> None:
        """Read through `core`; `deliverers` has one for each kind of entry, and `held` tells which nodes take nothing now."""
        self._core = core
        self._held = held
        self._deliverers = deliverers
        self._wanted: set[Partition] = set()
        self._reading: set[Partition] = set()
        self._under_way = Counter[Partition]()
        """Pages that are being delivered."""

    def follow(self, partition: Partition) -> None:
        """Deliver what is due in a partition; what becomes due while that is read, is read afterwards."""
        self._wanted.add(partition)
        self._go_on(partition)

    @property
    def idle(self) -> bool:
        """Whether nothing is being read or delivered."""
        return not (self._wanted or self._reading or +self._under_way)

    def _go_on(self, partition: Partition) -> None:
        free = partition not in self._reading and self._under_way[partition] < _PAGES
        if partition in self._wanted and free:
            self._reading.add(partition)
            self._core.background(partial(self._read, partition))

    async def _read(self, partition: Partition) -> None:
        """Read a page, and begin to deliver it."""
        self._wanted.discard(partition)
        until = time.monotonic() + _OWN_SECONDS
        try:
            page = await self._core.ask_partition(
                ReadOutbox(partition.node, partition.incarnation, partition.number, self._held())
            )
        finally:
            self._reading.discard(partition)
        if isinstance(page, OutboxPage):
            if page.more:
                self._wanted.add(partition)
            self._under_way[partition] += 1
            self._core.background(partial(self._deliver, partition, replace(page, until=until)))
        self._go_on(partition)

    async def _deliver(self, partition: Partition, page: OutboxPage) -> None:
        kinds: dict[str, list[Entry]] = {}
        for entry in page.entries:
            kinds.setdefault(entry.kind, []).append(entry)
        try:
            of_kinds = ((kind, replace(page, entries=tuple(some))) for kind, some in kinds.items())
            await asyncio.gather(*(self._deliver_kind(partition, kind, some) for kind, some in of_kinds))
        finally:
            self._under_way -= Counter([partition])
            self._go_on(partition)

    async def _deliver_kind(self, partition: Partition, kind: str, page: OutboxPage) -> None:
        """Deliver entries of one kind. A fault is logged, and does not keep others back."""
        about = {"node": partition.node, "partition": partition.number, "kind": kind, "count": len(page.entries)}
        deliver = self._deliverers.get(kind)
        if deliver is None:
            log.warning("entries of the outbox belong to another version", **about)
            return
        try:
            await deliver(partition, page)
        except Exception:
            log.exception("entries of the outbox could not be delivered", **about)
