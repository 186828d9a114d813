"""The cost of measuring nodes, and that the figures are true."""

import asyncio
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from broker import codec, keys
from broker.model.commands import (
    Cancel,
    Declare,
    Delete,
    Publish,
    Purge,
    Receive,
    Retract,
    RetractBatch,
    Subscribe,
    Unlock,
    Unsubscribe,
)
from broker.model.items.hints import Hints
from broker.model.items.items import Envelope
from broker.model.items.qos import Qos
from broker.model.names import Jid
from broker.model.nodes.pull_subscriptions import pull_jid
from broker.model.results import (
    Declared,
    Done,
    Published,
    Received,
    Refused,
    Retracted,
    RetractedBatch,
    Subscribed,
    Unsubscribed,
)
from broker.redis_core.core import RedisCore
from broker.redis_core.maintenance import heartbeat
from broker.redis_core.metrics import REASONS
from broker.settings import CommandSettings
from tests.admitting import ADMITTING
from tests.contract.conftest import MakeCore, Store
from tests.waiting import PATIENCE_SECONDS

ALICE = Jid("alice@x")
WORKER = Jid("worker@x/1")


async def declared(core: RedisCore, node: str) -> None:
    """Create a node."""
    assert isinstance(await core.ask(Declare(node, ALICE, {})), Declared)


async def published(core: RedisCore, node: str) -> None:
    """Publish an item."""
    result = await core.ask(Publish(node, ALICE, None, codec.pack(Envelope(b"<x/>")), 4))
    assert isinstance(result, Published)


def shown(core: RedisCore, node: str, name: str) -> float | None:
    """Give a gauge of a node."""
    return core.metrics.registry.get_sample_value(f"stanzaq_node_{name}", {"node": node})


async def measured(core: RedisCore, node: str, name: str, wanted: float) -> None:
    """Measure until a gauge has this value: the other frontend reports the change within a few seconds."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while shown(core, node, name) != wanted:
            await asyncio.sleep(0.2)
            await core.measure()


async def test_idle_nodes_cost_nothing(make_core: MakeCore, store: Store, node: str) -> None:
    """B: unchanged nodes are not read again, however many there are."""
    core, _ = await make_core()
    await asyncio.gather(*(declared(core, f"{node}/{number}") for number in range(60)))
    await published(core, f"{node}/0")
    # All changes are reported, and measured.
    await measured(core, f"{node}/0", "waiting", 1)
    for task in core._running:
        task.cancel()
    await asyncio.gather(*core._running, return_exceptions=True)
    await core.measure()
    async with store.client() as client:
        await client.config_resetstat()
        await core.measure()
        calls = {name: found["calls"] for name, found in (await client.info("commandstats")).items()}
    assert not any("fcall" in name for name in calls) and sum(calls.values()) <= 8
    assert shown(core, f"{node}/59", "waiting") == 0


async def test_partitions_without_owners(make_core: MakeCore, node: str) -> None:
    """A queue of several partitions tells how many have no owner, also when nothing but their owners has changed."""
    core, _ = await make_core()
    for name, queueing in (("queue", "1"), ("log", "0")):
        options = {"stanzaq#partitions": ("4",), "{urn:xmpp:pubsub:queueing:0}enabled": (queueing,)}
        assert isinstance(await core.ask(Declare(f"{node}/{name}", ALICE, options)), Declared)
    await declared(core, f"{node}/one")
    await measured(core, f"{node}/queue", "partitions_unowned", 4)
    queue = f"{node}/queue"
    assert isinstance(await core.ask(Subscribe(queue, WORKER, WORKER, 4, partitions=(0, 2), group="g")), Subscribed)
    await measured(core, queue, "partitions_unowned", 2)
    assert isinstance(await core.ask(Unsubscribe(queue, WORKER, WORKER, "")), Unsubscribed)
    await measured(core, queue, "partitions_unowned", 4)
    assert shown(core, f"{node}/log", "partitions_unowned") is shown(core, f"{node}/one", "partitions_unowned") is None


async def test_deleted_nodes_leave_nothing(
    make_core: MakeCore, store: Store, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guarantee 6: of nodes that come and go nothing stays in the list of changed nodes, though a change is reported later."""
    monkeypatch.setattr(heartbeat, "CHANGES_SECONDS", 0.0)
    core, _ = await make_core()
    await declared(core, node)
    for number in range(5):
        await declared(core, f"{node}/{number}")
        await published(core, f"{node}/{number}")
        assert await core.ask(Delete(f"{node}/{number}", ALICE)) == Done()
    core._heartbeat.changed.add(f"{node}/0")
    await published(core, node)
    async with store.client() as client, asyncio.timeout(PATIENCE_SECONDS):
        names: list[bytes] = []
        while core._heartbeat.changed or not names:
            await asyncio.sleep(0.02)
            names = await client.zrange(keys.of_service("changed"), 0, -1)
    assert names == [node.encode()]


async def test_what_another_does(make_core: MakeCore, store: Store, node: str) -> None:
    """All frontends measure what another frontend or a shell command does; the age of waiting items grows meanwhile."""
    one, _ = await make_core()
    two, _ = await make_core()
    await declared(one, node)
    await two.measure()
    assert shown(two, node, "waiting") == 0
    await published(one, node)
    await measured(two, node, "waiting", 1)
    before = shown(two, node, "oldest_seconds")
    await asyncio.sleep(0.3)
    await two.measure()
    after = shown(two, node, "oldest_seconds")
    assert before is not None and after is not None and after - before >= 0.3
    shell = RedisCore(CommandSettings(**ADMITTING, redis_url=store.url), None)
    assert not isinstance(await shell.ask(Purge(node, ALICE)), Refused)
    await shell.drain(5)
    await shell.stop()
    await measured(two, node, "waiting", 0)


