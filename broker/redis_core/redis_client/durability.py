"""Connections to one Redis for calls whose writes must be on its disk, or in replicas, before their callers are answered.

WAIT and WAITAOF cover what their own connection has written, and block it. So there are two connections, which take turns: while
one waits, calls go over the other. One wait is for all calls of its connection since its last one, so that a batch pays once, and
a replica that is away delays nothing but the answers that it is waited for. Must not know what is called.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from redis.exceptions import RedisError

from broker.model.items.durability import Durability
from broker.redis_core.redis_client.connections import Connection, Connections, Line
from broker.tasks import start

CONNECTIONS: Final = 2

_LOST: Final = "the connection to Redis was lost"


class DurableCall:
    """A call whose writes are waited for; `waits` has an outcome for each connection that it was sent over."""

    def __init__(self, level: Durability) -> None:
        """Wait for this level."""
        self.level = level
        self.waits: list[asyncio.Future[str]] = []

    async def failure(self) -> str:
        """Wait; return why the writes may be less durable than that, empty if they are not."""
        await asyncio.wait(self.waits)
        return next(filter(None, (each.result() for each in self.waits)), "")


class RoundTrip:
    """The connection of one round trip of durable calls, taken and given back as those of `Connections` are."""

    def __init__(self, connections: "DurableConnections", calls: Sequence[DurableCall]) -> None:
        """Send these calls."""
        self._connections = connections
        self._calls = calls

    async def take(self) -> Connection:
        """Return the connection that does not wait, once no other round trip uses it."""
        return await self._connections.take()

    def give_back(self, _connection: Connection) -> None:
        """Let the next wait be for these calls too."""
        wait = self._connections.give_back()
        for call in self._calls:
            call.waits.append(wait)


class DurableConnections:
    """Two connections to one Redis, for calls of one level; safe to share between tasks of one loop."""

    def __init__(self, level: Durability, replicas: int, timeout: float, connect: Callable[[int], Connections]) -> None:
        """Open at most so many connections by `connect`; a wait for so many `replicas` takes up to `timeout` seconds."""
        self.gathered: list[Any] = []
        ms = max(1, int(timeout * 1000))
        self._timeout = timeout
        self._synced = level is Durability.SYNCED
        self._needed = 1 if self._synced else replicas
        self._question: Line = ("WAITAOF", 1, 0, ms) if self._synced else ("WAIT", replicas, ms)
        self._connections = connect(CONNECTIONS)
        self._turn = asyncio.Lock()
        self._current: tuple[Connection, asyncio.Future[str]] | None = None
        self._waiting: asyncio.Task[None] | None = None

    async def take(self) -> Connection:
        """Return the connection for calls, for this caller alone; raises redis-py's errors."""
        await self._turn.acquire()
        try:
            if self._current is None:
                self._current = await self._connections.take(), asyncio.get_running_loop().create_future()
        except BaseException:
            self._turn.release()
            raise
        return self._current[0]

    def give_back(self) -> asyncio.Future[str]:
        """Give the connection back; returns the outcome of its next wait, empty if the writes are as durable as wanted."""
        assert self._current is not None
        connection, outcome = self._current
        if not connection.is_connected:
            # The next one has not written what this one has.
            self._current = None
            self._connections.give_back(connection)
            outcome.set_result(_LOST)
        elif self._waiting is None:
            self._waiting = start(self._wait())
        self._turn.release()
        return outcome

    async def _wait(self) -> None:
        while True:
            async with self._turn:
                if self._current is None:
                    self._waiting = None
                    return
                (connection, outcome), self._current = self._current, None
            try:
                outcome.set_result(await self._ask(connection))
            finally:
                self._connections.give_back(connection)
                if not outcome.done():
                    outcome.set_result(_LOST)

    async def _ask(self, connection: Connection) -> str:
        if not connection.is_connected:
            return _LOST
        try:
            (reply,) = await connection.replies([self._question], blocked=self._timeout)
        except (RedisError, OSError, TimeoutError):
            await connection.disconnect()
            return _LOST
        if isinstance(reply, Exception):
            # The Redis is no master any more, or its options have changed.
            return str(reply)
        count = reply[0] if self._synced else reply
        if count >= self._needed:
            return ""
        return "Redis has not written it to its disk" if self._synced else f"{count} of {self._needed} replicas have it"

    async def close(self) -> None:
        """Close the connections, which ends their waits."""
        await self._connections.close()
