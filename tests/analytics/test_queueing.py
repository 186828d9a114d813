"""The closed forms of queueing theory, against tables, against each other, and against simulated queues."""

import math

import pytest

from broker.analytics.queueing import Load, drain_s, erlang_c, rate_for, wait_s, workers_for
from tests.analytics.simulator import Law, Laws, bursts, exponential, lognormal, simulate


@pytest.mark.parametrize(
    ("workers", "offered", "expected"),
    [
        (1, 0.7, 0.7),
        (2, 1.0, 1 / 3),
        (3, 2.0, 4 / 9),
        (10, 8.0, 0.4092),
        (100, 90.0, 0.2169),
        (2, 2.0, 1.0),
        (4, 0.0, 0.0),
    ],
)
def test_erlang_c(workers: int, offered: float, expected: float) -> None:
    """The probability of waiting is that of the published tables; with too few workers everybody waits."""
    assert erlang_c(workers, offered) == pytest.approx(expected, abs=5e-5)


def test_one_worker() -> None:
    """With one worker and random arrivals, the wait has the closed form of M/M/1."""
    load = Load(0.8, 1.0)
    assert wait_s(load, 1, 0.95) == pytest.approx(math.log(0.8 / 0.05) / 0.2)
    assert wait_s(load, 1, 0.2) == 0


def test_unstable() -> None:
    """At and above the workers' capacity, the wait grows without end."""
    assert wait_s(Load(10.0, 0.5), 5) == wait_s(Load(10.0, 0.6), 5) == math.inf
    assert drain_s(100, Load(10.0, 0.5), 5) == math.inf


@pytest.mark.parametrize("target_s", [0.0, 0.1, 2.0, 60.0])
@pytest.mark.parametrize("load", [Load(10.0, 0.5), Load(2000.0, 3.0, 4.0, 2.0), Load(0.01, 0.2), Load(10.0, 0.0)])
def test_workers_for_is_the_least(load: Load, target_s: float) -> None:
    """So many workers meet the target, and one fewer does not."""
    workers = workers_for(load, target_s)
    assert workers is not None
    assert wait_s(load, workers) <= target_s
    assert workers == 1 or wait_s(load, workers - 1) > target_s


def test_no_number_of_workers_suffices() -> None:
    """Beyond any sensible number of workers no number is returned, and the search ends."""
    assert workers_for(Load(1e9, 1e3), 2.0) is None


@pytest.mark.parametrize("target_s", [0.1, 2.0])
def test_rate_for_is_the_highest(target_s: float) -> None:
    """At the returned rate the target is met, and a thousandth above it is not."""
    rate = rate_for(Load(1.0, 0.5, 1.0, 0.6), 6, target_s)
    assert wait_s(Load(rate, 0.5, 1.0, 0.6), 6) <= target_s < wait_s(Load(rate * 1.001, 0.5, 1.0, 0.6), 6)


def test_drain() -> None:
    """A backlog shrinks at the workers' spare rate."""
    assert drain_s(120, Load(8.0, 0.5), 6) == pytest.approx(30)
    assert drain_s(0, Load(100.0, 0.5), 1) == 0
    assert drain_s(5, Load(1.0, 0.0), 1) == 0


@pytest.mark.parametrize(
    ("arrivals", "services", "load"),
    [
        (exponential(100), exponential(500), Load(10.0, 0.5)),
        (exponential(100), lognormal(500, 0.7), Load(10.0, 0.5, 1.0, math.exp(0.49) - 1)),
        (bursts(100), exponential(500), Load(10.0, 0.5, 4.0)),
    ],
    ids=["chance", "lognormal services", "bursts"],
)
def test_a_queue_played_through(arrivals: Law, services: Law, load: Load) -> None:
    """The expected wait is within 15 % of the simulated one."""
    run = simulate(Laws(arrivals, services, (6,)), 60_000, seed=3)
    waits = sorted(attempt.delivered - attempt.ready for attempt in run.attempts)
    assert wait_s(load, 6) == pytest.approx(waits[int(len(waits) * 0.95)] / 1000, rel=0.15)
