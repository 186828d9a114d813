"""Nodes of several partitions over a real server: where items go, and that credit follows them and is never exceeded."""

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

from broker import codec, keys
from broker.model.commands import (
    Browse,
    Configure,
    Declare,
    Locks,
    Options,
    Presence,
    Publish,
    Purge,
    Renew,
    Retract,
    SetSubscriptionOptions,
    Stats,
    Subscribe,
    Unlock,
    Unsubscribe,
)
from broker.model.items import Delivery, Envelope
from broker.model.names import Jid
from broker.model.problems import Problem
from broker.model.results import (
    Browsed,
    Counted,
    Declared,
    Done,
    HeldLocks,
    Published,
    Purged,
    Refused,
    Renewed,
    Retracted,
    Subscribed,
    Unlocked,
    Unsubscribed,
)
from broker.redis_core.commands.credit import HandOut, ListHoldings, RegisterSubscription
from broker.redis_core.commands.internal import AnyCommand, Outcome
from broker.redis_core.core import RedisCore
from broker.redis_core.maintenance import sweeper
from broker.redis_core.operations.operation import subid
from broker.redis_core.registry.partitioner import choose_by_hash
from tests.contract.conftest import Door, MakeCore, Store
from tests.contract.lost_credit import lost_grants
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


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something has become true."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not holds():  # noqa: ASYNC110  (what moves credit tells nobody)
            await asyncio.sleep(0.005)


