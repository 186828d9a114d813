"""The core as a door uses it, over a real server: nodes, items, workers, dead letters."""

# ruff: noqa: ANN401  (outcomes of every kind pass through here)

import asyncio
from typing import Any

import pytest

from broker import codec, keys
from broker.model.commands import (
    Affiliate,
    Affiliations,
    Associate,
    Bounce,
    Browse,
    Configure,
    Declare,
    Delete,
    Describe,
    ListSubscribers,
    Locks,
    ManageSubscribers,
    Nodes,
    Options,
    Presence,
    Publish,
    Purge,
    Renew,
    Retract,
    SendPending,
    SetSubscriptionOptions,
    Stats,
    Subscribe,
    Subscriptions,
    Unlock,
    Unsubscribe,
)
from broker.model.items.attempts import from_header
from broker.model.items.items import Envelope, NodeEvent, SubscriptionChanged
from broker.model.names import Jid, bare_jid
from broker.model.nodes.nodes import Affiliation
from broker.model.nodes.subscriptions import Change, State, Subscription
from broker.model.problems import CoreUnavailable, Problem
from broker.model.results import (
    AffiliationList,
    Browsed,
    Counted,
    Declared,
    Described,
    Done,
    HeldLocks,
    Listing,
    Published,
    Purged,
    Refused,
    Renewed,
    Retracted,
    Subscribed,
    SubscriptionList,
    Unaffiliated,
    Unlocked,
    Unsubscribed,
)
from broker.redis_core.core import RedisCore
from broker.redis_core.records.store import NodeStore
from broker.redis_core.redis_client.client import Server
from tests.contract.conftest import SOMEWHERE, Asked, Door, MakeCore, Store
from tests.waiting import PATIENCE_SECONDS

pytestmark = SOMEWHERE

ALICE, BOB = Jid("alice@x/home"), Jid("bob@x/desk")
W1, W2 = Jid("w1@x/a"), Jid("w2@x/two words")


def item(node: str, item_id: str | None = None, sender: Jid = ALICE, body: bytes = b"<x/>") -> Publish:
    """Publish an item."""
    return Publish(node, sender, item_id, codec.pack(Envelope(body)), len(body))


def problem(result: Any) -> Problem:
    """Return the problem of a refusal."""
    assert isinstance(result, Refused), result
    return result.problem


async def declared(core: RedisCore, node: str, **options: str) -> None:
    """Create a node; options are named without `stanzaq#`."""
    fields = {f"stanzaq#{name}": (value,) for name, value in options.items()}
    assert await core.ask(Declare(node, ALICE, fields)) == Declared(node)


async def test_the_length_of_a_journal(make_core: MakeCore, store: Store, node: str) -> None:
    """A journal keeps about as many records as configured, the youngest."""
    core, door = await make_core(journal_records=100)
    await declared(core, node)
    await core.ask(Subscribe(node, W1, W1, 100))
    for _ in range(4):
        await asyncio.gather(*(core.ask(item(node)) for _ in range(100)))
        retracts = [Retract(node, W1, delivery.item_id, delivery.token) for delivery in door.deliveries]
        door.deliveries.clear()
        assert len(retracts) == 100
        await asyncio.gather(*map(core.ask, retracts))
    async with store.client() as client:
        (key,) = [key async for key in client.scan_iter(match=f"sq:{{{node}@*:journal")]
        # Redis trims whole blocks of a hundred.
        assert 100 <= await client.xlen(key) <= 200
        assert (await client.xinfo_stream(key))["entries-added"] == 400


