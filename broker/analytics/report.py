"""Computes a report's figures from the measures, by arithmetic and queueing theory. Must not know Spark's tables."""

import math
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Row

from broker.analytics import figures, queueing
from broker.analytics.facts import Facts
from broker.analytics.measures.latency import CURVE, LEGS
from broker.analytics.queueing import Load
from broker.analytics.span import Span, moment

_DAY_S: Final = 86_400.0
_JOURNAL_S: Final = 7 * _DAY_S
"""The journal drops records older than a week (lua/lib/items/journal.lua)."""


def report(facts: Facts, source: str, target_s: float) -> figures.Report:
    """Build the report of every node with activity."""
    names = sorted(facts.peaks, key=lambda name: (-facts.peaks[name].arrived, name))
    nodes = tuple(_node(_collect_seen(facts, name, target_s)) for name in names)
    gaps = tuple(figures.Gap(row.node, row.partition, row.after, row.before, row.records) for row in facts.gaps)
    begin, end = moment(facts.span.begin), moment(facts.span.end)
    return figures.Report(source, begin, end, target_s, gaps, nodes, _redis_full_days(facts, nodes))


def _redis_full_days(facts: Facts, nodes: tuple[figures.Node, ...]) -> float | None:
    """Return when the first Redis is full: by its measured growth, or else by the growth of all backlogs together."""
    if any(row.memory_per_s is not None for row in facts.memory.values()):
        return min((full for node in nodes if (full := node.forecast.memory_full_days) is not None), default=None)
    free = min((row.free_bytes for row in facts.present.values() if row.free_bytes is not None), default=None)
    fills = sum(
        (node.backlog.growth_per_s or 0.0) * work.bytes / work.attempts
        for node in nodes
        if node.node in facts.present and (work := facts.work.get(node.node))
    )
    return free / fills / _DAY_S if free is not None and fills > 0 else None


@dataclass(frozen=True, slots=True)
class _Seen:
    """The measures of one node; None where nothing happened."""

    name: str
    span: Span
    target_s: float
    load: Load
    peaks: Row
    steps: list[Row]
    work: Row | None
    perished: int
    legs: dict[str, Row]
    present: Row | None
    burstiness: float | None
    memory_per_s: float | None
    subscribers: list[Row]
    partitions: list[Row]
    among_subscribers: Row | None
    among_partitions: Row | None


def _collect_seen(facts: Facts, name: str, target_s: float) -> _Seen:
    peaks, work = facts.peaks[name], facts.work.get(name)
    bursts, memory = facts.burstiness.get(name), facts.memory.get(name)
    burstiness = bursts.burstiness if bursts else None
    return _Seen(
        name=name,
        span=facts.span,
        target_s=target_s,
        load=_load(peaks, work, facts.span.seconds, burstiness),
        peaks=peaks,
        steps=facts.steps[name],
        work=work,
        perished=facts.perished[name].perished if name in facts.perished else 0,
        legs={row.leg: row for row in facts.latency.get(name, [])},
        present=facts.present.get(name),
        burstiness=burstiness,
        memory_per_s=memory.memory_per_s if memory else None,
        subscribers=facts.subscribers.get(name, []),
        partitions=facts.partitions.get(name, []),
        among_subscribers=facts.among_subscribers.get(name),
        among_partitions=facts.among_partitions.get(name),
    )


def _load(peaks: Row, work: Row | None, seconds: float, burstiness: float | None) -> Load:
    """Return the load on the workers: the arrival rate times the mean number of attempts of an item."""
    rate = peaks.arrived / seconds
    if work is None:
        return Load(rate, 0.0)
    tries = work.attempts / work.items if work.items else 1.0
    # Too few arrivals say nothing about their variation: assume random ones.
    arrivals = 1.0 if burstiness is None else burstiness
    return Load(rate * tries, work.held_s / work.attempts, arrivals, work.held_variation)


def _node(seen: _Seen) -> figures.Node:
    capacity, backlog = _capacity(seen), _backlog(seen)
    return figures.Node(
        node=seen.name,
        demand=_demand(seen),
        latency=figures.Latency(*(_durations(seen.legs.get(leg)) for leg in LEGS)),
        capacity=capacity,
        backlog=backlog,
        waste=_waste(seen),
        fairness=_fairness(seen),
        forecast=_forecast(seen, capacity, backlog),
        quality=_quality(seen),
        what_if=_predict_waits(seen, capacity),
        waits=tuple(zip(CURVE, seen.legs["wait_ms"].curve, strict=True)) if "wait_ms" in seen.legs else (),
        subscribers=tuple(_share(row, row.subscriber) for row in seen.subscribers),
        partitions=tuple(_share(row, str(row.partition)) for row in seen.partitions),
        moments=tuple(_moment(row) for row in seen.steps),
    )


def _demand(seen: _Seen) -> figures.Demand:
    rate = seen.peaks.arrived / seen.span.seconds
    size = seen.work.bytes / seen.work.attempts if seen.work else 0.0
    peak = seen.peaks.peak_per_s
    return figures.Demand(
        rate_per_s=rate,
        bytes_per_s=rate * size,
        peak_per_s=peak,
        peak_to_mean=peak / rate if peak and rate else None,
        peak_width_s=seen.span.width_ms / 1000,
        burstiness=seen.burstiness,
    )


def _durations(row: Row | None) -> figures.Durations | None:
    if row is None:
        return None
    curve = dict(zip(CURVE, row.curve, strict=True))
    return figures.Durations(row.mean, curve[0.5], curve[0.95], curve[0.99], row.most)


