"""Reserved items over a real server: the two steps on two frontends, crashes between them, and permissions (RX1)."""

import asyncio

import pytest

from broker.model.commands import Browse, Configure, Declare, Delete, Publish, Redeem, Reserve, Retract
from broker.model.items.items import Listed
from broker.model.names import Jid
from broker.model.problems import CoreUnavailable, Problem
from broker.model.results import Browsed, Done, Published, Refused, Reserved, Result
from broker.redis_core import exactly_once
from broker.redis_core.core import RedisCore
from tests.contract.conftest import SOMEWHERE, MakeCore
from tests.waiting import PATIENCE_SECONDS

pytestmark = SOMEWHERE

ALICE, BOB = Jid("alice@localhost"), Jid("bob@localhost")


async def reserved(core: RedisCore, node: str, sender: Jid = ALICE) -> str:
    """Reserve an item."""
    made = await core.ask(Reserve(node, sender))
    assert isinstance(made, Reserved)
    return made.item_id


def redeem(node: str, item: str, body: bytes = b"payload", sender: Jid = ALICE) -> Redeem:
    """Send its body."""
    return Redeem(node, sender, item, body, len(body))


async def listed(core: RedisCore, node: str) -> tuple[Listed, ...]:
    """Browse the node."""
    browsed = await core.ask(Browse(node, ALICE, (), 500))
    assert isinstance(browsed, Browsed)
    return browsed.items


def problem(result: Result) -> Problem:
    """Return the problem of a refusal."""
    assert isinstance(result, Refused)
    return result.problem


async def test_two_frontends(make_core: MakeCore, node: str) -> None:
    """However often and wherever the body is sent, there is one item, also after a worker has finished it."""
    one, other = [(await make_core())[0] for _frontend in range(2)]
    await one.ask(Declare(node, ALICE, {"stanzaq#partitions": ("4",)}))
    item = await reserved(one, node)
    assert await listed(other, node) == ()
    results = await asyncio.gather(*(core.ask(redeem(node, item)) for core in (one, other) * 4))
    assert {result.item_id for result in results if isinstance(result, Published)} == {item}
    assert [(each.item_id, each.envelope) for each in await listed(other, node)] == [(item, b"payload")]
    assert problem(await other.ask(redeem(node, item, b"another"))) is Problem.RESERVATION_USED
    await one.ask(Retract(node, ALICE, item))
    assert await other.ask(redeem(node, item)) == Published(item, duplicate=True)
    assert await listed(one, node) == ()


async def test_whose_it_is(make_core: MakeCore, node: str) -> None:
    """An id is reserved for one sender in one node; a JID that may not publish reserves nothing."""
    core, _ = await make_core()
    await core.ask(Declare(node, ALICE, {}))
    await core.ask(Declare(f"{node}-2", ALICE, {}))
    item = await reserved(core, node)
    assert problem(await core.ask(redeem(f"{node}-2", item))) is Problem.ITEM_NOT_FOUND
    assert problem(await core.ask(Reserve(node, BOB))) is Problem.FORBIDDEN
    assert problem(await core.ask(redeem(node, item, sender=BOB))) is Problem.FORBIDDEN
    await core.ask(Configure(node, ALICE, {"pubsub#publish_model": ("open",)}))
    assert problem(await core.ask(redeem(node, item, sender=BOB))) is Problem.ITEM_NOT_FOUND
    assert problem(await core.ask(Reserve("nowhere", ALICE))) is Problem.NODE_NOT_FOUND


async def test_too_late(make_core: MakeCore, node: str) -> None:
    """A reservation ends by Redis's clock."""
    core, _ = await make_core(reservation_seconds=0.05)
    await core.ask(Declare(node, ALICE, {}))
    item = await reserved(core, node)
    await asyncio.sleep(0.1)
    assert problem(await core.ask(redeem(node, item))) is Problem.RESERVATION_EXPIRED


async def test_a_body_too_big(make_core: MakeCore, node: str) -> None:
    """A body that the node refuses uses nothing up; a deleted node takes its reservations with it."""
    core, _ = await make_core()
    await core.ask(Declare(node, ALICE, {"pubsub#max_payload_size": ("10",)}))
    item = await reserved(core, node)
    assert problem(await core.ask(redeem(node, item, b"x" * 11))) is Problem.PAYLOAD_TOO_BIG
    assert await core.ask(redeem(node, item)) == Published(item)
    lost = await reserved(core, node)
    assert await core.ask(Delete(node, ALICE)) == Done()
    assert problem(await core.ask(redeem(node, lost))) is Problem.NODE_NOT_FOUND


async def test_dies_between_its_steps(make_core: MakeCore, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message accepted by a frontend that dies is published by another, once, whether or not the body comes again."""
    monkeypatch.setattr(exactly_once, "LATE_MS", 200)
    dying, _ = await make_core()
    await dying.ask(Declare(node, ALICE, {}))
    item = await reserved(dying, node)

    async def dies(_publish: Publish) -> None:
        detail = "dead"
        raise CoreUnavailable(detail)

    monkeypatch.setattr(dying._handlers.exactly_once, "_publish", dies)
    monkeypatch.setattr(dying._sweeper, "_finish", lambda: asyncio.sleep(0))
    assert problem(await dying.ask(redeem(node, item))).retryable
    other, _ = await make_core()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await listed(other, node):
            await other._handlers.exactly_once.finish()
            await asyncio.sleep(0.02)
    assert await other.ask(redeem(node, item)) == Published(item, duplicate=True)
    assert [each.item_id for each in await listed(other, node)] == [item]
