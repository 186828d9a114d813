"""Nodes of several partitions over a real server: where items go, and who may work on them."""

import asyncio

from broker import codec
from broker.model.commands import (
    Browse,
    Configure,
    Declare,
    ListRequests,
    ManageSubscribers,
    Publish,
    Purge,
    Receive,
    Renew,
    Retract,
    Stats,
    Subscribe,
    Unlock,
    Unsubscribe,
)
from broker.model.items.items import Envelope
from broker.model.items.qos import Qos
from broker.model.names import Jid
from broker.model.nodes.subscriptions import Change, State
from broker.model.nodes.tree import Scope, SubscriptionType
from broker.model.problems import Problem
from broker.model.results import (
    Browsed,
    Counted,
    Declared,
    Done,
    Managed,
    Published,
    Purged,
    Received,
    Refused,
    Renewed,
    Retracted,
    Subscribed,
    SubscriptionList,
    Unlocked,
    Unsubscribed,
)
from broker.redis_core.core import RedisCore
from broker.redis_core.operations.operation import subid
from broker.redis_core.registry.partitioner import choose_by_hash
from tests.contract.conftest import Door
from tests.waiting import PATIENCE_SECONDS

ALICE, BOB = Jid("alice@x/home"), Jid("bob@x/desk")
W1, W2 = Jid("w1@x/a"), Jid("w2@x/b")


def item(node: str, item_id: str | None = None, partition: int | None = None, key: str = "") -> Publish:
    """Publish an item."""
    return Publish(node, ALICE, item_id, codec.pack(Envelope(b"<x/>")), 4, partition=partition, key=key)


async def declared(core: RedisCore, node: str, partitions: int, **options: str) -> None:
    """Create a node of so many partitions."""
    fields = {f"stanzaq#{name}": (value,) for name, value in options.items()}
    assert await core.ask(Declare(node, ALICE, {"stanzaq#partitions": (str(partitions),), **fields})) == Declared(node)


async def stats(core: RedisCore, node: str) -> Counted:
    """Count what a node holds."""
    counted = await core.ask(Stats(node, ALICE))
    assert isinstance(counted, Counted)
    return counted


async def test_where_items_go(core: RedisCore, door: Door, node: str) -> None:
    """E6, E8, E14: items go to the named partition, else by the group key; an unknown partition is refused (E7)."""
    await declared(core, node, 4)
    assert isinstance(await core.ask(item(node, "named", partition=3, key="k")), Published)
    for number in range(3):
        assert isinstance(await core.ask(item(node, f"keyed-{number}", key="k")), Published)
    refused = await core.ask(item(node, "nowhere", partition=4))
    assert isinstance(refused, Refused) and refused.problem is Problem.PARTITION_NOT_FOUND
    await core.ask(Subscribe(node, W1, W1, 12, group="g"))
    await door.until(lambda: len(door.deliveries) == 4)
    where = {delivery.item_id: delivery.partition.number for delivery in door.deliveries}
    assert where == {"named": 3, **{f"keyed-{number}": choose_by_hash("k", 4) for number in range(3)}}
    assert {delivery.key for delivery in door.deliveries} == {"k"}


async def test_ids_say_where(core: RedisCore, door: Door, node: str) -> None:
    """An id that the service made names its partition; any other is found wherever its key has put its item."""
    await declared(core, node, 8)
    await core.ask(Subscribe(node, W1, W1, 100, group="g"))
    for number in range(8):
        made = await core.ask(item(node, partition=number))
        assert isinstance(made, Published) and made.item_id.startswith(f"{number}-")
        assert isinstance(await core.ask(item(node, f"mine-{number}", key=f"key-{number}")), Published)
    await door.until(lambda: len(door.deliveries) == 16)
    for delivery in door.deliveries:
        assert isinstance(await core.ask(Renew(node, W1, delivery.item_id, delivery.token)), Renewed)
        stranger = await core.ask(Retract(node, W2, delivery.item_id))
        assert isinstance(stranger, Refused) and stranger.problem is Problem.FORBIDDEN
    first, second, *rest = door.deliveries
    assert await core.ask(Unlock(node, W1, first.item_id, delay_ms=60_000)) == Unlocked(W1)
    assert await core.ask(Retract(node, ALICE, first.item_id)) == Retracted(None)
    assert await core.ask(Retract(node, W1, second.item_id, second.token)) == Retracted(W1)
    for delivery in rest:
        assert await core.ask(Retract(node, W1, delivery.item_id)) == Retracted(W1)
    gone = await core.ask(Retract(node, W1, "mine-3"))
    assert isinstance(gone, Refused) and gone.problem is Problem.ITEM_NOT_FOUND


async def test_the_whole_node(core: RedisCore, node: str) -> None:
    """P21, P25, D2: commands on a node affect all its partitions."""
    await declared(core, node, 3, lock_seconds="30")
    for number in range(9):
        await core.ask(item(node, f"i{number}", partition=number % 3))
        # Between partitions the order of a browse is that of the ms in which items came.
        await asyncio.sleep(0.003)
    browsed = await core.ask(Browse(node, ALICE, (), 4))
    assert (
        isinstance(browsed, Browsed) and [i.item_id for i in browsed.items] == ["i0", "i1", "i2", "i3"] and browsed.more
    )
    named = await core.ask(Browse(node, ALICE, ("i8", "i1", "none"), 5))
    assert isinstance(named, Browsed) and {i.item_id for i in named.items} == {"i8", "i1"}
    assert (await stats(core, node)).waiting == 9
    assert await core.ask(Purge(node, ALICE)) == Purged(9)
    assert (await stats(core, node)).waiting == 0


