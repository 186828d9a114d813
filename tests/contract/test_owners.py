"""Owners of partitions, over a real server and two cores: epochs, fences, leases, members of groups."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
import redis

from broker import keys
from broker.journal.schema import record
from broker.model.commands import (
    Affiliate,
    Configure,
    Declare,
    Options,
    Presence,
    Publish,
    Purge,
    Receive,
    RenewOwnership,
    Retract,
    Stats,
    Subscribe,
    Unsubscribe,
)
from broker.model.items.items import Delivery, NodeEvent, Owned, OwnershipGained, OwnershipLost
from broker.model.items.qos import Qos, Sending
from broker.model.names import Jid, Partition, bare_jid
from broker.model.nodes.nodes import NodeRecord
from broker.model.nodes.pull_subscriptions import pull_jid
from broker.model.problems import Problem
from broker.model.results import (
    Counted,
    Declared,
    Done,
    OwnershipsRenewed,
    Published,
    Received,
    Refused,
    Retracted,
    Subscribed,
)
from broker.redis_core.core import RedisCore
from broker.redis_core.groups import ownership
from broker.redis_core.maintenance import sweeper
from broker.redis_core.operations.operation import subid
from broker.redis_core.records import jid_indexes
from broker.redis_core.records.group_members import Member, PartitionOwnership
from frontends.tools.servers.redis import RedisServer
from tests.contract.conftest import Door, MakeCore
from tests.waiting import PATIENCE_SECONDS

ALICE = Jid("alice@x/home")
A, B, C = Jid("a@x/1"), Jid("b@x/1"), Jid("c@x/1")
Pair = tuple[tuple[RedisCore, Door], tuple[RedisCore, Door]]


@pytest.fixture
async def pair(make_core: MakeCore) -> Pair:
    """Return two cores of one service."""
    return await make_core(), await make_core()


async def declared(core: RedisCore, node: str, partitions: int = 4, **options: str) -> None:
    """Create a node of some partitions."""
    fields = {f"stanzaq#{name}": (value,) for name, value in {**options, "partitions": str(partitions)}.items()}
    assert await core.ask(Declare(node, ALICE, fields)) == Declared(node)


async def attach(  # noqa: PLR0917  (what a subscription says, in its order)
    core: RedisCore,
    node: str,
    jid: Jid,
    partitions: tuple[int, ...] = (),
    epoch: int | None = None,
    group: str = "g",
    credit: int = 100,
) -> Any:  # noqa: ANN401  (subscribed or refused)
    """Subscribe an owner."""
    return await core.ask(Subscribe(node, jid, jid, credit, partitions=partitions, group=group, epoch=epoch))


async def owned(core: RedisCore, node: str, jid: Jid) -> tuple[Owned, ...]:
    """Give what a JID owns."""
    kept = await core.ask(RenewOwnership(node, jid))
    assert isinstance(kept, OwnershipsRenewed)
    return kept.owned


async def numbers(core: RedisCore, node: str, jid: Jid) -> set[int]:
    """Return which partitions a JID owns."""
    return {each.partition for each in await owned(core, node, jid)}


def problem(result: Any) -> Problem:  # noqa: ANN401
    """Give why a result is a refusal."""
    assert isinstance(result, Refused), result
    return result.problem


async def publish(core: RedisCore, node: str, number: int, item: str) -> None:
    """Publish an item into a partition."""
    assert isinstance(await core.ask(Publish(node, ALICE, item, b"e", 1, partition=number)), Published)


def told(*doors: Door) -> list[OwnershipLost]:
    """Return the notices of lost partitions."""
    return [notice for door in doors for notice in door.notices if isinstance(notice, OwnershipLost)]


async def test_e27_e11_epoch_and_partitions_are_answered(pair: Pair, node: str) -> None:
    """E11, E27: the answer to an attach names the partitions, and of each the epoch and the fence."""
    (core, _), (other, _) = pair
    await declared(core, node)
    first = await attach(core, node, A, (2, 0), 7)
    assert isinstance(first, Subscribed)
    assert (first.group, [(each.partition, each.epoch) for each in first.owned]) == ("g", [(0, 7), (2, 7)])
    assert {each.partition: each.fence for each in await owned(other, node, A)} == {
        each.partition: each.fence for each in first.owned
    }


async def test_e28_steal_through_another_core(pair: Pair, node: str) -> None:
    """E28, EX11: a steal through another frontend takes items and notifies the loser, whose tokens are void."""
    (one, first), (two, second) = pair
    await declared(one, node)
    await attach(one, node, A, (1,), 1)
    await publish(one, node, 1, "i")
    await first.until(lambda: bool(first.deliveries))
    old = first.deliveries[0]
    assert problem(await attach(two, node, B, (1,), 1)) is Problem.PARTITION_OWNED
    assert isinstance(await attach(two, node, B, (1,), 2), Subscribed)
    await second.until(lambda: bool(second.deliveries))
    (lost,) = told(second)
    assert (lost.subscriber, lost.partition, lost.epoch, lost.reason) == (A, 1, 1, "stolen")
    late = await one.ask(Retract(node, A, "i", old.token, partition=1))
    assert isinstance(late, Refused)
    done = await one.ask(Retract(node, B, "i", second.deliveries[0].token, partition=1))
    assert isinstance(done, Retracted)


async def test_options_of_an_owner(pair: Pair, node: str) -> None:
    """P13, E11: the options of a subscription list what it owns, also when another owns the first partition."""
    (core, _), (other, _) = pair
    await declared(core, node)
    await attach(core, node, A, (1, 3), 7, credit=9)
    await attach(core, node, B)
    for jid, credit, numbers_owned in ((A, 9, [1, 3]), (B, 100, [0, 2])):
        options = await other.ask(Options(node, jid, jid, ""))
        assert isinstance(options, Subscribed)
        assert (options.group, options.credit) == ("g", credit)
        assert [each.partition for each in options.owned] == numbers_owned
    assert problem(await other.ask(Options(node, C, C, ""))) is Problem.NOT_SUBSCRIBED


async def test_all_or_nothing(pair: Pair, node: str) -> None:
    """E8: a request for several partitions succeeds as a whole or not at all, and a failed one takes nothing from anybody."""
    (core, door), _ = pair
    await declared(core, node)
    await attach(core, node, A, (0,), 1)
    await attach(core, node, B, (1,), 5)
    before = await owned(core, node, A)
    refused = await attach(core, node, C, (0, 1), 3)
    assert problem(refused) is Problem.PARTITION_OWNED and "partition 1" in refused.detail
    assert {each.fence for each in await owned(core, node, A)} == {each.fence for each in before}
    assert await owned(core, node, C) == () and told(door) == []


async def test_a_new_request_replaces_the_old(pair: Pair, node: str) -> None:
    """P6: a JID has one subscription: partitions that a new request does not name are free again."""
    (core, _), _ = pair
    await declared(core, node)
    await attach(core, node, A, (0, 1))
    await attach(core, node, A, (1, 2))
    assert await numbers(core, node, A) == {1, 2}
    assert isinstance(await attach(core, node, B, (0,), 0), Subscribed)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"partitions": (4,)}, Problem.PARTITION_NOT_FOUND),
        ({"partitions": (0, 1023)}, Problem.PARTITION_NOT_FOUND),
        ({"partitions": (0,), "group": "other"}, Problem.GROUP_NOT_FOUND),
        ({"epoch": 3}, Problem.OPTIONS_INVALID),
        ({"partitions": (0, 1), "credit": 1}, Problem.OPTIONS_INVALID),
    ],
)
async def test_bad_input(pair: Pair, node: str, wanted: dict[str, Any], expected: Problem) -> None:
    """E7, E10, E26: unknown partitions are refused, and nothing is changed."""
    (core, _), _ = pair
    await declared(core, node, groups="g h")
    assert problem(await attach(core, node, A, **wanted)) is expected
    assert await owned(core, node, A) == ()
    assert isinstance(await attach(core, node, B, (0,), 0), Subscribed)


async def test_members_are_spread(pair: Pair, node: str) -> None:
    """E10: members that name no partitions share them evenly; a new member gets its part, and others get a leaving one's."""
    (one, first), (two, second) = pair
    await declared(one, node, 8)
    assert len((await attach(one, node, A)).owned) == 8
    assert len((await attach(two, node, B)).owned) == 4
    assert len((await attach(one, node, C)).owned) in {2, 3}
    sizes = sorted([len(await numbers(one, node, jid)) for jid in (A, B, C)])
    assert sizes == [2, 3, 3]
    fences = {each.partition: each.fence for jid in (A, B, C) for each in await owned(one, node, jid)}
    assert {lost.reason for lost in told(first, second)} == {"moved"}
    await two.ask(Unsubscribe(node, A, A, ""))
    after = {each.partition: each.fence for jid in (B, C) for each in await owned(two, node, jid)}
    assert len(after) == 8 and all(after[number] >= fences[number] for number in fences)
    assert sorted([len(await numbers(one, node, jid)) for jid in (B, C)]) == [4, 4]
    gained = [notice for notice in second.notices if isinstance(notice, OwnershipGained)]
    assert {notice.subscriber for notice in gained} == {B, C}


