"""Due work is done at once, however much it is: measured by counts, so that a slow machine does not matter."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from broker import keys
from broker.model.commands import Declare, Publish, Retract, Subscribe
from broker.model.names import Jid, Partition
from broker.model.problems import Problem
from broker.model.results import Declared, Published, Refused, Retracted
from broker.redis_core.commands.internal import Sweep
from broker.redis_core.core import RedisCore
from broker.redis_core.maintenance import heartbeat, sent_until, sweeper
from broker.redis_core.partitions.pipeline import PartitionPipeline
from broker.redis_core.redis_client.node import RedisNode
from tests.contract.conftest import MakeCore, Store
from tests.waiting import PATIENCE_SECONDS

ALICE, WORKER = Jid("alice@x"), Jid("w@x/1")


class Trips:
    """Counts the round trips of all cores to Redis, and the calls of each operation."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Begin at none."""
        self.count = 0
        self.calls = Counter[Any]()
        exchange = RedisNode._exchange

        async def counted(master: RedisNode, lines: Sequence[Any], way: Any) -> list[Any]:  # noqa: ANN401  (as it is)
            self.count += 1
            self.calls.update(line[1] for line in lines)
            return await exchange(master, lines, way)

        monkeypatch.setattr(RedisNode, "_exchange", counted)


async def declared(core: RedisCore, node: str, **options: str) -> None:
    """Create a node."""
    fields = {name.replace("__", "#"): (value,) for name, value in options.items()}
    assert isinstance(await core.ask(Declare(node, ALICE, fields)), Declared)


async def partitions_of(core: RedisCore, *nodes: str) -> list[Partition]:
    """Give the partitions of nodes."""
    return await core._store.partitions(nodes)


async def none_due(core: RedisCore, store: Store) -> None:
    """Wait until nothing is due any more, and all sweeps are over."""
    async with store.client() as client, asyncio.timeout(PATIENCE_SECONDS):
        while await client.zcard(keys.of_service("due")) or core._heartbeat.free_sweeps < heartbeat.MAX_SWEEPS:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_more_than_one_take(
    make_core: MakeCore, store: Store, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A9: due partitions beyond one heartbeat's limit are taken as soon as sweeps are done, not with the next heartbeat."""
    core, _ = await make_core()
    await declared(core, node, stanzaq__partitions="1000")
    due = await partitions_of(core, node)
    monkeypatch.setattr(heartbeat, "MAX_SWEEPS", 100)
    monkeypatch.setattr("broker.redis_core.maintenance.sweeper.MAX_SWEEPS", 100)
    core._heartbeat.free_sweeps = 100
    # One heartbeat and no more comes by itself.
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 3_600)
    async with store.client() as client:
        await client.zadd(keys.of_service("due"), {str(partition): 1 for partition in due})
    core._heartbeat.beat_now()
    await none_due(core, store)


async def test_together(make_core: MakeCore, store: Store, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A9: many due nodes that are not cached take a few round trips in all, not several each."""
    # Heartbeats come only when the test says so: one that is cancelled under way would request a sweep of all.
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 3_600)
    core, _ = await make_core()
    nodes = [f"{node}/{number}" for number in range(90)]
    await asyncio.gather(*(declared(core, each) for each in nodes))
    due = await partitions_of(core, *nodes)
    for task in core._running:
        task.cancel()
    core._routers.clear()
    trips = Trips(monkeypatch)
    async with store.client() as client:
        await client.zadd(keys.of_service("due"), {str(partition): 1 for partition in due})
    await core._heartbeat.beat(core._sweeper.act)
    await none_due(core, store)
    assert trips.count <= 8


async def test_due_again_after_another_has_swept(
    make_core: MakeCore, store: Store, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guarantee 4: a lock is due for a sweep also when another frontend has swept its partition before."""
    # Heartbeats come only when the test says so.
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 3_600)
    (one, door), (other, _) = await make_core(), await make_core()
    await declared(one, node)
    (partition,) = await partitions_of(one, node)
    await one.ask(Subscribe(node, WORKER, WORKER, 1))
    async with store.client() as client:
        for count in (1, 2):
            await one.ask(Publish(node, ALICE, None, b"", 0))
            await door.until(lambda: len(door.deliveries) == count)  # noqa: B023
            await one._heartbeat.beat(one._sweeper.act)
            assert await client.zscore(keys.of_service("due"), str(partition)) is not None
            if count == 1:
                assert isinstance(await one.ask(Retract(node, WORKER, door.deliveries[0].item_id)), Retracted)
                # The other frontend is told of an earlier time, and finds nothing due.
                await client.zadd(keys.of_service("due"), {str(partition): 1})
                await other._heartbeat.beat(other._sweeper.act)
                await none_due(other, store)


