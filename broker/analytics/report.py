"""Computes a report's figures from the measures and replays, by arithmetic. Must not know Spark's tables."""

import math
from dataclasses import dataclass
from datetime import tzinfo
from typing import Final

from pyspark.sql import Row

from broker.analytics import calendars, figures
from broker.analytics.busiest import Busiest, Credit, read_rules
from broker.analytics.facts import Facts
from broker.analytics.measures.hours import HOUR_MS
from broker.analytics.measures.latency import CURVE, LEGS
from broker.analytics.replay import TARGET_SHARE
from broker.analytics.span import Span, moment
from broker.analytics.verdict import urgency
from broker.scaling import model
from broker.scaling.costs import Measured

_DAY_S: Final = 86_400.0
_JOURNAL_S: Final = 7 * _DAY_S
"""The journal drops records older than a week (lua/lib/items/journal.lua)."""

_LATE: Final = 1 - TARGET_SHARE
"""With more late waits than this, the target is missed."""

_MANY: Final = 0.1
"""A share of attempts that is a cause of its own."""

_SLOWER: Final = 1.5
"""In missed hours, workers are slow if they take so many times as long as in the others."""

_AT_BOUND: Final = 0.95


@dataclass(frozen=True, slots=True)
class Prices:
    """The measured costs of a job, and how often a frontend's heartbeat comes, in seconds."""

    costs: Measured
    beat_s: float

    def core_hours(self, rate_per_s: float) -> float:
        """Return what frontends, Redis and the XMPP server take in a day for single jobs at a rate."""
        if rate_per_s <= 0:
            return 0.0
        found = model.uses(self.costs.single, model.Service(), rate_per_s, self.beat_s)
        return model.core_hours(found) * rate_per_s * _DAY_S / 1_000_000


def report(facts: Facts, source: str, target_s: float, prices: Prices, zone: tzinfo) -> figures.Report:
    """Build the report of every node with activity, the most urgent first."""
    names = sorted(facts.peaks, key=lambda name: (-facts.peaks[name].arrived, name))
    nodes = tuple(_node(_collect_seen(facts, name), prices, zone) for name in names)
    gaps = tuple(figures.Gap(row.node, row.partition, row.after, row.before, row.records) for row in facts.gaps)
    begin, end = moment(facts.span.begin), moment(facts.span.end)
    full = _redis_full_days(facts, nodes)
    # Sorted twice: of equally urgent ones the busiest stays first.
    nodes = tuple(sorted(nodes, key=lambda node: urgency(node, target_s)))
    return figures.Report(source, begin, end, target_s, gaps, nodes, full, zone=str(zone))


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
    peaks: Row
    steps: list[Row]
    work: Row | None
    perished: int
    legs: dict[str, Row]
    hours: list[Row]
    busiest: Busiest | None
    credit: Credit | None
    replay: Row | None
    present: Row | None
    memory_per_s: float | None
    subscribers: list[Row]
    partitions: list[Row]
    among_subscribers: Row | None
    among_partitions: Row | None

    @property
    def rate_per_s(self) -> float:
        """Return the mean rate of arrivals since the node's first item, but over an hour at least, as far as there is one."""
        first = min((row.begin for row in self.hours), default=self.span.begin)
        begin = max(self.span.begin, min(first, self.span.end - HOUR_MS))
        arrived: int = self.peaks.arrived
        return arrived * 1000 / (self.span.end - begin)

    @property
    def busiest_per_s(self) -> float:
        """Return the rate of arrivals of the busiest hour."""
        return self.busiest.arrived / self.busiest.seconds if self.busiest else 0.0

    @property
    def tries(self) -> float:
        """Return the mean number of deliveries of an item."""
        return self.work.attempts / self.work.items if self.work and self.work.items else 1.0

    @property
    def service_s(self) -> float | None:
        """Return how long a delivery takes on average."""
        return self.work.held_s / self.work.attempts if self.work else None


def _collect_seen(facts: Facts, name: str) -> _Seen:
    memory = facts.memory.get(name)
    return _Seen(
        name=name,
        span=facts.span,
        peaks=facts.peaks[name],
        steps=facts.steps[name],
        work=facts.work.get(name),
        perished=facts.perished[name].perished if name in facts.perished else 0,
        legs={row.leg: row for row in facts.latency.get(name, [])},
        present=facts.present.get(name),
        hours=facts.hours.get(name, []),
        busiest=facts.busiest.get(name),
        credit=facts.credit.get(name),
        replay=facts.replays.get(name),
        memory_per_s=memory.memory_per_s if memory else None,
        subscribers=facts.subscribers.get(name, []),
        partitions=facts.partitions.get(name, []),
        among_subscribers=facts.among_subscribers.get(name),
        among_partitions=facts.among_partitions.get(name),
    )


