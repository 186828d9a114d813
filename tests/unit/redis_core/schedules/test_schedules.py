"""Schedules as values: what a request may say, the times of a schedule, and the steps of its record."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.model.names import Jid
from broker.model.nodes.schedules import FIELDS, CatchUp, Overlap, Schedule, ScheduleState
from broker.model.problems import CorruptRecord, MalformedRequest, Problem
from broker.model.times import duration, duration_ms, moment, read_moment
from broker.redis_core.schedules import timetable
from broker.redis_core.schedules.record import LATE_MS, Fired, ScheduleRecord
from broker.redis_core.schedules.timetable import Timetable

NOON = 1_796_126_400_000
"""2026-12-01T12:00:00Z."""

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


def schedule(**said: str) -> Schedule:
    """Read a schedule."""
    return Schedule.read({"id": "s", **said})


# What a request may say.


@given(
    st.builds(
        Schedule,
        id=st.text("aé-", min_size=1),
        every_ms=st.integers(1, 10**6).map(lambda seconds: seconds * 1000),
        start_ms=st.none() | st.just(NOON),
        end_ms=st.none() | st.just(NOON + DAY),
        jitter_ms=st.integers(0, 86_400).map(lambda seconds: seconds * 1000),
        overlap=st.sampled_from(Overlap),
        catch_up=st.sampled_from(CatchUp),
    )
)
def test_said(made: Schedule) -> None:
    """A schedule is said by the same words that it is read from."""
    assert Schedule.read(made.write()) == made and set(made.write()) <= set(FIELDS)


def test_read() -> None:
    """Words that are not said have defaults; times are whole seconds, and blanks of cron do not count."""
    assert schedule(every="90") == Schedule("s", every_ms=90_000)
    assert schedule(cron=" 0  9 * * 1-5 ") == schedule(cron="0 9 * * 1-5", zone="UTC", overlap="queue", catchup="last")
    assert schedule(every="1d", start="2026-12-01T13:00:00.75+01:00").start_ms == NOON


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"cron": ""},
        {"cron": " \t\n "},
        {"cron": "\u2003", "zone": "UTC"},
        {"cron": "* * * * *", "every": "5s"},
        {"every": ""},
        {"every": "0"},
        {"every": "0s"},
        {"every": "-5s"},
        {"every": "1.5s"},
        {"every": "5 s"},
        {"every": "٣s"},
        {"every": "367d"},
        {"every": "9" * 1000},
        {"every": "5s", "zone": "UTC"},
        {"every": "5s", "jitter": "2d"},
        {"every": "5s", "jitter": "abc"},
        {"every": "5s", "start": "tomorrow"},
        {"every": "5s", "start": "2026-12-01T09:00:00"},
        {"every": "5s", "end": "2200-01-01T00:00:00Z"},
        {"every": "5s", "start": "2026-12-02T00:00:00Z", "end": "2026-12-01T00:00:00Z"},
        {"every": "5s", "overlap": "never"},
        {"every": "5s", "catchup": "some"},
        {"every": "5s", "id": ""},
        {"every": "5s", "id": "é" * 129},
        {"every": "5s", "id": "a\nb"},
        {"cron": "0 " * 101},
    ],
)
def test_refused(said: dict[str, str]) -> None:
    """Guarantee 7: what no schedule can be is named."""
    with pytest.raises(MalformedRequest) as fault:
        schedule(**said)
    assert fault.value.problem is Problem.BAD_REQUEST and fault.value.detail


@pytest.mark.parametrize(
    ("cron", "zone"),
    [
        ("0 9 * * 1-5", "Mars/Phobos"),
        ("0 9 * * 1-5", "../etc/passwd"),
        ("0 9 * * 1-5", "Europe"),
        ("0 9 * * 1-5", "localtime"),
        ("0 9 * * 1-5", "/etc/localtime"),
        ("60 9 * * *", "UTC"),
        ("0 9 * *", "UTC"),
        ("0 0 9 * * *", "UTC"),
        ("@daily", "UTC"),
        ("0 0 30 2 *", "UTC"),
        ("a b c d e", "UTC"),
        ("*/0 * * * *", "UTC"),
        # cronsim reads these.
        ("0 0 L * *", "UTC"),
        ("0 0 1,LW * *", "UTC"),
        ("0 0 * * 5L", "UTC"),
        ("0 0 * * 5#2", "UTC"),
        ("0 0 * \u017fep *", "UTC"),
        ("*/060 * * * *", "UTC"),
    ],
)
def test_no_such_times(cron: str, zone: str) -> None:
    """A cron expression and a zone that do not exist are refused, and so is a day that never comes."""
    with pytest.raises(MalformedRequest):
        timetable.check(schedule(cron=cron, zone=zone))


@pytest.mark.parametrize("cron", ["*/15 0-6,22,23 1-31/2 JAN,mar-May Mon-Fri", "5/20 07 * * 7", "59 * 31 12 sun"])
def test_grammar(cron: str) -> None:
    """What docs/protocol.md names is read: stars, lists, ranges, steps, and names of months and days."""
    timetable.check(schedule(cron=cron))
    assert Timetable(schedule(cron=cron), NOON).next_after(NOON)


@pytest.mark.parametrize(
    ("text", "ms"), [("0s", 0), ("90s", 90_000), ("5m", 300_000), ("25h", 90_000_000), ("7d", 7 * DAY)]
)
def test_durations(text: str, ms: int) -> None:
    """Lengths of time are written by their largest unit."""
    assert duration_ms(text) == ms and duration_ms(duration(ms)) == ms


def test_moments() -> None:
    """A time is read as it is written."""
    assert read_moment(moment(NOON, "seconds")) == read_moment(moment(NOON)) == NOON


# Times.


def minutes(cron: str, zone: str, begin: datetime, days: int) -> Iterator[int]:
    """Yield the times of a cron expression by trying each minute, as Debian's cron handles the change of clocks.

    An expression whose minute or hour begins with a star follows the clock. Any other one runs once for each minute of the
    calendar: at the first of two equal times, and right after those that are skipped.
    """
    minute, hour, day, month, weekday = cron.split()

    def fits(time: datetime) -> bool:
        return (
            in_field(minute, time.minute, 60)
            and in_field(hour, time.hour, 24)
            and in_field(day, time.day, 32)
            and in_field(month, time.month, 13)
            and in_field(weekday, time.isoweekday() % 7, 7)
        )

    place = ZoneInfo(zone)
    if minute.startswith("*") or hour.startswith("*"):
        for number in range(days * 1440):
            time = begin + timedelta(minutes=number)
            if fits(time.astimezone(place)):
                yield int(time.timestamp() * 1000)
        return
    found = set()
    for number in range(days * 1440):
        calendar = begin.astimezone(place).replace(tzinfo=None, fold=0) + timedelta(minutes=number)
        if fits(calendar):
            time = calendar.replace(tzinfo=place).astimezone(UTC)
            while time.astimezone(place).replace(tzinfo=None) != calendar:
                calendar += timedelta(minutes=1)
                time = calendar.replace(tzinfo=place).astimezone(UTC)
            found.add(int(time.timestamp() * 1000))
    yield from sorted(found)


def in_field(field: str, value: int, size: int) -> bool:
    """Return whether a number is in a field of lists, ranges and steps."""
    for part in field.split(","):
        span, _, step = part.partition("/")
        low, _, high = ("0", "", str(size)) if span == "*" else span.partition("-")
        if value in range(int(low), int(high or low) + 1, int(step or 1)):
            return True
    return False


CHANGES = [
    ("Europe/Berlin", datetime(2026, 3, 26, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2026, 10, 22, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 3, 5, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 10, 29, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 4, 2, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 10, 1, tzinfo=UTC)),
]
"""The weeks in which clocks change, by an hour and by half an hour."""


@pytest.mark.parametrize(("zone", "begin"), CHANGES, ids=lambda value: str(value)[:19])
@pytest.mark.parametrize(
    "cron",
    ["0 9 * * 1-5", "30 2 * * *", "15,45 1,2 * * 0", "*/20 * * * *", "15 * * * *", "0 */2 * * *", "59 1-3 * 3-11 *"],
)
def test_a_week_with_a_change_of_clocks(zone: str, begin: datetime, cron: str) -> None:
    """Issue 25: in the week when clocks change, the times are those that trying each minute finds."""
    first = int(begin.timestamp() * 1000)
    expected = list(minutes(cron, zone, begin, 7))
    made = Timetable(schedule(cron=cron, zone=zone), first)
    found, at = [], made.next_after(first - 1)
    # Each is found from the one before, as schedules come forward.
    while at is not None and at < first + 7 * DAY - HOUR:
        found.append(at)
        at = made.next_after(at)
    assert found == [each for each in expected if each < first + 7 * DAY - HOUR] and found


@given(st.integers(0, 14 * 24 * 60), st.sampled_from(CHANGES))
def test_never_back(minute: int, change: tuple[str, datetime]) -> None:
    """Whenever one asks, the next time is later."""
    zone, begin = change
    asked = int(begin.timestamp() * 1000) + minute * MINUTE
    for cron in ("30 2 * * *", "*/30 2 * * *"):
        later = Timetable(schedule(cron=cron, zone=zone), asked).next_after(asked)
        assert later is not None and asked < later <= asked + 2 * DAY


def test_intervals() -> None:
    """An interval counts from the start, else from the making; a schedule ends with its end."""
    assert Timetable(schedule(every="1h"), NOON).next_after(NOON) == NOON + HOUR
    assert Timetable(schedule(every="1h"), NOON).next_after(NOON - DAY) == NOON + HOUR
    began = schedule(every="1h", start=moment(NOON), end=moment(NOON + 2 * HOUR))
    assert list(Timetable(began, 0).times(0)) == [NOON, NOON + HOUR, NOON + 2 * HOUR]
    assert Timetable(began, 0).next_after(NOON + HOUR + 1) == NOON + 2 * HOUR
    daily = schedule(cron="0 13 * * *", start=moment(NOON), end=moment(NOON + DAY))
    assert list(Timetable(daily, 0).times(0)) == [NOON + HOUR]


# Steps of a record.


def record(made: Schedule, next_ms: int | None = NOON) -> ScheduleRecord:
    """Return the record of a schedule."""
    return ScheduleRecord(made, "g", Jid("alice@x"), "key", "0 9 0", NOON - HOUR, next_ms)


@given(
    st.sampled_from(CatchUp),
    st.integers(0, 5_000).map(lambda number: NOON + number * 1_700),
    st.sampled_from(["every 1s", "every 30s", "every 7m", "every 1h", "cron */10 * * * *"]),
    st.sampled_from(["0", "45s", "10m"]),
    st.integers(0, 10_000) | st.none(),
)
def test_catching_up(rule: CatchUp, now: int, often: str, jitter: str, end: int | None) -> None:
    """Each time that has come is published for or missed, once: all, or those that are not late, or the last of late ones."""
    kind, _, value = often.partition(" ")
    ending = {} if end is None else {"end": moment(NOON + end * 1000)}
    made = schedule(**{kind: value}, start=moment(NOON), jitter=jitter, catchup=rule.value, **ending)
    state, fired = record(made), list[int]()
    while state.due_ms is not None and state.due_ms <= now:
        after = state.skip_missed(now)
        if after is state:
            begun = state.begin()
            assert begun.firing_ms is not None
            fired.append(begun.firing_ms)
            after = begun.note_fired(Fired(begun.firing_ms, "i", 0, "t"))
        assert after.missed + after.published > state.missed + state.published
        state = after
    come = 0
    for at in state.timetable.times(NOON - 1):
        if state.next_ms is not None and at >= state.next_ms:
            break
        come += 1
    assert len(set(fired)) == len(fired) == state.published and come == state.published + state.missed
    late = [at for at in fired if at + made.jitter_ms < now - LATE_MS]
    assert rule is CatchUp.ALL or len(late) <= (rule is CatchUp.LAST)
    assert rule is not CatchUp.ALL or state.missed == 0
    if rule is CatchUp.LAST and come:
        assert fired


def test_pausing() -> None:
    """Times that pass during a pause are not missed; what was begun is finished."""
    paused = record(schedule(every="1h")).begin().switch(NOON, paused=True)
    assert (paused.firing_ms, paused.due_ms, paused.status().state) == (NOON, NOON, ScheduleState.PAUSED)
    paused = paused.note_fired(Fired(NOON, "i", 0, "t"))
    assert paused.due_ms is None and paused.status().next_ms is None
    resumed = paused.switch(NOON + 90 * MINUTE, paused=False)
    assert (resumed.next_ms, resumed.missed) == (NOON + 2 * HOUR, 0)


def test_pausing_before_a_time_was_served() -> None:
    """A time that came before the pause is still served after it: its jitter ran, or its node was draining."""
    made = record(schedule(every="24h", start=moment(NOON), jitter="1h"))
    paused = made.switch(NOON + 1_000, paused=True).switch(NOON + 2_000, paused=True)
    assert ScheduleRecord.parse(str(paused).encode()) == paused
    resumed = paused.switch(NOON + 3_000, paused=False)
    assert (resumed.next_ms, resumed.due_ms) == (NOON, made.due_ms)
    assert ScheduleRecord.parse(str(resumed).encode()) == resumed


@pytest.mark.parametrize(("rule", "missed", "left"), [("none", 4, 0), ("last", 3, 1), ("all", 0, 4)])
def test_moved_to_now(rule: str, missed: int, left: int) -> None:
    """After a copy was put back, what the rule does not make up for is left out at once, also times that are not late yet."""
    state, now = record(schedule(every="10s", start=moment(NOON), catchup=rule)), NOON + 35_000
    after = state.catch_up(now)
    assert after.catch_up(now) is after and after.missed == missed
    assert after.next_ms == NOON + (4 - left) * 10_000
    paused = state.switch(NOON, paused=True)
    assert paused.catch_up(now) is paused


@given(
    st.sampled_from(CatchUp),
    st.sampled_from(["every 1s", "every 30s", "every 7m", "cron */10 * * * *"]),
    st.sampled_from(["0", "45s", "10m"]),
    st.tuples(*[st.integers(0, 2_000).map(lambda number: number * 1_700)] * 4),
)
def test_pauses_and_catching_up(rule: CatchUp, often: str, jitter: str, spans: tuple[int, ...]) -> None:
    """Each time before or after a pause is published for or missed, once, and none that passed during it, nor in a second one."""
    kind, _, value = often.partition(" ")
    state = record(schedule(**{kind: value}, start=moment(NOON), jitter=jitter, catchup=rule.value))
    first, second, third, now = (NOON + sum(spans[: number + 1]) for number in range(4))
    for at, paused in ((first, True), (second, False), (second, True), (third, False)):
        state = state.switch(at, paused=paused)
    fired = list[int]()
    while state.due_ms is not None and state.due_ms <= now:
        after = state.skip_missed(now)
        if after is state:
            fired.append(state.next_ms or 0)
            after = state.begin().note_fired(Fired(fired[-1], "i", 0, "t"))
        state = after
    assert state.next_ms is not None
    come = set[int]()
    for at in state.timetable.times(NOON - 1):
        if at >= state.next_ms:
            break
        if not first < at <= third:
            come.add(at)
    assert len(come) == state.published + state.missed and len(set(fired)) == len(fired) and set(fired) <= come


def test_jitter() -> None:
    """A jitter is the same in every process, within its bound, and differs between times."""
    made = record(schedule(every="1h", start=moment(NOON), jitter="10m"))
    found = []
    for _ in range(50):
        assert made.due_ms is not None and made.next_ms is not None and made == ScheduleRecord.parse(str(made).encode())
        found.append(made.due_ms - made.next_ms)
        made = made.skip()
    assert 0 <= min(found) < max(found) <= 10 * MINUTE and len(set(found)) > 40


@pytest.mark.parametrize("rule", CatchUp)
@pytest.mark.parametrize("said", [{"every": "1s"}, {"every": "1m"}, {"cron": "*/5 * * * *"}])
def test_jitter_longer_than_the_interval(rule: CatchUp, said: dict[str, str]) -> None:
    """Where somebody looks all the time nothing is late, however long a jitter keeps the times behind it waiting."""
    state = record(schedule(**said, start=moment(NOON), jitter="1h", catchup=rule.value))
    now = NOON
    for _ in range(200):
        assert state.due_ms is not None and state.next_ms is not None
        now = max(now, state.due_ms)
        assert state.skip_missed(now) is state and now - state.next_ms <= HOUR
        state = state.begin().note_fired(Fired(state.next_ms, "i", 0, "t"))
    assert state.published == 200


def test_stored() -> None:
    """A record is read as it was written; anything else is corrupt."""
    made = record(schedule(cron="0 9 * * 1-5", zone="Europe/Berlin", jitter="5s"))
    whole = made.begin()
    for each in (
        made,
        whole,
        whole.note_fired(Fired(NOON, "s@x", 3, "t")),
        whole.give_up(),
        record(schedule(every="1s"), None),
    ):
        assert ScheduleRecord.parse(str(each).encode()) == each
    for wrong in (b"", b"{}", b"[]", b"\xff", json.dumps({"schedule": {"id": "s"}}).encode()):
        with pytest.raises(CorruptRecord):
            ScheduleRecord.parse(wrong)


def test_status() -> None:
    """Owners see what was published, missed and skipped, and when a schedule has ended."""
    done = record(schedule(every="1h", start=moment(NOON), end=moment(NOON))).begin()
    assert done.status().state is ScheduleState.ACTIVE
    status = done.note_fired(Fired(NOON, "s@1", 0, "t")).status(b"item")
    assert (status.state, status.published, status.last_ms, status.next_ms) == (ScheduleState.ENDED, 1, NOON, None)
    assert status.item is not None and (status.item.key, status.item.hints.priority) == ("key", 9)
    assert status.write_state() == {
        "state": "ended",
        "by": "alice@x",
        "last": "2026-12-01T12:00:00Z",
        "last_item": "s@1",
        "published": "1",
        "missed": "0",
        "skipped": "0",
    }
