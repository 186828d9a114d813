"""A core without a door: its changes reach workers by the frontends, promptly, and it is never taken for a frontend."""

import asyncio
import time

import pytest

from broker import codec
from broker.model.commands import Configure, Declare, Delete, Publish, Subscribe, Unlock
from broker.model.items.items import Envelope, NodeEvent
from broker.model.names import Jid
from broker.model.results import Declared, Done, Published, Subscribed, Unlocked
from broker.redis_core.core import RedisCore
from broker.redis_core.maintenance import heartbeat
from broker.settings import CommandSettings
from tests.admitting import ADMITTING
from tests.contract.conftest import SOMEWHERE, Door, MakeCore, Store
from tests.waiting import PATIENCE_SECONDS

pytestmark = SOMEWHERE

ALICE = Jid("alice@x/home")
W1, W2 = Jid("w1@x/a"), Jid("w2@x/two words")

PROMPT_SECONDS = 10
"""Two heartbeats at their longest, and a sweep; a machine under load needs the rest."""


async def declared(core: RedisCore, node: str, **options: str) -> None:
    """Create a node; options are named without `stanzaq#`."""
    fields = {f"stanzaq#{name}": (value,) for name, value in options.items()}
    assert await core.ask(Declare(node, ALICE, fields)) == Declared(node)


def item(node: str, item_id: str) -> Publish:
    """Publish an item."""
    return Publish(node, ALICE, item_id, codec.pack(Envelope(b"<x/>")), 4)


def silent(store: Store) -> RedisCore:
    """Make a core that cannot send."""
    return RedisCore(CommandSettings(**ADMITTING, redis_url=store.url), None)


async def quit_silently(core: RedisCore) -> None:
    """Let it come to its end."""
    await core.drain(5)
    await core.stop()


async def test_wakeups(make_core: MakeCore, store: Store, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any woken frontend hands out items of a process without connections at once, not with the next heartbeat."""
    cores = [await make_core() for _ in range(2)]
    await declared(cores[0][0], node)
    assert isinstance(await cores[0][0].ask(Subscribe(node, W1, W1, 100)), Subscribed)
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 60.0)
    # Heartbeats under way are over then.
    await asyncio.sleep(0.7)
    quiet = silent(store)
    for number in range(20):
        assert await quiet.ask(item(node, str(number))) == Published(str(number))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while sum(len(door.deliveries) for _core, door in cores) <= number:  # noqa: ASYNC110  (either may get it)
                await asyncio.sleep(0.01)
    assert all(door.deliveries for _core, door in cores), "both listen"
    await quit_silently(quiet)


async def test_an_item_reaches_a_worker(make_core: MakeCore, store: Store, node: str) -> None:
    """A frontend hands out an item that a command released or published within about a second."""
    core, door = await make_core()
    await declared(core, node)
    assert isinstance(await core.ask(Subscribe(node, W1, W1, 10)), Subscribed)
    began = time.monotonic()
    command = silent(store)
    assert await command.ask(item(node, "a")) == Published("a")
    await quit_silently(command)
    await door.until(lambda: [one.item_id for one in door.deliveries] == ["a"])
    assert time.monotonic() - began < PROMPT_SECONDS
    async with store.client() as client:
        assert [name.decode() for name in await client.zrange("sq:{service}:frontends", 0, -1)] == [core.frontend]


async def test_resumed_from_elsewhere(make_core: MakeCore, store: Store, node: str) -> None:
    """A pause holds in every partition and at every frontend at once, and outlives them; a resume hands out at once."""
    one, door = await make_core()
    two, other = await make_core()
    await declared(one, node, partitions="3")
    assert isinstance(await two.ask(Subscribe(node, W1, W1, 30, group="g")), Subscribed)
    command = silent(store)
    assert await command.ask(Configure(node, ALICE, {"stanzaq#state": ("paused",)})) == Done()
    for core in (one, two):
        for number in range(6):
            publish = Publish(node, ALICE, None, codec.pack(Envelope(b"<x/>")), 4, partition=number % 3)
            assert isinstance(await core.ask(publish), Published)
    late, third = await make_core()
    assert isinstance(await late.ask(Subscribe(node, W2, W2, 30, group="g")), Subscribed)
    # Two heartbeats.
    await asyncio.sleep(1.1)
    assert door.deliveries + other.deliveries + third.deliveries == []
    began = time.monotonic()
    assert await command.ask(Configure(node, ALICE, {"stanzaq#state": ("running",)})) == Done()
    await quit_silently(command)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(door.deliveries + other.deliveries + third.deliveries) < 12:  # noqa: ASYNC110  (three doors)
            await asyncio.sleep(0.01)
    assert time.monotonic() - began < PROMPT_SECONDS


async def test_resumed_at_once(core: RedisCore, door: Door, node: str) -> None:
    """A frontend that resumes a node hands out before it answers."""
    await declared(core, node, state="paused")
    await core.ask(Subscribe(node, W1, W1, 30))
    await core.ask(item(node, "a"))
    assert door.deliveries == []
    assert await core.ask(Configure(node, ALICE, {"stanzaq#state": ("running",)})) == Done()
    assert len(door.deliveries) == 1


async def test_notices_are_told(make_core: MakeCore, store: Store, node: str) -> None:
    """A frontend sends the notices of a command."""
    core, door = await make_core()
    await declared(core, node)
    await core.ask(Subscribe(node, W1, W1, 1))
    await core.ask(item(node, "a"))
    command = silent(store)
    assert isinstance(await command.ask(Unlock(node, W1, "a")), Unlocked)
    await door.until(lambda: [one.attempt for one in door.deliveries] == [1, 2])
    assert await command.ask(Delete(node, ALICE)) == Done()
    await quit_silently(command)
    await door.until(lambda: NodeEvent(node, W1, "delete") in door.notices)
    async with store.client() as client:
        assert not await client.exists("sq:{service}:notices")