def _node(seen: _Seen, prices: Prices, zone: tzinfo) -> figures.Node:
    capacity, backlog = _capacity(seen), _backlog(seen)
    return figures.Node(
        node=seen.name,
        demand=_demand(seen),
        latency=figures.Latency(*(_durations(seen.legs.get(leg)) for leg in LEGS)),
        target=_target(seen, capacity),
        capacity=capacity,
        price=_price(seen, capacity, prices),
        backlog=backlog,
        waste=_waste(seen),
        fairness=_fairness(seen),
        forecast=_forecast(seen, capacity, backlog, zone),
        quality=_quality(seen),
        what_if=_what_if(seen),
        waits=tuple(zip(CURVE, seen.legs["wait_ms"].curve, strict=True)) if "wait_ms" in seen.legs else (),
        subscribers=tuple(_share(row, row.subscriber) for row in seen.subscribers),
        partitions=tuple(_share(row, str(row.partition)) for row in seen.partitions),
        moments=tuple(_moment(row) for row in seen.steps),
        week=tuple(
            figures.Hour(weekday, hour, rate)
            for weekday, row in enumerate(calendars.week(seen.hours, seen.span, zone))
            for hour, rate in enumerate(row)
        ),
    )


def _demand(seen: _Seen) -> figures.Demand:
    size = seen.work.bytes / seen.work.attempts if seen.work else 0.0
    return figures.Demand(
        rate_per_s=seen.rate_per_s,
        bytes_per_s=seen.rate_per_s * size,
        peak_per_s=seen.peaks.peak_per_s,
        peak_width_s=seen.span.width_ms / 1000,
        busiest_per_s=seen.busiest_per_s,
        busiest_at=moment(seen.busiest.since) if seen.busiest else None,
        busiest_s=seen.busiest.seconds if seen.busiest else 0.0,
    )


def _target(seen: _Seen, capacity: figures.Capacity) -> figures.Target:
    waits, late = (sum(row[name] for row in seen.hours) for name in ("waits", "late"))
    missed = [row for row in seen.hours if _missed(row)]
    of_busiest = [row for row in seen.hours if seen.busiest and _overlaps(row, seen.busiest)]
    counted, behind = (sum(row[name] for row in of_busiest) for name in ("waits", "late"))
    share, busiest = (part / whole if whole else 0.0 for part, whole in ((late, waits), (behind, counted)))
    fails = max(share, busiest) > _LATE
    return figures.Target(
        late_share=share,
        busiest_late_share=busiest,
        hours=len(seen.hours),
        missed_hours=len(missed),
        since=moment(max(seen.span.begin, missed[0].begin)) if missed else None,
        cause=_find_cause(seen, missed or seen.hours, capacity) if fails else None,
    )


def _missed(row: Row) -> bool:
    missed: bool = row.late > _LATE * row.waits
    return missed


def _overlaps(row: Row, busiest: Busiest) -> bool:
    begin: int = row.hour * HOUR_MS
    return begin < busiest.until and begin + HOUR_MS > busiest.since


def _find_cause(seen: _Seen, missed: list[Row], capacity: figures.Capacity) -> figures.Cause:
    """Find why hours missed the target: the node's own bounds first, then what made workers slow, then how many there are."""
    needed, served = capacity.workers_needed, sum(row.served for row in missed)
    if capacity.workers_unbound is not None and needed is None:
        at_work = max(seen.peaks.in_flight_most, min(capacity.credit or 0, capacity.max_in_flight))
        full = capacity.max_in_flight and at_work >= _AT_BOUND * capacity.max_in_flight
        too_few = capacity.max_in_flight and capacity.workers_unbound > capacity.max_in_flight
        return figures.Cause.IN_FLIGHT if full and too_few else figures.Cause.RATE
    if served and sum(row.expired for row in missed) > _MANY * served:
        return figures.Cause.TIMEOUTS
    others = [row for row in seen.hours if row.served and not _missed(row)]
    if served and others:
        took, usual = (sum(row.work_ms for row in rows) / sum(row.served for row in rows) for rows in (missed, others))
        if took > _SLOWER * usual:
            return figures.Cause.SLOW
    credit = capacity.credit or 0
    return figures.Cause.CREDIT if needed is None or needed > credit else figures.Cause.OTHER


def _durations(row: Row | None) -> figures.Durations | None:
    if row is None:
        return None
    curve = dict(zip(CURVE, row.curve, strict=True))
    return figures.Durations(row.mean, curve[0.5], curve[0.95], curve[0.99], row.most)


