"""A discrete-event simulation of a service of many processes: calls, sleep, heartbeats, sweeps and credit. Must not know targets.

Frontends and masters are queues of one server each, first come, first served; pairs of a frontend and a partition have one call
under way, and the rhythm of heartbeats and sent marks is the product's own. What does not depend on single ones is added up: the
workers of a queue are a number with a bound, whose service times are exponential, so that any of them may be next; XMPP servers
are processor time without a wait; and sweeps keep no call waiting in their pipelines.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from random import Random
from typing import Final

from broker.redis_core.maintenance.heartbeat import HEARTBEAT_SECONDS, MAX_SWEEPS
from broker.redis_core.partitions.send_marks import SendMarks
from broker.redis_core.redis_client.connections import MOST as MOST_CONNECTIONS
from broker.scaling.costs import Costs
from broker.scaling.model import US, Service

NETWORK_S: Final = 0.0001
"""The way of a message between two machines, one direction."""

_JITTER: Final = 0.2
_SPARE: Final = 20

_Command = tuple[float, Callable[[float], None]]
"""What a command costs Redis in µs, and what is done with its answer."""


@dataclass(slots=True)
class Seen:
    """What happened in the measured part of a run, and how long that was. Times in seconds, by process if there are several."""

    seconds: float = 0.0
    jobs: int = 0
    sweeps: int = 0
    master_busy: list[float] = field(default_factory=list)
    frontend_busy: list[float] = field(default_factory=list)
    xmpp_busy: float = 0.0
    calls: int = 0
    waited: float = 0.0
    published: int = 0
    without_credit: int = 0
    hot_master: int = 0
    most_connections: int = 0

    @property
    def rate(self) -> float:
        """Finished jobs a second."""
        return self.jobs / self.seconds

    @property
    def wait_s(self) -> float:
        """The mean wait of a call of jobs at its master."""
        return self.waited / self.calls if self.calls else 0.0


@dataclass(slots=True)
class _Pair:
    """A frontend's pipeline of one partition: what waits for its next call, whether one is under way, and its sent marks."""

    frontend: int
    partition: int
    waiting: list[_Command] = field(default_factory=list)
    open: bool = False
    marks: SendMarks = field(default_factory=SendMarks)


