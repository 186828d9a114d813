"""Several subscriptions of one JID to one node, through whole cores."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable

import pytest

from broker import codec
from broker.model.commands import (
    Affiliate,
    Browse,
    Configure,
    Declare,
    Delete,
    ListSubscribers,
    Locks,
    ManageSubscribers,
    Options,
    Presence,
    Publish,
    Retract,
    SetSubscriptionOptions,
    Subscribe,
    Subscriptions,
    Unlock,
    Unsubscribe,
)
from broker.model.items.items import Delivery, Envelope, NodeEvent, SubscriptionChanged, TreeEvent
from broker.model.names import Jid
from broker.model.nodes.subscriptions import Change
from broker.model.problems import Problem
from broker.model.results import (
    Browsed,
    Declared,
    Done,
    HeldLocks,
    Managed,
    Published,
    Refused,
    Result,
    Retracted,
    Subscribed,
    SubscriptionList,
    Unlocked,
    Unsubscribed,
)
from broker.redis_core.core import RedisCore
from broker.redis_core.operations.operation import subid
from broker.redis_core.operations.subscriptions import MOST_OF_ONE
from tests.contract.conftest import SOMEWHERE, Door, MakeCore
from tests.waiting import PATIENCE_SECONDS

ALICE, W1, W2 = Jid("alice@x/1"), Jid("w1@x/a"), Jid("w2@x/b")
SEVERAL = {"stanzaq#multi_subscribe": ("1",)}
SHAPES = ("one", "tree")
MOST = 3


async def declared(core: RedisCore, node: str, shape: str) -> str:
    """Create a node where a JID may have several, or a collection over two leaves; return a leaf."""
    if shape != "tree":
        assert await core.ask(Declare(node, ALICE, SEVERAL)) == Declared(node)
        return node
    assert await core.ask(Declare(node, ALICE, {**SEVERAL, "pubsub#node_type": ("collection",)})) == Declared(node)
    for leaf in (f"{node}-1", f"{node}-2"):
        assert await core.ask(Declare(leaf, ALICE, {"pubsub#collection": (node,)})) == Declared(leaf)
    return f"{node}-1"


async def subscribed(core: RedisCore, node: str, credit: int | None, jid: Jid = W1, **more: object) -> Subscribed:
    """Subscribe."""
    result = await core.ask(Subscribe(node, jid, jid, credit, **more))  # type: ignore[arg-type]
    assert isinstance(result, Subscribed), result
    return result


async def published(core: RedisCore, node: str, count: int) -> None:
    """Publish items."""
    for _ in range(count):
        outcome = await core.ask(Publish(node, ALICE, None, codec.pack(Envelope(b"<x/>")), 4))
        assert isinstance(outcome, Published), outcome


async def problem(core: RedisCore, command: object) -> Problem | None:
    """Return the problem of a refusal."""
    outcome: Result = await core.ask(command)  # type: ignore[arg-type]
    return outcome.problem if isinstance(outcome, Refused) else None


async def settled(holds: Callable[[], bool]) -> None:
    """Wait until this is true."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not holds():  # noqa: ASYNC110  (several doors have an event each)
            await asyncio.sleep(0.02)


async def names(core: RedisCore, node: str, jid: Jid = W1) -> list[str]:
    """Return the subids of a JID's subscriptions to a node, from its own list."""
    listed = await core.ask(Subscriptions(jid, node))
    assert isinstance(listed, SubscriptionList)
    return sorted(each.subid for each in listed.subscriptions)