async def free(core: RedisCore, node: str, credit: int) -> None:
    """Wait until the node is empty and all credit is free: grants under way arrive, and none is lost."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (counted := await stats(core, node)).credit_free < credit:  # noqa: ASYNC110  (nothing tells)
            await asyncio.sleep(0.01)
    assert (counted.waiting, counted.in_flight, counted.credit_free) == (0, 0, credit)


class Worker:
    """Acknowledges its items, and proves that it never held more than its credit."""

    def __init__(self, core: RedisCore, node: str, jid: Jid, credit: int) -> None:
        """Hold at most `credit`."""
        self.core, self.node, self.jid, self.credit = core, node, jid, credit
        self.held: set[tuple[int, str]] = set()
        self.done: list[Delivery] = []
        self.most = 0

    def take(self, delivery: Delivery) -> None:
        """Take a delivery."""
        self.held.add((delivery.partition.number, delivery.position))
        self.most = max(self.most, len(self.held))
        assert len(self.held) <= self.credit, "credit exceeded"

    async def acknowledge(self, delivery: Delivery) -> None:
        """Finish an item; freed credit may be used before the answer comes, so count it as free first."""
        self.held.discard((delivery.partition.number, delivery.position))
        asked = Retract(self.node, self.jid, delivery.item_id, delivery.token, partition=delivery.partition.number)
        assert await self.core.ask(asked) == Retracted(self.jid)
        self.done.append(delivery)


async def work(workers: list[Worker], door: Door, total: int) -> None:
    """Let workers finish so many items, in the order of their deliveries."""
    by_jid = {worker.jid: worker for worker in workers}
    taken = 0
    for finished in range(total):
        await door.until(lambda: len(door.deliveries) > finished)  # noqa: B023
        for delivery in door.deliveries[taken:]:
            by_jid[delivery.subscriber].take(delivery)
        taken = len(door.deliveries)
        delivery = door.deliveries[finished]
        await by_jid[delivery.subscriber].acknowledge(delivery)


async def test_where_items_go(core: RedisCore, node: str) -> None:
    """E6, E8, E14: items go to the named partition, else by the group key; an unknown partition is refused (E7)."""
    await declared(core, node, 4)
    assert isinstance(await core.ask(item(node, "named", partition=3, key="k")), Published)
    for number in range(3):
        assert isinstance(await core.ask(item(node, f"keyed-{number}", key="k")), Published)
    refused = await core.ask(item(node, "nowhere", partition=4))
    assert isinstance(refused, Refused) and refused.problem is Problem.PARTITION_NOT_FOUND
    await core.ask(Subscribe(node, W1, W1, 10))
    door = core._outlet
    assert isinstance(door, Door)
    await until(lambda: len(door.deliveries) == 4)
    where = {delivery.item_id: delivery.partition.number for delivery in door.deliveries}
    assert where == {"named": 3, **{f"keyed-{number}": choose_by_hash("k", 4) for number in range(3)}}
    assert {delivery.key for delivery in door.deliveries} == {"k"}


async def test_ids_say_where(core: RedisCore, door: Door, node: str) -> None:
    """An id that the service made names its partition; any other is found wherever its key has put its item."""
    await declared(core, node, 8)
    await core.ask(Subscribe(node, W1, W1, 100))
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


@pytest.mark.parametrize(("credit", "partitions"), [(1, 4), (3, 4), (10, 3), (2, 16)])
async def test_no_partition_starves(core: RedisCore, door: Door, node: str, credit: int, partitions: int) -> None:
    """Guarantee 3: one worker empties all partitions, holds no more than its credit, and leaves none waiting for long."""
    await declared(core, node, partitions)
    for number in range(partitions):
        for _ in range(6):
            await core.ask(item(node, partition=number))
    worker = Worker(core, node, W1, credit)
    assert isinstance(await core.ask(Subscribe(node, W1, W1, credit)), Subscribed)
    await door.until(lambda: len(door.deliveries) == credit)
    await work([worker], door, 6 * partitions)
    # Every partition had its turn before any was done with more than a few.
    first = Counter(delivery.partition.number for delivery in worker.done[: 4 * partitions])
    assert len(first) == partitions, first
    await free(core, node, credit)


async def test_two_frontends_two_workers(make_core: MakeCore, node: str) -> None:
    """Guarantee 3: all frontends share one credit; each of two workers keeps to its own."""
    (one, door), (two, other) = await make_core(), await make_core()
    await declared(one, node, 6)
    workers = {W1: Worker(one, node, W1, 2), W2: Worker(two, node, W2, 3)}
    await one.ask(Subscribe(node, W1, W1, 2))
    await two.ask(Subscribe(node, W2, W2, 3))
    await asyncio.gather(*((one, two)[n % 2].ask(item(node, key=f"k{n}")) for n in range(120)))
    seen = {id(door): 0, id(other): 0}
    async with asyncio.timeout(PATIENCE_SECONDS):
        while sum(len(worker.done) for worker in workers.values()) < 120:
            for each in (door, other):
                for delivery in each.deliveries[seen[id(each)] :]:
                    seen[id(each)] += 1
                    workers[delivery.subscriber].take(delivery)
                    await workers[delivery.subscriber].acknowledge(delivery)
            await asyncio.sleep(0.001)
    assert all(worker.done for worker in workers.values())
    await free(one, node, 5)


async def test_credit_changes(core: RedisCore, door: Door, node: str) -> None:
    """Q9, Q10, P13: more credit is usable everywhere; with less, no more than that is handed out anywhere."""
    await declared(core, node, 3)
    await core.ask(Subscribe(node, W1, W1, 2))
    for number in range(12):
        await core.ask(item(node, partition=number % 3))
    await door.until(lambda: len(door.deliveries) == 2)
    granted = await core.ask(SetSubscriptionOptions(node, W1, W1, "", 6))
    assert isinstance(granted, Subscribed) and granted.credit == 6
    await door.until(lambda: len(door.deliveries) == 6)
    assert await core.ask(Options(node, W1, W1, "")) == granted
    lowered = await core.ask(SetSubscriptionOptions(node, W1, W1, "", 1))
    assert isinstance(lowered, Subscribed) and lowered.credit == 1
    held = list(door.deliveries)
    for delivery in held[:5]:
        assert isinstance(await core.ask(Retract(node, W1, delivery.item_id, delivery.token)), Retracted)
    await asyncio.sleep(0.7)
    assert len(door.deliveries) == 6
    await core.ask(Retract(node, W1, held[5].item_id))
    await door.until(lambda: len(door.deliveries) == 7)
    await asyncio.sleep(0.1)
    assert len(door.deliveries) == 7


async def test_leaving_and_coming_back(core: RedisCore, door: Door, node: str) -> None:
    """Q33, Q34: locks outlive a subscription and count when it comes back; with its presence all of them end."""
    await declared(core, node, 3)
    await core.ask(Presence(W1, available=True))
    await core.ask(Subscribe(node, W1, W1, 3))
    for number in range(6):
        await core.ask(item(node, partition=number % 3))
    await door.until(lambda: len(door.deliveries) == 3)
    gone = await core.ask(Unsubscribe(node, W1, W1, ""))
    assert isinstance(gone, Unsubscribed)
    again = await core.ask(Unsubscribe(node, W1, W1, ""))
    assert isinstance(again, Refused) and again.problem is Problem.NOT_SUBSCRIBED
    await core.ask(Subscribe(node, W1, W1, 3))
    await asyncio.sleep(0.1)
    assert len(door.deliveries) == 3
    locks = await core.ask(Locks(node, W1))
    assert isinstance(locks, HeldLocks) and len(locks.locks) == 3
    await core.ask(Presence(W1, available=False))
    assert (await stats(core, node)).in_flight == 0 == (await stats(core, node)).subscribers


async def test_the_whole_node(core: RedisCore, node: str) -> None:
    """P21, P25, §1.7 row 2: commands on a node affect all its partitions."""
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
    for count in ("0", "1", "3", "2000", "-1", "two"):
        refused = await core.ask(Configure(node, ALICE, {"stanzaq#partitions": (count,)}))
        assert isinstance(refused, Refused) and refused.problem is Problem.NOT_ACCEPTABLE
    # A whole form may come back.
    assert await core.ask(Configure(node, ALICE, {"stanzaq#partitions": ("2",)})) == Done()


async def test_credit_lost_on_its_way_comes_back(core: RedisCore, node: str) -> None:
    """Guarantee 3: a lost grant is sent again by any sweep, and one that comes late or twice adds nothing."""
    await declared(core, node, 3)
    await core.ask(Subscribe(node, W1, W1, 6))
    await free(core, node, 6)
    (grant,) = await lost_grants(core, node, 1, 2)
    assert (grant.subid, grant.amount) == (subid(W1), 2)
    assert (await stats(core, node)).credit_free == 4
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await stats(core, node)).credit_free < 6:
            await core._sweeper.sweep_all()
            await asyncio.sleep(0.1)
    for _ in range(2):
        await core.router(node).ask(1, HandOut(node, grant.subid, grant.grant, grant.amount))
    await free(core, node, 6)
    await core.ask(item(node, partition=1))
    await until(lambda: len(door_of(core).deliveries) == 1)


async def test_what_a_dead_frontend_did_not_tell(make_core: MakeCore, node: str) -> None:
    """Guarantee 3: ended locks that a dead frontend did not report are found by others."""
    doomed, door = await make_core()
    core, _ = await make_core()
    await declared(core, node, 2)
    await doomed.ask(Subscribe(node, W1, W1, 4))
    await doomed.ask(item(node, "i", partition=1))
    await door.until(lambda: len(door.deliveries) == 1)
    await free_but(doomed, node, 3)
    doomed.router(node).balancer.report = lambda *_told: asyncio.get_running_loop().create_future()  # type: ignore[method-assign]
    await doomed.ask(Retract(node, W1, "i"))
    await free_but(core, node, 3)
    doomed.on_stream_state(up=False)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await stats(core, node)).credit_free < 4:  # noqa: ASYNC110  (nothing tells)
            await asyncio.sleep(0.1)


async def free_but(core: RedisCore, node: str, credit: int) -> None:
    """Wait until so much credit is free."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await stats(core, node)).credit_free != credit:  # noqa: ASYNC110  (nothing tells)
            await asyncio.sleep(0.01)