async def test_a_life(core: RedisCore, door: Door, node: str) -> None:
    """The main flow: declare, publish, subscribe, deliver, renew, unlock, retract, replay, unsubscribe (Q13-Q34)."""
    await declared(core, node)
    assert await core.ask(item(node, "a")) == Published("a")
    granted = await core.ask(Subscribe(node, W1, W1, 2))
    assert isinstance(granted, Subscribed) and granted.credit == 2
    (first,) = door.deliveries
    assert (first.item_id, first.subscriber, first.attempt, first.of) == ("a", W1, 1, 20)
    assert codec.unpack(first.envelope).body == b"<x/>"
    renewed = await core.ask(Renew(node, W1, "a", first.token))
    assert isinstance(renewed, Renewed) and renewed.deadline_ms >= first.deadline_ms
    held = await core.ask(Locks(node, W1))
    assert isinstance(held, HeldLocks) and [lock.item_id for lock in held.locks] == ["a"]
    await core.ask(Subscribe(node, W2, W2, 1))
    assert await core.ask(Unlock(node, W1, "a", reason="busy")) == Unlocked(W1)
    assert door.deliveries[-1].subscriber == W2 and door.deliveries[-1].attempt == 2
    assert problem(await core.ask(Retract(node, W1, "a"))) is Problem.LOCKED_BY_ANOTHER
    assert await core.ask(Retract(node, W2, "a", request="r")) == Retracted(W2)
    assert await core.ask(Retract(node, W2, "a", request="r")) == Retracted(W2, replayed=True)
    assert await core.ask(Options(node, W1, W1, "")) == granted
    assert problem(await core.ask(Options(node, W1, W1, "wrong"))) is Problem.SUBID_INVALID
    assert isinstance(await core.ask(SetSubscriptionOptions(node, W1, W1, granted.subid, 7)), Subscribed)
    assert await core.ask(Unsubscribe(node, W1, W1, "")) == Unsubscribed(W1, granted.subid)
    assert problem(await core.ask(Unsubscribe(node, W1, W1, ""))) is Problem.NOT_SUBSCRIBED
    counted = await core.ask(Stats(node, ALICE))
    assert counted == Counted(0, 0, 0, 0, 0, 0, 1, 1, published=1, finished=1, attempts=2)


async def test_unknown_node(core: RedisCore, node: str) -> None:
    """D2: every command about an unknown node is refused alike."""
    commands = (
        item(node),
        Retract(node, W1, "a"),
        Unlock(node, W1, "a"),
        Subscribe(node, W1, W1, 1),
        Unsubscribe(node, W1, W1, ""),
        Options(node, W1, W1, ""),
        Subscriptions(W1, node),
        Affiliations(W1, node),
        ListSubscribers(node, ALICE),
        ManageSubscribers(node, ALICE, (Change(W1, "", "none"),)),
        Associate(node, ALICE, "child"),
        SendPending(node, ALICE),
        Browse(node, ALICE, (), 5),
        Locks(node, W1),
        Stats(node, ALICE),
        Purge(node, ALICE),
        Delete(node, ALICE),
        Configure(node, ALICE, {}),
        Affiliate(node, ALICE, {}),
        Describe(node, ALICE, as_owner=False),
    )
    for command in commands:
        assert problem(await core.ask(command)) is Problem.NODE_NOT_FOUND


async def test_declare(core: RedisCore, node: str) -> None:
    """P22: instant nodes, existing names, names and options that are not allowed."""
    made = await core.ask(Declare(None, ALICE, {}))
    assert isinstance(made, Declared) and made.node
    await declared(core, node)
    assert problem(await core.ask(Declare(node, BOB, {}))) is Problem.NODE_EXISTS
    assert problem(await core.ask(Declare("a\nb", ALICE, {}))) is Problem.NODE_NAME_INVALID
    assert problem(await core.ask(Declare("x" * 1024, ALICE, {}))) is Problem.NODE_NAME_INVALID
    assert problem(await core.ask(Declare("", ALICE, {}))) is Problem.NODE_NAME_INVALID
    assert problem(await core.ask(Declare("n", ALICE, {"what": ("1",)}))) is Problem.NOT_ACCEPTABLE
    listing = await core.ask(Nodes(BOB))
    assert isinstance(listing, Listing) and {node, made.node} <= set(listing.nodes)


async def test_quota(make_core: MakeCore, node: str) -> None:
    """A JID may create so many nodes; deleted and refused ones do not count."""
    core, _ = await make_core(node_quota=2)
    owner = Jid(f"{node}@x/1")
    for name in (f"{node}-1", f"{node}-2"):
        assert await core.ask(Declare(name, owner, {})) == Declared(name)
    assert problem(await core.ask(Declare(f"{node}-3", owner, {}))) is Problem.TOO_MANY_NODES
    await core.ask(Delete(f"{node}-1", owner))
    assert problem(await core.ask(Declare(f"{node}-2", owner, {}))) is Problem.NODE_EXISTS
    assert await core.ask(Declare(f"{node}-3", owner, {})) == Declared(f"{node}-3")