def _capacity(seen: _Seen) -> figures.Capacity:
    found, service_s, busy = seen.replay, seen.service_s, seen.peaks.in_flight_mean
    # A deleted node has no credit now, but it had some.
    credit = seen.credit.workers if seen.credit and seen.present else None
    growth = found.growth if found and credit else None
    rules = read_rules(seen.present)
    known = {row.workers: row.wait_ms / 1000 for row in found.curve} if found else {}
    return figures.Capacity(
        attempts_per_s=seen.rate_per_s * seen.tries,
        busy=busy,
        busiest=seen.peaks.in_flight_most,
        offered=found.offered if found else None,
        credit=credit,
        credit_seen=bool(seen.credit and seen.credit.seen),
        credit_now=seen.credit.now if seen.credit else None,
        credit_use=busy / credit if credit else None,
        most_per_s=credit / service_s if credit and service_s else None,
        target_per_s=growth * seen.busiest_per_s * seen.tries if growth is not None else None,
        headroom=growth - 1 if growth is not None else None,
        workers_needed=found.needed if found else None,
        workers_unbound=found.needed_unbound if found else None,
        wait_p95_s=known.get(credit) if credit else None,
        max_in_flight=rules.max_in_flight,
        max_rate_per_s=1000 / rules.interval_ms if rules.interval_ms else None,
        policies=(seen.present.policies or "") if seen.present else "",
    )


def _price(seen: _Seen, capacity: figures.Capacity, prices: Prices) -> figures.Price | None:
    if capacity.workers_unbound is None:
        return None
    missing = max(0, (capacity.workers_needed or capacity.workers_unbound) - (capacity.credit or 0))
    present = seen.present
    each = present.credit / present.subscribers if present and present.subscribers and present.credit else None
    return figures.Price(
        workers=missing,
        subscribers=math.ceil(missing / each) if each else None,
        worker_hours_per_day=capacity.attempts_per_s * (seen.service_s or 0.0) * 24,
        core_hours_per_day=prices.core_hours(capacity.attempts_per_s),
    )


def _backlog(seen: _Seen) -> figures.Backlog:
    now = seen.present
    # A deleted node has nothing waiting and no credit.
    waiting, credit = (now.waiting, now.credit) if now else (0, 0)
    drain = _drain_s(waiting, credit / seen.service_s if seen.service_s else math.inf if credit else 0.0, seen)
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


def _drain_s(waiting: int, most_per_s: float, seen: _Seen) -> float:
    """Return how long the backlog takes to drain while new items arrive at the mean rate; infinite when it grows."""
    spare = most_per_s - seen.rate_per_s * seen.tries
    return 0.0 if not waiting else waiting / spare if spare > 0 else math.inf


def _waste(seen: _Seen) -> figures.Waste:
    work = seen.work
    if work is None:
        return figures.Waste(0, 0, 0, 0, 0, 0, 0, 0, 0, 0.0, 0.0, seen.perished)
    lost = work.held_s - work.useful_s
    return figures.Waste(
        attempts=work.attempts,
        items=work.items,
        acknowledged=work.acknowledged,
        released=work.released,
        expired=work.expired,
        bounced=work.bounced,
        dead_lettered=work.dead_lettered,
        cancelled=work.cancelled,
        redelivered=work.attempts - work.items,
        lost_s=lost,
        lost_share=lost / work.held_s if work.held_s else 0.0,
        perished=seen.perished,
    )


def _fairness(seen: _Seen) -> figures.Fairness | None:
    who, where = seen.among_subscribers, seen.among_partitions
    return figures.Fairness(who.sharers, who.jain, where.sharers, where.jain, where.skew) if who and where else None


def _forecast(seen: _Seen, capacity: figures.Capacity, backlog: figures.Backlog, zone: tzinfo) -> figures.Forecast:
    found = calendars.trend(seen.hours, seen.span, zone)
    headroom, rate = capacity.headroom, seen.rate_per_s

    def missed(per_day: float | None) -> float | None:
        # The busiest hour grows as the days do.
        if headroom is not None and headroom <= 0:
            return 0.0
        return headroom * rate / per_day if headroom is not None and per_day is not None and per_day > 0 else None

    slope = found.per_day if found and found.shown else None
    return figures.Forecast(
        days=found.days if found else 0,
        rate_growth_per_day=found.per_day if found else None,
        rate_growth_least=found.least if found else None,
        rate_growth_most=found.most if found else None,
        target_missed_days=missed(slope),
        target_missed_first_days=missed(found.most) if slope and found else None,
        target_missed_last_days=missed(found.least) if slope and found else None,
        memory_full_days=_memory_full_days(seen, backlog),
        journal_reach_s=_journal_reach_s(seen),
    )


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


def _what_if(seen: _Seen) -> tuple[figures.WhatIf, ...]:
    """Return the waits of the busiest hour with numbers of workers around the needed and the present one."""
    if seen.replay is None:
        return ()
    offered: float = seen.replay.offered
    return tuple(figures.WhatIf(row.workers, offered / row.workers, row.wait_ms / 1000) for row in seen.replay.curve)


def _share(row: Row, name: str) -> figures.Share:
    return figures.Share(name, row.attempts, row.acknowledged, row.share, row.wait_ms, row.held_ms)


def _moment(row: Row) -> figures.Moment:
    counts = (row.arrived, row.delivered, row.acknowledged)
    return figures.Moment(moment(row.begin), row.length_ms / 1000, *counts, row.waiting, row.in_flight)
