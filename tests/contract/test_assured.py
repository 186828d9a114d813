"""Assured messages over a real server: the two steps on two frontends, crashes between them, limits and trust."""

import asyncio
import time
from dataclasses import replace

import pytest
import redis
from structlog.testing import capture_logs

from broker import keys
from broker.model.commands import (
    Affiliate,
    Browse,
    Configure,
    Declare,
    Delete,
    Deliver,
    InspectItems,
    PrepareMessage,
    Publish,
    Redeem,
    Reserve,
    Retract,
)
from broker.model.items.dependencies import Dependencies
from broker.model.items.hints import Hints
from broker.model.names import Jid
from broker.model.problems import CoreUnavailable, Problem
from broker.model.results import Browsed, Done, InspectedItems, Published, Refused, Reserved, Result, Retracted
from broker.redis_core import exactly_once
from broker.redis_core.core import RedisCore
from broker.redis_core.maintenance import heartbeat, sweeper
from frontends.tools.servers.redis import RedisServer
from tests.contract.conftest import MakeCore
from tests.waiting import PATIENCE_SECONDS

ALICE = Jid("alice@localhost/home")


def hold(
    node: str, msg_id: str = "m1", sender: Jid = ALICE, body: bytes = b"payload", item: str | None = None
) -> PrepareMessage:
    """Send an assured message."""
    return PrepareMessage(sender, msg_id, Publish(node, sender, item, body, len(body)), msg_id)


async def items(core: RedisCore, node: str) -> list[tuple[str, bytes]]:
    """Return the items of the node, without the nonces."""
    return [(item.item_id.partition("~")[0], item.envelope) for item in (await browse(core, node)).items]


async def browse(core: RedisCore, node: str) -> Browsed:
    """Browse the node."""
    browsed = await core.ask(Browse(node, ALICE, (), 500))
    assert isinstance(browsed, Browsed)
    return browsed


def problem(result: Result) -> Problem:
    """Return the problem of a refusal."""
    assert isinstance(result, Refused)
    return result.problem


def kept(server: RedisServer) -> set[str]:
    """Return the keys that hold messages."""
    with redis.Redis.from_url(server.url) as client:
        names = [row.name for row in keys.TABLE if row.holder == "qos"]
        return {name for name in names if client.exists(keys.of_qos(name))}


async def test_two_frontends(make_core: MakeCore, valkey: RedisServer, node: str) -> None:
    """S9, S10, S11: one frontend receives and another delivers, once, however often each step is repeated anywhere."""
    one, other = [(await make_core())[0] for _frontend in range(2)]
    await one.ask(Declare(node, ALICE, {}))
    assert await one.ask(hold(node)) == await other.ask(hold(node, body=b"second copy")) == Done()
    assert await items(one, node) == []
    results = await asyncio.gather(*(core.ask(Deliver(ALICE, "m1")) for core in (one, other) * 3))
    assert set(results) == {Done()}
    assert await items(one, node) == [("m1", b"payload")]
    # Late copies of both steps, from the network (SX9).
    assert await other.ask(hold(node)) == await one.ask(Deliver(ALICE, "m1")) == Done()
    assert await items(one, node) == [("m1", b"payload")]
    assert kept(valkey) == {"delivered"}


async def test_consumed_before_the_repeat(make_core: MakeCore, node: str) -> None:
    """SX9: a late `deliver` does not deliver a message again that a worker has finished."""
    core, _ = await make_core()
    await core.ask(Declare(node, ALICE, {}))
    await core.ask(hold(node, item="i1"))
    await core.ask(Deliver(ALICE, "m1"))
    await core.ask(Retract(node, ALICE, "i1"))
    assert await core.ask(hold(node, item="i1")) == await core.ask(Deliver(ALICE, "m1")) == Done()
    assert await items(core, node) == []


async def test_a_time_is_the_same_in_every_copy(make_core: MakeCore, node: str) -> None:
    """SX9: a late copy of a message with a time is recognised, although less is left of it; and so is a reserved one's."""
    core, _ = await make_core()
    await core.ask(Declare(node, ALICE, {}))
    reserved = await core.ask(Reserve(node, ALICE))
    assert isinstance(reserved, Reserved)
    at = int(time.time() * 1000) + 3_600_000
    answers = []
    for left_ms in (3_600_000, 1_800_000):
        hints = replace(Hints.validate(None, None, None, at=at), delay_ms=left_ms)
        sent = hold(node)
        await core.ask(replace(sent, publish=replace(sent.publish, hints=hints)))
        assert await core.ask(Deliver(ALICE, "m1")) == Done()
        answers.append(await core.ask(Redeem(node, ALICE, reserved.item_id, b"payload", 7, hints=hints)))
    assert answers == [Published(reserved.item_id), Published(reserved.item_id, duplicate=True)]
    assert len(await items(core, node)) == 2
    seen = await core.ask(InspectItems(node, ALICE, (), 50))
    assert isinstance(seen, InspectedItems)
    assert all(abs(each.until_ms - at) < 60_000 for each in seen.items)


