"""Deliveries in batches, by cores over a real server."""

from collections.abc import Sequence
from itertools import pairwise

import pytest

from broker import codec
from broker.model.commands import Confirm, Declare, Locks, Options, Publish, SetSubscriptionOptions, Subscribe
from broker.model.items.items import Delivery, Envelope
from broker.model.items.qos import Qos, Stage
from broker.model.names import Jid
from broker.model.results import Done, HeldLocks, Subscribed
from broker.redis_core.core import RedisCore
from broker.redis_core.maintenance import heartbeat, sent_until
from broker.redis_core.partitions.delivery_batches import BYTES
from tests.contract.conftest import Asked, Door, MakeCore

ALICE = Jid("alice@x/home")
W1, W2 = Jid("w1@x/a"), Jid("w2@x/b")


async def published(core: RedisCore, node: str, *sizes: int) -> None:
    """Publish items of these sizes in one turn of the event loop."""
    asked = Asked(core)
    for number, size in enumerate(sizes):
        body = codec.pack(Envelope(b"x" * size))
        asked.submit(Publish(node, ALICE, f"item{number}", body, size, partition=0))
    await asked.settled()


def named(batch: Sequence[Delivery]) -> tuple[tuple[str, int], ...]:
    """Return the locks as an answer names them."""
    return tuple((each.position, each.token) for each in batch)


def confirmed(batch: Sequence[Delivery], message: str = "") -> Confirm:
    """Confirm a batch."""
    first = batch[0]
    return Confirm(
        *(first.subscriber, first.partition, first.position, first.token, first.stage), named(batch[1:]), message
    )


async def test_the_option(make_core: MakeCore, node: str) -> None:
    """P13: it is granted, read, kept and changed like the level."""
    core, door = await make_core()
    await core.ask(Declare(node, ALICE, {}))
    granted = await core.ask(Subscribe(node, W1, W1, 10, batch=20))
    assert isinstance(granted, Subscribed) and granted.batch == 20
    kept = await core.ask(SetSubscriptionOptions(node, W1, W1, "", 10, Qos.ACKNOWLEDGED))
    assert await core.ask(Options(node, W1, W1, "")) == kept
    assert isinstance(kept, Subscribed) and (kept.qos, kept.batch) == (Qos.ACKNOWLEDGED, 20)
    await published(core, node, 1)
    await door.until(lambda: [each.batch for each in door.deliveries] == [20])
    changed = await core.ask(SetSubscriptionOptions(node, W1, W1, "", 10, batch=1))
    assert isinstance(changed, Subscribed) and changed.batch == 1


async def test_the_option_of_a_member(make_core: MakeCore, node: str) -> None:
    """P13: it holds in all partitions that a member of a group owns."""
    core, door = await make_core()
    await core.ask(Declare(node, ALICE, {"stanzaq#partitions": ("2",)}))
    member = await core.ask(Subscribe(node, W2, W2, 10, group="g", batch=3))
    assert isinstance(member, Subscribed) and (len(member.owned), member.batch) == (2, 3)
    for partition in range(2):
        await core.ask(Publish(node, ALICE, None, codec.pack(Envelope(b"x")), 1, partition=partition))
    await door.until(lambda: [each.batch for each in door.deliveries] == [3, 3])


async def test_credit_turns_and_bytes(make_core: MakeCore, node: str) -> None:
    """Guarantee 3, Q30: batches change neither who gets an item nor how many it may hold, and have a bound of bytes."""
    core, door = await make_core()
    await core.ask(Declare(node, ALICE, {}))
    await published(core, node, *[BYTES // 3] * 20)
    await core.ask(Subscribe(node, W1, W1, 7, batch=5))
    await door.until(lambda: len(door.deliveries) == 7)
    # Two items and their envelopes are below a third of the bound each, and three above it.
    assert [len(batch) for batch in door.batches] == [2, 2, 2, 1]
    await core.ask(Subscribe(node, W2, W2, 4, batch=100))
    await door.until(lambda: len(door.deliveries) == 11)
    held = [await core.ask(Locks(node, jid)) for jid in (W1, W2)]
    assert [len(each.locks) for each in held if isinstance(each, HeldLocks)] == [7, 4]
    assert len({each.token for each in door.deliveries}) == 11


async def test_turns(make_core: MakeCore, node: str) -> None:
    """Q30: workers with credit take turns, one item each, and each gets its own of one script call together."""
    core, door = await make_core()
    await core.ask(Declare(node, ALICE, {}))
    for jid in (W1, W2):
        await core.ask(Subscribe(node, jid, jid, 5, batch=3))
    await published(core, node, *[1] * 8)
    await door.until(lambda: len(door.deliveries) == 8)
    turns = [each.subscriber for each in sorted(door.deliveries, key=lambda each: each.token)]
    assert all(one != other for one, other in pairwise(turns))
    assert max(len(batch) for batch in door.batches) == 3
    assert all(len({each.subscriber for each in batch}) == 1 for batch in door.batches)


@pytest.fixture
def mortal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a frontend be dead soon after its last heartbeat."""
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 0.03)
    monkeypatch.setattr(heartbeat, "DEAD_AFTER_MS", 200)
    monkeypatch.setattr(sent_until, "READ_SECONDS", 0.0)


async def _dying(core: RedisCore, door: Door, node: str, qos: Qos) -> Sequence[Delivery]:
    """Hand out a batch by a frontend that dies before it writes it."""
    await core.ask(Declare(node, ALICE, {}))
    await core.ask(Subscribe(node, W1, W1, 3, qos, batch=3))
    door.writes = False
    await published(core, node, 1, 1, 1)
    for task in core._running:
        task.cancel()
    assert len(door.batches[0]) == 3
    return door.batches[0]


@pytest.mark.parametrize("qos", [Qos.UNACKNOWLEDGED, Qos.ASSURED])
async def test_a_frontend_dies_before_it_writes(mortal: None, make_core: MakeCore, node: str, qos: Qos) -> None:
    """X8: another one sends each item of the batch under its lock, and one handshake of each suffices."""
    (dying, door), (other, its_door) = await make_core(), await make_core()
    batch = await _dying(dying, door, node, qos)
    await its_door.until(lambda: {each.token for each in its_door.deliveries} == {each.token for each in batch})
    if qos is Qos.ASSURED:
        assert await other.ask(confirmed(its_door.deliveries[:1])) == Done()
        await its_door.until(lambda: any(each.stage is Stage.DELIVER for each in its_door.deliveries))


async def test_one_handshake_over_two_frontends(make_core: MakeCore, node: str) -> None:
    """S9, SX13: one answer to a batch lets the frontend that gets it send one notice for all items."""
    (one, first), (two, second) = await make_core(), await make_core()
    await one.ask(Declare(node, ALICE, {}))
    await one.ask(Subscribe(node, W1, W1, 3, Qos.ASSURED, batch=3))
    await published(one, node, 1, 1, 1)
    (assured,) = first.batches
    assert await two.ask(confirmed(assured, "5.x")) == Done()
    (go,) = second.batches
    assert [(each.stage, each.token, each.message) for each in go] == [
        (Stage.DELIVER, each.token, "5.x") for each in assured
    ]
    assert await one.ask(confirmed(go)) == Done()
    assert await two.ask(confirmed(assured, "5.x")) == Done()
    assert (len(first.batches), len(second.batches)) == (1, 1)