async def test_standing(core: RedisCore, node: str) -> None:
    """P3, P5, P6, P7: publish models, access models, outcasts, owners."""
    await declared(core, node)
    assert problem(await core.ask(item(node, sender=BOB))) is Problem.FORBIDDEN
    for model, word in (("open", Published), ("subscribers", Refused)):
        assert await core.ask(Configure(node, ALICE, {"pubsub#publish_model": (model,)})) == Done()
        assert isinstance(await core.ask(item(node, sender=BOB)), word)
    await core.ask(Subscribe(node, BOB, BOB, 0))
    assert isinstance(await core.ask(item(node, sender=BOB)), Published)
    assert problem(await core.ask(Configure(node, BOB, {}))) is Problem.FORBIDDEN
    assert problem(await core.ask(Subscribe(node, BOB, W1, 1))) is Problem.JID_MISMATCH
    await core.ask(Configure(node, ALICE, {"pubsub#access_model": ("whitelist",)}))
    assert problem(await core.ask(Subscribe(node, W1, W1, 1))) is Problem.CLOSED_NODE
    await core.ask(Affiliate(node, ALICE, {Jid("w1@x"): "member"}))
    assert isinstance(await core.ask(Subscribe(node, W1, W1, 1)), Subscribed)
    kept = ((bare_jid(ALICE), Affiliation.OWNER), (bare_jid(BOB), Affiliation.NONE))
    refused = await core.ask(Affiliate(node, ALICE, {bare_jid(ALICE): "none", bare_jid(BOB): "none"}))
    assert isinstance(refused, Unaffiliated) and refused.kept == kept
    described = await core.ask(Describe(node, ALICE, as_owner=True))
    assert isinstance(described, Described)
    assert described.record.affiliation(Jid("w1@x")) is Affiliation.MEMBER


async def test_outcast(core: RedisCore, door: Door, node: str) -> None:
    """P3, P26: a new outcast loses subscription and locks at once, and every request is forbidden."""
    await declared(core, node)
    await core.ask(Subscribe(node, W1, W1, 1))
    await core.ask(item(node, "a"))
    await core.ask(Subscribe(node, W2, W2, 1))
    assert await core.ask(Affiliate(node, ALICE, {Jid("w1@x"): "outcast"})) == Done()
    assert [d.subscriber for d in door.deliveries] == [W1, W2]
    for command in (Retract(node, W1, "a"), Retract(node, W1, "none"), Subscribe(node, W1, W1, 1), Locks(node, W1)):
        assert problem(await core.ask(command)) is Problem.FORBIDDEN


async def test_domain(core: RedisCore, node: str) -> None:
    """P3, P9, P10: an affiliation of a domain holds for its accounts that have none of their own, in lists too."""
    await core.ask(Declare(node, ALICE, {"pubsub#access_model": ("whitelist",)}))
    w3, far = Jid("w3@x/c"), Jid("w@elsewhere/a")
    await core.ask(Affiliate(node, ALICE, {Jid("x"): "member", bare_jid(W2): "outcast"}))
    for jid in (W1, w3):
        assert isinstance(await core.ask(Subscribe(node, jid, jid, 1)), Subscribed)
    assert problem(await core.ask(Subscribe(node, W2, W2, 1))) is Problem.FORBIDDEN
    assert problem(await core.ask(Subscribe(node, far, far, 1))) is Problem.CLOSED_NODE
    for jid, affiliation in ((W1, Affiliation.MEMBER), (W2, Affiliation.OUTCAST)):
        held = await core.ask(Affiliations(jid, None))
        assert isinstance(held, AffiliationList) and (node, affiliation) in held.affiliations
    listings: list[Any] = [await core.ask(Nodes(jid)) for jid in (W1, W2, far)]
    assert [node in listing.nodes for listing in listings] == [True, False, False]
    # Its accounts lose their subscriptions with it, but for those that have an affiliation of their own.
    await core.ask(Affiliate(node, ALICE, {bare_jid(w3): "publisher"}))
    assert await core.ask(Affiliate(node, ALICE, {Jid("x"): "outcast"})) == Done()
    assert problem(await core.ask(Locks(node, W1))) is Problem.FORBIDDEN
    listed = await core.ask(ListSubscribers(node, ALICE))
    assert isinstance(listed, SubscriptionList) and [each.jid for each in listed.subscriptions] == [w3]


async def test_limits(core: RedisCore, node: str) -> None:
    """P14, PX4: payloads that are too large, and full nodes."""
    await core.ask(Declare(node, ALICE, {"pubsub#max_payload_size": ("10",), "pubsub#max_items": ("1",)}))
    assert problem(await core.ask(item(node, body=b"x" * 11))) is Problem.PAYLOAD_TOO_BIG
    assert isinstance(await core.ask(item(node, body=b"x" * 10)), Published)
    assert problem(await core.ask(item(node, body=b"x"))) is Problem.NODE_FULL


