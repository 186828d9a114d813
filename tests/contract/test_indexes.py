"""Indexes by JID: entries of ended things block nobody, and no valid entry is removed for them (P6, P10, guarantee 6)."""

import asyncio
import time
from collections.abc import Sequence

import pytest

from broker import codec, keys
from broker.model.commands import (
    Affiliate,
    Affiliations,
    Bounce,
    Declare,
    Delete,
    ListSubscribers,
    Presence,
    Publish,
    Subscribe,
    Subscriptions,
    Unsubscribe,
)
from broker.model.items.items import Envelope
from broker.model.names import Jid, bare_jid
from broker.model.nodes.nodes import Affiliation
from broker.model.problems import CoreUnavailable, Problem
from broker.model.results import (
    AffiliationList,
    Declared,
    Done,
    Published,
    Refused,
    Result,
    Subscribed,
    SubscriptionList,
)
from broker.redis_core.core import RedisCore
from broker.redis_core.maintenance import heartbeat, sweeper
from broker.redis_core.records import jid_indexes
from broker.redis_core.records import store as store_module
from broker.redis_core.records.jid_indexes import Entry, Noted, TrueEntries
from broker.redis_core.records.store import NodeStore, SubscriptionRef
from broker.tasks import FAILED
from tests.contract.conftest import SOMEWHERE, Door, MakeCore, Store
from tests.waiting import PATIENCE_SECONDS

ALICE, BOB = Jid("alice@x/1"), Jid("bob@x/1")
MOST = 3


def worker(number: int) -> Jid:
    """Return a resource of one account."""
    return Jid(f"worker@x/{number}")


def soon(ms: int) -> int:
    """Return a time of Redis's clock, which is this machine's here."""
    return int(time.time() * 1000) + ms


async def declared(core: RedisCore, node: str, **options: str) -> None:
    """Create a node of Alice's."""
    fields = {f"stanzaq#{name}": (value,) for name, value in options.items()}
    assert await core.ask(Declare(node, ALICE, fields)) == Declared(node)


async def subscribed(core: RedisCore, node: str, jid: Jid, until_ms: int = 0, group: str = "") -> Result:
    """Subscribe."""
    return await core.ask(Subscribe(node, jid, jid, 4, until_ms=until_ms, group=group))


async def entries(store: Store, index: str, jid: Jid) -> dict[str, int]:
    """Return the entries of an index of a JID."""
    async with store.client() as client:
        found = await client.zrange(keys.of_jid(index, bare_jid(jid)), 0, -1, withscores=True)
    return {member.decode(): int(score) for member, score in found}


async def until_entries(store: Store, index: str, jid: Jid, count: int) -> None:
    """Wait until an index has so many."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(await entries(store, index, jid)) != count:  # noqa: ASYNC110  (Redis tells nobody)
            await asyncio.sleep(0.05)


async def bounced(core: RedisCore, door: Door, node: str, jid: Jid, group: str = "") -> None:
    """Subscribe somebody whom nothing reaches any more."""
    known = len(door.deliveries)
    assert isinstance(await subscribed(core, node, jid, group=group), Subscribed)
    assert isinstance(await core.ask(Publish(node, ALICE, None, codec.pack(Envelope(b"<x/>")), 4)), Published)
    await door.until(lambda: len(door.deliveries) > known)
    sent = door.deliveries[-1]
    assert sent.subscriber == jid
    assert await core.ask(Bounce(jid, sent.partition, sent.position, sent.token, gone=True)) == Done()


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the limits of a JID."""
    monkeypatch.setattr(jid_indexes, "MOST_PER_JID", MOST)


async def aged(store: Store, index: str, jid: Jid) -> None:
    """Make the entries of an index look older than the last check, once all their changes are done."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while min((known := await entries(store, index, jid)).values()) < 0:  # noqa: ASYNC110  (Redis tells nobody)
            await asyncio.sleep(0.01)
    async with store.client() as client:
        await client.zadd(
            keys.of_jid(index, bare_jid(jid)),
            {name: score - 2 * jid_indexes.CHECKED_MS for name, score in known.items()},
        )


@SOMEWHERE
async def test_bounces_leave_nothing(make_core: MakeCore, store: Store, node: str) -> None:
    """P30: a subscription that bounces have ended is removed from its JID's index, as the owner of several partitions too."""
    core, door = await make_core()
    for name, partitions, group in ((node, "1", ""), (f"{node}-several", "4", "g")):
        await declared(core, name, partitions=partitions)
        await bounced(core, door, name, worker(0), group)
        await until_entries(store, "nodes", worker(0), 0)


