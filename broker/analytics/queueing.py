"""Queueing theory of a pool of workers, in closed forms. Pure, standard library only; knows numbers, no records.

A worker works on one item at a time: it is one unit of credit. Waits follow Allen and Cunneen: the exact result for
Poisson arrivals and exponential services (Erlang C), scaled by how much both vary.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

TARGET_SHARE: Final = 0.95
"""The share of waits that the target must hold for."""

_MOST_WORKERS: Final = 100_000


@dataclass(frozen=True, slots=True)
class Load:
    """The load on the workers. A variation is variance over squared mean: 0 at a fixed pace, 1 at random."""

    rate_per_s: float
    service_s: float
    arrival_variation: float = 1.0
    service_variation: float = 1.0

    @property
    def offered(self) -> float:
        """Return how many workers are busy on average (in erlangs)."""
        return self.rate_per_s * self.service_s


def erlang_c(workers: int, offered: float) -> float:
    """Return the probability that an item must wait; 1 when the workers cannot keep up."""
    if offered >= workers:
        return 1.0
    # The recursion of Erlang B neither overflows nor cancels.
    blocked = 1.0
    for number in range(1, workers + 1):
        blocked = offered * blocked / (number + offered * blocked)
    return blocked / (1 - offered / workers * (1 - blocked))


def wait_s(load: Load, workers: int, share: float = TARGET_SHARE) -> float:
    """Return the wait that a share of the items stays below; infinite when the workers cannot keep up."""
    if load.offered >= workers:
        return math.inf
    waits = erlang_c(workers, load.offered)
    if waits <= 1 - share:
        return 0.0
    variation = (load.arrival_variation + load.service_variation) / 2
    return variation * load.service_s / (workers - load.offered) * math.log(waits / (1 - share))


def workers_for(load: Load, target_s: float, share: float = TARGET_SHARE) -> int | None:
    """Return the fewest workers that keep the wait within the target; None when no sensible number does."""
    least = math.floor(load.offered) + 1
    return _find_least(least, lambda workers: wait_s(load, workers, share) <= target_s)


def rate_for(load: Load, workers: int, target_s: float, share: float = TARGET_SHARE) -> float:
    """Return the highest rate at which the workers keep the wait within the target."""
    if load.service_s <= 0:
        return math.inf
    low, high = 0.0, workers / load.service_s
    # Each step halves the interval: forty leave less than a part in 10**12.
    for _ in range(40):
        middle = (low + high) / 2
        if wait_s(replace(load, rate_per_s=middle), workers, share) <= target_s:
            low = middle
        else:
            high = middle
    return low


def drain_s(waiting: float, load: Load, workers: float) -> float:
    """Return how long the backlog takes to drain while new items arrive; infinite when it grows."""
    if waiting <= 0:
        return 0.0
    if load.service_s <= 0:
        return 0.0 if workers > 0 else math.inf
    spare = workers / load.service_s - load.rate_per_s
    return waiting / spare if spare > 0 else math.inf


def _find_least(least: int, enough: Callable[[int], bool]) -> int | None:
    """Search by doubling, then by halving. `enough` must be monotonic."""
    most, step = least, 1
    while most <= _MOST_WORKERS and not enough(most):
        least, most, step = most + 1, most + step, step * 2
    if most > _MOST_WORKERS:
        return None
    while least < most:
        middle = (least + most) // 2
        least, most = (least, middle) if enough(middle) else (middle + 1, most)
    return most