async def test_ids_that_break_nothing(core: RedisCore, node: str) -> None:
    """Guarantee 7: a bad id is an error for its sender, and nothing for the others of its batch."""
    await declared(core, node)
    asked = Asked(core)
    asked.submit(
        item(node, "good"),
        item(node, "0-99999999999999999999999999-0"),
        item(node, "0-1-1"),
        Retract(node, W1, "0-99999999999999999999999998-0"),
        Retract(node, ALICE, "good"),
        Unlock(node, W1, "0-18446744073709551616-0"),
    )
    results = await asked.settled()
    assert [type(result) for result in results] == [Published, Published, Published, Refused, Retracted, Refused]


async def test_presence(core: RedisCore, door: Door, node: str) -> None:
    """Q33, QX16: unavailable presence releases and unsubscribes, for a bare JID with its last resource."""
    await declared(core, node)
    bare = Jid("v@x")
    for resource in ("v@x/1", "v@x/2"):
        await core.ask(Presence(Jid(resource), available=True))
    await core.ask(Subscribe(node, Jid("v@x/1"), bare, 1))
    await core.ask(item(node, "a"))
    await core.ask(Subscribe(node, W2, W2, 1))
    await core.ask(Presence(Jid("v@x/1"), available=False))
    assert len(door.deliveries) == 1
    await core.ask(Presence(Jid("v@x/2"), available=False))
    assert [d.subscriber for d in door.deliveries] == [bare, W2]
    assert problem(await core.ask(Options(node, Jid("v@x/1"), bare, ""))) is Problem.NOT_SUBSCRIBED


