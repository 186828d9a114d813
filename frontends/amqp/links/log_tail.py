"""Who waits at the end of a log, and who tells them that it has grown: a publish through this frontend, else a look now and then.

One look at a partition serves all who wait at it. Must not know links.
"""

import asyncio
from functools import partial
from typing import Final, Protocol

from broker.model import offsets
from broker.model.commands import Read
from broker.model.core import Core
from broker.model.names import Jid
from broker.model.results import Replay
from broker.tasks import keep_running

_PAUSE_SECONDS: Final = 0.02
_LONGEST_SECONDS: Final = 0.1
"""Longest time between two looks: it bounds how late an event comes that another frontend has taken in."""


class TailWatcher(Protocol):
    """One who reads a partition."""

    sender: Jid
    after: str

    def wake(self) -> None:
        """Look again."""


class LogTails:
    """All who read, by node and partition."""

    def __init__(self, core: Core) -> None:
        """Begin with nobody."""
        self._core = core
        self._waiters: dict[str, dict[int, set[TailWatcher]]] = {}
        self._looking: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._risen: set[str] = set()

    def enter(self, node: str, partition: int, waiter: TailWatcher) -> None:
        """Look after one who reads."""
        self._waiters.setdefault(node, {}).setdefault(partition, set()).add(waiter)
        if (node, partition) not in self._looking:
            self._looking[node, partition] = keep_running(partial(self._look, node, partition))

    def leave(self, node: str, partition: int, waiter: TailWatcher) -> None:
        """Look after them no more."""
        waiters = self._waiters.get(node, {}).get(partition, set())
        waiters.discard(waiter)
        if not waiters and (task := self._looking.pop((node, partition), None)):
            task.cancel()
            del self._waiters[node][partition]
            if not self._waiters[node]:
                del self._waiters[node]

    def on_growth(self, node: str) -> None:
        """Hear that a node has grown; once for all that come in one turn of the loop."""
        if node in self._waiters and node not in self._risen:
            self._risen.add(node)
            asyncio.get_running_loop().call_soon(self._tell, node)

    def _tell(self, node: str) -> None:
        self._risen.discard(node)
        for waiters in self._waiters.get(node, {}).values():
            for waiter in waiters:
                waiter.wake()

    async def _look(self, node: str, partition: int) -> None:
        pause = _PAUSE_SECONDS
        while True:
            await asyncio.sleep(pause)
            waiters = self._waiters[node][partition]
            one = next(iter(waiters))
            found = await self._core.ask(Read(node, one.sender, partition, offsets.LATEST, 0))
            # Who is refused finds out why by itself.
            late = [each for each in waiters if not isinstance(found, Replay) or found.latest != each.after]
            pause = _PAUSE_SECONDS if late else min(_LONGEST_SECONDS, pause * 1.5)
            for each in late:
                each.wake()