async def test_reclaimed_and_unknown(make_core: MakeCore, node: str) -> None:
    """SX8, SX10: a delivered msgId with another message is a new message; a msgId that was never stored is unknown."""
    core, _ = await make_core()
    await core.ask(Declare(node, ALICE, {}))
    assert problem(await core.ask(Deliver(ALICE, "m1"))) is Problem.ITEM_NOT_FOUND
    for body in (b"first", b"second"):
        await core.ask(hold(node, body=body))
        assert await core.ask(Deliver(ALICE, "m1")) == Done()
    assert await items(core, node) == [("m1", b"first"), ("m1", b"second")]
    assert problem(await core.ask(Deliver(Jid("alice@localhost/work"), "m1"))) is Problem.ITEM_NOT_FOUND


async def test_refused_for_good(make_core: MakeCore, valkey: RedisServer, node: str) -> None:
    """S13: a node that is gone or refuses the item is reported at `deliver`, and nothing of the message stays."""
    core, _ = await make_core()
    await core.ask(hold(node))
    # Not item-not-found, after which the sender would send it again for ever.
    assert problem(await core.ask(Deliver(ALICE, "m1"))) is Problem.NODE_GONE
    owner = Jid("owner@localhost/1")
    await core.ask(Declare(node, owner, {"pubsub#publish_model": ("open",)}))
    await core.ask(hold(node))
    await core.ask(Affiliate(node, owner, {Jid("alice@localhost"): "outcast"}))
    assert problem(await core.ask(Deliver(ALICE, "m1"))) is Problem.FORBIDDEN
    assert problem(await core.ask(Deliver(ALICE, "m1"))) is Problem.ITEM_NOT_FOUND
    assert kept(valkey) == set()


async def test_what_it_names_is_missing(make_core: MakeCore, valkey: RedisServer, node: str) -> None:
    """S13, SX8: a partition or an item to wait for that is not there is no unknown message, which is sent again."""
    core, _ = await make_core()
    await core.ask(Declare(node, ALICE, {}))
    sent = hold(node)
    wrong = {"partition": 7}, {"hints": Hints(after=Dependencies.parse_names("none", regardless=False))}
    for named in wrong:
        assert await core.ask(replace(sent, publish=replace(sent.publish, **named))) == Done()
        refused = await core.ask(Deliver(ALICE, "m1"))
        assert problem(refused) is Problem.NOT_ACCEPTABLE
        assert isinstance(refused, Refused) and refused.detail.startswith(
            ("the node has no ", "there is no item 'none'")
        )
        assert problem(await core.ask(Deliver(ALICE, "m1"))) is Problem.ITEM_NOT_FOUND
    assert kept(valkey) == set()