async def test_ex19_more_members_than_partitions(pair: Pair, node: str) -> None:
    """EX19: a member too many gets no partition until one is free."""
    (one, _), (two, second) = pair
    await declared(one, node, 2)
    await attach(one, node, A)
    await attach(two, node, B)
    assert (await attach(one, node, C)).owned == ()
    await two.ask(Presence(A, available=False))
    assert len(await numbers(two, node, C)) == 1
    await second.until(lambda: any(isinstance(notice, OwnershipGained) for notice in second.notices))


async def test_joining_again(pair: Pair, node: str) -> None:
    """EX16: a member that subscribes again keeps its partitions, under the same fences."""
    (core, door), _ = pair
    await declared(core, node)
    before = (await attach(core, node, A)).owned
    again = (await attach(core, node, A, credit=50)).owned
    assert [(each.partition, each.epoch, each.fence) for each in again] == [
        (each.partition, each.epoch, each.fence) for each in before
    ]
    assert told(door) == []


async def test_a_request_among_members(pair: Pair, node: str) -> None:
    """E8, E28: a partition that one owns by name is not assigned to members until it is free."""
    (core, _), _ = pair
    await declared(core, node)
    await attach(core, node, A)
    assert problem(await attach(core, node, B, (2,))) is Problem.PARTITION_OWNED
    assert isinstance(await attach(core, node, B, (2,), 9), Subscribed)
    assert await numbers(core, node, A) == {0, 1, 3}
    await attach(core, node, C)
    assert await numbers(core, node, B) == {2}
    await core.ask(Unsubscribe(node, B, B, ""))
    assert await numbers(core, node, A) | await numbers(core, node, C) == {0, 1, 2, 3}


