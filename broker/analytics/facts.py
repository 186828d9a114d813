"""Runs every measure on Spark once and collects the results. Knows the measures; must not know how results become figures."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812
from pyspark.storagelevel import StorageLevel

from broker.analytics.busiest import Busiest, Credit, find_busiest, find_credit, window
from broker.analytics.faults import Unreadable
from broker.analytics.inputs import Inputs
from broker.analytics.inputs import span as span_of
from broker.analytics.measures import attempts as ways
from broker.analytics.measures import census, hours, latency, timeline, traces, work
from broker.analytics.source.offsets import Id
from broker.analytics.span import Span

STEPS: Final = ("waits", "timeline", "hours", "census", "replay", "latency", "work")
"""The steps of `measure`, in order."""

ByNode = Mapping[str, Row]
ManyByNode = Mapping[str, list[Row]]


@dataclass(frozen=True, slots=True)
class Facts:
    """The rows of every measure, by node."""

    span: Span
    steps: ManyByNode
    peaks: ByNode
    hours: ManyByNode
    busiest: Mapping[str, Busiest]
    latency: ManyByNode
    work: ByNode
    perished: ByNode
    subscribers: ManyByNode
    partitions: ManyByNode
    among_subscribers: ByNode
    among_partitions: ByNode
    present: ByNode
    credit: Mapping[str, Credit]
    memory: ByNode
    replays: ByNode
    gaps: list[Row]


def measure(inputs: Inputs, step: Callable[[str], None], target_s: float) -> Facts:
    """Run every measure over records that are read once. `step` is called with each of STEPS as it begins.

    `target_s` is the longest wait that 95 % of the items may have.
    """
    tell = iter(STEPS)
    step(next(tell))
    since, gaps = census.find_start(inputs.census), _gaps(inputs)
    attempts = ways.add_waits(ways.add_open(inputs.attempts, inputs.in_flight, since), inputs.returned)
    with _persist(ways.waiting_since(inputs.waiting, attempts, since)) as waiting:
        span = _span(attempts, waiting, inputs, gaps)
        step(next(tell))
        with _persist(timeline.timeline(attempts, waiting, span)) as line:
            steps, peaks = _rows_by_node(line.orderBy("step")), _row_by_node(timeline.peaks(line))
        step(next(tell))
        by_hour = _rows_by_node(hours.hours(attempts, waiting, span, target_s * 1000))
        busiest = {node: find_busiest(rows, span) for node, rows in by_hour.items()}
        step(next(tell))
        present, memory = _row_by_node(census.present(inputs.census)), _row_by_node(census.memory(inputs.census))
        until = span.end if inputs.last else None
        credits_seen = _rows_by_node(census.credits_over_time(inputs.census, span.begin, until))
        step(next(tell))
        now = {node: row.credit for node, row in present.items()} if inputs.last is None else {}
        credit = {
            node: find_credit(credits_seen.get(node, []), peaks[node], each, now.get(node))
            for node, each in busiest.items()
        }
        windows = {node: window(each, present.get(node), credit[node].workers) for node, each in busiest.items()}
        replays = _row_by_node(traces.replays(attempts, waiting, windows, target_s * 1000)) if windows else {}
    step(next(tell))
    closed = ways.keep_closed_in(attempts, span)
    made, perished = ways.drop_perished(closed), _row_by_node(ways.count_perished(closed))
    latencies = _rows_by_node(latency.latency(made))
    step(next(tell))
    with _persist(work.tally(made)) as tallied:
        works = _row_by_node(work.work(tallied))
        subscribers, partitions = work.shares(tallied, "subscriber"), work.shares(tallied, "partition")
        shares = _rows_by_node(work.busiest(subscribers, "subscriber"))
        parts = _rows_by_node(work.busiest(partitions, "partition"))
        among, among_parts = _row_by_node(work.evenness(subscribers)), _row_by_node(work.evenness(partitions))
    return Facts(
        span=span,
        steps=steps,
        peaks=peaks,
        hours=by_hour,
        busiest=busiest,
        latency=latencies,
        work=works,
        perished=perished,
        subscribers=shares,
        partitions=parts,
        among_subscribers=among,
        among_partitions=among_parts,
        present=present,
        credit=credit,
        memory=memory,
        replays=replays,
        gaps=gaps,
    )


def _gaps(inputs: Inputs) -> list[Row]:
    """Return the gaps that may overlap the interval."""
    first = _ms(inputs.first)
    return [row for row in inputs.gaps.orderBy("node", "partition", "before").collect() if _find_gaps(row)[1] > first]


def _find_gaps(gap: Row) -> tuple[int, int]:
    """Return the times in ms between which records are missing."""
    after = Id.parse(gap.after).ms if gap.after else 0
    return after, Id.parse(gap.before).ms if gap.before else _ms(gap.noticed)


def _span(attempts: DataFrame, waiting: DataFrame, inputs: Inputs, gaps: list[Row]) -> Span:
    """Narrow the requested interval to the time of which records are known.

    It goes from the first event or, if records are missing at its beginning, the first close, to the last event.
    """
    times = attempts.agg(
        F.min("closed").alias("closed"),
        F.min("published").alias("published"),
        F.greatest(F.max("closed"), F.max("delivered")).alias("last"),
    ).first()
    waits = waiting.agg(F.min("published").alias("published"), F.max("published").alias("last")).first()
    # Without a record there is no report (broker/analytics/inputs.py).
    assert times is not None and times.closed is not None and waits is not None  # noqa: PT018
    first = _ms(inputs.first)
    if any(_find_gaps(gap)[0] <= first for gap in gaps):
        begin = max(first, times.closed)
    else:
        known = [at for at in (times.published, waits.published) if at is not None]
        begin = first if inputs.earlier else max(first, min(known))
    end = max(times.last, waits.last or 0) + 1
    end = end if inputs.last is None else min(end, _ms(inputs.last))
    if begin >= end:
        msg = f"no record is left {span_of(inputs.first, inputs.last)}: collect before journals lose records (docs/reports.md)"
        raise Unreadable(msg)
    return Span(begin, end)


def _ms(at: datetime | None) -> int:
    """Return a time in ms since 1970; 0 without one."""
    return int(at.timestamp() * 1000) if at else 0


@contextmanager
def _persist(table: DataFrame) -> Iterator[DataFrame]:
    """Persist a table while it is used, so that Spark computes it once."""
    table = table.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield table
    finally:
        table.unpersist()


def _row_by_node(table: DataFrame) -> ByNode:
    return {row.node: row for row in table.collect()}


def _rows_by_node(table: DataFrame) -> ManyByNode:
    rows = defaultdict(list)
    for row in table.collect():
        rows[row.node].append(row)
    return rows
