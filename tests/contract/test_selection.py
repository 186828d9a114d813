"""Subscriptions with selectors, over a real server: requested, shown and refused, and items that find their subscribers."""

import asyncio
import random
import time

import pytest

from broker import codec
from broker.model.commands import (
    Declare,
    Options,
    Publish,
    Retract,
    SetSubscriptionOptions,
    Stats,
    Subscribe,
    Unlock,
    Unsubscribe,
)
from broker.model.items.items import Delivery, Envelope
from broker.model.names import Jid
from broker.model.nodes.tree import Scope, SubscriptionType
from broker.model.problems import Problem
from broker.model.results import Counted, Declared, Published, Refused, Retracted, Subscribed, Unlocked, Unsubscribed
from broker.redis_core.core import RedisCore
from broker.selectors.text import read
from broker.selectors.values import selects
from tests.contract.conftest import Door, MakeCore, Store
from tests.seeds import seeds
from tests.waiting import PATIENCE_SECONDS

ALICE = Jid("alice@x/home")
W1, W2, W3 = Jid("w1@x/a"), Jid("w2@x/b"), Jid("w3@x/c")
IS_RED, IS_BLUE = "color = 'red'", "color = 'blue'"


def item(node: str, color: str, item_id: str | None = None) -> Publish:
    """Publish an item of a color."""
    return Publish(node, ALICE, item_id, codec.pack(Envelope(b"<x/>", headers={"color": color})), 4)


def subscribe(node: str, jid: Jid, credit: int, selector: str = "", scope: Scope | None = None) -> Subscribe:
    """Subscribe with a selector."""
    return Subscribe(node, jid, jid, credit, scope=scope, selector=selector)


async def declared(core: RedisCore, node: str) -> None:
    """Create a node."""
    assert await core.ask(Declare(node, ALICE, {})) == Declared(node)


def refused(outcome: object, problem: Problem = Problem.OPTIONS_INVALID) -> str:
    """Give the words of a refusal."""
    assert isinstance(outcome, Refused) and outcome.problem is problem, outcome
    return outcome.detail


async def test_said_and_shown(core: RedisCore, door: Door, node: str) -> None:
    """P13, issue 9: a selector is granted as requested, kept when another option changes, and changed and removed."""
    await declared(core, node)
    said = "color\n IN ('red',\t'grün')"
    granted = await core.ask(subscribe(node, W1, 2, said))
    assert isinstance(granted, Subscribed) and granted.selector == said
    shown = await core.ask(Options(node, W1, W1, ""))
    assert isinstance(shown, Subscribed) and (shown.selector, shown.credit) == (said, 2)
    kept = await core.ask(SetSubscriptionOptions(node, W1, W1, "", 3))
    assert isinstance(kept, Subscribed) and (kept.selector, kept.credit) == (said, 3)
    await core.ask(item(node, "blue", "b"))
    await core.ask(item(node, "grün", "g"))
    await door.until(lambda: [each.item_id for each in door.deliveries] == ["g"])
    changed = await core.ask(SetSubscriptionOptions(node, W1, W1, "", 2, selector=IS_BLUE))
    assert isinstance(changed, Subscribed) and changed.selector == IS_BLUE
    await door.until(lambda: len(door.deliveries) == 2)
    gone = await core.ask(SetSubscriptionOptions(node, W1, W1, "", 3, selector=""))
    assert isinstance(gone, Subscribed) and gone.selector == ""
    await core.ask(item(node, "none", "n"))
    await door.until(lambda: len(door.deliveries) == 3)


async def test_refusals(core: RedisCore, node: str) -> None:
    """Bad input is a clear error for its sender: an unreadable selector, or one where nothing can be selected."""
    await declared(core, node)
    assert "character 9" in refused(await core.ask(subscribe(node, W1, 2, "color = ")))
    assert isinstance(await core.ask(subscribe(node, W1, 2, IS_RED)), Subscribed)
    assert "line 2, column 1" in refused(
        await core.ask(SetSubscriptionOptions(node, W1, W1, "", 2, selector="color\n)"))
    )
    shown = await core.ask(Options(node, W1, W1, ""))
    assert isinstance(shown, Subscribed) and shown.selector == IS_RED
    stream = Subscribe(node, W2, W2, 5, start="@earliest", selector=IS_RED)
    assert "log readers and partition owners" in refused(await core.ask(stream))
    owner = Subscribe(node, W2, W2, 5, partitions=(0,), group="g", selector=IS_RED)
    assert "partition owners receive everything" in refused(await core.ask(owner))


