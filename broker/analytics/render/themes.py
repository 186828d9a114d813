"""The themes of a node: labels and formatted values, the same in HTML and on the console."""

from dataclasses import dataclass
from typing import Final

from broker.analytics.figures import Durations, Node, Service
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
    return (_demand(node), _latency(node), _capacity(node), _backlog(node), _waste(node), _fairness(node), *_rest(node))


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
        ("arrivals", rate(demand.rate_per_s)),
        ("payload", f"{size(demand.bytes_per_s)}/s"),
        (f"peak in {duration(demand.peak_width_s)}", rate(demand.peak_per_s)),
        ("peak to mean", number(demand.peak_to_mean)),
        ("burstiness", number(demand.burstiness)),
    )
    return Theme("Demand", "What is asked. Burstiness is 0 for a clock, 1 for chance alone.", lines)


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
    capacity = node.capacity
    lines = (
        ("deliveries asked for", rate(capacity.attempts_per_s)),
        ("credit now", number(capacity.credit)),
        ("at work on average", number(capacity.busy)),
        ("credit in use", share(capacity.credit_use)),
        ("most that credit can do", rate(capacity.most_per_s)),
        ("most within the target", rate(capacity.target_per_s)),
        ("headroom", share(capacity.headroom)),
    )
    return Theme("Capacity", "What could be done. A worker is one unit of credit.", lines)


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
    trend = forecast.rate_growth_per_day
    coming = (
        ("trend of arrivals", "needs a day" if trend is None else f"{rate(trend)} a day"),
        ("target missed in", days(forecast.target_missed_days)),
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


def days(many: float | None) -> str:
    """Write a time given in days."""
    if many is None:
        return UNKNOWN
    return "now" if many <= 0 else duration(many * 86_400)
