"""Publishes that are answered once Redis's disk or its replicas have them (`stanzaq#confirm`)."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import redis.asyncio as aioredis

from broker import codec
from broker.model.commands import (
    Configure,
    Declare,
    Deliver,
    PrepareMessage,
    Publish,
    Redeem,
    Reserve,
    Retract,
    Stats,
    Subscribe,
)
from broker.model.items.durability import Durability
from broker.model.items.hints import NO_HINTS, Hints
from broker.model.items.items import Envelope
from broker.model.names import Jid
from broker.model.problems import Problem
from broker.model.results import Counted, Declared, Done, Published, Refused, Reserved, Retracted
from broker.redis_core.core import RedisCore
from broker.redis_core.redis_client.durability import CONNECTIONS
from broker.settings import Settings
from frontends.tools.servers.redis import RedisServer
from tests.admitting import ADMITTING
from tests.contract.conftest import Asked, Door, MakeCore
from tests.operations import as_user, make_user
from tests.waiting import PATIENCE_SECONDS

ALICE, WORKER = Jid("alice@x/home"), Jid("worker@x/a")
TIMEOUT = 0.5
"""Seconds that a replica is waited for, where that is to fail."""

LATE = Problem.TIMED_OUT


def item(node: str, item_id: str | None = None, confirm: Durability | None = None, body: bytes = b"<x/>") -> Publish:
    """Publish an item, perhaps as durable as it asks for itself."""
    hints = Hints(confirm=confirm) if confirm else NO_HINTS
    return Publish(node, ALICE, item_id, codec.pack(Envelope(body)), len(body), hints=hints)


class Pair:
    """A master that syncs to its disk, and its replica."""

    def __init__(self, master: RedisServer, replica: RedisServer) -> None:
        """Know both."""
        self.master, self.replica = master, replica

    async def catch_up(self) -> None:
        """Wait until the replica has all that the master has, also the operations, which take it a while to load."""
        async with aioredis.Redis.from_url(self.master.url, single_connection_client=True) as client:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await client.set("caught", "up")
                while await client.wait(1, 1000) < 1:
                    pass

    async def waits(self) -> int:
        """Count the waits so far."""
        async with aioredis.Redis.from_url(self.master.url) as client:
            stats = await client.info("commandstats")
        return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("wait", "waitaof"))


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    """Provide a master with a replica that hangs in tests."""
    options = {"appendonly": "yes", "appendfsync": "always", "repl-diskless-sync-delay": "0", "repl-timeout": "3600"}
    with (
        RedisServer(port=0, options=options) as master,
        RedisServer(port=0, options={**options, "replicaof": f"127.0.0.1 {master.port}"}) as replica,
    ):
        make_user(master.url, "stanzaq", "+waitaof")
        yield Pair(master, replica)


@pytest.fixture
async def core(pair: Pair, request: pytest.FixtureRequest) -> AsyncIterator[RedisCore]:
    """Provide a core on the master, with as much patience as a test says."""
    url, seconds = as_user(pair.master.url, "stanzaq"), getattr(request, "param", 60.0)
    given = ADMITTING | {
        "redis_url": url,
        "redis_timeout": seconds,
        "qos_trusted": ("x",),
        "xmpp_domain": "q.localhost",
        "xmpp_secret": "s",
    }
    made = RedisCore(Settings(**given), Door())
    await made.start()
    await pair.catch_up()
    yield made
    pair.replica.process.resume()
    await made.stop()


async def declare(core: RedisCore, node: str, confirm: str = "replicated", **options: str) -> None:
    """Create a node with a level."""
    more = {f"stanzaq#{name}": (value,) for name, value in options.items()}
    assert isinstance(await core.ask(Declare(node, ALICE, {"stanzaq#confirm": (confirm,), **more})), Declared)


@pytest.mark.parametrize(("node_level", "asked"), [("replicated", None), ("stored", Durability.REPLICATED)])
async def test_a_replica_has_it(
    core: RedisCore, pair: Pair, node: str, node_level: str, asked: Durability | None
) -> None:
    """A publish that is answered is in the replica, by the node's level or by its own."""
    await declare(core, node, node_level)
    async with aioredis.Redis.from_url(pair.replica.url) as replica:
        for count in range(1, 21):
            assert isinstance(await core.ask(item(node, confirm=asked)), Published)
            (log,) = [key async for key in replica.scan_iter(f"sq:{{{node}@*:log")]
            assert await replica.xlen(log) == count


