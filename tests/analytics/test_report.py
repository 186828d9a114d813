"""A recorded run as a report, against the same numbers in plain Python; the run is a simulated queue of known distributions."""

from datetime import UTC

import pytest
from pyspark.sql import SparkSession

from broker.analytics import facts, figures, report
from broker.analytics.figures import Node, Report
from broker.analytics.report import Prices
from broker.journal.schema import AttemptEnd
from broker.scaling.costs import read_costs
from tests.analytics import shapes
from tests.analytics.simulator import BEGAN_MS, Laws, Mishaps, Run, bursts, exponential, lognormal, simulate, steady
from tests.analytics.tables import inputs, time
from tests.analytics.truth import Truth, jain, percentile, truth

JOBS = Laws(
    exponential(100), lognormal(500, 0.7), (2, 2, 4), Mishaps(0.01, 0.02, 0.01, 0.01, max_deliveries=3), partitions=3
)
BURSTS = Laws(bursts(60), steady(48), (3,), node="bursts")
CLOCK = Laws(steady(500), exponential(200), (1, 1), node="clock")
PLAIN = Laws(exponential(100), lognormal(500, 0.7), (2, 2, 4), node="plain")
TARGET_S = 2.0
PRICES = Prices(read_costs(), 2.0)
LASTED_MS = 1_800_000


@pytest.fixture(scope="module")
def runs() -> dict[str, Run]:
    """Simulate four queues for half an hour, and let them go on."""
    return {
        laws.node: simulate(laws, items, seed=5, until_ms=LASTED_MS)
        for laws, items in ((JOBS, 99_999), (BURSTS, 99_999), (CLOCK, 9_999), (PLAIN, 99_999))
    }