@SOMEWHERE
@pytest.mark.parametrize("shape", SHAPES)
async def test_each_is_its_own(make_core: MakeCore, node: str, shape: str) -> None:
    """P11, P12, Q9, Q34: each subscribe creates one with a subid, options and credit of its own; it is named, and ends alone."""
    core, door = await make_core()
    leaf = await declared(core, node, shape)
    first, second = await subscribed(core, node, 2), await subscribed(core, node, 3)
    assert first.subid == subid(W1) != second.subid
    await published(core, leaf, 9)
    await door.until(lambda: len(door.deliveries) == 5)
    held = {each.subid: [d for d in door.deliveries if d.subid == each.subid] for each in (first, second)}
    assert [len(held[each.subid]) for each in (first, second)] == [2, 3]
    # Commands have to name one of them, correctly.
    for wrong in (
        Options(node, W1, W1, ""),
        SetSubscriptionOptions(node, W1, W1, "", 5),
        Unsubscribe(node, W1, W1, ""),
        *((Browse(node, W1, (), 5, subid=""),) if shape != "tree" else ()),
    ):
        assert await problem(core, wrong) is Problem.SUBID_REQUIRED, wrong
    for unknown in ("5", subid(W2), "no number"):
        assert await problem(core, Options(node, W1, W1, unknown)) is Problem.SUBID_INVALID
        assert await problem(core, Unsubscribe(node, W1, W1, unknown)) is Problem.SUBID_INVALID
        assert await problem(core, SetSubscriptionOptions(node, W1, W1, unknown, 5)) is Problem.SUBID_INVALID
    if shape != "tree":
        assert isinstance(await core.ask(Browse(node, W1, (), 5, subid=second.subid)), Browsed)
        assert await problem(core, Browse(node, W1, (), 5, subid="5")) is Problem.SUBID_INVALID
        # Another command does not need a subid.
        assert isinstance(await core.ask(Browse(node, W1, (), 5)), Browsed)
    assert await core.ask(Options(node, W1, W1, second.subid)) == second
    # A token names the lock, and so its subscription; without one it is found among them.
    one, other = held[second.subid][0], held[first.subid][0]
    done = await core.ask(Retract(leaf, W1, one.item_id, one.token))
    back = await core.ask(Unlock(other.partition.node, W1, other.item_id, delay_ms=60_000))
    assert isinstance(done, Retracted) and (done.holder, done.subid) == (W1, second.subid)
    assert isinstance(back, Unlocked) and (back.holder, back.subid) == (W1, first.subid)
    await door.until(lambda: len(door.deliveries) == 7)
    assert sorted(d.subid for d in door.deliveries[5:]) == sorted([first.subid, second.subid])
    # Ending one does not end the other.
    assert await core.ask(Unsubscribe(node, W1, W1, first.subid)) == Unsubscribed(W1, first.subid)
    assert await names(core, node) == [second.subid]
    assert await core.ask(Options(node, W1, W1, "")) == second
    assert await problem(core, Options(node, W1, W1, first.subid)) is Problem.SUBID_INVALID
    adjusted = await core.ask(SetSubscriptionOptions(node, W1, W1, "", 4))
    assert isinstance(adjusted, Subscribed) and (adjusted.subid, adjusted.credit) == (second.subid, 4)
    # It keeps its locks; presence ends those, too, when the JID goes.
    locks = await core.ask(Locks(leaf, W1))
    assert isinstance(locks, HeldLocks) and len(locks.locks) >= 5
    assert await core.ask(Presence(W1, available=False)) == Done()
    locks = await core.ask(Locks(leaf, W1))
    assert isinstance(locks, HeldLocks) and not locks.locks
    assert await names(core, node) == []


@pytest.mark.parametrize("shape", SHAPES)
async def test_owners_and_time(make_core: MakeCore, node: str, shape: str) -> None:
    """P10, P26, P31: lists name each; an owner ends one or all, a lease ends its own, and each notice has the subid."""
    core, door = await make_core()
    leaf = await declared(core, node, shape)
    ends = int(time.time() * 1000) + 1_500
    made = [
        await subscribed(core, node, 1),
        await subscribed(core, node, 1, until_ms=ends),
        await subscribed(core, node, 1),
    ]
    first, leased, last = (each.subid for each in made)
    listed = await core.ask(ListSubscribers(node, ALICE))
    assert isinstance(listed, SubscriptionList)
    assert {each.subid for each in listed.subscriptions} == {first, leased, last} == set(await names(core, node))
    await published(core, leaf, 3)
    await door.until(lambda: len(door.deliveries) == 3)

    def ended() -> list[str]:
        return [note.subscription.subid for note in door.notices if isinstance(note, SubscriptionChanged)]

    await settled(lambda: bool(ended()))
    assert ended() == [leased]
    # Its items wait: the others have all the credit that they requested.
    await asyncio.sleep(0.1)
    locks = await core.ask(Locks(leaf, W1))
    assert isinstance(locks, HeldLocks) and len(locks.locks) == 2
    assert await core.ask(ManageSubscribers(node, ALICE, (Change(W1, last, "none"),))) == Managed(())
    assert (ended(), await names(core, node)) == ([leased, last], [first])
    again = await subscribed(core, node, 1)
    assert again.subid == leased
    # An owner who names no subid means all subscriptions of the JID.
    failed = await core.ask(ManageSubscribers(node, ALICE, (Change(W1, "9", "none"), Change(W2, "", "subscribed"))))
    assert isinstance(failed, Managed) and len(failed.failed) == 3
    assert await core.ask(ManageSubscribers(node, ALICE, (Change(W1, "", "none"),))) == Managed(())
    assert sorted(ended()[2:]) == sorted([first, again.subid]) and await names(core, node) == []
    others = [(await subscribed(core, node, 1)).subid for _ in range(2)]
    # An outcast loses all of them.
    assert await core.ask(Affiliate(node, ALICE, {Jid("w1@x"): "outcast"})) == Done()
    assert sorted(ended()[4:]) == sorted(others)


