"""Merges the outcomes of one command in several partitions. Pure; must not know where they come from."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Final

from broker.model.commands import Browse, ListEnds
from broker.model.results import (
    Browsed,
    Counted,
    Ended,
    EndList,
    Extents,
    HeldLocks,
    Purged,
    Received,
    Released,
    Replay,
)
from broker.redis_core.commands.dependency_parts import Awaited
from broker.redis_core.commands.internal import Left

LOCKS_SHOWN: Final = 1_000

_COUNTS: Final = tuple(field.name for field in fields(Counted))
_LARGEST: Final = frozenset({"oldest_ms", "subscribers"})
"""Counts that partitions share: each knows every subscription."""


def received(parts: Sequence[Received]) -> Received:
    """Merge what a pull subscription holds in several partitions; the first one knows its lease."""
    first = parts[0]
    items = {(item.partition, item.token): item for part in parts for item in part.items}
    return Received(
        tuple(sorted(items.values(), key=lambda item: item.deadline_ms)),
        first.until_ms,
        any(part.more for part in parts),
        {partition: held for part in parts for partition, held in part.held.items()},
        first.credit,
    )


def counted(_command: object, outcomes: Sequence[Counted]) -> Counted:
    """Add up the counts of partitions."""
    return added_up(outcomes)


def added_up(outcomes: Sequence[Counted]) -> Counted:
    """Add up the counts of partitions."""

    def merged(name: str) -> int:
        return (max if name in _LARGEST else sum)(getattr(outcome, name) for outcome in outcomes)

    return Counted(*map(merged, _COUNTS))


def purged(_command: object, outcomes: Sequence[Purged]) -> Purged:
    """Add up dropped items."""
    return Purged(sum(outcome.count for outcome in outcomes), more=any(outcome.more for outcome in outcomes))


def released(_command: object, outcomes: Sequence[Released]) -> Released:
    """Add up released locks."""
    return Released(sum(outcome.count for outcome in outcomes), sum(outcome.left for outcome in outcomes))


def held(_command: object, outcomes: Sequence[HeldLocks]) -> HeldLocks:
    """Merge the locks of several partitions, earliest deadline first."""
    told = (replace(lock, partition=number) for number, outcome in enumerate(outcomes) for lock in outcome.locks)
    locks = sorted(told, key=lambda lock: lock.deadline_ms)
    return HeldLocks(tuple(locks[:LOCKS_SHOWN]))


def browsed(command: Browse, outcomes: Sequence[Browsed]) -> Browsed:
    """Merge the pages of several partitions, up to the position that all of them have read."""
    back = command.backwards
    items = sorted((item for outcome in outcomes for item in outcome.items), key=lambda item: item.place, reverse=back)
    count = sum(outcome.count for outcome in outcomes)
    if command.item_ids:
        return Browsed(tuple(items), more=any(outcome.more for outcome in outcomes), count=count)
    # Items beyond the read part of any partition may not come next.
    ends = [outcome.reached for outcome in outcomes if outcome.reached]
    reached = (max if back else min)(ends, default=None)
    found = [item for item in items if reached is None or (item.place >= reached if back else item.place <= reached)]
    shown = found[: command.limit]
    if shown and len(shown) < len(found):
        reached = shown[-1].place
    return Browsed(tuple(shown[::-1] if back else shown), reached is not None, count, reached)


def ended(_command: object, outcomes: Sequence[Ended]) -> Ended:
    """Return the end of an item that some partition keeps."""
    return max(outcomes, key=lambda outcome: (outcome.outcome is not None, outcome.awaited))


def kept_ends(command: ListEnds, outcomes: Sequence[EndList]) -> EndList:
    """Merge the ends of several partitions."""
    ends = [end for outcome in outcomes for end in outcome.ends]
    return EndList(tuple(sorted(ends, key=lambda end: -end.expires_ms)[: command.limit]))


_KNOWN: Final = ("unknown", "ended", "unfinished", "awaited")


def awaited(_command: object, outcomes: Sequence[Awaited]) -> Awaited:
    """Return what is known of an item. That it is there counts more than that an earlier item of its id has ended."""
    return max(outcomes, key=lambda outcome: _KNOWN.index(outcome.state))


def unsubscribed(_command: object, outcomes: Sequence[Left]) -> Left:
    """Merge what has ended."""
    ended = dict.fromkeys(name for outcome in outcomes for name in outcome.ended)
    held = sum(outcome.held for outcome in outcomes)
    return Left(tuple(ended), held, any(outcome.others for outcome in outcomes))


def extents(_command: object, outcomes: Sequence[Replay]) -> Extents:
    """Return how far each partition's log reaches."""
    return Extents(tuple(outcomes))