@pytest.fixture(scope="module")
def made(spark: SparkSession, runs: dict[str, Run], tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Make the report of all four."""
    standing = [
        {
            "node": name,
            "incarnation": "8e71964d",
            "at": time(BEGAN_MS + LASTED_MS),
            "credit": sum(laws.workers),
            "waiting": len(runs[name].waiting),
            "in_flight": runs[name].in_flight,
            "subscribers": len(laws.workers),
            "used_memory": 10**8,
            "maxmemory": 10**9,
        }
        for name, laws in (("jobs", JOBS), ("bursts", BURSTS), ("plain", PLAIN))
    ]
    given = inputs(spark, tmp_path_factory.mktemp("run"), list(runs.values()), standing)
    told: list[str] = []
    found = report.report(facts.measure(given, told.append, TARGET_S), "a simulation", TARGET_S, PRICES, UTC)
    assert told == list(facts.STEPS)
    return found


def _node(made: Report, name: str) -> Node:
    return next(node for node in made.nodes if node.node == name)


@pytest.fixture(scope="module")
def truths(runs: dict[str, Run], made: Report) -> dict[str, Truth]:
    """Compute the same once more, over the interval of all four."""
    begin = min(attempt.published for run in runs.values() for attempt in run.attempts)
    ends = [attempt.closed for run in runs.values() for attempt in run.attempts]
    end = 1 + max(ends + [item.published for run in runs.values() for item in run.waiting])
    assert (made.begin, made.end) == (time(begin), time(end))
    return {name: truth(run.attempts, run.waiting, (begin, end)) for name, run in runs.items()}


ALL = pytest.mark.parametrize("name", ["jobs", "bursts", "clock"])


@ALL
def test_counts(made: Report, truths: dict[str, Truth], name: str) -> None:
    """Every count is exact."""
    node, true = _node(made, name), truths[name]
    waste, kinds = node.waste, true.kinds
    assert (waste.attempts, waste.items, waste.redelivered) == (true.attempts, true.items, true.redelivered)
    assert {kind: getattr(waste, kind.replace("-", "_")) for kind in kinds} == kinds
    assert name != "jobs" or kinds.keys() == {kind.value for kind in AttemptEnd} - {"perished"}
    assert sum(moment.arrived for moment in node.moments) == true.arrived
    assert node.demand.rate_per_s == pytest.approx(true.arrived / true.seconds)
    assert node.quality.waits_unknown == 0
    assert waste.lost_s == pytest.approx(true.lost_s)


@ALL
def test_percentiles(made: Report, truths: dict[str, Truth], name: str) -> None:
    """Every percentile is within 1 % of the exact one."""
    latency, true = _node(made, name).latency, truths[name]
    for leg, values in (
        (latency.wait, true.waits),
        (latency.service, true.held),
        (latency.end_to_end, true.end_to_end),
    ):
        assert leg is not None
        assert (leg.p50_ms, leg.p95_ms, leg.p99_ms) == pytest.approx(
            [percentile(values, share) for share in (0.5, 0.95, 0.99)], rel=0.01
        )
        assert leg.mean_ms == pytest.approx(sum(values) / len(values))
        assert leg.most_ms == values[-1]


@ALL
def test_levels(made: Report, truths: dict[str, Truth], runs: dict[str, Run], name: str) -> None:
    """The average number is the sum of all stays, and Little's law agrees with the queue's own count."""
    node, true, run = _node(made, name), truths[name], runs[name]
    assert node.capacity.busy == pytest.approx(true.in_flight)
    assert node.quality.little_in_system == pytest.approx(true.in_system)
    own = (run.waiting_integral + run.in_flight_integral) / run.ended_ms
    assert node.quality.little_by_law == pytest.approx(own, rel=0.05)


@ALL
def test_fairness(made: Report, truths: dict[str, Truth], name: str) -> None:
    """Shares and Jain's index are those of the attempts; the busiest is first."""
    node, true = _node(made, name), truths[name]
    assert {row.name: row.attempts for row in node.subscribers} == true.by_subscriber
    assert {int(row.name): row.attempts for row in node.partitions} == true.by_partition
    assert [row.attempts for row in node.subscribers] == sorted(true.by_subscriber.values(), reverse=True)
    assert sum(row.share for row in node.partitions) == pytest.approx(1)
    assert node.fairness is not None
    assert node.fairness.subscribers_jain == pytest.approx(jain(true.by_subscriber.values()))
    assert node.fairness.partitions_jain == pytest.approx(jain(true.by_partition.values()))
    assert node.fairness.partitions_skew == pytest.approx(
        max(true.by_partition.values()) * len(true.by_partition) / true.attempts
    )


def test_what_if(made: Report, runs: dict[str, Run]) -> None:
    """With other numbers of workers, the simulated queue waits as the replay says, within 10 %."""
    shape = shapes.shape_of(runs["plain"])
    node = _node(made, "plain")
    assert node.capacity.workers_needed is not None and shape.holds(TARGET_S * 1000, node.capacity.workers_needed)
    assert {8, node.capacity.workers_needed} <= {row.workers for row in node.what_if}
    for row in node.what_if[1:]:
        assert row.wait_p95_s * 1000 == pytest.approx(shape.p95_ms(row.workers), rel=0.1, abs=2)
        assert row.use == pytest.approx(sum(shape.services) / row.workers / LASTED_MS, rel=0.05)


def test_capacity(made: Report, runs: dict[str, Run]) -> None:
    """Credit, its use, and its capacity are those of the census and of the attempts."""
    node = _node(made, "jobs")
    held_s = sum(a.closed - a.delivered for a in runs["jobs"].attempts) / 1000 / len(runs["jobs"].attempts)
    assert node.capacity.credit == 8
    assert node.capacity.credit_use == pytest.approx(node.capacity.busy / 8)
    assert node.capacity.most_per_s == pytest.approx(8 / held_s)
    assert (node.backlog.waiting, node.backlog.in_flight) == (len(runs["jobs"].waiting), runs["jobs"].in_flight)


def test_gone(made: Report) -> None:
    """A deleted node has its past, and no invented present."""
    node = _node(made, "clock")
    assert (node.capacity.credit, node.capacity.headroom, node.quality.seen) == (None, None, None)
    assert node.waste.attempts > 3_500
    assert node.forecast == figures.Forecast(0, None, None, None, None, None, None, None, None)


def test_timeline(made: Report) -> None:
    """Steps follow each other from the beginning of the interval to its end, empty ones too."""
    for node in made.nodes:
        ends = [moment.begin.timestamp() + moment.length_s for moment in node.moments]
        assert node.moments[0].begin == made.begin
        assert ends == pytest.approx([*(moment.begin.timestamp() for moment in node.moments[1:]), made.end.timestamp()])
        assert all(moment.waiting >= 0 and moment.in_flight >= 0 for moment in node.moments)


def test_memory_of_redis(made: Report, runs: dict[str, Run]) -> None:
    """By one snapshot, Redis is full when the backlog of all existing nodes has filled the free memory."""
    fills = 0.0
    for name in ("jobs", "bursts", "plain"):
        attempts, growth = runs[name].attempts, _node(made, name).backlog.growth_per_s
        assert growth is not None
        fills += growth * sum(attempt.bytes for attempt in attempts) / len(attempts)
    expected = 9 * 10**8 / fills / 86_400 if fills > 0 else None
    assert made.memory_full_days == (None if expected is None else pytest.approx(expected))
