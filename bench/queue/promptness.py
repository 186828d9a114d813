"""`stanzaq bench promptness`: the delay of many queues that are due together, of a takeover from a dead frontend, of a wake-up.

Two frontends, each a process, share one Redis. Operations fill the queues for a frontend that sends nothing.
"""

import asyncio
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, Final

import uvloop
from rich.console import Console

from bench.queue.core import BODY, Sink, settings
from bench.report import Row, row_at_most, show
from broker import keys
from broker.journal.schema import record
from broker.model.commands import Declare, Publish, Receive, Retract, Subscribe
from broker.model.items.items import Delivery
from broker.model.items.qos import Qos
from broker.model.names import Jid, Partition, bare_jid
from broker.model.nodes.pull_subscriptions import new_pull_name, pull_jid
from broker.model.results import Received
from broker.redis_core.core import RedisCore
from broker.redis_core.operations.operation import subid
from broker.redis_core.redis_client.client import Server
from broker.scripts.location import lua_directory
from broker.tasks import start
from frontends.garbage import collect_rarely
from frontends.tools.servers.redis import RedisServer

QUEUES: Final = 20_000
FRONTENDS: Final = 2
_SHORT: Final = 100
_OWNER: Final = Jid("bench@localhost/1")
_WORKER: Final = Jid("worker@localhost/bench")
_TELL: Final = "tell"
_END: Final = "end"
_DEAD: Final = "dead"
_AT_ONCE: Final = 500
_LEAD_MS: Final = 3_000
_PATIENCE_SECONDS: Final = 120.0
_TIMES: Final = 50
_PAUSE_SECONDS: Final = 0.02


