"""Publishes for schedules that are due, once for each time.

The outbox of a node's first partition has an entry for each schedule, by its next time. Whoever reads one that is due notes in
the record that it begins, stores the item once by its ticket, and notes the item in the record. Each note replaces the record
only if it is still the one that was read. After a crash between two steps another frontend repeats the rest, and the ticket
admits the item once, however late. A ticket is kept until the next item of its schedule is noted, and an hour longer, since a
failover may take back the last notes. Must not know cron.
"""

import asyncio
from dataclasses import replace
from typing import Final

import structlog

from broker import codec
from broker.model.names import Partition
from broker.model.nodes.nodes import NodeRecord
from broker.model.nodes.options import NodeState
from broker.model.nodes.schedules import Overlap
from broker.model.problems import CorruptRecord
from broker.model.results import Published, Refused
from broker.model.times import moment
from broker.redis_core.commands.internal import FindItem, Found
from broker.redis_core.commands.outbox import AcceptEntry, ExpireTicket, OutboxPage
from broker.redis_core.ports import HandlerPort
from broker.redis_core.records.store import NodeStore
from broker.redis_core.registry.partitioner import arrival
from broker.redis_core.schedules.record import Fired, ScheduleRecord
from broker.redis_core.schedules.storage import ScheduleStorage, Stored

log = structlog.get_logger()

SCHEDULE_HEADER: Final = "stanzaq-schedule"
TIME_HEADER: Final = "stanzaq-schedule-time"
"""The headers of an item that a schedule has published: the schedule's id, and the time that the item is for."""

_SKIPPED: Final = 1_000
"""Times that are skipped before the record is stored, and everybody else gets a turn."""


class FiringSchedules:
    """Publishes for the schedules of all nodes."""

    def __init__(self, store: NodeStore, storage: ScheduleStorage, core: HandlerPort) -> None:
        """Publish through `core`, which counts each item and each time left out."""
        self._store = store
        self._storage = storage
        self._ask = core.ask_partition
        self._count = core.count

    async def deliver(self, partition: Partition, page: OutboxPage) -> None:
        """Publish for schedules that are due."""
        node = await self._store.read(partition.node)
        if node is not None and node.incarnation == partition.incarnation:
            due = [Stored.read(page.now_ms, node.name, entry.about, *entry.content) for entry in page.entries]
            await asyncio.gather(*(self._fire(node, each) for each in due))

    async def _fire(self, node: NodeRecord, stored: Stored) -> None:
        """Publish for one schedule. A fault is logged, and does not keep others back."""
        try:
            await self._take_steps(node, stored)
        except Exception:
            log.exception("a schedule failed", node=node.name, schedule=stored.id)

    async def _take_steps(self, node: NodeRecord, stored: Stored) -> None:
        while True:
            before = stored.record
            if before is None:
                return
            noted = before
            if before.firing_ms is not None:
                fired = await self.publish(node, before, stored.item)
                if isinstance(fired, Refused):
                    return
                noted = before.note_fired(fired)
            after = await self._advance(node, noted, stored.at_ms)
            if after is before:
                return
            taken = await self._storage.replace(node, stored, after)
            if not isinstance(taken, Stored):
                # Another frontend has taken the step.
                return
            self._tell(node, before, after)
            if noted is not before:
                await self.forget_ticket(node, before.last)
            stored = taken
            if after.firing_ms is None and (after.due_ms is None or after.due_ms > stored.at_ms):
                # Else nobody is told of it: it stays with who has read it.
                return

    async def _advance(self, node: NodeRecord, record: ScheduleRecord, now_ms: int) -> ScheduleRecord:
        """Begin with the next time if it has come; leave out times that are missed or skipped."""
        there: bool | None = None
        skipped = record.skipped
        while record.due_ms is not None and record.due_ms <= now_ms and node.config.state is not NodeState.DRAINING:
            caught = record.skip_missed(now_ms)
            if caught is not record:
                record = caught
                # Many times may have passed.
                await asyncio.sleep(0)
                continue
            if record.schedule.overlap is Overlap.SKIP and record.last is not None and there is None:
                found = await self._ask(
                    FindItem(node.name, record.maker, record.last.item_id, None, "", record.last.partition)
                )
                if isinstance(found, Refused) and not found.problem.is_gone:
                    return record
                there = isinstance(found, Found) and found.there
            if not there:
                return record.begin()
            record = record.skip()
            if record.skipped == skipped + _SKIPPED:
                break
        return record

    async def publish(self, node: NodeRecord, record: ScheduleRecord, item: bytes) -> Fired | Refused:
        """Store the item of the time that the record has begun with."""
        at_ms = record.firing_ms
        assert at_ms is not None
        name, ticket = record.item_id(at_ms), record.ticket(node.incarnation, at_ms)
        place = arrival(name, record.key, node.config.partitions)
        told = {SCHEDULE_HEADER: record.schedule.id, TIME_HEADER: moment(at_ms, "seconds")}
        result = await self._ask(
            AcceptEntry(
                node.name,
                node.incarnation,
                place,
                name,
                ticket,
                record.key,
                record.maker,
                _add_headers(item, told),
                record.hints,
            )
        )
        if isinstance(result, Published):
            return Fired(at_ms, result.item_id, place, ticket)
        assert isinstance(result, Refused)
        if not result.problem.is_gone:
            about = {"node": node.name, "schedule": record.schedule.id, "time": told[TIME_HEADER]}
            log.warning("an item of a schedule waits to be stored", **about, problem=result.problem.value)
        return result

    async def forget_ticket(self, node: NodeRecord, fired: Fired | None) -> None:
        """Let a ticket expire: a later item is noted, or the schedule is gone."""
        if fired is not None:
            await self._ask(ExpireTicket(node.name, fired.ticket, fired.partition))

    def _tell(self, node: NodeRecord, before: ScheduleRecord, after: ScheduleRecord) -> None:
        for counter, name in (
            ("scheduled", "published"),
            ("schedule_missed", "missed"),
            ("schedule_skipped", "skipped"),
        ):
            if amount := getattr(after, name) - getattr(before, name):
                self._count(counter, amount)
        if after.missed > before.missed and after.missed_ms is not None:
            about = {"node": node.name, "schedule": after.schedule.id, "last": moment(after.missed_ms, "seconds")}
            log.warning("a schedule has missed times", **about, count=after.missed - before.missed)


def _add_headers(item: bytes, headers: dict[str, str]) -> bytes:
    try:
        envelope = codec.unpack(item)
    except CorruptRecord:
        return item
    return codec.pack(replace(envelope, headers={**envelope.headers, **headers}))
