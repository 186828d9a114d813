"""`stanzaq bench bounds`: how long one script holds Redis with every bound at its worst, next to a native command of known cost.

Redis's own measure is taken (SLOWLOG). The native command runs again and again beside the play, on the same server, so what
else the machine does hits both; and a process of its own asks PING all the while, as any other client would.
"""

import asyncio
import random
import statistics
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import redis.asyncio as aioredis
from rich.console import Console

from broker import codec, keys
from broker.model.commands import (
    Bounce,
    Browse,
    Command,
    Configure,
    Declare,
    Locks,
    Presence,
    Publish,
    Purge,
    Retract,
    Subscribe,
    Unlock,
)
from broker.model.items import Envelope
from broker.model.leases import Fetch, lease_jid
from broker.model.names import Jid, Partition
from broker.model.oversight import Survey, Transfer
from broker.model.qos import Qos
from broker.model.results import Refused, Transferred
from broker.redis_core.calls.call import subid
from broker.redis_core.server import Server
from broker.redis_core.service import RedisCore
from broker.scripts.location import lua_directory
from frontends.bench.core import BASE, INTAKE, Bench, Sink, settings
from frontends.bench.report import Row, at_most, show
from frontends.servers.redis import RedisServer

SCRIPT: Final = 10.0
"""The longest script may take so many times as long as the native command: that is 50 ms on two quiet cores (guarantee 6)."""

PING: Final = 20.0
"""And an answer to PING so many times as long: 100 ms."""

_NUMBERS: Final = 20_000
"""SORT of so many numbers, 5 ms on two quiet cores of 2026: the native command. Its mean, for a long script meets all that is
met by many short commands."""

_PAUSE: Final = 0.02
_SLOWER_US: Final = 200
_SAMPLES: Final = 10
_ROUNDS: Final = 10

INDEPENDENT: Final = 1.5
"""So many times as much may a step take beside much as beside little."""

_OWNER: Final = Jid("owner@bounds.example/1")
_LARGEST: Final = 262_144
_AT_ONCE: Final = 200

QUICK: Final = 0.08
"""A short run plays so much of the worst."""

# Asks PING all the time; with each line it is given it tells the longest answer since the last one, in ms.
_PINGER: Final = """
import select, socket, sys, time
link = socket.socket(socket.AF_UNIX)
link.connect(sys.argv[1])
longest = 0.0
while True:
    began = time.perf_counter()
    link.sendall(b"PING\\r\\n")
    link.recv(64)
    longest = max(longest, time.perf_counter() - began)
    if select.select([sys.stdin], [], [], 0.002)[0]:
        if not sys.stdin.readline():
            break
        print(longest * 1000, flush=True)
        longest = 0.0
"""


@dataclass(frozen=True, slots=True)
class Measure:
    """What a play cost: the longest script and the longest wait for a PING in ms, and the native command meanwhile."""

    script_ms: float
    ping_ms: float
    native_ms: float

    @property
    def script(self) -> float:
        """The longest script as a multiple of the native command."""
        return self.script_ms / self.native_ms

    @property
    def ping(self) -> float:
        """The longest wait for a PING as a multiple of the native command."""
        return self.ping_ms / self.native_ms


class Scene:
    """A core on a server of its own; `share` of the worst is played."""

    def __init__(self, core: RedisCore, server: Server, client: "aioredis.Redis", share: float) -> None:
        """Play on this core; what comes before the play is written by `server`, past the core."""
        self.core = core
        self.client = client
        self.share = share
        self._server = server

    def many(self, count: int) -> int:
        """Give how many of so many there are."""
        return max(1, round(count * self.share))

    async def ask(self, command: Command) -> Any:  # noqa: ANN401  (the result of its kind)
        """Have a command carried out that must not be refused."""
        result = await self.core.ask(command)
        if isinstance(result, Refused):
            msg = f"{type(command).__name__} was refused: {result.detail}"
            raise RuntimeError(msg)  # noqa: TRY004  (no wrong type, but what must not happen here)
        return result

    async def node(self, name: str = "work", **options: str) -> "Node":
        """Declare a node."""
        await self.ask(
            Declare(name, _OWNER, {_WIRE.get(key, f"stanzaq#{key}"): (value,) for key, value in options.items()})
        )
        async for key in self.client.scan_iter(
            keys.of_partition("meta", Partition(name, "*", 0)).replace("{", "\\{"), 1000
        ):
            return Node(self, Partition.parse(key.decode().partition("{")[2].partition("}")[0]))
        msg = f"{name} has no partition"
        raise RuntimeError(msg)


