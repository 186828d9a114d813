"""Wakes readers at the end of a log when it grows: at once for publishes through this frontend, else by polling.

One poll of a partition serves all its readers. Must not know links.
"""

import asyncio
from functools import partial
from typing import Final, Protocol

from broker.model import offsets
from broker.model.commands import Read
from broker.model.core import Core
from broker.model.names import Jid
from broker.model.results import Refused, Replay
from broker.tasks import keep_running

_PAUSE_SECONDS: Final = 0.02
_LONGEST_SECONDS: Final = 0.1
"""The longest time between two polls, and so the longest delay of an event from another frontend."""


class TailWatcher(Protocol):
    """A reader of a partition."""

    sender: Jid
    after: str

    def wake(self) -> None:
        """Read again."""


class LogTails:
    """All readers, by node and partition."""

    def __init__(self, core: Core) -> None:
        """Start without readers."""
        self._core = core
        self._waiters: dict[str, dict[int, set[TailWatcher]]] = {}
        self._polls: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._grown: set[str] = set()

    def enter(self, node: str, partition: int, waiter: TailWatcher) -> None:
        """Add a reader."""
        self._waiters.setdefault(node, {}).setdefault(partition, set()).add(waiter)
        if (node, partition) not in self._polls:
            self._polls[node, partition] = keep_running(partial(self._poll, node, partition))

    def leave(self, node: str, partition: int, waiter: TailWatcher) -> None:
        """Remove a reader."""
        waiters = self._waiters.get(node, {}).get(partition, set())
        waiters.discard(waiter)
        if not waiters and (task := self._polls.pop((node, partition), None)):
            task.cancel()
            del self._waiters[node][partition]
            if not self._waiters[node]:
                del self._waiters[node]

    def on_growth(self, node: str) -> None:
        """Wake the readers of a node that has grown, once for all publishes of one turn of the event loop."""
        if node in self._waiters and node not in self._grown:
            self._grown.add(node)
            asyncio.get_running_loop().call_soon(self._wake_all, node)

    def _wake_all(self, node: str) -> None:
        self._grown.discard(node)
        for waiters in self._waiters.get(node, {}).values():
            for waiter in waiters:
                waiter.wake()

    async def _poll(self, node: str, partition: int) -> None:
        pause, seen = _PAUSE_SECONDS, ""
        while True:
            await asyncio.sleep(pause)
            waiters = self._waiters[node][partition]
            one = next(iter(waiters))
            found = await self._core.ask(Read(node, one.sender, partition, offsets.LATEST, 0))
            if isinstance(found, Replay):
                late = [each for each in waiters if found.latest != each.after]
                # A reader without credit stays behind: that is no news.
                news, seen = bool(late) and found.latest != seen, found.latest
            else:
                # Each reader finds the reason by its own read, unless it will pass.
                late = [] if isinstance(found, Refused) and found.problem.retryable else list(waiters)
                news = False
            pause = _PAUSE_SECONDS if news else min(_LONGEST_SECONDS, pause * 1.5)
            for each in late:
                each.wake()
