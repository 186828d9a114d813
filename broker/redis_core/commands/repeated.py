"""Commands given again until nothing is left: a scan of subscribers, a departure. Must not know who carries them out."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from broker.model.results import Refused
from broker.redis_core.commands.internal import Leave, Left, Outcome, Scanned, ScanSubscribers


async def subscribers(
    ask: Callable[[ScanSubscribers], Awaitable[Any]], node: str, partition: int
) -> AsyncIterator[Scanned | Refused]:
    """Give who is subscribed in a partition, part by part; a refusal is the last one."""
    scan, ended = "0", False
    while not ended:
        part: Scanned | Refused = await ask(ScanSubscribers(node, scan, partition))
        yield part
        scan = part.scan if isinstance(part, Scanned) else "0"
        ended = scan == "0"


async def leave_empty(ask: Callable[[Leave], Awaitable[Any]], leave: Leave) -> tuple[tuple[str, ...], Outcome]:
    """End a subscription until it holds nothing; gives what has ended, which is told the first time, and the last outcome."""
    left: Outcome = await ask(leave)
    ended = left.ended if isinstance(left, Left) else ()
    while isinstance(left, Left) and left.held > 0:
        left = await ask(leave)
    return ended, left
