"""The expected report, computed in plain Python from the same attempts. Must not know Spark or the report's code."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.analytics.simulator import Attempt, Item


@dataclass(frozen=True, slots=True)
class Truth:
    """One node's numbers, in ms and counts."""

    attempts: int
    items: int
    kinds: Counter[str]
    redelivered: int
    lost_s: float
    waits: list[int]
    held: list[int]
    end_to_end: list[int]
    by_subscriber: Counter[str]
    by_partition: Counter[int]
    arrived: int
    in_system: float
    in_flight: float
    seconds: float


def truth(attempts: Iterable[Attempt], waiting: Sequence[Item] = (), interval: tuple[int, int] | None = None) -> Truth:
    """Compute everything over an interval in ms, from the first publish to the last close if none is given."""
    rows = list(attempts)
    before = {(row.partition, row.position, row.attempt): row.closed for row in rows}
    ready = [
        row.published if row.attempt == 1 else before.get((row.partition, row.position, row.attempt - 1))
        for row in rows
    ]
    known = [(row, since) for row, since in zip(rows, ready, strict=True) if since is not None]
    begin, end = interval or (min(row.published for row in rows), max(row.closed for row in rows) + 1)
    back = {(row.partition, row.position): row.closed for row in rows}
    since_when = [(item, back.get((item.partition, item.position))) for item in waiting]
    first = [row.published for row in rows if row.attempt == 1]
    first += [item.published for item, returned in since_when if returned is None]
    in_system = [(since, row.closed) for row, since in known]
    in_system += [(item.published if returned is None else returned, end) for item, returned in since_when]
    return Truth(
        attempts=len(rows),
        items=sum(row.attempt == 1 for row in rows),
        kinds=Counter(row.type for row in rows),
        redelivered=sum(row.attempt > 1 for row in rows),
        lost_s=sum(row.closed - row.delivered for row in rows if row.type != "acknowledged") / 1000,
        waits=sorted(row.delivered - since for row, since in known),
        held=sorted(row.closed - row.delivered for row in rows),
        end_to_end=sorted(row.closed - row.published for row in rows if row.type == "acknowledged"),
        by_subscriber=Counter(row.subscriber for row in rows),
        by_partition=Counter(row.partition for row in rows),
        arrived=sum(begin <= time < end for time in first),
        in_system=level(in_system, begin, end),
        in_flight=level([(row.delivered, row.closed) for row in rows], begin, end),
        seconds=(end - begin) / 1000,
    )


def level(stays: Iterable[tuple[int, int]], begin: int, end: int) -> float:
    """Return the average number, by how long each stayed."""
    return sum(max(0, min(gone, end) - max(came, begin)) for came, gone in stays) / (end - begin)


def percentile(ordered: Sequence[int], share: float) -> int:
    """Return the least value that a share of all does not exceed."""
    return ordered[math.ceil(share * len(ordered)) - 1]


def jain(counts: Iterable[int]) -> float:
    """Return Jain's index."""
    values = list(counts)
    return sum(values) ** 2 / (len(values) * sum(value * value for value in values))
