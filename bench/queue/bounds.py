"""`stanzaq bench bounds`: how long one call blocks Redis in the worst case, next to a native command of known cost.

The durations are Redis's own (SLOWLOG). The native command runs all the time beside the case, on the same server, so other
load slows both. A separate process sends PING all the while, as any other client would.
"""

import asyncio
import math
import random
import statistics
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import redis.asyncio as aioredis
from rich.console import Console

from bench.queue.core import CALLS, Sink, settings
from bench.queue.growth import COSTS, IDLE, ROUNDS, GrowthCost, Idle
from bench.queue.scene import Play, Scene
from bench.queue.worst import CASES, Case
from bench.report import Row, row_at_most, show
from broker.redis_core.core import RedisCore
from broker.redis_core.redis_client.client import Server
from broker.scripts.location import lua_directory
from frontends.tools.servers.redis import RedisServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

CALL: Final = 10.0
"""The longest call may take this many times as long as the native command: 50 ms on two quiet cores (guarantee 6)."""

PING: Final = 20.0
"""The longest wait for a PING may be this many times as long: 100 ms."""

_NUMBERS: Final = 20_000
"""The native command is SORT of this many numbers: 5 ms on two quiet cores of 2026.

Its mean counts, because one long call meets as much other load as many short ones together.
"""

_PAUSE: Final = 0.02
_SLOWER_US: Final = 20
_SAMPLES: Final = 10

_SETTLED_SECONDS: Final = 3.0
_IDLE_SECONDS: Final = 30.0

IDLE_COMMANDS: Final = 20.0
"""The most commands a second of an idle frontend."""

INDEPENDENT: Final = 1.5
"""How much more a step may cost beside a lot of data than beside little."""

QUICK: Final = 0.08
"""The share of the worst case in a short run."""

# Sends PING all the time; for each input line it prints the longest answer time since the last one, in ms.
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
    """The cost of a case: the longest call and the longest wait for a PING in ms, and the native command meanwhile."""

    call_ms: float
    ping_ms: float
    native_ms: float

    @property
    def call(self) -> float:
        """The longest call as a multiple of the native command."""
        return self.call_ms / self.native_ms

    @property
    def ping(self) -> float:
        """The longest wait for a PING as a multiple of the native command."""
        return self.ping_ms / self.native_ms


@dataclass(frozen=True, slots=True)
class StepCost:
    """What a step takes in Redis: the µs of its function calls, and how many commands run, including those inside them."""

    micros: float
    commands: float

    def take_least(self, other: "StepCost") -> "StepCost":
        """Return the least of both, of each figure for itself."""
        return StepCost(min(self.micros, other.micros), min(self.commands, other.commands))


NO_COST: Final = StepCost(math.inf, math.inf)
"""Nothing is measured yet."""


@contextmanager
def measure_cases(server: RedisServer) -> "Iterator[Gauge]":
    """Measure cases on a server."""
    gauge = Gauge(server)
    try:
        yield gauge
    finally:
        gauge.close()