async def test_ex16_lapsed_member(pair: Pair, node: str) -> None:
    """EX16: a member that does not renew its lease is notified, and the others get its partitions."""
    (one, first), (two, second) = pair
    await declared(one, node, 2, lock_seconds="3")
    await attach(one, node, A)
    await attach(two, node, B)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await numbers(one, node, B) != {0, 1}:  # noqa: ASYNC110  (B lives by these heartbeats)
            await asyncio.sleep(0.2)
    assert {(lost.subscriber, lost.reason) for lost in told(first, second)} == {(A, "moved"), (A, "lapsed")}


async def test_a_member_that_shares(pair: Pair, node: str) -> None:
    """E28: a member that subscribes without a group is no member any more: the others get everything."""
    (one, _), (two, _) = pair
    await declared(one, node, 1)
    await attach(one, node, A)
    await attach(two, node, B)
    assert isinstance(await two.ask(Subscribe(node, A, A, 10)), Subscribed)
    assert [member.jid for member in (await one.owners._members.members(node)).values()] == [B]
    assert await numbers(one, node, B) == {0}


async def test_an_owner_by_name_that_shares(pair: Pair, node: str) -> None:
    """E10: when an owner by name subscribes without a group, members get its partition at once."""
    (one, _), (two, _) = pair
    await declared(one, node, 1)
    await attach(one, node, A, (0,))
    await attach(two, node, B)
    assert await numbers(two, node, B) == set()
    assert isinstance(await one.ask(Subscribe(node, A, A, 10)), Subscribed)
    assert await numbers(two, node, B) == {0}