async def test_what_the_coordinator_has_lost(core: RedisCore, door: Door, node: str, store: Store) -> None:
    """Guarantee 3: a coordinator that has lost its ledger gets it again from the partitions, by the background scan."""
    await declared(core, node, 3)
    await core.ask(Subscribe(node, W1, W1, 3))
    for number in range(3):
        await core.ask(item(node, partition=number))
    await door.until(lambda: len(door.deliveries) == 3)
    await free_but(core, node, 0)
    record = core.router(node).known.record
    assert record is not None
    async with store.client() as client:
        await client.delete(*(keys.of_partition(name, record.partition(0)) for name in ("ledger", "usage")))
    await core._sweeper.sweep_all()
    await free_but(core, node, 0)
    for delivery in door.deliveries:
        await core.ask(Retract(node, W1, delivery.item_id))
    await free(core, node, 3)


@pytest.mark.parametrize(("kind", "credit"), [(ListHoldings, 4), (RegisterSubscription, 3)])
async def test_a_lock_that_ends_while_it_is_counted(
    core: RedisCore, door: Door, node: str, monkeypatch: pytest.MonkeyPatch, *, kind: type[AnyCommand], credit: int
) -> None:
    """Guarantee 3, Q35: no credit is lost when the end of a lock is reported before an older count of the locks."""
    monkeypatch.setattr(sweeper, "SCAN_EVERY", 1_000_000)
    await declared(core, node, 2)
    await core.ask(Subscribe(node, W1, W1, 4))
    await core.ask(item(node, "i", partition=1))
    await door.until(lambda: len(door.deliveries) == 1)
    await free_but(core, node, 3)
    router = core.router(node)
    ask, late = router.ask, False

    async def count_late(number: int, command: AnyCommand) -> Outcome:
        counted: Outcome = await ask(number, command)
        assert await core.ask(Retract(node, W1, "i")) == Retracted(W1)
        await free(core, node, credit)
        return counted

    def asked(number: int, command: AnyCommand) -> asyncio.Future[Outcome]:
        nonlocal late
        if late or number == 0 or not isinstance(command, kind):
            return ask(number, command)
        late = True
        return asyncio.ensure_future(count_late(number, command))

    monkeypatch.setattr(router.balancer, "_ask", asked)
    monkeypatch.setattr(router._partitioned, "_ask", asked)
    if kind is ListHoldings:
        await router.audit()
    else:
        # Less credit is registered in every partition.
        assert isinstance(await core.ask(Subscribe(node, W1, W1, credit)), Subscribed)
    assert late and (await stats(core, node)).credit_free == credit