async def test_below_a_collection(core: RedisCore, door: Door, node: str) -> None:
    """H6: a subscription to a collection takes what the queue's own subscribers do not select, and selects nothing itself."""
    top = f"{node}-all"
    assert await core.ask(Declare(top, ALICE, {"pubsub#node_type": ("collection",)})) == Declared(top)
    assert await core.ask(Declare(node, ALICE, {"pubsub#collection": (top,)})) == Declared(node)
    everything = Scope(SubscriptionType.ITEMS, None)
    assert "has no selector" in refused(await core.ask(subscribe(top, W1, 9, IS_RED, everything)))
    assert isinstance(await core.ask(subscribe(top, W1, 9, "", everything)), Subscribed)
    assert "has no selector" in refused(await core.ask(SetSubscriptionOptions(top, W1, W1, "", 9, selector=IS_RED)))
    assert isinstance(await core.ask(subscribe(node, W2, 9, IS_BLUE)), Subscribed)
    for color in ("blue", "red", "white", "blue"):
        assert isinstance(await core.ask(item(node, color)), Published)
    await door.until(lambda: len(door.deliveries) == 4)
    assert [each.subscriber for each in door.deliveries].count(W2) == 2


class Workers:
    """Workers of several frontends that acknowledge and release, and never get an item that they do not select."""

    def __init__(self, node: str, dice: random.Random) -> None:
        """Begin with nobody."""
        self.node, self.dice = node, dice
        self.chosen: dict[Jid, tuple[int, str]] = {}
        self.colors: dict[str, str] = {}
        self.held: dict[Jid, dict[str, Delivery]] = {}
        self.done: list[str] = []

    async def join(self, core: RedisCore, jid: Jid, credit: int, selector: str = "") -> None:
        """Add a worker."""
        self.chosen[jid] = (credit, selector)
        self.held.setdefault(jid, {})
        assert isinstance(await core.ask(subscribe(self.node, jid, credit, selector)), Subscribed)

    def take(self, delivery: Delivery) -> None:
        """Take a delivery."""
        credit, selector = self.chosen[delivery.subscriber]
        color = self.colors[delivery.item_id]
        assert not selector or selects(read(selector), {"a.color": color}), (selector, color)
        held = self.held[delivery.subscriber]
        held[delivery.item_id] = delivery
        assert len(held) <= credit, "credit exceeded"

    async def finish(self, core: RedisCore, jid: Jid) -> None:
        """Acknowledge or release one of a worker's items."""
        delivery = self.held[jid].pop(self.dice.choice(list(self.held[jid])))
        token = delivery.token
        if self.dice.random() < 0.2:
            back = Unlock(self.node, jid, delivery.item_id, token, delay_ms=self.dice.choice((0, 30)))
            assert await core.ask(back) == Unlocked(jid)
        else:
            asked = Retract(self.node, jid, delivery.item_id, token)
            assert await core.ask(asked) == Retracted(jid)
            self.done.append(delivery.item_id)


@pytest.mark.parametrize("seed", seeds(1))
async def test_play(make_core: MakeCore, node: str, seed: int) -> None:
    """Credit finds the items that it selects; items that nobody selects wait, and go in the end."""
    fronts = [await make_core(), await make_core()]
    cores = [core for core, _door in fronts]
    dice = random.Random(seed)
    await declared(cores[0], node)
    workers = Workers(node, dice)
    await workers.join(cores[0], W1, 2, IS_RED)
    await workers.join(cores[1], W2, 1, "color IN ('blue', 'red')")
    seen = [0, 0]

    async def play(until: int) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(workers.done) < until:
                for number, (_core, door) in enumerate(fronts):
                    for delivery in door.deliveries[seen[number] :]:
                        workers.take(delivery)
                    seen[number] = len(door.deliveries)
                busy = [jid for jid, held in workers.held.items() if held]
                if busy:
                    await workers.finish(dice.choice(cores), dice.choice(busy))
                await asyncio.sleep(0.001)

    colors = [dice.choice(("red", "blue", "green")) for _ in range(80)]
    workers.colors = {f"i{number}": color for number, color in enumerate(colors)}
    for number, color in enumerate(colors):
        assert isinstance(await dice.choice(cores).ask(item(node, color, f"i{number}")), Published)
    green = colors.count("green")
    await play(len(colors) - green)
    counted = await cores[0].ask(Stats(node, ALICE))
    assert isinstance(counted, Counted)
    assert (counted.waiting, counted.in_flight) == (green, 0) and len(set(workers.done)) == len(workers.done)
    await workers.join(cores[0], W3, 3)
    await play(len(colors))
    assert isinstance(await cores[1].ask(Unsubscribe(node, W1, W1, "")), Unsubscribed)


async def test_nobody_asks_in_vain(core: RedisCore, node: str, store: Store) -> None:
    """Items that nobody selects, or that wait for somebody without credit, keep no partition and no frontend busy."""
    await declared(core, node)
    await core.ask(subscribe(node, W1, 1, IS_RED))
    for color in ("green", "red", "red"):
        await core.ask(item(node, color))
    await asyncio.sleep(0.5)

    async with store.client() as client:
        before, began = (await client.info("commandstats"))["cmdstat_fcall"]["calls"], time.monotonic()
        await asyncio.sleep(1.5)
        after = (await client.info("commandstats"))["cmdstat_fcall"]["calls"]
    assert (after - before) / (time.monotonic() - began) < 40
