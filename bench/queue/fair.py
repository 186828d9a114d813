"""`stanzaq bench core --fair`: how long quiet keys wait beside a noisy one, and what turns cost beside many keys.

Waits are those of one burst of each quiet key, with and without the noisy key's backlog, in jobs and in time.
"""

import asyncio
import math
import time
from collections.abc import Sequence
from typing import Any

import redis.asyncio as aioredis
import uvloop
from rich.console import Console

from bench.queue.core import BATCH, WORKERS, Bench, micros
from bench.report import Row, row_at_most, row_without_target, show
from broker.redis_core.redis_client.client import Server
from broker.scripts.location import lua_directory
from frontends.tools.servers.redis import RedisServer

_QUIET = 99
_EACH = 10
_CREDIT = 5
_TIMES = 40
_REPEATS = 5


async def _publish(bench: Bench, keys: Sequence[str]) -> None:
    """Publish an item of each of these keys."""
    for first in range(0, len(keys), BATCH):
        part = keys[first : first + BATCH]
        await bench.publish([""] * len(part), part)


def _key(delivery: list[Any]) -> str:
    return str(delivery[10].decode())


async def _waits(bench: Bench, noisy: int) -> tuple[float, float]:
    """Return the p95 wait of quiet keys beside so many items of a noisy one: in jobs, and in ms."""
    await bench.open(fair="key")
    await _publish(bench, ["noisy"] * noisy)
    await _publish(bench, [f"quiet {number}" for _ in range(_EACH) for number in range(_QUIET)])
    jobs, began = 0, time.perf_counter()
    times: list[tuple[float, float]] = []
    held = await bench.subscribe(WORKERS, _CREDIT)
    while len(times) < _QUIET * _EACH:
        for delivery in held:
            jobs += 1
            if _key(delivery) != "noisy":
                times.append((jobs, (time.perf_counter() - began) * 1000))
        held = await bench.acknowledge(held)
    return times[math.ceil(len(times) * 0.95) - 1]


async def waits(server: Server, noisy: int) -> list[Row]:
    """Compare the waits of quiet keys beside a noisy one to those without it."""
    without = await _waits(Bench(server, "calm"), 0)
    beside = await _waits(Bench(server, "noisy"), noisy)
    units = (("fair_wait_jobs", "jobs"), ("fair_wait", "ms"))
    return [row_at_most(name, unit, beside[i], 2, without[i]) for i, (name, unit) in enumerate(units)]


async def _cost(client: "aioredis.Redis", bench: Bench) -> float:
    """Return the server's own time of an item that is acknowledged, handed out and published again with its key, in µs."""
    held = await bench.subscribe(WORKERS, 10)
    best = float("inf")
    for _ in range(_REPEATS):
        await client.config_resetstat()
        for _ in range(_TIMES):
            done, held = held[:10], held[10:]
            held += await bench.acknowledge(done)
            await bench.publish([""] * len(done), [_key(each) for each in done])
        best = min(best, micros(await client.info("commandstats")) / _TIMES / 10)
    return best


async def _memory(client: "aioredis.Redis") -> int:
    return int((await client.info("memory"))["used_memory"])


async def costs(server: Server, client: "aioredis.Redis", most: int) -> list[Row]:
    """Compare turns beside few keys to those beside many, each with one item, and to a node without turns."""
    found, memory = [], []
    for fair, count in (("", most), ("key", 100), ("key", most)):
        bench = Bench(server, f"turns{fair}{count}")
        await bench.open(fair=fair)
        before = await _memory(client)
        await _publish(bench, [f"tenant {number}" for number in range(count)])
        memory.append((await _memory(client) - before) / count)
        found.append(await _cost(client, bench))
    return [
        row_without_target("fair_cost", "µs/item", found[2], found[0]),
        row_at_most("fair_growth", "µs/item", found[2], 1.5, found[1]),
        row_without_target("fair_memory", "B/item", memory[2], memory[0]),
    ]


async def measure(url: str, *, quick: bool) -> list[Row]:
    """Measure all rows, and show the progress."""
    client, server = aioredis.Redis.from_url(url), Server.connect(url, lua_directory(), 60)
    most = 1_000 if quick else 100_000
    try:
        with Console(stderr=True).status("measuring"):
            return [*await waits(server, most), *await costs(server, client, most)]
    finally:
        await server.close()
        await client.aclose()


def main(*, as_json: bool, quick: bool) -> int:
    """Run the benchmark on an embedded Redis; 1 when a target is missed."""
    # The event loop of frontends.
    with RedisServer() as server, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return show(runner.run(measure(server.url, quick=quick)), as_json=as_json)