async def test_back_before_it_was_gone(make_core: MakeCore, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q33: a JID that subscribes again elsewhere before the end of its subscription is told of that, and not left without one."""
    (one, door), (two, _) = await make_core(), await make_core()
    await declared(one, node)
    await one.ask(Subscribe(node, W1, W1, 1))
    service, back = one._handlers.subscriptions, asyncio.Event()
    remove = service.remove

    async def late(node: str, jid: Jid) -> tuple[str, ...]:
        await back.wait()
        return await remove(node, jid)

    monkeypatch.setattr(service, "remove", late)
    gone = asyncio.ensure_future(one.ask(Presence(W1, available=False)))
    await two.ask(Presence(W1, available=True))
    again = await two.ask(Subscribe(node, W1, W1, 1))
    assert isinstance(again, Subscribed)
    back.set()
    await gone
    ended = Subscription(node, W1, again.subid, State.NONE)
    assert door.notices == [SubscriptionChanged(ended, offline=True)]
    assert isinstance(await two.ask(Subscribe(node, W1, W1, 1)), Subscribed)


async def test_presence_finds_former_subscribers(core: RedisCore, door: Door, node: str) -> None:
    """Q33, Q34: a JID that unsubscribed and then went offline keeps no lock."""
    await declared(core, node)
    await core.ask(Subscribe(node, W2, W2, 1))
    await core.ask(item(node, "a"))
    await core.ask(Unsubscribe(node, W2, W2, ""))
    await core.ask(Subscribe(node, W1, W1, 1))
    await core.ask(Presence(W2, available=False))
    assert door.deliveries[-1].subscriber == W1


async def test_bounces(core: RedisCore, door: Door, node: str) -> None:
    """Q18: a bounce releases at once; one of an earlier incarnation changes nothing."""
    await declared(core, node)
    await core.ask(Subscribe(node, W1, W1, 1))
    await core.ask(item(node, "a"))
    await core.ask(Subscribe(node, W2, W2, 1))
    (first,) = door.deliveries
    assert await core.ask(Bounce(W1, first.partition, first.position, first.token, gone=True)) == Done()
    assert door.deliveries[-1].subscriber == W2
    await core.ask(Delete(node, ALICE))
    await declared(core, node)
    again = await core.ask(Bounce(W1, first.partition, first.position, first.token, gone=True))
    assert problem(again) is Problem.LOCK_LOST


async def test_purge_and_delete(core: RedisCore, door: Door, node: str) -> None:
    """P24, P25: purge drops waiting items and notifies each subscriber once.

    Delete ends all, and late acknowledgements find nothing.
    """
    await declared(core, node)
    await core.ask(Subscribe(node, W1, W1, 1))
    asked = Asked(core)
    asked.submit(*(item(node, f"i{n}") for n in range(700)))
    await asked.settled()
    assert await core.ask(Purge(node, ALICE)) == Purged(699)
    assert door.notices == [NodeEvent(node, W1, "purge")]
    browsed = await core.ask(Browse(node, ALICE, (), 10))
    assert isinstance(browsed, Browsed) and [listed.state for listed in browsed.items] == ["locked"]
    assert await core.ask(Delete(node, ALICE)) == Done()
    assert door.notices[1:] == [NodeEvent(node, W1, "delete")]
    assert problem(await core.ask(Retract(node, W1, "i0"))) is Problem.NODE_NOT_FOUND
    await declared(core, node)
    assert await core.ask(Stats(node, ALICE)) == Counted(0, 0, 0, 0, 0, 0, 0, 0)


async def test_many_nodes_at_once(make_core: MakeCore, node: str) -> None:
    """A burst to more nodes than the core has connections is run, not refused."""
    # On a busy machine it takes longer than one command may.
    core, _ = await make_core(redis_timeout=30)
    names = [f"{node}-{n}" for n in range(60)]
    for name in names:
        await declared(core, name)
    asked = Asked(core)
    for name in names:
        asked.submit(item(name), Stats(name, ALICE))
    asked.submit(*(item(f"{node}-none-{n}") for n in range(300)))
    results = await asked.settled()
    assert sum(isinstance(result, Published) for result in results) == 60
    assert {result.problem for result in results if isinstance(result, Refused)} == {Problem.NODE_NOT_FOUND}


# Order.


async def test_order_of_one_sender(core: RedisCore, node: str) -> None:
    """Core.submit: commands of one sender to one node take effect in the order in which they were submitted."""
    await declared(core, node)
    asked = Asked(core)
    for n in range(20):
        asked.submit(item(node, f"i{n}"), Retract(node, ALICE, f"i{n}"))
        asked.submit(Subscribe(node, W1, W1, 1), Unsubscribe(node, W1, W1, ""))
    results = await asked.settled()
    assert not [result for result in results if isinstance(result, Refused)]


async def test_order_of_what_takes_several_steps(core: RedisCore, node: str) -> None:
    """A command of several steps keeps its place among its sender's commands: it sees the earlier ones, and no later."""
    await declared(core, node)
    asked = Asked(core)
    for number in range(3):
        asked.submit(item(node, f"i{number}"), Browse(node, ALICE, (), 10))
    results = await asked.settled()
    assert sorted(len(each.items) for each in results if isinstance(each, Browsed)) == [1, 2, 3]


async def test_scripts_forgotten(core: RedisCore, door: Door, node: str, store: Store) -> None:
    """After FUNCTION FLUSH or a restart of Redis no command fails, and none overtakes another of its sender."""
    await declared(core, node)
    await core.ask(Subscribe(node, W1, W1, 1))
    async with store.client() as client:
        for _ in range(5):
            await client.function_flush()
            # Only one of the two scripts is loaded again.
            await core.ask(Subscribe(node, W1, W1, 1))
            asked = Asked(core)
            asked.submit(Unsubscribe(node, W1, W1, ""), Subscribe(node, W1, W1, 1))
            assert [type(result) for result in await asked.settled()] == [Unsubscribed, Subscribed]
            assert isinstance(await core.ask(Options(node, W1, W1, "")), Subscribed)


# Two cores, one Redis.


async def test_stale_records(make_core: MakeCore, node: str) -> None:
    """QX13, P23: a configuration by one frontend binds the next command at another, whatever that has cached."""
    (one, _), (two, _) = await make_core(), await make_core()
    await declared(one, node)
    assert isinstance(await two.ask(item(node)), Published)
    await one.ask(Configure(node, ALICE, {"pubsub#max_payload_size": ("3",)}))
    assert problem(await two.ask(item(node))) is Problem.PAYLOAD_TOO_BIG
    await one.ask(Affiliate(node, ALICE, {Jid("bob@x"): "outcast"}))
    assert problem(await two.ask(Locks(node, BOB))) is Problem.FORBIDDEN
    await one.ask(Delete(node, ALICE))
    assert problem(await two.ask(item(node, body=b"x"))) is Problem.NODE_NOT_FOUND


async def test_deleted_and_made_anew(make_core: MakeCore, node: str) -> None:
    """P24: a frontend that knows the old node finds the new one, and nothing of the old."""
    (one, _), (two, door) = await make_core(), await make_core()
    await declared(one, node)
    await two.ask(item(node, "old"))
    await two.ask(Subscribe(node, W1, W1, 1))
    await one.ask(Delete(node, ALICE))
    await declared(one, node)
    assert isinstance(await two.ask(item(node, "new")), Published)
    browsed = await two.ask(Browse(node, ALICE, (), 10))
    assert isinstance(browsed, Browsed) and [listed.item_id for listed in browsed.items] == ["new"]
    assert problem(await two.ask(Retract(node, W1, "old"))) is Problem.ITEM_NOT_FOUND
    assert len(door.deliveries) == 1


async def test_half_done_deletion(make_core: MakeCore, store: Store, node: str) -> None:
    """P24: when the deleting frontend dies halfway, the next command completes the deletion, and the name is free."""
    (one, _), (two, door) = await make_core(), await make_core()
    await declared(one, node)
    await two.ask(Subscribe(node, W1, W1, 1))
    record = await one._store.read(node)
    assert record
    # The first part of a deletion that stopped: closed, and nothing freed.
    async with store.client() as client:
        await client.hset(f"sq:{{{node}@{record.incarnation}/0}}:meta", "state", "deleted")
        assert problem(await two.ask(item(node))) is Problem.NODE_NOT_FOUND
        assert door.notices == [NodeEvent(node, W1, "delete")]
        left = [key async for key in client.scan_iter(f"sq:{{{node}@*")]
        assert left == [f"sq:{{{node}@{record.incarnation}/0}}:meta".encode()]
    await declared(one, node)
    assert isinstance(await two.ask(item(node)), Published)


# Dead letters.


async def letters_of(core: RedisCore, node: str) -> list[dict[str, str]]:
    """Read the headers of all dead letters."""
    browsed = await core.ask(Browse(f"{node}/dead", ALICE, (), 100))
    if isinstance(browsed, Refused):
        return []
    assert isinstance(browsed, Browsed)
    return [dict(codec.unpack(listed.envelope).headers) for listed in browsed.items]


async def empty(core: RedisCore, node: str) -> None:
    """Wait until no item of a node is on its way."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            counted = await core.ask(Stats(node, ALICE))
            if isinstance(counted, Counted) and counted.dying == 0:
                return
            await asyncio.sleep(0.01)


async def test_dead_letter(core: RedisCore, node: str) -> None:
    """Issue 4: after the most deliveries an item is in NODE/dead with reason, holder, attempts, and its payload."""
    await declared(core, node, max_deliveries="2")
    await core.ask(Subscribe(node, W1, W1, 1))
    await core.ask(item(node, "a", body=b"<job/>"))
    await core.ask(Unlock(node, W1, "a", reason="first"))
    await core.ask(Unlock(node, W1, "a", reason="no disk"))
    await empty(core, node)
    (letter,) = await letters_of(core, node)
    history = from_header(letter.pop("stanzaq-dead-history"))
    assert [(each["outcome"], each["holder"], each["reason"]) for each in history] == [
        ("released", W1, "first"),
        ("released", W1, "no disk"),
    ]
    assert [letter] == [
        {
            "stanzaq-dead-reason": "no disk",
            "stanzaq-dead-holder": W1,
            "stanzaq-dead-attempts": "2",
            "stanzaq-dead-node": node,
            "stanzaq-dead-item": "a",
            "stanzaq-dead-publisher": "alice@x",
        }
    ]


async def test_closed_node_keeps_its_secrets(core: RedisCore, node: str) -> None:
    """D3: without access to a whitelist node the answer is forbidden, whether the item exists or not."""
    assert await core.ask(Declare(node, ALICE, {"pubsub#access_model": ("whitelist",)})) == Declared(node)
    await core.ask(item(node, "there"))
    for command in (
        Retract(node, W1, "there"),
        Retract(node, W1, "not"),
        Unlock(node, W1, "not"),
        Renew(node, W1, "not"),
    ):
        assert problem(await core.ask(command)) is Problem.FORBIDDEN
    assert problem(await core.ask(Retract(node, ALICE, "not"))) is Problem.ITEM_NOT_FOUND


async def test_purge_comes_to_an_end(core: RedisCore, node: str) -> None:
    """Guarantee 1: a purge drops the items that waited when it was requested, not those published while it runs."""
    await declared(core, node)
    purging, ended = True, asyncio.Event()

    def published(_result: Any) -> None:
        if purging:
            core.submit(item(node), published)
        else:
            ended.set()

    core.submit(item(node), published)
    await core.ask(item(node))
    purged = await core.ask(Purge(node, ALICE))
    assert isinstance(purged, Purged) and purged.count < 100
    purging = False
    async with asyncio.timeout(PATIENCE_SECONDS):
        await ended.wait()


async def test_next_life_of_a_fast_node_too(core: RedisCore, door: Door, node: str) -> None:
    """QX14: the same when the earlier incarnation handed out thousands of items a second."""
    await declared(core, node)
    await core.ask(Subscribe(node, W1, W1, 1_000))
    for _round in range(10):
        published = await asyncio.gather(*(core.ask(item(node)) for _ in range(500)))
        names = [result.item_id for result in published if isinstance(result, Published)]
        await asyncio.gather(*(core.ask(Retract(node, W1, name)) for name in names))
    await core.ask(Delete(node, ALICE))
    await declared(core, node)
    await core.ask(Subscribe(node, W1, W1, 1))
    await core.ask(item(node))
    assert door.deliveries[-1].token > door.deliveries[-2].token


async def test_resigned_frontend_leaves_nothing(make_core: MakeCore, node: str, store: Store) -> None:
    """Guarantee 6: what is kept of frontends is bounded by the live ones; one that drains removes its own."""
    core, _door = await make_core()
    await declared(core, node)
    await core.ask(Subscribe(node, W1, W1, 1))
    await core.ask(item(node, "a"))
    await core.drain(2)
    await core.stop()
    async with store.client() as client:
        assert not await client.exists(keys.of_process("served_partitions", core.frontend))
        assert not await client.hexists(keys.of_service("sent_until"), core.frontend)
        assert await client.zscore(keys.of_service("frontends"), core.frontend) is None


async def test_dead_letters_stay_in_the_family(core: RedisCore, node: str) -> None:
    """X12: nobody sends dead letters to another's node, and the owner of a foreign NODE/dead gets none of them."""
    await declared(core, f"{node}-mine")
    theirs = Declare(f"{node}-theirs", BOB, {"stanzaq#dead_letter_node": (f"{node}-mine",)})
    assert problem(await core.ask(theirs)) is Problem.NOT_ACCEPTABLE
    itself = Configure(f"{node}-mine", ALICE, {"stanzaq#dead_letter_node": (f"{node}-mine",)})
    assert problem(await core.ask(itself)) is Problem.NOT_ACCEPTABLE
    await declared(core, node, max_deliveries="1")
    assert await core.ask(Declare(f"{node}/dead", BOB, {})) == Declared(f"{node}/dead")
    await core.ask(Subscribe(node, W1, W1, 1))
    await core.ask(item(node, "secret"))
    await core.ask(Unlock(node, W1, "secret"))
    await core.drain(2)
    kept, squatted = await core.ask(Stats(node, ALICE)), await core.ask(Stats(f"{node}/dead", BOB))
    assert isinstance(kept, Counted) and isinstance(squatted, Counted)
    assert (kept.dying, squatted.waiting) == (1, 0)
    assert problem(await core.ask(Declare(node + "/dead", ALICE, {}))) is Problem.NODE_EXISTS


async def test_administrators_are_no_family(make_core: MakeCore, node: str) -> None:
    """X12: administrators owning both nodes does not let one user's dead letters into another's node."""
    core, _door = await make_core(admins="root@x")
    squatter = Declare(f"{node}-bob", BOB, {"stanzaq#dead_letter_node": (f"{node}/dead",)})
    assert await core.ask(squatter) == Declared(f"{node}-bob")
    await declared(core, node)
    for of, sender in ((f"{node}-bob", BOB), (node, ALICE)):
        await core.ask(Subscribe(of, W1, W1, 1))
        await core.ask(item(of, "secret", sender))
        await core.ask(Unlock(of, W1, "secret", dead_letter=True))
        await core.drain(2)
    theirs, kept = await core.ask(Stats(f"{node}/dead", BOB)), await core.ask(Stats(node, ALICE))
    assert isinstance(theirs, Counted) and isinstance(kept, Counted)
    assert (theirs.waiting, kept.dying) == (1, 1)
    assert problem(await core.ask(Delete(f"{node}/dead", ALICE))) is Problem.FORBIDDEN


async def test_nodes_for_dead_letters_count(make_core: MakeCore, node: str) -> None:
    """X12: dead letters do not evade a quota; the letter waits until there is room for its node."""
    core, _door = await make_core(node_quota=1)
    await declared(core, node)
    await core.ask(Subscribe(node, W1, W1, 1))
    await core.ask(item(node, "a"))
    await core.ask(Unlock(node, W1, "a", dead_letter=True))
    await core.drain(2)
    kept = await core.ask(Stats(node, ALICE))
    assert isinstance(kept, Counted) and kept.dying == 1
    assert await core.ask(Nodes(ALICE)) == Listing((node,), count=1)


@pytest.mark.parametrize("name", ["a\nb", "x" * 1024])
async def test_dead_letter_node_has_a_name(core: RedisCore, node: str, name: str) -> None:
    """Guarantee 7: dead letters create no node that nobody could address."""
    named = Declare(node, ALICE, {"stanzaq#dead_letter_node": (name,)})
    assert problem(await core.ask(named)) is Problem.NOT_ACCEPTABLE
    # A default that would be too long is made shorter.
    assert await core.ask(Declare("y" * 1020, ALICE, {})) == Declared("y" * 1020)


async def test_gauges_go_with_their_node(core: RedisCore, node: str) -> None:
    """Guarantee 6: a deleted node is not measured any more, and leaves no series."""
    await declared(core, node)
    await core.measure()
    assert core.metrics.registry.get_sample_value("stanzaq_node_waiting", {"node": node}) == 0
    await core.ask(Delete(node, ALICE))
    await core.measure()
    assert core.metrics.registry.get_sample_value("stanzaq_node_waiting", {"node": node}) is None


async def test_memory_of_redis(core: RedisCore, node: str) -> None:
    """Redis's memory is measured with the nodes."""
    await declared(core, node)
    await core.measure()
    used = core.metrics.registry.get_sample_value("stanzaq_redis_used_bytes")
    assert used is not None and used > 100_000
    assert core.metrics.registry.get_sample_value("stanzaq_redis_limit_bytes") == 0


async def test_created_again_while_it_is_deleted(core: RedisCore, node: str) -> None:
    """P24: the end of a delete takes a node that was created under the same name meanwhile off no list."""
    await declared(core, node)
    commands, created = Server.commands, list[object]()

    async def late(self: Server, lines: Any, _durable: object = None) -> Any:
        if lines[0][0] == "ZREM" and not created:
            created.append(await core.ask(Declare(node, ALICE, {})))
        return await commands(self, lines)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Server, "commands", late)
        assert await core.ask(Delete(node, ALICE)) == Done()
    assert created == [Declared(node)]
    listing = await core.ask(Nodes(ALICE))
    assert isinstance(listing, Listing) and node in listing.nodes


