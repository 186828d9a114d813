"""Measures the costs that the model of a service is fed with (`broker/scaling/costs.json`). Must not know the model.

Redis: kept busy with calls of one item and of many. Frontend and XMPP server: one frontend with one queue, and with many, whose
calls share nothing. Waking up: four frontends, which leave each process idle between calls.
"""

import asyncio
import os
import time
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import uvloop

from bench.queue.core import WORKERS, Bench
from bench.report import machine
from bench.scaling.processes import BATCH, QUEUES, ProcessScene, Shape, Spent, scene
from broker.redis_core.maintenance.heartbeat import Heartbeat, HeartbeatResult
from broker.redis_core.redis_client.client import Server
from broker.redis_core.redis_client.wakeup import Wakeup
from broker.scaling.costs import Cost, Costs, Measured
from broker.scripts.location import lua_directory
from frontends.tools.servers.redis import RedisServer

_MANY: Final = 100
_PARTITIONS: Final = 16
_OPERATIONS: Final = 2
_FRONTENDS: Final = 4
_TIMEOUT: Final = 30.0
_REPEATS: Final = 2_000


class _Alone(NamedTuple):
    """The costs of Redis without a door; of the frontend for a heartbeat."""

    redis: Cost
    beat_us: float
    beat_frontend_us: float


def measure(seconds: float) -> Measured:
    """Measure everything; takes some twenty times `seconds`, and a minute."""
    load_average = os.getloadavg()[0]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        with RedisServer(options={"appendonly": "yes"}) as server:
            alone = runner.run(_alone(server, seconds))
        one, batched = runner.run(_runs(Shape(), seconds, 1, BATCH))
        (many,) = runner.run(_runs(Shape(queues=QUEUES), seconds, 1))
        (four,) = runner.run(_runs(Shape(frontends=_FRONTENDS), seconds, 1))
    redis = _waking(alone.redis, four, "redis", 1)
    frontend = _waking(fit_cost(one, many, "frontend"), four, "frontend", _FRONTENDS)
    xmpp = fit_cost(one, many, "xmpp")

    def of(batch: int, door: Cost, server: Cost) -> Costs:
        return Costs(
            redis=redis,
            frontend=door,
            xmpp=server,
            beat_us=round(alone.beat_us, 1),
            beat_frontend_us=round(alone.beat_frontend_us, 1),
            batch=batch,
        )

    return Measured(
        by="stanzaq bench scale --processes 4 --save",
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        machine=machine(),
        load_average=round(load_average, 2),
        single=of(1, frontend, xmpp),
        batched=of(BATCH, _measure_batches(frontend, batched, "frontend"), _measure_batches(xmpp, batched, "xmpp")),
    )


async def _alone(server: RedisServer, seconds: float) -> _Alone:
    client = Server.connect(server.url, lua_directory(), _TIMEOUT)
    try:
        few_us, many_us = [await _measure_saturated(client, server, each, seconds) for each in (1, _MANY)]
        heartbeat = Heartbeat(client, "bench", Wakeup(client, _TIMEOUT), time.monotonic)
        before, own = server.process.cpu_seconds(), time.process_time()
        for _ in range(_REPEATS):
            await heartbeat.beat(_nothing)
        beat_us = (server.process.cpu_seconds() - before) / _REPEATS * 1e6
        own_us = (time.process_time() - own) / _REPEATS * 1e6
    finally:
        await client.close()
    call_us = (few_us - many_us) / (_OPERATIONS - _OPERATIONS / _MANY)
    return _Alone(_round(many_us - call_us * _OPERATIONS / _MANY, call_us), beat_us, own_us)


async def _nothing(_: HeartbeatResult) -> None:
    pass


async def _measure_saturated(client: Server, server: RedisServer, together: int, seconds: float) -> float:
    """Return the µs of Redis for an item that is published, delivered and acknowledged, so many in each call."""
    done, until = 0, 0.0
    benches = [Bench(client, f"of{together}", number) for number in range(_PARTITIONS)]
    held: list[list[Any]] = []
    for bench in benches:
        await bench.open()
        await bench.fill(2 * _MANY)
        held.append((await bench.subscribe(WORKERS, -(-together // len(WORKERS))))[:together])

    async def work(bench: Bench, mine: list[Any]) -> None:
        nonlocal done
        while time.perf_counter() < until:
            following = await bench.acknowledge(mine)
            await bench.publish([""] * len(mine))
            done += len(mine)
            mine = following

    before, until = server.process.cpu_seconds(), time.perf_counter() + seconds
    await asyncio.gather(*map(work, benches, held))
    return (server.process.cpu_seconds() - before) / done * 1e6


async def _runs(shape: Shape, seconds: float, *batches: int) -> list[Spent]:
    with scene(shape) as processes:
        return [await _run(processes, batch, seconds) for batch in batches]


async def _run(processes: ProcessScene, batch: int, seconds: float) -> Spent:
    loads = await processes.loads(batch)
    await processes.spend(loads, seconds / 4)
    spent = await processes.spend(loads, seconds)
    for load in loads:
        load.close()
    return spent


def fit_cost(few: Spent, many: Spent, kind: str) -> Cost:
    """Return the cost of an item and of a call, from runs with few and with many calls."""
    call_us = max(0.0, (many.us(kind) - few.us(kind)) / (many.calls_of_job - few.calls_of_job))
    return _round(few.us(kind) - call_us * few.calls_of_job, call_us)


def _measure_batches(single: Cost, run: Spent, kind: str) -> Cost:
    """Return the cost of items in batches; a call costs as much as others."""
    return _round(run.us(kind) - single.call_us * run.calls_of_job, single.call_us, single.wake_us)


def _waking(cost: Cost, idle: Spent, kind: str, processes: int) -> Cost:
    """Add what a call costs more after sleep, from a run whose processes were idle most of the time."""
    calls, asleep = idle.calls_of_job, 1 - idle.us(kind) * idle.rate / processes / 1e6
    return _round(cost.item_us, cost.call_us, max(0.0, (idle.us(kind) - cost.of_job(calls)) / calls / asleep))


def _round(item_us: float, call_us: float, wake_us: float = 0.0) -> Cost:
    return Cost(round(max(0.0, item_us), 1), round(call_us, 1), round(wake_us, 1))
