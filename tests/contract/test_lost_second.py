"""Nodes after Redis has lost its last second: of everything, of the record alone, or of partitions alone."""

# ruff: noqa: ANN401  (clients of Redis have no one type)

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio as aioredis

from broker import keys
from broker.model.commands import (
    Affiliate,
    Command,
    Configure,
    Declare,
    Delete,
    Describe,
    Publish,
    Retract,
    Stats,
    Subscribe,
    Unlock,
)
from broker.model.items.items import Delivery
from broker.model.names import Jid
from broker.model.nodes.nodes import NodeRecord
from broker.model.nodes.tree import Scope, SubscriptionType
from broker.model.results import Counted, Declared, Described, Done, Published
from broker.redis_core.commands.internal import GONE
from broker.redis_core.core import RedisCore
from broker.redis_core.maintenance import heartbeat, sweeper
from frontends.tools.servers.redis import RedisServer
from tests.contract.conftest import MakeCore, Store
from tests.waiting import PATIENCE_SECONDS

ALICE = Jid("alice@x/home")
W1 = Jid("w1@x/a")


async def until(holds: Callable[[], object]) -> None:
    """Wait until this is true."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not holds():  # noqa: ASYNC110  (several doors and heartbeats, of which none tells of all)
            await asyncio.sleep(0.02)


@asynccontextmanager
async def losing(server: RedisServer, *cores: RedisCore) -> AsyncIterator[None]:
    """Let a server lose what is written in the block: it is killed, and comes back as it was before."""
    async with aioredis.Redis.from_url(server.url) as client:
        await client.save()
    yield
    server.kill()
    server.start()
    await until(lambda: not any(core.healthy() for core in cores))


async def test_no_token_twice(make_core: MakeCore, node: str, tmp_path: Path) -> None:
    """Guarantee 10: tokens given after the loss differ from those given in it, and all credit is usable again."""
    with RedisServer(tmp_path / "redis") as server:
        (core, door), (other, beyond) = await make_core(server.url), await make_core(server.url)
        await core.ask(Declare(node, ALICE, {}))
        await core.ask(Subscribe(node, W1, W1, 1))

        async def work(*amounts: int) -> list[Delivery]:
            """Change a worker's credit, and release what it got once; return what it was handed."""
            had = len(door.deliveries), len(beyond.deliveries)

            def handed() -> list[Delivery]:
                return [*door.deliveries[had[0] :], *beyond.deliveries[had[1] :]]

            for credit in amounts:
                await core.ask(Subscribe(node, W1, W1, credit))
            for count in range(12):
                asked = Publish(node, ALICE, f"i{count}", b"payload", 7)
                assert isinstance(await core.ask(asked), Published)
            await until(lambda: len(handed()) >= amounts[-1])
            for delivery in handed():
                await core.ask(Unlock(node, W1, delivery.item_id, delivery.token))
            await until(lambda: len(handed()) >= 2 * amounts[-1])
            return handed()

        async with losing(server, core, other):
            lost = await work(2, 3, 4, 5)
        found = await work(5)
        assert max(each.token for each in lost) < min(each.token for each in found)
        await core.stop()
        await other.stop()


_READ = """
local found = {}
for _, name in ipairs(redis.call('KEYS', ARGV[1])) do
  found[#found + 1] = name
  found[#found + 1] = redis.call('DUMP', name)
end
return found
"""

_RESTORE = """
for _, name in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('DEL', name) end
for i, name in ipairs(KEYS) do redis.call('RESTORE', name, 0, ARGV[i + 1]) end
"""


class Past:
    """The earlier keys of one hash tag, to be restored: what another master has lost alone.

    All keys are read at once, and lost at once: no master has one key from before a call and another from after it.
    """

    def __init__(self, client: Any, tag: str) -> None:
        """Keep the keys of the tag."""
        self._client, self._names = client, f"sq:{{{keys.escape(tag)}}}:*"
        self._kept: dict[bytes, bytes] = {}

    async def keep(self) -> "Past":
        """Take them as they are now."""
        found = await self._client.eval(_READ, 0, self._names)
        self._kept = dict(zip(found[::2], found[1::2], strict=True))
        return self

    async def lose(self) -> None:
        """Lose what has been written since."""
        await self._client.eval(_RESTORE, len(self._kept), *self._kept, self._names, *self._kept.values())