async def test_chosen_at_creation(core: RedisCore, node: str) -> None:
    """E14: a node keeps the number of partitions that it was created with (not-acceptable), and has neither 0 nor 2,000."""
    await declared(core, node, 2)
    for count in ("0", "2000", "-1", "two"):
        refused = await core.ask(Declare(f"{node}-2", ALICE, {"stanzaq#partitions": (count,)}))
        assert isinstance(refused, Refused) and refused.problem is Problem.NOT_ACCEPTABLE
    for count in ("0", "1", "3", "2000", "-1", "two"):
        refused = await core.ask(Configure(node, ALICE, {"stanzaq#partitions": (count,)}))
        assert isinstance(refused, Refused) and refused.problem is Problem.NOT_ACCEPTABLE
    # A whole form may come back.
    assert await core.ask(Configure(node, ALICE, {"stanzaq#partitions": ("2",)})) == Done()


async def test_not_shared(core: RedisCore, door: Door, node: str) -> None:
    """Several partitions are not shared: a plain subscription is refused, also before an owner is asked; others are made."""
    asked = {"pubsub#access_model": ("authorize",), "stanzaq#partitions": ("3",), "pubsub#collection": (f"{node}-all",)}
    everything = Subscribe(f"{node}-all", W2, W2, 3, scope=Scope(SubscriptionType.ITEMS, None))
    assert isinstance(await core.ask(Declare(f"{node}-all", ALICE, {"pubsub#node_type": ("collection",)})), Declared)
    assert await core.ask(Declare(node, ALICE, asked)) == Declared(node)
    for more in ({}, {"selector": "a = 1"}, {"qos": Qos.ASSURED}):
        refused = await core.ask(Subscribe(node, W1, W1, 3, **more))
        assert isinstance(refused, Refused) and refused.problem is Problem.NOT_ACCEPTABLE
        assert "several partitions, which are not shared: name a group or partitions" in refused.detail
    assert await core.ask(ListRequests(node, ALICE)) == SubscriptionList(())
    # An owner may admit a member of a group, and adds what may be made.
    waits = await core.ask(Subscribe(node, W1, W1, 3, group="g"))
    assert isinstance(waits, Subscribed) and waits.state is State.PENDING
    assert await core.ask(ManageSubscribers(node, ALICE, (Change(W1, "", "subscribed"),))) == Managed(())
    for number in range(3):
        await core.ask(item(node, partition=number))
    await door.until(lambda: [each.subscriber for each in door.deliveries] == [W1] * 3)
    assert await core.ask(Configure(node, ALICE, {"pubsub#access_model": ("open",)})) == Done()
    # Who takes what nobody owns, from a queue or from a collection above it.
    assert await core.ask(Unsubscribe(node, W1, W1, "", release=True)) == Unsubscribed(W1, subid(W1))
    pulls = await core.ask(Subscribe(node, BOB, BOB, 3, Qos.PULLED))
    found = await core.ask(Receive(node, BOB, BOB))
    assert isinstance(pulls, Subscribed) and isinstance(found, Received) and len(found.items) == 3
    assert isinstance(await core.ask(Unsubscribe(node, BOB, BOB, "", release=True)), Unsubscribed)
    assert isinstance(await core.ask(everything), Subscribed)
    await door.until(lambda: [each.subscriber for each in door.deliveries[3:]] == [W2] * 3)
    # A log has readers.
    log = {"pubsub#queueing": ("0",), "stanzaq#partitions": ("3",)}
    assert isinstance(await core.ask(Declare(f"{node}-log", ALICE, log)), Declared)
    read = await core.ask(Subscribe(f"{node}-log", W1, W1, 3, start="@earliest"))
    assert isinstance(read, Subscribed) and len(read.streams) == 1


async def test_order_within_groups(core: RedisCore, door: Door, node: str) -> None:
    """E14, stanzaq#ordered: over many partitions and members, each group's items are worked on one after another."""
    await declared(core, node, 4, ordered="1")
    for jid in (W1, W2):
        await core.ask(Subscribe(node, jid, jid, 4, group="g"))
    for number in range(60):
        await core.ask(item(node, f"{number:02d}", key=f"group {number % 7}"))
    for finished in range(60):
        await door.until(lambda: len(door.deliveries) > finished)  # noqa: B023
        each = door.deliveries[finished]
        await core.ask(Retract(node, each.subscriber, each.item_id, each.token, partition=each.partition.number))
    done: dict[str, list[str]] = {}
    for delivery in door.deliveries:
        done.setdefault(delivery.key, []).append(delivery.item_id)
    assert len(done) == 7 and all(ids == sorted(ids) for ids in done.values())


async def test_dead_letters_keep_their_group(core: RedisCore, door: Door, node: str) -> None:
    """E14: a dead letter carries its group key to the other node, from whichever partition it came."""
    await declared(core, node, 3)
    await core.ask(Subscribe(node, W1, W1, 3, group="g"))
    for number in range(3):
        await core.ask(item(node, f"i{number}", partition=number, key=f"k{number}"))
    await door.until(lambda: len(door.deliveries) == 3)
    for delivery in list(door.deliveries):
        given = Unlock(node, W1, delivery.item_id, dead_letter=True, partition=delivery.partition.number)
        assert await core.ask(given) == Unlocked(W1)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not isinstance(await core.ask(Subscribe(f"{node}/dead", W2, W2, 3)), Subscribed):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await door.until(lambda: len(door.deliveries) == 6)
    assert {delivery.key for delivery in door.deliveries[3:]} == {"k0", "k1", "k2"}