class _Watch(Sink):
    """An outlet that notes its last delivery."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.last = 0.0

    def deliver(self, _batch: Sequence[Delivery]) -> None:
        """Count a delivery."""
        self.count += 1
        self.last = time.time()


def _serve(url: str, pipe: Connection) -> None:
    """Run a frontend until _END; answers each message with the number of deliveries and the time of the last one."""

    async def run() -> None:
        watch = _Watch()
        core = RedisCore(settings(url), watch)
        await core.start()
        # A frontend scans everything at its start.
        while core._tasks:  # noqa: ASYNC110, SLF001  (there is no event for that)
            await asyncio.sleep(0.1)
        pipe.send(None)
        while True:
            while not pipe.poll():  # noqa: ASYNC110  (a pipe has no event)
                await asyncio.sleep(0.05)
            if pipe.recv() == _END:
                break
            pipe.send((watch.count, watch.last))
        await core.stop()

    # Keep its log out of the report.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    collect_rarely()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


class _Frontends:
    """Frontends in processes of their own."""

    def __init__(self, url: str, count: int) -> None:
        """Start them, and wait until they are ready."""
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Connection] = []
        self._processes = []
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(url, theirs), daemon=True)
            process.start()
            self._pipes.append(ours)
            self._processes.append(process)
        for pipe in self._pipes:
            pipe.recv()

    def count_delivered(self) -> tuple[int, float]:
        """Return the total of their deliveries, and the time of the last one."""
        for pipe in self._pipes:
            pipe.send(_TELL)
        told = [pipe.recv() for pipe in self._pipes]
        return sum(count for count, _last in told), max(last for _count, last in told)

    def stop(self) -> None:
        """End them."""
        for pipe in self._pipes:
            pipe.send(_END)
        for process in self._processes:
            process.join(10)


class _Queues:
    """Many queues, each with one item that a worker holds."""

    def __init__(self, server: Server, count: int) -> None:
        """Start with none."""
        self._server = server
        self.count = count
        self.partitions: list[Partition] = []

    async def fill(self, url: str) -> None:
        """Create the queues and deliver their items on behalf of a frontend that will never send them."""
        core = RedisCore(settings(url).model_copy(update={"node_quota": self.count}), Sink())
        names = [f"queue{number}" for number in range(self.count)]
        for first in range(0, self.count, _AT_ONCE):
            some = names[first : first + _AT_ONCE]
            await asyncio.gather(*(core.ask(Declare(name, _OWNER, {})) for name in some))
            self.partitions += [record.partition(0) for record in await core._store.read_all(some)]  # noqa: SLF001
        await core.stop()
        shared = {
            "now": "",
            "revision": "",
            "frontend": _DEAD,
            "number": 0,
            "retry": "5000 20000 3",
        }
        empty = dict.fromkeys(("batch", "must", "lease", "scope", "named", "several", "selector"), "")
        worker = {"subid": subid(_WORKER), "jid": _WORKER, "credit": 1, "qos": "unacknowledged", **empty}
        await self.run_in_each("subscribe", {**shared, "max_subscribers": 10}, worker)
        intake = {
            "dedupe": "overwrite",
            "dedupe_ms": 1,
            "once_ms": 1,
            "max_items": 10,
            "node_full": "reject",
            "publish_rate": "",
        }
        item = {"item": "", "by": _OWNER, "body": b"x" * 200, "key": "", "once": "", "hints": "", "refused": ""}
        await self.run_in_each("publish", {**shared, **intake}, item)

    async def run_in_each(self, name: str, fixed: dict[str, Any], row: dict[str, Any]) -> None:
        """Run an operation in each."""
        header = self._server.operations[name]
        for first in range(0, self.count, _AT_ONCE):
            calls = [
                self._server.write_call(name, keys.all_of_partition(header.keys, each), fixed, [row])
                for each in self.partitions[first : first + _AT_ONCE]
            ]
            for reply in await self._server.run_all(calls):
                if isinstance(reply, Exception):
                    raise reply

    async def lines(self, of: Callable[[int, Partition], tuple[Any, ...]]) -> list[Any]:
        """Run a plain command for each."""
        found = []
        for first in range(0, self.count, _AT_ONCE):
            some = list(enumerate(self.partitions))[first : first + _AT_ONCE]
            found += await self._server.commands([of(number, each) for number, each in some])
        return found


async def _wait_until(done: Callable[[], Awaitable[bool]]) -> None:
    ends = time.monotonic() + _PATIENCE_SECONDS
    while not await done():
        if time.monotonic() > ends:
            msg = "not done in time"
            raise RuntimeError(msg)
        await asyncio.sleep(0.5)


async def _due(server: Server, url: str, count: int) -> Row:
    """Let a lock of each queue expire in the same second; measures how late the last one ended, in s."""
    queues = _Queues(server, count)
    await queues.fill(url)
    frontends = _Frontends(url, FRONTENDS)
    seconds, micros = await server.command("TIME")
    begins = int(seconds) * 1000 + int(micros) // 1000 + _LEAD_MS + count // 4
    position = [
        raw[0][0]
        for raw in await queues.lines(lambda _number, each: ("XRANGE", keys.of_partition("log", each), "-", "+"))
    ]
    ends = [begins + number * 1000 // count for number in range(count)]
    await queues.lines(
        lambda number, each: ("ZADD", keys.of_partition("lock_deadlines", each), ends[number], position[number])
    )
    await queues.lines(lambda number, each: ("ZADD", keys.of_service("due"), ends[number], str(each)))

    async def done() -> bool:
        return frontends.count_delivered()[0] >= count

    await _wait_until(done)
    frontends.stop()
    journals = await queues.lines(
        lambda _number, each: ("XRANGE", keys.of_partition("journal", each), "-", "+", "COUNT", 1)
    )
    closed = [int(record(_pairs(entries[0][1]))["closed"]) for entries in journals]
    return row_at_most(
        "due_in_one_second", "s late", max(at - end for at, end in zip(closed, ends, strict=True)) / 1000, 1
    )


def _pairs(fields: Any) -> dict[bytes, bytes]:  # noqa: ANN401  (by protocol version)
    return fields if isinstance(fields, dict) else dict(zip(fields[::2], fields[1::2], strict=True))


async def _takeover(server: Server, url: str, count: int) -> Row:
    """Let a frontend die with an unsent item of each queue; measures the time to the last one sent, in s after its death."""
    queues = _Queues(server, count)
    await queues.fill(url)
    frontends = _Frontends(url, FRONTENDS)
    seconds, micros = await server.command("TIME")
    died = int(seconds) + int(micros) / 1e6
    await server.command("ZADD", keys.of_service("frontends"), int(died * 1000), _DEAD)

    async def done() -> bool:
        return frontends.count_delivered()[0] >= count

    await _wait_until(done)
    _count, last = frontends.count_delivered()
    frontends.stop()
    return row_at_most("takeover", "s", last - died, 5)


async def _woken(url: str) -> Row:
    """Publish in one process while a lease waits in another; measures the median from the publish to its receive, in ms."""
    ours, theirs = (RedisCore(settings(url), None, "rest") for _ in range(2))
    await ours.start()
    await theirs.start()
    lease = pull_jid(bare_jid(_OWNER), new_pull_name(60))
    await ours.ask(Declare("woken", _OWNER, {}))
    await ours.ask(Subscribe("woken", _OWNER, lease, 1, Qos.PULLED, lease_ms=60_000))
    taken = []
    for _ in range(_TIMES):
        waiting = start(theirs.ask(Receive("woken", _OWNER, lease, 60_000, _PATIENCE_SECONDS)))
        # Its first look leaves word.
        await asyncio.sleep(_PAUSE_SECONDS)
        began = time.monotonic()
        await ours.ask(Publish("woken", _OWNER, None, BODY, len(BODY)))
        found = await waiting
        taken.append(time.monotonic() - began)
        assert isinstance(found, Received)
        (item,) = found.items
        await theirs.ask(Retract("woken", lease, item.item_id, item.token))
    await ours.stop()
    await theirs.stop()
    return row_at_most("woken_elsewhere", "ms", statistics.median(taken) * 1000, 20)


async def _measure(url: str, *, quick: bool) -> list[Row]:
    """Measure all rows, and show the progress."""
    count = QUEUES // (_SHORT if quick else 1)
    server = Server.connect(url, lua_directory(), 60)
    console = Console(stderr=True)
    rows = []
    try:
        for step in (_due, _takeover):
            with console.status(f"measuring {step.__name__.strip('_')} of {count:,} queues"):
                rows.append(await step(server, url, count))
            await server.command("FLUSHALL", "SYNC")
        rows.append(await _woken(url))
    finally:
        await server.close()
    return rows


def main(*, as_json: bool, quick: bool) -> int:
    """Run the benchmark on an embedded Redis; 1 when a target is missed."""
    with RedisServer() as server:
        return show(asyncio.run(_measure(server.url, quick=quick)), as_json=as_json)
