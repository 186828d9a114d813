"""All that is measured for a report, fetched from Spark once. Knows the measures; must not know what is made of them."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812
from pyspark.storagelevel import StorageLevel

from broker.analytics.inputs import Inputs
from broker.analytics.measures import attempts as ways
from broker.analytics.measures import census, demand, latency, timeline, work
from broker.analytics.span import Span

STEPS: Final = ("waits", "timeline", "demand", "latency", "work", "census")
"""What `measure` does, in this order."""

ByNode = Mapping[str, Row]
ManyByNode = Mapping[str, list[Row]]


@dataclass(frozen=True, slots=True)
class Facts:
    """The rows of every measure by node."""

    span: Span
    steps: ManyByNode
    peaks: ByNode
    burstiness: ByNode
    latency: ManyByNode
    work: ByNode
    perished: ByNode
    subscribers: ManyByNode
    partitions: ManyByNode
    among_subscribers: ByNode
    among_partitions: ByNode
    present: ByNode
    memory: ByNode
    gaps: list[Row]


def measure(inputs: Inputs, step: Callable[[str], None]) -> Facts:
    """Run every measure over records that are read once; `step` is told of each of the STEPS as it begins."""
    tell = iter(STEPS)
    step(next(tell))
    attempts = ways.with_waits(inputs.attempts)
    with _kept(ways.waiting_since(inputs.waiting, attempts)) as waiting:
        span = _span(attempts, waiting, inputs.last)
        step(next(tell))
        with _kept(timeline.timeline(attempts, waiting, span)) as line:
            steps, peaks = _many(line.orderBy("step")), _one(timeline.peaks(line))
        step(next(tell))
        arrived = demand.arrivals(attempts, waiting, span)
        widths = demand.windows({node: row.arrived for node, row in peaks.items()}, span)
        burstiness = _one(demand.burstiness(arrived, widths, span)) if widths else {}
    step(next(tell))
    made, perished = ways.made(attempts), _one(ways.perished(attempts))
    latencies = _many(latency.latency(made))
    step(next(tell))
    with _kept(work.tally(made)) as tallied:
        works = _one(work.work(tallied))
        subscribers, partitions = work.shares(tallied, "subscriber"), work.shares(tallied, "partition")
        foremost, parts = _many(work.foremost(subscribers, "subscriber")), _many(work.foremost(partitions, "partition"))
        among, among_parts = _one(work.evenness(subscribers)), _one(work.evenness(partitions))
    step(next(tell))
    present, memory = _one(census.present(inputs.census)), _one(census.memory(inputs.census))
    return Facts(
        span=span,
        steps=steps,
        peaks=peaks,
        burstiness=burstiness,
        latency=latencies,
        work=works,
        perished=perished,
        subscribers=foremost,
        partitions=parts,
        among_subscribers=among,
        among_partitions=among_parts,
        present=present,
        memory=memory,
        gaps=inputs.gaps.orderBy("node", "partition", "before").collect(),
    )


def _span(attempts: DataFrame, waiting: DataFrame, last: datetime | None) -> Span:
    """Begin with the first close, before which records may be missing, and end with the last thing that happened."""
    closed = attempts.agg(F.min("closed").alias("first"), F.max("closed").alias("last")).first()
    published = waiting.agg(F.max("published").alias("last")).first()
    # Without a close there is no report (broker/analytics/inputs.py).
    assert closed is not None and closed.first is not None and published is not None  # noqa: PT018
    end = max(closed.last, published.last or 0) + 1
    return Span(closed.first, end if last is None else min(end, int(last.timestamp() * 1000)))


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
