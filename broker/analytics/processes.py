"""What frontends and Redis masters carried, by samples of their processor time, and where the next limit is. Must not know Spark.

The measured use is carried on by the model of a service, only as a ratio: how much dearer or cheaper a job becomes at another
load. Between that and no change at all, with the model's error on both sides, lies the range.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Final

from redis.exceptions import ResponseError

from broker import keys
from broker.analytics.figures import Node, Resource, Service
from broker.analytics.source.servers import Servers
from broker.scaling import model
from broker.scaling.costs import Costs, Measured
from broker.scaling.usage import MINUTE_MS, REDIS, Usage, read_all

FACTOR: Final = 10
"""The load for which the report says how many processes it needs."""

_ERROR: Final = 0.2
"""The model's error, as docs/scaling.md has it from the measurements."""

_SCANNED: Final = 1_000
_XMPP: Final = "xmpp"
_MASTERS: Final = "Redis masters"
_NO_SAMPLES: Final = (
    "processor time is not recorded for this interval: frontends of this version write it once a minute, for an hour"
)
_NO_MASTERS: Final = "the processor time of Redis is not recorded: the frontends' user may not run INFO"


def samples(servers: Servers) -> tuple[Usage, ...]:
    """Read the samples that Redis has now."""
    return servers.persist(partial(_samples, servers))


def _samples(servers: Servers) -> tuple[Usage, ...]:
    key = keys.of_service("process_usage")
    for process in servers.processes():
        # In a cluster only one master has the key; the others say so.
        with servers.link(process) as link, suppress(ResponseError):
            found: list[Usage] = []
            cursor: bytes = b"0"
            while True:
                cursor, flat = link.ask("HSCAN", key, cursor, "COUNT", _SCANNED)
                found += read_all(zip(flat[::2], flat[1::2], strict=True))
                if cursor == b"0":
                    return tuple(found)
    return ()


@dataclass(frozen=True, slots=True)
class Carried:
    """What the processes of one kind did: how many there were on average, their jobs a second, and cores busy."""

    kind: str
    processes: int
    seconds: float
    jobs_per_s: float
    cores: float
    busiest: float


def add_up_samples(found: Iterable[Usage], first_ms: float, last_ms: float) -> dict[str, Carried]:
    """Add up the samples from a time to another, by kind."""
    of_process: dict[tuple[str, str], list[Usage]] = defaultdict(list)
    for each in sorted(set(found), key=lambda each: each.at_ms):
        if each.name and first_ms - MINUTE_MS <= each.at_ms <= last_ms + MINUTE_MS:
            of_process[each.kind, each.name].append(each)
    runs: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for (kind, _), ordered in of_process.items():
        seconds = (ordered[-1].at_ms - ordered[0].at_ms) / 1000
        if seconds > 0:
            cores = _growth(sample.cpu_ms for sample in ordered) / 1000 / seconds
            runs[kind].append((seconds, cores, _growth(sample.jobs for sample in ordered) / seconds))
    return {kind: _add_up_processes(kind, of_kind) for kind, of_kind in runs.items()}


def _growth(counts: Iterable[int]) -> int:
    """Return by how much a count grew, which begins again at 0 when its process does."""
    return sum(now - before if now >= before else now for before, now in pairwise(counts))


def _add_up_processes(kind: str, runs: Sequence[tuple[float, float, float]]) -> Carried:
    """Add up processes, each for its part of the longest time: those that were replaced count as one."""
    longest = max(seconds for seconds, _, _ in runs)
    part = [seconds / longest for seconds, _, _ in runs]
    return Carried(
        kind,
        max(1, round(sum(part))),
        longest,
        sum(jobs * share for (_, _, jobs), share in zip(runs, part, strict=True)),
        sum(cores * share for (_, cores, _), share in zip(runs, part, strict=True)),
        max(cores for _, cores, _ in runs),
    )


@dataclass(frozen=True, slots=True)
class Outlook:
    """The model of a measured service, for its future."""

    costs: Measured
    beat_s: float
    service: model.Service
    rate: float

    def cost_ratio_range(self, kind: str, factor: float, *, grown: bool = False) -> tuple[float, float]:
        """Return the least and the greatest ratio of a job's processor time at so many times the load to that of now.

        With `grown` there are also so many times the processes.
        """
        ratios = [1.0]
        for costs in (self.costs.single, self.costs.batched):
            services = [self.service]
            if grown:
                more = {name: math.ceil(getattr(self.service, name) * factor) for name in ("frontends", "masters")}
                services.append(replace(self.service, **more))
            now = self._us(costs, self.service, kind, self.rate)
            ratios += [self._us(costs, each, kind, self.rate * factor) / now for each in services]
        return min(ratios) * (1 - _ERROR), max(ratios) * (1 + _ERROR)

    def _us(self, costs: Costs, service: model.Service, kind: str, rate: float) -> float:
        found = model.uses(costs, service, rate, self.beat_s)
        return found.redis_us if kind == REDIS else found.frontend_us


