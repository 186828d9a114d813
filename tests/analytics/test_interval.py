"""The numbers of an interval, and of everything, against a truth that follows from a known run.

An overload: twice as much comes as two workers can do, and half of it is done after the interval, is open, or waits.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from broker import keys
from broker.analytics import facts, inputs, report
from broker.analytics.collection import collect
from broker.analytics.figures import Cause, Node
from broker.analytics.inputs import Inputs
from broker.analytics.measures.attempts import add_waits
from broker.analytics.verdict import State, verdict
from broker.model.names import Partition
from broker.scaling.costs import read_costs
from tests.analytics.conftest import Journals
from tests.analytics.truth import level, percentile
from tests.lua.driver import T0, Delivered, Queue

SERVICE_MS = 1_000
WORKER = "worker@x/a"
PUBLISHED = [*range(0, 10_000, 1_000), *range(10_000, 20_000, 250)]
ENDED = 25_100
"""At this time the workers' attempts have just begun."""


@dataclass
class Story:
    """The times of publishes, and each delivery with its end, if it had one; in ms since the start."""

    began: int
    published: dict[str, int] = field(default_factory=dict)
    deliveries: list[tuple[int, int, int | None]] = field(default_factory=list)


@pytest.fixture
def story(queue: Queue) -> Story:
    """Run it by the scripts themselves: ten calm seconds, ten of overload, and five without anything new."""
    told = Story(T0)
    queue.subscribe(WORKER, 2)
    # At the same moment an end comes before a publish.
    events: list[tuple[int, int, Delivered | None]] = [(at, 1, None) for at in PUBLISHED]
    while events[0][0] <= ENDED:
        at, _, ended = heapq.heappop(events)
        queue.now = told.began + at
        if ended is None:
            told.published[f"job-{len(told.published)}"] = at
            answer = queue.publish(f"job-{len(told.published) - 1}")
        else:
            answer = queue.retract(WORKER, ended.item, ended.token)
        for delivery in answer.deliveries:
            closed = at + SERVICE_MS
            told.deliveries.append((told.published[delivery.item], at, closed if closed <= ENDED else None))
            heapq.heappush(events, (closed, 0, delivery))
    # A record's id is Redis's own time, which is the test's here.
    records: Any = queue.client.xrange(queue.key("journal"))
    queue.client.delete(queue.key("journal"))
    for number, (_, fields) in enumerate(records):
        queue.client.xadd(queue.key("journal"), fields, id=f"{fields[b'closed'].decode()}-{number}")
    return told


def _moment(story: Story, at: int | None) -> datetime | None:
    return None if at is None else datetime.fromtimestamp((story.began + at) / 1_000, UTC)


class Case(NamedTuple):
    """A requested interval, and its expected figures; `lost` records have left the journal."""

    first: int | None
    last: int | None
    lost: int
    begin: int
    end: int
    arrived: int


CASES = {
    "all there is": Case(None, None, 0, 0, 25_001, 50),
    "the overload": Case(10_000, 20_000, 0, 10_000, 20_000, 40),
    # Then it begins with the first known close.
    "a journal that has lost records": Case(None, None, 5, 6_000, 25_001, 44),
}


def _made(given: Inputs) -> Node:
    prices = report.Prices(read_costs(), 2.0)
    [node] = report.report(facts.measure(given, lambda _: None, 2.0), "Redis", 2.0, prices, UTC).nodes
    return node


@pytest.mark.parametrize(
    "case",
    [
        # Without an interval test_report.py compares the same figures.
        pytest.param(case, id=name, marks=[pytest.mark.soak] if name == "all there is" else [])
        for name, case in CASES.items()
    ],
)
def test_truth(spark: SparkSession, journals: Journals, queue: Queue, story: Story, case: Case) -> None:
    """An item counts at its publish, whether it was delivered since, is open or waits; levels are exact."""
    queue.client.xtrim(queue.key("journal"), maxlen=len(story.deliveries) - 2 - case.lost, approximate=False)
    first, last = _moment(story, case.first), _moment(story, case.last)
    node = _made(inputs.of_redis(journals.url, first, last, spark=spark))
    begin, end = case.begin, case.end
    known = story.deliveries[case.lost :]
    published = [*story.published.values()][case.lost :]
    arrived = sum(begin <= at < end for at in published)
    closed = [row for row in known if row[2] is not None and begin <= row[2] < end]
    waits = sorted(delivered - at for at, delivered, _ in closed)
    delivered_at = {at: delivered for at, delivered, _ in known}
    assert sum(moment.arrived for moment in node.moments) == arrived == case.arrived
    assert node.demand.rate_per_s == pytest.approx(arrived / (end - begin) * 1_000)
    assert (node.waste.attempts, node.waste.acknowledged, node.quality.waits_unknown) == (len(closed), len(closed), 0)
    assert node.latency.wait and node.latency.wait.p95_ms == pytest.approx(percentile(waits, 0.95), rel=0.01)
    assert node.capacity.busy == pytest.approx(
        level([(since, end if upto is None else upto) for _, since, upto in known], begin, end)
    )
    assert node.backlog.waiting_mean == pytest.approx(
        level([(at, delivered_at.get(at, end)) for at in published], begin, end)
    )
    assert (node.backlog.waiting, node.backlog.in_flight) == (len(story.published) - len(story.deliveries), 2)
    judged = verdict(node, 2.0)
    if case.first is not None:
        # Twice as much comes as two workers do.
        assert node.capacity.attempts_per_s == pytest.approx(4.0) and node.capacity.most_per_s == pytest.approx(2.0)
        assert (judged.state, node.target.cause) == (State.UNSTABLE, Cause.CREDIT)
        assert node.capacity.workers_needed == 4 and node.price and node.price.workers == 2


def test_history(spark: SparkSession, journals: Journals, story: Story, tmp_path: Path) -> None:
    """A history has the same rows for the interval as Redis, also of open attempts, and of those that ended before it.

    An item that came back before the interval has waited since then.
    """
    out = str(tmp_path / "history")
    first, last = _moment(story, 10_000), _moment(story, 20_000)
    key = keys.of_partition("journal", Partition("others", "ab12"))
    for closed, kind, attempt in ((1_000, "released", 1), (2_000, "expired", 2), (12_000, "acknowledged", 3)):
        record = Journals.record(7, story.began + closed, kind, attempt)
        record["lock"] = record["lock"].replace(f" {story.began + closed - 300}-7 ", f" {story.began}-7 ")
        journals.client.xadd(key, record, id=f"{story.began + closed}-0")
    collect(journals.url, out, spark=spark)

    def rows(given: Inputs) -> Iterator[list[str]]:
        assert given.returned is not None
        [waited] = add_waits(given.attempts, given.returned).where("node = 'others'").collect()
        assert (waited.attempt, waited.wait_ms) == (3, 12_000 - 200 - 2_000)
        for table in (given.attempts, given.in_flight, given.waiting, given.returned):
            yield sorted(str(row.asDict()) for row in table.select(*sorted(table.columns)).collect())
        given.attempts.unpersist()

    of_redis, of_history = (
        inputs.of_redis(journals.url, first, last, spark=spark),
        inputs.of_history(out, first, last, spark=spark),
    )
    assert of_redis.earlier and of_history.earlier
    assert [*rows(of_redis)] == [*rows(of_history)]
