"""A worker under test: its tasks run in this process, on the service's core over an embedded Redis, and delays are skipped.

The core and its operations are the service's own, so retries, dead letters, delays, locks and tokens are the same. Only XMPP is
missing, and the clock is set ahead where the service would wait. Must not know what a handler does.
"""

import asyncio
import atexit
import time
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from math import inf
from types import TracebackType
from typing import Any, Final, Self

import redis.asyncio as aioredis

from broker import codec as envelopes
from broker.model.commands import Browse, Children, Declare, Describe, Stats
from broker.model.core import Outlet
from broker.model.items.items import Envelope, Listed
from broker.model.names import Partition
from broker.model.nodes.options import AccessModel
from broker.model.results import Browsed, Counted, Described, Listing
from broker.redis_core.commands.internal import Sweep
from broker.redis_core.core import RedisCore
from broker.redis_core.redis_client.client import Line, Value
from broker.settings import CommandSettings, NodeCreation
from frontends.tools.servers.redis import RedisServer
from stanzaq.codec import PLAIN, Codec
from stanzaq.durations import Duration, seconds
from stanzaq.job import Job
from stanzaq.publisher.connected import ConnectedPublisher
from stanzaq.testing.core import OWNER, CoreTransport, ask, content
from stanzaq.testing.late import LateJob
from stanzaq.testing.sent import Sent, read_payload
from stanzaq.worker.hooks import Run
from stanzaq.worker.worker import Worker

_DATABASES: Final = 64
_LOOK_SECONDS: Final = 0.005
_LOOKS: Final = 4
"""How often items that are ready are seen idle before they count as held back: the credit for them may be on its way."""