async def test_a_second_owner(core: RedisCore, node: str) -> None:
    """P16: whoever becomes an owner may configure a node whose dead letters go to an earlier owner's."""
    await declared(core, node)
    await declared(core, f"{node}/dead")
    assert await core.ask(Affiliate(node, ALICE, {bare_jid(W1): "owner"})) == Done()
    assert await core.ask(Configure(node, W1, {"stanzaq#state": ("paused",)})) == Done()
    named = await core.ask(Configure(node, W1, {"stanzaq#dead_letter_node": (f"{node}/dead/dead",)}))
    assert named == Done()
    named = await core.ask(Configure(node, W1, {"stanzaq#dead_letter_node": (f"{node}/dead",)}))
    assert isinstance(named, Refused) and named.problem is Problem.NOT_ACCEPTABLE


async def test_lost_access_ends_subscriptions(core: RedisCore, door: Door, node: str) -> None:
    """P6, P26: a JID that may not subscribe any more is unsubscribed, and its items go to others."""
    await declared(core, node)
    await core.ask(Affiliate(node, ALICE, {bare_jid(W2): "member"}))
    await core.ask(Subscribe(node, W1, W1, 1))
    await core.ask(item(node, "a"))
    await core.ask(Subscribe(node, W2, W2, 1))
    await core.ask(Configure(node, ALICE, {"pubsub#access_model": ("whitelist",)}))
    assert [(d.subscriber, d.item_id) for d in door.deliveries] == [(W1, "a"), (W2, "a")]
    # An earlier change that was cut short is finished by its repeat.
    await core.ask(Configure(node, ALICE, {"pubsub#access_model": ("open",)}))
    assert isinstance(await core.ask(Subscribe(node, W1, W1, 1)), Subscribed)
    silent = CoreUnavailable("no answer")

    async def cut(*_: object) -> None:
        raise silent

    change = Configure(node, ALICE, {"pubsub#access_model": ("whitelist",)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NodeStore, "open", cut)
        assert isinstance(await core.ask(change), Refused)
    assert await core.ask(change) == Done()
    assert isinstance(await core.ask(Unsubscribe(node, W1, W1, "")), Refused)
    await core.ask(Affiliate(node, ALICE, {bare_jid(W2): "none"}))
    counted = await core.ask(Stats(node, ALICE))
    assert isinstance(counted, Counted) and (counted.subscribers, counted.waiting) == (0, 1)