async def test_bounds(make_core: MakeCore, node: str) -> None:
    """P11, guarantee 6: the number for a JID is bounded; exclusive subscriptions are refused, and a log has one for each."""
    core, _door = await make_core()
    await declared(core, node, "one")
    first, second, *others = [(await subscribed(core, node, 1)).subid for _ in range(MOST_OF_ONE)]
    assert await problem(core, Subscribe(node, W1, W1, 1)) is Problem.TOO_MANY_SUBSCRIPTIONS
    assert await names(core, node) == sorted([first, second, *others]) and first == subid(W1)
    for alone in ({"group": "g"}, {"partitions": (0,)}, {"start": "@earliest"}):
        assert await problem(core, Subscribe(node, W2, W2, 1, **alone)) is Problem.OPTIONS_INVALID
    log = {**SEVERAL, "pubsub#queueing": ("0",)}
    assert await problem(core, Declare(f"{node}-log", ALICE, log)) is Problem.NOT_ACCEPTABLE
    # Switched off, existing ones stay; a subscribe finds the first of them.
    assert await core.ask(Configure(node, ALICE, {"stanzaq#multi_subscribe": ("0",)})) == Done()
    for each in (first, *others):
        assert isinstance(await core.ask(Unsubscribe(node, W1, W1, each)), Unsubscribed)
    assert (await subscribed(core, node, 7)).subid == second and await names(core, node) == [second]
    assert [(await subscribed(core, node, 1, W2)).subid for _ in range(2)] == [subid(W2)] * 2


async def test_plain_and_told_once(make_core: MakeCore, node: str) -> None:
    """P11, P24, H6: a plain node shows no subids; a notice about a node comes once to each JID, node events by subscription."""
    core, door = await make_core()
    assert await core.ask(Declare(node, ALICE, {})) == Declared(node)
    assert await subscribed(core, node, 2) == await subscribed(core, node, 2)
    await published(core, node, 2)
    assert [each.subid for each in door.deliveries] == ["", ""]
    leaf = await declared(core, f"{node}c", "tree")
    mine = [(W1, (await subscribed(core, f"{node}c", None)).subid) for _ in range(2)]
    await subscribed(core, f"{node}c", None, W2)
    assert await core.ask(Delete(leaf, ALICE)) == Done()
    told = [(note.subscriber, note.subid) for note in door.notices if isinstance(note, TreeEvent)]
    assert sorted(told) == sorted([*mine, (W2, "")])
    assert await core.ask(Delete(f"{node}c", ALICE)) == Done()


async def test_told_once_of_the_end(make_core: MakeCore, node: str) -> None:
    """P24: a JID is notified once of the end of a node, however many subscriptions it has."""
    core, door = await make_core()
    await declared(core, node, "one")
    for _ in range(3):
        await subscribed(core, node, 1)
    assert await core.ask(Delete(node, ALICE)) == Done()
    assert [(note.what, note.subscriber) for note in door.notices if isinstance(note, NodeEvent)] == [("delete", W1)]


