"""Replays what came to a node through another number of workers, and reads the waits off it. Pure; must not know Spark.

A worker works on one item at a time: it is one unit of credit. Whoever is ready first is served first, and each attempt takes
as long as it took. So bursts, tides and batches count as they were, and no distribution is assumed.
"""

import heapq
import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from random import Random
from typing import Final, NamedTuple

TARGET_SHARE: Final = 0.95
"""The share of waits that the target must hold for."""

GREATEST_GROWTH: Final = 4.0
"""How many times the demand is tried at most."""

_GROWTH_STEPS: Final = 7
"""Halvings of the growth: each replays once, and seven leave 3 % of the demand at most."""

_NEVER: Final = math.inf


@dataclass(frozen=True, slots=True)
class Rules:
    """What bounds a node besides its workers. Times in ms; 0 is no bound."""

    max_in_flight: int = 0
    interval_ms: float = 0.0
    """Between two deliveries, on average."""
    burst: float = 1.0
    """Deliveries that may come at once after a pause."""
    rest_ms: float = 0.0
    """For which an item that came back rests before its second attempt."""
    backoff: float = 1.0
    longest_rest_ms: float = _NEVER

    def rest(self, attempt: int) -> float:
        """Return how long an item rests after so many attempts."""
        return min(self.rest_ms * self.backoff ** (attempt - 1), self.longest_rest_ms)


class Item(NamedTuple):
    """An item as it came: when it was ready, how long each of its attempts took, and when it expires; all in ms."""

    ready: float
    held: tuple[float, ...]
    expires: float = _NEVER


