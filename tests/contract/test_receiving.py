"""Pull subscriptions through whole cores: with and without frontends, on one queue and many."""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest

from broker import codec, keys
from broker.model.commands import (
    Affiliate,
    Complete,
    CompleteAndPublish,
    Configure,
    Declare,
    Delete,
    Describe,
    Publish,
    Receive,
    Retract,
    Stats,
    Subscribe,
    Unlock,
    Unsubscribe,
)
from broker.model.items.items import Delivery, Envelope, SubscriptionChanged
from broker.model.items.qos import Qos
from broker.model.names import Jid
from broker.model.nodes.nodes import Affiliation
from broker.model.nodes.pull_subscriptions import Next, pull_jid
from broker.model.nodes.subscriptions import State, Subscription
from broker.model.nodes.tree import Scope, SubscriptionType
from broker.model.problems import Problem
from broker.model.results import (
    AcknowledgedAndReceived,
    Counted,
    Declared,
    Described,
    Done,
    HeldItem,
    Published,
    Received,
    Refused,
    Result,
    Retracted,
    Subscribed,
    Unlocked,
    Unsubscribed,
)
from broker.redis_core.core import NO_FRONTEND, RedisCore
from broker.redis_core.maintenance import heartbeat
from broker.redis_core.operations.operation import subid
from broker.redis_core.subscriptions import receiving
from broker.settings import CommandSettings
from tests.admitting import ADMITTING
from tests.contract.conftest import SOMEWHERE, Door, MakeCore, Store
from tests.waiting import PATIENCE_SECONDS

ALICE, W1, W2 = Jid("alice@x"), Jid("w1@x/a"), Jid("w2@x/b")

MakeNameless = Callable[[], Awaitable[RedisCore]]


@pytest.fixture
async def make_nameless(store: Store, make_core: MakeCore) -> AsyncIterator[MakeNameless]:
    """Return a function that starts cores that cannot send, as the HTTP door has them."""
    cores: list[RedisCore] = []

    async def make() -> RedisCore:
        core = RedisCore(CommandSettings(**ADMITTING, redis_url=store.url), None)
        await core.start()
        cores.append(core)
        return core

    yield make
    for core in cores:
        await core.stop()


async def declared(core: RedisCore, node: str, **options: str) -> None:
    """Create a node of Alice's."""
    fields = {name.replace("__", "#"): (value,) for name, value in options.items()}
    assert isinstance(await core.ask(Declare(node, ALICE, fields)), Declared)


async def published(core: RedisCore, node: str, count: int) -> None:
    """Publish items."""
    envelope = codec.pack(Envelope(b"<x/>"))
    results = await asyncio.gather(*(core.ask(Publish(node, ALICE, None, envelope, 4)) for _ in range(count)))
    assert all(isinstance(result, Published) for result in results)


async def leased(core: RedisCore, node: str, credit: int, *, lease_ms: int = 60_000, scope: Scope | None = None) -> Jid:
    """Begin a lease of Alice's; return its JID."""
    jid = pull_jid(ALICE, secrets.token_hex(8))
    command = Subscribe(node, ALICE, jid, credit, Qos.PULLED, scope=scope, lease_ms=lease_ms)
    assert isinstance(await core.ask(command), Subscribed)
    return jid


async def received(core: RedisCore, node: str, jid: Jid, wait: float = 0) -> Received:
    """Receive for a lease, and return what it holds."""
    result = await core.ask(Receive(node, ALICE, jid, 60_000, wait))
    assert isinstance(result, Received), result
    return result


async def acknowledge(core: RedisCore, jid: Jid, found: Received) -> None:
    """Acknowledge all that was fetched."""
    commands = [
        Retract(item.partition.node, jid, item.item_id, item.token, partition=item.partition.number)
        for item in found.items
    ]
    assert all(isinstance(result, Retracted) for result in await asyncio.gather(*map(core.ask, commands)))


async def all_worked(core: RedisCore, node: str, jid: Jid, count: int, credit: int) -> Counter[str]:
    """Fetch and acknowledge until so many are done; return how many were of each node."""
    done: Counter[str] = Counter()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while done.total() < count:
            found = await received(core, node, jid, 5)
            assert len(found.items) <= credit
            done.update(item.partition.node for item in found.items)
            await acknowledge(core, jid, found)
    return done


