"""Two intervals side by side: what each node had before, what it has now, and by how much that changed. Must not know files."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from broker.analytics.figures import Node, Report
from broker.analytics.quantities import UNKNOWN, milliseconds, number, rate, share

_ALL: Final = "all"
_SAME: Final = 0.005
"""A smaller change is none."""


@dataclass(frozen=True, slots=True)
class Change:
    """One figure of a node, or of all: before and now; None where there is none."""

    node: str
    figure: str
    before: float | None
    now: float | None

    @property
    def change(self) -> float | None:
        """Return by which share it grew."""
        return self.now / self.before - 1 if self.before and self.now is not None else None


_Values = Sequence[float | None]


def _total(values: _Values) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _most(values: _Values) -> float | None:
    return max((value for value in values if value is not None), default=None)


class _Figure(NamedTuple):
    """How to read a figure of a node, how to join those of all (the sum, or the worst), and how to write it."""

    read: Callable[[Node], float | None]
    join: Callable[[_Values], float | None]
    write: Callable[[float | None], str]


_FIGURES: Final = {
    "arrivals": _Figure(lambda node: node.demand.rate_per_s, _total, rate),
    "busiest hour": _Figure(lambda node: node.demand.busiest_per_s, _total, rate),
    "p95 wait": _Figure(lambda node: node.latency.wait.p95_ms if node.latency.wait else None, _most, milliseconds),
    "waits too long": _Figure(lambda node: node.target.late_share, _most, share),
    "workers needed": _Figure(lambda node: node.capacity.workers_needed, _total, number),
    "work lost": _Figure(lambda node: node.waste.lost_share, _most, share),
}


def changes(now: Report) -> list[Change]:
    """Return each figure of all nodes together and of each node; nothing without an earlier interval."""
    if now.before is None:
        return []
    current, earlier = ({node.node: node for node in each.nodes} for each in (now, now.before))
    found = []
    for name, figure in _FIGURES.items():
        then, today = (figure.join([figure.read(node) for node in each.values()]) for each in (earlier, current))
        found.append(Change(_ALL, name, then, today))
    for node in current | earlier:
        for name, figure in _FIGURES.items():
            values = [figure.read(each[node]) if node in each else None for each in (earlier, current)]
            found.append(Change(node, name, *values))
    return found


HEAD: Final = ("node", *_FIGURES)


def rows(report: Report) -> list[tuple[str, ...]]:
    """Return a row for all nodes together and for each: each figure now, and its change."""
    found: dict[str, list[str]] = {}
    for each in changes(report):
        write, change = _FIGURES[each.figure].write, each.change
        if change is None:
            grown = "" if each.before is None or each.now is not None else f" (was {write(each.before)})"
        else:
            grown = f" ({change:+.0%})" if abs(change) >= _SAME else " (same)"
        found.setdefault(each.node, []).append(f"{UNKNOWN if each.now is None else write(each.now)}{grown}")
    return [(node, *cells) for node, cells in found.items()]
