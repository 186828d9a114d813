"""One credit for all leaves below a collection: it follows the items, is never exceeded, and is recovered after losses."""

import asyncio
import secrets
from collections import Counter

import pytest
from structlog.testing import capture_logs

from broker import codec, keys
from broker.model.commands import (
    Affiliate,
    Approve,
    Associate,
    Bounce,
    Configure,
    Declare,
    Delete,
    Describe,
    Dissociate,
    Locks,
    Options,
    Presence,
    Publish,
    Retract,
    SetSubscriptionOptions,
    Stats,
    Subscribe,
    Unlock,
    Unsubscribe,
)
from broker.model.items.items import Delivery, Envelope, LockEnded, NodeEvent, TreeEvent
from broker.model.names import Jid
from broker.model.nodes.tree import Scope, SubscriptionType
from broker.model.problems import CoreUnavailable, Problem
from broker.model.results import (
    Counted,
    Declared,
    Described,
    Done,
    HeldLocks,
    Published,
    Refused,
    Retracted,
    Subscribed,
    Unlocked,
    Unsubscribed,
)
from broker.redis_core.core import RedisCore
from broker.redis_core.maintenance import sweeper
from broker.redis_core.operations.operation import subid
from broker.tasks import FAILED
from tests.contract.conftest import SOMEWHERE, Door, MakeCore, Store
from tests.waiting import PATIENCE_SECONDS

ALICE = Jid("alice@x/home")
W1, W2 = Jid("w1@x/a"), Jid("w2@x/b")
ALL = Scope(SubscriptionType.ITEMS, None)


@pytest.fixture
def tag() -> str:
    """Return a text that no other test's names have."""
    return secrets.token_hex(3)


def item(node: str, item_id: str | None = None, partition: int | None = None) -> Publish:
    """Publish an item."""
    return Publish(node, ALICE, item_id, codec.pack(Envelope(b"<x/>")), 4, partition=partition)


async def made(core: RedisCore, name: str, parent: str = "", **options: str) -> str:
    """Create a node; its options are those of stanzaq but for the type."""
    fields = {("pubsub#node_type" if key == "type" else f"stanzaq#{key}"): (value,) for key, value in options.items()}
    assert await core.ask(Declare(name, ALICE, {"pubsub#collection": (parent,), **fields})) == Declared(name)
    return name


async def tree(core: RedisCore, tag: str, *partitions: int) -> tuple[str, list[str]]:
    """Create a collection and leaves below it of so many partitions each."""
    top = await made(core, f"all{tag}", type="collection")
    return top, [await made(core, f"l{n}{tag}", top, partitions=str(count)) for n, count in enumerate(partitions)]


class Worker:
    """Holds its items, over all leaves, and proves that it never held more than its credit."""

    def __init__(self, core: RedisCore, jid: Jid, credit: int) -> None:
        """Hold at most `credit`."""
        self.core, self.jid, self.credit = core, jid, credit
        self.held: dict[tuple[str, int, int], Delivery] = {}
        self.done: Counter[str] = Counter()

    def take(self, delivery: Delivery) -> None:
        """Take a delivery."""
        self.held[delivery.partition.node, delivery.partition.number, delivery.token] = delivery
        assert len(self.held) <= self.credit, "credit exceeded"

    async def finish(self, delivery: Delivery) -> None:
        """Acknowledge, naming the leaf."""
        partition = delivery.partition
        del self.held[partition.node, partition.number, delivery.token]
        asked = Retract(partition.node, self.jid, delivery.item_id, delivery.token, partition=partition.number)
        assert await self.core.ask(asked) == Retracted(self.jid, collection=delivery.collection)
        self.done[partition.node] += 1


@SOMEWHERE
async def test_one_credit(core: RedisCore, door: Door, tag: str) -> None:
    """H6, H7: one worker empties all leaves with one credit; each delivery names its leaf, and the collection beside it."""
    top, leaves = await tree(core, tag, 1, 3, 1)
    for leaf in leaves:
        for _ in range(8):
            assert isinstance(await core.ask(item(leaf)), Published)
    granted = await core.ask(Subscribe(top, W1, W1, 2, scope=ALL))
    assert isinstance(granted, Subscribed) and (granted.credit, granted.scope) == (2, ALL)
    worker, taken = Worker(core, W1, 2), 0
    for finished in range(24):
        await door.until(lambda: len(door.deliveries) > finished)  # noqa: B023
        for delivery in door.deliveries[taken:]:
            assert delivery.collection == top
            worker.take(delivery)
        taken = len(door.deliveries)
        await worker.finish(door.deliveries[finished])
    assert worker.done == Counter(dict.fromkeys(leaves, 8))