class Play:
    """Two frontends, two JIDs with up to four subscriptions each, by chance; with records of each."""

    def __init__(self, seed: int, node: str, *frontends: tuple[RedisCore, Door]) -> None:
        """Choose by `seed`."""
        self.chance = random.Random(seed)
        self.node, self.leaf = node, node
        self.frontends = frontends
        self.credit: dict[tuple[Jid, str], int] = {}
        self.made: set[tuple[Jid, str]] = set()
        self.held: dict[int, Delivery] = {}
        self.seen = [0] * len(frontends)
        self.published = self.done = 0

    @property
    def core(self) -> RedisCore:
        """Give either frontend."""
        return self.chance.choice(self.frontends)[0]

    async def begin(self, jid: Jid) -> None:
        """Add a subscription of a JID."""
        made = await subscribed(self.core, self.node, self.chance.randint(1, MOST), jid)
        assert (jid, made.subid) not in self.credit
        self.credit[jid, made.subid] = made.credit
        self.made.add((jid, made.subid))

    async def subscribe(self) -> None:
        """Add a subscription of either JID."""
        jid = self.chance.choice([W1, W2])
        if sum(whose == jid for whose, _name in self.credit) < 4:
            await self.begin(jid)

    async def adjust(self) -> None:
        """Change the credit of one."""
        if self.credit:
            jid, name = self.chance.choice(list(self.credit))
            made = await self.core.ask(SetSubscriptionOptions(self.node, jid, jid, name, self.chance.randint(1, MOST)))
            assert isinstance(made, Subscribed) and made.subid == name
            self.credit[jid, name] = made.credit

    async def unsubscribe(self) -> None:
        """End a subscription without locks: its locks would count for the next of its name."""
        await self.take()
        for jid, name in list(self.credit):
            if self.chance.random() < 0.3 and not any(
                (d.subscriber, d.subid) == (jid, name) for d in self.held.values()
            ):
                assert isinstance(await self.core.ask(Unsubscribe(self.node, jid, jid, name)), Unsubscribed)
                del self.credit[jid, name]
                return

    async def publish(self) -> None:
        """Publish a few."""
        count = self.chance.randint(1, 5)
        await published(self.core, self.leaf, count)
        self.published += count

    async def take(self) -> None:
        """Record what was delivered."""
        for place, (_core, door) in enumerate(self.frontends):
            for delivery in door.deliveries[self.seen[place] :]:
                self.held[delivery.partition.number * 10**12 + delivery.token] = delivery
            self.seen[place] = len(door.deliveries)

    async def work(self) -> None:
        """Acknowledge some of it."""
        await self.take()
        for key in [key for key in self.held if self.chance.random() < 0.6]:
            delivery = self.held.pop(key)
            number = delivery.partition.number if delivery.partitioned else None
            asked = Retract(
                delivery.partition.node, delivery.subscriber, delivery.item_id, delivery.token, partition=number
            )
            outcome = await self.core.ask(asked)
            self.done += isinstance(outcome, Retracted)

    async def judge(self) -> None:
        """No subscription holds more than the most that was ever granted to one; no delivery is for an unknown one."""
        await self.take()
        held = Counter((delivery.subscriber, delivery.subid) for delivery in self.held.values())
        assert held.keys() <= self.made and max(held.values(), default=0) <= MOST, held


@SOMEWHERE
@pytest.mark.parametrize(("shape", "seed"), [("one", 1), ("tree", 3)])
async def test_play(make_core: MakeCore, node: str, shape: str, seed: int) -> None:
    """Guarantees 1 to 3: each holds only what it may, nothing is held twice, and all published items get done."""
    play = Play(seed, node, await make_core(), await make_core())
    play.leaf = await declared(play.core, node, shape)
    for jid in (W1, W1, W2):
        await play.begin(jid)
    acts = (play.subscribe, play.adjust, play.unsubscribe, play.publish, play.publish, play.work, play.work)
    for _ in range(60):
        await play.chance.choice(acts)()
        await play.judge()
    await play.begin(W1)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while play.done < play.published:
            await play.work()
            await asyncio.sleep(0.02)
    given = [(d.partition, d.token) for _core, door in play.frontends for d in door.deliveries]
    assert len(given) == len(set(given))
    # With nothing under way, each has exactly the credit that it requested.
    await published(play.core, play.leaf, sum(play.credit.values()) + 5)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(play.held) < sum(play.credit.values()):
            await asyncio.sleep(0.02)
            await play.take()
    await asyncio.sleep(0.2)
    await play.take()
    assert Counter((d.subscriber, d.subid) for d in play.held.values()) == play.credit
