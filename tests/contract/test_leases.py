"""Subscriptions that expire, through a whole core."""

import asyncio
import time
from collections.abc import Callable

import pytest

from broker import codec
from broker.model.commands import (
    Affiliations,
    Associate,
    Configure,
    Declare,
    Delete,
    Nodes,
    Options,
    Publish,
    SetSubscriptionOptions,
    Subscribe,
)
from broker.model.items.items import Envelope, SubscriptionChanged
from broker.model.items.qos import Qos
from broker.model.names import Jid, bare_jid
from broker.model.nodes.nodes import Affiliation
from broker.model.nodes.pull_subscriptions import pull_jid
from broker.model.nodes.subscriptions import State, Subscription
from broker.model.problems import Problem
from broker.model.results import AffiliationList, Declared, Done, Listing, Published, Refused, Result, Subscribed
from broker.redis_core.commands.internal import Leave, Left, ScanSubscribers
from broker.redis_core.core import RedisCore
from broker.redis_core.maintenance import heartbeat, sweeper
from broker.redis_core.operations.operation import subid
from broker.redis_core.subscriptions import leases
from tests.contract.conftest import Door, MakeCore, Store
from tests.waiting import PATIENCE_SECONDS

ALICE, W1, W2, W3 = Jid("alice@x/1"), Jid("w1@x/a"), Jid("w2@x/b"), Jid("w3@x/c")
SECOND, HOUR = 1_000, 3_600_000


def soon(ms: int) -> int:
    """Give a time of Redis's clock, which is this machine's here."""
    return int(time.time() * 1000) + ms


async def declared(core: RedisCore, node: str, partitions: int, **options: str) -> None:
    """Create a node of Alice's."""
    fields = {"stanzaq#partitions": (str(partitions),)} | {
        f"pubsub#{name}": (value,) for name, value in options.items()
    }
    assert isinstance(await core.ask(Declare(node, ALICE, fields)), Declared)


async def published(core: RedisCore, node: str, count: int) -> None:
    """Publish items."""
    for _ in range(count):
        assert isinstance(await core.ask(Publish(node, ALICE, None, codec.pack(Envelope(b"<x/>")), 4)), Published)


async def subscribed(
    core: RedisCore, node: str, jid: Jid, credit: int, until_ms: int = 0, *partitions: int
) -> Subscribed:
    """Subscribe."""
    result = await core.ask(Subscribe(node, jid, jid, credit, partitions=partitions, until_ms=until_ms))
    assert isinstance(result, Subscribed)
    return result


async def known(core: RedisCore, node: str, partitions: int) -> list[int]:
    """Count the subscribers of each partition."""
    found = []
    for number in range(partitions):
        part = await core.ask_partition(ScanSubscribers(node, "0", number))
        found.append(len(part.jids))  # type: ignore[union-attr]
    return found


async def until(holds: Callable[[], bool]) -> None:
    """Wait until this is true, whichever door of several is notified."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not holds():  # noqa: ASYNC110  (each door has an event of its own)
            await asyncio.sleep(0.02)


def is_refused(result: Result, problem: Problem) -> bool:
    """Return whether a result is this refusal."""
    return isinstance(result, Refused) and result.problem is problem


async def leased(core: RedisCore, name: str, *queues: str) -> Result:
    """Make Alice a lease over several queues."""
    jid = pull_jid(bare_jid(ALICE), name.removeprefix("lease-"))
    return await core.ask(Subscribe(name, ALICE, jid, 1, Qos.PULLED, lease_ms=HOUR, destinations=queues))


async def test_a_record_without_its_lease(make_core: MakeCore, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record of a lease over several queues goes if that has not begun, as when its frontend died in between."""
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 0.03)
    monkeypatch.setattr(sweeper, "SCAN_EVERY", 1)
    core, _ = await make_core()
    await declared(core, node, 1)
    left, used = (f"lease-{number:016x}" for number in range(2))
    for name in (left, used):
        assert isinstance(await leased(core, name, node), Subscribed)
    await core.ask_partition(Leave(left, pull_jid(bare_jid(ALICE), left.removeprefix("lease-"))))

    async def scanned() -> None:
        turns = core._sweeper._turns
        while core._sweeper._turns < turns + 12:  # noqa: ASYNC110  (nobody is told of a scan)
            await asyncio.sleep(0.02)

    async with asyncio.timeout(PATIENCE_SECONDS):
        await scanned()
        assert await core._store.read(left), "it may be about to begin"
        monkeypatch.setattr(leases, "UNUSED_MS", 0)
        while await core._store.read(left):  # noqa: ASYNC110  (Redis tells nobody)
            await asyncio.sleep(0.02)
        await scanned()
    assert all([await core._store.read(name) for name in (node, used)])
    assert await core._store.swept_names() == (node, used)