@dataclass(frozen=True)
class Trace:
    """What came to a node, in order of `ready`.

    Nobody is served before `begin`, and `busy` is when those workers become free that are at work then. Waits count that begin
    from `since` on, before `until`.
    """

    items: Sequence[Item]
    begin: float = -_NEVER
    since: float = -_NEVER
    until: float = _NEVER
    busy: tuple[float, ...] = ()
    rules: Rules = field(default_factory=Rules)

    @cached_property
    def _steps(self) -> list[tuple[float, float, tuple[float, ...], float]]:
        return [(each.ready, each.held[0], each.held[1:], each.expires) for each in self.items]

    def waits(self, workers: int) -> list[float]:
        """Return the waits in ms that so many workers make, in no order."""
        rules, since, until = self.rules, self.since, self.until
        most = min(workers, rules.max_in_flight or workers)
        free = [*sorted(self.busy, reverse=True)[:most]]
        free += [self.begin] * (most - len(free))
        heapq.heapify(free)
        interval, ahead = rules.interval_ms, (rules.burst - 1) * rules.interval_ms
        passed, waits = -_NEVER, []
        # Those that came back, by when they are ready; a number keeps the order of equals.
        back: list[tuple[float, int, tuple[float, ...], int, float]] = []
        number, steps = 0, self._steps
        coming, last = 0, len(steps)
        while coming < last or back:
            if back and (coming == last or back[0][0] < steps[coming][0]):
                ready, _, (held, *rest), attempt, expires = heapq.heappop(back)
                later = tuple(rest)
            else:
                ready, held, later, expires = steps[coming]
                attempt, coming = 1, coming + 1
            start = max(ready, free[0])
            if interval and passed - ahead > start:
                start = passed - ahead
            if start > expires:
                # Nobody got it.
                if since <= ready < until:
                    waits.append(expires - ready)
                continue
            if interval:
                passed = max(passed, start) + interval
            end = start + held
            heapq.heapreplace(free, end)
            if since <= ready < until:
                waits.append(start - ready)
            if later:
                number += 1
                heapq.heappush(back, (end + rules.rest(attempt), number, later, attempt + 1, expires))
        return waits

    @cached_property
    def offered_ms(self) -> float:
        """Return the work of the items that were ready between `since` and `until`, in ms."""
        return sum(sum(held) for ready, held, _ in self.items if self.since <= ready < self.until)

    def most_at_once(self) -> int:
        """Return how many workers would be busy at most if nobody had to wait."""
        ends: list[float] = sorted(self.busy)
        heapq.heapify(ends)
        most = len(ends)
        for ready, held in sorted((max(each.ready, self.begin), sum(each.held)) for each in self.items):
            while ends and ends[0] <= ready:
                heapq.heappop(ends)
            heapq.heappush(ends, ready + held)
            most = max(most, len(ends))
        return max(1, most)

    def scaled(self, factor: float) -> "Trace":
        """Return the trace with so many times the items: some left out, or some doubled, a little apart.

        A doubled item comes as much later as about ten others take, so that tides and bursts stay where they were.
        """
        chance, whole = Random(0), math.floor(factor)  # noqa: S311  (no secret)
        extra = factor - whole
        span = (self.items[-1].ready - self.items[0].ready) if self.items else 0.0
        apart = 10 * span / max(1, len(self.items))
        items: list[Item] = []
        for each in self.items:
            for copy in range(whole + (chance.random() < extra)):
                late = chance.random() * apart if copy else 0.0
                items.append(Item(each.ready + late, each.held, each.expires + late) if late else each)
        items.sort(key=attrgetter("ready"))
        return replace(self, items=items)


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay has shown of a node.

    `needed` is the fewest workers that hold the target, None if its own bounds prevent it; `needed_unbound` is the same without
    these. `curve` has numbers of workers with their p95 wait in ms. `growth` is how many times the demand the given credit
    carries within the target, at most GREATEST_GROWTH; None without credit. `offered` is how many workers are busy on average.
    """

    needed: int | None
    needed_unbound: int
    curve: tuple[tuple[int, float], ...]
    growth: float | None
    offered: float


def p95(waits: Sequence[float]) -> float:
    """Return the least wait that TARGET_SHARE of all do not exceed, in ms; 0 without waits."""
    return sorted(waits)[math.ceil(TARGET_SHARE * len(waits)) - 1] if waits else 0.0


def replay(trace: Trace, target_ms: float, credit: int) -> Replayed:
    """Find the workers that a trace needs, and the waits with others."""
    known: dict[int, float] = {}

    def wait(workers: int) -> float:
        if workers not in known:
            known[workers] = p95(trace.waits(workers))
        return known[workers]

    most = trace.most_at_once()
    needed = _least(1, most, lambda workers: wait(workers) <= target_ms)
    unbound = needed
    if needed is None:
        free = replace(trace, rules=replace(trace.rules, max_in_flight=0, interval_ms=0.0))
        unbound = _least(1, most, lambda workers: p95(free.waits(workers)) <= target_ms)
    # Without bounds nobody waits when there are as many workers as can be busy, but after an attempt that came back.
    unbound = most if unbound is None else unbound
    middle = needed or unbound
    shown = {middle + step for step in range(-2, 4)} | {credit, round(middle * 0.75), round(middle * 1.25)}
    curve = tuple((workers, wait(workers)) for workers in sorted(shown) if workers > 0)
    offered = trace.offered_ms / (trace.until - trace.since)
    growth = _growth(trace, target_ms, credit, offered) if credit else None
    return Replayed(needed, unbound, curve, growth, offered)


def _least(low: int, high: int, enough: Callable[[int], bool]) -> int | None:
    """Return the least number from `low` to `high` that is enough; None if `high` is not. More is never worse."""
    if not enough(high):
        return None
    return low + bisect_left(range(low, high), 1, key=enough)


def _growth(trace: Trace, target_ms: float, credit: int, offered: float) -> float:
    def holds(factor: float) -> bool:
        return p95(trace.scaled(factor).waits(credit)) <= target_ms

    # With more work than workers could ever do, waits only grow.
    low, high = 0.0, min(GREATEST_GROWTH, 1.5 * credit / offered) if offered else GREATEST_GROWTH
    if holds(high):
        return high
    for _ in range(_GROWTH_STEPS):
        middle = (low + high) / 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return low