_SHOWN: Final = 1_000


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An item that was given up, with the reason and the number of its attempts."""

    id: str
    payload: Any
    reason: str
    attempts: int


class TestBroker(ConnectedPublisher):
    """Runs a worker's tasks: `async with TestBroker(worker) as broker: await broker.publish("jobs", 1); await broker.drain()`.

    Without a worker it only takes items. It publishes, cancels, declares and schedules as a publisher does. The nodes of the
    worker's tasks are created as they are declared, and those that `nodes` names, which gives options by name: `{"jobs":
    {"stanzaq#max_deliveries": "3"}}`. At the end running jobs are cancelled, and everything is deleted.
    """

    __test__ = False
    """Pytest takes classes called Test… for tests."""

    def __init__(self, worker: Worker | None = None, *, nodes: Mapping[str, Mapping[str, str]] | None = None) -> None:
        """Choose a worker; nothing runs before `async with`."""
        self._worker = worker
        # The same package's, here and below.
        declared = {} if worker is None else {node: queue.options for node, queue in worker._queues.items()}  # noqa: SLF001
        self._tasks = tuple(declared)
        self._nodes: Mapping[str, Mapping[str, str]] = declared | {**(nodes or {})}
        self._changed = asyncio.Event()
        group, codec = ("", PLAIN) if worker is None else (worker._group, worker._codec)  # noqa: SLF001
        self._transport = CoreTransport(self._changed.set, group, codec)
        super().__init__(self._transport.sender(), codec)
        self._faults: list[Exception] = []
        self._worked: list[str] = []
        self._late: LateJob | None = None
        self._stack = AsyncExitStack()
        self._core: _Core
        self._serving: asyncio.Task[None]

    async def __aenter__(self) -> Self:
        """Start the worker; returns when it has subscribed. Raises what the worker raises."""
        async with AsyncExitStack() as stack:
            number = await _databases.take()
            stack.callback(_databases.give_back, number)
            self._core = self._transport.core = _Core(_databases.url(number), self._transport)
            await self._core.start()
            stack.push_async_callback(self._core.stop)
            for node, options in self._nodes.items():
                fields = {name: (value,) for name, value in options.items()}
                await ask(self._core, f"create {node}", Declare(node, OWNER, fields))
            self._worked = [leaf for node in self._tasks for leaf in await self._list_leaves(node)]
            self._serving = self.start(self._work())
            stack.push_async_callback(self._stop)
            await self._wait_unless_ended(self._transport.ready)
            for (node, name), (payload, when) in self._worker._schedules.items() if self._worker else ():  # noqa: SLF001
                await self.schedule(node, name, payload, **when)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the worker, and delete all nodes."""
        await self._stack.aclose()

    async def _work(self) -> None:
        """Run the worker, if there is one."""
        worker = self._worker
        if worker is None:
            self._transport.ready.set()
            await self._transport.sender().run()
        else:
            hooks = replace(worker._hooks, middleware=(self._watch, *worker._hooks.middleware))  # noqa: SLF001
            await worker._serve(self._transport, hooks, grace=0)  # noqa: SLF001

    def sent(self, node: str | None = None) -> list[Sent]:
        """Return what was published, to one node or to all, in order: by this broker, and by jobs."""
        return [each for each in self._transport.sent if node in {None, each.node}]

    async def drain(self, *, timeout: Duration = "30s", raises: bool = False) -> None:  # noqa: ASYNC109
        """Run jobs until nothing waits, is delayed or in flight in the nodes of the worker's tasks.

        When no job runs and nothing is ready, the service's clock is set to the time of the next item. With `raises` the first
        exception of a handler is raised at once. Raises TimeoutError after `timeout`, in real time.
        """
        async with self._limit(timeout):
            while await self._settle(raises=raises):
                if not await self._core.skip(self._worked):
                    await self._look_again()

    async def advance(self, time: Duration, *, timeout: Duration = "30s") -> None:  # noqa: ASYNC109
        """Let time pass by the service's clock, such as `"1h"`: what schedules publish meanwhile, and what is delayed, is run.

        Raises TimeoutError after `timeout`, in real time.
        """
        async with self._limit(timeout):
            await self._settle()
            ends = self._core.now_ms + round(seconds(time) * 1_000)
            while await self._core.skip(None, ends):
                await self._settle()
            self._core.set_clock(ends)

    @asynccontextmanager
    async def _limit(self, timeout: Duration) -> AsyncIterator[None]:  # noqa: ASYNC109
        limit = asyncio.timeout(seconds(timeout))
        try:
            async with limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            msg = f"not drained in {seconds(timeout):g} s: {await self._count_items()}"
            raise TimeoutError(msg) from None

    async def _settle(self, *, raises: bool = False) -> dict[str, Counted]:
        """Wait until no job runs and nothing is ready, and return what is left in queues of tasks; may raise what one raises."""
        looks = 0
        while True:
            counts = await self._count_items()
            if raises and self._faults:
                raise self._faults.pop(0)
            looks = looks + 1 if self._is_idle(counts) else 0
            wanted = _LOOKS if any(counted.eligible for counted in counts.values()) else 1
            if looks >= wanted:
                return counts
            if looks == 1:
                await self._transport.join_again()
            await self._look_again()

    async def _look_again(self) -> None:
        """Wait until something has changed, or a moment."""
        await self._wait_unless_ended(self._changed, _LOOK_SECONDS)
        self._changed.clear()

    @asynccontextmanager
    async def late(self, node: str, *, timeout: Duration = "30s") -> AsyncIterator[None]:  # noqa: ASYNC109
        """Show that a late write is refused: `async with broker.late("orders"): await broker.publish("orders", {}, id="7")`.

        The first job of the node stops right before its fence. At the end of the block its lock expires, all items are worked
        off as by `drain`, and the late job goes on. Raises AssertionError if it has no fence, or if it has not ended with Fenced,
        and TimeoutError after `timeout`, in real time.
        """
        late = self._late = LateJob(node)
        try:
            async with asyncio.timeout(seconds(timeout)):
                yield
                await self._wait_unless_ended(late.stopped)
                late.check_stopped()
                while not late.lost.is_set():
                    await self._core.skip(self._worked)
                    await self._wait_unless_ended(late.lost, _LOOK_SECONDS)
            await self.drain(timeout=timeout)
        finally:
            self._late = None
            await late.end()
        late.check_refused()

    async def dead(self, node: str) -> list[DeadLetter]:
        """Return the dead letters of a node. Raises StanzaqError if there is no such node."""
        found = await ask(self._core, f"find {node}", Describe(node, OWNER, as_owner=True))
        assert isinstance(found, Described)
        place = found.record.config.dead_letters_of(node)
        letters = [envelopes.unpack(item.envelope) for item in await self._items(place)] if place else []
        return [_dead_letter(each, self._codec) for each in letters if each.headers.get("stanzaq-dead-node") == node]

    async def _items(self, node: str) -> list[Listed]:
        """List the items of a node, which the first dead letter creates: without it there is none."""
        items, page = list[Listed](), await self._core.ask(Browse(node, OWNER, (), _SHOWN))
        while isinstance(page, Browsed):
            items += page.items
            if not page.more:
                break
            page = await self._core.ask(Browse(node, OWNER, (), _SHOWN, page.reached))
        return items

    async def _list_leaves(self, node: str) -> list[str]:
        """List the queues below a collection; a queue is its own."""
        found = await ask(self._core, f"find {node}", Describe(node, OWNER, as_owner=True))
        assert isinstance(found, Described)
        if not found.record.config.collects:
            return [node]
        below = await ask(self._core, f"list {node}", Children(node, OWNER))
        assert isinstance(below, Listing)
        return [leaf for child in below.nodes for leaf in await self._list_leaves(child)]

    async def _count_items(self) -> dict[str, Counted]:
        """Count the items of each queue of a task that has any, or may have when what leaves another one has arrived."""
        while True:
            found = {node: await self._core.ask(Stats(node, OWNER)) for node in self._worked}
            counts = {
                node: counted
                for node, counted in found.items()
                if isinstance(counted, Counted)
                and counted.waiting + counted.delayed + counted.in_flight + counted.dying > 0
            }
            if not self._core.delivers:
                return counts
            await asyncio.sleep(_LOOK_SECONDS)

    @staticmethod
    def _is_idle(counts: Mapping[str, Counted]) -> bool:
        return not any(counted.in_flight or counted.dying for counted in counts.values())

    async def _watch(self, job: Job[Any], call_next: Run) -> None:
        """Keep what a handler raises, and let the first job be late if a test wants one; a middleware."""
        late, is_first = self._late, self._late is not None and self._late.work is None
        try:
            if late is not None and is_first and job.node == late.node:
                await late.run(job, call_next)
            else:
                await call_next(job)
        except Exception as error:
            self._faults.append(error)
            self._changed.set()
            raise

    async def _wait_unless_ended(self, event: asyncio.Event, limit: float | None = None) -> None:
        """Wait for an event, at most `limit` seconds; raises what ends the worker before that."""
        waiting = asyncio.create_task(event.wait())
        await asyncio.wait({waiting, self._serving}, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._serving.done():
            self._serving.result()

    async def _stop(self) -> None:
        """Stop the worker; what has ended it is known already."""
        if self._worker is None:
            self._serving.cancel()
        elif not self._serving.done():
            self._worker.stop()
        await asyncio.wait({self._serving})


def _dead_letter(envelope: Envelope, codec: Codec) -> DeadLetter:
    told = envelope.headers
    payload = read_payload(content(envelope), (told.get("stanzaq-dead-node", ""),), codec)
    item, reason, attempts = (told.get(f"stanzaq-dead-{name}", "") for name in ("item", "reason", "attempts"))
    return DeadLetter(item, payload, reason, int(attempts or 0))


class _Core(RedisCore):
    """A core whose clock can be set ahead."""

    def __init__(self, url: str, outlet: Outlet) -> None:
        """Use a Redis."""
        settings = CommandSettings(
            redis_url=url, node_creation=NodeCreation.ANYONE, default_access_model=AccessModel.OPEN
        )
        super().__init__(settings, outlet)
        self._ahead_ms = 0
        self._due: dict[Partition, int] = {}
        self._call = self._server.write_call
        # Every operation takes its time as an argument, which is otherwise empty.
        setattr(self._server, "write_call", self._write_call)  # noqa: B010  (mypy takes no assignment to a method)

    def announce(self, partition: Partition, due_ms: int) -> None:
        """Note when a partition is next due."""
        self._due[partition] = due_ms
        super().announce(partition, due_ms)

    @property
    def delivers(self) -> bool:
        """Whether anything is on its way between queues, or from a schedule to its own."""
        return not self._outbox.idle

    @property
    def now_ms(self) -> int:
        """The service's time."""
        return _now_ms() + self._ahead_ms

    def set_clock(self, at_ms: int) -> None:
        """Set the clock ahead; back it never goes."""
        self._ahead_ms = max(self._ahead_ms, at_ms - _now_ms())

    async def skip(self, nodes: Collection[str] | None, until_ms: float = inf) -> bool:
        """Set the clock to the time when one of the nodes, or of all, is next due, and do what is due; False if nothing is."""
        due = {partition: at for partition, at in self._due.items() if nodes is None or partition.node in nodes}
        partition = min(due, key=due.__getitem__, default=None)
        if partition is None or due[partition] > until_ms:
            return False
        self.set_clock(self._due.pop(partition))
        await self.ask_partition(Sweep(partition.node, partition.number))
        return True

    def _write_call(
        self,
        name: str,
        keys: Sequence[str],
        fixed: Mapping[str, Value],
        rows: Iterable[Mapping[str, Value]] = (),
        shared: Mapping[str, Value] | None = None,
    ) -> Line:
        """Write a call, with the time if it was set ahead."""
        line = list(self._call(name, keys, fixed, rows, shared))
        arguments = self._server.operations[name].arguments
        if self._ahead_ms and "now" in arguments:
            line[3 + len(keys) + arguments.index("now")] = self.now_ms
        return tuple(line)


def _now_ms() -> int:
    return int(time.time() * 1_000)


class _Databases:
    """The databases of one embedded Redis, which starts with the first one taken and ends with the process."""

    def __init__(self) -> None:
        self._server: RedisServer | None = None
        # The server ends with the thread that started it, so that is not a test's.
        self._thread = ThreadPoolExecutor(1, "stanzaq-redis")
        self._free = list(range(_DATABASES))

    def url(self, number: int) -> str:
        """Return the URL of a database."""
        assert self._server is not None
        return f"{self._server.url}?db={number}"

    async def take(self) -> int:
        """Return the number of an empty database. Raises ServerError if the server cannot start."""
        if self._server is None:
            server = RedisServer(options={"databases": str(_DATABASES)})
            self._thread.submit(server.__enter__).result()
            atexit.register(server.__exit__)
            self._server = server
        number = self._free.pop()
        async with aioredis.Redis.from_url(self.url(number)) as client:
            await client.flushdb()
        return number

    def give_back(self, number: int) -> None:
        """Return a database."""
        self._free.append(number)


_databases: Final = _Databases()
