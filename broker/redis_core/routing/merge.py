"""How the outcomes of one command in several partitions become one. Pure; must not know how they were had."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from broker.model.commands import Browse, Locks, Purge, Release, Stats, Unsubscribe
from broker.model.results import Browsed, Counted, Fetched, Held, Purged, Refused, Released
from broker.redis_core.commands.internal import Leave, Left, Outcome

LOCKS_SHOWN: Final = 1_000


def gathered(command: Any, outcomes: Sequence[Outcome]) -> Outcome:
    """Make one outcome of those of all partitions, in their order; a refusal in any of them is the answer."""
    refused = next((outcome for outcome in outcomes if isinstance(outcome, Refused)), None)
    return refused or _MERGED[type(command)](command, outcomes)


def fetched(first: Fetched, others: Sequence[Fetched]) -> Fetched:
    """Join what a lease holds in several partitions; the `first` one knows until when it lasts."""
    found = sorted((item for part in (first, *others) for item in part.items), key=lambda item: item.deadline_ms)
    parts = (first, *others)
    return Fetched(
        tuple(found),
        first.until_ms,
        any(part.more for part in parts),
        sum(part.stamp for part in parts),
        returned=any(part.returned for part in parts),
    )


def _counted(_command: Stats, outcomes: Sequence[Counted]) -> Counted:
    def total(name: str) -> int:
        return sum(getattr(outcome, name) for outcome in outcomes)

    return Counted(
        total("waiting"),
        total("eligible"),
        total("delayed"),
        total("in_flight"),
        total("dying"),
        max(outcome.oldest_ms for outcome in outcomes),
        # A subscription stands in every partition.
        max(outcome.subscribers for outcome in outcomes),
        total("credit_free"),
        total("kept"),
        total("kept_bytes"),
        total("published"),
        total("finished"),
        total("attempts"),
    )


def _purged(_command: Purge, outcomes: Sequence[Purged]) -> Purged:
    return Purged(sum(outcome.count for outcome in outcomes), more=any(outcome.more for outcome in outcomes))


def _released(_command: Release, outcomes: Sequence[Released]) -> Released:
    return Released(sum(outcome.count for outcome in outcomes), sum(outcome.left for outcome in outcomes))


def _held(_command: Locks, outcomes: Sequence[Held]) -> Held:
    told = (replace(lock, partition=number) for number, outcome in enumerate(outcomes) for lock in outcome.locks)
    locks = sorted(told, key=lambda lock: lock.deadline_ms)
    return Held(tuple(locks[:LOCKS_SHOWN]))


def _browsed(command: Browse, outcomes: Sequence[Browsed]) -> Browsed:
    back = command.backwards
    items = sorted((item for outcome in outcomes for item in outcome.items), key=lambda item: item.place, reverse=back)
    count = sum(outcome.count for outcome in outcomes)
    if command.item_ids:
        return Browsed(tuple(items), more=any(outcome.more for outcome in outcomes), count=count)
    # Beyond how far a partition was looked through, what others have does not come next.
    ends = [outcome.reached for outcome in outcomes if outcome.reached]
    reached = (max if back else min)(ends, default=None)
    found = [item for item in items if reached is None or (item.place >= reached if back else item.place <= reached)]
    shown = found[: command.limit]
    if shown and len(shown) < len(found):
        reached = shown[-1].place
    return Browsed(tuple(shown[::-1] if back else shown), reached is not None, count, reached)


def _left(_command: Any, outcomes: Sequence[Left]) -> Left:
    ended = dict.fromkeys(name for outcome in outcomes for name in outcome.ended)
    held = sum(outcome.held for outcome in outcomes)
    return Left(tuple(ended), held, any(outcome.others for outcome in outcomes))


_MERGED: Final[dict[type, Callable[[Any, Any], Outcome]]] = {
    Stats: _counted,
    Purge: _purged,
    Release: _released,
    Locks: _held,
    Browse: _browsed,
    Unsubscribe: _left,
    Leave: _left,
}