async def test_the_record_of_a_lease_is_no_node(make_core: MakeCore, node: str) -> None:
    """Nobody finds it, uses it or makes one: there is no collection behind a lease."""
    core, _ = await make_core()
    await declared(core, node, 1)
    name = f"lease-{1:016x}"
    assert isinstance(await leased(core, name, node), Subscribed)
    assert await core.ask(Nodes(ALICE)) == Listing((node,), 0, 1, more=False)
    assert await core.ask(Affiliations(ALICE, None)) == AffiliationList(((node, Affiliation.OWNER),))
    for asked in (
        Subscribe(name, ALICE, ALICE, 1),
        Publish(name, ALICE, None, codec.pack(Envelope(b"<x/>")), 4),
        Configure(name, ALICE, {"pubsub#title": ("mine",)}),
        Associate(name, ALICE, node),
        Delete(name, ALICE),
    ):
        assert is_refused(await core.ask(asked), Problem.NODE_NOT_FOUND), asked
    assert is_refused(await core.ask(Declare(f"lease-{2:016x}", ALICE, {})), Problem.NODE_NAME_INVALID)
    # Not as its dead letters either, which would end with a lease of that name.
    named = Configure(node, ALICE, {"stanzaq#dead_letter_node": (f"lease-{2:016x}",)})
    assert is_refused(await core.ask(named), Problem.NOT_ACCEPTABLE)
    jid = pull_jid(bare_jid(ALICE), name.removeprefix("lease-"))
    assert is_refused(await core.ask(Subscribe(name, jid, jid, 1)), Problem.NODE_NOT_FOUND), "a lease stays one"
    assert isinstance(await core.ask(Delete(node, ALICE)), Done)


async def test_it_ends(make_core: MakeCore, node: str) -> None:
    """P31: it ends everywhere; its items go to others at once, and its owner is notified once."""
    (one, door), (_two, other_door) = await make_core(), await make_core()
    await declared(one, node, 1)
    await subscribed(one, node, W1, 12, soon(HOUR))
    await published(one, node, 12)
    await subscribed(one, node, W2, 12)
    ends = soon(SECOND)
    options = await one.ask(SetSubscriptionOptions(node, W1, W1, "", 12, until_ms=ends))
    assert isinstance(options, Subscribed) and options.until_ms == ends
    ended = SubscriptionChanged(Subscription(node, W1, subid(W1), State.NONE))
    await until(lambda: ended in door.notices + other_door.notices)
    await until(lambda: sum(each.subscriber == W2 for each in door.deliveries + other_door.deliveries) == 12)
    assert await known(one, node, 1) == [1]
    assert is_refused(await one.ask(Options(node, W1, W1, "")), Problem.NOT_SUBSCRIBED)
    assert is_refused(
        await one.ask(SetSubscriptionOptions(node, W1, W1, "", 5, until_ms=soon(9 * SECOND))), Problem.NOT_SUBSCRIBED
    )
    # Both frontends try to end it; whoever sees the end of a later one has seen theirs.
    await subscribed(one, node, W3, 1, soon(SECOND))
    later = SubscriptionChanged(Subscription(node, W3, subid(W3), State.NONE))
    await until(lambda: later in door.notices + other_door.notices)
    assert (door.notices + other_door.notices).count(ended) == 1


async def test_the_first_partition_says_that_it_ended(core: RedisCore, node: str) -> None:
    """P31: of two frontends that end it at once, only the one that ends it in the first partition notifies its owner."""
    await declared(core, node, 4, queueing="0")
    await subscribed(core, node, W1, 4, soon(2 * SECOND), 1)
    # The other frontend was first there; this one still finds it in the other partitions.
    ended = await core.router(node).ask(0, Leave(node, W1))
    assert isinstance(ended, Left) and ended.ended == (subid(W1),)
    late = await core.ask_partition(Leave(node, W1, lapsed=True))
    assert isinstance(late, Left) and late.ended == ()
    assert await known(core, node, 4) == [0] * 4


async def test_streams(core: RedisCore, door: Door, node: str) -> None:
    """A reader's lease is known whichever partitions it reads."""
    await declared(core, node, 4, queueing="0")

    async def leased(number: int, ends: int) -> None:
        jid = Jid(f"r{number}@x/a")
        granted = await core.ask(Subscribe(node, jid, jid, 5, partitions=(number,), until_ms=ends))
        assert isinstance(granted, Subscribed) and granted.until_ms == ends

    for number in (0, 3):
        await leased(number, soon(HOUR))
    past = await core.ask(Subscribe(node, W1, W1, 5, partitions=(3,), until_ms=1))
    assert is_refused(past, Problem.LEASE_OVER) and await known(core, node, 4) == [2] * 4
    for number in (0, 3):
        await leased(number, soon(SECOND))
    await door.until(lambda: len(door.notices) == 2)
    assert await known(core, node, 4) == [0] * 4


@pytest.mark.parametrize("partitions", [1, 3])
async def test_whoever_was_to_end_it_dies(make_core: MakeCore, node: str, store: Store, partitions: int) -> None:
    """A frontend that dies between an item's arrival and its report causes no duplicate, even if the item is done."""
    one, _door = await make_core()
    await declared(one, node, partitions, queueing="0")
    await subscribed(one, node, W1, 3, soon(2 * SECOND), 0)
    for task in one._running:
        task.cancel()
    await asyncio.sleep(2.3)
    if partitions > 1:
        # The dead frontend had only left the last partition.
        await one.router(node).ask(2, Leave(node, W1))
        assert await known(one, node, partitions) == [1, 1, 0]
    _two, door = await make_core()
    await door.until(lambda: SubscriptionChanged(Subscription(node, W1, subid(W1), State.NONE)) in door.notices)
    assert await known(one, node, partitions) == [0] * partitions
    async with store.client() as client:
        assert [key async for key in client.scan_iter("*:subscription_expiry")] == []


async def test_a_renewal_in_between(core: RedisCore, node: str) -> None:
    """A lease that is renewed while it is being ended continues, known in every partition again."""
    await declared(core, node, 3, queueing="0")
    await subscribed(core, node, W1, 9, soon(HOUR), 1)
    outcome = await core.ask_partition(Leave(node, W1, lapsed=True))
    assert isinstance(outcome, Refused) and outcome.problem is Problem.SUPERSEDED
    assert await known(core, node, 3) == [1] * 3
