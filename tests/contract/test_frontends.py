"""A frontend that an administrator disconnects: others take over at once, and it ends when its heartbeat tells it.

Also the cost of an idle frontend.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

import pytest

from broker import keys
from broker.model.commands import Declare, Delete, Disconnect, Frontends, Publish, Retract, Subscribe
from broker.model.names import Jid, Partition
from broker.model.problems import CoreUnavailable, Problem
from broker.model.results import Declared, Disconnected, FrontendList, Published, Refused, Retracted, Subscribed
from broker.redis_core import core as core_module
from broker.redis_core.commands.internal import PartitionCommand, Sweep
from broker.redis_core.core import RedisCore
from broker.redis_core.maintenance import heartbeat, sent_until
from broker.redis_core.maintenance.instances import DoorHeartbeat
from broker.redis_core.partitions.pipeline import PartitionPipeline
from tests.contract.conftest import SOMEWHERE, Door, MakeCore, Store
from tests.waiting import PATIENCE_SECONDS

ADMIN, W1 = Jid("admin@x/desk"), Jid("w1@x/a")
_DISCONNECTED: Final = "sq:{service}:disconnected"


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no frontend die of itself, and make heartbeats frequent."""
    monkeypatch.setattr(heartbeat, "DEAD_AFTER_MS", 600_000)
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 0.03)
    monkeypatch.setattr(sent_until, "READ_SECONDS", 0.0)


async def owing(core: RedisCore, door: Door, node: str) -> int:
    """Make a frontend hand out an item that it cannot send; return the token."""
    assert isinstance(await core.ask(Subscribe(node, W1, W1, 10)), Subscribed)
    door.writes = False
    assert isinstance(await core.ask(Publish(node, ADMIN, None, b"payload", 7)), Published)
    return door.deliveries[-1].token


async def listed(core: RedisCore) -> dict[str, str]:
    """Return the listed names, and who has disconnected each."""
    found = await core.ask(Frontends(ADMIN))
    assert isinstance(found, FrontendList)
    return {each.name: each.disconnected_by for each in found.frontends}


@SOMEWHERE
async def test_doors(make_core: MakeCore) -> None:
    """R5: a frontend that sends nothing is listed with its door while it lives; it cannot be disconnected."""
    core, _ = await make_core(admins="admin@x")
    beat = DoorHeartbeat(core._server, "rest 0000000c", core._heartbeat.now_ms)
    await beat.beat()
    found = await core.ask(Frontends(ADMIN))
    assert isinstance(found, FrontendList)
    assert {each.name: each.door for each in found.frontends} == {core.frontend: "xmpp", "0000000c": "rest"}
    assert all(each.ago_ms < 60_000 for each in found.frontends)
    refused = await core.ask(Disconnect(ADMIN, "0000000c"))
    assert isinstance(refused, Refused) and refused.problem is Problem.UNSUPPORTED
    await beat.leave()
    assert await listed(core) == {core.frontend: ""}


