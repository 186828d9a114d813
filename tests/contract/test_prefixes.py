"""Two services with prefixes of their own share one Redis."""

from collections.abc import Iterator

import pytest
import redis

from broker import keys
from broker.analytics.source.options import Options
from broker.analytics.source.servers import Servers
from broker.analytics.source.snapshot import snapshot
from broker.model.commands import Declare, Publish, Stats
from broker.model.names import Jid, Partition
from broker.model.results import Counted, Declared, Published
from broker.redis_core.core import RedisCore
from broker.redis_core.redis_client.libraries import Libraries
from broker.scripts.location import lua_directory
from broker.scripts.packaging import library
from broker.settings import CommandSettings
from frontends.tools.servers.redis import RedisServer
from tests.admitting import ADMITTING

ALICE = Jid("alice@x/home")
FAMILIES = {"acme": "stanzaq_acme", keys.PREFIX: "stanzaq"}


@pytest.fixture
def client(valkey: RedisServer) -> Iterator[redis.Redis]:
    """Give an empty Redis; this process has the usual prefix afterwards."""
    with redis.Redis.from_url(valkey.url) as client:
        client.flushall()
        client.function_flush()
        yield client
        client.function_flush()
    keys.use_prefix(keys.PREFIX)


async def serve(url: str, prefix: str, node: str, items: int) -> None:
    """Let a service create a node and take items."""
    core = RedisCore(CommandSettings(**ADMITTING, redis_url=url, key_prefix=prefix), None)
    try:
        await core.start()
        assert await core.ask(Declare(node, ALICE, {"stanzaq#partitions": ("3",)})) == Declared(node)
        for item in range(items):
            assert isinstance(await core.ask(Publish(node, ALICE, f"i{item}", b"x", 1)), Published)
        counted = await core.ask(Stats(node, ALICE))
        assert isinstance(counted, Counted) and counted.waiting == items
        core._libraries = Libraries(core._server)
        await core._sweeper._finish()
    finally:
        await core.stop()


async def test_apart(valkey: RedisServer, client: redis.Redis, node: str) -> None:
    """Each has its keys, its nodes, its functions for redis-cli, and drops no library of the other; reports see one of them."""
    unused = "stanzaq_acme_000000000000"
    client.function_load(f"#!lua name={unused}\nredis.register_function('f', function() return 1 end)")
    client.zadd(f"{keys.PREFIX}:{{service}}:libraries", {unused: 1})
    for items, (prefix, family) in enumerate(FAMILIES.items(), 1):
        await serve(valkey.url, prefix, node, items)
        shown: list[bytes] = client.fcall_ro(f"{family}_node", 0, node)
        assert sum(line.startswith(b"partition ") for line in shown) == 3, shown
        assert sum(int(line.split()[1]) for line in shown if line.startswith(b"waiting ")) == items, shown
        journal = keys.of_partition("journal", Partition(prefix, "ab12"))
        client.xadd(journal, {"type": "acknowledged", "closed": "1", "lock": "f1 9 1 1 77 1-1 1 205 8 w@x/a i"})
    assert {key.partition(b":")[0].decode() for key in client.scan_iter()} == set(FAMILIES)
    ours = {*FAMILIES.values(), *(library(lua_directory(), prefix).name for prefix in FAMILIES)}
    assert {each[1].decode() for each in client.function_list()} == {unused, *ours}
    for prefix in FAMILIES:
        found = snapshot(Servers(valkey.url), Options.read({"url": valkey.url, "keyPrefix": prefix}))
        assert [each.node for each in found] == [prefix]
    # A day later its own service drops it.
    client.zadd("acme:{service}:libraries", {unused: 1})
    await serve(valkey.url, "acme", f"{node}2", 1)
    assert {each[1].decode() for each in client.function_list()} == ours
