"""The connection to Redis: runs scripts, each once, and turns what goes wrong into the project's own faults.

Scripts are never retried here: one that timed out may have run. Must not know what any script means.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import hiredis
import redis.asyncio as aioredis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    ConnectionError as RedisConnectionError,
)
from redis.exceptions import (
    NoScriptError,
    OutOfMemoryError,
    RedisError,
    ResponseError,
)
from redis.exceptions import (
    TimeoutError as RedisTimeoutError,
)
from redis.maint_notifications import MaintNotificationsConfig

from broker.model.problems import CoreUnavailable, Problem, ScriptDefect
from broker.scripts.source import Script, operations, script

Value = str | int | bytes
Arguments = tuple[Script, Sequence[str], Sequence[Value]]
"""A script with its keys and arguments, in the order of its header."""

_CONNECTIONS = 64

_AWAY = ("LOADING", "READONLY", "CLUSTERDOWN", "MASTERDOWN", "NOREPLICAS", "BUSY", "TRYAGAIN", "MISCONF", "UNKILLABLE")


class _Packing:
    """A connection that writes commands by hiredis: redis-py does so for its blocking connections only, else in Python."""

    def pack_command(self, *parts: Value) -> list[bytes]:
        # redis-py names some of its own commands in two words.
        words: tuple[Any, ...] = (*str(parts[0]).split(), *parts[1:])
        return [hiredis.pack_command(words)]


def fault(error: Exception) -> Exception:
    """Name what went wrong: Redis is away, has no memory, or a script is at fault."""
    if isinstance(error, (RedisTimeoutError, TimeoutError)):
        return CoreUnavailable("Redis did not answer in time", Problem.TIMED_OUT)
    if isinstance(error, (RedisConnectionError, OSError)):
        return CoreUnavailable("Redis cannot be reached")
    if isinstance(error, OutOfMemoryError) or str(error).startswith("OOM"):
        return CoreUnavailable("Redis has no memory left", Problem.OUT_OF_MEMORY)
    if isinstance(error, ResponseError) and str(error).startswith(_AWAY):
        return CoreUnavailable(f"Redis cannot serve now: {str(error)[:80]}")
    if isinstance(error, RedisError):
        # Redis names file and line as the script's sha and a line of the expanded text.
        return ScriptDefect(str(error)[:500])
    return error


class Server:
    """One Redis, as scripts and a few plain reads; safe to share between tasks of one loop."""

    def __init__(self, client: "aioredis.Redis", folder: Path) -> None:
        """Serve scripts of `folder` through `client`."""
        self._client = client
        self._scripts = {name: script(folder, name) for name in operations(folder)}

    @classmethod
    def connect(cls, url: str, folder: Path, timeout: float) -> Self:
        """Make a server for a URL; connections are opened when first used, every answer is due within `timeout` seconds."""
        # One that waits for a free connection: a burst to more nodes than there are connections is no fault of Redis.
        pool = aioredis.BlockingConnectionPool.from_url(
            url,
            max_connections=_CONNECTIONS,
            timeout=timeout,
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            retry=Retry(NoBackoff(), 0),
            retry_on_error=[],
            health_check_interval=0,
            # With them the pool hands out connections that Redis has closed, and each costs somebody an error (redis-py 8.1).
            maint_notifications_config=MaintNotificationsConfig(enabled=False),
        )
        pool.connection_class = type("Connection", (_Packing, pool.connection_class), {})
        return cls(aioredis.Redis.from_pool(pool), folder)

    def arguments(
        self, name: str, keys: Sequence[str], fixed: Mapping[str, Value], rows: Iterable[Any] = ()
    ) -> Arguments:
        """Put named values in the order of the script's header; a name too few or too many is a KeyError or ScriptDefect."""
        found = self._scripts[name]
        if fixed.keys() != set(found.arguments):
            msg = f"{name}: takes {found.arguments}, was given {tuple(fixed)}"
            raise ScriptDefect(msg)
        values: list[Value] = [fixed[argument] for argument in found.arguments]
        columns = found.columns
        for row in rows:
            values.extend([row[column] for column in columns])
        return found, keys, values

    def header(self, name: str) -> Script:
        """Give a script's header."""
        return self._scripts[name]

    async def run(self, call: Arguments) -> list[Any]:
        """Run one script; raises CoreUnavailable or ScriptDefect."""
        reply: list[Any] | Exception = (await self.run_all([call]))[0]
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def run_all(self, calls: Sequence[Arguments]) -> list[Any]:
        """Run scripts in order in one round trip; a script that failed stands as its fault among the replies.

        Raises CoreUnavailable when the connection failed: then any of them may or may not have run.
        """
        replies = await self._execute(calls)
        missing = [i for i, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if missing:
            # A script that Redis does not know has not run: run just those once more. All are loaded at once, so that
            # Redis knows all or none and no script overtakes an earlier one of its round trip.
            await self._load()
            for i, reply in zip(missing, await self._execute([calls[i] for i in missing]), strict=True):
                replies[i] = reply
        return [fault(reply) if isinstance(reply, Exception) else reply for reply in replies]

    async def _execute(self, calls: Sequence[Arguments]) -> list[Any]:
        pipeline = self._client.pipeline(transaction=False)
        for found, keys, values in calls:
            pipeline.execute_command("EVALSHA", found.sha, len(keys), *keys, *values)
        # Shielded: a cancelled await would leave its reply for the next caller of the pooled connection (redis-py #2624).
        replies: list[Any] = await self._plain(pipeline.execute(raise_on_error=False))
        return replies

    async def _load(self) -> None:
        pipeline = self._client.pipeline(transaction=True)
        for found in self._scripts.values():
            pipeline.execute_command("SCRIPT", "LOAD", found.text)
        await self._plain(pipeline.execute())

    async def command(self, *parts: Value) -> Any:
        """Run one plain command."""
        return await self._plain(self._client.execute_command(*parts))  # type: ignore[no-untyped-call]

    async def commands(self, lines: Sequence[Sequence[Value]]) -> list[Any]:
        """Run plain commands in one round trip."""
        pipeline = self._client.pipeline(transaction=False)
        for line in lines:
            pipeline.execute_command(*line)
        replies: list[Any] = await self._plain(pipeline.execute())
        return replies

    async def _plain(self, work: Any) -> Any:
        task = asyncio.ensure_future(work)
        # Whoever asked may be gone when it fails.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            return await asyncio.shield(task)
        except (RedisError, OSError, TimeoutError) as error:
            raise fault(error) from error

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()
