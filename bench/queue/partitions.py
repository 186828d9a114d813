"""What a node of several partitions costs and brings, on one Redis and on a cluster of three masters, and what limits it.

Four workers have 400 jobs under way in all. They share a node of one partition; in a node of several they are members of a group,
and own its partitions. Jobs run through a core in this process, which stands for one frontend without a door.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final

import redis.asyncio as aioredis
import uvloop
from rich.console import Console

from bench.queue.core import BODY, CALLS, WORKERS, Sink, ask, settings
from bench.report import Row, row_at_most, row_without_target, show
from broker.model.commands import Declare, Publish, Retract, Subscribe
from broker.model.names import Jid
from broker.redis_core.core import RedisCore
from frontends.tools.servers.cluster import RedisCluster
from frontends.tools.servers.redis import RedisServer

COST: Final = 1.15
"""A job of a node of up to `BOUNDED` partitions may cost a single Redis this many times as much as in one partition."""

BOUNDED: Final = 4

_UNDER_WAY: Final = 400
_OWNER: Final = Jid("bench@localhost/1")
_REPETITIONS: Final = 9
"""How often each node is measured, in turns with the others, so that noise hits all alike."""

_SECONDS: Final = 1.0
_QUICK_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class _Spent:
    """Jobs, and what they took meanwhile: processor time in seconds, and calls of operations."""

    jobs: int
    seconds: float
    process_s: float
    redis_s: float
    calls: int

    @property
    def redis_us(self) -> float:
        """The processor time of all Redis servers for a job, in µs."""
        return self.redis_s / self.jobs * 1e6


class _Load:
    """A node of so many partitions, with its workers."""

    def __init__(self, core: RedisCore, sink: Sink, partitions: int) -> None:
        """Use a node of its own."""
        self._core, self._sink = core, sink
        self._partitions = partitions
        self._node = f"of{partitions}"

    async def open(self) -> None:
        """Create the node; the workers share its partition, or own its partitions as members of a group."""
        await ask(self._core, Declare(self._node, _OWNER, {"stanzaq#partitions": (str(self._partitions),)}))
        several = self._partitions > 1
        # A member's credit is divided over all partitions, so four members with 400 each have 400 in all.
        credit = _UNDER_WAY if several else _UNDER_WAY // len(WORKERS)
        for jid in map(Jid, WORKERS):
            await ask(self._core, Subscribe(self._node, jid, jid, credit, group="bench" if several else ""))

    async def run(self, nodes: Sequence[RedisServer], seconds: float) -> _Spent:
        """Work for `seconds`: publish an item, take the next delivery, acknowledge it."""
        jobs, (redis_s, calls) = 0, await _used(nodes)
        own, began = time.process_time(), time.perf_counter()

        async def work() -> None:
            nonlocal jobs
            while time.perf_counter() < began + seconds:
                await ask(self._core, Publish(self._node, _OWNER, None, BODY, len(BODY)))
                item = await self._sink.deliveries.get()
                await ask(self._core, Retract(self._node, item.subscriber, item.item_id, item.token))
                jobs += 1

        await asyncio.gather(*(work() for _ in range(_UNDER_WAY)))
        took, process_s = time.perf_counter() - began, time.process_time() - own
        redis_s_after, calls_after = await _used(nodes)
        return _Spent(jobs, took, process_s, redis_s_after - redis_s, calls_after - calls)


async def _used(nodes: Sequence[RedisServer]) -> tuple[float, int]:
    """Return the processor time in seconds of all servers, and how many calls of operations they have run."""
    used, calls = 0.0, 0
    for node in nodes:
        async with aioredis.Redis.from_url(node.url) as client:
            cpu: Any = await client.info("cpu")
            stats: Any = await client.info("commandstats")
        used += cpu["used_cpu_user"] + cpu["used_cpu_sys"]
        calls += sum(stats[name]["calls"] for name in CALLS if name in stats)
    return used, calls


async def _measure(url: str, nodes: Sequence[RedisServer], counts: Sequence[int], seconds: float) -> list[_Spent]:
    """Measure a node of each number of partitions; the repetition with the median cost of Redis counts."""
    sink = Sink()
    core = RedisCore(settings(url), sink)
    await core.start()
    try:
        loads = [_Load(core, sink, count) for count in counts]
        for load in loads:
            await load.open()
        repeated = [[await load.run(nodes, seconds) for load in loads] for _ in range(_REPETITIONS)]
    finally:
        await core.drain(5)
        await core.stop()
    return [sorted(each, key=lambda spent: spent.redis_us)[_REPETITIONS // 2] for each in zip(*repeated, strict=True)]


def _rows(name: str, masters: int, counts: Sequence[int], found: Sequence[_Spent]) -> list[Row]:
    """Return jobs a second, how busy the process and the servers are, and what a job costs Redis, next to one partition."""
    rows: list[Row] = []
    one = found[0]
    for count, spent in zip(counts, found, strict=True):
        label = f"{name}_{count}"
        cost = (f"{label}_us", "µs a job", spent.redis_us)
        rows += [
            row_without_target(label, "jobs/s", spent.jobs / spent.seconds, one.jobs / one.seconds),
            row_without_target(f"{label}_process", "cores", spent.process_s / spent.seconds, 1),
            row_without_target(f"{label}_redis", "cores", spent.redis_s / spent.seconds, masters),
            row_at_most(*cost, COST, one.redis_us)
            if masters == 1 < count <= BOUNDED
            else row_without_target(*cost, one.redis_us),
            row_without_target(f"{label}_calls", "calls a job", spent.calls / spent.jobs, one.calls / one.jobs),
        ]
    return rows


def main(partitions: int, *, as_json: bool, quick: bool) -> int:
    """Measure nodes of 1, 2, 4 … and `partitions` partitions; 1 when one costs Redis too much."""
    counts = [*takewhile(lambda count: count < partitions, (2**power for power in range(11))), partitions]
    seconds = _QUICK_SECONDS if quick else _SECONDS
    rows = []
    console = Console(stderr=True)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        with console.status("measuring one server"), RedisServer() as server:
            rows += _rows("server", 1, counts, runner.run(_measure(server.url, [server], counts, seconds)))
        with console.status("measuring a cluster"), RedisCluster(3, 0) as cluster:
            rows += _rows("cluster", 3, counts, runner.run(_measure(cluster.url, cluster.nodes, counts, seconds)))
    return show(rows, as_json=as_json)
