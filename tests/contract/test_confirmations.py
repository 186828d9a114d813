"""Deliveries that need confirmation, by cores over a real server: any frontend receives the reply, any repeats due ones."""

import asyncio

import pytest

from broker import codec
from broker.model.commands import (
    Bounce,
    Command,
    Confirm,
    Declare,
    Locks,
    Options,
    Publish,
    Retract,
    SetSubscriptionOptions,
    Subscribe,
)
from broker.model.items.items import Delivery, Envelope
from broker.model.items.qos import Qos, Stage
from broker.model.names import Jid, Partition
from broker.model.problems import Problem
from broker.model.results import Done, HeldLocks, Refused, Retracted, Subscribed
from broker.redis_core.maintenance import heartbeat, sent_until
from frontends.tools.servers.redis import RedisServer
from tests.contract.conftest import MakeCore, lose_reply
from tests.contract.proxy import LossyNetwork
from tests.waiting import PATIENCE_SECONDS

ALICE = Jid("alice@x/home")
W1, W2 = Jid("w1@x/a"), Jid("w2@x/two words")
QUICK = {"qos_retry_seconds": "0.1", "qos_retry_most_seconds": "0.1", "qos_retries": "2"}

each_quality = pytest.mark.parametrize("qos", [Qos.ACKNOWLEDGED, Qos.ASSURED])


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make heartbeats frequent, so that no test waits for one."""
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 0.03)


def confirmed(delivery: Delivery, sender: Jid | None = None) -> Confirm:
    """Confirm a delivery."""
    return Confirm(sender or delivery.subscriber, delivery.partition, delivery.position, delivery.token, delivery.stage)


def item(node: str, item_id: str) -> Publish:
    """Publish an item."""
    body = codec.pack(Envelope(b"<x/>"))
    return Publish(node, ALICE, item_id, body, 4)


async def test_options(make_core: MakeCore, node: str) -> None:
    """P13: the level is granted, read and changed like the credit; a change that does not name it keeps it."""
    core, _ = await make_core()
    await core.ask(Declare(node, ALICE, {}))
    granted = await core.ask(Subscribe(node, W1, W1, 1, Qos.ASSURED))
    assert isinstance(granted, Subscribed) and granted.qos is Qos.ASSURED
    kept = await core.ask(SetSubscriptionOptions(node, W1, W1, "", 3))
    assert isinstance(kept, Subscribed) and (kept.credit, kept.qos) == (3, Qos.ASSURED)
    changed = await core.ask(SetSubscriptionOptions(node, W1, W1, "", 3, Qos.ACKNOWLEDGED))
    assert await core.ask(Options(node, W1, W1, "")) == changed
    anew = await core.ask(Subscribe(node, W1, W1, 1))
    assert isinstance(anew, Subscribed) and anew.qos is Qos.UNACKNOWLEDGED


async def test_the_handshake_over_two_frontends(make_core: MakeCore, node: str) -> None:
    """SX13: each reply may reach another frontend than the one that sent the request; that one continues."""
    (one, first), (two, second) = await make_core(), await make_core()
    await one.ask(Declare(node, ALICE, {}))
    await one.ask(Subscribe(node, W1, W1, 1, Qos.ASSURED))
    await one.ask(item(node, "a"))
    (assured,) = first.deliveries
    assert assured.stage is Stage.ASSURED
    assert await two.ask(confirmed(assured)) == Done()
    (go,) = second.deliveries
    assert (go.stage, go.token, go.item_id, go.envelope) == (Stage.DELIVER, assured.token, "a", b"")
    held = await one.ask(Locks(node, W1))
    assert isinstance(held, HeldLocks) and held.locks[0].deadline_ms == go.deadline_ms
    assert await one.ask(confirmed(go)) == Done()
    assert await one.ask(confirmed(go)) == Done()
    assert isinstance(await one.ask(Retract(node, W1, "a", go.token)), Retracted)
    assert (len(first.deliveries), len(second.deliveries)) == (1, 1)


@each_quality
async def test_what_is_forged_or_late(make_core: MakeCore, node: str, qos: Qos) -> None:
    """Bad input: a confirmation by a stranger, of another lock or of an earlier incarnation changes nothing."""
    core, door = await make_core()
    await core.ask(Declare(node, ALICE, {}))
    await core.ask(Subscribe(node, W1, W1, 1, qos))
    await core.ask(item(node, "a"))
    (sent,) = door.deliveries
    place, stage = sent.position, sent.stage
    earlier = Partition(node, "another", 0)
    forged: tuple[Command, ...] = (
        confirmed(sent, W2),
        confirmed(sent, Jid("w1@x/b")),
        Confirm(W1, sent.partition, place, sent.token + 1, stage),
        Confirm(W1, sent.partition, "1-1", sent.token, stage),
        Confirm(W1, earlier, place, sent.token, stage),
        Bounce(W1, earlier, place, sent.token, gone=True, stage=stage),
        Bounce(W1, sent.partition, place, sent.token, gone=True, stage=Stage.DELIVER),
        Bounce(W2, sent.partition, place, sent.token, gone=True, stage=stage),
    )
    for command in forged:
        refused = await core.ask(command)
        assert isinstance(refused, Refused) and refused.problem is Problem.LOCK_LOST, command
    assert await core.ask(confirmed(sent)) == Done()


@each_quality
async def test_silence(quick: None, make_core: MakeCore, node: str, qos: Qos) -> None:
    """S5, S6: any frontend sends again as often as configured, always with one token; then the item goes to the next worker."""
    (one, first), (_two, second) = await make_core(**QUICK), await make_core(**QUICK)
    await one.ask(Declare(node, ALICE, {}))
    await one.ask(Subscribe(node, W1, W1, 1, qos))
    await one.ask(item(node, "a"))
    await one.ask(Subscribe(node, W2, W2, 1))

    async with asyncio.timeout(PATIENCE_SECONDS):
        while not any(d.subscriber == W2 for d in [*first.deliveries, *second.deliveries]):  # noqa: ASYNC110  (two doors)
            await asyncio.sleep(0.01)
    sent = [d for d in [*first.deliveries, *second.deliveries] if d.subscriber == W1]
    assert [(d.token, d.stage.value, d.attempt) for d in sent] == [(sent[0].token, qos.value, 1)] * 3


async def test_frontend_dies_between_the_steps(
    quick: None, monkeypatch: pytest.MonkeyPatch, make_core: MakeCore, node: str
) -> None:
    """X8: one frontend dies after `received`, before it sends `deliver`; another sends it, and never the item again."""
    monkeypatch.setattr(heartbeat, "DEAD_AFTER_MS", 200)
    monkeypatch.setattr(sent_until, "READ_SECONDS", 0.0)
    (dying, door), (other, its_door) = await make_core(), await make_core()
    await dying.ask(Declare(node, ALICE, {}))
    await dying.ask(Subscribe(node, W1, W1, 1, Qos.ASSURED))
    await dying.ask(item(node, "a"))
    (assured,) = door.deliveries
    door.writes = False
    await dying.ask(confirmed(assured))
    for task in dying._running:
        task.cancel()
    await its_door.until(lambda: bool(its_door.deliveries))
    assert {(d.stage, d.token) for d in its_door.deliveries} == {(Stage.DELIVER, assured.token)}
    assert await other.ask(confirmed(its_door.deliveries[0])) == Done()


async def test_lost_reply(make_core: MakeCore, valkey: RedisServer, node: str) -> None:
    """X8: when the reply to a confirmation is lost, the items that it handed out are found and sent."""
    async with LossyNetwork(valkey.url.removeprefix("unix://")) as network:
        core, door = await make_core(network.url)
        await core.ask(Declare(node, ALICE, {}))
        await core.ask(Subscribe(node, W1, W1, 1, Qos.ASSURED))
        await core.ask(item(node, "a"))
        (assured,) = door.deliveries
        await lose_reply(core, network, node, confirmed(assured), about=str(assured.token))
        await door.until(lambda: len(door.deliveries) > 1)
        assert {(d.stage, d.token) for d in door.deliveries[1:]} == {(Stage.DELIVER, assured.token)}
        assert await core.ask(confirmed(assured)) == Done()
        assert await core.ask(confirmed(door.deliveries[1])) == Done()
