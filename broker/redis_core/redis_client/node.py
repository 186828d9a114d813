"""A client of one Redis master: sends each command once, and tells whether a failed one may have run.

Only calls of operations that Redis did not know are sent again: a call that timed out may have run. Must not know of other
processes, nor what any command means.
"""

import asyncio
import re
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import repeat
from operator import itemgetter
from typing import Any, Final, TypeVar

import structlog
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    InvalidResponse,
    NoPermissionError,
    OutOfMemoryError,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from broker.address import Address
from broker.model.items.durability import Durability
from broker.model.problems import CoreUnavailable, Forbidden, OperationDefect, Problem
from broker.redis_core.redis_client.connections import Connections, Greet, Line, split_name
from broker.redis_core.redis_client.durability import DurableCall, DurableConnections, RoundTrip
from broker.redis_core.redis_client.failure_log import FailureLog
from broker.redis_core.redis_client.packages import (
    Loads,
    OtherCode,
    Package,
    Packages,
    is_forbidden,
    is_there,
    is_unknown,
)
from broker.tasks import start

log = structlog.get_logger()

_Fault = TypeVar("_Fault", bound=BaseException)

_Asked = tuple[Sequence[Line], asyncio.Future[list[Any]], DurableCall | None]
"""One caller's commands, the future of their replies, and what else it waits for."""

_Pool = Connections | DurableConnections

_LINES: Final = itemgetter(0)

CALL: Final = "CALL"
"""The first word of a line that runs an operation, before its name; each master's package replaces it."""

SINGLE: Final = "Redis"
"""The name of the only process, where several would be told apart by their addresses."""

SENTINEL: Final = "the sentinel"
"""What a process is called that is asked for the master."""

_LOADS: Final = 3
"""How often the operations of one round trip are loaded again: someone may flush them repeatedly."""

PATIENCE: Final = 2
"""Total time of a call in time-outs of a single answer: it may also have to wait for a connection or load operations."""

_FEW: Final = 8
_TOGETHER: Final = 100
_TOGETHER_BYTES: Final = 262_144
"""Limits of a round trip that several callers share: commands, and about so many bytes; larger calls go alone."""

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


_IN_SCRIPT: Final = ("ACL failure in script", "The user executing the script can't")
"""Errors when the user may not run a command within a script: before 7.2 they do not say which command."""

_TOLD: Final = 500
"""Characters of an error of Redis that are told: its longest sentences end with what to do."""

_LOAD: Final = "|load'"
"""How the name of a command that loads operations ends in a refusal."""

ERRORS: Final = repeat(Exception)
"""For `map(isinstance, replies, ERRORS)`, which checks many replies at once."""


class Unsent(CoreUnavailable):
    """There was no connection, or Redis was still loading its data: none of the commands has run."""


class Unloaded(Unsent):
    """Redis rejects the operations: an operator has to act, so an immediate retry is useless."""


def fault(error: Exception, named: str = SINGLE) -> Exception:
    """Convert an error: the named Redis or sentinel is away, out of memory, forbids the command, or an operation is defective."""
    if isinstance(error, (RedisConnectionError, RedisTimeoutError, OSError, InvalidResponse)):
        return _describe_unreached(error, named)
    # redis-py strips the code from the errors that it knows.
    code = getattr(error, "status_code", None) or str(error).partition(" ")[0]
    if isinstance(error, OutOfMemoryError) or code == "OOM":
        return CoreUnavailable("Redis has no memory left", Problem.OUT_OF_MEMORY)
    if isinstance(error, NoPermissionError) or str(error).removeprefix("ERR ").startswith(_IN_SCRIPT):
        return _forbidden(str(error), named)
    if isinstance(error, ResponseError) and code in _AWAY:
        return CoreUnavailable(f"Redis cannot serve now: {code} {str(error).removeprefix(code)[:_TOLD].strip()}")
    if isinstance(error, RedisError):
        # Redis names file and line as the script's sha and a line of the expanded text.
        return OperationDefect(str(error)[:_TOLD])
    return error


