"""Handles commands on the schedules of nodes. Must not know how a schedule publishes."""

import secrets
from collections.abc import Callable
from typing import Final

from broker.model.commands import ListSchedules, PauseSchedule, PutSchedule, RemoveSchedule
from broker.model.names import bare_jid
from broker.model.nodes.nodes import NodeRecord
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import Done, Refused, Result, Scheduled, ScheduleList, ScheduleMoved
from broker.redis_core.records.store import NodeStore
from broker.redis_core.registry.admission import admit
from broker.redis_core.schedules import timetable
from broker.redis_core.schedules.firing import FiringSchedules
from broker.redis_core.schedules.record import ScheduleRecord
from broker.redis_core.schedules.storage import ScheduleStorage, Stored
from broker.redis_core.schedules.timetable import Timetable

_PAGE: Final = 100

_TRIES: Final = 20
"""How often a change is tried while the schedule changes."""

_UNKNOWN: Final = Refused(Problem.ITEM_NOT_FOUND, "the node has no such schedule")
_NEVER: Final = Refused(Problem.BAD_REQUEST, "such a schedule never publishes: it has no times, or all are over")
_BUSY: Final = Refused(Problem.UNAVAILABLE, "the schedule is being changed: ask again")

Change = Callable[[Stored], ScheduleRecord | Result]
"""Returns a schedule's new record, by the stored one, or the answer; `Done` deletes the schedule."""


class Schedules:
    """Makes, lists, pauses, moves and deletes schedules."""

    def __init__(self, store: NodeStore, storage: ScheduleStorage, firing: FiringSchedules) -> None:
        """Keep schedules in `storage`; one that is publishing finishes by `firing` before it is replaced."""
        self._store = store
        self._storage = storage
        self._firing = firing

    async def put(self, command: PutSchedule) -> Result:
        """Make or replace a schedule; a repeat of the same request changes nothing."""
        schedule, hints = command.schedule, str(command.hints)

        def change(stored: Stored) -> ScheduleRecord | Result:
            before = stored.record
            was_paused = before is not None and before.paused
            paused = was_paused if command.paused is None else command.paused
            same = before is not None and (before.schedule, before.key, before.hints) == (schedule, command.key, hints)
            if before is not None and same and stored.item == command.envelope:
                return _switch(before, stored.at_ms, paused=paused)
            anchor = stored.at_ms // 1000 * 1000
            first = Timetable(schedule, anchor).next_after(stored.at_ms)
            if first is None:
                return _NEVER
            return ScheduleRecord(
                schedule,
                secrets.token_hex(6),
                bare_jid(command.sender),
                command.key,
                hints,
                anchor,
                first,
                paused=paused,
                last=None if before is None else before.last,
            )

        try:
            timetable.check(schedule)
        except MalformedRequest as wrong:
            return Refused(wrong.problem, wrong.detail)
        return await self._change(command, schedule.id, change, command.envelope)

    async def pause(self, command: PauseSchedule) -> Result:
        """Pause or resume a schedule."""

        def change(stored: Stored) -> ScheduleRecord | Result:
            if stored.record is None:
                return _UNKNOWN
            return _switch(stored.record, stored.at_ms, paused=command.paused)

        return await self._change(command, command.id, change)

    async def remove(self, command: RemoveSchedule) -> Result:
        """Delete a schedule."""
        return await self._change(command, command.id, lambda found: Done() if found.text else _UNKNOWN)

    async def list(self, command: ListSchedules) -> Result:
        """List schedules."""
        node = await admit(self._store, command, command.node)
        if isinstance(node, Refused):
            return node
        if command.id:
            found = await self._storage.read_one(node, command.id)
            if isinstance(found, Refused):
                return found
            return _UNKNOWN if found.record is None else ScheduleList((found.record.status(found.item),))
        page = await self._storage.page(node, command.after, command.limit + 1)
        if isinstance(page, Refused):
            return page
        shown = page[: command.limit]
        listed = tuple(each.record.status() for each in shown if each.record is not None)
        return ScheduleList(listed, shown[-1].id if len(page) > len(shown) > 0 else "")

    async def catch_up(self, node: NodeRecord, *, check: bool) -> tuple[ScheduleMoved, ...] | Refused:
        """Move the schedules of a node to now by their rules, or with `check` find out which would move."""
        found, after, more = list[ScheduleMoved](), "", True
        while more:
            page = await self._storage.page(node, after, _PAGE)
            if isinstance(page, Refused):
                return page
            for stored in page:
                before = stored.record
                moved = before and before.catch_up(stored.at_ms)
                if before is None or moved is None or moved is before or before.next_ms is None:
                    continue
                taken = stored if check else await self._storage.replace(node, stored, moved)
                if isinstance(taken, Refused):
                    return taken
                # Else a frontend has moved it meanwhile.
                if taken is not None:
                    found.append(ScheduleMoved(stored.id, before.next_ms, moved.next_ms, moved.missed - before.missed))
            after, more = page[-1].id if page else "", len(page) == _PAGE
        return tuple(found)

    async def _change(
        self, command: PutSchedule | PauseSchedule | RemoveSchedule, name: str, change: Change, item: bytes = b""
    ) -> Result:
        """Replace a schedule's record by another, again if it changes meanwhile."""
        node = await admit(self._store, command, command.node)
        if isinstance(node, Refused):
            return node
        for _ in range(_TRIES):
            found = await self._storage.read_one(node, name)
            if isinstance(found, Refused):
                return found
            answer = await self._replace(node, found, change(found), item)
            if answer is not None:
                return answer
        return _BUSY

    async def _replace(
        self, node: NodeRecord, stored: Stored, changed: ScheduleRecord | Result, item: bytes
    ) -> Result | None:
        """Store a change, `Done` deletes; None if the schedule has changed meanwhile."""
        if not isinstance(changed, ScheduleRecord | Done):
            return changed
        new = changed if isinstance(changed, ScheduleRecord) else None
        old = stored.record
        if old is not None and old.firing_ms is not None and (item or new is None):
            # What it has begun belongs to the record and the item that go.
            return await self._finish(node, stored, old)
        taken = await self._storage.replace(node, stored, new, item)
        if isinstance(taken, Refused) or taken is None:
            return taken
        if new is not None:
            return Scheduled(new.status())
        await self._firing.forget_ticket(node, None if old is None else old.last)
        return Done()

    async def _finish(self, node: NodeRecord, stored: Stored, record: ScheduleRecord) -> Refused | None:
        """Finish or give up what a schedule has begun to publish; returns a refusal if neither is certain."""
        fired = await self._firing.publish(node, record, stored.item)
        if isinstance(fired, Refused):
            if not fired.problem.is_unstored:
                return fired
            taken = await self._storage.replace(node, stored, record.give_up())
        else:
            taken = await self._storage.replace(node, stored, record.note_fired(fired))
        return taken if isinstance(taken, Refused) else None


def _switch(record: ScheduleRecord, now_ms: int, *, paused: bool) -> ScheduleRecord | Scheduled:
    """Pause or resume, or answer that there is nothing to change."""
    return Scheduled(record.status()) if record.paused is paused else record.switch(now_ms, paused=paused)
