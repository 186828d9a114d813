"""The times of a schedule: by a cron expression in a time zone, or by an interval. Pure; must not know what happens then.

cronsim reads cron and handles the change of clocks as Debian's cron does: a job at a certain time that the clocks skip runs right
after that, and one at a time that comes twice runs once. A job of every hour, or every so many minutes, keeps its pace.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from broker.model.frozen import frozen
from broker.model.nodes.schedules import Schedule
from broker.model.problems import MalformedRequest, Problem

_SECOND: Final = timedelta(seconds=1)
_DAY: Final = timedelta(days=1)

_TERM: Final = r"(\*|{0}(-{0})?)(/[0-9]{{1,2}})?".format("([0-9]{1,2}|[A-Za-z]{3})")
_FIELD: Final = re.compile(f"{_TERM}(,{_TERM})*")
"""What docs/protocol.md says of a field. cronsim also reads marks that cron does not have, such as `L` and `#`."""

_LOCAL: Final = "localtime"
"""The zone of a host, which differs between hosts."""


@frozen
class Passed:
    """Times that have come: how many, the last one and the one before it, and the next one."""

    count: int
    before_ms: int | None
    last_ms: int
    next_ms: int | None


class Timetable:
    """The times of one schedule, in ms since 1970."""

    def __init__(self, schedule: Schedule, anchor_ms: int) -> None:
        """Count an interval from `anchor_ms`, unless the schedule has a start."""
        self._schedule = schedule
        self._anchor_ms = anchor_ms if schedule.start_ms is None else schedule.start_ms

    def next_after(self, ms: int) -> int | None:
        """Return the first time later than `ms`, None after the last one."""
        return next(self.times(ms), None)

    def times(self, ms: int) -> Iterator[int]:
        """Iterate over the times later than `ms`."""
        if self._schedule.start_ms is not None:
            ms = max(ms, self._schedule.start_ms - 1)
        every, ends = self._schedule.every_ms, self._schedule.end_ms
        for at in self._intervals(ms, every) if every else _cron_times(self._schedule, ms):
            if ends is not None and at > ends:
                return
            yield at

    def times_between(self, first_ms: int, upto_ms: int, most: int) -> "Passed":
        """Find the times from `first_ms` to `upto_ms`, at most `most` of a cron expression."""
        every = self._schedule.every_ms
        if every:
            # All of them at once: seconds are many.
            upto_ms = upto_ms if self._schedule.end_ms is None else min(upto_ms, self._schedule.end_ms)
            count = (upto_ms - first_ms) // every + 1
            last = first_ms + (count - 1) * every
            return Passed(count, last - every if count > 1 else None, last, self.next_after(last))
        count, before, last = 1, None, first_ms
        for at in self.times(first_ms):
            if at > upto_ms or count >= most:
                return Passed(count, before, last, at)
            count, before, last = count + 1, last, at
        return Passed(count, before, last, None)

    def _intervals(self, ms: int, every_ms: int) -> Iterator[int]:
        # Without a start the first time is one interval after the anchor.
        at = self._anchor_ms + max(0, (ms - self._anchor_ms) // every_ms + 1) * every_ms
        if self._schedule.start_ms is None and at == self._anchor_ms:
            at += every_ms
        while True:
            yield at
            at += every_ms


def check(schedule: Schedule) -> None:
    """Check what only a calendar knows; raises MalformedRequest."""
    if not schedule.cron:
        return
    if schedule.zone not in _zones():
        raise MalformedRequest(
            Problem.BAD_REQUEST, f"there is no time zone {schedule.zone!a}: give one as Europe/Berlin"
        )
    fields = schedule.cron.split()
    if len(fields) != 5:
        raise MalformedRequest(
            Problem.BAD_REQUEST, "cron has five fields: minute, hour, day of month, month, day of week"
        )
    for field in fields:
        if not _FIELD.fullmatch(field):
            raise MalformedRequest(
                Problem.BAD_REQUEST, f"cron cannot be read: {field!a} is not of numbers, names, ranges, steps and *"
            )
    try:
        CronSim(schedule.cron, datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError as wrong:
        raise MalformedRequest(Problem.BAD_REQUEST, f"cron cannot be read: {wrong}") from None


def _cron_times(schedule: Schedule, ms: int) -> Iterator[int]:
    minute, hour, *_ = schedule.cron.split()
    if minute.startswith("*") or hour.startswith("*"):
        yield from _wall_times(schedule.cron, _zone(schedule.zone), datetime.fromtimestamp(ms // 1000, UTC))
        return
    for time in CronSim(schedule.cron, datetime.fromtimestamp(ms // 1000, _zone(schedule.zone))):
        at = int(time.timestamp()) * 1000
        # Where clocks are set back, cronsim returns the first of two equal times, also to who asks after it.
        if at > ms:
            yield at


def _wall_times(cron: str, zone: ZoneInfo, at: datetime) -> Iterator[int]:
    """Iterate over the moments after `at` when a clock on the wall shows a time of the expression.

    cronsim itself leaves out some where clocks change by half an hour, so it gets a clock that never changes, up to each change.
    """
    offset = _offset(at, zone)
    while True:
        for wall in CronSim(cron, at + offset):
            then = wall - offset
            if then - at > _DAY:
                # The clock may change twice meanwhile.
                at = then - _DAY
                offset = _offset(at, zone)
                break
            if _offset(then, zone) != offset:
                changed = _change(at, then, zone)
                at, offset = changed - _SECOND, _offset(changed, zone)
                break
            yield int(then.timestamp()) * 1000
            at = then
        else:
            return


def _offset(at: datetime, zone: ZoneInfo) -> timedelta:
    return at.astimezone(zone).utcoffset() or timedelta()


def _change(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    """Return the first second up to `after` when the clock has the offset of then; it had another one `before`."""
    low, high = int(before.timestamp()), int(after.timestamp())
    new = _offset(after, zone)
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(datetime.fromtimestamp(middle, UTC), zone) == new:
            high = middle
        else:
            low = middle
    return datetime.fromtimestamp(high, UTC)


@cache
def _zones() -> frozenset[str]:
    return frozenset(available_timezones() - {_LOCAL})


@lru_cache(maxsize=1_000)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)