class Gauge:
    """Measures cases on one server."""

    def __init__(self, server: RedisServer) -> None:
        """Start the PING process."""
        self._server = server
        self._pinger = subprocess.Popen(  # noqa: S603  (our own interpreter)
            [sys.executable, "-c", _PINGER, str(server.socket)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        """End the PING process."""
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
        """Run a case on an empty server."""
        async with self._scene(share) as (scene, client):
            return await self._measure(await case.prepare(scene), client)

    async def compare(self, cost: GrowthCost, share: float) -> tuple[StepCost, StepCost]:
        """Return what a step takes in Redis beside little and beside much data: the least of alternating repetitions."""
        async with self._scene(share) as (scene, client):
            steps = [await cost.prepare(scene, much) for much in (False, True)]
            least = [NO_COST] * 2
            for _ in range(ROUNDS):
                for which, step in enumerate(steps):
                    before = await _wait_until_quiet(client)
                    await step()
                    after = await _wait_until_quiet(client)
                    taken = StepCost(after.micros - before.micros, after.commands - before.commands)
                    least[which] = least[which].take_least(taken)
            if any(each.micros <= 0 for each in least):
                msg = "nothing was measured: a step has called no operation as a function"
                raise RuntimeError(msg)
            return least[0], least[1]

    async def idle_commands_per_s(self, idle: Idle, share: float, seconds: float) -> float:
        """Return the commands a second of an idle frontend, including those inside operations."""
        async with self._scene(share) as (scene, client):
            await idle.prepare(scene)
            # Wait until its reaction to the preparation is done, and measured once.
            await asyncio.sleep(_SETTLED_SECONDS)
            await scene.core.measure()
            before = await _commands(client)
            await asyncio.sleep(seconds)
            await scene.core.measure()
            # INFO itself is one of them.
            return (await _commands(client) - before - 1) / seconds

    @asynccontextmanager
    async def _scene(self, share: float) -> "AsyncIterator[tuple[Scene, aioredis.Redis]]":
        server = Server.connect(self._server.url, lua_directory(), 60)
        async with aioredis.Redis.from_url(self._server.url) as client:
            await client.flushall()
            await client.config_set("slowlog-max-len", 100_000)
            await client.rpush("numbers", *_shuffle())
            sink = Sink()
            core = RedisCore(settings(self._server.url).model_copy(update={"node_quota": 10_000}), sink)
            await core.start()
            try:
                yield Scene(core, sink, server, client, share), client
            finally:
                await core.drain(5)
                await core.stop()
                await server.close()

    async def _measure(self, play: Play, client: "aioredis.Redis") -> Measure:
        await client.config_set("slowlog-log-slower-than", _SLOWER_US)
        await client.slowlog_reset()
        await asyncio.to_thread(self._longest_ping)
        done = asyncio.Event()
        beside = asyncio.create_task(_beside(client, done))
        await play()
        # Redis goes on with work left over by an operation after the replies.
        await asyncio.sleep(5 * _PAUSE)
        ping = await asyncio.to_thread(self._longest_ping)
        done.set()
        await beside
        for _ in range(_SAMPLES):
            await client.sort("numbers", start=0, num=1)
        await client.config_set("slowlog-log-slower-than", -1)
        entries = await client.slowlog_get(100_000)
        longest = longest_call(entries)
        native = statistics.mean(each["duration"] for each in entries if each["command"].startswith(b"SORT"))
        return Measure(longest / 1000, ping, native / 1000)


def longest_call(entries: "Sequence[Mapping[str, Any]]") -> int:
    """Return the µs of the longest function call in the slow log; raises if there is none."""
    calls = [int(each["duration"]) for each in entries if each["command"].startswith((b"FCALL ", b"FCALL_RO "))]
    if not calls:
        msg = f"nothing was measured: of {len(entries)} entries of the slow log none is a call of a function"
        raise RuntimeError(msg)
    return max(calls)


@dataclass(frozen=True, slots=True)
class _Calls:
    """The number of function calls so far, their time in µs, and the number of all commands except PING and INFO."""

    calls: int
    micros: int
    commands: int


async def _count_calls(client: "aioredis.Redis") -> _Calls:
    found = await client.info("commandstats")
    functions = [found[name] for name in CALLS if name in found]
    commands = sum(each["calls"] for name, each in found.items() if name not in {"cmdstat_ping", "cmdstat_info"})
    return _Calls(sum(each["calls"] for each in functions), sum(each["usec"] for each in functions), commands)


async def _wait_until_quiet(client: "aioredis.Redis") -> _Calls:
    """Wait until no more function calls follow from earlier requests."""
    before = await _count_calls(client)
    while True:
        await asyncio.sleep(2 * _PAUSE)
        now = await _count_calls(client)
        if now.calls == before.calls:
            return now
        before = now


async def _commands(client: "aioredis.Redis") -> int:
    """Count commands, including those inside operations, except PING."""
    found = (await client.info("commandstats")).items()
    return sum(each["calls"] for name, each in found if name != "cmdstat_ping")


def _shuffle() -> list[int]:
    """Return numbers in a fixed order that is nowhere sorted."""
    numbers = list(range(_NUMBERS))
    random.Random(_NUMBERS).shuffle(numbers)  # noqa: S311  (not a secret)
    return numbers


async def _beside(client: "aioredis.Redis", done: asyncio.Event) -> None:
    # Not cancelled: an unread reply would be taken for that of the next command.
    while not done.is_set():
        await client.sort("numbers", start=0, num=1)
        await asyncio.sleep(_PAUSE)


def _rows(case: Case, found: Measure) -> list[Row]:
    """Show the longest call and the longest wait for a PING in ms; the ratio is to the native command."""
    rows = []
    for name, value, ratio, bound in (
        (case.name, found.call_ms, found.call, CALL),
        (f"{case.name}_ping", found.ping_ms, found.ping, PING),
    ):
        rows.append(
            Row(
                name, "ms", round(value, 2), round(found.native_ms, 2), round(ratio, 2), f"<= {bound:g}", ratio <= bound
            )
        )
    return rows


def main(*, as_json: bool, quick: bool) -> int:
    """Run all cases on an embedded Redis; 1 when a bound is exceeded."""
    rows: list[Row] = []
    console = Console(stderr=True)
    share, seconds = (QUICK, 1.0) if quick else (1, _IDLE_SECONDS)
    with RedisServer() as server, measure_cases(server) as gauge, console.status("measuring") as status:
        for case in CASES:
            status.update(f"measuring {case.name}")
            rows += _rows(case, asyncio.run(gauge.measure(case, share)))
        for cost in COSTS:
            status.update(f"measuring {cost.name}")
            little, much = asyncio.run(gauge.compare(cost, share))
            rows.append(row_at_most(cost.name, "µs", much.micros, INDEPENDENT, little.micros))
        for idle in IDLE:
            status.update(f"measuring {idle.name}")
            sent = asyncio.run(gauge.idle_commands_per_s(idle, share, seconds))
            rows.append(row_at_most(idle.name, "commands/s", sent, IDLE_COMMANDS))
    return show(rows, as_json=as_json)