def use_at(one: Carried, outlook: Outlook, factor: float) -> tuple[float, float]:
    """Return between which values the busiest process of a kind will be used at so many times the load."""
    least, most = outlook.cost_ratio_range(one.kind, factor)
    return one.busiest * factor * least, one.busiest * factor * most


def service(
    found: Iterable[Usage], nodes: Sequence[Node], span: tuple[float, float], costs: Measured, beat_s: float
) -> Service:
    """Return what each kind of process carried between two times in ms, and what it could."""
    by_kind = add_up_samples(found, *span)
    doors = [one for kind, one in by_kind.items() if kind != REDIS]
    rate = sum(one.jobs_per_s for one in doors)
    if not rate:
        return Service((), _NO_SAMPLES)
    outlook = outlook_of(by_kind, nodes, costs, beat_s)
    resources = [_resource(one, one.jobs_per_s if one.kind != REDIS else rate, outlook) for one in by_kind.values()]
    resources.sort(key=lambda each: (each.kind == _MASTERS, each.kind))
    if of_xmpp := by_kind.get(_XMPP):
        resources.append(_servers(of_xmpp.jobs_per_s, of_xmpp.seconds, costs))
    return Service(tuple(resources), "" if REDIS in by_kind else _NO_MASTERS)


def outlook_of(by_kind: dict[str, Carried], nodes: Sequence[Node], costs: Measured, beat_s: float) -> Outlook:
    """Return the model of the service that was measured."""
    doors = [one for kind, one in by_kind.items() if kind != REDIS]
    arrivals = [node.demand.rate_per_s for node in nodes]
    redis = by_kind.get(REDIS)
    of_model = model.Service(
        frontends=sum(one.processes for one in doors),
        masters=redis.processes if redis else 1,
        queues=max(1, len(nodes)),
        partitions=max(1, round(sum(len(node.partitions) for node in nodes) / max(1, len(nodes)))),
        hottest=max(arrivals) / sum(arrivals) if sum(arrivals) else 0.0,
    )
    return Outlook(costs, beat_s, of_model, sum(one.jobs_per_s for one in doors))


def _resource(one: Carried, rate: float, outlook: Outlook) -> Resource:
    room = model.SAFE_USE / one.busiest if one.busiest else None
    limit = (
        tuple(rate * room / each for each in reversed(outlook.cost_ratio_range(one.kind, room)))
        if room and rate
        else None
    )
    dearer = outlook.cost_ratio_range(one.kind, FACTOR, grown=True)
    needed = [max(1, math.ceil(one.cores * FACTOR * each / model.SAFE_USE)) for each in dearer]
    return Resource(
        kind=_MASTERS if one.kind == REDIS else f"{one.kind} frontends",
        processes=one.processes,
        seconds=one.seconds,
        jobs_per_s=rate,
        cores=one.cores,
        busiest=one.busiest,
        jobs_per_core_s=rate / one.cores if one.cores else None,
        limit_least_per_s=limit[0] if limit else None,
        limit_most_per_s=limit[1] if limit else None,
        needed_least=needed[0],
        needed_most=needed[1],
    )


def _servers(rate: float, seconds: float, costs: Measured) -> Resource:
    """Return the cores of XMPP servers by the model alone: nobody here sees their processor time."""
    least = costs.batched.xmpp.of_job(0)
    most = costs.single.xmpp.of_job(_CALLS)
    cores = [rate * us / model.US for us in (least, most)]
    return Resource(
        kind="XMPP servers' cores, by the model",
        processes=None,
        seconds=seconds,
        jobs_per_s=rate,
        cores=cores[1],
        busiest=None,
        jobs_per_core_s=model.US / most,
        limit_least_per_s=None,
        limit_most_per_s=None,
        needed_least=max(1, math.ceil(cores[0] * FACTOR / model.SAFE_USE)),
        needed_most=max(1, math.ceil(cores[1] * FACTOR / model.SAFE_USE)),
    )


_CALLS: Final = 2
"""The calls of a job that shares none."""
