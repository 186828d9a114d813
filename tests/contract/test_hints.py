"""Delay, priority and time to live over a real server: the frontends keep time, and every way of publishing carries them."""

import asyncio
import time
from collections.abc import Sequence

from broker.model.commands import (
    Declare,
    Deliver,
    InspectItems,
    PrepareMessage,
    Publish,
    Redeem,
    Reserve,
    Retract,
    Stats,
    Subscribe,
    Unlock,
)
from broker.model.items.hints import Hints
from broker.model.names import Jid
from broker.model.problems import Problem
from broker.model.results import Counted, Done, InspectedItems, Published, Refused, Reserved
from broker.redis_core.core import RedisCore
from tests.contract.conftest import SOMEWHERE, Door, MakeCore
from tests.waiting import PATIENCE_SECONDS

pytestmark = SOMEWHERE

ALICE, W1 = Jid("alice@localhost/home"), Jid("w1@localhost/a")


def asking(node: str, item: str | None, hints: Hints = Hints(), key: str = "") -> Publish:  # noqa: B008  (a value)
    """Make a publish with these options."""
    return Publish(node, ALICE, item, b"payload", 7, key=key, hints=hints)


def handed(door: Door) -> Sequence[str]:
    """Return the items that were handed out."""
    return [delivery.item_id for delivery in door.deliveries]


def counter(core: RedisCore, name: str) -> float:
    """Read a counter."""
    return core.metrics.registry.get_sample_value(f"stanzaq_{name}_total") or 0.0


async def test_each_at_its_time(make_core: MakeCore, node: str) -> None:
    """Q32: nothing is handed out before its time or after its expiry, without any command then.

    Expired items are counted once.
    """
    core, door = await make_core()
    await core.ask(Declare(node, ALICE, {}))
    await core.ask(Subscribe(node, W1, W1, 10))
    began = time.monotonic()
    assert isinstance(await core.ask(asking(node, "late", Hints(400))), Published)
    assert isinstance(await core.ask(asking(node, "over", Hints(300, 4, 301))), Published)
    assert isinstance(await core.ask(asking(node, "held", Hints(ttl_ms=350))), Published)
    await door.until(lambda: "held" in handed(door))
    held = next(each for each in door.deliveries if each.item_id == "held")
    await door.until(lambda: "late" in handed(door))
    assert time.monotonic() - began >= 0.4
    await core.ask(Unlock(node, W1, "held", held.token))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while counter(core, "perished") + ("over" in handed(door)) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    assert handed(door).count("held") == 1
    counted = await core.ask(Stats(node, ALICE))
    assert isinstance(counted, Counted) and counted.waiting == 0 and counted.delayed == 0


async def test_the_urgent_first_whatever_way_they_come(make_core: MakeCore, node: str) -> None:
    """RX1, S11: a publish, an assured message and a reserved one carry their options; an owner sees them."""
    core, door = await make_core()
    await core.ask(Declare(node, ALICE, {}))
    await core.ask(asking(node, "usual"))
    reserved = await core.ask(Reserve(node, ALICE))
    assert isinstance(reserved, Reserved)
    redeem = Redeem(node, ALICE, reserved.item_id, b"payload", 7, hints=Hints(priority=6))
    assert isinstance(await core.ask(redeem), Published)
    assert isinstance(
        await core.ask(PrepareMessage(ALICE, "m1", asking(node, "assured", Hints(0, 7, 60_000)), "m1")), Done
    )
    assert isinstance(await core.ask(Deliver(ALICE, "m1")), Done)
    await core.ask(asking(node, "low", Hints(priority=0)))
    seen = await core.ask(InspectItems(node, ALICE, (), 50))
    assert isinstance(seen, InspectedItems)
    assert {one.item_id: (one.priority, one.ends_ms > 0) for one in seen.items} == {
        "usual": (4, False),
        reserved.item_id: (6, False),
        "assured": (7, True),
        "low": (0, False),
    }
    await core.ask(Subscribe(node, W1, W1, 1))
    order = ["assured", reserved.item_id, "usual", "low"]
    for number, item in enumerate(order):
        await door.until(lambda number=number: len(door.deliveries) > number)  # type: ignore[misc]
        assert handed(door)[number] == item
        await core.ask(Retract(node, W1, item))


async def test_logs_refuse(make_core: MakeCore, node: str) -> None:
    """Guarantee 7: a log hands nothing out as work, so these options are refused."""
    core, _ = await make_core()
    await core.ask(Declare(node, ALICE, {"pubsub#queueing": ("0",)}))
    for hints in (Hints(1), Hints(priority=5), Hints(ttl_ms=1)):
        refused = await core.ask(asking(node, "a", hints))
        assert isinstance(refused, Refused) and refused.problem is Problem.UNSUPPORTED
    # A time in the past is no delay.
    assert isinstance(await core.ask(asking(node, "a", Hints.validate(None, None, None, at=1))), Published)
    assert isinstance(await core.ask(asking(node, "a")), Published)
