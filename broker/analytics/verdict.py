"""Judges the figures of a node in a word and a sentence. Pure; must not know who reads them."""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from broker.analytics.figures import Capacity, Node
from broker.analytics.quantities import duration, rate, share, write_count

_TIGHT: Final = 0.15
"""With less headroom than this, an ordinary busy day is too much."""

_AGREE: Final = 1.5
"""Within this factor a measured wait agrees with the formula, which is no more exact for real queues (docs/reports.md)."""

_AGREE_S: Final = 0.02
"""Queue and network themselves take this long, so shorter waits agree."""

_BALANCED: Final = 0.05
"""A queue is in balance when its backlog grows by less than this share of the arrivals."""


class State(Enum):
    """The state of a node."""

    ENOUGH = "enough"
    TIGHT = "tight"
    SHORT = "short"
    UNSTABLE = "unstable"
    IDLE = "no credit"
    GONE = "gone"
    NO_DATA = "no data"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The state of a node, the reason, and how the measured waits compare with the formula."""

    state: State
    words: str
    waits: str = ""


def verdict(node: Node, target_s: float) -> Verdict:
    """Judge a node by its credit, its load, and the target for the 95th percentile of waits."""
    capacity = node.capacity
    credit, needed = capacity.credit, capacity.workers_needed
    needs = "no number of workers is known to suffice" if needed is None else f"needs {write_count(needed, 'worker')}"
    aim = f"{needs} for p95 wait ≤ {duration(target_s)}"
    if not node.waste.attempts:
        waiting, held = f"{write_count(node.backlog.waiting, 'item')} waiting", node.backlog.in_flight
        if held:
            return Verdict(State.NO_DATA, f"no delivery has ended yet; {held:,} in flight, {waiting}")
        return Verdict(State.IDLE, f"nothing was delivered; {waiting}")
    if credit is None:
        return Verdict(State.GONE, f"{aim}; the node was deleted")
    if not credit:
        return Verdict(State.IDLE, f"{aim}; no subscriber has credit now, up to {capacity.busiest:.0f} were at work")
    return replace(_judge_credit(capacity, credit, f"{aim}; has credit for {credit:,}"), waits=_waits(node, credit))


def _judge_credit(capacity: Capacity, credit: int, words: str) -> Verdict:
    if capacity.most_per_s is not None and capacity.attempts_per_s >= capacity.most_per_s:
        return Verdict(State.UNSTABLE, f"{words}: unstable, more comes in than they can do")
    if capacity.workers_needed is None or capacity.workers_needed > credit:
        return Verdict(State.SHORT, words)
    if capacity.headroom is not None and capacity.headroom < _TIGHT:
        return Verdict(State.TIGHT, f"{words}: {share(capacity.headroom)} more would be too much")
    return Verdict(State.ENOUGH, words)


def _waits(node: Node, credit: int) -> str:
    """Explain in one sentence why the measured wait agrees with the formula or does not."""
    wait, expected = node.latency.wait, node.capacity.wait_p95_s
    if wait is None:
        return ""
    measured = wait.p95_ms / 1000
    words = f"p95 wait was {duration(measured)}, and the formula predicts for credit of {credit:,}"
    if expected is None:
        return f"{words} unlimited growth: the measured wait only shows how long that has lasted"
    words = f"{words} {duration(expected)}: "
    if max(measured, _AGREE_S) < expected / _AGREE:
        return f"{words}the interval was too short for that, or credit was higher in it"
    if measured <= max(expected * _AGREE, _AGREE_S):
        return f"{words}they agree"
    return words + _find_hidden_cause(node, credit)


def _find_hidden_cause(node: Node, credit: int) -> str:
    """Find a cause that the formula does not know."""
    capacity, demand, growth = node.capacity, node.demand, node.backlog.growth_per_s or 0.0
    if abs(growth) > _BALANCED * demand.rate_per_s:
        return f"the queue was not in balance, what waits {'grew' if growth > 0 else 'shrank'} by {rate(abs(growth))}"
    tries = capacity.attempts_per_s / demand.rate_per_s if demand.rate_per_s else 1.0
    if demand.peak_per_s and capacity.most_per_s and demand.peak_per_s * tries > capacity.most_per_s:
        return f"at its peak {rate(demand.peak_per_s * tries)} were asked for, more than credit can do"
    if capacity.busiest < credit * (1 - _TIGHT):
        return f"no more than {capacity.busiest:.0f} were at work, so credit was lower or not for what waited"
    return "items waited for their delay, their group or a subscriber that may have them"
