"""The simulation agrees with queueing theory, with the model at low load, and with the product's own rhythm."""

import pytest

from broker.analytics.queueing import erlang_c
from broker.model.nodes import MAX_SUBSCRIBERS
from broker.scaling.costs import Cost, Costs, read_costs
from broker.scaling.model import US, Service, uses
from frontends.tools.bench.predicted import TIMING
from frontends.tools.bench.simulate import Asked, refusal, uses_by_name
from frontends.tools.bench.simulation import NETWORK_S, Simulation

FREE = Cost(0, 0)
MASTER_ONLY = Costs(
    redis=Cost(0, 100),
    frontend=FREE,
    xmpp=FREE,
    exchange=FREE,
    exchange_calls=0,
    coordinator_us=0,
    sweep_us=0,
    beat_us=0,
    beat_frontend_us=0,
)


@pytest.mark.parametrize("use", [0.3, 0.7])
def test_wait_of_one_server(use: float) -> None:
    """Calls of one length that come at random wait as in M/D/1 (Pollaczek and Khinchine): use · service / 2(1 - use)."""
    service_s = 100 / US
    queues = Service(queues=5_000)
    seen = Simulation(MASTER_ONLY, queues, use / service_s / 2, workers=100_000, work_s=0.5).run(0.5, 6.0)
    assert seen.master_busy[0] / seen.seconds == pytest.approx(use, rel=0.03)
    assert seen.wait_s == pytest.approx(use * service_s / 2 / (1 - use), rel=0.1)


def test_workers_wait_as_a_pool() -> None:
    """Items that find no free worker are as many as Erlang's formula says: M/M/c with ten workers, eight at work."""
    work_s, rate = 0.1, 80.0
    seen = Simulation(MASTER_ONLY, Service(), rate, workers=10, work_s=work_s).run(10.0, 200.0)
    # A worker is not free while its acknowledgement and the next item are on their way.
    offered = rate * (work_s + 2 * (NETWORK_S + 100 / US))
    assert seen.without_credit / seen.published == pytest.approx(erlang_c(10, offered), rel=0.12)
    assert seen.rate == pytest.approx(rate, rel=0.05)


def test_more_than_workers_can_do() -> None:
    """With too few workers, what they can do is done."""
    seen = Simulation(MASTER_ONLY, Service(), 200.0, workers=10, work_s=0.1).run(5.0, 50.0)
    assert seen.rate == pytest.approx(100, rel=0.07)


def test_low_load_agrees_with_the_model() -> None:
    """Far below any limit, each kind of process is as busy as the model says, and sweeps as often."""
    costs, rate = read_costs().single, 300.0
    service = Service(frontends=20, masters=5, queues=50, servers=2)
    seen = Simulation(costs, service, rate, workers=10_000, work_s=1.0).run(4.0, 8.0)
    expected = uses(costs, service, rate, TIMING)
    assert sum(seen.master_busy) / seen.seconds == pytest.approx(rate * expected.redis_us / US, rel=0.1)
    assert sum(seen.frontend_busy) / seen.seconds == pytest.approx(rate * expected.frontend_us / US, rel=0.1)
    assert seen.xmpp_busy / seen.seconds == pytest.approx(rate * expected.xmpp_us / US, rel=0.1)
    assert seen.sweeps / seen.seconds == pytest.approx(expected.sweeps, rel=0.1)


def test_one_sweep_of_a_rare_delivery() -> None:
    """A delivery that no call follows is reported by one sweep, as in the product (tests/contract/test_promptness.py)."""
    service, rate = Service(frontends=100, queues=1_000), 100.0
    seen = Simulation(MASTER_ONLY, service, rate, workers=10_000, work_s=1.0).run(4.0, 30.0)
    assert seen.sweeps / seen.seconds == pytest.approx(rate, rel=0.1)


def test_what_is_used_up() -> None:
    """A queue with half of the jobs uses up its master before any other; the whole is limited where a real one is."""
    costs = read_costs().single
    service = Asked(frontends=10, masters=10, queues=100, hottest=0.5).service()
    seen = Simulation(costs, service, 6_000.0, workers=100_000, work_s=0.5).run(0.3, 0.3)
    found = uses_by_name(seen, service)
    assert max(found, key=lambda name: found[name]) == "hot_master"
    assert found["masters"] < found["hot_master"]
    assert refusal(Asked()) == ""
    assert f"{MAX_SUBSCRIBERS:,} subscribers" in refusal(Asked(queues=1))


def test_credit_of_partitions() -> None:
    """In a queue of several partitions each item gets credit from the first one: its master is the busiest."""
    service = Service(frontends=4, masters=8, partitions=8)
    simulation = Simulation(read_costs().single, service, 1_000.0, workers=10_000, work_s=0.5)
    seen = simulation.run(0.5, 2.0)
    assert seen.rate == pytest.approx(1_000, rel=0.1)
    alone = Simulation(read_costs().single, Service(frontends=4, masters=8), 1_000.0, workers=10_000, work_s=0.5)
    assert sum(seen.master_busy) > sum(alone.run(0.5, 2.0).master_busy)
