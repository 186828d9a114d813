"""How the outcomes of one command in several partitions become one. Pure; must not know how they were had."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from broker.model.commands import Browse, Locks, Purge, Stats, Unsubscribe
from broker.model.results import Browsed, Counted, Held, Purged, Refused
from broker.redis_core.internal import Leave, Left, Outcome

LOCKS_SHOWN: Final = 1_000


def gathered(command: Any, outcomes: Sequence[Outcome]) -> Outcome:
    """Make one outcome of those of all partitions, in their order; a refusal in any of them is the answer."""
    refused = next((outcome for outcome in outcomes if isinstance(outcome, Refused)), None)
    return refused or _MERGED[type(command)](command, outcomes)


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
    )


def _purged(_command: Purge, outcomes: Sequence[Purged]) -> Purged:
    return Purged(sum(outcome.count for outcome in outcomes), more=any(outcome.more for outcome in outcomes))


def _held(_command: Locks, outcomes: Sequence[Held]) -> Held:
    told = (replace(lock, partition=number) for number, outcome in enumerate(outcomes) for lock in outcome.locks)
    locks = sorted(told, key=lambda lock: lock.deadline_ms)
    return Held(tuple(locks[:LOCKS_SHOWN]))


def _browsed(command: Browse, outcomes: Sequence[Browsed]) -> Browsed:
    items = sorted((item for outcome in outcomes for item in outcome.items), key=lambda item: item.published_ms)
    most = len(items) if command.item_ids else command.limit
    return Browsed(tuple(items[:most]), more=len(items) > most or any(outcome.more for outcome in outcomes))


def _left(_command: Any, outcomes: Sequence[Left]) -> Left:
    return Left(any(outcome.was_subscribed for outcome in outcomes), sum(outcome.held for outcome in outcomes))


_MERGED: Final[dict[type, Callable[[Any, Any], Outcome]]] = {
    Stats: _counted,
    Purge: _purged,
    Locks: _held,
    Browse: _browsed,
    Unsubscribe: _left,
    Leave: _left,
}
