"""All that is measured for a report, fetched from Spark once. Knows the measures; must not know what is made of them."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812
from pyspark.storagelevel import StorageLevel

from broker.analytics.faults import Unreadable
from broker.analytics.inputs import Inputs
from broker.analytics.measures import attempts as ways
from broker.analytics.measures import census, demand, fairness, latency, timeline, work
from broker.analytics.span import Span, moment

STEPS: Final = ("records", "what waits", "timeline", "demand", "latency", "work", "fairness", "the queues' own word")
"""What `measure` does, in this order."""

ByNode = Mapping[str, Row]
ManyByNode = Mapping[str, list[Row]]


@dataclass(frozen=True, slots=True)
class Wish:
    """From when to when a report is wanted, in ms since 1970; None: as far as there is anything."""

    begin: int | None = None
    end: int | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """The rows of every measure by node."""

    span: Span
    steps: ManyByNode
    peaks: ByNode
    burstiness: ByNode
    latency: ByNode
    work: ByNode
    subscribers: ManyByNode
    partitions: ManyByNode
    among_subscribers: ByNode
    among_partitions: ByNode
    present: ByNode
    memory: ByNode


def measure(inputs: Inputs, wish: Wish, step: Callable[[str], None]) -> Facts:
    """Run every measure over records that are read once; `step` is told what has been done."""
    with _kept(ways.with_waits(inputs.attempts)) as attempts:
        first, last = _bounds(attempts)
        step("records")
        with _kept(ways.waiting_since(inputs.waiting, attempts)) as waiting:
            span = _span(wish, first, last, waiting)
            step("what waits")
            with _kept(timeline.timeline(attempts, waiting, span)) as line:
                steps, peaks = _many(line.orderBy("step")), _one(timeline.peaks(line))
            step("timeline")
            arrived = demand.arrivals(attempts, waiting, span)
            widths = demand.windows({node: row.arrived for node, row in peaks.items()}, span)
            burstiness = _one(demand.burstiness(arrived, widths, span)) if widths else {}
        step("demand")
        latencies = _one(latency.latency(attempts))
        step("latency")
        works = _one(work.work(attempts))
        step("work")
        with (
            _kept(fairness.shares(attempts, "subscriber")) as subscribers,
            _kept(fairness.shares(attempts, "partition")) as partitions,
        ):
            shares = [
                _many(fairness.foremost(table, by).orderBy(F.desc("attempts"), by))
                for table, by in ((subscribers, "subscriber"), (partitions, "partition"))
            ]
            among = [_one(fairness.evenness(table)) for table in (subscribers, partitions)]
    step("fairness")
    present, memory = _one(census.present(inputs.census)), _one(census.memory(inputs.census))
    step("the queues' own word")
    return Facts(span, steps, peaks, burstiness, latencies, works, *shares, *among, present, memory)


def _bounds(attempts: DataFrame) -> tuple[int | None, int | None]:
    row = attempts.agg(F.min("closed").alias("first"), F.max("closed").alias("last")).first()
    assert row is not None
    return row.first, row.last


def _span(wish: Wish, first: int | None, last: int | None, waiting: DataFrame) -> Span:
    """Begin with the first close, before which records may be missing, and end with the last thing that happened."""
    row = waiting.agg(F.min("published").alias("first"), F.max("published").alias("last")).first()
    assert row is not None
    firsts = [time for time in (first, row.first) if time is not None]
    lasts = [time for time in (last, row.last) if time is not None]
    if not firsts:
        msg = "nothing has happened in this interval: choose another with --from and --to, or let workers subscribe first"
        raise Unreadable(msg)
    begin = first if first is not None else min(firsts)
    begin, end = max(begin, wish.begin or begin), min(max(lasts) + 1, wish.end or max(lasts) + 1)
    if begin >= end:
        told = f"{moment(min(firsts)).isoformat(timespec='seconds')} to {moment(max(lasts)).isoformat(timespec='seconds')}"
        msg = f"nothing has happened in this interval: there are records from {told}; correct --from and --to"
        raise Unreadable(msg)
    return Span(begin, end)


@contextmanager
def _kept(table: DataFrame) -> Iterator[DataFrame]:
    """Let a table be computed once."""
    table = table.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield table
    finally:
        table.unpersist()


def _one(table: DataFrame) -> ByNode:
    return {row.node: row for row in table.collect()}


def _many(table: DataFrame) -> ManyByNode:
    rows = defaultdict(list)
    for row in table.collect():
        rows[row.node].append(row)
    return rows
