"""Commands that are repeated until nothing is left: scans of subscribers, ends of subscriptions. Must not know who runs them."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from broker.model.results import Refused
from broker.redis_core.commands.internal import Leave, Left, Outcome, Scanned, ScanSubscribers


async def subscribers(
    ask: Callable[[ScanSubscribers], Awaitable[Any]], node: str, partition: int
) -> AsyncIterator[Scanned | Refused]:
    """Yield the subscribers of a partition in pages; a refusal is the last one."""
    scan, ended = "0", False
    while not ended:
        part: Scanned | Refused = await ask(ScanSubscribers(node, scan, partition))
        yield part
        scan = part.scan if isinstance(part, Scanned) else "0"
        ended = scan == "0"


async def leave_empty(ask: Callable[[Leave], Awaitable[Any]], leave: Leave) -> tuple[tuple[str, ...], Outcome]:
    """End a subscription until it holds nothing; returns the subids that ended, from the first answer, and the last outcome."""
    left: Outcome = await ask(leave)
    ended = left.ended if isinstance(left, Left) else ()
    while isinstance(left, Left) and left.held > 0:
        left = await ask(leave)
    return ended, left
