"""The core on a real cluster: slots that move, nodes that die, lost replies, dead letters that cross slots."""

# ruff: noqa: ANN401  (outcomes of every kind pass through here)

import asyncio
import contextlib
import secrets
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from functools import partial
from itertools import count
from random import Random
from typing import Any

import pytest
from redis.crc import key_slot

from broker import codec, keys
from broker.address import Address
from broker.analytics.source.servers import Servers
from broker.model.commands import (
    Browse,
    Configure,
    Declare,
    Describe,
    MoveItems,
    Publish,
    Retract,
    Stats,
    Subscribe,
    Unsubscribe,
)
from broker.model.items.items import Envelope
from broker.model.names import Jid, Partition
from broker.model.nodes.tree import Scope, SubscriptionType
from broker.model.problems import CoreUnavailable, Problem
from broker.model.results import Browsed, Counted, Declared, Described, Done, MovedItems, Published, Refused, Retracted
from broker.redis_core.core import RedisCore
from broker.redis_core.maintenance import sweeper
from broker.redis_core.redis_client import cluster
from broker.redis_core.redis_client.client import Server
from broker.redis_core.redis_client.cluster_router import slot_of as slot_of_line
from broker.scripts.location import lua_directory
from frontends.tools.servers.cluster import RedisCluster
from frontends.tools.servers.redis import RedisServer
from tests.contract.conftest import Asked, MakeCore, Store, lose_reply
from tests.contract.proxy import LossyNetwork
from tests.contract.test_outbox import KINDS, Life, Play
from tests.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.parametrize("store", ["cluster"], indirect=True)

ALICE = Jid("alice@x/home")
W1, W2 = Jid("w1@x/a"), Jid("w2@x/b")


def item(node: str, item_id: str | None = None) -> Publish:
    """Publish an item."""
    return Publish(node, ALICE, item_id, codec.pack(Envelope(b"<x/>")), 4)


async def slot_of(core: RedisCore, node: str) -> int:
    """Give the slot of a node's partition."""
    record = await core._store.read(node)
    assert record
    return key_slot(keys.of_partition("meta", Partition(node, record.incarnation)).encode())


async def away(call: Any, *words: Any) -> Any:
    """Change the cluster while the core goes on."""
    return await asyncio.to_thread(call, *words)


@contextlib.asynccontextmanager
async def load(core: RedisCore, node: str) -> AsyncIterator[list[Any]]:
    """Publish without a pause while the block runs; return the results in order."""
    results: list[Any] = []
    stopping = asyncio.Event()

    async def publish() -> None:
        for number in count():
            results.append(await core.ask(item(node, f"i{number}")))
            if stopping.is_set():
                return

    async def published(more: int) -> None:
        wanted = len(results) + more
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(results) < wanted:  # noqa: ASYNC110  (results are added by another task)
                await asyncio.sleep(0.005)

    task = asyncio.create_task(publish())
    await published(5)
    yield results
    await published(5)
    stopping.set()
    await task


async def test_a_moving_slot(make_core: MakeCore, redis_cluster: RedisCluster, node: str) -> None:
    """A slot moves to another master and on to the third while in use: nothing is refused, all items are there, in order."""
    core, _ = await make_core()
    await core.ask(Declare(node, ALICE, {}))
    slot = await slot_of(core, node)
    async with load(core, node) as results:
        for target in redis_cluster.masters():
            if target is not await away(redis_cluster.owner, slot):
                await away(redis_cluster.move, slot, target)
    assert len(results) > 10 and all(isinstance(result, Published) for result in results)
    browsed = await core.ask(Browse(node, ALICE, (), 100_000))
    assert isinstance(browsed, Browsed)
    counted = await core.ask(Stats(node, ALICE))
    assert isinstance(counted, Counted) and counted.waiting == len(results)
    assert [each.item_id for each in browsed.items] == [f"i{n}" for n in range(len(browsed.items))]


