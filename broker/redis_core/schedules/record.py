"""The stored record of a schedule, and the steps by which it comes forward. Pure; must not know Redis.

A step returns a new record. `Schedules` stores it only in place of the record that the step began with, so of several frontends
one takes each step.
"""

import json
import zlib
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Final, Self

from broker.model.frozen import frozen
from broker.model.items.hints import Hints
from broker.model.names import Jid
from broker.model.nodes.schedules import CatchUp, Schedule, ScheduledItem, ScheduleState, ScheduleStatus
from broker.model.problems import CorruptRecord, MalformedRequest
from broker.model.times import moment
from broker.redis_core.schedules.timetable import Timetable

LATE_MS: Final = 60_000
"""A time that nobody published at for so long after its jitter is late: what is done about it is the schedule's `catchup`.

A time with a short jitter may wait for one before it with a long one, so the whole jitter counts."""

MOST_PASSED: Final = 1_000
"""Times that one step counts as missed."""


@frozen
class Fired:
    """The last item that was published, for which time, and in which partition."""

    at_ms: int
    item_id: str
    partition: int
    ticket: str


@dataclass(frozen=True)
class ScheduleRecord:
    """A schedule, what it publishes, and how far it has come. `generation` is new whenever the schedule is replaced.

    Times later than `paused_ms`, up to `resumed_ms`, passed during the last pause.
    """

    schedule: Schedule
    generation: str
    maker: Jid
    key: str
    hints: str
    anchor_ms: int
    next_ms: int | None
    paused: bool = False
    firing_ms: int | None = None
    last: Fired | None = None
    published: int = 0
    missed: int = 0
    missed_ms: int | None = None
    skipped: int = 0
    paused_ms: int | None = None
    resumed_ms: int | None = None

    @cached_property
    def timetable(self) -> Timetable:
        """The schedule's times."""
        return Timetable(self.schedule, self.anchor_ms)

    @property
    def due_ms(self) -> int | None:
        """When there is something to do, None for never."""
        if self.firing_ms is not None:
            return self._due(self.firing_ms)
        return None if self.paused or self.next_ms is None else self._due(self.next_ms)

    def _due(self, at_ms: int) -> int:
        """Return when to publish for a time: by its jitter, the same in all processes."""
        if not self.schedule.jitter_ms:
            return at_ms
        return at_ms + zlib.crc32(f"{self.generation} {at_ms}".encode()) % (self.schedule.jitter_ms + 1)

    # Steps.

    def catch_up(self, now_ms: int) -> Self:
        """Leave out all times up to now that the rule does not make up for, also those that are not late yet."""
        before, after = None, self
        while not self.paused and after is not before:
            before, after = after, after.skip_missed(now_ms, late_ms=0)
        return after

    def skip_missed(self, now_ms: int, late_ms: int = LATE_MS) -> Self:
        """Leave out the times that are missed, some of them if they are many."""
        rule, first = self.schedule.catch_up, self.next_ms
        if first is None or rule is CatchUp.ALL or first + self.schedule.jitter_ms >= now_ms - late_ms:
            return self
        upto = now_ms - self.schedule.jitter_ms - (late_ms if rule is CatchUp.NONE else 0)
        if self.paused_ms is not None and first <= self.paused_ms:
            upto = min(upto, self.paused_ms)
        passed = self.timetable.times_between(first, max(first, upto), MOST_PASSED)
        next_ms = self._skip_pause(passed.next_ms)
        if rule is CatchUp.LAST and (next_ms is None or self._due(next_ms) > now_ms):
            if passed.before_ms is None:
                return self
            return replace(
                self, next_ms=passed.last_ms, missed=self.missed + passed.count - 1, missed_ms=passed.before_ms
            )
        return replace(self, next_ms=next_ms, missed=self.missed + passed.count, missed_ms=passed.last_ms)

    def begin(self) -> Self:
        """Begin to publish for the next time."""
        assert self.next_ms is not None
        return replace(self, firing_ms=self.next_ms, next_ms=self._next_after(self.next_ms))

    def skip(self) -> Self:
        """Leave out the next time, because the last item is still there."""
        assert self.next_ms is not None
        return replace(self, next_ms=self._next_after(self.next_ms), skipped=self.skipped + 1)

    def _next_after(self, at_ms: int) -> int | None:
        return self._skip_pause(self.timetable.next_after(at_ms))

    def _skip_pause(self, at_ms: int | None) -> int | None:
        """Return a time, or the first one after the last pause if it passed during that."""
        if at_ms is None or self.paused_ms is None or self.resumed_ms is None:
            return at_ms
        return self.timetable.next_after(self.resumed_ms) if self.paused_ms < at_ms <= self.resumed_ms else at_ms

    def note_fired(self, fired: Fired) -> Self:
        """Note the item that was published for the time that was begun with."""
        return replace(self, firing_ms=None, last=fired, published=self.published + 1)

    def give_up(self) -> Self:
        """Leave out the time that was begun with: its item is not stored."""
        assert self.firing_ms is not None
        return replace(self, firing_ms=None, missed=self.missed + 1, missed_ms=self.firing_ms)

    def switch(self, now_ms: int, *, paused: bool) -> Self:
        """Pause, or go on with the next time from now on; those that came before the pause, and were not served, are first."""
        waits = self.next_ms is not None and self.next_ms <= (self.paused_ms or 0)
        if paused:
            # While a time from before a pause waits, another pause makes that one longer.
            return replace(self, paused=True, paused_ms=self.paused_ms if self.paused or waits else now_ms)
        if waits:
            return replace(self, paused=False, resumed_ms=now_ms)
        return replace(self, paused=False, paused_ms=None, resumed_ms=None, next_ms=self.timetable.next_after(now_ms))

    # What it publishes.

    def item_id(self, at_ms: int) -> str:
        """Return the id of the item for a time."""
        return f"{self.schedule.id}@{moment(at_ms, 'seconds')}"

    def ticket(self, incarnation: str, at_ms: int) -> str:
        """Return a name that is unique for ever, and the same at each repetition."""
        return f"schedule-{incarnation}-{self.generation}-{at_ms}"

    def status(self, item: bytes = b"") -> ScheduleStatus:
        """Return what owners see."""
        ended = self.next_ms is None and self.firing_ms is None
        state = ScheduleState.ENDED if ended else ScheduleState.PAUSED if self.paused else ScheduleState.ACTIVE
        return ScheduleStatus(
            self.schedule,
            self.maker,
            state,
            None if self.paused else self.next_ms,
            None if self.last is None else self.last.at_ms,
            self.last.item_id if self.last else "",
            self.published,
            self.missed,
            self.missed_ms,
            self.skipped,
            ScheduledItem(item, self.key, Hints.parse(self.hints)) if item else None,
        )

    # As text.

    def __str__(self) -> str:
        """Return the record as it is stored."""
        told: dict[str, Any] = {
            "schedule": self.schedule.write(),
            "generation": self.generation,
            "by": self.maker,
            "anchor": self.anchor_ms,
            "next": self.next_ms,
            "key": self.key,
            "hints": self.hints,
            "paused": self.paused,
            "firing": self.firing_ms,
            "last": self.last and asdict(self.last),
            "published": self.published,
            "missed": self.missed,
            "missed_at": self.missed_ms,
            "skipped": self.skipped,
            "paused_at": self.paused_ms,
            "resumed_at": self.resumed_ms,
        }
        return json.dumps({name: value for name, value in told.items() if value or name == "next"}, ensure_ascii=False)

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """Read what `str` wrote; raises CorruptRecord."""
        try:
            told = json.loads(text)
            last = told.get("last")
            return cls(
                Schedule.read(told["schedule"]),
                told["generation"],
                Jid(told["by"]),
                told.get("key", ""),
                told.get("hints", ""),
                told.get("anchor", 0),
                told["next"],
                told.get("paused", False),
                told.get("firing"),
                Fired(**last) if last else None,
                told.get("published", 0),
                told.get("missed", 0),
                told.get("missed_at"),
                told.get("skipped", 0),
                told.get("paused_at"),
                told.get("resumed_at"),
            )
        except (ValueError, KeyError, TypeError, AttributeError, MalformedRequest) as fault:
            msg = f"the record of a schedule cannot be read: {fault}"
            raise CorruptRecord(msg) from fault
