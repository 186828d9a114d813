"""The themes of a node: labels and formatted values, the same in HTML and on the console."""

from dataclasses import dataclass
from typing import Final

from broker.analytics.figures import Durations, Forecast, Node, Service
from broker.analytics.quantities import UNKNOWN, duration, milliseconds, number, rate, share, size

Line = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Theme:
    """One theme: a table of labels and values, and a sentence about it."""

    title: str
    about: str
    lines: tuple[Line, ...]


def themes(node: Node) -> tuple[Theme, ...]:
    """Return all themes of a node."""
    what = (_demand, _target, _latency, _capacity, _backlog, _waste, _fairness)
    return (*(make(node) for make in what), *_rest(node))


SERVICE_HEAD: Final = ("processes", "now", "jobs", "cores", "busiest", "jobs/s a core", "limit at", "for 10 times")
"""The columns of `service_rows`."""


def service_rows(service: Service) -> tuple[tuple[str, ...], ...]:
    """Return a row for each kind of process."""
    return tuple(
        (
            each.kind,
            number(each.processes),
            rate(each.jobs_per_s),
            number(each.cores),
            share(each.busiest),
            number(each.jobs_per_core_s),
            UNKNOWN
            if each.limit_least_per_s is None
            else f"{rate(each.limit_least_per_s)} to {rate(each.limit_most_per_s)}",
            f"{number(each.needed_least)} to {number(each.needed_most)}",
        )
        for each in service.resources
    )


def _demand(node: Node) -> Theme:
    demand = node.demand
    lines = (
        ("arrivals, mean", rate(demand.rate_per_s)),
        ("of the busiest hour", rate(demand.busiest_per_s)),
        ("payload", f"{size(demand.bytes_per_s)}/s"),
        (f"peak in {duration(demand.peak_width_s)}", rate(demand.peak_per_s)),
    )
    begins = f" The busiest hour begins at {demand.busiest_at:%Y-%m-%d %H:%M} UTC." if demand.busiest_at else ""
    return Theme("Demand", f"What is asked.{begins}", lines)


def _target(node: Node) -> Theme:
    target = node.target
    lines = (
        ("waits too long", share(target.late_share)),
        ("in the busiest hour", share(target.busiest_late_share)),
        ("hours that missed it", f"{target.missed_hours:,} of {target.hours:,}"),
        ("since", UNKNOWN if target.since is None else f"{target.since:%Y-%m-%d %H:%M} UTC"),
        ("by", target.cause.value if target.cause else UNKNOWN),
    )
    return Theme("Target", "How it was held. It allows 5 % of the waits to be longer.", lines)


def _latency(node: Node) -> Theme:
    latency = node.latency
    legs = (("wait", latency.wait), ("service", latency.service), ("end to end", latency.end_to_end))
    return Theme(
        "Latency",
        "p50 · p95 · p99. Wait: ready to delivered. Service: delivered to closed. End to end: published to acknowledged.",
        tuple((name, _percentiles(leg)) for name, leg in legs),
    )


def _percentiles(leg: Durations | None) -> str:
    if leg is None:
        return UNKNOWN
    return " · ".join(milliseconds(value) for value in (leg.p50_ms, leg.p95_ms, leg.p99_ms))


def _capacity(node: Node) -> Theme:
    capacity, price = node.capacity, node.price
    bounds = (
        *([("stanzaq#max_in_flight", number(capacity.max_in_flight))] if capacity.max_in_flight else []),
        *([("stanzaq#rate", rate(capacity.max_rate_per_s))] if capacity.max_rate_per_s else []),
    )
    lines = (
        ("deliveries asked for", rate(capacity.attempts_per_s)),
        ("credit" if capacity.credit_seen else "most at work", number(capacity.credit)),
        *bounds,
        ("workers needed", number(capacity.workers_needed)),
        ("at work on average", number(capacity.busy)),
        ("in the busiest hour", number(capacity.offered)),
        ("credit in use", share(capacity.credit_use)),
        ("most that credit can do", rate(capacity.most_per_s)),
        ("most within the target", rate(capacity.target_per_s)),
        ("headroom", share(capacity.headroom)),
        ("worker hours a day", number(price.worker_hours_per_day if price else None)),
        ("core hours of the queue a day", number(price.core_hours_per_day if price else None)),
    )
    ignored = f" Not replayed: {capacity.policies}." if capacity.policies else ""
    return Theme("Capacity", f"What could be done in the busiest hour. A worker is one unit of credit.{ignored}", lines)