def drop_frames(error: _Fault) -> _Fault:
    """Return a fault without the frames that it and its causes have left.

    Some of these refer to tasks and futures that refer to the fault. Python would keep such a cycle, and the payloads in its
    frames, until it collects garbage, which is seldom.
    """
    error.__context__ = error.__cause__ = None
    return error.with_traceback(None)


def _forbidden(error: str, named: str) -> Forbidden:
    """Say what Redis does not allow its user."""
    command = re.search("the ('[^']+') command", error)
    refused = f"does not allow its user {f'the command {command[1]}' if command else 'what the queue does'}"
    return Forbidden(f"{SINGLE} {refused}", report=f"{named} {refused}: see users of Redis in docs/operations.md")


def _describe_unreached(error: BaseException, named: str) -> CoreUnavailable:
    """Say why there is no answer; settings that may be secret are never repeated."""
    if isinstance(error, (RedisTimeoutError, TimeoutError)):
        return CoreUnavailable(f"{SINGLE} did not answer in time", Problem.TIMED_OUT, f"{named} did not answer in time")
    process, login = (SENTINEL, "REDIS_SENTINEL_PASSWORD") if named.startswith(SENTINEL) else (SINGLE, "REDIS_URL")
    if setting := _setting_at_fault(error, process, login):
        return CoreUnavailable(setting, report=_setting_at_fault(error, named, login))
    return CoreUnavailable("Redis cannot be reached", report=f"{named} cannot be reached: {_reason(error)}")


def _reason(error: BaseException) -> str:
    """Say in a few words why there is no connection."""
    for cause in _causes(error):
        match cause:
            case ConnectionRefusedError():
                return "connection refused"
            case socket.gaierror():
                return "no such host"
            case FileNotFoundError():
                return "no such socket"
            case InvalidResponse():
                return "the server is not a Redis"
    return str(error).rstrip(".")[:_TOLD]


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def _setting_at_fault(error: BaseException, named: str, login: str) -> str:
    """Say which setting prevents the connection, if one does; `login` is the one with user and password."""
    for cause in _causes(error):
        match cause:
            case ssl.SSLCertVerificationError():
                return (
                    f"the certificate of {named} is not trusted ({cause.verify_message}): see ssl_ca_certs in REDIS_URL"
                )
            case ssl.SSLError():
                return f"TLS with {named} fails ({cause.reason}): see REDIS_URL"
            case AuthenticationError():
                return f"{named} refuses the user or password of {login}"
    return ""