async def test_many_come_and_go(core: RedisCore, node: str) -> None:
    """Guarantee 3: subscribing, changing and leaving at once, over and over, ends with the last request."""
    await declared(core, node, 4)
    jids = [Jid(f"w{number}@x/y") for number in range(20)]

    async def turn(number: int, jid: Jid) -> None:
        await asyncio.gather(
            core.ask(Subscribe(node, jid, jid, 3)),
            core.ask(SetSubscriptionOptions(node, jid, jid, "", 9)),
            core.ask(Unsubscribe(node, jid, jid, "")),
            core.ask(Subscribe(node, jid, jid, 1 + number % 5)),
        )

    await asyncio.gather(*(turn(number, jid) for number, jid in enumerate(jids)))
    await free(core, node, 60)
    assert (await stats(core, node)).subscribers == 20


async def test_order_within_groups(core: RedisCore, door: Door, node: str) -> None:
    """E14, stanzaq#ordered: over many partitions and workers, each group's items are worked on one after another."""
    await declared(core, node, 4, ordered="1")
    workers = [Worker(core, node, Jid(f"w{number}@x/y"), 4) for number in range(3)]
    for worker in workers:
        await core.ask(Subscribe(node, worker.jid, worker.jid, worker.credit))
    for number in range(60):
        await core.ask(item(node, f"{number:02d}", key=f"group {number % 7}"))
    await work(workers, door, 60)
    done: dict[str, list[str]] = {}
    for delivery in door.deliveries:
        done.setdefault(delivery.key, []).append(delivery.item_id)
    assert len(done) == 7 and all(ids == sorted(ids) for ids in done.values())


async def test_dead_letters_keep_their_group(core: RedisCore, door: Door, node: str) -> None:
    """E14: a dead letter carries its group key to the other node, from whichever partition it came."""
    await declared(core, node, 3)
    await core.ask(Subscribe(node, W1, W1, 3))
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


def door_of(core: RedisCore) -> Door:
    """Return the door of a core."""
    assert isinstance(core._outlet, Door)
    return core._outlet
