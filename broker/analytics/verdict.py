"""Judges a node in a word and a few sentences: what was measured first, then why, then what would mend it.

Pure; must not know who reads them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from broker.analytics.figures import Cause, Node, Report
from broker.analytics.quantities import duration, number, rate, share, write_count

_TIGHT: Final = 0.15
"""With less headroom than this, an ordinary busy day is too much."""

_SHOWN: Final = 0.01
"""A smaller share of lost items is not worth a word."""

_SOON_DAYS: Final = 30.0
"""What will be missed within so many days belongs to this week's work."""

_NAMED: Final = 3


class State(Enum):
    """The state of a node, the most urgent first."""

    UNSTABLE = "unstable"
    MISSED = "missed"
    IDLE = "no credit"
    SHORT = "short"
    TIGHT = "tight"
    NO_DATA = "no data"
    ENOUGH = "enough"
    GONE = "gone"


_ORDER: Final = tuple(State)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The state of a node, what was measured and why, and what would mend it; empty when there is nothing to do."""

    state: State
    words: str
    remedy: str = ""


def urgency(node: Node, target_s: float) -> tuple[int, float]:
    """Return a key that sorts the most urgent node first: by state, then by how many waits were too long."""
    return _ORDER.index(verdict(node, target_s).state), -node.target.late_share


def verdict(node: Node, target_s: float) -> Verdict:
    """Judge a node by the waits that were measured, and by what its replay needs."""
    if not node.waste.attempts:
        return _judge_idle(node)
    measured = _measured(node, target_s)
    if node.capacity.credit is None:
        return Verdict(State.GONE, f"{measured}; the node was deleted")
    state, headroom = _judge_credit(node, node.capacity.credit), max(0.0, node.capacity.headroom or 0.0)
    if state is State.IDLE:
        measured = f"{measured}; no subscriber has credit now"
    elif state is State.TIGHT:
        measured = f"{measured}; {share(headroom)} more would be too much"
    return Verdict(state, measured, "" if state is State.ENOUGH else _remedy(node, target_s))


def _judge_credit(node: Node, credit: int) -> State:
    capacity, cause = node.capacity, node.target.cause
    if not credit or capacity.credit_now == 0:
        return State.IDLE
    if cause is not None:
        grows = cause is Cause.CREDIT and (capacity.offered or 0.0) >= credit
        return State.UNSTABLE if grows else State.MISSED
    if capacity.workers_needed is None or capacity.workers_needed > credit:
        return State.SHORT
    return State.TIGHT if capacity.headroom is not None and capacity.headroom < _TIGHT else State.ENOUGH


def _judge_idle(node: Node) -> Verdict:
    waiting = f"{write_count(node.backlog.waiting, 'item')} waiting"
    if node.waste.perished:
        words = f"all of {write_count(node.waste.perished, 'item')} expired before anybody got one; {waiting}"
        return Verdict(State.IDLE, words, "subscribe workers with credit")
    if node.backlog.in_flight:
        return Verdict(State.NO_DATA, f"no delivery has ended yet; {node.backlog.in_flight:,} in flight, {waiting}")
    return Verdict(State.IDLE, f"nothing was delivered; {waiting}", "subscribe workers with credit")


def _measured(node: Node, target_s: float) -> str:
    """Say how the target was held in the interval, and why not."""
    target, wait, perished = node.target, node.latency.wait, node.waste.perished
    p95 = "" if wait is None else f"p95 wait {duration(wait.p95_ms / 1000)} for a target of {duration(target_s)}"
    items = max(1, perished + node.waste.items)
    lost = "".join(
        f"; {share(many / items)} of the items {words}"
        for many, words in (
            (perished, "expired before anybody got them"),
            (node.waste.dead_lettered, "became dead letters"),
        )
        if many > _SHOWN * items
    )
    if target.cause is None:
        return f"target held: {p95}{lost}" if p95 else f"target held{lost}"
    when = f" since {target.since:%Y-%m-%d %H:%M}" if target.since else ""
    hours = f" in {target.missed_hours:,} of {write_count(target.hours, 'hour')}" if target.hours > 1 else ""
    late = f"{share(target.late_share)} of waits were too long"
    return f"target missed{hours}{when} by {_name(node)}: {late}, {p95 or 'most never ended'}{lost}"


def _name(node: Node) -> str:
    """Name the cause, with the node's own bound where it is one."""
    cause, capacity = node.target.cause, node.capacity
    if cause is Cause.IN_FLIGHT:
        return f"{cause.value} = {capacity.max_in_flight:,}"
    if cause is Cause.RATE:
        return f"{cause.value} = {rate(capacity.max_rate_per_s)}"
    return cause.value if cause else ""


def _remedy(node: Node, target_s: float) -> str:
    """Say what would hold the target in the busiest hour, and what that costs."""
    capacity, demand, price, cause = node.capacity, node.demand, node.price, node.target.cause
    if price is None or capacity.workers_unbound is None:
        return ""
    at = f" from {demand.busiest_at:%Y-%m-%d %H:%M}" if demand.busiest_at else ""
    load = f"at {rate(demand.busiest_per_s)}{at} (mean {rate(demand.rate_per_s)})"
    if cause is Cause.TIMEOUTS:
        return f"let handlers renew their locks, or raise stanzaq#lock_seconds; then look again {load}"
    if capacity.workers_needed is None:
        bound = "stanzaq#max_in_flight" if cause is Cause.IN_FLIGHT else "stanzaq#rate"
        return f"raise {bound}: without it {write_count(capacity.workers_unbound, 'worker')} hold the target {load}"
    has = (
        f"the credit was {capacity.credit or 0:,}" if capacity.credit_seen else f"{capacity.credit or 0:,} were at work"
    )
    needs = f"p95 wait ≤ {duration(target_s)} needs {write_count(capacity.workers_needed, 'worker')} {load}; {has}"
    if not price.workers:
        return "" if cause is None else f"{needs}: look at {_name(node)}"
    pods = f", {write_count(price.subscribers, 'subscriber')} like those of now" if price.subscribers else ""
    return (
        f"{needs}: add {price.workers:,}{pods}; all work takes {number(price.worker_hours_per_day)} worker hours a day, and the"
        f" queue itself {number(price.core_hours_per_day)} core hours"
    )


def this_week(report: Report) -> str:
    """Say in one sentence what to do this week."""
    urgent: list[str] = []
    judged = [(node, verdict(node, report.target_wait_p95_s)) for node in report.nodes]
    for node, found in judged:
        if found.state in {State.UNSTABLE, State.MISSED, State.IDLE, State.SHORT, State.TIGHT}:
            urgent.append(f"{node.node} ({_short(node, found.state)})")
        elif (days := node.forecast.target_missed_days) is not None and days <= _SOON_DAYS:
            urgent.append(f"{node.node} (target missed in {duration(days * 86_400)})")
    if not urgent:
        return f"Nothing to do this week: {_all(len(judged))} the target."
    return f"This week: {_listed(urgent)}."


def _short(node: Node, state: State) -> str:
    price, bound = node.price, node.target.cause in {Cause.IN_FLIGHT, Cause.RATE, Cause.TIMEOUTS}
    if bound:
        return _name(node)
    return f"add {write_count(price.workers, 'worker')}" if price and price.workers else state.value


def _listed(urgent: Sequence[str]) -> str:
    more = len(urgent) - _NAMED
    return ", ".join(urgent[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def _all(nodes: int) -> str:
    return "the node holds" if nodes == 1 else f"all of {nodes:,} nodes hold"
