"""The core on a Redis with sentinels: masters that die, and former masters that come back."""

import asyncio
from typing import Any

import pytest

from broker import codec, keys
from broker.model.commands import Declare, Publish, Retract, Stats, Subscribe
from broker.model.items import Envelope
from broker.model.names import Jid, Partition
from broker.model.problems import CoreUnavailable
from broker.model.results import Counted, Published, Retracted
from broker.redis_core.core import RedisCore
from broker.redis_core.redis_client.client import Server
from broker.scripts.location import lua_directory
from frontends.tools.servers.sentinels import RedisSentinels
from tests.contract.conftest import MakeCore, Store

pytestmark = pytest.mark.parametrize("store", ["sentinels"], indirect=True)

ALICE = Jid("alice@x/home")
W1 = Jid("w1@x/a")


def item(node: str, item_id: str | None = None) -> Publish:
    """Publish an item."""
    return Publish(node, ALICE, item_id, codec.pack(Envelope(b"<x/>")), 4)


async def published(core: RedisCore, node: str) -> float:
    """Publish until it succeeds; return how long the longest try took."""
    loop = asyncio.get_running_loop()
    began, longest = loop.time(), 0.0
    answer: Any = None
    while not isinstance(answer, Published) and loop.time() < began + 15:
        asked = loop.time()
        answer = await core.ask(item(node))
        longest = max(longest, loop.time() - asked)
        await asyncio.sleep(0.05)
    assert isinstance(answer, Published)
    return longest


async def test_a_killed_master(make_core: MakeCore, redis_sentinels: RedisSentinels, store: Store, node: str) -> None:
    """SIGKILL of the master: commands are answered in time, work continues at the replica, and nothing more at the old one.

    The old master comes back empty and believes that it still is one; the sentinels have not told it yet. So does a
    client that slept through all of it.
    """
    sleeper = Server.connect(store.url, lua_directory(), 2.0)
    await sleeper.command("SET", "sq:sleeper", "before")
    core, door = await make_core()
    await core.ask(Declare(node, ALICE, {}))
    await core.ask(Subscribe(node, W1, W1, 1))
    await core.ask(item(node, "before"))
    old = redis_sentinels.master()
    redis_sentinels.wait_for_replicas(old)
    old.kill()
    assert await published(core, node) < 10
    old.start()
    assert redis_sentinels.ask(old, "ROLE")[0] == "master"
    await sleeper.command("SET", "sq:sleeper", "after")
    await sleeper.close()
    assert redis_sentinels.ask(redis_sentinels.master(), "GET", "sq:sleeper") == "after"
    assert await published(core, node) < 10
    assert isinstance(await core.ask(Retract(node, W1, "before", door.deliveries[0].token)), Retracted)
    counted = await core.ask(Stats(node, ALICE))
    assert isinstance(counted, Counted) and (counted.waiting, counted.in_flight) == (1, 1)
    assert redis_sentinels.ask(old, "ROLE")[0] == "master" and redis_sentinels.ask(old, "DBSIZE") == 0
    await asyncio.to_thread(redis_sentinels.wait_until_well)


async def test_a_demoted_master(make_core: MakeCore, redis_sentinels: RedisSentinels, node: str) -> None:
    """A master that was replaced while it lives, and does not know it for long, is left within a second."""
    core, _ = await make_core()
    await core.ask(Declare(node, ALICE, {}))
    old = redis_sentinels.master()
    await asyncio.to_thread(redis_sentinels.fail_over)
    new = await asyncio.to_thread(redis_sentinels.successor, old)
    await asyncio.sleep(1.5)
    await published(core, node)
    record = await core._store.read(node)
    assert record
    log = keys.of_partition("log", Partition(node, record.incarnation))
    assert redis_sentinels.ask(new, "XLEN", log) == 1
    await asyncio.to_thread(redis_sentinels.wait_until_well)


async def test_unknown_service(store: Store) -> None:
    """A service that the sentinels do not watch is not found."""
    server = Server.connect(f"{store.url}s", lua_directory(), 0.2)
    with pytest.raises(CoreUnavailable, match="no Redis serves"):
        await server.command("GET", "x")
    await server.close()