def is_refused(result: Result, problem: Problem) -> bool:
    """Return whether a result is this refusal."""
    return isinstance(result, Refused) and result.problem is problem


@SOMEWHERE
@pytest.mark.parametrize("partitions", ["1", "4"])
async def test_alone(make_nameless: MakeNameless, node: str, partitions: str) -> None:
    """R1, R2, R11, R14, R17: without any frontend items are fetched, within the credit.

    Others get all items of a lease that ends.
    """
    one, two = await make_nameless(), await make_nameless()
    await declared(one, node, stanzaq__partitions=partitions)
    first = await leased(one, node, 5)
    began = time.monotonic()
    waiting = asyncio.create_task(received(two, node, first, 10))
    await asyncio.sleep(0.3)
    await published(one, node, 20)
    assert (await waiting).items and time.monotonic() - began < 10
    # Credit moves to where items are.
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len((held := await received(two, node, first)).items) < 5:  # noqa: ASYNC110  (nobody says so)
            await asyncio.sleep(0.05)
    second = await leased(two, node, 20)
    await acknowledge(two, first, held)
    assert len((await received(one, node, first)).items) <= 5
    # Its owner fetches no more: it ends by itself, soon after its time.
    short = await leased(one, node, 5, lease_ms=1_000)
    assert isinstance(await one.ask(Unsubscribe(node, ALICE, first, "", release=True)), Unsubscribed)
    assert is_refused(await two.ask(Receive(node, ALICE, first)), Problem.LEASE_OVER)
    assert sum((await all_worked(two, node, second, 15, 20)).values()) == 15
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not is_refused(await two.ask(Receive(node, ALICE, short)), Problem.LEASE_OVER):  # noqa: ASYNC110  (the same)
            await asyncio.sleep(0.02)
    counted = await one.ask(Stats(node, ALICE))
    assert isinstance(counted, Counted) and (counted.waiting, counted.in_flight) == (0, 0)


@pytest.mark.parametrize("drained", [True, False])
async def test_stopped_after_a_fetch(
    make_nameless: MakeNameless, store: Store, node: str, monkeypatch: pytest.MonkeyPatch, *, drained: bool
) -> None:
    """Guarantee 4: a process that cannot send reports the deadlines of locks before it stops, as a frontend does."""
    # No heartbeat comes by itself.
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 3_600)
    core = await make_nameless()
    await declared(core, node)
    jid = await leased(core, node, 1)
    await published(core, node, 1)
    assert (await received(core, node, jid)).items
    (partition,) = await core._store.partitions([node])
    if drained:
        await core.drain(PATIENCE_SECONDS)
    await core.stop()
    async with store.client() as client:
        assert await client.zscore(keys.of_service("due"), str(partition)) is not None