def counted(core: RedisCore, node: str, name: str, **labels: str) -> float:
    """Give a figure of what a frontend did for a node."""
    return core.metrics.registry.get_sample_value(f"stanzaq_{name}", {"node": node, **labels}) or 0.0


def ends(core: RedisCore, node: str) -> dict[str, float]:
    """Give the reasons for which something has ended, with how often."""
    found = {reason: counted(core, node, "ended_total", reason=reason) for reason in REASONS.values()}
    return {reason: number for reason, number in found.items() if number}


async def test_ends_by_reason(make_core: MakeCore, node: str) -> None:
    """Issue 26: each end is counted by its node and its reason, once; a repeat is none."""
    core, door = await make_core()
    await declared(core, node)
    await core.ask(Subscribe(node, WORKER, WORKER, 9))
    for item in "abcdef":
        await core.ask(Publish(node, ALICE, item, codec.pack(Envelope(b"<x/>")), 4))
    await door.until(lambda: len(door.deliveries) == 6)
    tokens = {each.item_id: each.token for each in door.deliveries}
    assert isinstance(await core.ask(Retract(node, WORKER, "a", tokens["a"], "r")), Retracted)
    assert isinstance(await core.ask(Retract(node, WORKER, "a", tokens["a"], "r")), Retracted)
    both = tuple(Retract(node, WORKER, item, tokens[item]) for item in "bc")
    assert isinstance(await core.ask(RetractBatch(node, WORKER, both)), RetractedBatch)
    await core.ask(Cancel(node, ALICE, "d"))
    await core.ask(Unlock(node, WORKER, "e", tokens["e"], delay_ms=60_000))
    # Deleted while nobody held it.
    assert isinstance(await core.ask(Retract(node, ALICE, "e")), Retracted)
    await core.ask(Unlock(node, WORKER, "f", tokens["f"], dead_letter=True))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not ends(core, node).get("dead_lettered"):  # noqa: ASYNC110  (a metric tells nobody)
            await asyncio.sleep(0.01)
    assert ends(core, node) == {"acknowledged": 3, "cancelled": 2, "released": 2, "dead_lettered": 1}
    assert counted(core, node, "service_seconds_count") == 3
    assert counted(core, node, "wait_seconds_count") == 6
    await core.ask(Delete(node, ALICE))
    await core.measure()
    assert ends(core, node) == {} and counted(core, node, "wait_seconds_count") == 0


async def test_waits_and_services(make_core: MakeCore, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 26: an item waits from its publish, or from the end of its delay, to its first delivery."""
    core, door = await make_core()
    await declared(core, node)
    await core.ask(Publish(node, ALICE, "late", codec.pack(Envelope(b"<x/>")), 4, hints=Hints(delay_ms=300)))
    await core.ask(Publish(node, ALICE, "soon", codec.pack(Envelope(b"<x/>")), 4))
    await core.ask(Subscribe(node, WORKER, WORKER, 9))
    await door.until(lambda: len(door.deliveries) == 2)
    soon, late = door.deliveries
    ready = [int(each.position.partition("-")[0]) for each in door.deliveries]
    assert (soon.ready_ms, late.ready_ms) == (0, ready[1] + 300)
    waits = soon.token / 1e6 - ready[0] / 1e3 + late.token / 1e6 - late.ready_ms / 1e3
    assert counted(core, node, "wait_seconds_sum") == pytest.approx(waits, abs=1e-6)
    # A delivery that is not the first is not counted, and neither is one that is sent again.
    await core.ask(Unlock(node, WORKER, "soon", soon.token))
    await door.until(lambda: len(door.deliveries) == 3)
    core.deliver([replace(late, sequence=late.sequence + 9)])
    assert counted(core, node, "wait_seconds_count") == 2
    assert core.metrics.tally.counts["resent"] == 1
    # By Redis's clock, in which locks begin. The core knows it from a heartbeat: late by the time that the reply took.
    began = time.monotonic()
    with monkeypatch.context() as later:
        later.setattr("broker.redis_core.core.time", SimpleNamespace(monotonic=lambda: time.monotonic() + 7_000))
        await core.ask(Retract(node, WORKER, "late", late.token))
    assert 6_995 <= counted(core, node, "service_seconds_sum") <= 7_010 + time.monotonic() - began
    # Without a token nobody knows when the lock was made.
    await core.ask(Retract(node, WORKER, "soon"))
    assert counted(core, node, "service_seconds_count") == 1 and ends(core, node)["acknowledged"] == 2


async def test_pulled_items_wait_until_they_are_fetched(make_core: MakeCore, node: str) -> None:
    """Issue 26, A6: the wait of an item that is reserved for a pull subscription ends when it is fetched."""
    core, _ = await make_core()
    await declared(core, node)
    lease = pull_jid(ALICE, "l")
    await core.ask(Subscribe(node, ALICE, lease, 9, Qos.PULLED, lease_ms=60_000))
    await published(core, node)
    assert counted(core, node, "wait_seconds_count") == 0
    for _ in range(2):
        fetched = await core.ask(Receive(node, ALICE, lease))
        assert isinstance(fetched, Received) and len(fetched.items) == 1
        assert counted(core, node, "wait_seconds_count") == 1