def _backlog(node: Node) -> Theme:
    backlog = node.backlog
    lines = (
        ("waiting now", number(backlog.waiting)),
        ("in flight now", number(backlog.in_flight)),
        ("oldest", duration(backlog.oldest_s)),
        ("waiting on average", number(backlog.waiting_mean)),
        ("growth", rate(backlog.growth_per_s)),
        ("time to drain", duration(backlog.drain_s) if backlog.drains else "never"),
    )
    return Theme("Backlog", "What is not done yet.", lines)


def _waste(node: Node) -> Theme:
    waste = node.waste
    lines = (
        ("deliveries", number(waste.attempts)),
        ("acknowledged", number(waste.acknowledged)),
        ("expired", number(waste.expired)),
        ("released", number(waste.released)),
        ("bounced", number(waste.bounced)),
        ("dead-lettered", number(waste.dead_lettered)),
        ("cancelled", number(waste.cancelled)),
        ("redelivered", number(waste.redelivered)),
        ("expired undelivered", number(waste.perished)),
        ("worker-seconds lost", f"{number(waste.lost_s)} ({share(waste.lost_share)})"),
    )
    return Theme("Waste", "What became of deliveries.", lines)


def _fairness(node: Node) -> Theme:
    fairness = node.fairness
    about = "Jain's index of deliveries: 1 is evenly, 1/n when one has all."
    if fairness is None:
        return Theme("Fairness", about, (("deliveries", UNKNOWN),))
    lines = (
        ("subscribers", number(fairness.subscribers)),
        ("evenness among them", number(fairness.subscribers_jain)),
        ("partitions", number(fairness.partitions)),
        ("evenness among them", number(fairness.partitions_jain)),
        ("busiest to mean", number(fairness.partitions_skew)),
    )
    return Theme("Fairness", about, lines)


def _rest(node: Node) -> tuple[Theme, Theme]:
    forecast, quality = node.forecast, node.quality
    coming = (
        ("trend of arrivals", _trend(forecast)),
        ("target missed in", _missed(forecast)),
        ("memory of Redis full in", days(forecast.memory_full_days)),
        ("a record stays in Redis", duration(forecast.journal_reach_s)),
    )
    known = (
        ("seen at", UNKNOWN if quality.seen is None else f"{quality.seen:%m-%d %H:%M:%S} UTC"),
        ("deliveries still open", number(quality.open_attempts)),
        ("waits unknown", number(quality.waits_unknown)),
        ("in the system", number(quality.little_in_system)),
        ("by Little's law", number(quality.little_by_law)),
    )
    return (
        Theme("Forecast", "If it goes on like this.", coming),
        Theme("Data quality", "How far the numbers can be trusted.", known),
    )


def _trend(forecast: Forecast) -> str:
    """Write the trend with its band; without one, why."""
    slope, least, most = forecast.rate_growth_per_day, forecast.rate_growth_least, forecast.rate_growth_most
    if slope is None or least is None or most is None:
        return "needs five whole days"
    band = f"{rate(least)} to {rate(most)} a day"
    return f"none ({band})" if least <= 0 <= most else f"{rate(slope)} a day ({band})"


def _missed(forecast: Forecast) -> str:
    first, last = forecast.target_missed_first_days, forecast.target_missed_last_days
    if forecast.target_missed_days is None or first is None:
        return days(forecast.target_missed_days)
    until = "never" if last is None else days(last)
    return f"{days(forecast.target_missed_days)} ({days(first)} to {until})"


def days(many: float | None) -> str:
    """Write a time given in days."""
    if many is None:
        return UNKNOWN
    return "now" if many <= 0 else duration(many * 86_400)
