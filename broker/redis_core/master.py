"""One Redis process that takes writes: sends it commands, each once, and says whether what failed may have run.

Nothing is sent again here: what timed out may have run. Must not know of other processes, nor what any command means.
"""

import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import hiredis
from redis.asyncio import BlockingConnectionPool
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    NoScriptError,
    OutOfMemoryError,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.maint_notifications import MaintNotificationsConfig

from broker.model.problems import CoreUnavailable, Problem, ScriptDefect
from broker.redis_url import Address

Value = str | int | bytes
Line = Sequence[Value]
"""A command as it is sent, word by word."""

ALONE: Final = "Redis"
"""What the only process is called where several would be told apart by their addresses."""

_CONNECTIONS: Final = 64

_AWAY: Final = (
    "LOADING",
    "READONLY",
    "CLUSTERDOWN",
    "MASTERDOWN",
    "NOREPLICAS",
    "BUSY",
    "TRYAGAIN",
    "MISCONF",
    "UNKILLABLE",
    "MOVED",
    "ASK",
)


class Unsent(CoreUnavailable):
    """There was no connection, or Redis was still loading its data: nothing of it has run."""


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
        return CoreUnavailable(_unreached(error))
    # redis-py takes the code word off those answers that it knows.
    code = getattr(error, "status_code", None) or str(error).partition(" ")[0]
    if isinstance(error, OutOfMemoryError) or code == "OOM":
        return CoreUnavailable("Redis has no memory left", Problem.OUT_OF_MEMORY)
    if isinstance(error, ResponseError) and code in _AWAY:
        return CoreUnavailable(f"Redis cannot serve now: {code} {str(error).removeprefix(code)[:80].strip()}")
    if isinstance(error, RedisError):
        # Redis names file and line as the script's sha and a line of the expanded text.
        return ScriptDefect(str(error)[:500])
    return error


def _unreached(error: BaseException) -> str:
    """Say why there is no connection, as far as its settings are to blame; nothing is repeated that may be a secret."""
    cause: BaseException | None = error
    while cause is not None:
        match cause:
            case ssl.SSLCertVerificationError():
                return (
                    f"the certificate of Redis is not trusted ({cause.verify_message}): see ssl_ca_certs in REDIS_URL"
                )
            case ssl.SSLError():
                return f"TLS with Redis fails ({cause.reason}): see REDIS_URL"
            case AuthenticationError():
                return "Redis refuses the user or password of REDIS_URL"
        cause = cause.__cause__ or cause.__context__
    return "Redis cannot be reached"


class Master:
    """One Redis process and the connections to it, opened when first used; safe to share between tasks of one loop."""

    def __init__(
        self,
        options: Mapping[str, Any],
        timeout: float,
        scripts: Sequence[str],
        address: Address | None = None,
        greet: Callable[[AbstractConnection], Awaitable[None]] | None = None,
    ) -> None:
        """Connect as `options` say, answers due within `timeout` seconds; `scripts` are loaded where one is unknown.

        `greet` is called with each new connection, which it opens with `on_connect` or refuses with a RedisError.
        """
        place = {} if address is None else address._asdict()
        # One that waits for a free connection: a burst to more nodes than there are connections is no fault of Redis.
        self._pool = BlockingConnectionPool(
            max_connections=_CONNECTIONS,
            timeout=timeout,
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            retry=Retry(NoBackoff(), 0),
            retry_on_error=[],
            health_check_interval=0,
            redis_connect_func=greet,
            # Which library asks is nothing that a user of Redis should need a command for.
            driver_info=None,
            # With them the pool hands out connections that Redis has closed, and each costs somebody an error (redis-py 8.1).
            maint_notifications_config=MaintNotificationsConfig(enabled=False),
            **{**options, **place},
        )
        self._pool.connection_class = type("Connection", (_Packing, self._pool.connection_class), {})
        self._retired = False
        self._load: list[Line] = [("MULTI",), *(("SCRIPT LOAD", text) for text in scripts), ("EXEC",)]

    async def send(self, lines: Sequence[Line]) -> list[Any]:
        """Send commands in one round trip; what Redis refused stands as its error among the replies.

        Raises Unsent when none has run, another CoreUnavailable when any of them may have run.
        """
        replies = await self._exchange(lines)
        missing = [i for i, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if missing:
            # A script that Redis does not know has not run: run just those once more. All are loaded at once, so that
            # Redis knows all or none and no script overtakes an earlier one of its round trip.
            try:
                await self._exchange(self._load)
                again = await self._exchange([lines[i] for i in missing])
            except Unsent as error:
                # Of the others something may have run.
                raise CoreUnavailable(str(error), error.problem) from error
            for i, reply in zip(missing, again, strict=True):
                replies[i] = reply
        return replies

    async def _exchange(self, lines: Sequence[Line]) -> list[Any]:
        try:
            connection = await self._pool.get_connection()  # type: ignore[no-untyped-call]
        except (RedisError, OSError, TimeoutError) as error:
            raise _unsent(error) from error
        try:
            await connection.send_packed_command(connection.pack_commands(lines), check_health=False)
            return [await _reply(connection) for _line in lines]
        except BusyLoadingError as error:
            if len(lines) == 1:
                raise _unsent(error) from error
            raise fault(error) from error
        except (RedisError, OSError, TimeoutError) as error:
            raise fault(error) from error
        finally:
            if self._retired:
                await connection.disconnect()
            await self._pool.release(connection)

    async def everywhere(self, line: Line) -> dict[str, Any]:
        """Ask each master there is: this one."""
        (reply,) = await self.send([line])
        return {ALONE: reply}

    async def retire(self) -> None:
        """Close the connections, those in use when their reply has come."""
        self._retired = True
        await self._pool.disconnect(inuse_connections=False)

    async def close(self) -> None:
        """Close all connections."""
        self._retired = True
        await self._pool.aclose()


async def _reply(connection: AbstractConnection) -> Any:
    try:
        return await connection.read_response()
    except ResponseError as error:
        return error


def _unsent(error: Exception) -> Unsent:
    named = fault(error)
    return Unsent(str(named), named.problem) if isinstance(named, CoreUnavailable) else Unsent(str(error)[:80])