async def test_shared_subscribers_wait(pair: Pair, node: str) -> None:
    """E28: while a partition is owned, shared subscribers get nothing from it; when it is free they get its items."""
    (core, door), _ = pair
    await declared(core, node, 1)
    await core.ask(Subscribe(node, B, B, 10))
    await attach(core, node, A, (0,), credit=1)
    await publish(core, node, 0, "i")
    await publish(core, node, 0, "j")
    await door.until(lambda: len(door.deliveries) == 1)
    assert door.deliveries[0].subscriber == A
    await core.ask(Presence(A, available=False))
    await door.until(lambda: len(door.deliveries) == 3)
    assert {delivery.subscriber for delivery in door.deliveries[1:]} == {B}


async def test_owned_is_told(pair: Pair, node: str) -> None:
    """Issue 50: a pull subscription learns at once that others own all partitions, and receives from one that is free."""
    (core, _), _ = pair
    await declared(core, node, 2)
    lease = pull_jid(ALICE, "1".zfill(16))
    assert isinstance(await core.ask(Subscribe(node, ALICE, lease, 5, Qos.PULLED, lease_ms=60_000)), Subscribed)
    await attach(core, node, A, (0,))
    looks, waits = Receive(node, ALICE, lease, 60_000), Receive(node, ALICE, lease, 60_000, PATIENCE_SECONDS)
    found = await core.ask(looks)
    assert isinstance(found, Received) and not found.owned
    await attach(core, node, B, (1,))
    began = time.monotonic()
    found = await core.ask(waits)
    assert isinstance(found, Received) and found.owned and time.monotonic() - began < PATIENCE_SECONDS / 2
    await core.ask(Presence(A, available=False))
    await publish(core, node, 0, "i")
    found = await core.ask(waits)
    assert isinstance(found, Received) and [item.item_id for item in found.items] == ["i"] and not found.owned


async def test_owned_while_stopping(pair: Pair, node: str) -> None:
    """Issue 50: a process that stops ends waits of pull subscriptions of owned partitions too, or a stream would go on."""
    (core, _), _ = pair
    await declared(core, node, 1)
    lease = pull_jid(ALICE, "1".zfill(16))
    assert isinstance(await core.ask(Subscribe(node, ALICE, lease, 5, Qos.PULLED, lease_ms=60_000)), Subscribed)
    await attach(core, node, A)
    core.cancel_waits()
    assert problem(await core.ask(Receive(node, ALICE, lease, 60_000, PATIENCE_SECONDS))) is Problem.UNAVAILABLE