def _capacity(seen: _Seen) -> figures.Capacity:
    credit = seen.present.credit if seen.present else None
    busy, load = seen.peaks.in_flight_mean, seen.load
    target = queueing.rate_for(load, credit, seen.target_s) if credit and load.service_s else None
    return figures.Capacity(
        attempts_per_s=load.rate_per_s,
        service_variation=load.service_variation,
        busy=busy,
        busiest=seen.peaks.in_flight_most,
        credit=credit,
        credit_use=busy / credit if credit else None,
        most_per_s=credit / load.service_s if credit and load.service_s else None,
        target_per_s=target,
        headroom=target / load.rate_per_s - 1 if target is not None and load.rate_per_s else None,
        workers_needed=queueing.workers_for(load, seen.target_s) if seen.work else None,
        wait_p95_s=_predict_wait(load, credit).wait_p95_s if credit and seen.work else None,
    )


def _backlog(seen: _Seen) -> figures.Backlog:
    now = seen.present
    # A deleted node has nothing waiting and no credit.
    waiting, credit = (now.waiting, now.credit) if now else (0, 0)
    drain = queueing.drain_s(waiting, seen.load, credit)
    return figures.Backlog(
        waiting=waiting,
        in_flight=now.in_flight if now else 0,
        oldest_s=now.oldest_s if now else None,
        waiting_mean=seen.peaks.waiting_mean,
        waiting_most=seen.peaks.waiting_most,
        growth_per_s=seen.peaks.growth_per_s,
        drain_s=drain if math.isfinite(drain) else None,
        drains=math.isfinite(drain),
    )


def _waste(seen: _Seen) -> figures.Waste:
    work = seen.work
    if work is None:
        return figures.Waste(0, 0, 0, 0, 0, 0, 0, 0, 0.0, 0.0, seen.perished)
    lost = work.held_s - work.useful_s
    return figures.Waste(
        attempts=work.attempts,
        items=work.items,
        acknowledged=work.acknowledged,
        released=work.released,
        expired=work.expired,
        bounced=work.bounced,
        dead_lettered=work.dead_lettered,
        redelivered=work.attempts - work.items,
        lost_s=lost,
        lost_share=lost / work.held_s if work.held_s else 0.0,
        perished=seen.perished,
    )


def _fairness(seen: _Seen) -> figures.Fairness | None:
    who, where = seen.among_subscribers, seen.among_partitions
    return figures.Fairness(who.sharers, who.jain, where.sharers, where.jain, where.skew) if who and where else None


def _forecast(seen: _Seen, capacity: figures.Capacity, backlog: figures.Backlog) -> figures.Forecast:
    # A trend over less than a day would only show the time of day.
    trend = seen.peaks.rate_growth_per_day if seen.span.seconds >= _DAY_S else None
    missed = None
    if capacity.headroom is not None and capacity.headroom <= 0:
        missed = 0.0
    elif trend is not None and trend > 0 and capacity.headroom is not None:
        missed = capacity.headroom * seen.peaks.arrived / seen.span.seconds / trend
    return figures.Forecast(trend, missed, _memory_full_days(seen, backlog), _journal_reach_s(seen))


def _memory_full_days(seen: _Seen, backlog: figures.Backlog) -> float | None:
    """Return when Redis is full: by its measured growth, or else by the growth of the backlog."""
    if seen.present is None or seen.present.free_bytes is None:
        return None
    free: int = seen.present.free_bytes
    fills: float | None = seen.memory_per_s
    if fills is None and seen.work:
        fills = (backlog.growth_per_s or 0.0) * seen.work.bytes / seen.work.attempts
    return free / fills / _DAY_S if fills and fills > 0 else None


def _journal_reach_s(seen: _Seen) -> float | None:
    """Return how long the journal of the busiest partition keeps a record."""
    if not (seen.present and seen.work and seen.among_partitions):
        return None
    each: float = seen.present.journal_max / seen.present.partitions
    busiest: float = seen.work.attempts / seen.among_partitions.sharers * seen.among_partitions.skew
    return min(each / busiest * seen.span.seconds, _JOURNAL_S)


def _quality(seen: _Seen) -> figures.Quality:
    peaks, work, wait = seen.peaks, seen.work, seen.legs.get("wait_ms")
    law = None
    if work and wait:
        law = work.attempts / seen.span.seconds * (wait["mean"] / 1000 + work.held_s / work.attempts)
    return figures.Quality(
        seen=moment(seen.present.at) if seen.present else None,
        open_attempts=seen.present.in_flight if seen.present else 0,
        waits_unknown=work.attempts - work.waits if work else 0,
        little_in_system=peaks.waiting_mean + peaks.in_flight_mean,
        little_by_law=law,
    )


def _predict_waits(seen: _Seen, capacity: figures.Capacity) -> tuple[figures.WhatIf, ...]:
    """Predict the wait for numbers of workers around the needed and the present one."""
    if not seen.work or not seen.load.service_s:
        return ()
    least, needed = math.floor(seen.load.offered), capacity.workers_needed or 0
    around = {least, least + 1, *range(needed - 2, needed + 4), capacity.credit or 0}
    return tuple(_predict_wait(seen.load, workers) for workers in sorted(around) if workers >= max(1, least))


def _predict_wait(load: Load, workers: int) -> figures.WhatIf:
    wait = queueing.wait_s(load, workers)
    return figures.WhatIf(workers, load.offered / workers, wait if math.isfinite(wait) else None)


def _share(row: Row, name: str) -> figures.Share:
    return figures.Share(name, row.attempts, row.acknowledged, row.share, row.wait_ms, row.held_ms)


def _moment(row: Row) -> figures.Moment:
    counts = (row.arrived, row.delivered, row.acknowledged)
    return figures.Moment(moment(row.begin), row.length_ms / 1000, *counts, row.waiting, row.in_flight)