class RedisNode:
    """One Redis process and its connections, opened when first used; safe to share between tasks of one loop."""

    kind = SINGLE
    """What faults call the process."""

    def __init__(  # noqa: PLR0913  (what a Redis is reached by)
        self,
        options: Mapping[str, Any],
        timeout: float,
        packages: Packages | None,
        address: Address | None = None,
        greet: Greet | None = None,
        *,
        replicas: int = 1,
    ) -> None:
        """Connect as `options` say, answers due within `timeout` seconds; one of `packages` is loaded where it is missing.

        `greet` is called with each new connection, which it opens with `on_connect` or refuses with a RedisError. What durable
        calls write must be in so many `replicas`.
        """
        at = {**options, **({} if address is None else address._asdict())}
        self._connect = partial(Connections, at, timeout, greet)
        self._connections = self._connect()
        self._durable: dict[Durability, DurableConnections] = {}
        self._replicas = replicas
        place = at.get("path") or Address(at.get("host", "localhost"), at.get("port", 6379))
        self._named = f"{self.kind} at {place}"
        self.returns = 0
        self._retired = False
        self._round_trips: set[asyncio.Task[None]] = set()
        self._timeout = timeout
        self._package = packages.first if packages else None
        self._other = packages.other if packages else None
        self._loads = 0
        self._loading = asyncio.Lock()
        self._load_failures = FailureLog("Redis rejects the operations")
        self._inspection_failures = FailureLog("the functions for redis-cli are not loaded")

    async def send(self, lines: Sequence[Line], durable: DurableCall | None = None) -> list[Any]:
        """Send commands in one round trip; a refused command has its error among the replies.

        What `durable` calls have written is waited for afterwards. Raises Unsent when none has run, another CoreUnavailable when
        any of them may have run.
        """
        # All of them run operations, or none does.
        if lines and lines[0][0] != CALL:
            way = (
                self._connections if durable is None else RoundTrip(self._durable_connections(durable.level), [durable])
            )
            return (await self._send([lines], way))[0]
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[list[Any]] = loop.create_future()
        pool: _Pool = self._connections if durable is None else self._durable_connections(durable.level)
        if len(lines) > _FEW:
            self._start([(lines, answered, durable)], pool)
        else:
            # Share the round trip with other callers of this turn of the loop: it costs more than an operation.
            if not pool.gathered:
                loop.call_soon(self._flush, pool)
            pool.gathered.append((lines, answered, durable))
        try:
            return await answered
        finally:
            # A fault refers to this frame, and the future to the fault.
            del answered

    def _durable_connections(self, level: Durability) -> DurableConnections:
        found = self._durable.get(level)
        if found is None:
            found = self._durable[level] = DurableConnections(level, self._replicas, self._timeout, self._connect)
        return found

    def _flush(self, pool: _Pool) -> None:
        gathered, pool.gathered = pool.gathered, []
        if len(gathered) == 1:
            self._start(gathered, pool)
            return
        part: list[_Asked] = []
        count = size = 0
        for lines, answered, durable in gathered:
            more = sum(map(_size, lines))
            if part and (count + len(lines) > _TOGETHER or size + more > _TOGETHER_BYTES):
                self._start(part, pool)
                part, count, size = [], 0, 0
            part.append((lines, answered, durable))
            count, size = count + len(lines), size + more
        self._start(part, pool)

    def _start(self, part: list[_Asked], pool: _Pool) -> None:
        """Begin a round trip that goes on even if its callers are cancelled."""
        way = pool if isinstance(pool, Connections) else RoundTrip(pool, [each for _, _, each in part if each])
        task = start(self._run_round_trip(part, way))
        self._round_trips.add(task)
        task.add_done_callback(self._round_trips.discard)

    async def _run_round_trip(self, part: list[_Asked], way: Connections | RoundTrip) -> None:
        try:
            replies = await self._send(list(map(_LINES, part)), way)
        except BaseException as error:
            # Every caller gets an answer; a cancelled one needs none.
            for _lines, answered, _durable in part:
                if not answered.done():
                    answered.set_exception(drop_frames(error))
            if not isinstance(error, Exception):
                raise
            return
        for (_lines, answered, _durable), each in zip(part, replies, strict=True):
            if not answered.done():
                answered.set_result(each)

    async def _send(self, parts: Sequence[Sequence[Line]], way: Connections | RoundTrip) -> list[list[Any]]:
        """Send the commands of several callers in one round trip; returns the replies of each."""
        found = await self._exchange(parts[0] if len(parts) == 1 else [line for lines in parts for line in lines], way)
        replies = [found] if len(parts) == 1 else _split(found, parts)
        return await self._send_forgotten(parts, replies, way) if any(map(isinstance, found, ERRORS)) else replies

    async def _send_forgotten(
        self, parts: Sequence[Sequence[Line]], replies: list[list[Any]], way: Connections | RoundTrip
    ) -> list[list[Any]]:
        """Send calls again whose operations Redis did not know; returns the replies of each caller."""
        for _ in range(_LOADS):
            unrun = [lines[_unrun(lines, found) :] for lines, found in zip(parts, replies, strict=True)]
            if not any(unrun):
                break
            # Redis has lost the operations since this connection last checked, and none of these calls has run.
            try:
                again = _split(await self._exchange([line for lines in unrun for line in lines], way), unrun)
            except Unsent as error:
                # Some of the other commands may have run.
                raise CoreUnavailable(error.detail, error.problem, str(error)) from error
            for found, anew in zip(replies, again, strict=True):
                found[len(found) - len(anew) :] = anew
        # A later command of the same caller has run, so an earlier one must not run after it.
        forgotten = "Redis has forgotten the script, and a later one has run"
        return [
            [
                CoreUnavailable(forgotten) if _is_call(line) and is_unknown(reply) else reply
                for line, reply in zip(lines, found, strict=True)
            ]
            for lines, found in zip(parts, replies, strict=True)
        ]

    async def _exchange(self, lines: Sequence[Line], way: Connections | RoundTrip) -> list[Any]:
        ends = asyncio.get_running_loop().time() + PATIENCE * self._timeout
        try:
            connection = await way.take()
        except (RedisError, OSError, TimeoutError) as error:
            raise _unsent(error, self._named) from error
        try:
            if connection.loads != self._loads and any(map(_is_call, lines)):
                await self._know_package(connection, ends)
            loads = self._loads
            if asyncio.get_running_loop().time() > ends:
                # The callers have given up: run nothing.
                raise _unsent(TimeoutError(), self._named)
            replies = await connection.replies(self._encode(lines))
        except BusyLoadingError as error:
            if len(lines) == 1:
                raise _unsent(error, self._named) from error
            raise fault(error, self._named) from error
        except (RedisError, OSError, TimeoutError) as error:
            raise fault(error, self._named) from error
        finally:
            if self._retired:
                await connection.disconnect()
            way.give_back(connection)
        if loads == self._loads and any(map(isinstance, replies, ERRORS)) and any(map(is_unknown, replies)):
            # Each connection checks the operations before its next use.
            self._loads += 1
        return replies

    def _encode(self, lines: Sequence[Line]) -> Sequence[Line]:
        """Encode operations for the package that this master has."""
        package = self._package
        if package is None:
            return list(map(split_name, lines))
        return [(*package.commands[str(line[1])], *line[2:]) if line[0] == CALL else split_name(line) for line in lines]

    async def _know_package(self, connection: Any, ends: float) -> None:
        """Load missing operations; raises Unsent when that fails.

        All operations are loaded before any runs: otherwise a loaded one could overtake a missing one.
        """
        loads, package = self._loads, self._package
        if package is None:
            return
        try:
            try:
                await self._install(package, connection, ends)
            except ResponseError as error:
                if package is not self._package:
                    # Another connection has switched to scripts meanwhile.
                    await self._install(self._package or package, connection, ends)
                elif self._other is not None and is_forbidden(error):
                    await self._install_other(self._other, error, connection, ends)
                else:
                    raise
                loads = self._loads
        except (RedisError, OSError, TimeoutError) as error:
            unsent = _describe_rejected(error, self._named)
            if isinstance(unsent, Unloaded):
                self._load_failures.report(unsent)
            raise unsent from error
        self._load_failures.note_success()
        connection.loads = loads

    async def _install_other(self, other: Package, why: ResponseError, connection: Any, ends: float) -> None:
        """Switch to scripts, unless another connection has already done so; where they are forbidden too, `why` says more."""
        try:
            await self._install(other, connection, ends)
        except ResponseError as error:
            raise (why if is_forbidden(error) else error) from None
        if self._other is None:
            return
        self._package, self._other = self._other, None
        self._loads += 1
        log.warning("functions are not available, so scripts are used", error=str(why)[:200])

    async def _install(self, package: Package, connection: Any, ends: float) -> None:
        if not any(await _find_missing(package, connection)):
            return
        # One connection loads for all: otherwise 64 of them would each send everything.
        async with asyncio.timeout_at(ends):
            await self._loading.acquire()
        try:
            missing = await _find_missing(package, connection)
            # Without a transaction, so that Redis can serve others between two scripts.
            replies = await connection.replies(list(map(split_name, (*missing.operations, *missing.for_people))))
        finally:
            self._loading.release()
        needed = len(missing.operations)
        for reply in replies[:needed]:
            if isinstance(reply, Exception) and not is_there(reply):
                raise reply
        for reply in replies[needed:]:
            if isinstance(reply, Exception):
                self._inspection_failures.report(f"{self._named}: {reply}")
            else:
                self._inspection_failures.note_success()

    async def everywhere(self, line: Line) -> dict[str, Any]:
        """Send one command to this master, the only one."""
        (reply,) = await self.send([line])
        return {SINGLE: reply}

    async def retire(self) -> None:
        """Close the connections; those in use after their reply."""
        self._retired = True
        await self._close_durable()
        await self._connections.close(free_alone=True)

    async def _close_durable(self) -> None:
        # What waits for replicas of a master that was replaced is not confirmed.
        await asyncio.gather(*(each.close() for each in self._durable.values()))

    async def close(self) -> None:
        """Close all connections after the calls under way."""
        self._retired = True
        await asyncio.gather(*self._round_trips, return_exceptions=True)
        await self._close_durable()
        await self._connections.close()


