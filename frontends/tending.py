"""What a frontend that nobody is subscribed through does in passing, and whether it can. Must not know what that is."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from broker.model.problems import CoreUnavailable, ScriptDefect

_PAUSE_SECONDS: Final = 1.0

_log = structlog.get_logger()


class Tending:
    """Does it again and again, and keeps in mind how the last time went."""

    def __init__(self, tend: Callable[[], Awaitable[None]]) -> None:
        """Begin with nothing done."""
        self._tend = tend
        self._task: asyncio.Task[None] | None = None
        self.failures = ["Redis has not answered yet"]

    async def begin(self) -> None:
        """Come back when it has gone well once; it goes on by itself from there."""
        while self.failures:
            await self._once()
            await asyncio.sleep(_PAUSE_SECONDS if self.failures else 0)
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """End it."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_PAUSE_SECONDS)
            await self._once()

    async def _once(self) -> None:
        before = self.failures
        try:
            await self._tend()
        except (CoreUnavailable, ScriptDefect) as fault:
            self.failures = [str(fault) or "Redis does not answer"]
            if self.failures != before:
                _log.warning("Redis cannot be asked", error=str(fault))
        else:
            self.failures = []
