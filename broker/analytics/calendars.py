"""Demand by the calendar: by weekday and hour, and its trend by days. Pure; knows the rows of `measures/hours.py`.

Days and hours are those of a time zone. An hour belongs to where its middle is.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, tzinfo
from statistics import NormalDist
from typing import Final

import numpy as np
from pyspark.sql import Row

from broker.analytics.measures.hours import HOUR_MS
from broker.analytics.span import Span

Week = tuple[tuple[float | None, ...], ...]
"""Arrivals a second by weekday, from Monday, and hour; None for what the interval does not have."""

_FEWEST_DAYS: Final = 5
"""Whole days without which there is no trend."""

_WEEKLY_DAYS: Final = 14
"""From so many days on, weekdays have levels of their own, so that a week's end is no fall."""

_BAND: Final = 0.95


@dataclass(frozen=True, slots=True)
class Trend:
    """How fast arrivals grow, in items a second and day, and the band in which that lies with 95 % confidence."""

    days: int
    per_day: float
    least: float
    most: float

    @property
    def shown(self) -> bool:
        """Tell whether the days show a trend: its band has no 0."""
        return self.least > 0 or self.most < 0


def week(rows: Sequence[Row], span: Span, zone: tzinfo) -> Week:
    """Return the mean rate of arrivals of each hour of the week."""
    arrived, seconds = np.zeros((7, 24)), np.zeros((7, 24))
    by_hour = {row.hour: row.arrived for row in rows}
    for hour in range(span.begin // HOUR_MS, -(-span.end // HOUR_MS)):
        local = _local(hour, zone)
        at = local.weekday(), local.hour
        arrived[at] += by_hour.get(hour, 0)
        seconds[at] += _covered(hour, span)
    return tuple(
        tuple(float(number / lasted) if lasted else None for number, lasted in zip(*row, strict=True))
        for row in zip(arrived, seconds, strict=True)
    )


def trend(rows: Sequence[Row], span: Span, zone: tzinfo) -> Trend | None:
    """Fit a line to the mean rates of whole days, since the node had its first item; None for too few of them."""
    if not rows:
        return None
    counts, lasted = defaultdict[date, int](int), defaultdict[date, float](float)
    by_hour: Mapping[int, int] = {row.hour: row.arrived for row in rows}
    for hour in range(min(by_hour), -(-span.end // HOUR_MS)):
        day = _local(hour, zone).date()
        counts[day] += by_hour.get(hour, 0)
        lasted[day] += _covered(hour, span)
    days = [day for day in counts if lasted[day] >= _length_s(day, zone) - 1]
    if len(days) < _FEWEST_DAYS:
        return None
    since = np.array([(day - days[0]).days for day in days], dtype=float)
    if len(days) >= _WEEKLY_DAYS:
        levels = np.array([[day.weekday() == each for each in range(7)] for day in days], dtype=float)
    else:
        levels = np.ones((len(days), 1))
    columns = np.column_stack([levels, since])
    rates = np.array([counts[day] / lasted[day] for day in days])
    fitted, *_ = np.linalg.lstsq(columns, rates, rcond=None)
    free = len(days) - columns.shape[1]
    errors = float(np.sum((rates - columns @ fitted) ** 2)) / free
    deviation = math.sqrt(errors * float(np.linalg.inv(columns.T @ columns)[-1, -1]))
    slope, aside = float(fitted[-1]), _student(free) * deviation
    return Trend(len(days), slope, slope - aside, slope + aside)


def _student(free: int) -> float:
    """Return the quantile of Student's distribution for the band (Abramowitz and Stegun 26.7.5), within 1 % from 3 on."""
    z = NormalDist().inv_cdf((1 + _BAND) / 2)
    return (
        z
        + (z**3 + z) / (4 * free)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * free**3)
    )


def _local(hour: int, zone: tzinfo) -> datetime:
    return datetime.fromtimestamp((hour + 0.5) * HOUR_MS / 1000, zone)


def _covered(hour: int, span: Span) -> float:
    """Return how many seconds of an hour are in the interval."""
    return (min(span.end, (hour + 1) * HOUR_MS) - max(span.begin, hour * HOUR_MS)) / 1000


def _length_s(day: date, zone: tzinfo) -> float:
    """Return how long a day is: 23 or 25 hours when clocks change."""
    begin, end = (datetime(each.year, each.month, each.day, tzinfo=zone) for each in (day, day + timedelta(days=1)))
    return end.timestamp() - begin.timestamp()