async def test_ended_before_it_was_noted(
    core: RedisCore, door: Door, store: Store, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P30: a subscription that ends while its index entry still counts as coming is removed from the index all the same."""
    service, index = core._handlers.subscriptions, core._store.subscribed
    note_done, tidied, checked = index.note_done, asyncio.Event(), index.check

    async def late(entries: Sequence[Entry], client: str | None) -> None:
        await tidied.wait()
        await note_done(entries, client)

    async def seen(entries: Sequence[Entry], so: TrueEntries) -> set[Entry]:
        coming = await checked(entries, so)
        tidied.set()
        return coming

    monkeypatch.setattr(index, "note_done", late)
    monkeypatch.setattr(index, "check", seen)
    await declared(core, node)
    await bounced(core, door, node, worker(0))
    await until_entries(store, "nodes", worker(0), 0)
    assert not service.has_ended


async def test_ended_by_bounces(
    core: RedisCore, door: Door, store: Store, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A3: subscriptions that bounces ended block nobody, though a crash left all of them in the index."""
    monkeypatch.setattr(core, "subscription_ended", lambda _node, _jid: None)
    await declared(core, node)
    for number in range(MOST):
        await bounced(core, door, node, worker(number))
    assert len(await entries(store, "nodes", worker(0))) == MOST
    await aged(store, "nodes", worker(0))
    assert isinstance(await subscribed(core, node, worker(MOST)), Subscribed)
    assert list(await entries(store, "nodes", worker(0))) == [f"{MOST} {node}"]


async def test_of_deleted_nodes(core: RedisCore, store: Store, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A3: subscriptions to deleted nodes block nobody; a completed deletion leaves none of them."""
    for number in range(MOST):
        await declared(core, f"{node}-{number}")
        assert isinstance(await subscribed(core, f"{node}-{number}", worker(0)), Subscribed)
    assert await core.ask(Delete(f"{node}-0", ALICE)) == Done()
    assert len(await entries(store, "nodes", worker(0))) == MOST - 1

    async def crashed(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(core._store.subscribed, "remove", crashed)
    for number in range(1, MOST):
        await core.ask(Delete(f"{node}-{number}", ALICE))
    await aged(store, "nodes", worker(0))
    await declared(core, node)
    for number in range(MOST):
        assert isinstance(await subscribed(core, node, worker(number)), Subscribed)
    assert sorted(await entries(store, "nodes", worker(0))) == [f"{number} {node}" for number in range(MOST)]


async def test_of_leases_that_are_over(core: RedisCore, store: Store, node: str) -> None:
    """P31: an expired subscription is removed from its JID's index."""
    await declared(core, node)
    for number in range(MOST):
        assert isinstance(await subscribed(core, node, worker(number), until_ms=soon(1_000)), Subscribed)
    await until_entries(store, "nodes", worker(0), 0)


async def test_what_is_so_is_refused(core: RedisCore, store: Store, node: str) -> None:
    """P6: a JID with the most subscriptions is refused and loses none; one with locks left still counts (Q34)."""
    await declared(core, node)
    for number in range(MOST):
        assert isinstance(await subscribed(core, node, worker(number)), Subscribed)
        await core.ask(Publish(node, ALICE, None, codec.pack(Envelope(b"<x/>")), 4))
    await core.ask(Unsubscribe(node, worker(0), worker(0), ""))
    await aged(store, "nodes", worker(0))
    refused = await subscribed(core, node, worker(MOST))
    assert isinstance(refused, Refused) and refused.problem is Problem.TOO_MANY_SUBSCRIPTIONS
    assert sorted(await entries(store, "nodes", worker(0))) == [f"{number} {node}" for number in range(MOST)]
    listed = await core.ask(Subscriptions(worker(0), None))
    assert isinstance(listed, SubscriptionList) and len(listed.subscriptions) == MOST - 1


async def test_what_was_checked_is_not_checked_again(
    core: RedisCore, store: Store, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guarantee 7: a JID that keeps asking where there is no room does not cost a check of all entries each time."""
    await declared(core, node)
    for number in range(MOST):
        await subscribed(core, node, worker(number))
    await aged(store, "nodes", worker(0))
    looked: list[int] = []
    occupied = core._handlers.subscriptions._occupied

    async def counted(asked: Sequence[jid_indexes.Entry]) -> set[jid_indexes.Entry]:
        looked.append(len(asked))
        return await occupied(asked)

    monkeypatch.setattr(core._handlers.subscriptions, "_occupied", counted)
    for _ in range(5):
        assert isinstance(await subscribed(core, node, worker(MOST)), Refused)
    assert looked == [MOST]


async def test_what_is_coming_is_never_struck_off(core: RedisCore, store: Store, node: str) -> None:
    """An entry is added before the change: neither a late report of an earlier end nor a full index removes it."""
    await declared(core, node)
    service, index = core._handlers.subscriptions, core._store.subscribed
    for number in range(MOST):
        await index.note([SubscriptionRef(node, worker(number)).entry], service._occupied)
    service.note_ended(node, worker(0))
    await service.tidy()
    refused = await subscribed(core, node, worker(MOST))
    assert isinstance(refused, Refused)
    assert len(await entries(store, "nodes", worker(0))) == MOST


async def test_checked_when_redis_is_back(
    core: RedisCore, store: Store, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be checked, because Redis was away, is checked with the next time."""
    await declared(core, node)
    service, index = core._handlers.subscriptions, core._store.subscribed
    entry = SubscriptionRef(node, worker(0)).entry
    await index.note([entry], service._occupied)
    await index.note_done([entry])
    service.note_ended(node, worker(0))
    check = index.check

    async def away(*_: object) -> None:
        detail = "away"
        raise CoreUnavailable(detail)

    monkeypatch.setattr(index, "check", away)
    with pytest.raises(CoreUnavailable):
        await service.tidy()
    monkeypatch.setattr(index, "check", check)
    await service.tidy()
    assert not await entries(store, "nodes", worker(0))


async def test_struck_off_too_late(core: RedisCore, store: Store, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry removed while its subscription is being made is added again: no subscription is missing (Q33)."""
    await declared(core, node)
    index, service = core._store.subscribed, core._handlers.subscriptions
    note = index.note

    async def meanwhile(entries: Sequence[Entry], so: TrueEntries) -> list[Noted | None]:
        noted = await note(entries, so)
        await index.remove(entries, soon(10_000))
        return noted

    monkeypatch.setattr(index, "note", meanwhile)
    assert isinstance(await subscribed(core, node, worker(0)), Subscribed)
    # Only the next command for this JID waits for it.
    async with service._queue(worker(0)):
        pass
    assert await index.members(bare_jid(worker(0))) == [f"0 {node}"]
    await core.ask(Presence(worker(0), available=False))
    assert await entries(store, "nodes", worker(0)) == {}


async def test_the_program_of_a_subscription(core: RedisCore, node: str) -> None:
    """A subscription shows the program that made it: a refused one changes nothing, and one without a name has none."""
    await declared(core, node)

    async def shown(client: str, until_ms: int = 0) -> str:
        answer = await core.ask(Subscribe(node, worker(0), worker(0), 4, client=client, until_ms=until_ms))
        assert isinstance(answer, Refused if until_ms else Subscribed), answer
        # Only the next command for this JID waits for it.
        async with core._handlers.subscriptions._queue(worker(0)):
            pass
        found = await core.ask(ListSubscribers(node, ALICE))
        assert isinstance(found, SubscriptionList)
        return found.subscriptions[0].client

    assert await shown("one/1") == "one/1"
    assert await shown("two/2", until_ms=1) == "one/1"
    assert await shown("", until_ms=1) == "one/1"
    assert await shown("two/2") == "two/2"
    assert await shown("") == ""


async def test_one_that_cannot_be_ended(
    core: RedisCore, store: Store, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q33: who goes offline while one of its nodes cannot be reached loses its subscriptions to the others all the same."""
    names = [f"{node}-{number}" for number in range(MOST)]
    for name in names:
        await declared(core, name)
        assert isinstance(await subscribed(core, name, worker(0)), Subscribed)
    groups = core._handlers.subscriptions._groups
    remove = groups.remove_member

    async def away(name: str, jid: Jid) -> bool:
        if name == names[0]:
            raise CoreUnavailable(name)
        return await remove(name, jid)

    monkeypatch.setattr(groups, "remove_member", away)
    outcome = await core.ask(Presence(worker(0), available=False))
    assert isinstance(outcome, Refused) and outcome.problem.retryable
    assert await core.ask(Subscriptions(worker(0), None)) == SubscriptionList(())
    assert await entries(store, "nodes", worker(0)) == {}


async def test_what_waits_for_approval(core: RedisCore, store: Store, node: str) -> None:
    """A3: pending requests that a deleted node took with it block nobody."""
    for number in range(MOST + 1):
        assert isinstance(
            await core.ask(Declare(f"{node}-{number}", ALICE, {"pubsub#access_model": ("authorize",)})), Declared
        )
    for number in range(MOST):
        assert isinstance(await subscribed(core, f"{node}-{number}", worker(0)), Subscribed)
        async with store.client() as client:
            await client.delete(keys.of_node("pending", f"{node}-{number}"))
    await aged(store, "pending_nodes", worker(0))
    assert isinstance(await subscribed(core, f"{node}-{MOST}", worker(0)), Subscribed)
    assert list(await entries(store, "pending_nodes", worker(0))) == [f"0 {node}-{MOST}"]


async def test_quota_is_of_nodes_that_are_there(make_core: MakeCore, store: Store, node: str) -> None:
    """A3: one ghost among many existing nodes is replaced, wherever it is; one that is being created is not."""
    count = 500
    core, _ = await make_core()
    directory: NodeStore = core._store
    async with store.client() as client:
        names = [f"{node}-{number}" for number in range(count)]
        for name in names[:-1]:
            await client.hset(keys.of_node("node", name), "creator", bare_jid(ALICE))
        await client.zadd(
            keys.of_jid("created_nodes", bare_jid(ALICE)), {name: place + 1 for place, name in enumerate(names)}
        )
    assert await directory.count_owned(bare_jid(ALICE), f"{node}-coming", count)
    assert not await directory.count_owned(bare_jid(ALICE), f"{node}-late", count)
    assert set(await entries(store, "created_nodes", ALICE)) == {*names[:-1], f"{node}-coming"}


async def test_affiliations_that_are_so_stay(core: RedisCore, store: Store, node: str) -> None:
    """A3: ghosts up to the limit do not remove a valid affiliation; with too many the oldest is removed."""
    await declared(core, node)
    await core.ask(Affiliate(node, ALICE, {bare_jid(BOB): "member"}))
    async with store.client() as client:
        key = keys.of_jid("affiliated", bare_jid(BOB))
        await client.zadd(key, {f"{node}-ghost-{number}": soon(0) for number in range(MOST - 1)})
    await aged(store, "affiliated", BOB)
    for number in range(MOST - 1):
        await declared(core, f"{node}-{number}")
        await core.ask(Affiliate(f"{node}-{number}", ALICE, {bare_jid(BOB): "member"}))
    names = [node, *(f"{node}-{number}" for number in range(MOST - 1))]
    assert await core.ask(Affiliations(BOB, None)) == AffiliationList(
        tuple((name, Affiliation.MEMBER) for name in names)
    )
    await declared(core, f"{node}-last")
    await core.ask(Affiliate(f"{node}-last", ALICE, {bare_jid(BOB): "member"}))
    assert len(await entries(store, "affiliated", BOB)) == MOST


async def test_nodes_that_come_and_go(core: RedisCore, store: Store, node: str) -> None:
    """Nodes that live a moment leave nothing in their owner's indexes."""
    for _ in range(2 * MOST):
        await declared(core, node)
        assert await core.ask(Delete(node, ALICE)) == Done()
    assert await entries(store, "created_nodes", ALICE) == await entries(store, "affiliated", ALICE) == {}


async def test_resources_that_nobody_saw_go(core: RedisCore, store: Store) -> None:
    """A3: resources whose `unavailable` was lost are removed, so that the last ones to come are known."""
    for number in range(2 * MOST):
        assert await core.ask(Presence(worker(number), available=True)) == Done()
    assert list(await entries(store, "resources", worker(0))) == [str(number) for number in range(MOST, 2 * MOST)]


async def test_a_name_without_a_node(
    make_core: MakeCore, store: Store, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guarantee 6: a name whose node could not be created is taken off the list by the scan; that of a damaged node stays."""
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 0.03)
    monkeypatch.setattr(sweeper, "SCAN_EVERY", 1)
    core, _ = await make_core()
    await declared(core, f"{node}-there")

    async def away(*_: object) -> None:
        raise CoreUnavailable(FAILED.detail)

    with monkeypatch.context() as patch:
        patch.setattr(core._store.affiliated, "note", away)
        assert isinstance(await core.ask(Declare(node, ALICE, {})), Refused)

    async def listed(wanted: set[str]) -> None:
        turns = core._sweeper._turns
        async with asyncio.timeout(PATIENCE_SECONDS):
            while set(await core._store.names()) != wanted or core._sweeper._turns < turns + 12:  # noqa: ASYNC110  (Redis tells nobody)
                await asyncio.sleep(0.02)

    async with store.client() as client:
        await client.set(keys.of_node("node", f"{node}-damaged"), "x")
        await client.zadd(keys.of_service("all_nodes"), {f"{node}-damaged": 1})
        await listed({node, f"{node}-there", f"{node}-damaged"})
        monkeypatch.setattr(store_module, "NAMELESS_MS", 0)
        await listed({f"{node}-there", f"{node}-damaged"})
        await client.delete(keys.of_node("node", f"{node}-damaged"))
        await listed({f"{node}-there"})


async def test_created_by_the_time_of_redis(core: RedisCore, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarantee 5: the clock of the frontend that makes a node dates nothing."""
    monkeypatch.setattr(time, "time", lambda: 0.0)
    await declared(core, node)
    record = await core._store.read(node)
    assert record is not None and record.created_ms > 1_700_000_000_000