async def test_refused_for_now(make_core: MakeCore, node: str) -> None:
    """S12: a temporary refusal is a `wait`: the message stays, and a later `deliver` delivers it once."""
    core, _ = await make_core()
    await core.ask(Declare(node, ALICE, {"pubsub#max_items": ("1",)}))
    await core.ask(Publish(node, ALICE, "first", b"x", 1))
    await core.ask(hold(node))
    assert problem(await core.ask(Deliver(ALICE, "m1"))) is Problem.NODE_FULL
    await core.ask(Configure(node, ALICE, {"pubsub#max_items": ("5",)}))
    assert await core.ask(Deliver(ALICE, "m1")) == await core.ask(Deliver(ALICE, "m1")) == Done()
    assert await items(core, node) == [("first", b"x"), ("m1", b"payload")]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a frontend look for unfinished deliveries all the time."""
    monkeypatch.setattr(exactly_once, "LATE_MS", 200)
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 0.03)
    monkeypatch.setattr(sweeper, "SCAN_EVERY", 1)


@pytest.mark.parametrize("published", [False, True])
async def test_death_in_the_middle(
    quick: None,
    make_core: MakeCore,
    valkey: RedisServer,
    node: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    published: bool,
) -> None:
    """SX9: when a frontend dies before or after the publish, any other completes it once, without the sender."""
    dying, _ = await make_core()
    await dying.ask(Declare(node, ALICE, {}))
    await dying.ask(hold(node))
    unhindered = dying._handlers.exactly_once._publish

    async def publish(command: Publish) -> None:
        if published:
            await unhindered(command)
        detail = "dead"
        raise CoreUnavailable(detail)

    monkeypatch.setattr(dying._handlers.exactly_once, "_publish", publish)
    monkeypatch.setattr(dying._sweeper, "_finish", lambda: asyncio.sleep(0))
    assert problem(await dying.ask(Deliver(ALICE, "m1"))).retryable
    # A worker finishes it before anybody looks, so the id of a waiting item cannot prevent a duplicate.
    for item in (await browse(dying, node)).items:
        assert isinstance(await dying.ask(Retract(node, ALICE, item.item_id)), Retracted)
    other, _ = await make_core()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while kept(valkey) != {"delivered"}:  # noqa: ASYNC110  (whoever finishes it knows no event of ours)
            await asyncio.sleep(0.02)
    assert await items(other, node) == ([] if published else [("m1", b"payload")])
    assert await other.ask(Deliver(ALICE, "m1")) == Done()


async def test_an_unreadable_message(quick: None, make_core: MakeCore, valkey: RedisServer, node: str) -> None:
    """SX9: a message that cannot be read does not keep those behind it from being completed."""
    dying, _ = await make_core()
    await dying.ask(Declare(node, ALICE, {}))
    for msg_id in ("m1", "m2"):
        await dying.ask(hold(node, msg_id))
    core, _ = await make_core()
    with redis.Redis.from_url(valkey.url) as client, capture_logs() as logs:
        first, second = sorted(client.hkeys(keys.of_qos("prepared")))
        client.hset(keys.of_qos("prepared"), first, "of-another-version")
        # Their frontend has died in the middle of both.
        client.zadd(keys.of_qos("deliveries_begun"), {first: 1, second: 1})
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not await items(core, node):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
        finally:
            client.hdel(keys.of_qos("prepared"), first)
            client.zrem(keys.of_qos("deliveries_begun"), first)
    assert [item for item, _ in await items(core, node)] == ["m2"]
    assert "assured message not completed" in {each["event"] for each in logs}


async def test_trust(make_core: MakeCore, node: str) -> None:
    """SX12: trust by domain or by bare JID, administrators always; the default is the domain above the component's."""
    core, _ = await make_core()
    assert await core.ask(hold(node)) == Done()
    for stranger in ("eve@elsewhere/1", "eve@sub.localhost/1", "eve@localhost.org/1", "queue.localhost"):
        assert problem(await core.ask(hold(node, sender=Jid(stranger)))) is Problem.NOT_TRUSTED
    told, _ = await make_core(qos_trusted="b@y,z", admins="a@w")
    for friend in ("b@y/1", "anyone@z/1", "z", "a@w/1"):
        assert await told.ask(hold(node, sender=Jid(friend))) == Done()
    for stranger in ("c@y/1", "alice@localhost/1"):
        assert problem(await told.ask(hold(node, sender=Jid(stranger)))) is Problem.NOT_TRUSTED


async def test_ten_thousand_of_one_sender(make_core: MakeCore, valkey: RedisServer, node: str) -> None:
    """S19, guarantee 6: one sender cannot fill the memory, whatever its resources; other senders are served."""
    core, _ = await make_core()
    senders = [Jid(f"alice@localhost/{number % 7}") for number in range(10_000)]
    results = []
    for first in range(0, 10_000, 500):
        asked = (core.ask(hold(node, f"m{first + n}", senders[first + n])) for n in range(500))
        results += await asyncio.gather(*asked)
    assert results.count(Done()) == 100
    assert {problem(result) for result in results if isinstance(result, Refused)} == {Problem.TOO_MUCH_HELD}
    assert await core.ask(hold(node, sender=Jid("bob@localhost/1"))) == Done()
    with redis.Redis.from_url(valkey.url) as client:
        assert client.hlen(keys.of_qos("prepared")) == 101


async def test_deleted_in_between(make_core: MakeCore, node: str) -> None:
    """P24: a message for an earlier incarnation of a node goes to the present one: it is addressed to a name."""
    core, _ = await make_core()
    await core.ask(Declare(node, ALICE, {}))
    await core.ask(hold(node))
    await core.ask(Delete(node, ALICE))
    await core.ask(Declare(node, ALICE, {}))
    assert await core.ask(Deliver(ALICE, "m1")) == Done()
    assert await items(core, node) == [("m1", b"payload")]