async def described(core: RedisCore, node: str) -> NodeRecord:
    """Read a node's record."""
    found = await core.ask(Describe(node, ALICE, as_owner=True))
    assert isinstance(found, Described)
    return found.record


async def served(cores: Sequence[RedisCore], node: str, name: str) -> NodeRecord:
    """Check that all cores serve a node in all of its partitions by the same record; return it."""
    for core in cores:
        left = range(2)
        while left:
            for number in left:
                asked = Publish(node, ALICE, f"{name}-{number}", b"x", 1, partition=number)
                assert isinstance(await core.ask(asked), Published)
            left = range(left.stop, (await described(core, node)).config.partitions)
        assert isinstance(await core.ask(Stats(node, ALICE)), Counted)
    first, *others = [await described(core, node) for core in cores]
    assert all(other == first for other in others)
    return first


async def revisions(client: Any, record: NodeRecord) -> tuple[set[bytes], set[bytes]]:
    """Return the revisions and the lock times of the partitions."""
    found = [
        await client.hmget(keys.of_partition("meta", partition), "revision", "lock_ms")
        for partition in record.partitions
    ]
    return {each[0] for each in found}, {each[1] for each in found}


CHANGES: Sequence[Command] = [
    Configure("", ALICE, {"stanzaq#lock_seconds": ("7",)}),
    Affiliate("", ALICE, {Jid("bob@x"): "owner"}),
]


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("lost", ["record", "one", "others", "record and one", "record and one and others"])
@pytest.mark.parametrize("change", CHANGES, ids=["configure", "affiliate"])
async def test_record_and_partitions_of_different_ages(
    make_core: MakeCore, store: Store, node: str, change: Any, lost: str, *, again: bool
) -> None:
    """Whichever side has lost a change, all are served by the record that is left; partitions stay (guarantee 1)."""
    (core, _), (other, _) = await make_core(), await make_core()
    await core.ask(Declare(node, ALICE, {"stanzaq#partitions": ("2",)}))
    await served((core, other), node, "before")
    async with store.client() as client:
        record = await described(core, node)
        tags = {"record": [node], "one": [str(record.partition(0))], "others": [str(record.partition(1))]}
        pasts = [await Past(client, tag).keep() for part in lost.split(" and ") for tag in tags[part]]
        assert await core.ask(replace(change, node=node)) == Done()
        await served((core, other), node, "between")
        for past in pasts:
            await past.lose()
        if again:
            assert await other.ask(Configure(node, ALICE, {"stanzaq#lock_seconds": ("9",)})) == Done()
        # One core that knows nothing, and those that know of the lost change.
        fresh, _ = await make_core()
        left = await served((fresh, core, other), node, "after")
        assert left.config.partitions == 2
        in_force, lock_ms = await revisions(client, left)
        assert in_force == {str(left.revision).encode()}
        assert lock_ms == {str(left.config.lock_seconds * 1000).encode()}
        assert left.config.lock_seconds == 9 or not again