_WIRE: Final = {"max_items": "pubsub#max_items", "node_full": "pubsub#publish_node_full", "queueing": "pubsub#queueing"}


class Node(Bench):
    """One node of a scene, of one partition."""

    def __init__(self, scene: Scene, partition: Partition) -> None:
        """Fill it past the core."""
        super().__init__(scene._server, partition.node)  # noqa: SLF001  (of this module)
        self.partition = partition
        self.scene = scene
        self.name = partition.node

    async def subscribed(self, count: int, credit: int, *, lease: bool = False) -> list[Jid]:
        """Subscribe so many workers."""
        jids = [
            lease_jid(Jid(f"w{number}@bounds.example"), f"{number:016x}")
            if lease
            else Jid(f"w{number}@bounds.example/1")
            for number in range(count)
        ]
        qos = Qos.PULLED if lease else Qos.UNACKNOWLEDGED
        commands = (Subscribe(self.name, jid, jid, credit, qos) for jid in jids)
        await asyncio.gather(*map(self.scene.ask, commands))
        return jids

    async def put(self, count: int, size: int = 10, key: str = "", hints: str = "") -> list[list[Any]]:
        """Let so many items come; gives their deliveries."""
        body, found = b"x" * size, []
        row = {"item": "", "by": "owner@bounds.example", "body": body, "once": "", "subids": "", "hints": hints}
        at_once = max(1, min(_AT_ONCE, 4_000_000 // size))
        left = count
        while left > 0:
            rows = [{**row, "key": key} for _ in range(min(at_once, left))]
            reply = await self.run("publish", {**_FIXED, **INTAKE}, rows)
            left -= len(reply[1])
            found += reply[2]
        return found


_FIXED: Final = {**BASE, "revision": "", "frontend": "before"}

Play = Callable[[], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Case:
    """One worst case: `prepare` makes the scene and gives the play that is measured."""

    name: str
    prepare: Callable[[Scene], Awaitable[Play]]


def _together(scene: Scene, commands: Sequence[Command]) -> Play:
    async def play() -> None:
        await asyncio.gather(*map(scene.core.ask, commands))

    return play


async def _leave(scene: Scene) -> Play:
    node = await scene.node()
    jids = await node.subscribed(_AT_ONCE, 300)
    await node.put(scene.many(_AT_ONCE * 300))
    return _together(scene, [Presence(jid, available=False) for jid in jids])


async def _gone(scene: Scene) -> Play:
    node = await scene.node()
    await node.subscribed(_AT_ONCE, 300)
    made = await node.put(scene.many(_AT_ONCE * 300))
    first = {row[0]: row for row in reversed(made)}
    return _together(
        scene,
        [Bounce(Jid(jid.decode()), node.partition, row[1].decode(), row[3], gone=True) for jid, row in first.items()],
    )


async def _locks(scene: Scene) -> Play:
    node = await scene.node()
    jids = await node.subscribed(scene.many(_AT_ONCE), 1000)
    await node.put(len(jids) * 1000)
    return _together(
        scene, [Locks(node.name, jids[number % len(jids)]) for number in range(max(20, scene.many(_AT_ONCE)))]
    )


async def _fetch(scene: Scene) -> Play:
    node = await scene.node()
    jids = await node.subscribed(scene.many(_AT_ONCE), 1000, lease=True)
    await node.put(len(jids) * 1000)
    return _together(scene, [Fetch(node.name, jid, jid, 60_000) for jid in jids])


def _publish(size: int) -> Callable[[Scene], Awaitable[Play]]:
    async def prepare(scene: Scene) -> Play:
        node = await scene.node(ordered="true", max_items="200", node_full="retract-oldest")
        await node.put(200, size, key="k")
        body = b"x" * size
        return _together(
            scene, [Publish(node.name, _OWNER, None, body, size, key="k") for _ in range(scene.many(_AT_ONCE))]
        )

    return prepare


async def _republish(scene: Scene) -> Play:
    """Each row finds its item by its id, with its payload."""
    node = await scene.node(max_items="1000")
    big = [
        Publish(node.name, _OWNER, f"i{number}", b"x" * _LARGEST, _LARGEST) for number in range(scene.many(_AT_ONCE))
    ]
    for command in big:
        await scene.ask(command)
    small = [Publish(node.name, _OWNER, command.item_id, b"x", 1) for command in big]
    return _together(scene, small)


async def _delete(scene: Scene) -> Play:
    """Items that came back, deleted by an owner who may have several subscriptions, below as many collections as there may be."""
    node = await scene.node()
    jids = await node.subscribed(1, 150)
    await node.put(150)
    await scene.ask(Presence(jids[0], available=False))
    mark = f"{subid('pool@x')}:pool 1"
    pools = " ".join(f"{int(mark.partition(':')[0]) + number}:p{number} 1" for number in range(50))
    await scene.client.hset(keys.of_partition("meta", node.partition), mapping={"multi": "1", "pools": pools})
    found: list[Any] = await scene.client.xrange(keys.of_partition("log", node.partition)) or []
    return _together(scene, [Retract(node.name, _OWNER, f"0-{entry.decode()}") for entry, _fields in found])


async def _unlock(scene: Scene) -> Play:
    """All of them at their last try, so that each becomes a dead letter with a large payload."""
    node = await scene.node(max_deliveries="1", dead_letter_node="dead")
    await scene.node("dead", max_items="10000")
    await node.subscribed(1, _AT_ONCE)
    made = await node.put(scene.many(_AT_ONCE), _LARGEST)
    return _together(scene, [Unlock(node.name, Jid(row[0].decode()), row[2].decode(), row[3]) for row in made])


async def _expire(scene: Scene) -> Play:
    node = await scene.node(max_deliveries="1", dead_letter_node="dead", lock_seconds="1")
    await scene.node("dead", max_items="10000")
    await node.subscribed(1, _AT_ONCE)
    await node.put(scene.many(_AT_ONCE), _LARGEST)

    inflight = keys.of_partition("inflight", node.partition)

    async def play() -> None:
        for _look in range(1_000):
            if not await scene.client.hlen(inflight):
                return
            await asyncio.sleep(_PAUSE)

    return play


async def _browse(scene: Scene) -> Play:
    """Look at a page where as much stands elsewhere as is looked through."""
    node = await scene.node(retention_items="10000", max_items="100000")
    await node.subscribed(20, 250)
    await node.put(scene.many(5_000))
    await node.put(scene.many(5_000), hints="3600000 4 0")
    for jid in await node.subscribed(1, 1000):
        await scene.ask(Presence(jid, available=False))
    meta = keys.of_partition("meta", node.partition)
    tail: Any = await scene.client.hget(meta, "tail")
    await scene.client.hset(meta, mapping={"kept": 1, "cursor": tail})
    return _together(scene, [Browse(node.name, _OWNER, (), limit=50)])


async def _browse_large(scene: Scene) -> Play:
    node = await scene.node(max_items="100000")
    await node.put(scene.many(200), _LARGEST)
    return _together(scene, [Browse(node.name, _OWNER, (), limit=100)])


async def _purge(scene: Scene) -> Play:
    node = await scene.node(max_items="100000")
    await node.put(scene.many(300), _LARGEST)
    return _together(scene, [Purge(node.name, _OWNER)])


async def _purge_log(scene: Scene) -> Play:
    node = await scene.node(queueing="false", retention_items="100000")
    await node.put(scene.many(300), _LARGEST)
    return _together(scene, [Purge(node.name, _OWNER)])


async def _retention(scene: Scene) -> Play:
    """Configure a log that is to keep little from now on."""
    node = await scene.node(queueing="false", retention_items="100000")
    await node.put(scene.many(300), _LARGEST)
    return _together(
        scene,
        [
            Configure(node.name, _OWNER, {"stanzaq#retention_items": ("1",)}),
            Publish(node.name, _OWNER, None, b"x", 1),
        ],
    )


async def _hand_out(scene: Scene) -> Play:
    node = await scene.node(max_items="100000")
    await node.put(scene.many(200), _LARGEST)
    jid = Jid("late@bounds.example/1")
    return _together(scene, [Subscribe(node.name, jid, jid, 1000)])


async def _transfer(scene: Scene) -> Play:
    node = await scene.node(max_items="100000")
    await scene.node("there", max_items="100000")
    await node.put(scene.many(200), _LARGEST)

    async def play() -> None:
        scan: str = ""
        while True:
            found = await scene.ask(Transfer(node.name, _OWNER, "there", (), "", 200, scan))
            assert isinstance(found, Transferred)
            scan = found.scan
            if not scan:
                return

    return play


async def _survey(scene: Scene) -> Play:
    node = await scene.node(max_items="100000")
    await node.put(scene.many(200), _LARGEST)
    return _together(scene, [Survey(node.name, _OWNER, (), 200, "")])


async def _selectors(scene: Scene) -> Play:
    """Many who select look through what none of them does."""
    node = await scene.node(max_items="100000")
    jids = [Jid(f"w{number}@bounds.example/1") for number in range(100)]
    for number, jid in enumerate(jids):
        await scene.ask(Subscribe(node.name, jid, jid, 3, selector=f"color = 'c{number}' AND size > {number}"))
    body = codec.pack(Envelope(b"x", "text/plain", headers={"color": "none", "size": "5"}))
    return _together(
        scene, [Publish(node.name, _OWNER, None, body, len(body)) for _ in range(scene.many(2 * _AT_ONCE))]
    )


CASES: Final = tuple(
    Case(name, prepare)
    for name, prepare in {
        "leave": _leave,
        "gone": _gone,
        "locks": _locks,
        "fetch": _fetch,
        "publish_64k": _publish(65_536),
        "publish_256k": _publish(_LARGEST),
        "republish": _republish,
        "delete": _delete,
        "unlock": _unlock,
        "expire": _expire,
        "browse": _browse,
        "browse_large": _browse_large,
        "purge": _purge,
        "purge_log": _purge_log,
        "retention": _retention,
        "hand_out": _hand_out,
        "transfer": _transfer,
        "survey": _survey,
        "selectors": _selectors,
    }.items()
)


@contextmanager
def gauged(server: RedisServer) -> "Iterator[Gauge]":
    """Measure plays on a server."""
    gauge = Gauge(server)
    try:
        yield gauge
    finally:
        gauge.close()


Step = Callable[[], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Cost:
    """What is not to grow with how much there is beside it: `prepare` gives a step of one script, beside little or much."""

    name: str
    prepare: Callable[[Scene, bool], Awaitable[Step]]


async def _waiting_leases(scene: Scene, much: bool) -> Step:  # noqa: FBT001  (which of the two)
    """Look for something new for fifty leases, that hold one item or a hundred each."""
    node = await scene.node(f"leases{much}")
    jids = await node.subscribed(50, 100, lease=True)
    await node.put(50 * (100 if much else 1))
    token = int(await scene.client.hget(keys.of_partition("meta", node.partition), "token") or 0)
    rows = [{"subid": subid(jid), "lease": "0", "after": token, "comes": ""} for jid in jids]
    fixed = {"now": "", "revision": "", "number": 0, "limit": 200, "max_bytes": 1_048_576}
    return lambda: node.run("fetch", fixed, rows)


async def _ordered_bodies(scene: Scene, much: bool) -> Step:  # noqa: FBT001  (which of the two)
    """Hand out the next item of an ordered node, of few or of many that have large payloads."""
    node = await scene.node(f"ordered{much}", ordered="true", max_items="1000")
    await node.subscribed(1, 1)
    held = await node.put(1)
    await node.put(120 if much else _ROUNDS + 2, 65_536)

    async def step() -> None:
        held[:] = await node.acknowledge(held)

    return step


COSTS: Final = tuple(
    Cost(name, prepare)
    for name, prepare in {"waiting_leases": _waiting_leases, "ordered_bodies": _ordered_bodies}.items()
)


class Gauge:
    """Measures plays on one server."""

    def __init__(self, server: RedisServer) -> None:
        """Watch this server."""
        self._server = server
        self._pinger = subprocess.Popen(  # noqa: S603  (our own interpreter)
            [sys.executable, "-c", _PINGER, str(server.socket)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        """Watch no more."""
        assert self._pinger.stdin
        assert self._pinger.stdout
        self._pinger.stdin.close()
        self._pinger.stdout.close()
        self._pinger.wait()

    def _longest_ping(self) -> float:
        assert self._pinger.stdin
        assert self._pinger.stdout
        self._pinger.stdin.write("\n")
        self._pinger.stdin.flush()
        return float(self._pinger.stdout.readline())

    async def measure(self, case: Case, share: float) -> Measure:
        """Play a case on an empty server."""
        async with self._scene(share) as (scene, client):
            return await self._measured(await case.prepare(scene), client)

    async def compare(self, cost: Cost) -> tuple[float, float]:
        """Give what a step takes beside little and beside much, in µs: the best of some rounds that alternate."""
        async with self._scene(1) as (scene, client):
            steps = [await cost.prepare(scene, much) for much in (False, True)]
            await client.config_set("slowlog-log-slower-than", 0)
            best = [float("inf")] * 2
            for _ in range(_ROUNDS):
                for which, step in enumerate(steps):
                    await client.slowlog_reset()
                    await step()
                    took = [
                        each["duration"]
                        for each in await client.slowlog_get(100)
                        if each["command"].startswith(b"EVALSHA")
                    ]
                    # Beside it there are heartbeats, which are shorter.
                    best[which] = min(best[which], max(took))
            await client.config_set("slowlog-log-slower-than", -1)
            return best[0], best[1]

    @asynccontextmanager
    async def _scene(self, share: float) -> "AsyncIterator[tuple[Scene, aioredis.Redis]]":
        server = Server.connect(self._server.url, lua_directory(), 60)
        async with aioredis.Redis.from_url(self._server.url) as client:
            await client.flushall()
            await client.config_set("slowlog-max-len", 100_000)
            await client.rpush("numbers", *_shuffled())
            core = RedisCore(settings(self._server.url), Sink())
            await core.start()
            try:
                yield Scene(core, server, client, share), client
            finally:
                await core.drain(5)
                await core.stop()
                await server.close()

    async def _measured(self, play: Play, client: "aioredis.Redis") -> Measure:
        await client.config_set("slowlog-log-slower-than", _SLOWER_US)
        await client.slowlog_reset()
        await asyncio.to_thread(self._longest_ping)
        done = asyncio.Event()
        beside = asyncio.create_task(_beside(client, done))
        await play()
        # What a script has left over goes on, when nobody asks.
        await asyncio.sleep(5 * _PAUSE)
        ping = await asyncio.to_thread(self._longest_ping)
        done.set()
        await beside
        for _ in range(_SAMPLES):
            await client.sort("numbers", start=0, num=1)
        await client.config_set("slowlog-log-slower-than", -1)
        entries = await client.slowlog_get(100_000)
        longest = max((each["duration"] for each in entries if each["command"].startswith(b"EVALSHA")), default=0)
        native = statistics.mean(each["duration"] for each in entries if each["command"].startswith(b"SORT"))
        return Measure(longest / 1000, ping, native / 1000)


def _shuffled() -> list[int]:
    """Give numbers in an order that is always the same and sorted nowhere."""
    numbers = list(range(_NUMBERS))
    random.Random(_NUMBERS).shuffle(numbers)  # noqa: S311  (nothing secret)
    return numbers


async def _beside(client: "aioredis.Redis", done: asyncio.Event) -> None:
    # Not cancelled: a reply that nobody awaits would be the next command's.
    while not done.is_set():
        await client.sort("numbers", start=0, num=1)
        await asyncio.sleep(_PAUSE)


def _rows(case: Case, found: Measure) -> list[Row]:
    """Show the longest script and the longest wait for a PING in ms; the ratio is to the native command."""
    rows = []
    for name, value, ratio, bound in (
        (case.name, found.script_ms, found.script, SCRIPT),
        (f"{case.name}_ping", found.ping_ms, found.ping, PING),
    ):
        rows.append(
            Row(
                name, "ms", round(value, 2), round(found.native_ms, 2), round(ratio, 2), f"<= {bound:g}", ratio <= bound
            )
        )
    return rows


def main(*, as_json: bool, quick: bool) -> int:
    """Play all cases on an embedded Redis; 1 when a bound is passed."""
    rows: list[Row] = []
    console = Console(stderr=True)
    with RedisServer() as server, gauged(server) as gauge, console.status("measuring") as status:
        for case in CASES:
            status.update(f"measuring {case.name}")
            rows += _rows(case, asyncio.run(gauge.measure(case, QUICK if quick else 1)))
        for cost in COSTS:
            status.update(f"measuring {cost.name}")
            little, much = asyncio.run(gauge.compare(cost))
            rows.append(at_most(cost.name, "µs", much, INDEPENDENT, little))
    return show(rows, as_json=as_json)