@pytest.mark.parametrize("core", [TIMEOUT], indirect=True)
@pytest.mark.parametrize("dedupe", ["overwrite", "ignore"])
async def test_a_replica_that_is_away(core: RedisCore, pair: Pair, node: str, dedupe: str) -> None:
    """Publishers get `wait` once the time is over; a repeat waits too, and then counts once, whatever the node's dedupe."""
    await declare(core, node, dedupe=dedupe)
    pair.replica.process.pause()
    asked = Asked(core)
    asked.submit(item(node, "a"), item(node, "b"))
    told = "the item is stored, but not replicated: 0 of 1 replicas have it: publish it again with the same id"
    for _ in range(2):
        assert await asked.settled() == [Refused(LATE, told)] * 2
        asked = Asked(core)
        asked.submit(item(node, "a"), item(node, "b"))
    assert LATE.retryable
    await asked.settled()
    pair.replica.process.resume()
    await pair.catch_up()
    later = [await core.ask(item(node, name, body=b"<y/>")) for name in ("a", "b")]
    assert later == [Published("a", duplicate=True), Published("b", duplicate=True)]
    counted = await core.ask(Stats(node, ALICE))
    assert isinstance(counted, Counted) and counted.waiting == 2


async def test_nobody_else_waits(core: RedisCore, pair: Pair, node: str) -> None:
    """An item may be handed out before it is confirmed, and while a replica is away other answers come at once."""
    await declare(core, node)
    await declare(core, f"{node}-2", "stored")
    await core.ask(Subscribe(node, WORKER, WORKER, 1))
    door = core._outlet
    assert isinstance(door, Door)
    pair.replica.process.pause()
    asked = Asked(core)
    asked.submit(item(node, "a"), item(node, "b"))
    await door.until(lambda: bool(door.deliveries))
    assert isinstance(await core.ask(Retract(node, WORKER, "a", door.deliveries[0].token)), Retracted)
    assert isinstance(await core.ask(item(f"{node}-2")), Published)
    refused = await core.ask(item(node, "c", Durability.STORED))
    assert isinstance(refused, Refused) and refused.problem is Problem.NOT_ACCEPTABLE
    assert asked.results == [[], []]
    pair.replica.process.resume()
    assert await asked.settled() == [Published("a"), Published("b")]


async def test_few_connections(core: RedisCore, pair: Pair, node: str) -> None:
    """However many publishes wait for a replica, in however many nodes, they take two connections."""
    names = [f"{node}-{number}" for number in range(10)]
    for name in names:
        await declare(core, name)
    pair.replica.process.pause()
    asked = Asked(core)
    async with aioredis.Redis.from_url(pair.master.url) as client:
        for number in range(5):
            asked.submit(*(item(name, f"a{number}") for name in names))
            log = f"sq:{{{names[-1]}@*:log"
            while [await client.xlen(key) async for key in client.scan_iter(log)] != [number + 1]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            waiting = sum(each["cmd"] == "wait" for each in await client.client_list())
            assert 0 < waiting < CONNECTIONS
    pair.replica.process.resume()
    assert all(isinstance(each, Published) for each in await asked.settled())


async def test_one_wait_for_a_batch(core: RedisCore, pair: Pair, node: str) -> None:
    """Publishes of one turn share a wait, also those of several nodes; a node that is `stored` makes none."""
    for name, level in ((node, "replicated"), (f"{node}-2", "replicated"), (f"{node}-3", "stored")):
        await declare(core, name, level)
        await core.ask(item(name))
    before = await pair.waits()
    asked = Asked(core)
    asked.submit(*(item(f"{node}-3") for _ in range(100)))
    await asked.settled()
    assert await pair.waits() == before
    asked.submit(*(item(name) for name in (node, f"{node}-2") for _ in range(100)))
    assert all(isinstance(each, Published) for each in await asked.settled())
    assert await pair.waits() - before == 1


async def test_synced(core: RedisCore, pair: Pair, node: str) -> None:
    """A publish may wait for the disk alone: a replica that is away does not matter then."""
    await declare(core, node, "synced")
    pair.replica.process.pause()
    before = await pair.waits()
    assert isinstance(await core.ask(item(node, "a")), Published)
    assert await pair.waits() == before + 1


async def test_levels_of_one_node(core: RedisCore, pair: Pair, node: str) -> None:
    """Publishes of several levels may come at once; one that asks for another level than its node's is refused."""
    await declare(core, node, "stored")
    pair.replica.process.pause()
    asked = Asked(core)
    late = Asked(core)
    late.submit(item(node, "replicated", Durability.REPLICATED))
    asked.submit(item(node, "a"), *(item(node, each.value, each) for each in (Durability.STORED, Durability.SYNCED)))
    assert await asked.settled() == [Published("a"), Published("stored"), Published("synced")]
    assert late.results == [[]]
    pair.replica.process.resume()
    assert await late.settled() == [Published("replicated")]
    await core.ask(Configure(node, ALICE, {"stanzaq#confirm": ("replicated",)}))
    for level in (Durability.STORED, Durability.SYNCED):
        refused = await core.ask(item(node, "b", level))
        assert isinstance(refused, Refused) and refused.problem is Problem.NOT_ACCEPTABLE
        assert refused.detail == f"stanzaq#confirm is replicated here, so a publish may not ask for {level.value}"
    assert isinstance(await core.ask(item(node, "b", Durability.REPLICATED)), Published)


