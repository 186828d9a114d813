"""The model of a service: how busy each kind of process is at a rate of jobs, and which limit comes first. Pure; knows costs.

Rates are jobs a second, costs are µs of processor time, a use is a share of what there is. Frontends and Redis masters have one
thread that counts; an XMPP server uses several cores. docs/scaling.md explains it.
"""

from dataclasses import dataclass
from typing import Final

from broker.scaling.costs import Cost, Costs

US: Final = 1_000_000
"""Microseconds of a second."""

SAFE_USE: Final = 0.7
"""The use to plan for: at 0.7 an M/D/1 queue waits for 1.2 services on average, at 0.9 for 4.5."""

_OPERATIONS: Final = 2
"""The operations of a job: publish, which delivers, and acknowledge."""

_STAGES: Final = 4
"""A job is on its way to Redis for an operation, or from there, about a quarter of its time: measured with windows of jobs."""


@dataclass(frozen=True, slots=True)
class Service:
    """The processes, and how the load spreads over them.

    `partitions` are those of each of `queues`, owned by a group if they are several: then each costs as much as a queue of one.
    `hottest` is the busiest queue's share of all jobs, at least an even one.
    `server_cores` are those of each XMPP server. `shared_cores`: all processes share so many; None: each has its own. `latency_s`
    is how long a job is under way without its worker: 1.5 ms of an idle service, divided by 1 - SAFE_USE as in M/M/1;
    `under_way`, if given, is how many jobs are, whatever the rate.
    """

    frontends: int = 1
    servers: int = 1
    masters: int = 1
    queues: int = 1
    partitions: int = 1
    hottest: float = 0.0
    server_cores: int = 2
    shared_cores: float | None = None
    latency_s: float = 0.005
    under_way: float | None = None

    @property
    def pairs(self) -> int:
        """Return how many pairs of a frontend and a partition there are: each makes calls of its own."""
        return self.frontends * self.queues * self.partitions

    @property
    def hot_share(self) -> float:
        """Return the share of all jobs on the busiest master: its part of the busiest queue, and an even part of the others."""
        hot = max(self.hottest, 1 / self.queues)
        on_it = hot / min(self.partitions, self.masters)
        return on_it + (1 - hot) / self.masters if self.queues > 1 else on_it


def calls_of_job(service: Service, under_way: float, batch: int) -> float:
    """Return how many calls of operations a job takes part in, divided by the commands that share each.

    Those are the items of a stanza, and what comes up while a call of the same pair is under way.
    """
    together = max(1.0, batch / service.partitions) + under_way / (_STAGES * service.pairs)
    return _OPERATIONS / together


@dataclass(frozen=True, slots=True)
class Uses:
    """How busy each resource is at a rate, and the µs of a job of each kind of process, including heartbeats."""

    rate: float
    frontends: float
    master: float
    xmpp: float
    machine: float
    frontend_us: float
    redis_us: float
    xmpp_us: float

    @property
    def job_us(self) -> float:
        """Return the processor time of a job of all processes."""
        return self.frontend_us + self.redis_us + self.xmpp_us

    @property
    def first(self) -> str:
        """Name the busiest resource."""
        return max(LIMITS, key=self.of)

    def of(self, resource: str) -> float:
        """Return the use of a resource by its name in LIMITS."""
        use: float = getattr(self, resource)
        return use


LIMITS: Final = ("frontends", "master", "xmpp", "machine")
"""The resources that can be used up. `master` is the one with the busiest queue and the heartbeats, `machine` the cores that all
processes share, if they do."""


def uses(costs: Costs, service: Service, rate: float, beat_s: float) -> Uses:
    """Return how busy everything is at a rate of jobs a second, with a heartbeat of each frontend every `beat_s`."""
    under_way = rate * service.latency_s if service.under_way is None else service.under_way
    calls = calls_of_job(service, under_way, costs.batch)
    beats = service.frontends / beat_s / rate
    redis_us = _job_us_at(costs.redis, calls, rate * service.hot_share)
    frontend_us = _job_us_at(costs.frontend, calls, rate / service.frontends, costs.beat_frontend_us * beats)
    xmpp_us = costs.xmpp.of_job(calls)
    beat_us = costs.beat_us * beats
    total_us = frontend_us + redis_us + beat_us + xmpp_us
    return Uses(
        rate=rate,
        frontends=rate * frontend_us / service.frontends / US,
        master=rate * (redis_us * service.hot_share + beat_us) / US,
        xmpp=rate * xmpp_us / (service.servers * service.server_cores) / US,
        machine=0.0 if service.shared_cores is None else rate * total_us / service.shared_cores / US,
        frontend_us=frontend_us,
        redis_us=redis_us + beat_us,
        xmpp_us=xmpp_us,
    )


def _job_us_at(cost: Cost, calls: float, rate: float, more_us: float = 0.0) -> float:
    """Return the µs of a job in a process that has so many jobs a second.

    The share of calls that find it asleep is the share of time for which it is idle, which depends on the result: solved for it.
    """
    busy_us = cost.of_job(calls) + more_us
    waking_us = calls * cost.wake_us
    if rate * busy_us >= US:
        return busy_us
    return (busy_us + waking_us) / (1 + rate * waking_us / US)


def max_uses(costs: Costs, service: Service, beat_s: float, use: float = SAFE_USE) -> Uses:
    """Return the uses at the highest rate at which nothing is busier than `use`."""
    low, high = 0.0, float(US) * service.frontends
    for _ in range(50):
        middle = (low + high) / 2
        found = uses(costs, service, middle, beat_s)
        if max(found.of(name) for name in LIMITS) <= use:
            low = middle
        else:
            high = middle
    return uses(costs, service, low or high, beat_s)


def core_hours(found: Uses) -> float:
    """Return the core hours of a million jobs: processor time, so a service that is half idle pays twice as much."""
    return found.job_us / 3_600
