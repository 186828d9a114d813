"""Demand and target by hour, over ninety days, against the same in plain Python: what a planner decides by."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession

from broker.analytics import facts, report
from broker.analytics.figures import Cause, Node
from broker.analytics.verdict import State, verdict
from broker.scaling.costs import read_costs
from tests.analytics import shapes
from tests.analytics.shapes import DAY_MS, HOUR_MS, Shape
from tests.analytics.simulator import BEGAN_MS, Laws, Mishaps, Run, exponential, simulate
from tests.analytics.tables import inputs, time

TARGET_S = 2.0
DAILY, YOUNG = shapes.daily(), shapes.young(90)
WORKERS = {"daily": 11, "young": 5}
"""As many as the mean of their loads needs."""


@pytest.fixture(scope="module")
def runs() -> dict[str, Run]:
    """Let too few workers do what comes, or something else hold them back."""
    late = Laws(exponential(1_000), exponential(1_000), (1,) * 4, Mishaps(expired=0.2, lock_ms=60_000), node="timeouts")
    return {
        **{shape.node: shape.run(WORKERS[shape.node]) for shape in (DAILY, YOUNG)},
        **{name: replace(shapes.batches(), node=name).run(4) for name in ("bound", "rate")},
        "timeouts": simulate(late, 2_000),
        "slow": shapes.slower().run(6),
    }


@pytest.fixture(scope="module")
def nodes(spark: SparkSession, runs: dict[str, Run], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Node]:
    """Make the report of both."""
    end = time(BEGAN_MS + 90 * DAY_MS)
    standing = [
        {"node": name, "incarnation": "8e71964d", "at": end, "credit": many, "subscribers": many, "policies": "delays"}
        for name, many in WORKERS.items()
    ]
    standing += [
        {"node": name, "incarnation": "8e71964d", "at": end, "credit": credit, "subscribers": 1, "limits": limits}
        for name, credit, limits in (
            ("bound", 20, "4 0 0 0"),
            ("rate", 20, "0 5 1000 1"),
            ("timeouts", 4, None),
            ("slow", 6, None),
        )
    ]
    given = inputs(spark, tmp_path_factory.mktemp("hours"), list(runs.values()), standing)
    prices = report.Prices(read_costs(), 2.0)
    made = report.report(facts.measure(given, lambda _: None, TARGET_S), "Redis", TARGET_S, prices, UTC)
    return {node.node: node for node in made.nodes}


@pytest.mark.parametrize("shape", [DAILY, YOUNG], ids=lambda shape: shape.node)
def test_busiest_hour(nodes: dict[str, Node], shape: Shape) -> None:
    """The busiest hour is that with the most work, and the workers needed are those that hold the target in it."""
    node, (since, until) = nodes[shape.node], shape.busiest_hour()
    begin = max(since, min(shape.arrivals))
    assert node.demand.busiest_at is not None
    assert node.demand.busiest_at.timestamp() * 1000 - BEGAN_MS == pytest.approx(begin, abs=1)
    arrived = sum(since <= at < until for at in shape.arrivals)
    assert node.demand.busiest_per_s == pytest.approx(arrived / node.demand.busiest_s)
    needed = node.capacity.workers_needed
    assert needed is not None and shape.holds(TARGET_S * 1000, needed, since, until)
    for row in node.what_if[1::2]:
        assert row.wait_p95_s * 1000 == pytest.approx(shape.p95_ms(row.workers, since, until), rel=0.1, abs=2)


@pytest.mark.parametrize("name", ["daily", "young"])
def test_target(nodes: dict[str, Node], runs: dict[str, Run], name: str) -> None:
    """The shares of late waits, the hours that missed the target, and the first of them, are those of the attempts."""
    target, rows = nodes[name].target, runs[name].attempts
    waits, late = Counter[int](), Counter[int]()
    for row in rows:
        hour = (row.ready) // HOUR_MS
        waits[hour] += 1
        late[hour] += row.delivered - row.ready > TARGET_S * 1000
    missed = [hour for hour in sorted(waits) if late[hour] > 0.05 * waits[hour]]
    assert target.late_share == pytest.approx(late.total() / waits.total())
    assert (target.hours, target.missed_hours) == (len(waits), len(missed))
    first = min(row.ready for row in rows if row.ready // HOUR_MS == missed[0])
    assert target.since == time(first)
    assert target.cause is Cause.CREDIT
    judged = verdict(nodes[name], TARGET_S)
    # Its highest hour brings more than its workers can ever do.
    assert judged.state is (State.UNSTABLE if name == "daily" else State.MISSED)
    assert "by too little credit" in judged.words
    assert f"add {nodes[name].capacity.workers_needed - WORKERS[name]}, " in judged.remedy  # type: ignore[operator]


def test_a_young_node(nodes: dict[str, Node]) -> None:
    """A node that is an hour old in a report of ninety days has the demand of its hour."""
    assert nodes["young"].demand.rate_per_s == pytest.approx(1.0, rel=0.01)
    assert nodes["young"].forecast.rate_growth_per_day is None


def test_week(nodes: dict[str, Node]) -> None:
    """The hours of the week have the mean of all such hours of the interval."""
    counts, begin = Counter[tuple[int, int]](), datetime.fromtimestamp(BEGAN_MS / 1000, UTC)
    for at in DAILY.arrivals:
        local = datetime.fromtimestamp((BEGAN_MS + int(at)) / 1000, UTC)
        counts[local.weekday(), local.hour] += 1
    thursdays = 13
    assert begin.weekday() == 3
    for each in nodes["daily"].week:
        if (each.weekday, each.hour) != (3, 0):
            lasted = 3_600 * (thursdays if each.weekday in {3, 4, 5, 6, 0, 1} else 12)
            assert each.rate_per_s == pytest.approx(counts[each.weekday, each.hour] / lasted, rel=0.01, abs=1e-9)


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("bound", Cause.IN_FLIGHT),
        ("rate", Cause.RATE),
        ("timeouts", Cause.TIMEOUTS),
        ("slow", Cause.SLOW),
    ],
)
def test_causes(nodes: dict[str, Node], name: str, cause: Cause) -> None:
    """What held the workers back is named: the node's own bound, locks that expired, or workers that became slow."""
    assert (nodes[name].target.cause, verdict(nodes[name], TARGET_S).state) == (cause, State.MISSED)
    assert cause.value in verdict(nodes[name], TARGET_S).words


def test_what_is_not_replayed(nodes: dict[str, Node]) -> None:
    """The report names the policies that it does not replay."""
    assert nodes["daily"].capacity.policies == "delays"