def _size(line: Line) -> int:
    # The words before the arguments are short: operation, number of keys, keys.
    arguments = line[3 + int(line[2]) :]
    return sum([len(word) for word in arguments if isinstance(word, bytes)]) + 32 * len(line)


async def _find_missing(package: Package, connection: Any) -> Loads:
    return package.loads(await connection.replies(list(map(split_name, package.question))))


def _split(replies: list[Any], parts: Sequence[Sequence[Line]]) -> list[list[Any]]:
    """Split replies in the same way as the commands."""
    split, first = [], 0
    for lines in parts:
        split.append(replies[first : first + len(lines)])
        first += len(lines)
    return split


def _unrun(lines: Sequence[Line], replies: Sequence[Any]) -> int:
    """Return the index of the first unknown call after which nothing has run."""
    first = missing = len(lines)
    while first and (is_unknown(replies[first - 1]) or not _is_call(lines[first - 1])):
        first -= 1
        if _is_call(lines[first]):
            # ASKING is sent again with the call that follows it.
            missing = first if not first or _is_call(lines[first - 1]) else first - 1
    return missing


def _is_call(line: Line) -> bool:
    return line[0] == CALL


def _unsent(error: Exception, where: str) -> Unsent:
    """Return the fault of a Redis that cannot be connected to or is still loading its data."""
    named = fault(error, where)
    if isinstance(named, CoreUnavailable):
        return Unsent(named.detail, named.problem, str(named))
    detail = f"refuses connections: {str(error)[:200]}"
    return Unsent(f"{SINGLE} {detail}", report=f"{where} {detail}")


def _describe_rejected(error: Exception, where: str) -> Unsent:
    """Say why a Redis rejects the operations, and what to do."""
    match fault(error, where):
        case CoreUnavailable(problem=Problem.OUT_OF_MEMORY) as named:
            remedy = "raise maxmemory, or delete what is not needed"
            told = f"{where} has no memory left to load the operations: {remedy}"
            return Unloaded(named.detail, named.problem, told)
        case Forbidden() as named:
            remedy = "; the first frontend of this version loads the operations" if _LOAD in named.detail else ""
            return Unloaded(named.detail + remedy, named.problem, str(named) + remedy)
        case CoreUnavailable() as named:
            return Unsent(named.detail, named.problem, str(named))
        case _ if isinstance(error, OtherCode):
            return Unloaded(f"{SINGLE}: {error.fault}", report=f"{where}: {error}")
        case _:
            detail = "rejects the operations"
            remedy = "install stanzaq again, or set REDIS_PACKAGING"
            return Unloaded(f"{SINGLE} {detail}", report=f"{where} {detail}: {str(error)[:300]}: {remedy}")