async def test_deletions_and_lives(
    make_core: MakeCore, store: Store, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restored record goes if its partitions are deleted; lost partitions begin anew, with later tokens."""
    monkeypatch.setattr(sweeper, "SCAN_EVERY", 1)
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 0.03)
    (core, first), (other, second) = await make_core(), await make_core()
    await core.ask(Declare(node, ALICE, {"stanzaq#partitions": ("2",)}))
    await served((core, other), node, "before")
    async with store.client() as client:
        record = await described(core, node)
        was = await Past(client, node).keep()
        # The deletion is lost where the record is.
        assert await core.ask(Delete(node, ALICE)) == Done()
        await was.lose()
        assert await other.ask(Publish(node, ALICE, "a", b"x", 1)) == GONE
        assert isinstance(await core.ask(Declare(node, ALICE, {"stanzaq#partitions": ("2",)})), Declared)
        again = await served((core, other), node, "again")
        assert again.incarnation != record.incarnation
        # The record of the earlier incarnation is back: frontends find theirs gone, and another takes the name.
        await was.lose()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await other.ask(Publish(node, ALICE, "a", b"x", 1)) != GONE:  # noqa: ASYNC110  (a look in passing)
                await asyncio.sleep(0.02)
        assert isinstance(await core.ask(Declare(node, ALICE, {"stanzaq#partitions": ("2",)})), Declared)
        record = await served((core, other), node, "third")
        # The partitions are lost altogether.
        await other.ask(Subscribe(node, W1, W1, 2, group="g"))
        await other.ask(Publish(node, ALICE, "held", b"x", 1, partition=1))
        await until(lambda: first.deliveries + second.deliveries)
        last = max(each.token for each in first.deliveries + second.deliveries)
        for partition in record.partitions:
            await Past(client, str(partition)).lose()
        await served((core, other), node, "fourth")
        await other.ask(Subscribe(node, W1, W1, 2, group="g"))
        await until(lambda: any(each.token > last for each in first.deliveries + second.deliveries))


async def test_the_list_of_names(make_core: MakeCore, store: Store, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that is missing in the list of nodes is added again: else nobody would sweep it."""
    monkeypatch.setattr(sweeper, "SCAN_EVERY", 1)
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 0.03)
    core, _ = await make_core()
    await core.ask(Declare(node, ALICE, {}))
    await core.ask(Publish(node, ALICE, "a", b"x", 1))
    async with store.client() as client:
        since = await client.zscore(keys.of_service("all_nodes"), node)
        await client.zrem(keys.of_service("all_nodes"), node)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while abs((await client.zscore(keys.of_service("all_nodes"), node) or 0) - since) > 1_000:  # noqa: ASYNC110
                await asyncio.sleep(0.02)


@pytest.mark.parametrize("loser", ["collection", "queue"])
async def test_below_a_collection(make_core: MakeCore, store: Store, node: str, loser: str) -> None:
    """What a collection, or a queue below it, has lost alone: nothing waits for it, and in the end all credit is free.

    A collection may exceed its credit by what it lent in the lost second, until those locks end.
    """
    core, door = await make_core()
    top = f"{node}-all"
    await core.ask(Declare(top, ALICE, {"pubsub#node_type": ("collection",)}))
    await core.ask(Declare(node, ALICE, {"pubsub#collection": (top,)}))
    await core.ask(Subscribe(top, W1, W1, 2, scope=Scope(SubscriptionType.ITEMS, None)))
    record = await described(core, top if loser == "collection" else node)
    async with store.client() as client:
        past = await Past(client, str(record.partition(0))).keep()
        for number in range(2):
            await core.ask(Publish(node, ALICE, f"lost-{number}", b"x", 1))
        await door.until(lambda: len(door.deliveries) == 2)
        await past.lose()
    for number in range(6):
        assert isinstance(await core.ask(Publish(node, ALICE, f"i{number}", b"x", 1)), Published)
    done: set[str] = set()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(done) < 6 or await free(core, top) != 2:
            counted = await core.ask(Stats(node, ALICE))
            assert isinstance(counted, Counted) and counted.in_flight <= (4 if loser == "collection" else 2)
            for each in door.deliveries:
                await core.ask(Retract(node, W1, each.item_id, each.token))
            done |= {each.item_id for each in door.deliveries if each.item_id[0] == "i"}
            await asyncio.sleep(0.02)


async def free(core: RedisCore, node: str) -> int:
    """Return the free credit of a node."""
    counted = await core.ask(Stats(node, ALICE))
    assert isinstance(counted, Counted)
    return counted.credit_free
