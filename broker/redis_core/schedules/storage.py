"""Reads and replaces the records of schedules in the first partition of their node. Must not know what a record means."""

from collections.abc import Sequence
from typing import Self

import structlog

from broker.model.frozen import frozen
from broker.model.nodes.nodes import NodeRecord
from broker.model.problems import CorruptRecord
from broker.model.results import Refused
from broker.redis_core.commands.internal import Ask
from broker.redis_core.commands.schedule_parts import FoundSchedules, ReadSchedules, ScheduleStored, StoreSchedule
from broker.redis_core.schedules.record import ScheduleRecord

log = structlog.get_logger()


@frozen
class Stored:
    """A schedule as it was read, or stored at Redis's time `at_ms`: its record and its bytes, both empty if there is none."""

    id: str
    record: ScheduleRecord | None
    text: bytes
    item: bytes
    at_ms: int

    @classmethod
    def read(cls, at_ms: int, node: str, name: str, text: bytes, item: bytes) -> Self:
        """Read a stored schedule."""
        return cls(name, _parse_record(node, name, text), text, item, at_ms)


class ScheduleStorage:
    """The schedules of all nodes."""

    def __init__(self, ask: Ask) -> None:
        """Read and write by `ask`."""
        self._ask = ask

    async def read_one(self, node: NodeRecord, name: str) -> Stored | Refused:
        """Read one schedule with its item."""
        found = await self._read(ReadSchedules(node.name, node.incarnation, name))
        return found if isinstance(found, Refused) else found[0]

    async def page(self, node: NodeRecord, after: str, limit: int) -> Sequence[Stored] | Refused:
        """Read a page of schedules by id."""
        return await self._read(ReadSchedules(node.name, node.incarnation, after=after, limit=limit))

    async def _read(self, command: ReadSchedules) -> Sequence[Stored] | Refused:
        """Read schedules; of one that is named and not there, that there is none."""
        found = await self._ask(command)
        if isinstance(found, Refused):
            return found
        assert isinstance(found, FoundSchedules)
        read = [Stored.read(found.now_ms, command.node, each.id, each.record, each.item) for each in found.schedules]
        return read or ([Stored(command.id, None, b"", b"", found.now_ms)] if command.id else [])

    async def replace(
        self, node: NodeRecord, old: Stored, new: ScheduleRecord | None, item: bytes = b""
    ) -> Stored | Refused | None:
        """Store a record in place of the one that was read, or delete it; None if it was replaced meanwhile."""
        text = b"" if new is None else str(new).encode()
        at = None if new is None else new.due_ms
        stored = await self._ask(StoreSchedule(node.name, node.incarnation, old.id, old.text, text, at, item))
        if isinstance(stored, Refused):
            return stored
        assert isinstance(stored, ScheduleStored)
        return None if stored.at_ms is None else Stored(old.id, new, text, item or old.item, stored.at_ms)


def _parse_record(node: str, name: str, text: bytes) -> ScheduleRecord | None:
    try:
        return ScheduleRecord.parse(text)
    except CorruptRecord as fault:
        # It can be replaced and deleted.
        log.error("a schedule cannot be read", node=node, schedule=name, error=str(fault))  # noqa: TRY400
        return None
