"""The core's client for Redis: runs operations and a few plain commands, each sent once, and names their faults.

Hides whether Redis is one server, a cluster or a master that sentinels watch. Must not know what any operation means.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any, Protocol, Self

import structlog

from broker.keys import prefix
from broker.model.items.durability import Durability
from broker.model.problems import CoreUnavailable, OperationDefect, Problem
from broker.redis_core.redis_client.cluster import Cluster
from broker.redis_core.redis_client.cluster_router import ClusterRouter
from broker.redis_core.redis_client.connections import Line, Value
from broker.redis_core.redis_client.durability import DurableCall
from broker.redis_core.redis_client.node import CALL, PATIENCE, RedisNode, drop_frames, fault
from broker.redis_core.redis_client.packages import Packages
from broker.redis_core.redis_client.sentinel import SentinelNode, Sentinels
from broker.redis_url import Topology, read_url
from broker.scripts.answers import Answer, find_answers
from broker.scripts.packaging import library
from broker.scripts.source import Operation, operation, operations
from broker.settings import Packaging
from broker.tasks import start

__all__ = ["Answer", "Line", "Server", "Value"]

log = structlog.get_logger()


class Link(Protocol):
    """A `RedisNode`, or a `ClusterRouter` for several.

    `returns` counts how often one of several masters was replaced, or answered again after it had not. Of the only one everybody
    knows that it was away, since all that is asked of it fails.
    """

    returns: int

    async def send(self, lines: Sequence[Line], durable: DurableCall | None = None) -> list[Any]:
        """Send each command once, in order within each slot; a refused command has its error among the replies.

        Operations run even if their caller is cancelled. What a `durable` call has written is waited for after its reply.
        """

    async def everywhere(self, line: Line) -> dict[str, Any]:
        """Send one command to each master; returns replies by address, an error for a master that refused."""

    async def close(self) -> None:
        """Close all connections."""


class Server:
    """Redis as the core sees it: operations and a few plain commands; safe to share between tasks of one loop."""

    def __init__(self, link: Link, operations: Mapping[str, Operation], timeout: float, library: str = "") -> None:
        """Serve operations over a link, whose answers are due within `timeout` seconds; `library` is their library's name."""
        self._link = link
        self.operations = operations
        self.answers = find_answers(operations)
        self.library = library
        self._patience = PATIENCE * timeout
        self._open: set[asyncio.Future[Any]] = set()
        self._calls = 0
        self._syncs = False
        self._closed = False
        self._idle = asyncio.Event()
        self._idle.set()

    @classmethod
    def connect(
        cls, url: str, folder: Path, timeout: float, packaging: Packaging = Packaging.AUTO, replicas: int = 1
    ) -> Self:
        """Make a client for a URL; connections open when first used, every answer is due within `timeout` seconds.

        So many `replicas` of each master must have what a call writes that waits for them.
        """
        found = {name: operation(folder, name) for name in operations(folder)}
        link = _link(url, timeout, Packages.of(folder, packaging), replicas)
        return cls(link, found, timeout, library(folder, prefix()).name)

    @property
    def returns(self) -> int:
        """How often a master came back, or another one in its place: it may have lost what was written last."""
        return self._link.returns

    def write_call(
        self,
        name: str,
        keys: Sequence[str],
        fixed: Mapping[str, Value],
        rows: Iterable[Mapping[str, Value]] = (),
        shared: Mapping[str, Value] | None = None,
    ) -> Line:
        """Write the call of an operation: named values in the order of its header, with those of `shared` that it names.

        A wrong or missing name is a KeyError or OperationDefect.
        """
        found = self.operations[name]
        others = shared or {}
        values = [others[each] if each in others and each not in fixed else fixed[each] for each in found.arguments]
        if not fixed.keys() <= set(found.arguments):
            msg = f"{name}: takes {found.arguments}, was given {tuple(fixed)}"
            raise OperationDefect(msg)
        for row in rows:
            values.extend(map(row.__getitem__, found.columns))
        return (CALL, name, len(keys), *keys, *values)

    async def run(self, call: Line) -> Answer:
        """Make one call of an operation; raises CoreUnavailable or OperationDefect."""
        reply = (await self.run_all([call]))[0]
        if isinstance(reply, Exception):
            try:
                raise reply
            finally:
                # The fault refers to this frame.
                del reply
        return reply

    async def run_all(self, calls: Sequence[Line], durable: DurableCall | None = None) -> list[Any]:
        """Make calls in one round trip, in order within each slot; a failed one has its fault among the replies.

        `durable` then says whether what they have written is as durable as it is to be.
        Raises CoreUnavailable when a connection failed: then any of them may or may not have run; OperationDefect when an answer
        is not as its operation's header says.
        """
        replies: list[Any] = await self._limit_wait(self._link.send(calls, durable))
        return [
            fault(reply) if isinstance(reply, Exception) else self.answers(str(call[1])).read(reply)
            for call, reply in zip(calls, replies, strict=True)
        ]

    async def command(self, *parts: Value) -> Any:
        """Run one plain command."""
        return (await self.commands([parts]))[0]

    async def now_ms(self) -> int:
        """Return Redis's time."""
        seconds, micros = await self.command("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    async def commands(self, lines: Sequence[Line]) -> list[Any]:
        """Run plain commands in one round trip; raises the first fault."""
        replies = await self._replies(lines)
        _raise_first(lines, replies)
        return replies

    async def reads(self, lines: Sequence[Line]) -> list[Any]:
        """Run plain commands that read, in one round trip; raises CoreUnavailable.

        A key of another type, which somebody has written by hand, is logged and reads as None: it must not hide the others.
        """
        replies = await self._replies(lines)
        return [_read(*each) for each in zip(lines, replies, strict=True)]

    async def _replies(self, lines: Sequence[Line]) -> list[Any]:
        replies: list[Any] = await self._limit_wait(self._link.send(lines), shielded=True) if lines else []
        return replies

    async def wait(self, *parts: Value) -> Any:
        """Run one blocking command; cancelling the caller also cancels it and closes its connection."""
        replies = await self._link.send([parts])
        _raise_first([parts], replies)
        return replies[0]

    async def everywhere(self, *parts: Value) -> dict[str, Any]:
        """Run one command without keys on each master; raises the first fault."""
        replies: dict[str, Any] = await self._limit_wait(self._link.everywhere(parts), shielded=True)
        _raise_first(repeat(parts), replies.values())
        return replies

    async def lacks(self, level: Durability) -> str:
        """Return why Redis cannot make writes so durable, as far as that is known before; empty if it can."""
        if level is Durability.SYNCED and not self._syncs:
            try:
                await self.everywhere("WAITAOF", 1, 0, 1)
            except OperationDefect as error:
                return f"it needs Redis 7.2 or newer with appendonly yes, everywhere: {error}"
            self._syncs = True
        return ""

    async def _limit_wait(self, work: Coroutine[Any, Any, Any], *, shielded: bool = False) -> Any:
        """Wait for an answer for a limited time.

        With `shielded` the work continues after its caller is cancelled: otherwise its connection would be lost.
        """
        if self._closed:
            work.close()
            msg = "the connections to Redis are closed"
            raise CoreUnavailable(msg)
        self._calls += 1
        self._idle.clear()
        try:
            async with asyncio.timeout(self._patience):
                return await (self._shield(work) if shielded else work)
        except CoreUnavailable as error:
            raise drop_frames(error)  # noqa: B904  (its causes are dropped on purpose)
        except TimeoutError:
            pass
        finally:
            self._calls -= 1
            if not self._calls:
                self._idle.set()
        msg = "Redis did not answer in time"
        raise CoreUnavailable(msg, Problem.TIMED_OUT)

    def _shield(self, work: Coroutine[Any, Any, Any]) -> asyncio.Future[Any]:
        task = start(work)
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        return asyncio.shield(task)

    async def close(self) -> None:
        """Refuse new calls, wait for those under way, then close all connections."""
        self._closed = True
        await self._idle.wait()
        await asyncio.gather(*self._open, return_exceptions=True)
        await self._link.close()


def _raise_first(lines: Iterable[Line], replies: Iterable[Any]) -> None:
    for line, reply in zip(lines, replies, strict=False):
        if isinstance(reply, Exception):
            raise _fault_of(line, reply) from reply


def _read(line: Line, reply: Any) -> Any:
    if not isinstance(reply, Exception):
        return reply
    named = _fault_of(line, reply)
    if not isinstance(named, OperationDefect):
        raise named from reply
    log.warning("a key cannot be read", error=str(named))
    return None


def _fault_of(line: Line, reply: Exception) -> Exception:
    """Name the fault of one command. If its arguments or its key are wrong, the text has its name and key."""
    named = fault(reply)
    return OperationDefect(f"{named} ({' '.join(map(str, line[:2]))})") if isinstance(named, OperationDefect) else named


def _link(url: str, timeout: float, packages: Packages, replicas: int) -> Link:
    found = server_of(url, timeout, packages, replicas)
    return found if isinstance(found, RedisNode) else ClusterRouter(found, timeout)


def server_of(
    url: str, timeout: float, packages: Packages | None = None, replicas: int = 1
) -> RedisNode | Cluster | Sentinels:
    """Return the server of a URL, or the cluster or sentinels that know where the masters are."""
    read = read_url(url)
    make_node = partial(RedisNode, read.options, timeout, packages, replicas=replicas)
    match read.kind:
        case Topology.SERVER:
            return make_node()
        case Topology.CLUSTER:
            return Cluster(read.seeds, make_node)
        case Topology.SENTINEL:
            sentinels = [SentinelNode(read.sentinel_options, timeout, None, seed) for seed in read.seeds]
            return Sentinels(read.service, sentinels, make_node)