async def test_killed_after_a_fetch(
    make_nameless: MakeNameless, store: Store, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guarantee 4: a process that cannot send notes the deadline of a lock at once: it may be killed, and nobody takes over."""
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 3_600)
    core = await make_nameless()
    await declared(core, node)
    jid = await leased(core, node, 2)
    await published(core, node, 1)
    assert (await received(core, node, jid)).items
    (partition,) = await core._store.partitions([node])
    async with store.client() as client, asyncio.timeout(PATIENCE_SECONDS):
        while await client.zscore(keys.of_service("due"), str(partition)) is None:  # noqa: ASYNC110  (nobody says so)
            await asyncio.sleep(0.01)
        assert not await client.exists(keys.of_service("wakeup")), "no frontend need hurry"
        # Until the next heartbeat what is due later need not be noted.
        await client.zrem(keys.of_service("due"), str(partition))
        await published(core, node, 1)
        assert len((await received(core, node, jid)).items) == 2
        assert await client.zscore(keys.of_service("due"), str(partition)) is None


async def test_woken(make_nameless: MakeNameless, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """RX5: a receive that waits is woken by the script that lets an item go out, in its own process or another."""
    one, two = await make_nameless(), await make_nameless()
    await declared(one, node)
    jid = await leased(one, node, 1)
    # Neither needs a look.
    monkeypatch.setattr(receiving, "LOOK_SECONDS", 60.0)
    for publisher in (one, two):
        clock_ms = time.time() * 1000
        waiting = asyncio.create_task(received(one, node, jid, 10))
        await asyncio.sleep(0.2)
        began = time.monotonic()
        await published(publisher, node, 1)
        found = await waiting
        assert found.items and time.monotonic() - began < 10
        # A fetch renews the lease for a minute.
        assert found.until_ms > clock_ms + 60_000 - 1
        await acknowledge(one, jid, found)
    assert (await received(one, node, jid, 0.3)).items == ()


@pytest.mark.parametrize("partitions", ["1", "2"])
async def test_woken_by_its_own_acknowledgement(
    make_nameless: MakeNameless, node: str, monkeypatch: pytest.MonkeyPatch, partitions: str
) -> None:
    """RX5: one that holds its limit, and knows what it holds, gets the next item as soon as it acknowledges one, anywhere."""
    one, two = await make_nameless(), await make_nameless()
    await declared(one, node, stanzaq__partitions=partitions)
    jid = await leased(one, node, 1)
    monkeypatch.setattr(receiving, "LOOK_SECONDS", 60.0)
    await published(one, node, 3)
    found = await received(one, node, jid)
    for other in (one, two):
        after = {item.partition: item.token for item in found.items}
        waiting = asyncio.create_task(one.ask(Receive(node, ALICE, jid, None, 20, after)))
        await asyncio.sleep(0.2)
        began = time.monotonic()
        await acknowledge(other, jid, found)
        result = await waiting
        assert isinstance(result, Received) and len(result.items) == 1 and time.monotonic() - began < 10
        found = result


@pytest.mark.parametrize("partitions", ["1", "2"])
@pytest.mark.parametrize("kind", [Retract, Complete, CompleteAndPublish])
async def test_next(make_nameless: MakeNameless, node: str, partitions: str, kind: type[Retract]) -> None:
    """An acknowledgement that asks for more gets it within the credit, also if it is refused; over several partitions, too."""
    core = await make_nameless()
    await declared(core, node, stanzaq__partitions=partitions)
    jid = await leased(core, node, 2)
    await published(core, node, 6)
    first, second = (await received(core, node, jid)).items
    asked = Next(node, 2, 60_000)

    async def acknowledge_next(item: HeldItem, asked: Next = asked) -> AcknowledgedAndReceived:
        about = node, jid, item.item_id, item.token
        result = await core.ask(kind(*about, partition=item.partition.number, next=asked))
        assert isinstance(result, AcknowledgedAndReceived) and isinstance(result.received, Received)
        return result

    found = await acknowledge_next(first)
    assert isinstance(found.outcome, Retracted) and isinstance(found.received, Received)
    (third,) = found.received.items
    assert third.item_id not in {first.item_id, second.item_id}
    again = await acknowledge_next(first)
    assert is_refused(again.outcome, Problem.ITEM_NOT_FOUND)
    assert isinstance(again.received, Received) and again.received.items == ()
    nothing = await acknowledge_next(second, replace(asked, most=0))
    assert isinstance(nothing.received, Received) and nothing.received.items == ()
    # What was answered is shown again: a lost answer loses nothing.
    assert third in [replace(item, waited_ms=third.waited_ms) for item in (await received(core, node, jid)).items]
    assert core.metrics.tally.counts["acknowledged"] == 2


async def test_next_after_the_lease(make_nameless: MakeNameless, node: str) -> None:
    """What is kept after the end of a lease can be acknowledged, and nothing more is received."""
    core = await make_nameless()
    await declared(core, node)
    jid = await leased(core, node, 1)
    await published(core, node, 2)
    (item,) = (await received(core, node, jid)).items
    assert isinstance(await core.ask(Unsubscribe(node, ALICE, jid, "", release=False)), Unsubscribed)
    asked = Next(node, 2, 60_000)
    result = await core.ask(Retract(node, jid, item.item_id, item.token, partition=0, next=asked))
    assert isinstance(result, AcknowledgedAndReceived) and isinstance(result.outcome, Retracted)
    assert is_refused(result.received, Problem.LEASE_OVER)


async def test_only_what_is_new(make_nameless: MakeNameless, node: str) -> None:
    """RX5: a fetch that knows what it holds waits for newer items."""
    core = await make_nameless()
    await declared(core, node)
    jid = await leased(core, node, 2)
    await published(core, node, 1)
    (item,) = (await received(core, node, jid)).items
    after = {item.partition: item.token}
    waiting = asyncio.create_task(core.ask(Receive(node, ALICE, jid, None, 5, after)))
    await asyncio.sleep(0.2)
    assert not waiting.done()
    await published(core, node, 1)
    result = await waiting
    assert isinstance(result, Received) and [each.token > item.token for each in result.items] == [True]


@pytest.mark.parametrize("number", [0, 1])
async def test_the_next_one_without_waiting(make_nameless: MakeNameless, node: str, number: int) -> None:
    """RX5: after an acknowledgement the next item is returned at once, in whichever partition the two are."""
    core = await make_nameless()
    await declared(core, node, stanzaq__partitions="2")
    jid = await leased(core, node, 1)
    envelope = codec.pack(Envelope(b"<x/>"))
    found = await received(core, node, jid)
    for turn in range(6):
        partition = (number + turn) % 2
        asked = Publish(node, ALICE, None, envelope, 4, partition=partition)
        assert isinstance(await core.ask(asked), Published)
        await acknowledge(core, jid, found)
        found = await received(core, node, jid)
        assert [item.partition.number for item in found.items] == [partition], turn


async def test_mixed(make_core: MakeCore, make_nameless: MakeNameless, node: str) -> None:
    """Q30, Q35, R1: a worker that is sent its items and a lease share a queue, whoever publishes, and items that are released."""
    named, door = await make_core()
    nameless = await make_nameless()
    await declared(nameless, node)
    assert isinstance(await named.ask(Subscribe(node, W1, W1, 2)), Subscribed)
    jid = await leased(nameless, node, 2)
    await published(nameless, node, 8)
    await door.until(lambda: len(door.deliveries) == 2)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len((found := await received(nameless, node, jid)).items) < 2:  # noqa: ASYNC110  (nobody says so)
            await asyncio.sleep(0.05)
    assert {item.item_id for item in found.items}.isdisjoint(each.item_id for each in door.deliveries)
    for each in found.items:
        result = await nameless.ask(Unlock(node, jid, each.item_id, each.token, delay_ms=0))
        assert isinstance(result, Unlocked)
    for sent in list(door.deliveries):
        assert isinstance(await named.ask(Retract(node, W1, sent.item_id, sent.token)), Retracted)
    await door.until(lambda: len(door.deliveries) >= 4)
    # Nobody is notified in the name of a lease; of a worker's subscription that ends later, its owner is.
    assert isinstance(await named.ask(Unsubscribe(node, ALICE, jid, "", release=True)), Unsubscribed)
    short = await leased(nameless, node, 1, lease_ms=100)
    assert isinstance(await named.ask(Subscribe(node, W2, W2, 1, lease_ms=200)), Subscribed)
    await door.until(lambda: bool(door.notices))
    assert is_refused(await nameless.ask(Receive(node, ALICE, short)), Problem.LEASE_OVER)
    ended = SubscriptionChanged(Subscription(node, W2, subid(W2), State.NONE))
    assert door.notices == [ended]


async def test_not_alone_any_more(
    make_core: MakeCore, make_nameless: MakeNameless, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q30, guarantee 4: a process that skipped subscribers because it knew of no frontend reports this when one lives."""

    async def look_nowhere() -> None:
        """Find nothing by the background scan."""

    named, door = await make_core()
    nameless = await make_nameless()
    for core in (named, nameless):
        monkeypatch.setattr(core._sweeper, "_scan_next", look_nowhere)
    await declared(nameless, node)
    assert isinstance(await named.ask(Subscribe(node, W1, W1, 5)), Subscribed)
    # As before the heartbeat that follows the frontend's first.
    nameless.frontend = NO_FRONTEND
    await published(nameless, node, 3)
    await door.until(lambda: len(door.deliveries) == 3)


@pytest.mark.parametrize("partitions", ["1", "4"])
async def test_credit_of_a_link(make_nameless: MakeNameless, node: str, partitions: str) -> None:
    """What a link may hold now is its credit, which the census of a report counts, over several partitions too."""
    core = await make_nameless()
    await declared(core, node, stanzaq__partitions=partitions)
    jid = await leased(core, node, 0)
    for limit in (7, 0):
        assert isinstance(await core.ask(Receive(node, ALICE, jid, 60_000, limit=limit)), Received)
        counted = await core.ask(Stats(node, ALICE))
        assert isinstance(counted, Counted) and counted.credit_free == limit


async def test_collection(make_nameless: MakeNameless, node: str) -> None:
    """R12, guarantee 3: a lease of a collection works on all queues below it, later ones too, with one credit."""
    one, two = await make_nameless(), await make_nameless()
    await declared(one, node, pubsub__node_type="collection")
    for leaf in ("a", "b"):
        await declared(one, f"{node}/{leaf}", pubsub__collection=node)
    jid = await leased(one, node, 3, scope=Scope(SubscriptionType.ITEMS, None))
    for leaf in ("a", "b"):
        await published(one, f"{node}/{leaf}", 10)
    done = await all_worked(two, node, jid, 20, 3)
    assert set(done.values()) == {10}
    await declared(two, f"{node}/c", pubsub__collection=node)
    await published(two, f"{node}/c", 10)
    assert await all_worked(one, node, jid, 10, 3) == {f"{node}/c": 10}
    # It ends everywhere.
    await published(two, f"{node}/c", 3)
    assert (await received(one, node, jid, 5)).items
    assert isinstance(await two.ask(Unsubscribe(node, ALICE, jid, "", release=True)), Unsubscribed)
    await until_given_back(one, f"{node}/c", 3)


async def counts(core: RedisCore, node: str) -> tuple[int, int, int]:
    """Return how many items wait, and how many are held, and how many subscribers there are."""
    counted = await core.ask(Stats(node, ALICE))
    assert isinstance(counted, Counted)
    return counted.waiting, counted.in_flight, counted.subscribers


async def until_given_back(core: RedisCore, node: str, waiting: int) -> None:
    """Wait until nobody holds anything and so many items wait."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await counts(core, node) != (waiting, 0, 0):  # noqa: ASYNC110  (nobody says so)
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("count", [5, 40])
async def test_several_requests_at_once(make_nameless: MakeNameless, node: str, count: int) -> None:
    """R17, guarantee 3: whatever asks for one lease at the same time, they share one credit over all queues."""
    one, two = await make_nameless(), await make_nameless()
    await declared(one, node, pubsub__node_type="collection")
    for leaf in "abc":
        await declared(one, f"{node}/{leaf}", pubsub__collection=node)
        await published(one, f"{node}/{leaf}", count)
    jid, done = await leased(one, node, 5), 0
    async with asyncio.timeout(PATIENCE_SECONDS):
        while done < 3 * count:
            found = await asyncio.gather(*(received(core, node, jid) for core in (one, two) * 3))
            now = await received(one, node, jid)
            held = {(item.partition, item.token) for each in (*found, now) for item in each.items}
            assert len(held) <= 5, held
            await acknowledge(two, jid, now)
            done += len(now.items)
    assert [await counts(one, f"{node}/{leaf}") for leaf in "abc"] == [(0, 0, 0)] * 3


async def test_whose(make_nameless: MakeNameless, node: str) -> None:
    """R18: a lease belongs to its owner and the node's owners; on a queue that needs approval it begins with the approval."""
    core = await make_nameless()
    await declared(core, node)
    bob, eve = Jid("bob@x"), Jid("eve@x")
    theirs = pull_jid(bob, "0" * 16)
    assert isinstance(await core.ask(Subscribe(node, bob, theirs, 1, Qos.PULLED, lease_ms=60_000)), Subscribed)
    assert isinstance(await core.ask(Receive(node, bob, theirs)), Received)
    assert isinstance(await core.ask(Receive(node, ALICE, theirs)), Received)
    assert is_refused(await core.ask(Receive(node, eve, theirs)), Problem.FORBIDDEN)
    assert is_refused(await core.ask(Unsubscribe(node, eve, theirs, "", release=True)), Problem.FORBIDDEN)
    shut = f"{node}/shut"
    await declared(core, shut, pubsub__access_model="authorize")
    asked = Subscribe(shut, bob, theirs, 1, Qos.PULLED, lease_ms=60_000)
    assert is_refused(await core.ask(asked), Problem.APPROVAL_REQUIRED)


class Shift:
    """Workers at doors and leases, all of which take the same time for an item."""

    def __init__(self, node: str, count: int) -> None:
        """Begin a shift of so many items."""
        self.node, self.count = node, count
        self.done: Counter[Jid] = Counter()
        self.most: list[int] = []

    @property
    def over(self) -> bool:
        """All are done."""
        return self.done.total() >= self.count

    async def _work(self, core: RedisCore, delivery: Delivery) -> None:
        await asyncio.sleep(0.05)
        outcome = await core.ask(Retract(self.node, delivery.subscriber, delivery.item_id, delivery.token))
        self.done[delivery.subscriber] += isinstance(outcome, Retracted)

    async def sent_to(self, core: RedisCore, door: Door) -> None:
        """Work on what a door delivers."""
        taken = 0
        async with asyncio.TaskGroup() as group:
            while not self.over:
                await asyncio.sleep(0.005)
                found = door.deliveries[taken:]
                taken += len(found)
                for delivery in found:
                    group.create_task(self._work(core, delivery))

    async def come(self, core: RedisCore, jid: Jid) -> None:
        """Fetch what a lease holds and work on it."""
        while not self.over:
            result = await core.ask(Receive(self.node, ALICE, jid, 60_000, 1))
            assert isinstance(result, Received)
            await asyncio.sleep(0.05)
            await acknowledge(core, jid, result)
            self.done[jid] += len(result.items)

    async def watch(self, store: Store) -> None:
        """Check who holds how much, again and again."""
        async with store.client() as client:
            found: list[bytes] = []
            while not found:
                found = [name async for name in client.scan_iter(match=f"*{self.node}@*:locks_by_subscriber")]
            while not self.over:
                holders = Counter(score for _, score in await client.zrange(found[0], 0, -1, withscores=True))
                self.most.append(max(holders.values(), default=0))
                await asyncio.sleep(0.002)


async def test_a_hundred_share(make_core: MakeCore, make_nameless: MakeNameless, store: Store, node: str) -> None:
    """R1, R17, guarantee 3: fifty workers and fifty leases share a queue; at no instant is a credit exceeded."""
    sending = [await make_core(), await make_core()]
    pulling = [await make_nameless(), await make_nameless()]
    await declared(pulling[0], node)
    workers = [Jid(f"w{number}@x/a") for number in range(50)]
    for number, jid in enumerate(workers):
        assert isinstance(await sending[number % 2][0].ask(Subscribe(node, jid, jid, 2)), Subscribed)
    leases = [await leased(pulling[number % 2], node, 2) for number in range(50)]
    shift = Shift(node, 3_000)
    async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
        for core, door in sending:
            group.create_task(shift.sent_to(core, door))
        for number, jid in enumerate(leases):
            group.create_task(shift.come(pulling[number % 2], jid))
        group.create_task(shift.watch(store))
        for _ in range(150):
            await published(pulling[0], node, 20)
    assert shift.done.total() == 3_000 and set(shift.done) == {*workers, *leases}
    assert len(shift.most) > 100 and max(shift.most) == 2
    # Workers are served in turn; leases take what these leave, first come, first served.
    pushed = [shift.done[jid] for jid in workers]
    assert min(pushed) * 2 > max(pushed) and min(shift.done.values()) > 0, shift.done


async def test_destinations(make_nameless: MakeNameless, node: str) -> None:
    """R12, guarantee 3: one credit for queues named by patterns, later ones too; the record ends with its lease."""
    one, two = await make_nameless(), await make_nameless()
    for leaf in ("a/x", "b/x", "b/y", "c"):
        await declared(one, f"{node}/{leaf}")
    name = secrets.token_hex(8)
    jid, lease = pull_jid(ALICE, name), f"lease-{name}"
    wanted = (f"{node}/*/x", f"{node}/c")
    asked = Subscribe(lease, ALICE, jid, 2, Qos.PULLED, lease_ms=60_000, destinations=wanted)
    assert isinstance(await one.ask(asked), Subscribed)
    for leaf in ("a/x", "b/x", "b/y", "c"):
        await published(one, f"{node}/{leaf}", 5)
    done = await all_worked(two, lease, jid, 15, 2)
    assert done == {f"{node}/{leaf}": 5 for leaf in ("a/x", "b/x", "c")}
    await declared(one, f"{node}/d/x", stanzaq__partitions="2")
    await published(one, f"{node}/d/x", 5)
    assert await all_worked(two, lease, jid, 5, 2) == {f"{node}/d/x": 5}
    await published(one, f"{node}/c", 3)
    assert len((await received(two, lease, jid, 5)).items) <= 2
    # Its owner has it for a moment more, and then does not return.
    assert isinstance(await two.ask(Receive(lease, ALICE, jid, 100)), Received)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while isinstance(await one.ask(Describe(lease, ALICE, as_owner=True)), Described):  # noqa: ASYNC110  (nobody says so)
            await asyncio.sleep(0.05)
    await until_given_back(one, f"{node}/c", 3)


async def test_each_is_woken(make_nameless: MakeNameless, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """R15: each of many that wait is woken for an item, the one that has waited longest first."""
    monkeypatch.setattr(receiving, "LOOK_SECONDS", 60.0)
    one, two = await make_nameless(), await make_nameless()
    await declared(one, node)
    waits = []
    for _ in range(5):
        waits.append(asyncio.create_task(received(two, node, await leased(one, node, 1), 20)))
        await asyncio.sleep(0.1)
    for wait in waits:
        await published(one, node, 1)
        assert len((await wait).items) == 1


async def test_a_lost_wake_up(make_nameless: MakeNameless, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that waits finds what a process that died did not tell it, and what it left behind."""
    monkeypatch.setattr(receiving, "LOOK_SECONDS", 0.3)
    one, two = await make_nameless(), await make_nameless()
    await declared(one, node)
    monkeypatch.setattr(one._wakeups, "send", lambda *_about: None)
    waiting = asyncio.create_task(received(two, node, await leased(one, node, 1), 20))
    await asyncio.sleep(0.1)
    await published(one, node, 1)
    assert (await waiting).items


async def test_nobody_there(make_nameless: MakeNameless, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wake-up for one that waits no longer is passed on to the next."""
    monkeypatch.setattr(receiving, "LOOK_SECONDS", 60.0)
    one, two = await make_nameless(), await make_nameless()
    await declared(one, node)
    gone = asyncio.create_task(received(two, node, await leased(one, node, 1), 20))
    await asyncio.sleep(0.1)
    gone.cancel()
    waiting = asyncio.create_task(received(two, node, await leased(one, node, 1), 20))
    await asyncio.sleep(0.1)
    await published(one, node, 1)
    assert (await waiting).items


async def test_holds_nothing_unused(make_core: MakeCore, make_nameless: MakeNameless, node: str) -> None:
    """A6: a lease that receives nothing holds nothing: a worker gets all ten, each on the first try."""
    named, door = await make_core()
    nameless = await make_nameless()
    await declared(nameless, node)
    await leased(nameless, node, 5)
    await published(nameless, node, 10)
    assert isinstance(await named.ask(Subscribe(node, W1, W1, 10)), Subscribed)
    await door.until(lambda: len(door.deliveries) == 10)
    assert {sent.attempt for sent in door.deliveries} == {1}


async def test_subscribers_publish(make_core: MakeCore, make_nameless: MakeNameless, node: str) -> None:
    """P7: with publish model `subscribers` an account publishes while any of its subscriptions lasts, at any door."""
    named, _ = await make_core()
    nameless = await make_nameless()
    await declared(nameless, node, pubsub__publish_model="subscribers")
    bob = Jid("bob@x")

    async def publishes(core: RedisCore, sender: Jid) -> bool:
        result = await core.ask(Publish(node, sender, None, codec.pack(Envelope(b"<x/>")), 4))
        assert isinstance(result, Published) or is_refused(result, Problem.FORBIDDEN)
        return isinstance(result, Published)

    lease, worker = pull_jid(bob, secrets.token_hex(8)), Jid("bob@x/work")
    for jid, qos in ((lease, Qos.PULLED), (worker, Qos.UNACKNOWLEDGED)):
        assert not await publishes(named, Jid("bob@x/home"))
        asked = Subscribe(node, bob, jid, 1, qos, lease_ms=60_000)
        assert isinstance(await named.ask(asked), Subscribed)
        assert await publishes(named, Jid("bob@x/home")) and await publishes(nameless, bob)
        assert not await publishes(nameless, Jid("eve@x"))
        assert isinstance(await named.ask(Unsubscribe(node, bob, jid, "", release=True)), Unsubscribed)
    assert not await publishes(nameless, bob)
    # Whom another process has made a publisher just now is not refused by a record from before.
    assert isinstance(await named.ask(Affiliate(node, ALICE, {Jid("eve@x"): Affiliation.PUBLISHER.value})), Done)
    assert await publishes(nameless, Jid("eve@x"))


async def test_only_subscribers_from_now_on(make_core: MakeCore, make_nameless: MakeNameless, node: str) -> None:
    """P7: a process with the record from before does not let others publish."""
    named, _ = await make_core()
    nameless = await make_nameless()
    await declared(nameless, node, pubsub__publish_model="open")
    stranger = Publish(node, Jid("eve@x"), None, codec.pack(Envelope(b"<x/>")), 4)
    assert isinstance(await nameless.ask(stranger), Published)
    assert isinstance(await named.ask(Configure(node, ALICE, {"pubsub#publish_model": ("subscribers",)})), Done)
    assert is_refused(await nameless.ask(stranger), Problem.UNAVAILABLE)
    assert is_refused(await nameless.ask(stranger), Problem.FORBIDDEN)
    assert await counts(named, node) == (1, 0, 0)


async def test_credit_that_is_in_doubt(make_nameless: MakeNameless, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request beside waiting items, whose lease has no free credit as far as is known, looks again soon."""
    monkeypatch.setattr(receiving, "LOOK_SECONDS", 600.0)
    one, two = await make_nameless(), await make_nameless()
    await declared(one, node, pubsub__node_type="collection")
    await declared(one, f"{node}/a", pubsub__collection=node)
    jid = await leased(one, node, 1)
    await published(one, f"{node}/a", 2)
    first = await received(one, node, jid)
    # The word that its reference is free is lost with the process that had it: the collection finds out.
    monkeypatch.setattr(two, "free_references", lambda *_about: None)
    await acknowledge(two, jid, first)
    async with asyncio.timeout(PATIENCE_SECONDS):
        result = await two.ask(Receive(node, ALICE, jid, 3_600_000, 600))
    assert isinstance(result, Received) and len(result.items) == 1


async def test_leaves_that_do_not_admit(make_nameless: MakeNameless, node: str) -> None:
    """A lease of a collection receives from the leaves that admit its owner; one that is closed or deleted holds nobody up."""
    core = await make_nameless()
    await declared(core, node, pubsub__node_type="collection")
    for leaf, model in (("open", "open"), ("shut", "whitelist"), ("gone", "open")):
        await declared(core, f"{node}/{leaf}", pubsub__collection=node, pubsub__access_model=model)
        await published(core, f"{node}/{leaf}", 2)
    bob = Jid("bob@x")
    lease = pull_jid(bob, secrets.token_hex(8))
    assert isinstance(await core.ask(Subscribe(node, bob, lease, 9, Qos.PULLED, lease_ms=60_000)), Subscribed)
    assert isinstance(await core.ask(Delete(f"{node}/gone", ALICE)), Done)
    result = await core.ask(Receive(node, bob, lease))
    assert isinstance(result, Received) and [item.partition.node for item in result.items] == [f"{node}/open"] * 2
    # One that does not answer has no owner that is known.
    assert isinstance(await core.ask(Subscribe(f"{node}/open", W1, W1, 9, group="g")), Subscribed)
    result = await core.ask(Receive(node, bob, lease))
    assert isinstance(result, Received) and not result.items and not result.owned
    assert isinstance(await core.ask(Delete(f"{node}/shut", ALICE)), Done)
    result = await core.ask(Receive(node, bob, lease))
    assert isinstance(result, Received) and not result.items and result.owned
    # Nobody else may receive for it.
    assert is_refused(await core.ask(Receive(node, Jid("eve@x"), lease)), Problem.FORBIDDEN)
