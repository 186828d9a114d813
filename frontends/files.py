"""Notices that files have changed. Must not know what is in them, nor who uses it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

LOOK_SECONDS: Final = 2.0

_State = tuple[int, ...] | None


class Files:
    """Some files, as they were when this was made."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Look at them for the first time."""
        self._paths = paths
        self._seen = self._look()

    async def watch(self, asked: asyncio.Event, use: Callable[[], Awaitable[None]]) -> None:
        """Call `use` at once when `asked`, and after each change that is as old as the last look: who writes may need time."""
        last = self._seen
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await asked.wait()
            now = self._look()
            if asked.is_set() or (now == last and now != self._seen):
                asked.clear()
                self._seen = now
                await use()
            last = now

    def _look(self) -> list[_State]:
        return [_look_at(path) for path in self._paths]


def _look_at(path: Path) -> _State:
    """Return what a change of a file changes, also where Kubernetes replaces a link above it; None if it is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