async def test_sent_without_a_sweep(make_core: MakeCore, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A9: what four frontends handed out in 32 queues is known to be sent by their heartbeats alone: nothing is swept for it."""
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(sent_until, "READ_SECONDS", 0.1)
    monkeypatch.setattr(sweeper, "SCAN_EVERY", 10**9)
    cores = [await make_core() for _ in range(4)]
    queues = [f"{node}-{number}" for number in range(32)]
    for queue in queues:
        await declared(cores[0][0], queue)
        await cores[0][0].ask(Subscribe(queue, WORKER, WORKER, 1))
    for core, _door in cores:
        await core._sweeper.sweep_all()
    trips = Trips(monkeypatch)
    for number in range(90):
        queue, (publishing, _), (acknowledging, _) = queues[number % 32], cores[number % 4], cores[(number // 4) % 4]
        published = await publishing.ask(Publish(queue, ALICE, None, b"x", 1))
        assert isinstance(published, Published)
        assert isinstance(await acknowledging.ask(Retract(queue, WORKER, published.item_id)), Retracted)
    now = time.monotonic()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while any(core.sent_until < now for core, _door in cores):  # noqa: ASYNC110  (heartbeats find out)
            await asyncio.sleep(0.02)
    assert sum(len(door.deliveries) for _core, door in cores) == 90
    assert trips.calls["publish"] == trips.calls["retract"] == 90
    assert trips.calls["sweep"] <= 4


async def test_takeover(make_core: MakeCore, store: Store, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A9: a dead frontend's deliveries in many partitions are taken over in a few round trips, not one after another."""
    core, _ = await make_core()
    await declared(core, node, stanzaq__partitions="300")
    partitions = await partitions_of(core, node)
    sessions = [keys.of_partition("meta", each) for each in partitions]
    async with store.client() as client:
        await client.zadd(keys.of_process("served_partitions", "dead"), dict.fromkeys(map(str, partitions), 0))
        for name in sessions:
            await client.hset(name, "session/dead", "5")
        for task in core._running:
            task.cancel()
        looked = asyncio.Event()

        async def look() -> None:
            """Replace the sweeps that follow."""
            looked.set()

        monkeypatch.setattr(core._sweeper, "sweep_all", look)
        trips = Trips(monkeypatch)
        await core._sweeper._take_over(heartbeat.DeadFrontend("dead", 0.0))
        assert looked.is_set() and not any([await client.hexists(name, "session/dead") for name in sessions])
    assert trips.count <= 20


async def test_going(make_core: MakeCore, store: Store, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A9: a frontend that stops in order while it reads records leaves its due partitions to others."""
    core, _ = await make_core()
    await declared(core, node)
    (partition,) = await partitions_of(core, node)
    reading = asyncio.Event()

    async def read_all(_names: Sequence[str]) -> list[Any]:
        reading.set()
        return await asyncio.Future()

    monkeypatch.setattr(core._store, "read_all", read_all)
    monkeypatch.setattr(sweeper, "HEARTBEAT_SECONDS", 3_600)
    core._routers.clear()
    async with store.client() as client, asyncio.timeout(PATIENCE_SECONDS):
        await client.zadd(keys.of_service("due"), {str(partition): 1})
        core._heartbeat.beat_now()
        await reading.wait()
        assert await client.zscore(keys.of_service("due"), str(partition)) is None
        await core.drain(5)
        await core.stop()
        assert await client.zscore(keys.of_service("due"), str(partition)) is not None


async def test_refused_while_all_are_swept(make_core: MakeCore, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarantee 4: a partition that a sweep of all cannot sweep now, as its master has no replica yet, is swept later."""
    monkeypatch.setattr(sweeper, "SCAN_EVERY", 1_000_000)
    core, _ = await make_core()
    await declared(core, node)
    ask, swept, refused = core._sweeper._ask, asyncio.Event(), list[str]()

    async def without_replicas(command: Any) -> Any:  # noqa: ANN401
        if isinstance(command, Sweep) and not refused:
            refused.append(command.node)
            return Refused(Problem.UNAVAILABLE)
        return await ask(command)

    submit = PartitionPipeline.submit

    def seen(pipeline: PartitionPipeline, command: Any, reply: Any) -> None:  # noqa: ANN401
        submit(pipeline, command, reply)
        if isinstance(command, Sweep) and refused:
            swept.set()

    monkeypatch.setattr(core._sweeper, "_ask", without_replicas)
    monkeypatch.setattr(PartitionPipeline, "submit", seen)
    await core._sweeper.sweep_all()
    assert refused == [node]
    async with asyncio.timeout(PATIENCE_SECONDS):
        await swept.wait()


@pytest.mark.parametrize("reading", ["read_all", "swept_names"])
async def test_a_silent_master(
    make_core: MakeCore, store: Store, node: str, monkeypatch: pytest.MonkeyPatch, reading: str
) -> None:
    """Guarantee 4: while one master of a cluster is silent, a frontend goes on with heartbeats, and sweeps what is elsewhere."""
    monkeypatch.setattr(sweeper, "SCAN_EVERY", 1 if reading == "swept_names" else 1_000_000)
    core, _ = await make_core()
    await declared(core, node)
    (due,) = await partitions_of(core, node)
    silent = asyncio.Event()

    async def unanswered(*_: Any) -> Any:  # noqa: ANN401
        silent.set()
        return await asyncio.Future()

    monkeypatch.setattr(core._store, reading, unanswered)
    async with store.client() as client, asyncio.timeout(PATIENCE_SECONDS):
        while not silent.is_set():
            core._routers.clear()
            await client.zadd(keys.of_service("due"), {str(due): 1})
            await asyncio.sleep(0.02)
        for _ in range(3):
            beat = core._heartbeat.last_beat
            while core._heartbeat.last_beat == beat:  # noqa: ASYNC110  (nobody is told of a heartbeat)
                await asyncio.sleep(0.02)
        await none_due(core, store)


async def test_few_keys(make_core: MakeCore, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call passes the keys of a plain queue; where a queue is none, one call is made twice, and the next ones pass all keys."""
    core, _ = await make_core()
    await declared(core, node)
    await declared(core, f"{node}-ordered", stanzaq__ordered="1")
    passed: dict[str, list[int]] = {node: [], f"{node}-ordered": []}
    exchange = RedisNode._exchange

    async def counted(master: RedisNode, lines: Sequence[Any], way: Any) -> list[Any]:  # noqa: ANN401  (as it is)
        for line in lines:
            if line[1] == "publish":
                passed[f"{node}-ordered" if "-ordered" in line[3] else node].append(line[2])
        return await exchange(master, lines, way)

    monkeypatch.setattr(RedisNode, "_exchange", counted)
    for queue in passed:
        for _ in range(3):
            assert isinstance(await core.ask(Publish(queue, ALICE, None, b"x", 1)), Published)
    publish = core._server.operations["publish"]
    few, every = len(publish.plain), len(publish.keys)
    assert passed == {node: [few] * 3, f"{node}-ordered": [few, every, every, every]} and few < every / 2
