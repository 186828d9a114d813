"""A pool under random events and frontends that work at the same time: the credit is never exceeded."""

import asyncio
import random
import secrets
from statistics import median

import pytest

from broker import codec
from broker.model.commands import (
    Associate,
    Declare,
    Dissociate,
    Locks,
    Options,
    Publish,
    Retract,
    Stats,
    Subscribe,
)
from broker.model.items.items import Delivery, Envelope
from broker.model.names import Jid
from broker.model.nodes.tree import Scope, SubscriptionType
from broker.model.results import Counted, Declared, HeldLocks, Published, Retracted, Subscribed
from broker.redis_core.core import RedisCore
from tests.contract.conftest import SOMEWHERE, Door, MakeCore
from tests.redis_latency import late
from tests.seeds import seeds
from tests.waiting import PATIENCE_SECONDS

ALICE = Jid("alice@x/home")
ALL = Scope(SubscriptionType.ITEMS, None)
MOST = 5


class Play:
    """Two frontends, three workers, two collections, four leaves."""

    def __init__(self, seed: int, *frontends: tuple[RedisCore, Door]) -> None:
        """Choose by `seed`."""
        self.chance = random.Random(seed)
        self.frontends = frontends
        tag = secrets.token_hex(3)
        self.top, self.sub = f"all{tag}", f"sub{tag}"
        self.leaves = {f"l{number}{tag}": 1 for number in range(4)}
        self.jids = [Jid(f"w{number}@x/r") for number in range(3)]
        self.held: dict[Jid, dict[tuple[str, int, int], Delivery]] = {jid: {} for jid in self.jids}
        self.seen = [0] * len(frontends)
        self.published = self.done = 0

    @property
    def core(self) -> RedisCore:
        """Give either frontend."""
        return self.chance.choice(self.frontends)[0]

    @property
    def leaf(self) -> str:
        """Give any leaf."""
        return self.chance.choice(list(self.leaves))

    @property
    def above(self) -> str:
        """Return either collection."""
        return self.chance.choice([self.top, self.sub])

    async def begin(self) -> None:
        """Make the tree, and let all work."""
        kind = {"pubsub#node_type": ("collection",)}
        assert await self.core.ask(Declare(self.top, ALICE, kind)) == Declared(self.top)
        below = {**kind, "pubsub#collection": (self.top,)}
        assert await self.core.ask(Declare(self.sub, ALICE, below)) == Declared(self.sub)
        for leaf in self.leaves:
            await self.core.ask(Declare(leaf, ALICE, {"pubsub#collection": (self.above,)}))
        for jid in self.jids:
            await self.subscribe(jid)

    async def subscribe(self, jid: Jid) -> None:
        """Subscribe, or ask for another credit."""
        granted = await self.core.ask(Subscribe(self.top, jid, jid, self.chance.randint(1, MOST), scope=ALL))
        assert isinstance(granted, Subscribed), granted

    async def resubscribe(self) -> None:
        """Let somebody ask for another credit."""
        await self.subscribe(self.chance.choice(self.jids))

    async def associate(self) -> None:
        """Move a leaf."""
        await self.core.ask(Associate(self.above, ALICE, self.leaf))

    async def dissociate(self) -> None:
        """Take a leaf out of the tree, if it is there."""
        await self.core.ask(Dissociate(self.above, ALICE, self.leaf))

    async def publish(self) -> None:
        """Publish a few items at once."""
        core, leaf = self.core, self.leaf
        items = [Publish(leaf, ALICE, None, codec.pack(Envelope(b"<x/>")), 4) for _ in range(self.chance.randint(1, 6))]
        for outcome in await asyncio.gather(*map(core.ask, items)):
            assert isinstance(outcome, Published), outcome
            self.published += 1

    async def work(self) -> None:
        """Take what was delivered, and finish some of it."""
        for place, (_core, door) in enumerate(self.frontends):
            for delivery in door.deliveries[self.seen[place] :]:
                partition = delivery.partition
                self.held[delivery.subscriber][partition.node, partition.number, delivery.token] = delivery
            self.seen[place] = len(door.deliveries)
        for jid in self.jids:
            for key in [key for key in self.held[jid] if self.chance.random() < 0.6]:
                delivery = self.held[jid].pop(key)
                asked = Retract(key[0], jid, delivery.item_id, delivery.token, partition=key[1])
                # An item of a leaf that has left the tree is not the worker's any more.
                self.done += isinstance(await self.core.ask(asked), Retracted)

    async def judge(self) -> None:
        """Check that nobody holds more than the most that was ever granted to it."""
        for jid in self.jids:
            locks = [await self.core.ask(Locks(leaf, jid)) for leaf in self.leaves]
            assert sum(len(each.locks) for each in locks if isinstance(each, HeldLocks)) <= MOST, "credit exceeded"

    async def granted(self) -> int:
        """Return the last granted credit of all."""
        options = [await self.core.ask(Options(self.top, jid, jid, "")) for jid in self.jids]
        return sum(each.credit for each in options if isinstance(each, Subscribed))

    async def free(self) -> int:
        """Return the free credit, wherever it is."""
        counted = [await self.core.ask(Stats(node, ALICE)) for node in (self.top, *self.leaves)]
        return sum(each.credit_free for each in counted if isinstance(each, Counted))


@SOMEWHERE
@pytest.mark.parametrize("seed", seeds(1))
async def test_whatever_happens(make_core: MakeCore, seed: int) -> None:
    """Guarantee 3, H7: leaves move, subscriptions change, and the credit is never exceeded.

    At the end all published items are done, and all credit is free.
    """
    await played(Play(seed, await make_core(), await make_core()), 30)


async def test_whatever_happens_late(make_core: MakeCore) -> None:
    """The same with a Redis whose replies take varying times: the order of arrival changes nothing."""
    with late("3"):
        await played(Play(3, await make_core(), await make_core()), 6)


async def played(play: Play, steps: int) -> None:
    """Run many events, and then wait until all is quiet."""
    await play.begin()
    happenings = [play.associate, play.dissociate, play.resubscribe, *[play.publish] * 4]
    for _step in range(steps):
        # Some of them at the same moment.
        await asyncio.gather(*(happening() for happening in play.chance.choices(happenings, k=2)))
        await play.judge()
        await play.work()
    for leaf in play.leaves:
        await play.core.ask(Associate(play.top, ALICE, leaf))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while play.done < play.published:
            await play.work()
            await asyncio.sleep(0.01)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await play.free() != await play.granted():  # noqa: ASYNC110  (what moves credit tells nobody)
            await asyncio.sleep(0.05)


@SOMEWHERE
async def test_nothing_waits_beside_free_credit(make_core: MakeCore) -> None:
    """H7: wherever below a collection an item comes, through whichever frontend, free credit reaches it in a moment."""
    play = Play(0, await make_core(), await make_core())
    await play.begin()
    spans = []
    for _number in range(20):
        began = asyncio.get_running_loop().time()
        await play.publish()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while play.done < play.published:
                await play.work()
                await asyncio.sleep(0.005)
        spans.append(asyncio.get_running_loop().time() - began)
    # Not with the next scan, which would take seconds each time.
    assert median(spans) < 2, spans