class Fighter:
    """An owner that acknowledges its items and attaches again after a loss, until it gives up."""

    def __init__(self, core: RedisCore, door: Door, node: str, jid: Jid) -> None:
        """Fight for the partitions of `node`."""
        self.core, self.door, self.node, self.jid = core, door, node, jid
        self.fences: dict[int, int] = {}
        self.acknowledged: list[Delivery] = []
        self.refused = 0

    async def take(self, epoch: int) -> None:
        """Take a partition by force."""
        result = await attach(self.core, self.node, self.jid, tuple(range(16)), epoch)
        if isinstance(result, Subscribed):
            self.fences |= {each.partition: each.fence for each in result.owned}

    async def acknowledge(self, delivery: Delivery) -> None:
        """Acknowledge a delivery, whoever owns the partition by now; every third item takes a while."""
        if int(delivery.item_id[1:]) % 3 == 0:
            await asyncio.sleep(0.04)
        answer = await self.core.ask(
            Retract(self.node, self.jid, delivery.item_id, delivery.token, partition=delivery.partition.number)
        )
        if isinstance(answer, Retracted):
            self.acknowledged.append(delivery)
        else:
            self.refused += 1


async def publish_all(core: RedisCore, node: str, total: int) -> None:
    """Publish items, the partitions in turn."""
    for number in range(total):
        await publish(core, node, number % 16, f"i{number}")


async def work(fighters: Mapping[Jid, Fighter], total: int) -> None:
    """Let each acknowledge its items, until all are acknowledged and answered."""
    begun: list[asyncio.Task[None]] = []
    seen = dict.fromkeys(fighters, 0)
    while len({delivery.item_id for fighter in fighters.values() for delivery in fighter.acknowledged}) < total:
        for jid, fighter in fighters.items():
            came = fighter.door.deliveries[seen[jid] :]
            seen[jid] += len(came)
            begun += [asyncio.ensure_future(fighters[each.subscriber].acknowledge(each)) for each in came]
        await asyncio.sleep(0.001)
    await asyncio.gather(*begun)


def fence_of(token: int, fences: Iterable[int]) -> int:
    """Return the fence under which a lock was made."""
    return max(fence for fence in fences if fence < token)


