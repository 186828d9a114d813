"""Chooses the busiest hour of a node, and what of it is replayed. Pure; knows the rows of `measures/hours.py`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Row

from broker.analytics.measures.hours import HOUR_MS
from broker.analytics.measures.traces import Window
from broker.analytics.replay import Rules
from broker.analytics.span import Span

REPLAYED: Final = 200_000
"""The most deliveries of a node that are replayed: one number of workers takes a tenth of a second for these."""

_SHORT_MS: Final = 2 * HOUR_MS
"""An interval up to this long has no busiest hour: it is replayed as a whole."""

_EARLIER: Final = 24
"""So many hours before the busiest one are replayed too, as far as REPLAYED allows: they bring its backlog."""


@dataclass(frozen=True, slots=True)
class Busiest:
    """The busiest hour, or the whole of a short interval, in ms since 1970; and how many items arrived in it."""

    since: int
    until: int
    arrived: int
    begin: int
    """Since when it is replayed."""

    @property
    def seconds(self) -> float:
        """Return its length."""
        return (self.until - self.since) / 1000


def find_busiest(rows: Sequence[Row], span: Span) -> Busiest:
    """Find the hour with the most work; what was never served counts as much as another item."""
    served = sum(row.served for row in rows)
    each = sum(row.work_ms for row in rows) / served if served else 1.0

    def work(row: Row) -> float:
        found: float = row.work_ms + (row.items - row.served) * each
        return found

    first = min(row.begin for row in rows)
    if span.end - span.begin <= _SHORT_MS:
        of, begin, since, until = list(rows), span.begin, first, span.end
    else:
        row = max(rows, key=work)
        of, since = [row], max(first, row.hour * HOUR_MS)
        until, begin = min(span.end, (row.hour + 1) * HOUR_MS), since
        room = REPLAYED - row.items
        for earlier in sorted((each for each in rows if each.hour < row.hour), key=lambda each: -each.hour):
            room -= earlier.items
            if room < 0 or row.hour - earlier.hour > _EARLIER:
                break
            begin = max(span.begin, earlier.hour * HOUR_MS)
    # Of more than can be replayed, the first part.
    part = min(1.0, REPLAYED / sum(row.items for row in of))
    until = since + max(1, int((until - since) * part))
    return Busiest(since, until, round(sum(row.arrived for row in of) * part), begin)


@dataclass(frozen=True, slots=True)
class Credit:
    """The workers of the busiest hour: the credit that a census saw, or, unless `seen`, the most that were at work.

    `now` is the present credit, None in a report of the past.
    """

    workers: int
    seen: bool
    now: int | None = None


def find_credit(censuses: Sequence[Row], peaks: Row, busiest: Busiest, now: int | None) -> Credit:
    """Return the credit of the census nearest to the busiest hour, at least what was at work."""
    middle = (busiest.since + busiest.until) / 2
    nearest = min(censuses, key=lambda row: abs(row.at - middle), default=None)
    at_work = round(peaks.in_flight_most)
    workers = at_work if nearest is None else max(nearest.credit, at_work)
    return Credit(workers, nearest is not None, now)


def window(busiest: Busiest, present: Row | None, credit: int) -> Window:
    """Return what is replayed of a node, by the rules of its last census."""
    return Window(busiest.begin, busiest.since, busiest.until, read_rules(present), credit)


def read_rules(present: Row | None) -> Rules:
    """Read the bounds and the retry delay of a node, as operations have them (broker/model/nodes/options.py)."""
    if present is None:
        return Rules()
    most, count, period, burst = (int(word) for word in (present.limits or "0 0 0 0").split())
    interval = period / count if count else 0.0
    # A burst of 0 is one item and those of a second (lua/lib/limits/rate_limit.lua).
    most_at_once = burst or (1 + 1000 / interval if interval else 1)
    first, longest, backoff, _jitter = (float(word) for word in (present.retry_delay or "0 0 1 0").split())
    return Rules(most, interval, most_at_once, first, backoff, longest)
