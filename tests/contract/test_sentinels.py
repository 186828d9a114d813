"""The core on a Redis with sentinels: masters that die, and former masters that come back."""

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from pydantic import SecretStr

from broker import codec, keys
from broker.analytics.faults import Unreadable
from broker.analytics.source.servers import Servers
from broker.model.commands import Declare, Publish, Retract, Stats, Subscribe
from broker.model.items.items import Envelope
from broker.model.names import Jid, Partition
from broker.model.problems import CoreUnavailable
from broker.model.results import Counted, Published, Retracted
from broker.redis_core.core import RedisCore
from broker.redis_core.redis_client.client import Server
from broker.redis_core.redis_client.diagnostics import Level, examine
from broker.scripts.location import lua_directory
from broker.settings import CommandSettings
from frontends.tools.servers.redis import RedisServer
from frontends.tools.servers.sentinels import RedisSentinels
from tests.contract.conftest import MakeCore, Store
from tests.operations import PASSWORD, WITH_SENTINELS, as_user, make_user

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


@pytest.fixture
def guarded_master(redis_sentinels: RedisSentinels, store: Store) -> Iterator[RedisServer]:
    """Give the sentinels a user and a password of their own; return the master, which is empty and has other ones."""
    assert store.url == redis_sentinels.url
    master = redis_sentinels.master()
    # Tests before this one leave stores, some of another format.
    redis_sentinels.ask(master, "FLUSHALL")
    make_user(master.url, "stanzaq", *WITH_SENTINELS)
    for sentinel in redis_sentinels.sentinels:
        redis_sentinels.ask(sentinel, "ACL", "SETUSER", "watcher", "reset", "on", ">of/sentinels", "+sentinel")
        redis_sentinels.ask(sentinel, "ACL", "SETUSER", "default", "resetpass", ">of/sentinels")
    yield master
    for sentinel in redis_sentinels.sentinels:
        with redis.Redis.from_url(sentinel.url, password="of/sentinels") as client:
            client.execute_command("ACL", "SETUSER", "default", "nopass")
            client.execute_command("ACL", "DELUSER", "watcher")
    redis_sentinels.ask(master, "ACL", "DELUSER", "stanzaq")
    redis_sentinels.wait_until_well()


async def reached(settings: CommandSettings) -> str:
    """Return why a core does not reach Redis; empty if it does."""
    core = RedisCore(settings, None)
    try:
        await core.reach()
    except CoreUnavailable as error:
        return str(error)
    finally:
        await core.stop()
    return ""


async def test_passwords(guarded_master: RedisServer, store: Store) -> None:
    """Sentinels are asked with their own user and password, and the master with its own; an error says which refuses what."""
    url = as_user(store.url, "stanzaq")
    password = SecretStr("of/sentinels")
    for user in ("", "watcher"):
        given = CommandSettings(redis_url=url, redis_sentinel_username=user, redis_sentinel_password=password)
        assert await reached(given) == ""
    both = f"{url}?sentinel_username=watcher&sentinel_password=of%2Fsentinels"
    assert await reached(CommandSettings(redis_url=both)) == ""
    assert [each.level for each in await examine(both, 2.0) if each.what == "role"] == [Level.FINE]
    assert len(Servers(both).processes()) == 1
    for wrong in (url, f"{url}?sentinel_password=other", f"{store.url}?sentinel_username=watcher"):
        said = await reached(CommandSettings(redis_url=wrong))
        assert re.search(
            r"the sentinel at 127\.0\.0\.1:\d+ refuses the user or password of REDIS_SENTINEL_PASSWORD$", said
        ), said
        with pytest.raises(Unreadable, match=r"^the sentinel at "):
            Servers(wrong).processes()
    said = await reached(CommandSettings(redis_url=both.replace(PASSWORD, "other", 1)))
    assert said == f"Redis at 127.0.0.1:{guarded_master.port} refuses the user or password of REDIS_URL"


async def test_unknown_service(store: Store) -> None:
    """A service that the sentinels do not watch is not found."""
    server = Server.connect(f"{store.url}s", lua_directory(), 0.2)
    with pytest.raises(CoreUnavailable, match="no Redis serves"):
        await server.command("GET", "x")
    await server.close()
