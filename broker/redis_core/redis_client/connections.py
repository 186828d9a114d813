"""The connections to one Redis process: opened when first used, limited in number; a caller that finds none free waits.

redis-py opens, uses and closes them; its own pool costs more than sending a command. Must not know what is sent.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, cast

import hiredis
from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.maint_notifications import MaintNotificationsConfig

Value = str | int | bytes
Line = Sequence[Value]
"""A command as it is sent, word by word."""

UNKNOWN: Final = -1
"""The load count of a connection before its operations are checked."""

MOST: Final = 64
"""Connections to one Redis, and so calls under way there, at most."""

_encode = cast("Callable[[Line], bytes]", hiredis.pack_command)

Greet = Callable[[AbstractConnection], Awaitable[None]]


def split_name(line: Line) -> Line:
    """Return a command in single words: some names have two."""
    return (*str(line[0]).split(), *line[1:])


class Connection:
    """A connection that writes commands by hiredis: redis-py does so for its blocking connections only.

    `loads` is the node's load count when this connection last saw its operations loaded.
    """

    loads = UNKNOWN
    socket_timeout: float | None
    is_connected: bool
    connect: Callable[[], Awaitable[None]]
    can_read: Callable[[], Awaitable[bool]]
    read_response: Callable[..., Awaitable[Any]]
    _writer: asyncio.StreamWriter | None

    async def on_connect_check_health(self, check_health: bool = True) -> None:  # noqa: FBT001, FBT002  (redis-py's)
        """Reset the load count: the connection may lead to a restarted Redis, or to another one."""
        self.loads = UNKNOWN
        await super().on_connect_check_health(check_health=check_health)  # type: ignore[misc]

    async def disconnect(self, *args: Any, **how: Any) -> None:
        """Close it and drop unwritten data, which would stay in memory as long as a hanging Redis does not read it."""
        if self._writer is not None:
            self._writer.transport.abort()
        await super().disconnect(*args, **how)  # type: ignore[misc]

    async def send_packed_command(self, command: Any, **_how: Any) -> None:
        """Send one of redis-py's own commands without its task per command, which only serves the time-out."""
        async with asyncio.timeout(self.socket_timeout):
            await self._write(command)

    def pack_command(self, *parts: Value) -> list[bytes]:
        """Encode a command of redis-py's own."""
        return [_encode(split_name(parts))]

    async def replies(self, lines: Sequence[Line], blocked: float = 0) -> list[Any]:
        """Send commands, each of single words, and read their replies, each due within the time-out after the one before.

        A command that Redis may let wait for `blocked` seconds has these besides.
        One timer for all: redis-py's own timer for each reply costs more than reading it.
        """
        time = asyncio.get_running_loop().time
        patience = None if self.socket_timeout is None else self.socket_timeout + blocked
        replies: list[Any] = []
        async with asyncio.timeout(patience) as timer:
            set_at = time()
            await self._write(list(map(_encode, lines)))
            for _line in lines:
                if patience is not None and (now := time()) - set_at > patience / 10:
                    set_at = now
                    timer.reschedule(now + patience)
                try:
                    replies.append(await self.read_response(timeout=math.inf))
                except ResponseError as error:
                    # Without its frames, which refer to these replies.
                    replies.append(error.with_traceback(None))
        return replies

    async def _write(self, packed: Sequence[bytes]) -> None:
        assert self._writer is not None
        try:
            self._writer.writelines(packed)
            await self._writer.drain()
        except BaseException:
            # The next user cannot continue a half-written command.
            await self.disconnect(nowait=True)
            raise


class Connections:
    """The connections to one Redis; safe to share between tasks of one loop."""

    def __init__(self, options: Mapping[str, Any], timeout: float, greet: Greet | None, most: int = MOST) -> None:
        """Connect as `options` say, within `timeout` seconds; `greet` opens or refuses each of the `most` connections."""
        self.gathered: list[Any] = []
        made = ConnectionPool(
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            retry=Retry(NoBackoff(), 0),
            retry_on_error=[],
            health_check_interval=0,
            redis_connect_func=greet,
            # Redis users should not need a right for the command that tells the client library's name.
            driver_info=None,
            # Enabled, the pool hands out connections that Redis has closed, and each use is an error (redis-py 8.1).
            maint_notifications_config=MaintNotificationsConfig(enabled=False),
            **options,
        )
        made.connection_class = type("RedisConnection", (Connection, made.connection_class), {})
        self._make: Callable[[], Connection] = made.make_connection
        self._timeout = timeout
        self._most = most
        self._room = asyncio.Semaphore(most)
        self._all: list[Connection] = []
        self._free: list[Connection] = []

    async def take(self) -> Connection:
        """Return an open connection with nothing unread, the most recently used one; raises redis-py's errors.

        The caller waits if all are in use: a burst to more nodes than there are connections is no fault of Redis.
        """
        try:
            if self._room.locked():
                async with asyncio.timeout(self._timeout):
                    await self._room.acquire()
            else:
                await self._room.acquire()
        except TimeoutError as error:
            msg = f"all {self._most} connections are in use"
            raise RedisConnectionError(msg) from error
        connection = self._free.pop() if self._free else self._add_connection()
        try:
            writer = connection._writer  # noqa: SLF001  (of this module)
            # Redis has closed it, or it was reset, which redis-py does not see.
            if writer is not None and (writer.transport.is_closing() or await connection.can_read()):
                await connection.disconnect()
            if not connection.is_connected:
                await connection.connect()
        except BaseException:
            self.give_back(connection)
            raise
        return connection

    def give_back(self, connection: Connection) -> None:
        """Return a connection to the free ones."""
        self._free.append(connection)
        self._room.release()

    async def close(self, *, free_alone: bool = False) -> None:
        """Close all connections, or only the free ones."""
        # A failure to close one must not leave the others open.
        await asyncio.gather(*(each.disconnect() for each in (self._free if free_alone else self._all)))

    def _add_connection(self) -> Connection:
        connection = self._make()
        self._all.append(connection)
        return connection
