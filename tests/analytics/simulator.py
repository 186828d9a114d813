"""A queue in plain Python: arrivals and services of known laws, workers with credit, and what goes wrong with deliveries.

It gives what the journal of such a queue would hold, in the records' own terms and in the form that stands in Redis, and
keeps its own account of how many items wait and are worked on. Knows the journal's schema; must not know Spark.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from random import Random
from typing import Final

from broker.journal.schema import AttemptEnd

Law = Callable[[Random], float]
"""Draws one duration in ms."""

BEGAN_MS: Final = 1_767_225_600_000
"""2026-01-01, midnight UTC."""


def exponential(mean_ms: float) -> Law:
    """Draw by chance alone: variation 1."""
    return lambda random: random.expovariate(1 / mean_ms)


def steady(mean_ms: float) -> Law:
    """Draw always the same: variation 0."""
    return lambda _: mean_ms


def lognormal(mean_ms: float, sigma: float) -> Law:
    """Draw mostly short ones and sometimes a long one: variation e^sigma² - 1."""
    middle = math.log(mean_ms) - sigma * sigma / 2
    return lambda random: random.lognormvariate(middle, sigma)


def bursts(mean_ms: float, share: float = 0.1127) -> Law:
    """Draw from two exponentials with balanced means (hyperexponential): variation 4 with the given share."""
    fast, slow = mean_ms / (2 * (1 - share)), mean_ms / (2 * share)
    return lambda random: random.expovariate(1 / (slow if random.random() < share else fast))


@dataclass(frozen=True, slots=True)
class Mishaps:
    """How often a delivery goes wrong, and what it costs: shares of all deliveries."""

    expired: float = 0.0
    released: float = 0.0
    bounced: float = 0.0
    cancelled: float = 0.0
    lock_ms: float = 5000.0
    max_deliveries: int = 20


@dataclass(frozen=True, slots=True)
class Laws:
    """A queue and what is asked of it; `workers` are the credits of its subscribers."""

    arrivals: Law
    services: Law
    workers: tuple[int, ...]
    mishaps: Mishaps = Mishaps()
    partitions: int = 1
    node: str = "jobs"
    incarnation: str = "8e71964d"
    began_ms: int = BEGAN_MS


@dataclass(frozen=True, slots=True)
class Attempt:
    """One closed delivery attempt; times in ms since 1970."""

    node: str
    incarnation: str
    partition: int
    position: str
    type: str
    item: str
    published: int
    ready: int
    delivered: int
    closed: int
    attempt: int
    subscriber: str
    frontend: str
    bytes: int
    token: int
    reason: str

    def stored(self) -> dict[str, str]:
        """Write it as the script does (lua/lib/items/journal.lua)."""
        who = self.subscriber
        lock = (
            f"{self.frontend} {self.token} {self.token} {self.attempt} 4503599627370495 {self.position} {self.delivered}"
            f" {self.bytes} {len(who.encode())} {who} {self.item}"
        )
        return {"type": self.type, "closed": str(self.closed), "lock": lock, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Item:
    """What was published and is still on its way."""

    node: str
    incarnation: str
    partition: int
    position: str
    name: str
    published: int
    bytes: int


@dataclass(slots=True)
class Run:
    """What a simulated queue did until its last moment."""

    attempts: list[Attempt] = field(default_factory=list)
    waiting: list[Item] = field(default_factory=list)
    in_flight: int = 0
    ended_ms: float = 0.0
    waiting_integral: float = 0.0
    in_flight_integral: float = 0.0
    """Items times ms, kept as things happened."""


class Queue:
    """One run of a queue; ends when all is done, or at `until_ms` after its beginning."""

    def __init__(self, laws: Laws, seed: int) -> None:
        """Begin empty."""
        self.laws = laws
        self.random = Random(seed)
        self.run = Run()
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._numbers = count()
        self._ready: list[tuple[float, int, Item, int]] = []
        self._free = dict(enumerate(laws.workers))
        self._turns = deque(self._free)
        self._tokens = [0] * laws.partitions
        self._last_id = [(0, 0)] * laws.partitions
        self._now = 0.0

    def play(self, items: int, until_ms: float = float("inf")) -> Run:
        """Let so many items arrive."""
        self._arrivals = iter(range(items))
        self._arrive_next(0.0)
        while self._events and self._events[0][0] <= until_ms:
            now, _, happen = heapq.heappop(self._events)
            self._pass(now)
            happen(now)
            self._dispatch(now)
        if until_ms < float("inf"):
            self._pass(until_ms)
        self.run.ended_ms = self._now
        self.run.waiting = [item for _, _, item, _ in sorted(self._ready)]
        return self.run

    def _pass(self, now: float) -> None:
        elapsed, self._now = now - self._now, now
        self.run.waiting_integral += elapsed * len(self._ready)
        self.run.in_flight_integral += elapsed * self.run.in_flight

    def _at(self, when: float, happen: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (when, next(self._numbers), happen))

    def _arrive_next(self, now: float) -> None:
        number = next(self._arrivals, None)
        if number is not None:
            self._at(now + self.laws.arrivals(self.random), partial(self._arrive, number))

    def _arrive(self, number: int, now: float) -> None:
        partition = self.random.randrange(self.laws.partitions)
        stamp = self.laws.began_ms + int(now)
        last, sequence = self._last_id[partition]
        self._last_id[partition] = (stamp, sequence + 1 if stamp == last else 0)
        position = "{}-{}".format(*self._last_id[partition])
        size = 100 + self.random.randrange(400)
        item = Item(self.laws.node, self.laws.incarnation, partition, position, f"job-{number}", stamp, size)
        self._return(now, item, 1)
        self._arrive_next(now)

    def _return(self, now: float, item: Item, attempt: int) -> None:
        heapq.heappush(self._ready, (now, next(self._numbers), item, attempt))

    def _dispatch(self, now: float) -> None:
        while self._ready and self._turns:
            ready, _, item, attempt = heapq.heappop(self._ready)
            worker = self._turns[0]
            self._turns.popleft()
            self._free[worker] -= 1
            if self._free[worker]:
                self._turns.append(worker)
            self.run.in_flight += 1
            kind, held = self._fate(attempt)
            self._tokens[item.partition] += 1
            closed = now + held
            who = f"worker{worker}@example.org/é {worker}"
            began = self.laws.began_ms
            times = (item.published, began + int(ready), began + int(now), began + int(closed))
            record = Attempt(
                *(item.node, item.incarnation, item.partition, item.position, kind.value, item.name, *times, attempt),
                *(
                    who,
                    "f1",
                    item.bytes,
                    self._tokens[item.partition],
                    "" if kind is AttemptEnd.ACKNOWLEDGED else "told so",
                ),
            )
            self._at(closed, partial(self._close, record, item, worker))

    def _fate(self, attempt: int) -> tuple[AttemptEnd, float]:
        laws, mishaps, chance = self.laws, self.laws.mishaps, self.random.random()
        held = laws.services(self.random)
        last = attempt >= mishaps.max_deliveries
        if chance < mishaps.expired:
            return AttemptEnd.DEAD_LETTERED if last else AttemptEnd.EXPIRED, mishaps.lock_ms
        if chance < mishaps.expired + mishaps.released:
            return AttemptEnd.DEAD_LETTERED if last else AttemptEnd.RELEASED, held / 2
        if chance < mishaps.expired + mishaps.released + mishaps.bounced:
            return AttemptEnd.DEAD_LETTERED if last else AttemptEnd.BOUNCED, 1.0
        if chance < mishaps.expired + mishaps.released + mishaps.bounced + mishaps.cancelled:
            return AttemptEnd.CANCELLED, held / 2
        return AttemptEnd.ACKNOWLEDGED, held

    def _close(self, record: Attempt, item: Item, worker: int, now: float) -> None:
        self.run.attempts.append(record)
        self.run.in_flight -= 1
        if not self._free[worker]:
            self._turns.append(worker)
        self._free[worker] += 1
        if record.type in {AttemptEnd.EXPIRED.value, AttemptEnd.RELEASED.value, AttemptEnd.BOUNCED.value}:
            self._return(now, item, record.attempt + 1)


def simulate(laws: Laws, items: int, seed: int = 1, until_ms: float = float("inf")) -> Run:
    """Run a queue once."""
    return Queue(laws, seed).play(items, until_ms)


def entries(run: Run) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Give each record with the key of its stream and an id there, in the order in which they are written."""
    last: dict[str, tuple[int, int]] = {}
    for attempt in sorted(run.attempts, key=lambda attempt: attempt.closed):
        key = f"sq:{{{attempt.node}@{attempt.incarnation}/{attempt.partition}}}:journal"
        stamp, sequence = last.get(key, (0, 0))
        last[key] = (attempt.closed, sequence + 1 if stamp == attempt.closed else 0)
        yield key, "{}-{}".format(*last[key]), attempt.stored()