async def test_idle_pipelines(
    make_core: MakeCore, store: Store, node: str, patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many partitions are looked at, few pipelines stay, and only those that hand something out are noted."""
    monkeypatch.setattr(core_module, "IDLE_PIPELINES", 4)
    core, door = await make_core()
    assert await core.ask(Declare(node, ADMIN, {"stanzaq#partitions": ("12",)})) == Declared(node)

    def noted() -> int:
        core.drop_idle()
        return len(core.served.noted)

    await core._sweeper.sweep_all()
    assert noted() == 0 and len(core.pipelines()) <= 4
    async with store.client() as client:
        assert not await client.exists(keys.of_process("served_partitions", core.frontend))
    assert isinstance(await core.ask(Subscribe(node, W1, W1, 100, group="g")), Subscribed)
    for number in range(12):
        published = await core.ask(Publish(node, ADMIN, None, b"payload", 7, partition=number))
        assert isinstance(published, Published)
    await door.until(lambda: len(door.deliveries) == 12)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while noted() > 4:  # noqa: ASYNC110  (heartbeats find out)
            await asyncio.sleep(0.01)
    # What was handed out is acknowledged as before.
    for each in door.deliveries:
        assert isinstance(await core.ask(Retract(node, W1, each.item_id, each.token)), Retracted)


async def test_jobs_need_no_sweeps(make_core: MakeCore, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four frontends, 32 queues, 30 jobs a second: heartbeats tell what is sent, and no partition is swept for it."""
    served = [await make_core() for _ in range(4)]
    queues = [f"{node}/{number}" for number in range(32)]
    for number, queue in enumerate(queues):
        core, door = served[number % 4]
        assert await core.ask(Declare(queue, ADMIN, {})) == Declared(queue)
        assert isinstance(await core.ask(Subscribe(queue, W1, W1, 10)), Subscribed)
    swept: list[Partition] = []
    submit = PartitionPipeline.submit

    def counted(pipeline: PartitionPipeline, command: PartitionCommand, reply: Callable[..., None]) -> None:
        if isinstance(command, Sweep):
            swept.append(Partition(pipeline.node, ""))
        submit(pipeline, command, reply)

    monkeypatch.setattr(PartitionPipeline, "submit", counted)
    for number in range(60):
        core, door = served[number % 4]
        queue = queues[number % 32]
        assert isinstance(await core.ask(Publish(queue, ADMIN, None, b"payload", 7)), Published)
        found = door.deliveries
        await door.until(partial(bool, found))
        delivery = found.pop()
        assert isinstance(await core.ask(Retract(queue, W1, delivery.item_id, delivery.token)), Retracted)
        await asyncio.sleep(1 / 30)
    assert len(swept) <= 8, "four a second"


@pytest.mark.parametrize(
    "text", ["{}", "[]", "of another version", '{"host": "a", "pid": {}, "version": 1, "started": "x"}']
)
async def test_unreadable_details(make_core: MakeCore, store: Store, text: str) -> None:
    """Guarantee 8: a frontend whose details another version wrote is listed without them."""
    core, _ = await make_core(admins="admin@x")
    async with store.client() as client:
        await client.hset(keys.of_service("frontend_details"), core.frontend, text)
    assert await listed(core) == {core.frontend: ""}


@SOMEWHERE
@pytest.mark.parametrize("hangs", [False, True])
async def test_disconnected(patient: None, make_core: MakeCore, store: Store, node: str, *, hangs: bool) -> None:
    """Issue 8: others send a disconnected frontend's unsent deliveries with the same token, at once; then it is told."""
    (doomed, door), (other, its_door) = await make_core(admins="admin@x"), await make_core(admins="admin@x")
    assert await listed(other) == {doomed.frontend: "", other.frontend: ""}
    await other.ask(Declare(node, ADMIN, {}))
    token = await owing(doomed, door, node)
    if hangs:
        for task in doomed._running:
            task.cancel()
    assert await other.ask(Disconnect(ADMIN, doomed.frontend)) == Disconnected(listed=True)
    await its_door.until(lambda: bool(its_door.deliveries))
    assert [each.token for each in its_door.deliveries] == [token]
    assert isinstance(await other.ask(Retract(node, W1, its_door.deliveries[0].item_id, token)), Retracted)
    if hangs:
        assert not doomed.ending.is_set()
        await doomed._heartbeat.beat(doomed._sweeper.act)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await doomed.ending.wait()
    assert doomed.ended_why == "disconnected by admin@x" and not other.ending.is_set()
    door.writes = True
    await doomed.drain(2)
    await doomed.stop()
    assert await listed(other) == {other.frontend: ""}
    async with store.client() as client:
        assert await client.hgetall(_DISCONNECTED) == {}


async def test_one_that_dies_on_its_way_out(quick_lapse: None, make_core: MakeCore, store: Store, node: str) -> None:
    """Issue 8, guarantee 4: items that it hands out after the takeover, and before it ends, are taken over too."""
    (doomed, door), (other, its_door) = await make_core(admins="admin@x"), await make_core()
    for task in doomed._running:
        task.cancel()
    await doomed.ask(Declare(node, ADMIN, {}))
    assert await doomed.ask(Disconnect(ADMIN, doomed.frontend)) == Disconnected(listed=True)
    # After the first takeover it is listed once more; after the second it is removed.
    await _scored(store, doomed.frontend, bool)
    token = await owing(doomed, door, node)
    await its_door.until(lambda: bool(its_door.deliveries))
    assert [each.token for each in its_door.deliveries] == [token]
    await _scored(store, doomed.frontend, lambda score: score is None)
    assert other.healthy() == []


@pytest.fixture
def quick_lapse(patient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a frontend be dead after half a second without a heartbeat."""
    monkeypatch.setattr(heartbeat, "DEAD_AFTER_MS", 500)


async def _scored(store: Store, frontend: str, holds: Callable[[float | None], bool]) -> None:
    """Wait until its score in the list satisfies this."""
    async with store.client() as client, asyncio.timeout(PATIENCE_SECONDS):
        while not holds(await client.zscore("sq:{service}:frontends", frontend)):  # noqa: ASYNC110  (Redis tells nobody)
            await asyncio.sleep(0.01)


async def test_for_administrators(make_core: MakeCore) -> None:
    """Without being an administrator both are refused; an unknown frontend is reported as such."""
    core, _ = await make_core(admins="admin@x")
    for command in (Frontends(W1), Disconnect(W1, core.frontend)):
        refused = await core.ask(command)
        assert isinstance(refused, Refused) and refused.problem is Problem.FORBIDDEN
    for name in ("nobody", "", "x" * 100_000):
        refused = await core.ask(Disconnect(ADMIN, name))
        assert isinstance(refused, Refused) and refused.problem is Problem.ITEM_NOT_FOUND
    assert not core.ending.is_set()


async def test_nothing_to_do(make_core: MakeCore, store: Store, node: str) -> None:
    """An idle frontend costs twenty commands a second, scripts and background scan included, however many nodes there are."""
    core, _door = await make_core()
    for number in range(20):
        assert await core.ask(Declare(f"{node}-{number}", ADMIN, {})) == Declared(f"{node}-{number}")
    async with store.client() as client:
        began, before = time.monotonic(), (await client.info("stats"))["total_commands_processed"]
        await asyncio.sleep(4)
        spent = (await client.info("stats"))["total_commands_processed"] - before
    assert 0 < spent <= (time.monotonic() - began) * 20 + 25


async def test_notes_that_redis_has_lost(patient: None, make_core: MakeCore, store: Store, node: str) -> None:
    """Guarantee 10: where a frontend served is noted again when Redis may have lost it, also if that fails at first."""
    core, door = await make_core()
    await core.ask(Declare(node, ADMIN, {}))
    await owing(core, door, node)
    name, add = keys.of_process("served_partitions", core.frontend), core.served._write
    failed: list[Iterable[Partition]] = []

    async def fail_once(partitions: Iterable[Partition]) -> None:
        if not failed:
            failed.append(partitions)
            raise CoreUnavailable(node)
        await add(partitions)

    core.served._write = fail_once  # type: ignore[method-assign]
    async with store.client() as client, asyncio.timeout(PATIENCE_SECONDS):
        noted = await client.zrange(name, 0, -1)
        await client.delete(name)
        core._heartbeat.mark_state_unknown()
        while await client.zrange(name, 0, -1) != noted or not noted:  # noqa: ASYNC110  (heartbeats do it)
            await asyncio.sleep(0.02)
    assert failed


async def test_notes_that_cannot_be_written(patient: None, make_core: MakeCore, node: str) -> None:
    """Guarantee 1: while the master with its notes is away a frontend serves other ones; another sends what it would hand out."""
    (core, door), (other, its_door) = await make_core(), await make_core()
    tried: list[Iterable[Partition]] = []

    async def fail(partitions: Iterable[Partition]) -> None:
        tried.append(partitions)
        raise CoreUnavailable(node)

    await other.ask(Declare(node, ADMIN, {}))
    assert isinstance(await other.ask(Subscribe(node, W1, W1, 10)), Subscribed)
    core.served._write = fail  # type: ignore[method-assign]
    for _ in range(5):
        assert isinstance(await core.ask(Publish(node, ADMIN, None, b"payload", 7)), Published)
    await its_door.until(lambda: len(its_door.deliveries) == 5)
    # A lost reply has handed nothing out, so nothing is looked for; a takeover waits for the note, and no other call with it.
    core.router(node).pipeline()._note_lost_reply()
    assert isinstance(await core.ask(Publish(node, ADMIN, None, b"payload", 7)), Published)
    dead = heartbeat.DeadFrontend("dead", 0.0)
    taken = asyncio.create_task(core._sweeper.take_over_partition(Partition(node, ""), dead))
    assert isinstance(await core.ask(Publish(node, ADMIN, None, b"payload", 7)), Published)
    assert not await taken
    assert (len(tried), door.deliveries) == (1, [])


async def test_notes_of_a_node_that_is_created_again(make_core: MakeCore, node: str) -> None:
    """Guarantee 6: a frontend keeps one note of a node, however often that is deleted and created again."""
    core, _ = await make_core()
    for _ in range(3):
        assert await core.ask(Declare(node, ADMIN, {})) == Declared(node)
        assert isinstance(await core.ask(Publish(node, ADMIN, None, b"payload", 7)), Published)
        await core.ask(Delete(node, ADMIN))
    assert len(core.served.noted) == 1