async def settled(core: RedisCore, door: Door, worker: Worker, total: int) -> None:
    """Let a worker finish until so many are done."""
    taken = len(door.deliveries) - len(worker.held)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while worker.done.total() < total:
            for delivery in door.deliveries[taken:]:
                worker.take(delivery)
            taken = len(door.deliveries)
            for delivery in list(worker.held.values()):
                await worker.finish(delivery)
            await asyncio.sleep(0.005)


async def test_leaves_come_and_go(core: RedisCore, door: Door, tag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """H7: items of a leaf that joins the tree are handed out.

    Those of one that leaves are given back, and their credit is free.
    """
    # What waited in a leaf before it joined is found by the scan.
    monkeypatch.setattr(sweeper, "SCAN_EVERY", 1)
    top, (leaf,) = await tree(core, tag, 2)
    await core.ask(Subscribe(top, W1, W1, 2, scope=ALL))
    sub = await made(core, f"sub{tag}", top, type="collection")
    loose = await made(core, f"loose{tag}")
    await core.ask(item(loose, "a"))
    await asyncio.sleep(0.1)
    assert not door.deliveries
    assert await core.ask(Associate(sub, ALICE, loose)) == Done()
    await door.until(lambda: len(door.deliveries) == 1)
    (held,) = door.deliveries
    for number in range(4):
        await core.ask(item(leaf, partition=number % 2))
    await door.until(lambda: len(door.deliveries) == 2)
    assert await core.ask(Dissociate(top, ALICE, sub)) == Done()
    late = await core.ask(Retract(loose, W1, held.item_id, held.token))
    assert isinstance(late, Refused) and late.problem is Problem.LOCK_LOST
    await door.until(lambda: len(door.deliveries) == 3)
    assert {delivery.partition.node for delivery in door.deliveries[1:]} == {leaf}
    await core.ask(Subscribe(loose, W2, W2, 1))
    await door.until(lambda: len(door.deliveries) == 4)
    assert (door.deliveries[3].item_id, door.deliveries[3].collection) == ("a", "")


async def test_depth_and_access(core: RedisCore, door: Door, tag: str) -> None:
    """H5: no deeper than requested; a leaf that does not admit the subscriber is skipped from then on."""
    top = await made(core, f"all{tag}", type="collection")
    sub = await made(core, f"sub{tag}", top, type="collection")
    near, far = await made(core, f"near{tag}", top), await made(core, f"far{tag}", sub)
    await core.ask(Subscribe(top, W1, W1, 5, scope=Scope(SubscriptionType.ITEMS, 1)))
    await core.ask(item(far))
    await core.ask(item(near))
    await door.until(lambda: len(door.deliveries) == 1)
    await asyncio.sleep(0.1)
    assert [delivery.partition.node for delivery in door.deliveries] == [near]
    await core.ask(Subscribe(top, W1, W1, 5, scope=ALL))
    await door.until(lambda: len(door.deliveries) == 2)
    await core.ask(Affiliate(near, ALICE, {Jid("w1@x"): "outcast"}))
    gone = await core.ask(Retract(near, W1, door.deliveries[0].item_id))
    assert isinstance(gone, Refused) and gone.problem is Problem.FORBIDDEN
    await core.ask(item(near))
    await core.ask(item(far))
    await door.until(lambda: len(door.deliveries) == 3)
    await asyncio.sleep(0.1)
    assert [delivery.partition.node for delivery in door.deliveries[1:]] == [far, far]
    await core.ask(Affiliate(near, ALICE, {Jid("w1@x"): "none"}))
    await door.until(lambda: len(door.deliveries) == 5)
    assert await core.ask(Configure(near, ALICE, {"pubsub#access_model": ("whitelist",)})) == Done()
    await core.ask(item(near))
    await asyncio.sleep(0.2)
    assert len(door.deliveries) == 5


async def test_a_leaf_that_came_halfway(core: RedisCore, door: Door, tag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarantee 4: a leaf whose frontend died before it told anybody gets workers."""
    top, _ = await tree(core, tag, 1)
    await core.ask(Subscribe(top, W1, W1, 5, scope=ALL))
    with monkeypatch.context() as patch:
        patch.setattr(core._handlers.nodes._tree_events, "apply_above", dies)
        late = await core.ask(Declare(f"late{tag}", ALICE, {"pubsub#collection": (top,)}))
        assert isinstance(late, Refused)
    await core.ask(item(f"late{tag}"))
    await door.until(lambda: len(door.deliveries) == 1)


async def dies(*_: object) -> None:
    """End as a frontend that dies: what follows is never done."""
    raise CoreUnavailable(FAILED.detail)


async def test_several_pools(core: RedisCore, door: Door, tag: str) -> None:
    """H7: a subscription to each of two collections and one to the leaf have a credit each, and a lock each."""
    top = await made(core, f"all{tag}", type="collection")
    sub = await made(core, f"sub{tag}", top, type="collection")
    leaf = await made(core, f"leaf{tag}", sub)
    for node, credit in ((top, 1), (sub, 2), (leaf, 3)):
        granted = await core.ask(Subscribe(node, W1, W1, credit, scope=None if node == leaf else ALL))
        assert isinstance(granted, Subscribed) and granted.credit == credit
    for number in range(9):
        await core.ask(item(leaf, f"i{number}"))
    await door.until(lambda: len(door.deliveries) == 6)
    await asyncio.sleep(0.2)
    assert Counter(delivery.collection for delivery in door.deliveries) == Counter({top: 1, sub: 2, "": 3})
    held = await core.ask(Locks(leaf, W1))
    assert isinstance(held, HeldLocks) and len(held.locks) == 6
    through = next(delivery for delivery in door.deliveries if delivery.collection == top)
    assert await core.ask(Unlock(leaf, W1, through.item_id, through.token, delay_ms=60_000)) == Unlocked(
        W1, collection=top
    )
    again = await core.ask(Retract(leaf, W1, through.item_id, through.token))
    assert isinstance(again, Refused) and again.problem is Problem.LOCK_LOST
    await door.until(lambda: len(door.deliveries) == 7)
    assert isinstance(await core.ask(Unsubscribe(sub, W1, W1, "")), Unsubscribed)
    for delivery in door.deliveries[:6]:
        await core.ask(Retract(leaf, W1, delivery.item_id, delivery.token))
    await door.until(lambda: len(door.deliveries) == 9)
    assert sub not in {delivery.collection for delivery in door.deliveries[7:]}


async def test_going(core: RedisCore, door: Door, tag: str) -> None:
    """Q33, Q34: locks outlive an unsubscribe and count when it comes back; with its presence all of them end, in every leaf."""
    top, leaves = await tree(core, tag, 1, 2)
    await core.ask(Presence(W1, available=True))
    await core.ask(Subscribe(top, W1, W1, 3, scope=ALL))
    for leaf in leaves:
        for _ in range(3):
            await core.ask(item(leaf))
    await door.until(lambda: len(door.deliveries) == 3)
    wrong = await core.ask(Unsubscribe(top, W1, W1, "7"))
    assert isinstance(wrong, Refused) and wrong.problem is Problem.SUBID_INVALID
    assert isinstance(await core.ask(Unsubscribe(top, W1, W1, "")), Unsubscribed)
    again = await core.ask(Unsubscribe(top, W1, W1, ""))
    assert isinstance(again, Refused) and again.problem is Problem.NOT_SUBSCRIBED
    await core.ask(Subscribe(top, W1, W1, 4, scope=ALL))
    await door.until(lambda: len(door.deliveries) == 4)
    await asyncio.sleep(0.2)
    assert len(door.deliveries) == 4
    lowered = await core.ask(SetSubscriptionOptions(top, W1, W1, "", 1))
    assert isinstance(lowered, Subscribed) and (lowered.credit, lowered.scope) == (1, ALL)
    assert await core.ask(Options(top, W1, W1, "")) == lowered
    first, *rest = door.deliveries[:4]
    for delivery in rest:
        assert isinstance(await core.ask(Retract(delivery.partition.node, W1, delivery.item_id)), Retracted)
    await asyncio.sleep(0.7)
    assert len(door.deliveries) == 4
    await core.ask(Retract(first.partition.node, W1, first.item_id))
    await door.until(lambda: len(door.deliveries) == 5)
    await core.ask(Presence(W1, available=False))
    for leaf in leaves:
        await free_of(core, leaf, W1)


async def free_of(core: RedisCore, leaf: str, jid: Jid) -> None:
    """Wait until a JID holds nothing of a leaf."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (held := await core.ask(Locks(leaf, jid))) != HeldLocks(()):
            assert isinstance(held, HeldLocks)
            await asyncio.sleep(0.01)


async def test_collection_deleted(core: RedisCore, door: Door, tag: str) -> None:
    """H7: with a collection its subscriptions and their locks end; its leaves continue."""
    top, (leaf,) = await tree(core, tag, 1)
    await core.ask(Subscribe(top, W1, W1, 1, scope=ALL))
    await core.ask(item(leaf, "a"))
    await door.until(lambda: len(door.deliveries) == 1)
    assert await core.ask(Delete(top, ALICE)) == Done()
    # P24, XEP-0060 §8.4.2: subscribers are notified.
    assert [notice for notice in door.notices if isinstance(notice, NodeEvent)] == [NodeEvent(top, W1, "delete")]
    held = await core.ask(Locks(leaf, W1))
    assert isinstance(held, HeldLocks) and not held.locks
    await core.ask(Subscribe(leaf, W2, W2, 1))
    await door.until(lambda: len(door.deliveries) == 2)
    assert door.deliveries[1].subscriber == W2


def ends(door: Door) -> list[tuple[str, Jid, str, int, str]]:
    """Return the notices of ended locks."""
    told = [notice for notice in door.notices if isinstance(notice, LockEnded)]
    return [(each.node, each.subscriber, each.item_id, each.token, each.collection) for each in told]


@pytest.mark.parametrize("partitions", [1, 3])
async def test_leaf_taken_away(core: RedisCore, door: Door, tag: str, partitions: int) -> None:
    """Q25, Q35, H7: a holder of an item in a leaf that leaves its collection is notified, and told again when it is late."""
    top, (leaf,) = await tree(core, tag, partitions)
    await core.ask(Subscribe(top, W1, W1, 1, scope=ALL))
    await core.ask(item(leaf, "a"))
    await door.until(lambda: len(door.deliveries) == 1)
    token = door.deliveries[0].token
    assert await core.ask(Dissociate(top, ALICE, leaf)) == Done()
    await door.until(lambda: len(ends(door)) == 1)
    assert ends(door) == [(leaf, W1, "a", token, top)]
    for late in (Retract(leaf, W1, "a", token), Unlock(leaf, W1, "a")):
        refused = await core.ask(late)
        assert isinstance(refused, Refused) and refused.problem is Problem.LOCK_LOST


async def test_collection_deleted_under_its_holders(core: RedisCore, door: Door, tag: str) -> None:
    """P24, Q25, Q35: with a collection all locks through it end; each holder is notified, and told again when it is late."""
    top, (leaf,) = await tree(core, tag, 1)
    await core.ask(Subscribe(top, W1, W1, 2, scope=ALL))
    for name in "ab":
        await core.ask(item(leaf, name))
    await door.until(lambda: len(door.deliveries) == 2)
    await core.ask(Delete(top, ALICE))
    assert sorted(ends(door)) == sorted((leaf, W1, sent.item_id, sent.token, top) for sent in door.deliveries)
    refused = await core.ask(Retract(leaf, W1, "a"))
    assert isinstance(refused, Refused) and refused.problem is Problem.LOCK_LOST


async def test_a_deletion_cut_short(core: RedisCore, door: Door, tag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """P24: a deletion that ended after its subscribers had left is finished by the next one: holders are notified."""
    top, (leaf,) = await tree(core, tag, 1)
    await core.ask(Subscribe(top, W1, W1, 2, scope=ALL))
    for name in "ab":
        await core.ask(item(leaf, name))
    await door.until(lambda: len(door.deliveries) == 2)

    async def cut(_record: object) -> None:
        msg = "cut"
        raise CoreUnavailable(msg)

    with monkeypatch.context() as patch:
        patch.setattr(core.router(top).turns, "_look", lambda _looks: asyncio.sleep(0))
        patch.setattr(core._store, "delete", cut)
        assert isinstance(await core.ask(Delete(top, ALICE)), Refused)
    assert not ends(door)
    assert await core.ask(Delete(top, ALICE)) == Done()
    await door.until(lambda: len(ends(door)) == 2)
    held = await core.ask(Locks(leaf, W1))
    assert isinstance(held, HeldLocks) and not held.locks


async def test_nothing_reaches_it(core: RedisCore, door: Door, tag: str) -> None:
    """P30, H7: a subscriber that the collection's deliveries do not reach is unsubscribed from all its leaves."""
    top, (leaf, _other) = await tree(core, tag, 1, 1)
    await core.ask(Subscribe(top, W1, W1, 1, scope=ALL))
    await core.ask(item(leaf, "a"))
    await door.until(lambda: len(door.deliveries) == 1)
    sent = door.deliveries[0]
    assert await core.ask(Bounce(W1, sent.partition, sent.position, sent.token, gone=True)) == Done()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while isinstance(await core.ask(Options(top, W1, W1, "")), Subscribed):  # noqa: ASYNC110  (nothing tells)
            await asyncio.sleep(0.01)
    for node in (top, leaf, _other):
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await counts(core, node)) != (0, 0):  # noqa: ASYNC110  (nothing tells)
                await asyncio.sleep(0.01)


async def counts(core: RedisCore, node: str) -> tuple[int, int]:
    """Count who is subscribed, and what is locked."""
    counted = await core.ask(Stats(node, ALICE))
    assert isinstance(counted, Counted)
    return counted.subscribers, counted.in_flight


async def test_leaf_deleted(core: RedisCore, door: Door, tag: str) -> None:
    """H7: credit used in a deleted leaf is free for the others; a later leaf of its name is another one."""
    top, (one, two) = await tree(core, tag, 1, 1)
    await core.ask(Subscribe(top, W1, W1, 1, scope=ALL))
    await core.ask(item(one))
    await door.until(lambda: len(door.deliveries) == 1)
    await core.ask(item(two))
    await core.ask(Delete(one, ALICE))
    # P24: a holder of one of its items is notified that it is gone.
    assert NodeEvent(one, W1, "delete") in door.notices
    await door.until(lambda: len(door.deliveries) == 2)
    await made(core, one, top)
    await core.ask(item(one))
    await core.ask(Retract(two, W1, door.deliveries[1].item_id))
    await door.until(lambda: len(door.deliveries) == 3)
    assert door.deliveries[2].partition.node == one


async def test_asked_wrongly(core: RedisCore, tag: str) -> None:
    """Q5, H5: consuming needs credit; starts, partitions and groups are for leaves, type and depth for collections."""
    top, (leaf,) = await tree(core, tag, 1)

    async def problem(command: Subscribe) -> Problem:
        refused = await core.ask(command)
        assert isinstance(refused, Refused), refused
        return refused.problem

    assert await problem(Subscribe(top, W1, W1, None, scope=ALL)) is Problem.OPTIONS_REQUIRED
    assert await problem(Subscribe(top, W1, W1, 1, start="@earliest")) is not None
    assert await problem(Subscribe(top, W1, W1, 1, partitions=(0,))) is Problem.OPTIONS_INVALID
    assert await problem(Subscribe(top, W1, W1, 1, group="g")) is Problem.OPTIONS_INVALID
    assert await problem(Subscribe(leaf, W1, W1, 1, scope=ALL)) is Problem.OPTIONS_INVALID


async def test_approved(core: RedisCore, door: Door, tag: str) -> None:
    """P27, H5: a pending subscription is made as requested; a leaf that needs approval itself is skipped."""
    top = await made(core, f"all{tag}", type="collection")
    leaf, closed = await made(core, f"leaf{tag}", top), await made(core, f"closed{tag}", top)
    for node in (top, closed):
        assert await core.ask(Configure(node, ALICE, {"pubsub#access_model": ("authorize",)})) == Done()
    await core.ask(Subscribe(top, W1, W1, 2, scope=ALL))
    await core.ask(item(closed))
    await core.ask(item(leaf))
    assert await core.ask(Approve(top, ALICE, W1, subid(W1), allow=True)) == Done()
    granted = await core.ask(Options(top, W1, W1, ""))
    assert isinstance(granted, Subscribed) and granted.scope == ALL
    await door.until(lambda: len(door.deliveries) == 1)
    await asyncio.sleep(0.2)
    assert [delivery.partition.node for delivery in door.deliveries] == [leaf]


async def test_news_of_nodes(core: RedisCore, door: Door, tag: str) -> None:
    """H5: a subscriber to nodes, or to all, is notified of nodes that come and go, as deep as requested, and gets no items."""
    top = await made(core, f"all{tag}", type="collection")
    sub = await made(core, f"sub{tag}", top, type="collection")
    granted = await core.ask(Subscribe(top, W1, W1, None))
    assert isinstance(granted, Subscribed) and granted.scope == Scope(SubscriptionType.NODES, 1)
    await core.ask(Subscribe(top, W2, W2, 1, scope=Scope(SubscriptionType.ALL, None)))
    deep = await made(core, f"deep{tag}", sub)
    near = await made(core, f"near{tag}", top)
    await core.ask(Associate(sub, ALICE, near))
    await core.ask(Delete(near, ALICE))
    told = [notice for notice in door.notices if isinstance(notice, TreeEvent)]
    assert [notice for notice in told if notice.subscriber == W1] == [
        TreeEvent(top, W1, top, near, came=True),
        TreeEvent(top, W1, top, near, came=False),
    ]
    assert [(each.collection, each.child, each.came) for each in told if each.subscriber == W2] == [
        (sub, deep, True),
        (top, near, True),
        (top, near, False),
        (sub, near, True),
        (sub, near, False),
    ]
    await core.ask(item(deep))
    await door.until(lambda: len(door.deliveries) == 1)
    assert door.deliveries[0].subscriber == W2


async def test_a_lost_word_is_found(core: RedisCore, door: Door, tag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarantee 3: what a dead frontend did not tell a collection is found in seconds, for the collection looks for itself."""
    top, (leaf,) = await tree(core, tag, 1)
    await core.ask(Subscribe(top, W1, W1, 3, scope=ALL))
    await core.ask(item(leaf, "a"))
    await door.until(lambda: len(door.deliveries) == 1)
    await free(core, top, 2)
    lost = asyncio.Event()
    with monkeypatch.context() as patch:
        patch.setattr(core.router(top).turns, "book", lambda _words: lost.set())
        await core.ask(Retract(leaf, W1, "a"))
        await asyncio.wait_for(lost.wait(), PATIENCE_SECONDS)
    await free(core, top, 3)


async def free(core: RedisCore, node: str, credit: int) -> None:
    """Wait until so much credit of a collection is free."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            counted = await core.ask(Stats(node, ALICE))
            assert isinstance(counted, Counted)
            if counted.credit_free == credit:
                return
            await asyncio.sleep(0.01)


async def test_an_unreadable_collection(make_core: MakeCore, store: Store, tag: str) -> None:
    """Guarantee 8: a collection that another version wrote holds up neither the nodes beside it nor those below it."""
    core, _ = await make_core()
    top, (leaf,) = await tree(core, tag, 1)
    bad = await made(core, f"bad{tag}", top, type="collection")
    deep = await made(core, f"deep{tag}", bad)
    for each in (top, bad):
        await core.ask(Subscribe(each, W1, W1, 10, scope=ALL))
    async with store.client() as client:
        await client.hset(keys.of_node("options", bad), "stanzaq#dedupe", "of-another-version")
    await core.stop()
    # Written to a terminal, the tracebacks take longer than Redis may.
    with capture_logs():
        other, door = await make_core()
        for each in (leaf, deep):
            assert isinstance(await other.ask(item(each, each)), Published)
            await door.until(lambda: each in {one.item_id for one in door.deliveries})  # noqa: B023
        assert isinstance(await other.ask(Subscribe(top, W2, W2, 10, scope=ALL)), Subscribed)
        await made(other, f"new{tag}", top)
        described = await other.ask(Describe(deep, ALICE, as_owner=True))
        assert isinstance(described, Described) and described.record.parent == bad
        assert await other.ask(Affiliate(deep, ALICE, {Jid("w3@x"): "member"})) == Done()
        refused = await other.ask(Subscribe(bad, W2, W2, 10, scope=ALL))
        assert isinstance(refused, Refused) and refused.problem is Problem.UNAVAILABLE
        for each in (deep, top):
            assert await other.ask(Delete(each, ALICE)) == Done()