class Simulation:
    """One run of a service at a rate of jobs."""

    def __init__(  # noqa: PLR0913  (what is simulated)
        self, costs: Costs, service: Service, rate: float, *, workers: int, work_s: float, seed: int = 1
    ) -> None:
        """Begin with as many items at work as there are on average."""
        self._costs, self._service, self._rate = costs, service, rate
        self._random = Random(seed)  # noqa: S311  (guards nothing)
        self._numbers = count()
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._free_frontend = [0.0] * service.frontends
        self._free_master = [0.0] * service.masters
        self._master_of = [self._random.randrange(service.masters) for _ in range(service.queues * service.partitions)]
        self._pairs: dict[tuple[int, int], _Pair] = {}
        self._unreported: list[dict[int, _Pair]] = [{} for _ in range(service.frontends)]
        self._under_way: dict[tuple[int, int], int] = {}
        self._connections: dict[tuple[int, int], int] = {}
        self._work_s, self._drawn = work_s, 0
        self._hot = max(service.hottest, 1 / service.queues)
        shares = [self._hot, *([(1 - self._hot) / max(1, service.queues - 1)] * (service.queues - 1))]
        self._credit = [max(1, round(workers * share)) for share in shares]
        self._backlog = [0] * service.queues
        self._busy = [0] * service.queues
        self._at_work: list[int] = []
        for _ in range(round(min(rate * work_s, workers))):
            self._begin_work(self._some_partition())
        self._seen = Seen()
        self._from = 0.0

    def run(self, settle_s: float, seconds: float) -> Seen:
        """Run for a time to settle, then measure."""
        random, service = self._random, self._service
        self._schedule_at(random.expovariate(self._rate), self._arrive)
        self._schedule_at(self._next_end(), self._end_work)
        for frontend in range(service.frontends):
            self._schedule_at(random.uniform(0, HEARTBEAT_SECONDS), partial(self._beat, frontend))
        self._from = settle_s
        self._seen = Seen(
            seconds,
            master_busy=[0.0] * service.masters,
            frontend_busy=[0.0] * service.frontends,
            hot_master=self._master_of[0],
        )
        until, events, pop = settle_s + seconds, self._events, heapq.heappop
        while events[0][0] < until:
            now, _, happen = pop(events)
            happen(now)
        by_master = [0] * service.masters
        for (_, master), opened in self._connections.items():
            by_master[master] += min(opened, MOST_CONNECTIONS)
        self._seen.most_connections = max(by_master)
        return self._seen

    def _schedule_at(self, when: float, happen: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (when, next(self._numbers), happen))

    def _some_partition(self) -> int:
        service, random = self._service, self._random
        queue = 0
        if service.queues > 1 and random.random() >= self._hot:
            queue = 1 + int(random.random() * (service.queues - 1))
        return queue * service.partitions + (int(random.random() * service.partitions) if service.partitions > 1 else 0)

    # What comes from clients.

    def _arrive(self, now: float) -> None:
        self._schedule_at(now + self._random.expovariate(self._rate), self._arrive)
        self._request(now, self._some_partition(), self._on_published)

    def _end_work(self, now: float) -> None:
        """End the work on any item: services are exponential, so it may be any.

        The next end is drawn as if a few more were at work, and then happens with the probability that it is of one that is.
        """
        at_work, drawn = self._at_work, self._drawn
        self._schedule_at(now + self._next_end(), self._end_work)
        index = int(self._random.random() * drawn)
        if index < len(at_work):
            partition = at_work[index]
            at_work[index] = at_work[-1]
            at_work.pop()
            self._request(now, partition, self._on_acknowledged)

    def _next_end(self) -> float:
        self._drawn = len(self._at_work) + len(self._at_work) // 8 + _SPARE
        return self._random.expovariate(self._drawn) * self._work_s

    def _request(self, now: float, partition: int, done: Callable[[_Pair, float], None]) -> None:
        """Let a frontend read a stanza and hand its command to the pipeline."""
        frontend = int(self._random.random() * self._service.frontends)
        if now >= self._from:
            self._seen.xmpp_busy += self._costs.xmpp.item_us / 2 / US
        asleep = self._free_frontend[frontend] < now
        read = self._spend_frontend(frontend, now, self._costs.frontend.item_us / 2)
        self._schedule_at(read, partial(self._submit, frontend, partition, done, asleep))

    # Frontends, pipelines and masters.

    def _spend_frontend(self, frontend: int, now: float, us: float) -> float:
        free = self._free_frontend
        done = free[frontend] = max(free[frontend], now) + us / US
        if now >= self._from:
            self._seen.frontend_busy[frontend] += us / US
        return done

    def _pair(self, frontend: int, partition: int) -> _Pair:
        found = self._pairs.get((frontend, partition))
        if found is None:
            found = self._pairs[frontend, partition] = _Pair(frontend, partition)
        return found

    def _submit(
        self,
        frontend: int,
        partition: int,
        done: Callable[[_Pair, float], None],
        asleep: bool,  # noqa: FBT001
        now: float,
    ) -> None:
        pair = self._pair(frontend, partition)
        pair.waiting.append((self._costs.redis.item_us / 2, partial(done, pair)))
        if not pair.open:
            self._call(pair, now, asleep=asleep)

    def _call(self, pair: _Pair, now: float, *, asleep: bool = False) -> None:
        """Send everything that waits in one call."""
        commands, pair.waiting = pair.waiting, []
        pair.open = True
        cost = self._costs.frontend
        sent = self._spend_frontend(pair.frontend, now, cost.call_us + (cost.wake_us if asleep else 0.0))
        if now >= self._from:
            self._seen.xmpp_busy += self._costs.xmpp.call_us / US
        self._look(pair, now)
        pair.marks.report()
        items_us = commands[0][0] if len(commands) == 1 else sum(us for us, _ in commands)
        self._schedule_at(sent + NETWORK_S, partial(self._serve, pair, items_us, commands))
        link = (pair.frontend, self._master_of[pair.partition])
        opened = self._under_way[link] = self._under_way.get(link, 0) + 1
        if opened > self._connections.get(link, 0):
            self._connections[link] = opened

    @staticmethod
    def _look(pair: _Pair, now: float) -> bool:
        """Look once a second what is sent, as the pipeline does; returns whether there is something to report."""
        marks = pair.marks
        if now >= marks.look_at:
            marks.flushed(now, closing=False)
        return marks.sent != marks.reported

    def _serve(self, pair: _Pair, items_us: float, commands: list[_Command], now: float) -> None:
        cost, master = self._costs.redis, self._master_of[pair.partition]
        free = self._free_master[master]
        asleep = free < now
        if now >= self._from:
            self._seen.waited += max(0.0, free - now)
            self._seen.calls += 1
        us = items_us + cost.call_us + (cost.wake_us if asleep else 0.0)
        done = self._spend_master(master, now, us)
        self._schedule_at(done + NETWORK_S, partial(self._answer, pair, commands))

    def _spend_master(self, master: int, now: float, us: float) -> float:
        free = self._free_master
        begun = max(free[master], now)
        free[master] = begun + us / US
        if now >= self._from:
            self._seen.master_busy[master] += us / US
        return free[master]

    def _answer(self, pair: _Pair, commands: list[_Command], now: float) -> None:
        self._under_way[pair.frontend, self._master_of[pair.partition]] -= 1
        pair.open = False
        for _, done in commands:
            done(now)
        if pair.open:
            # What was done with an answer has begun the next call.
            return
        if pair.waiting:
            self._call(pair, now)
        elif pair.marks.received > pair.marks.reported:
            self._unreported[pair.frontend][pair.partition] = pair
        else:
            self._forget(pair)

    # The queue.

    def _on_published(self, pair: _Pair, now: float) -> None:
        queue = pair.partition // self._service.partitions
        if now >= self._from:
            self._seen.published += 1
        if self._busy[queue] >= self._credit[queue]:
            self._backlog[queue] += 1
            if now >= self._from:
                self._seen.without_credit += 1
        elif self._service.partitions == 1:
            self._deliver(pair)
        else:
            self._ask_coordinator(pair, now)

    def _on_acknowledged(self, pair: _Pair, now: float) -> None:
        queue = pair.partition // self._service.partitions
        self._busy[queue] -= 1
        if now >= self._from:
            self._seen.jobs += 1
        if self._backlog[queue]:
            self._backlog[queue] -= 1
            if self._service.partitions == 1:
                self._deliver(pair)
            else:
                self._ask_coordinator(pair, now)

    def _ask_coordinator(self, pair: _Pair, now: float) -> None:
        """Get credit from the first partition, and hand the item out under it: two calls."""
        home = pair.partition // self._service.partitions * self._service.partitions
        coordinator = self._pair(pair.frontend, home)
        coordinator.waiting.append((self._costs.coordinator_us, partial(self._on_granted, pair)))
        if not coordinator.open:
            self._call(coordinator, now)

    def _on_granted(self, pair: _Pair, now: float) -> None:
        pair = self._pair(pair.frontend, pair.partition)
        exchange_us = max(0.0, self._costs.exchange.item_us - self._costs.coordinator_us)
        pair.waiting.append((exchange_us, lambda _: self._deliver(pair)))
        if not pair.open:
            self._call(pair, now)

    def _deliver(self, pair: _Pair) -> None:
        pair.marks.received += 1
        self._begin_work(pair.partition)

    def _begin_work(self, partition: int) -> None:
        self._at_work.append(partition)
        self._busy[partition // self._service.partitions] += 1

    # Heartbeats.

    def _beat(self, frontend: int, now: float) -> None:
        pause = HEARTBEAT_SECONDS * self._random.uniform(1 - _JITTER, 1 + _JITTER)
        self._schedule_at(now + pause, partial(self._beat, frontend))
        sent = self._spend_frontend(frontend, now, self._costs.beat_frontend_us)
        self._schedule_at(sent + NETWORK_S, self._serve_beat)
        room, reported = MAX_SWEEPS, []
        for pair in self._unreported[frontend].values():
            if room and not pair.open and self._look(pair, now):
                room -= 1
                sent = self._sweep(pair, now, sent)
                if not pair.marks.unreported:
                    reported.append(pair)
        for pair in reported:
            self._forget(pair)

    def _serve_beat(self, now: float) -> None:
        self._spend_master(0, now, self._costs.beat_us)

    def _sweep(self, pair: _Pair, now: float, sent: float) -> float:
        """Sweep a partition; returns when the frontend has sent that."""
        if now >= self._from:
            self._seen.sweeps += 1
        pair.marks.report()
        sent = self._spend_frontend(pair.frontend, sent, self._costs.frontend.call_us)
        self._schedule_at(sent + NETWORK_S, partial(self._serve_sweep, self._master_of[pair.partition]))
        return sent

    def _serve_sweep(self, master: int, now: float) -> None:
        self._spend_master(master, now, self._costs.sweep_us)

    def _forget(self, pair: _Pair) -> None:
        """Drop a pipeline with nothing to send or to report."""
        self._unreported[pair.frontend].pop(pair.partition, None)
        self._pairs.pop((pair.frontend, pair.partition), None)
