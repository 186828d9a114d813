"""What the figures of a node come to, in a word and a sentence. Pure; must not know who reads it."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from broker.analytics.figures import Capacity, Node
from broker.analytics.quantities import counted, duration, share

_TIGHT: Final = 0.15
"""With less headroom than this, an ordinary busy day is too much."""


class State(Enum):
    """How a node stands."""

    ENOUGH = "enough"
    TIGHT = "tight"
    SHORT = "short"
    UNSTABLE = "unstable"
    IDLE = "no credit"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One node's state, and why."""

    state: State
    words: str


def verdict(node: Node, target_s: float) -> Verdict:
    """Judge a node by its credit, what is asked of it, and the target for the 95th percentile of waits."""
    capacity = node.capacity
    credit, needed = capacity.credit, capacity.workers_needed
    needs = "no number of workers is known to suffice" if needed is None else f"needs {counted(needed, 'worker')}"
    aim = f"{needs} for p95 wait ≤ {duration(target_s)}"
    if not node.waste.attempts:
        return Verdict(State.IDLE, f"nothing was delivered; {counted(node.backlog.waiting, 'item')} waiting")
    if credit is None:
        return Verdict(State.GONE, f"{aim}; is not there any more")
    if not credit:
        return Verdict(State.IDLE, f"{aim}; nobody has credit now, up to {capacity.busiest:.0f} were at work")
    return _credited(capacity, credit, f"{aim}; has credit for {credit:,}")


def _credited(capacity: Capacity, credit: int, words: str) -> Verdict:
    if capacity.most_per_s is not None and capacity.attempts_per_s >= capacity.most_per_s:
        return Verdict(State.UNSTABLE, f"{words}: unstable, more comes in than they can do")
    if capacity.workers_needed is None or capacity.workers_needed > credit:
        return Verdict(State.SHORT, words)
    if capacity.headroom is not None and capacity.headroom < _TIGHT:
        return Verdict(State.TIGHT, f"{words}: {share(capacity.headroom)} more would be too much")
    return Verdict(State.ENOUGH, words)
