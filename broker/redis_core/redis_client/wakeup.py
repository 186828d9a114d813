"""How processes wake each other: each waits at lists in Redis (BLPOP). Must not know what there is to do.

A process that cannot send wakes any one frontend: the next one that waits takes the wake-up, and a lost one costs half a second
at most, until the next heartbeat. And a process wakes a pull subscription that waits in another one.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine
from typing import Any, Final

from broker import keys
from broker.model.names import Partition
from broker.model.problems import CoreUnavailable, OperationDefect
from broker.redis_core.redis_client.client import Server, Value
from broker.redis_core.redis_client.failure_log import FailureLog

_WAIT_SECONDS: Final = 5.0
_KEPT_SECONDS: Final = 10
_PAUSE_SECONDS: Final = 0.5
_AT_ONCE: Final = 1_000

Background = Callable[[Callable[[], Coroutine[Any, Any, Any]]], None]


class Wakeup:
    """Waits for wake-ups."""

    def __init__(self, server: Server, timeout: float) -> None:
        """Wait through `server`, whose answers are due within `timeout` seconds."""
        self._server = server
        self._seconds = min(_WAIT_SECONDS, timeout / 2)

    async def wait(self) -> bool:
        """Wait for a while and return whether a wake-up came. Raises CoreUnavailable."""
        return await self._server.wait("BLPOP", keys.of_service("wakeup"), str(self._seconds)) is not None


class Wakeups:
    """Wake-ups for one of those that wait in some process: each process has a list of its own."""

    def __init__(self, server: Server, process: str, timeout: float, background: Background) -> None:
        """Wait through `server`, whose answers are due within `timeout` seconds, as `process`; send in the background."""
        self._server = server
        self._process = process
        self._seconds = min(_WAIT_SECONDS, timeout / 2)
        self._background = background
        self._unsent: defaultdict[str, list[str]] = defaultdict(list)
        self._failures = FailureLog("wake-ups cannot be exchanged")

    def send(self, process: str, partition: Partition, subid: str) -> None:
        """Wake a subscription in another process; all wake-ups of one turn of the event loop are sent together."""
        if not self._unsent:
            self._background(self._send)
        self._unsent[process].append(f"{subid} {partition}")

    async def _send(self) -> None:
        unsent, self._unsent = self._unsent, defaultdict(list)
        names = {keys.of_process("wakeups", process): texts for process, texts in unsent.items()}
        sent: list[tuple[Value, ...]] = [("RPUSH", name, *texts) for name, texts in names.items()]
        try:
            # Nobody reads the list of a process that has ended.
            await self._server.commands([*sent, *(("EXPIRE", name, _KEPT_SECONDS) for name in names)])
        except (CoreUnavailable, OperationDefect) as error:
            self._failures.report(error)
        else:
            self._failures.note_success()

    async def listen(self, wake: Callable[[Partition, str], None]) -> None:
        """Pass on the wake-ups for this process, until cancelled."""
        name = keys.of_process("wakeups", self._process)
        while True:
            try:
                found = await self._server.wait("BLPOP", name, str(self._seconds))
                if found is not None:
                    more = await self._server.command("LPOP", name, _AT_ONCE) or ()
                    for text in (found[1], *more):
                        subid, _, partition = text.decode().partition(" ")
                        wake(Partition.parse(partition), subid)
                self._failures.note_success()
            except (CoreUnavailable, OperationDefect, ValueError) as error:
                self._failures.report(error)
                await asyncio.sleep(_PAUSE_SECONDS)
