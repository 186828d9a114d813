"""Loads of known shapes, and what numbers of workers make of them, by the simulator. Must not know the replay."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from tests.analytics.simulator import BEGAN_MS, Laws, Run, simulate

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

Share = Callable[[float], float]
"""The share of the highest rate at a time, in ms since the beginning."""


@dataclass(frozen=True)
class Shape:
    """When items arrive, in ms since the beginning of the simulation, and how long each takes."""

    node: str
    arrivals: Sequence[float]
    services: Sequence[float]

    def run(self, workers: int, began_ms: int = BEGAN_MS) -> Run:
        """Let so many workers do all of it."""
        gaps = (at - before for before, at in zip([0.0, *self.arrivals], self.arrivals, strict=False))
        services = iter(self.services)
        laws = Laws(lambda _: next(gaps), lambda _: next(services), (1,) * workers, node=self.node, began_ms=began_ms)
        return simulate(laws, len(self.arrivals))

    def p95_ms(self, workers: int, since: float = -math.inf, until: float = math.inf) -> float:
        """Return the p95 of the waits of items that arrived between two times."""
        attempts = self.run(workers).attempts
        waits = sorted(
            each.delivered - each.published for each in attempts if since <= each.published - BEGAN_MS < until
        )
        return waits[math.ceil(0.95 * len(waits)) - 1]

    def holds(self, target_ms: float, needed: int, since: float = -math.inf, until: float = math.inf) -> bool:
        """Tell whether so many workers, or one more or less, are the fewest for a target."""
        enough, too_few = (self.p95_ms(workers, since, until) for workers in (needed + 1, max(1, needed - 2)))
        return enough <= target_ms < too_few

    def busiest_hour(self) -> tuple[int, int]:
        """Return the clock hour with the most work."""
        work: dict[int, float] = {}
        for at, took in zip(self.arrivals, self.services, strict=True):
            work[int(at // HOUR_MS)] = work.get(int(at // HOUR_MS), 0.0) + took
        hour = max(work, key=lambda each: work[each])
        return hour * HOUR_MS, (hour + 1) * HOUR_MS


def _make(node: str, arrivals: Iterator[float], service_ms: float, seed: int = 7) -> Shape:
    random, times = Random(seed), sorted(arrivals)
    middle = math.log(service_ms) - 0.25
    return Shape(node, times, [random.lognormvariate(middle, 0.7) for _ in times])


def shape_of(run: Run) -> Shape:
    """Return the load of a run in which every item was acknowledged at once, or waits."""
    rows = sorted(run.attempts, key=lambda each: (each.published, int(each.position.partition("-")[2])))
    node, arrivals = rows[0].node, [each.published - BEGAN_MS + 0.5 for each in rows]
    return Shape(node, arrivals, [each.closed - each.delivered for each in rows])


def young(days: int = 7) -> Shape:
    """Let an item a second come at random for one hour, at the end of many quiet days."""
    random, first = Random(1), days * DAY_MS - HOUR_MS
    return _make("young", (first + random.uniform(0, HOUR_MS) for _ in range(3_600)), 4_500)


def come_and_go(node: str, most_per_s: float, service_ms: float, share: Share, lasts_ms: float) -> Shape:
    """Let items come at random, at each time at a share of the highest rate."""
    random = Random(2)

    def times() -> Iterator[float]:
        at = 0.0
        while (at := at + random.expovariate(most_per_s) * 1000) < lasts_ms:
            if random.random() < share(at):
                yield at

    return _make(node, times(), service_ms)


def daily(rate_per_s: float = 0.15, service_ms: float = 60_000) -> Shape:
    """Let a day's load rise and fall, to 1.8 times its mean."""
    share: Share = lambda at: (1 - 0.8 * math.cos(2 * math.pi * at / DAY_MS)) / 1.8  # noqa: E731
    return come_and_go("daily", 1.8 * rate_per_s, service_ms, share, DAY_MS)


def bursts() -> Shape:
    """Let thirty items a second come for ten seconds of each minute, and hardly any between, for half an hour."""
    random = Random(3)
    calm = (random.uniform(0, 0.5 * HOUR_MS) for _ in range(700))
    storms = (minute * 60_000 + random.uniform(0, 10_000) for minute in range(30) for _ in range(300))
    return _make("bursts", iter([*calm, *storms]), 1_000)


def batches() -> Shape:
    """Let twenty items come at once, every two seconds, for ten minutes."""
    return _make("batches", (second * 2_000.0 + 1 for second in range(300) for _ in range(20)), 500)


def slower() -> Shape:
    """Let an item come each second for three hours; in the last one each takes three times as long."""
    arrivals = [second * 1_000.0 for second in range(1, 3 * 3_600)]
    return Shape("slow", arrivals, [3_000.0 if at < 2 * HOUR_MS else 9_000.0 for at in arrivals])
