"""Asks many the same question at once: the caller stops waiting once it knows enough.

Must not know who is asked, nor what.
"""

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable, Iterator
from typing import Any, TypeVar

from broker.tasks import start

T = TypeVar("T")


class FirstAnswer:
    """Questions under way. None is cancelled: its reply would be left for the connection's next user (redis-py #2624)."""

    def __init__(self) -> None:
        """Begin with no questions."""
        self._open: set[asyncio.Task[Any]] = set()

    def ask(self, questions: Iterable[Coroutine[Any, Any, T]]) -> Iterator[Awaitable[T]]:
        """Ask all at once; returns the awaitable answers in order of arrival."""
        asked = [start(question) for question in questions]
        for task in asked:
            self._open.add(task)
            task.add_done_callback(self._open.discard)
        return asyncio.as_completed(asked)

    async def close(self) -> None:
        """Wait for the answers that are still missing."""
        await asyncio.gather(*self._open, return_exceptions=True)