async def test_the_steal_under_load(pair: Pair, node: str, valkey: RedisServer) -> None:
    """E28, EX11: two owners compete for 16 partitions; each item is acknowledged once, by the owner of the fence in force."""
    (one, first), (two, second) = pair
    await declared(one, node, 16, max_deliveries="0")
    fighters = {A: Fighter(one, first, node, A), B: Fighter(two, second, node, B)}
    total, rounds = 640, 12

    async def fight() -> None:
        for epoch in range(1, rounds + 1):
            await fighters[B if epoch % 2 else A].take(epoch)
            await asyncio.sleep(0.03)

    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.gather(publish_all(one, node, total), fight(), work(fighters, total))
    counts = Counter(delivery.item_id for fighter in fighters.values() for delivery in fighter.acknowledged)
    assert len(counts) == total and set(counts.values()) == {1}
    left = await one.ask(Stats(node, ALICE))
    assert isinstance(left, Counted) and (left.waiting, left.in_flight) == (0, 0)
    # Every attach but the last was a loss with a notice to the owner.
    lost = told(first, second)
    assert Counter(notice.subscriber for notice in lost) == {A: 16 * (rounds // 2 - 1), B: 16 * (rounds // 2)}
    assert {notice.reason for notice in lost} == {"stolen"}
    # There were late acknowledgements, and the journal shows that none counted: after the first lock under a fence, or
    # the end of those before it, no older lock was acknowledged.
    assert sum(fighter.refused for fighter in fighters.values()) > 0
    owners = {(notice.partition, notice.fence): notice.subscriber for notice in lost}
    owners |= dict.fromkeys(fighters[A].fences.items(), A)
    for number in range(16):
        fences = [fence for where, fence in owners if where == number]
        in_force = 0
        for found in journal(valkey, node, number):
            under = fence_of(int(found["token"]), fences)
            if found["type"] == "acknowledged":
                assert under >= in_force
                assert owners[number, under] == found["subscriber"]
            in_force = max(in_force, under + (found["reason"] == "stolen"))


def journal(server: RedisServer, node: str, number: int) -> list[dict[str, str | int]]:
    """Read a partition's journal."""
    with redis.Redis.from_url(server.url) as client:
        incarnation = client.hget(keys.of_node("node", node), "incarnation")
        assert isinstance(incarnation, bytes)
        partition = Partition(node, incarnation.decode(), number)
        return [record(fields) for _id, fields in client.xrange(keys.of_partition("journal", partition)) or []]


async def test_little_credit(pair: Pair, node: str) -> None:
    """Guarantee 3: a member owns no more partitions than it has credit; the others are shared, or free for new members."""
    (core, door), _ = pair
    await declared(core, node)
    assert len((await attach(core, node, A, credit=4)).owned) == 4
    assert len((await attach(core, node, A, credit=3)).owned) == 3
    assert [lost.reason for lost in told(door)] == ["moved"]
    assert len((await attach(core, node, B, credit=2)).owned) == 2
    assert len(await numbers(core, node, A)) == 2


async def spread_so(core: RedisCore, node: str, **sizes: int) -> None:
    """Wait until members own as many partitions as this."""
    jids = {"a": A, "b": B}
    async with asyncio.timeout(PATIENCE_SECONDS):
        while {name: len(await numbers(core, node, jids[name])) for name in sizes} != sizes:  # noqa: ASYNC110  (no notice is the last)
            await asyncio.sleep(0.02)


async def test_less_credit_is_another_groups_gain(pair: Pair, node: str) -> None:
    """EX19: partitions that a member gives up for lack of credit go to a waiting member of another group."""
    (one, _), (two, _) = pair
    await declared(one, node, 3)
    await attach(one, node, A, credit=9)
    assert (await attach(two, node, B, group="h", credit=9)).owned == ()
    await attach(one, node, A, credit=1)
    assert len(await numbers(one, node, A)) == 1
    assert len(await numbers(two, node, B)) == 2


async def test_bans(pair: Pair, node: str) -> None:
    """P3: the others get the partitions of a member barred from the node."""
    (one, _), (two, _) = pair
    await declared(one, node, 6)
    await attach(one, node, A)
    await attach(two, node, B)
    await spread_so(one, node, a=3, b=3)
    assert await two.ask(Affiliate(node, ALICE, {bare_jid(A): "outcast"})) == Done()
    await spread_so(one, node, b=6)


async def test_a_member_shares_while_another_frontend_assigns(
    pair: Pair, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guarantee 3: a frontend that has planned a partition for a member does not assign it once the member shares the node."""
    (one, first), (two, _) = pair
    await declared(one, node, 1)
    record = await one._store.read_with_admins(node)
    assert record is not None
    await one.owners._members.join(record, Member("g", 5, 5, Sending(), A))
    met, go = asyncio.Event(), asyncio.Event()
    ownerships = two.owners._members.ownerships

    async def late(record: NodeRecord) -> list[PartitionOwnership]:
        found = await ownerships(record)
        met.set()
        await go.wait()
        return found

    monkeypatch.setattr(two.owners._members, "ownerships", late)
    assigning = asyncio.create_task(two.owners.rebalance(node))
    await met.wait()
    assert await one.ask(Subscribe(node, A, A, 2)) == Subscribed(A, subid(A), 2)
    go.set()
    await assigning
    assert await numbers(one, node, A) == set()
    for item in ("i", "j", "k"):
        await publish(one, node, 0, item)
    await first.until(lambda: len(first.deliveries) == 2)
    counted = await one.ask(Stats(node, ALICE))
    assert isinstance(counted, Counted) and (counted.in_flight, counted.waiting) == (2, 1)


@pytest.mark.parametrize("how", ["the scan", "a takeover"])
async def test_a_frontend_dies_between_the_steps(
    pair: Pair, node: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EX19: a member whose frontend died before it was assigned anything gets its part by the scan, and at the takeover."""
    (one, _), (two, _) = pair
    monkeypatch.setattr(sweeper, "SCAN_EVERY", 1 if how == "the scan" else 1_000_000)
    await declared(one, node)
    record = await one._store.read_with_admins(node)
    assert record is not None
    await one.owners._members.join(record, Member("g", 100, 25, Sending(), A))
    if how == "a takeover":
        await two._sweeper.sweep_all()
    await spread_so(one, node, a=4)


async def test_many_come_and_go_at_once(pair: Pair, node: str) -> None:
    """E10, EX11: however many frontends assign at once, each partition ends with one member, and evenly."""
    (one, first), (two, second) = pair
    await declared(one, node, 16)
    jids = [Jid(f"m{number}@x/1") for number in range(8)]
    await asyncio.gather(*(attach((one, two)[at % 2], node, jid) for at, jid in enumerate(jids)))
    await asyncio.gather(*((two, one)[at % 2].ask(Unsubscribe(node, jid, jid, "")) for at, jid in enumerate(jids[:3])))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while sorted(sizes := [len(await numbers(one, node, jid)) for jid in jids[3:]]) != [3, 3, 3, 3, 4]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert sum(sizes) == 16
    # Each fence was given once: no two attaches had the same, whoever made them.
    fences = [
        (notice.owned.partition, notice.owned.fence)
        for door in (first, second)
        for notice in door.notices
        if isinstance(notice, OwnershipGained)
    ]
    assert len(fences) == len(set(fences))


async def test_a_node_that_closes(pair: Pair, node: str) -> None:
    """P3, P25: owners outside the first partition are notified of a purge, and lose their partitions in a closed node."""
    (one, first), (two, _) = pair
    await declared(one, node)
    await attach(two, node, A, (3,))
    await one.ask(Purge(node, ALICE))
    assert [notice.subscriber for notice in first.notices if isinstance(notice, NodeEvent)] == [A]
    assert await one.ask(Configure(node, ALICE, {"pubsub#access_model": ("whitelist",)})) == Done()
    await attach(two, node, ALICE, (3,))
    assert await numbers(two, node, ALICE) == {3}


async def test_too_many_nodes(pair: Pair, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """P6: a JID that may not subscribe to another node owns nothing in it, and is no member of its group."""
    (core, _), _ = pair
    monkeypatch.setattr(jid_indexes, "MOST_PER_JID", 0)
    await declared(core, node)
    assert problem(await attach(core, node, A)) is Problem.TOO_MANY_SUBSCRIPTIONS
    await core.owners.rebalance(node)
    assert await numbers(core, node, A) == set()


REQUESTS: list[list[dict[str, Any]]] = [
    [{"partitions": (1, 3)}, {}],
    [{"partitions": (1,)}, {"partitions": (0, 1)}],
    [{"partitions": (0, 1, 3)}, {}, {"partitions": (0, 1, 2), "epoch": 9}],
    [{}, {"group": "other"}],
    [{}, {"partitions": (0, 2)}],
]


@pytest.mark.parametrize("requests", REQUESTS)
async def test_one_request_after_another(pair: Pair, node: str, requests: list[dict[str, Any]]) -> None:
    """Guarantee 3: however a JID changes its request, it never holds more than the last one allows."""
    (one, first), (two, second) = pair
    await declared(one, node)
    for number in range(80):
        await publish(one, node, number % 4, f"i{number}")
    for number, wanted in enumerate(requests):
        assert isinstance(await attach((one, two)[number % 2], node, A, **{"credit": 10, **wanted}), Subscribed)
        counted = await one.ask(Stats(node, ALICE))
        assert isinstance(counted, Counted) and 8 <= counted.in_flight <= 10
    assert first.deliveries and second.deliveries


async def test_e28_a_refused_request_costs_nothing(pair: Pair, node: str) -> None:
    """E28, EX13: a refused request changes nothing for owners."""
    (core, door), _ = pair
    await declared(core, node)
    await attach(core, node, A, (0,), 5)
    await attach(core, node, B, (1,), 1)
    await attach(core, node, C, (2,), 1)
    await publish(core, node, 1, "theirs")
    await publish(core, node, 2, "owned")
    await door.until(lambda: len(door.deliveries) == 2)
    for jid in (B, C):
        assert problem(await attach(core, node, jid, (0,), 5)) is Problem.PARTITION_OWNED
    assert (await numbers(core, node, B), await numbers(core, node, C)) == ({1}, {2})
    for delivery in door.deliveries:
        answer = await core.ask(Retract(node, delivery.subscriber, delivery.item_id, delivery.token))
        assert isinstance(answer, Retracted)


async def test_many_lost_at_once(pair: Pair, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """X7: partitions lost all at once cause one or two reassignments of the rest, not one each."""
    (core, _), _ = pair
    await declared(core, node, 32)
    await attach(core, node, A)
    spreads = Counter[str]()
    rebalance = ownership.Ownership._rebalance

    async def counted(self: ownership.Ownership, of: str) -> None:
        spreads[of] += 1
        await rebalance(self, of)

    monkeypatch.setattr(ownership.Ownership, "_rebalance", counted)
    await asyncio.gather(*(core.owners.rebalance(node) for _ in range(32)))
    assert 1 <= spreads[node] <= 2


async def test_a_member_names_partitions_by_force(pair: Pair, node: str) -> None:
    """Guarantee 3: a member that takes its own partitions by name gets nothing beyond them, and its credit counts once."""
    (core, _), _ = pair
    await declared(core, node, 6)
    await attach(core, node, A, credit=12)
    assert isinstance(await attach(core, node, A, (1, 3, 4, 5), 2, credit=4), Subscribed)
    await core.drain(2)
    assert {each.partition: each.credit for each in await owned(core, node, A)} == {1: 1, 3: 1, 4: 1, 5: 1}


async def test_a_member_changes_its_group(pair: Pair, node: str) -> None:
    """E10, guarantee 3: a member that joins another group leaves its partitions in the first, and its credit counts once."""
    (core, _), _ = pair
    await declared(core, node)
    await attach(core, node, A, credit=12)
    joined = await attach(core, node, A, group="h", credit=4)
    assert {(each.partition, each.group, each.credit) for each in joined.owned} == {(n, "h", 1) for n in range(4)}


async def test_a_request_that_is_refused_changes_nothing(pair: Pair, node: str) -> None:
    """E26: a request for one partition that is another's leaves the requester what it has."""
    (core, _), _ = pair
    await declared(core, node)
    await attach(core, node, A, (0,), 5)
    await attach(core, node, B, (1, 2))
    before = await numbers(core, node, B)
    assert problem(await attach(core, node, B, (0,), 5)) is Problem.PARTITION_OWNED
    assert await numbers(core, node, B) == before == {1, 2}


async def test_shared_and_owned_at_once(pair: Pair) -> None:
    """Guarantee 3: a JID that requests both at once, at two frontends, has its credit once as soon as it was counted."""
    (one, _), (two, _) = pair
    for attempt in range(5):
        node = f"both{attempt}"
        await declared(one, node, 1)
        shared, _owned = await asyncio.gather(one.ask(Subscribe(node, A, A, 2)), attach(two, node, A, (0,), credit=2))
        if isinstance(shared, Refused):
            # Its ownership began while the credit was counted; a refused subscriber asks again.
            assert shared.problem is Problem.NOT_SUBSCRIBED
            assert isinstance(await one.ask(Subscribe(node, A, A, 2)), Subscribed)
        for body in (b"a", b"b", b"c"):
            await two.ask(Publish(node, ALICE, None, body, 1))
        while not (one._is_idle() and two._is_idle()):  # noqa: ASYNC110  (whoever is at rest tells nobody)
            await asyncio.sleep(0.01)
        counted = await one.ask(Stats(node, ALICE))
        assert isinstance(counted, Counted) and counted.in_flight == 2, counted
