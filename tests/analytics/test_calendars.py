"""Demand by weekday, hour and day: in any time zone, over changes of the clock, and with what is not known left out."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import Row

from broker.analytics.calendars import trend, week
from broker.analytics.span import Span

HOUR_MS = 3_600_000
BERLIN = ZoneInfo("Europe/Berlin")


def _rows(begin: datetime, hours: int, arrived: Callable[[datetime], int]) -> tuple[list[Row], Span]:
    first = int(begin.timestamp()) // 3_600
    rows = [
        Row(hour=hour, begin=hour * HOUR_MS, arrived=many)
        for hour in range(first, first + hours)
        if (many := arrived(datetime.fromtimestamp(hour * 3_600, UTC)))
    ]
    return rows, Span(first * HOUR_MS, (first + hours) * HOUR_MS)


@pytest.mark.parametrize("begin", [datetime(2026, 3, 23, tzinfo=BERLIN), datetime(2026, 10, 19, tzinfo=BERLIN)])
def test_clock_change(begin: datetime) -> None:
    """A load at nine o'clock stays at nine when clocks change; an hour that there was twice, or never, counts as that."""
    days = 14
    hours = int(((begin + timedelta(days=days)).astimezone(UTC) - begin.astimezone(UTC)).total_seconds()) // 3_600
    rows, span = _rows(begin, hours, lambda at: 3_600 * (1 + 9 * (at.astimezone(BERLIN).hour == 9)))
    found = week(rows, span, BERLIN)
    assert all(row[9] == 10.0 and row[8] == row[10] == row[2] == 1.0 for row in found)
    flat = trend(rows, span, BERLIN)
    assert flat is not None and (flat.days, flat.shown) == (14, False)


def test_part_of_a_week() -> None:
    """Hours that the interval does not have are unknown, not empty; one that is cut short counts for its part."""
    begin = datetime(2026, 1, 5, 12, tzinfo=UTC)
    rows, span = _rows(begin, 3, lambda _: 1_800)
    found = week(rows, Span(span.begin, span.end - HOUR_MS // 2), UTC)
    assert found[0][11:16] == (None, 0.5, 0.5, 1.0, None)
    assert sum(value is not None for row in found for value in row) == 3


def test_trend() -> None:
    """Its band has the truth; a week's end is no fall; and what grows by chance alone has none."""
    random = Random(5)

    def grows(at: datetime) -> int:
        days = (at - datetime(2026, 1, 5, tzinfo=UTC)).days
        return round((10 + 0.2 * days) * (0.4 if at.weekday() > 4 else 1.0) * 3_600 * random.uniform(0.9, 1.1))

    rows, span = _rows(datetime(2026, 1, 5, tzinfo=UTC), 26 * 24, grows)
    found = trend(rows, span, UTC)
    assert found is not None and found.shown and found.days == 26
    # On five days of seven it grows by 0.2, on two by 0.08.
    assert found.least < (5 * 0.2 + 2 * 0.08) / 7 < found.most
    shown = 0
    for _ in range(60):
        found = trend(*_rows(datetime(2026, 1, 5, tzinfo=UTC), 26 * 24, lambda _: random.randrange(3_000, 4_000)), UTC)
        assert found is not None
        shown += found.shown
    # One in twenty is expected.
    assert shown < 10


def test_too_few_days() -> None:
    """Four whole days and parts of others show no trend; a young node's days count from its first item."""
    rows, span = _rows(datetime(2026, 1, 5, 12, tzinfo=UTC), 5 * 24, lambda _: 10)
    assert trend(rows, span, UTC) is None
    assert trend([], span, UTC) is None
    rows, span = _rows(
        datetime(2026, 1, 1, tzinfo=UTC), 60 * 24, lambda at: 10 * (at >= datetime(2026, 2, 26, tzinfo=UTC))
    )
    assert trend(rows, span, UTC) is None
