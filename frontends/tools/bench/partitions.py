"""The throughput of several partitions, on one Redis and on a cluster of three masters, and which process limits it.

One coroutine works on each partition: it acknowledges a batch, which delivers the next one, and publishes as many items
again. Its process stands for one frontend without a door.
"""

import asyncio
import time
from collections.abc import Sequence
from itertools import takewhile

import redis.asyncio as aioredis
from rich.console import Console

from broker.redis_core.redis_client.client import Server
from broker.scripts.location import lua_directory
from frontends.tools.bench.core import BATCH, WORKERS, Bench
from frontends.tools.bench.report import Row, row_without_target, show
from frontends.tools.servers.cluster import RedisCluster
from frontends.tools.servers.redis import RedisServer

_SECONDS = 5.0
_QUICK_SECONDS = 0.3
_TIMEOUT = 60.0


class _Load:
    """A number of busy partitions."""

    def __init__(self, server: Server, partitions: int) -> None:
        """Use partitions of their own."""
        self.benches = [Bench(server, f"of{partitions}", number) for number in range(partitions)]
        self.done = 0

    async def run(self, seconds: float) -> None:
        """Work for `seconds`."""
        held = []
        for bench in self.benches:
            await bench.open()
            await bench.fill(2 * BATCH)
            held.append(await bench.subscribe(WORKERS, BATCH // len(WORKERS)))
        until = time.perf_counter() + seconds

        async def work(bench: Bench, mine: list[object]) -> None:
            while time.perf_counter() < until:
                count = len(mine)
                mine = await bench.acknowledge(mine)
                await bench.publish([""] * count)
                self.done += count

        await asyncio.gather(*map(work, self.benches, held))


async def _busy(nodes: Sequence[RedisServer]) -> float:
    """Return the CPU seconds that all servers have used."""
    used = 0.0
    for node in nodes:
        async with aioredis.Redis.from_url(node.url) as client:
            cpu = await client.info("cpu")
            used += cpu["used_cpu_user"] + cpu["used_cpu_sys"]
    return used


async def _measure(
    name: str, url: str, nodes: Sequence[RedisServer], counts: Sequence[int], seconds: float
) -> list[Row]:
    """Measure the rows of one kind of Redis: throughput, and the load of the process and the servers in cores."""
    rows: list[Row] = []
    server = Server.connect(url, lua_directory(), _TIMEOUT)
    try:
        for partitions in counts:
            load = _Load(server, partitions)
            served, spent, began = await _busy(nodes), time.process_time(), time.perf_counter()
            await load.run(seconds)
            took = time.perf_counter() - began
            rate = load.done / took
            base = rows[0].value if rows else rate
            label = f"{name}_{partitions}"
            rows += [
                row_without_target(label, "items/s", rate, base),
                row_without_target(f"{label}_process", "cores", (time.process_time() - spent) / took, 1),
                row_without_target(f"{label}_redis", "cores", (await _busy(nodes) - served) / took, len(nodes)),
            ]
    finally:
        await server.close()
    return rows


def main(partitions: int, *, as_json: bool, quick: bool) -> int:
    """Measure 1, 2, 4 … and `partitions` partitions; no row has a target."""
    counts = [*takewhile(lambda count: count < partitions, (2**power for power in range(11))), partitions]
    seconds = _QUICK_SECONDS if quick else _SECONDS
    rows = []
    console = Console(stderr=True)
    with console.status("measuring one server"), RedisServer() as server:
        rows += asyncio.run(_measure("server", server.url, [server], counts, seconds))
    with console.status("measuring a cluster"), RedisCluster(3, 0) as cluster:
        rows += asyncio.run(_measure("cluster", cluster.url, cluster.nodes, counts, seconds))
    return show(rows, as_json=as_json)
