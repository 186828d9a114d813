"""One question to many at once: whoever asks goes on when it has heard enough, and nobody waits for the slowest.

Must not know who is asked, nor what.
"""

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable, Iterator
from typing import Any, TypeVar

from broker.tasks import start

T = TypeVar("T")


class FirstAnswer:
    """The questions under way. None is cancelled: its reply would be left for the connection's next user (redis-py #2624)."""

    def __init__(self) -> None:
        """Begin with nothing asked."""
        self._open: set[asyncio.Task[Any]] = set()

    def ask(self, questions: Iterable[Coroutine[Any, Any, T]]) -> Iterator[Awaitable[T]]:
        """Ask all; gives the answers to be awaited, the first that comes first."""
        asked = [start(question) for question in questions]
        for task in asked:
            self._open.add(task)
            task.add_done_callback(self._open.discard)
        return asyncio.as_completed(asked)

    async def close(self) -> None:
        """Wait for who has not answered yet."""
        await asyncio.gather(*self._open, return_exceptions=True)
