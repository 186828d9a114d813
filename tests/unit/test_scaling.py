"""The model of a service, and the file of costs that it is fed with."""

from dataclasses import replace

import pytest

from bench.scaling.costs import fit_cost
from bench.scaling.predicted import compare, shapes
from bench.scaling.processes import Shape, Spent
from broker.redis_core.maintenance.heartbeat import HEARTBEAT_SECONDS
from broker.scaling.costs import Cost, Costs, Measured, read, read_costs
from broker.scaling.model import (
    LIMITS,
    SAFE_USE,
    US,
    Service,
    calls_of_job,
    core_hours,
    max_uses,
    uses,
)

SIMPLE = Costs(
    redis=Cost(40, 70),
    frontend=Cost(100, 80),
    xmpp=Cost(200, 0),
    beat_us=30,
    beat_frontend_us=50,
)
SERVICES = [
    Service(),
    Service(frontends=4, masters=4, partitions=4, servers=2),
    Service(frontends=100, masters=20, queues=1_000, servers=10, hottest=0.05),
    Service(frontends=4, shared_cores=2),
]


def test_job_of_one_call_each() -> None:
    """Without anything shared, a job is an item and two calls: at its limit a process has no time left."""
    service = Service(under_way=0)
    found = uses(SIMPLE, service, 1_000, HEARTBEAT_SECONDS)
    assert found.redis_us == pytest.approx(40 + 2 * 70 + 30 / HEARTBEAT_SECONDS / 1_000)
    assert found.frontend_us == pytest.approx(100 + 2 * 80 + 50 / HEARTBEAT_SECONDS / 1_000)
    assert found.frontends == pytest.approx(1_000 * found.frontend_us / US)
    assert core_hours(found) == pytest.approx(found.job_us * 1_000_000 / US / 3_600)


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("use", [SAFE_USE, 1.0])
def test_most(service: Service, use: float) -> None:
    """At the highest rate exactly the first limit is reached, and nothing below it."""
    at = max_uses(read_costs().single, service, HEARTBEAT_SECONDS, use)
    assert max(at.of(name) for name in LIMITS) == pytest.approx(use, rel=1e-3) == at.of(at.first)
    below = uses(read_costs().single, service, at.rate * 0.9, HEARTBEAT_SECONDS)
    assert max(below.of(name) for name in LIMITS) < use


def test_commands_share_calls() -> None:
    """The more jobs of a pair are under way, the fewer calls each takes; a stanza's items are divided among partitions."""
    assert calls_of_job(Service(), 0, 1) == 2
    assert calls_of_job(Service(), 80, 1) == pytest.approx(2 / 21)
    assert calls_of_job(Service(frontends=4), 80, 1) == pytest.approx(2 / 6)
    assert calls_of_job(Service(partitions=4), 0, 20) == pytest.approx(2 / 5)


def test_frontends_in_excess() -> None:
    """Ten times the frontends for the same masters carry a twentieth less, all of it for heartbeats: rare jobs cost no more."""
    costs, few = read_costs().single, Service(frontends=40, masters=20, queues=1_000, servers=100)

    def kept(costs: Costs) -> float:
        least, most = (max_uses(costs, replace(few, frontends=count), HEARTBEAT_SECONDS).rate for count in (40, 400))
        return most / least

    assert kept(costs) == pytest.approx(0.95, abs=0.01)
    assert kept(replace(costs, beat_us=0)) == pytest.approx(1, abs=0.002)


def test_hot_queue() -> None:
    """The master of a queue with half of the load has that and its part of the rest; partitions spread it."""
    service = Service(masters=10, queues=100, hottest=0.5)
    assert service.hot_share == pytest.approx(0.5 + 0.05)
    assert replace(service, partitions=10).hot_share == pytest.approx(0.1)
    assert Service(masters=10, queues=1).hot_share == 1


def test_partitions_cost_as_queues() -> None:
    """A job costs each process as much in a queue of four partitions as in four queues."""
    split, apart = (
        uses(read_costs().single, service, 1_000, HEARTBEAT_SECONDS)
        for service in (Service(frontends=2, partitions=4), Service(frontends=2, queues=4))
    )
    assert split == apart


def test_file_of_costs() -> None:
    """The file has what is written, and says whether the machine was quiet."""
    found = read_costs()
    assert read(found.text()) == found
    assert (found.single.batch, found.batched.batch) == (1, 20)
    assert found.quiet == (found.load_average < int(found.machine["cores"]) / 2)


def _spent(costs: Costs, calls: float, *, seconds: float = 10.0, asleep: float = 0.0) -> Spent:
    """Make a run with these costs."""
    jobs = 1_000
    redis, frontend, xmpp = (
        each.of_job(calls, asleep) * jobs / US for each in (costs.redis, costs.frontend, costs.xmpp)
    )
    return Spent(jobs, seconds, redis, frontend, xmpp, load=0.0, others=0.0, calls=round(calls * jobs))


def test_costs_are_found_again() -> None:
    """From runs that were made of known costs, the same costs are found."""
    few, many = _spent(SIMPLE, 0.15), _spent(SIMPLE, 1.5)
    frontend, xmpp = fit_cost(few, many, "frontend"), fit_cost(few, many, "xmpp")
    assert (frontend.item_us, frontend.call_us) == pytest.approx((100, 80), abs=0.2)
    assert (xmpp.item_us, xmpp.call_us) == pytest.approx((200, 0), abs=0.2)


def test_sleep_costs() -> None:
    """A call after sleep costs more, so half of the load takes more than half of the time; a busy process never sleeps."""
    wakes = replace(SIMPLE, redis=Cost(40, 70, 150), beat_us=0)
    service = Service(under_way=0)
    for rate in (1_000, 2_000):
        found = uses(wakes, service, rate, HEARTBEAT_SECONDS)
        assert found.redis_us == pytest.approx(40 + 2 * (70 + 150 * (1 - found.master)))
    assert uses(wakes, service, 10_000, HEARTBEAT_SECONDS).redis_us == 40 + 2 * 70


def test_comparison() -> None:
    """A run that was made of the model's own costs agrees with it; shapes have one, two and four of each."""
    found = Measured("a test", "2026-01-01", {"cores": 2}, 0.0, SIMPLE, replace(SIMPLE, batch=20))
    rows = {row.name: row for row in compare(found, Shape(), 1, _spent(SIMPLE, 2 / 12.5))}
    assert rows["1f_1x_1r_1p_b1_xmpp"].ratio == pytest.approx(1, rel=0.01)
    assert rows["1f_1x_1r_1p_b1_redis"].ratio == pytest.approx(1, rel=0.1)
    for kind in ("frontends", "servers", "masters", "partitions"):
        assert {getattr(shape, kind) for shape in shapes(4)} == {1, 2, 4}