async def test_what_its_node_alone_says(core: RedisCore, node: str) -> None:
    """An assured message and a reserved one are confirmed as their node says, and may not ask for more."""
    await declare(core, node, "stored")
    asking = item(node, "a", Durability.REPLICATED)
    reserved = await core.ask(Reserve(node, ALICE))
    assert isinstance(reserved, Reserved)
    redeem = Redeem(node, ALICE, reserved.item_id, asking.envelope, asking.body_bytes, hints=asking.hints)
    for command in (PrepareMessage(ALICE, "m1", asking, ""), redeem):
        refused = await core.ask(command)
        assert isinstance(refused, Refused) and refused.problem is Problem.NOT_ACCEPTABLE, command
    await core.ask(Configure(node, ALICE, {"stanzaq#confirm": ("replicated",)}))
    assert isinstance(await core.ask(PrepareMessage(ALICE, "m1", item(node, "a"), "")), Done)
    assert isinstance(await core.ask(Deliver(ALICE, "m1")), Done)


async def test_a_refused_publish(core: RedisCore, pair: Pair, node: str) -> None:
    """What is refused has stored nothing and waits for nothing."""
    assert isinstance(
        await core.ask(Declare(node, ALICE, {"stanzaq#confirm": ("replicated",), "pubsub#max_items": ("1",)})), Declared
    )
    await core.ask(item(node, "a"))
    pair.replica.process.pause()
    refused = await core.ask(item(node, "b"))
    assert isinstance(refused, Refused) and refused.problem is Problem.NODE_FULL


@pytest.mark.parametrize("server", ["redis7", "valkey"])
async def test_no_disk_to_wait_for(make_core: MakeCore, request: pytest.FixtureRequest, node: str, server: str) -> None:
    """`synced` is refused when it is set or asked for, where Redis has no WAITAOF (before 7.2) or writes no file."""
    url = request.getfixturevalue(server).url
    make_user(url, "stanzaq", *(() if server == "redis7" else ("+waitaof",)))
    core, _ = await make_core(url)
    wanted = {"stanzaq#confirm": ("synced",)}
    refused = [await core.ask(Declare(node, ALICE, wanted))]
    await declare(core, node, "stored")
    refused += [await core.ask(Configure(node, ALICE, wanted)), await core.ask(item(node, "a", Durability.SYNCED))]
    why = "unknown command 'WAITAOF'" if server == "redis7" else "WAITAOF cannot be used"
    for each in refused:
        assert isinstance(each, Refused) and each.problem is Problem.NOT_ACCEPTABLE
        assert "confirm: it needs Redis 7.2 or newer with appendonly yes, everywhere: " in each.detail
        assert why in each.detail
    counted = await core.ask(Stats(node, ALICE))
    assert isinstance(counted, Counted) and counted.waiting == 0
    assert isinstance(await core.ask(Configure(node, ALICE, {"stanzaq#confirm": ("replicated",)})), Done)


async def test_a_cluster(redis_cluster: Any, make_core: MakeCore, node: str) -> None:  # noqa: ANN401
    """In a cluster each master waits for its own replicas."""
    core, _ = await make_core(redis_cluster.url)
    names = [f"{node}-{number}" for number in range(12)]
    for name in names:
        await declare(core, name)
    asked = Asked(core)
    asked.submit(*(item(name, "a") for name in names))
    assert await asked.settled() == [Published("a")] * len(names)


async def test_a_master_that_dies(node: str) -> None:
    """Who waits for a replica when the master dies is told to try again, at once."""
    with RedisServer(port=0) as master:
        given = ADMITTING | {"redis_url": master.url, "redis_timeout": 60.0, "xmpp_domain": "q.x", "xmpp_secret": "s"}
        core = RedisCore(Settings(**given), Door())
        await core.start()
        await declare(core, node)
        asked = Asked(core)
        asked.submit(item(node, "a"))
        async with aioredis.Redis.from_url(master.url) as client:
            while not any(each["cmd"] == "wait" for each in await client.client_list()):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        master.kill()
        (refused,) = await asked.settled()
        assert refused.problem is LATE and "the connection to Redis was lost" in refused.detail
        await core.stop()