async def test_half_a_move(make_core: MakeCore, redis_cluster: RedisCluster, node: str) -> None:
    """With some keys of a slot here and some there, nothing is half applied: commands wait, and then are done, once, in order."""
    core, _ = await make_core(redis_timeout=5.0)
    await core.ask(Declare(node, ALICE, {}))
    await core.ask(item(node, "first"))
    slot = await slot_of(core, node)
    source = redis_cluster.owner(slot)
    target = next(each for each in redis_cluster.masters() if each is not source)
    ask = redis_cluster.ask
    redis_cluster.begin_move(slot, target)
    held = sorted(ask(source, "CLUSTER GETKEYSINSLOT", slot, 100))
    ask(source, "MIGRATE", "127.0.0.1", target.port, "", 0, 1000, "KEYS", *held[: len(held) // 2])
    asked = Asked(core)
    asked.submit(item(node, "second"), Subscribe(node, W1, W1, 1), item(node, "third"))
    await asyncio.sleep(0.3)
    assert asked.results == [[], [], []]
    await away(redis_cluster.move, slot, target)
    assert [type(result).__name__ for result in await asked.settled()] == ["Published", "Subscribed", "Published"]
    counted = await core.ask(Stats(node, ALICE))
    assert isinstance(counted, Counted) and (counted.waiting, counted.in_flight) == (2, 1)


async def test_half_a_move_for_long(make_core: MakeCore, redis_cluster: RedisCluster, node: str) -> None:
    """Q26: a command that a moving slot refuses for too long is answered `wait`, once, and none of it has run."""
    core, _ = await make_core(redis_timeout=1.5)
    await core.ask(Declare(node, ALICE, {}))
    await core.ask(item(node, "first"))
    slot = await slot_of(core, node)
    source = redis_cluster.owner(slot)
    target = next(each for each in redis_cluster.masters() if each is not source)
    redis_cluster.begin_move(slot, target)
    refused = await core.ask(item(node, "second"))
    assert isinstance(refused, Refused) and refused.problem is Problem.UNAVAILABLE
    await away(redis_cluster.move, slot, target)
    assert isinstance(await core.ask(item(node, "third")), Published)
    counted = await core.ask(Stats(node, ALICE))
    assert isinstance(counted, Counted) and counted.waiting == 2


async def test_a_promoted_replica(make_core: MakeCore, redis_cluster: RedisCluster, node: str) -> None:
    """CLUSTER FAILOVER loses nothing: everything not answered with an error is there, once."""
    core, _ = await make_core()
    await core.ask(Declare(node, ALICE, {}))
    master = redis_cluster.owner(await slot_of(core, node))
    replica = redis_cluster.replica(master)
    async with load(core, node) as results:
        await away(redis_cluster.ask, replica, "CLUSTER FAILOVER")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while redis_cluster.ask(replica, "ROLE")[0] != "master":  # noqa: ASYNC110  (Redis tells nobody)
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.3)
    answered = [result for result in results if isinstance(result, Published)]
    counted = await core.ask(Stats(node, ALICE))
    assert isinstance(counted, Counted)
    # The reply lost when the master hung up may have been a publish's.
    assert len(answered) <= counted.waiting <= len(results)
    assert isinstance(results[-1], Published)
    await away(redis_cluster.wait_until_well)


async def test_memory_of_every_master(make_core: MakeCore, redis_cluster: RedisCluster, node: str) -> None:
    """The reported memory is that of the fullest master."""
    core, _ = await make_core()
    await core.ask(Declare(node, ALICE, {}))
    for number, master in enumerate(redis_cluster.masters()):
        limit = 1_000_000_000 + number
        redis_cluster.ask(master, "CONFIG SET", "maxmemory", limit)
        await core.measure()
        assert core.metrics.registry.get_sample_value("stanzaq_redis_limit_bytes") == limit
        redis_cluster.ask(master, "CONFIG SET", "maxmemory", 0)


async def test_a_killed_master(make_core: MakeCore, redis_cluster: RedisCluster, node: str) -> None:
    """SIGKILL of a master: commands are answered in time, and when its replica has taken over, everything goes on."""
    core, door = await make_core()
    await core.ask(Declare(node, ALICE, {}))
    await core.ask(Subscribe(node, W1, W1, 1))
    await core.ask(item(node, "before"))
    master = redis_cluster.owner(await slot_of(core, node))
    redis_cluster.wait_for_replica(master)
    master.kill()
    loop = asyncio.get_running_loop()
    began, longest, answer = loop.time(), 0.0, None
    while not isinstance(answer, Published) and loop.time() < began + 15:
        asked = loop.time()
        answer = await core.ask(item(node))
        longest = max(longest, loop.time() - asked)
        await asyncio.sleep(0.05)
    assert isinstance(answer, Published) and longest < 10
    (first,) = door.deliveries
    assert isinstance(await core.ask(Retract(node, W1, "before", first.token)), Retracted)
    await door.until(lambda: len(door.deliveries) == 2)
    master.start()
    await away(redis_cluster.wait_until_well)


async def test_overdue_at_a_promoted_replica(
    make_core: MakeCore, redis_cluster: RedisCluster, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guarantee 4: what a promoted replica has overdue is found, though the list of due partitions is on another master."""
    monkeypatch.setattr(sweeper, "SCAN_EVERY", 1_000_000)
    service = redis_cluster.owner(slot_of_line(("GET", keys.of_service("due"))))
    owner = next(each for each in redis_cluster.masters() if each is not service)
    core, door = await make_core()
    busy = await declared_at(core, redis_cluster, owner)
    other, sent = await make_core()
    idle = await declared_at(other, redis_cluster, owner)
    assert (
        await other.ask(Configure(idle, ALICE, {"stanzaq#lock_seconds": ("2",), "stanzaq#max_deliveries": ("0",)}))
        == Done()
    )
    await other.ask(Subscribe(idle, W1, W1, 1))
    await other.ask(item(idle, "late"))
    await sent.until(lambda: len(sent.deliveries) == 1)
    await other.drain(PATIENCE_SECONDS)
    await other.stop()
    async with store.client() as client:
        # Somebody has swept the partition, and the master has lost that sweep.
        (partition,) = await core._store.partitions([idle])
        assert await client.zrem(keys.of_service("due"), str(partition)) == 1
    await away(redis_cluster.wait_for_replica, owner)
    owner.kill()
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not isinstance(await core.ask(item(busy)), Published):  # noqa: ASYNC110  (Redis tells nobody)
                await asyncio.sleep(0.05)
        await door.until(lambda: [each.item_id for each in door.deliveries] == ["late"])
    finally:
        owner.start()
        await away(redis_cluster.wait_until_well)


async def test_too_few_replicas(make_core: MakeCore, redis_cluster: RedisCluster) -> None:
    """Q26: a master with fewer replicas than required refuses, which is answered `wait`, until it has them."""
    core, _ = await make_core(redis_timeout=1.0)
    owner = next(iter(redis_cluster.masters()))
    name = await declared_at(core, redis_cluster, owner)
    redis_cluster.ask(owner, "CONFIG SET", "min-replicas-to-write", 2)
    try:
        refused = await core.ask(item(name))
        assert isinstance(refused, Refused) and refused.problem is Problem.UNAVAILABLE
        assert "NOREPLICAS" in refused.detail
    finally:
        redis_cluster.ask(owner, "CONFIG SET", "min-replicas-to-write", 0)
    assert isinstance(await core.ask(item(name)), Published)
    counted = await core.ask(Stats(name, ALICE))
    assert isinstance(counted, Counted) and counted.waiting == 1


@pytest.mark.parametrize("loss", ["silent", "losing"])
async def test_a_lost_reply(
    make_core: MakeCore, redis_cluster: RedisCluster, loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script whose reply is lost ran once, whatever redirections and repeats commands that did not run get."""
    owner = next(iter(redis_cluster.masters()))

    def reached(node: list[Any], _asked: str) -> Address:
        return Address("127.0.0.1", network.port if node[1] == owner.port else node[1])

    async with LossyNetwork(str(owner.socket)) as network:
        monkeypatch.setattr(cluster, "read_node", reached)
        core, door = await make_core(redis_timeout=1.0)
        name = await declared_at(core, redis_cluster, owner)
        await core.ask(Subscribe(name, W1, W1, 10))
        await core.ask(item(name, "first"))
        await lose_reply(core, network, name, item(name, "unanswered"), about="unanswered", loss=loss)
        assert isinstance(await core.ask(item(name, "last")), Published)
        await door.until(lambda: {d.item_id for d in door.deliveries} == {"first", "unanswered", "last"})
        counted = await core.ask(Stats(name, ALICE))
        assert isinstance(counted, Counted) and (counted.waiting, counted.in_flight) == (0, 3)


async def declared_at(core: RedisCore, nodes: RedisCluster, owner: RedisServer, **options: str) -> str:
    """Make a node whose partition lives on a certain master."""
    fields = {f"pubsub#{name}": (value,) for name, value in options.items()} or {"stanzaq#max_deliveries": ("1",)}
    while True:
        name = f"jobs-{secrets.token_hex(4)}"
        assert await core.ask(Declare(name, ALICE, fields)) == Declared(name)
        if nodes.owner(await slot_of(core, name)) is owner:
            return name


@pytest.mark.parametrize("away_with", ["queue", "collection"])
async def test_below_a_collection(make_core: MakeCore, redis_cluster: RedisCluster, away_with: str) -> None:
    """While the master of a queue, or of a collection, is away, all others go on; later it does, and all credit is free."""
    core, door = await make_core()
    service = redis_cluster.owner(slot_of_line(("GET", keys.of_service("due"))))
    victim = next(each for each in redis_cluster.masters() if each is not service)
    on = {"queue": service, "collection": service} | {away_with: victim}
    top = await declared_at(core, redis_cluster, on["collection"], node_type="collection")
    far = await declared_at(core, redis_cluster, on["queue"], collection=top)
    near = await declared_at(core, redis_cluster, service, collection=top)
    await core.ask(Subscribe(top, W1, W1, 2, scope=Scope(SubscriptionType.ITEMS, None)))
    await core.ask(Subscribe(near, W2, W2, 1))
    await core.ask(item(far, "held"))
    await door.until(lambda: len(door.deliveries) == 1)
    done: Counter[Jid] = Counter()

    async def work(upto: int) -> None:
        """Let everybody finish until so many are done."""
        for number in range(upto):
            await core.ask(item(near, f"{upto}-{number}"))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while done.total() < upto:
                for each in [each for each in door.deliveries if each.item_id != "held"]:
                    door.deliveries.remove(each)
                    assert isinstance(
                        await core.ask(Retract(near, each.subscriber, each.item_id, each.token)), Retracted
                    )
                    done[each.subscriber] += 1
                await asyncio.sleep(0.005)

    await work(20)
    done.clear()
    await away(redis_cluster.wait_for_replica, victim)
    victim.kill()
    try:
        await work(40)
        # The credit that is held far away counts, and no other does.
        assert done[W2] and (done[W1] or away_with == "collection")
        (held,) = [each for each in door.deliveries if each.item_id == "held"]
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not isinstance(await core.ask(Retract(far, W1, "held", held.token)), Retracted):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            while not (isinstance(counted := await core.ask(Stats(top, ALICE)), Counted) and counted.credit_free == 2):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        await core.ask(Unsubscribe(near, W2, W2, ""))
        done.clear()
        await work(10)
        assert done[W1] == 10
    finally:
        victim.start()
        await away(redis_cluster.wait_until_well)


@pytest.fixture
def dead_seeds() -> Iterator[list[int]]:
    """Return ports where nobody listens, and one where somebody listens and never answers."""
    with socket.socket() as closed, socket.socket() as mute:
        closed.bind(("127.0.0.1", 0))
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        yield [closed.getsockname()[1], mute.getsockname()[1]]


async def test_dead_seeds(make_core: MakeCore, redis_cluster: RedisCluster, dead_seeds: list[int], node: str) -> None:
    """One live node of those that a URL names is enough."""
    ports = [*dead_seeds, redis_cluster.nodes[4].port]
    url = "redis+cluster://" + ",".join(f"127.0.0.1:{port}" for port in ports)
    async with asyncio.timeout(20):
        core, _ = await make_core(url, redis_timeout=60.0)
        assert await core.ask(Declare(node, ALICE, {})) == Declared(node)


@pytest.fixture(params=["hostname", "unknown-endpoint"])
def nameless(redis_cluster: RedisCluster, make_core: MakeCore, request: pytest.FixtureRequest) -> Iterator[MakeCore]:
    """Have the nodes prefer a name that they lack, so that they name `?` or nothing."""
    for kind in (request.param, "ip"):
        for each in redis_cluster.nodes:
            redis_cluster.ask(each, "CONFIG", "SET", "cluster-preferred-endpoint-type", kind)
        if kind != "ip":
            yield make_core


async def test_nodes_without_names(nameless: MakeCore, redis_cluster: RedisCluster, node: str) -> None:
    """Masters that have no host name are found by the address beside it, or by the one that was asked, also after MOVED."""
    core, _ = await nameless()
    for each in redis_cluster.masters():
        await declared_at(core, redis_cluster, each)
    masters = {("127.0.0.1", each.port) for each in redis_cluster.masters()}
    assert {(each.host, each.port) for each in Servers(redis_cluster.url).processes()} == masters
    assert await core.ask(Declare(node, ALICE, {})) == Declared(node)
    slot = slot_of_line(("GET", keys.of_node("node", node)))
    owner = redis_cluster.owner(slot)
    for target in (next(each for each in redis_cluster.masters() if each is not owner), owner):
        await away(redis_cluster.move, slot, target)
        assert isinstance(await core.ask(Describe(node, ALICE, as_owner=True)), Described)


async def test_no_cluster(store: Store) -> None:
    """A server that is no cluster is not taken for one."""
    with RedisServer(port=0) as single:
        server = Server.connect(f"redis+cluster://127.0.0.1:{single.port}", lua_directory(), 0.2)
        with pytest.raises(CoreUnavailable, match="no Redis serves"):
            await server.command("GET", "x")
        await server.close()


async def test_forgotten_by_one(make_core: MakeCore, redis_cluster: RedisCluster) -> None:
    """A library that one master has lost is loaded there alone, with the one for redis-cli."""
    core, _ = await make_core()
    # Nothing else runs functions on this master.
    names = (keys.of_service("frontends"), keys.of_qos("prepared"))
    busy = [redis_cluster.owner(slot_of_line(("GET", name))) for name in names]
    other = next(each for each in redis_cluster.masters() if each not in busy)
    forgetful = next(each for each in redis_cluster.masters() if each is not other)
    nodes = [await declared_at(core, redis_cluster, each) for each in (forgetful, other)]
    # The frontend notes that it serves this one, perhaps on the other master.
    await core.ask(item(nodes[0]))
    for each in (forgetful, other):
        redis_cluster.ask(each, "FUNCTION FLUSH")
    assert isinstance(await core.ask(item(nodes[0])), Published)
    assert [len(redis_cluster.ask(each, "FUNCTION LIST")) for each in (forgetful, other)] == [2, 0]


@pytest.mark.parametrize("name", ["jobs", "a{b}c", "{}", "}{", "a b", "ü%7B", "x" * 200])
async def test_one_slot(redis_cluster: RedisCluster, store: Store, name: str) -> None:
    """Whatever a node's name, all keys of one holder are in one slot, the one that Redis computes."""
    ask, node = redis_cluster.ask, redis_cluster.nodes[0]
    for keys_of in (partial(keys.of_partition, partition=Partition(name, "i")), partial(keys.of_node, node=name)):
        slots = {ask(node, "CLUSTER KEYSLOT", keys_of(key)) for key in ("meta", "log")}
        assert slots == {slot_of_line(("GET", keys_of("meta")))}


async def test_outbox_with_a_master_away(make_core: MakeCore, redis_cluster: RedisCluster) -> None:
    """Issue 51: while the master of one target is away, what goes elsewhere arrives; later all does, and each once."""
    core, _ = await make_core()
    service = redis_cluster.owner(slot_of_line(("GET", keys.of_service("due"))))
    victim = next(each for each in redis_cluster.masters() if each is not service)
    source, near = [await declared_at(core, redis_cluster, service) for _ in range(2)]
    far = await declared_at(core, redis_cluster, victim)
    stuck, free = [f"s{number}" for number in range(2_000)], [f"f{number}" for number in range(100)]
    for first in range(0, len(stuck), 500):
        await asyncio.gather(*(core.ask(item(source, name)) for name in stuck[first : first + 500]))

    async def move(names: list[str], to: str) -> None:
        moved = await core.ask(MoveItems(source, ALICE, to, tuple(names), "", 200))
        assert isinstance(moved, MovedItems) and moved.count == len(names)

    async def arrive(count: int, where: str) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (isinstance(found := await core.ask(Stats(where, ALICE)), Counted) and found.waiting == count):  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    await away(redis_cluster.wait_for_replica, victim)
    victim.kill()
    try:
        for first in range(0, len(stuck), 200):
            await move(stuck[first : first + 200], far)
        await asyncio.gather(*(core.ask(item(source, name)) for name in free))
        await move(free, near)
        await arrive(len(free), near)
    finally:
        victim.start()
        await away(redis_cluster.wait_until_well)
    record = await core._store.read(source)
    assert record
    due = keys.of_partition("outbox", record.partition(0))
    while entries := redis_cluster.ask(service, "ZRANGE", due, 0, -1):
        for entry in entries:
            redis_cluster.ask(service, "ZADD", due, "XX", 1, entry)
        core.router(source).pipeline().sweep()
        await asyncio.sleep(0.5)
    await arrive(len(stuck), far)
    found = [await core.ask(Stats(name, ALICE)) for name in (source, near, far)]
    assert [(each.waiting, each.dying) for each in found if isinstance(each, Counted)] == [(0, 0), (100, 0), (2_000, 0)]


async def test_outbox_with_crashes_and_a_master_away(
    make_core: MakeCore, store: Store, redis_cluster: RedisCluster, node: str
) -> None:
    """Issue 51: entries of all kinds, frontends that die, and the master of their target away: all once, nothing left."""
    chance = Random(5)
    two, door = await make_core(redis_timeout=1.0)
    service = redis_cluster.owner(slot_of_line(("GET", keys.of_service("due"))))
    while True:
        play = Play(store, f"{node}-{chance.random()}", [door])
        await play.begin(two)
        names = (play.node, f"{play.node}-2", f"{play.node}/dead")
        here, there, victim = [redis_cluster.owner(await slot_of(two, name)) for name in names]
        if victim not in {here, there, service}:
            break
    acts = [(kind, f"{number}") for number, kind in enumerate(KINDS * 3)]
    for kind, tag in acts:
        await play.prepare(two, kind, tag)
    chance.shuffle(acts)
    all_acts = tuple(acts)
    await away(redis_cluster.wait_for_replica, victim)
    victim.kill()
    try:
        while acts:
            one, other = await make_core(redis_timeout=1.0)
            play.doors.append(other)
            with pytest.MonkeyPatch.context() as patch:
                life = Life(one, patch, chance.randint(1, 15), executed=chance.random() < 0.5)
                while acts and not life.dead.is_set():
                    kind, tag = acts.pop()
                    await life.act(play.acts[kind](one, tag), rests=False)
                await life.end()
    finally:
        victim.start()
        await away(redis_cluster.wait_until_well)
    await play.repeat(two, all_acts)
    await play.finish(two)
