"""Items wait for others: they go out once all have been acknowledged, whichever process dies when; else they die, once."""

import asyncio
import json
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from broker import codec
from broker.model.commands import (
    Browse,
    Cancel,
    Command,
    Complete,
    Configure,
    Declare,
    Delete,
    Deliver,
    InspectItems,
    PrepareMessage,
    Publish,
    Purge,
    Retract,
    Stats,
    Subscribe,
    Unlock,
)
from broker.model.items.dependencies import MOST_PARENTS, RESULT_BYTES, Dependencies, Parent
from broker.model.items.hints import Hints
from broker.model.items.items import Delivery, Envelope, ItemEnded
from broker.model.items.outcomes import End, ReplyMode
from broker.model.names import Jid
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import (
    Browsed,
    Counted,
    Declared,
    Done,
    InspectedItems,
    Published,
    Refused,
    Retracted,
    Subscribed,
)
from broker.redis_core.commands.dependency_parts import NoteParent
from broker.redis_core.commands.internal import Sweep
from broker.redis_core.core import RedisCore
from broker.redis_core.outbox import dependencies
from tests.contract.conftest import Door, MakeCore, Store
from tests.contract.outbox import make_due
from tests.waiting import PATIENCE_SECONDS

ALICE, BOB, W1 = Jid("alice@x/home"), Jid("bob@x/b"), Jid("w1@x/a")


def after(*parents: str, regardless: bool = False, **more: Any) -> Hints:  # noqa: ANN401  (other hints)
    """Wait for items."""
    return Hints(after=Dependencies.parse_names(" ".join(parents), regardless=regardless), **more)


async def begin(core: RedisCore, *nodes: str, owner: Jid = ALICE, **options: str) -> None:
    """Create nodes with a worker each, which owns all partitions."""
    fields = {f"stanzaq#{name}": (value,) for name, value in options.items()}
    for node in nodes:
        assert await core.ask(Declare(node, owner, fields | {"pubsub#publish_model": ("open",)})) == Declared(node)
        assert isinstance(await core.ask(Subscribe(node, W1, W1, 1000, group="g")), Subscribed)


def item(node: str, name: str | None, *parents: str, sender: Jid = ALICE, **more: Any) -> Publish:  # noqa: ANN401
    """Make a publish."""
    hints = after(*parents, **more)
    return Publish(node, sender, name, codec.pack(Envelope(b"<x/>", headers={"k": "v"})), 4, hints=hints)


async def publish(core: RedisCore, node: str, name: str, *parents: str, **more: Any) -> None:  # noqa: ANN401
    """Publish an item."""
    assert await core.ask(item(node, name, *parents, **more)) == Published(name)


def completion(node: str, name: str, result: bytes = b"done") -> Complete:
    """Acknowledge with a result."""
    return Complete(node, W1, name, envelope=codec.pack(Envelope(result)), body_bytes=len(result))


def delivery(door: Door, name: str) -> Delivery | None:
    """Return the delivery of an item."""
    return next((each for each in door.deliveries if each.item_id == name), None)


def parents_of(door: Door, name: str) -> list[dict[str, str]]:
    """Return what a delivered item says of its parents."""
    found = delivery(door, name)
    assert found is not None
    headers = codec.unpack(found.envelope).headers
    assert headers["k"] == "v"
    said: list[dict[str, str]] = json.loads(headers["stanzaq-parents"])
    return said


async def state(core: RedisCore, node: str, name: str) -> str:
    """Return the state of an item; empty without one."""
    found = await core.ask(Browse(node, W1, (name,), 10))
    assert isinstance(found, Browsed)
    return found.items[0].state if found.items else ""


async def refused(core: RedisCore, command: Publish) -> Problem:
    """Return why a publish is refused."""
    outcome = await core.ask(command)
    assert isinstance(outcome, Refused)
    return outcome.problem


async def keys_of(store: Store, node: str, *names: str) -> dict[str, list[str]]:
    """Return the members of keys of a node's partitions."""
    found: dict[str, list[str]] = {}
    async with store.client() as client:
        for name in names:
            async for key in client.scan_iter(match=f"*{node}@*:{name}"):
                kind = await client.type(key)
                members = await client.hkeys(key) if kind == b"hash" else await client.zrange(key, 0, -1)
                found.setdefault(name, []).extend(each.decode() for each in members)
    return found


async def age(store: Store, node: str, core: RedisCore, partitions: int = 1) -> None:
    """Let the time pass after which entries come again, and sweep."""
    await make_due(store, node)
    await asyncio.gather(*(core.ask_partition(Sweep(node, number)) for number in range(partitions)))


async def until_clean(store: Store, node: str) -> None:
    """Wait until nobody waits for anything any more, and nothing is left of it."""
    names = ("awaited", "dependents", "outbox_records", "replies", "outbox", "outbox_replies")
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await keys_of(store, node, *names):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("partitions", ["1", "3"])
async def test_fan_in(make_core: MakeCore, store: Store, node: str, partitions: str) -> None:
    """An item goes out when all its parents are acknowledged, in this node or another of its owner, with their results."""
    (one, broken), (two, door) = await make_core(), await make_core()
    broken.deliver = door.deliver  # type: ignore[method-assign]  # either may send
    await begin(one, node, f"{node}/b c", partitions=partitions)
    other = str(Parent("x y", f"{node}/b c"))
    await publish(one, node, "a")
    await publish(two, f"{node}/b c", "x y")
    await publish(one, node, "child", "a", other)
    await publish(one, node, "behind")
    await door.until(lambda: delivery(door, "behind") is not None)
    assert (await state(two, node, "child"), delivery(door, "child")) == ("dependent", None)
    counted = await one.ask(Stats(node, ALICE))
    assert isinstance(counted, Counted) and (counted.dependent, counted.waiting, counted.eligible) == (1, 1, 0)
    (found,) = (await inspected(one, node, "child")).items
    assert [each.to_json() for each in found.parents] == [
        {"item": "a", "state": "awaited"},
        {"item": "x y", "state": "awaited", "node": f"{node}/b c"},
    ]
    assert isinstance(await two.ask(completion(node, "a", b"1")), Retracted)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await inspected(one, node, "child")).items[0].parents[0].state != "acknowledged":  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert await state(one, node, "child") == "dependent"
    assert isinstance(await one.ask(completion(f"{node}/b c", "x y", '"ü'.encode())), Retracted)
    await door.until(lambda: delivery(door, "child") is not None)
    assert parents_of(door, "child") == [
        {"item": "a", "state": "acknowledged", "result": "1"},
        {"item": "x y", "state": "acknowledged", "result": '"ü', "node": f"{node}/b c"},
    ]
    child = delivery(door, "child")
    # Its wait for a worker begins when its parents have ended (issue 26).
    assert child and child.ready_ms >= int(child.position.partition("-")[0])
    for name in ("child", "behind"):
        assert isinstance(await one.ask(Retract(node, W1, name)), Retracted)
    await until_clean(store, node)
    assert (await one.ask(Browse(node, W1, (), 10))) == Browsed((), more=False, count=0)


async def inspected(core: RedisCore, node: str, name: str) -> InspectedItems:
    """Return an item with its parents."""
    found = await core.ask(InspectItems(node, ALICE, (name,), 10))
    assert isinstance(found, InspectedItems)
    return found


async def test_refusals(make_core: MakeCore, store: Store, node: str) -> None:
    """Bad input: 101 parents, one twice, itself, one that is not there, a stranger's, in a log; nothing is stored."""
    core, _ = await make_core()
    await begin(core, node, partitions="3", result_seconds="60")
    await begin(core, f"{node}-bob", owner=BOB)
    for text in (" ".join(map(str, range(MOST_PARENTS + 1))), "a a", "a%zz", "#a", "n#", "a#b#c", "%ff", "x" * 1_100):
        with pytest.raises(MalformedRequest):
            after(*text.split(" "))
    with pytest.raises(MalformedRequest):
        after(regardless=True)
    await publish(core, node, "a")
    await publish(core, f"{node}-bob", "b", sender=BOB)
    problems = {
        (f"{node}#a", "a"): Problem.BAD_REQUEST,
        ("c",): Problem.BAD_REQUEST,
        (f"{node}#c",): Problem.BAD_REQUEST,
        ("a", "b"): Problem.ITEM_NOT_FOUND,
        ("a", "1-1700000000000-0"): Problem.ITEM_NOT_FOUND,
        (f"{node}-bob#b",): Problem.FORBIDDEN,
        (f"{node}-none#b",): Problem.FORBIDDEN,
    }
    for named, problem in problems.items():
        assert await refused(core, item(node, "c", *named, reply=ReplyMode.TOLD)) is problem, named
    # Of the node's own owner, but with publishers of its own.
    closed = {"pubsub#publish_model": ("publishers",)}
    assert await core.ask(Declare(f"{node}-closed", ALICE, closed)) == Declared(f"{node}-closed")
    await publish(core, f"{node}-closed", "b")
    assert await refused(core, item(node, "c", f"{node}-closed#b", sender=BOB)) is Problem.FORBIDDEN
    await publish(core, node, "c", f"{node}-closed#b")
    await core.ask(Declare(f"{node}-log", ALICE, {"pubsub#queueing": ("0",)}))
    assert await refused(core, item(node, "d", f"{node}-log#b")) is Problem.FORBIDDEN
    assert await refused(core, item(f"{node}-log", "d", f"{node}#a")) is Problem.UNSUPPORTED
    found = await keys_of(store, node, "dependents", "replies")
    assert len(found["dependents"]) == 1
    await publish(core, node, "many", *(await many(core, node, MOST_PARENTS)))
    assert await state(core, node, "many") == "dependent"


async def many(core: RedisCore, node: str, count: int) -> list[str]:
    """Publish many items without ids, and return their ids."""
    results = await asyncio.gather(*(core.ask(item(node, None)) for _ in range(count)))
    return [each.item_id for each in results if isinstance(each, Published)]


async def test_refused_and_sent_again(make_core: MakeCore, node: str) -> None:
    """A publish that was refused for a parent is no repeat when the parent is there: by its id, nor by its ticket."""
    core, _ = await make_core()
    await begin(core, node, f"{node}-once", partitions="2")
    assert await core.ask(Configure(f"{node}-once", ALICE, {"stanzaq#dedupe": ("ignore",)})) == Done()
    for name, ticket, digest in ((node, "t", ""), (node, "u", "d"), (f"{node}-once", "", "")):
        sent = replace(item(name, f"c{ticket}", f"a{ticket}"), ticket=ticket, digest=digest)
        for _ in range(2):
            assert await refused(core, sent) is Problem.ITEM_NOT_FOUND
        await publish(core, name, f"a{ticket}")
        assert await core.ask(sent) == Published(f"c{ticket}")
        assert await state(core, name, f"c{ticket}") == "dependent"
        assert await core.ask(sent) == Published(f"c{ticket}", duplicate=True)


async def test_circle(make_core: MakeCore, store: Store, node: str) -> None:
    """Two publishes at once, each after the other, are not both stored: nobody waits in a circle."""
    (one, _), (two, _) = await make_core(), await make_core()
    await begin(one, node, partitions="2")
    circle = ((one, "x", "y"), (two, "y", "x"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dependencies, "_PAUSES", (0.02, 0.05, 0.2))
        results = await asyncio.gather(*(core.ask(item(node, *names)) for core, *names in circle))
    assert {each.problem for each in results if isinstance(each, Refused)} == {Problem.ITEM_NOT_FOUND}
    await until_clean(store, node)
    # A chain whose publishes are under way together is none.
    await publish(one, node, "head")
    names = ["head", *(f"n{number}" for number in range(5))]
    results = await asyncio.gather(*(one.ask(item(node, name, before)) for before, name in pairwise(names)))
    assert results == [Published(name) for name in names[1:]]


async def test_dead_and_regardless(make_core: MakeCore, store: Store, node: str) -> None:
    """A parent that ends otherwise kills its dependents, and theirs; those that wait regardless go out."""
    core, door = await make_core()
    await begin(core, node, partitions="3")
    await publish(core, node, "a")
    await publish(core, node, "b", "a", reply=ReplyMode.TOLD)
    await publish(core, node, "c", "b", reply=ReplyMode.TOLD)
    await publish(core, node, "d", "b", "a", regardless=True)
    await door.until(lambda: delivery(door, "a") is not None)
    assert await core.ask(Unlock(node, W1, "a", dead_letter=True, reason="bad")) is not None
    await door.until(lambda: delivery(door, "d") is not None)
    assert parents_of(door, "d") == [
        {"item": "b", "state": "dead", "reason": "parent-dead"},
        {"item": "a", "state": "dead", "reason": "bad"},
    ]
    await door.until(lambda: len([each for each in door.notices if isinstance(each, ItemEnded)]) >= 2)
    told = {each.outcome.item_id: each.outcome for each in door.notices if isinstance(each, ItemEnded)}
    assert {name: (each.state, each.reason) for name, each in told.items()} == {
        "b": (End.DEAD, "parent-dead"),
        "c": (End.DEAD, "parent-dead"),
    }
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await dead(core, node)) != {"a": "bad", "b": "parent-dead", "c": "parent-dead"}:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def dead(core: RedisCore, node: str) -> dict[str, str]:
    """Return the dead letters of a node with their reasons."""
    found = await core.ask(Browse(f"{node}/dead", ALICE, (), 200))
    if not isinstance(found, Browsed):
        return {}
    headers = [codec.unpack(each.envelope).headers for each in found.items]
    return {each["stanzaq-dead-item"]: each["stanzaq-dead-reason"] for each in headers}


async def test_parent_has_ended(make_core: MakeCore, store: Store, node: str) -> None:
    """A parent that has ended counts while its node keeps the end; what is too large for a header, or no text, is left out."""
    core, door = await make_core()
    await begin(core, node)
    large, binary = b"x" * (RESULT_BYTES + 1), b"\xff\xfe"
    for name, result in {"a": b"1", "large": large, "binary": binary}.items():
        await core.ask(Publish(node, ALICE, name, codec.pack(Envelope(b"x")), 1, hints=Hints(reply=ReplyMode.KEPT)))
        assert isinstance(await core.ask(completion(node, name, result)), Retracted)
    await publish(core, node, "forgotten")
    assert isinstance(await core.ask(completion(node, "forgotten")), Retracted)
    await publish(core, node, "c", "a", "large", "binary")
    await door.until(lambda: delivery(door, "c") is not None)
    assert [(each["state"], each.get("result")) for each in parents_of(door, "c")] == [
        ("acknowledged", "1"),
        ("acknowledged", None),
        ("acknowledged", None),
    ]
    unknown = await core.ask(item(node, "d", "a", "forgotten"))
    assert isinstance(unknown, Refused) and unknown.problem is Problem.ITEM_NOT_FOUND
    # It names the parent, and says what to do, in the words of every door.
    for part in ("'forgotten'", "publish parents first", "keep='1'", "Message-Keep", "x-opt-stanzaq-keep", "keep=True"):
        assert part in unknown.detail
    assert await keys_of(store, node, "dependents", "awaited") == {}


async def test_repeats(make_core: MakeCore, node: str) -> None:
    """A repeated publish is a duplicate that waits for the same; a prepared message waits as well."""
    core, door = await make_core(qos_trusted="x")
    await begin(core, node)
    await publish(core, node, "a")
    await publish(core, node, "c", "a")
    again = await core.ask(item(node, "c", "a"))
    assert again == Published("c", duplicate=True)
    sent = item(node, "d", "a", "c", priority=7)
    assert await core.ask(PrepareMessage(ALICE, "m", sent, "m")) == Done()
    for _ in range(2):
        assert await core.ask(Deliver(ALICE, "m")) == Done()
    assert await core.ask(item(node, "c", "a")) == Published("c", duplicate=True)
    await publish(core, node, "e", "d", "c", "a")
    assert isinstance(await core.ask(Retract(node, W1, "a")), Retracted)
    await door.until(lambda: delivery(door, "c") is not None)
    assert isinstance(await core.ask(Retract(node, W1, "c")), Retracted)
    await door.until(lambda: delivery(door, "d") is not None)
    assert await core.ask(item(node, "c", "none")) != Published("c"), "its id is free again"
    assert isinstance(await core.ask(Retract(node, W1, "d")), Retracted)
    await door.until(lambda: delivery(door, "e") is not None)


async def test_rate(make_core: MakeCore, node: str) -> None:
    """stanzaq#publish_rate counts items that wait like others, and one that is refused is not stored."""
    core, _ = await make_core()
    await begin(core, node)
    await publish(core, node, "a")
    assert await core.ask(Configure(node, ALICE, {"stanzaq#publish_rate": ("1/h",)})) == Done()
    await publish(core, node, "b", "a")
    assert await refused(core, item(node, "c", "a")) is Problem.TOO_FAST
    assert [await state(core, node, name) for name in "bc"] == ["dependent", ""]


async def test_parents_that_are_lost(make_core: MakeCore, store: Store, node: str) -> None:
    """A parent whose node is deleted is missed when it is asked for again; so is one that a failover has lost."""
    core, door = await make_core()
    await begin(core, node, f"{node}-gone", f"{node}-lost")
    for name in ("gone", "lost"):
        await publish(core, f"{node}-{name}", "p")
        await publish(core, node, name, f"{node}-{name}#p")
    await publish(core, node, "a")
    await publish(core, node, "kept", "a")
    assert await core.ask(Delete(f"{node}-gone", ALICE)) == Done()
    async with store.client() as client:
        # Redis loses who waits, and then the item ends.
        for name in ("awaited", "replies"):
            async for key in client.scan_iter(match=f"*{node}*@*:{name}"):
                await client.delete(key)
    assert isinstance(await core.ask(Retract(f"{node}-lost", W1, "p")), Retracted)
    await age(store, node, core)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await dead(core, node)) != dict.fromkeys(("gone", "lost"), "parent-lost"):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert await state(core, node, "kept") == "dependent"
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await keys_of(store, node, "awaited"):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert isinstance(await core.ask(Retract(node, W1, "a")), Retracted)
    await door.until(lambda: delivery(door, "kept") is not None)


async def test_refused_by_two(make_core: MakeCore, node: str) -> None:
    """Of a publish and its repeat on another frontend, both with an unknown parent, neither is answered as if it were stored."""
    (one, _), (two, _) = await make_core(), await make_core()
    await begin(one, node)
    ask, arrived, goes = one._handlers.dependencies._ask, asyncio.Event(), asyncio.Event()

    async def late(command: Any) -> Any:  # noqa: ANN401
        if isinstance(command, NoteParent):
            arrived.set()
            await goes.wait()
        return await ask(command)

    one._handlers.dependencies._ask = late
    sent = item(node, "c", "none")
    publishing = asyncio.create_task(one.ask(sent))
    async with asyncio.timeout(PATIENCE_SECONDS):
        await arrived.wait()
    assert await refused(two, sent) is Problem.ITEM_NOT_FOUND
    goes.set()
    answer = await publishing
    assert isinstance(answer, Refused) and answer.problem.retryable
    assert await refused(one, sent) is Problem.ITEM_NOT_FOUND


async def test_refused_beside_one_that_is_there(make_core: MakeCore, store: Store, node: str) -> None:
    """A publish that names a parent that is there, and one that is not, leaves nothing at the first one."""
    core, _ = await make_core()
    await begin(core, node)
    await publish(core, node, "a")
    assert await refused(core, item(node, "c", "a", "none")) is Problem.ITEM_NOT_FOUND
    assert not await keys_of(store, node, "awaited", "dependents", "outbox", "outbox_records")


async def test_a_refusal_whose_reply_is_lost(make_core: MakeCore, node: str) -> None:
    """A publish with an unknown parent is not answered as if it were stored when the reply to its removal is lost."""
    core, _ = await make_core()
    await begin(core, node)
    ask = core._handlers.dependencies._ask

    async def lost(command: Any) -> Any:  # noqa: ANN401
        answer = await ask(command)
        return Refused(Problem.TIMED_OUT) if isinstance(command, NoteParent) else answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(core._handlers.dependencies, "_ask", lost)
        assert await refused(core, item(node, "c", "none")) is Problem.TIMED_OUT
    assert await refused(core, item(node, "c", "none")) is Problem.ITEM_NOT_FOUND


async def leave(core: RedisCore, store: Store, node: str, names: list[str], how: str) -> None:
    """Let children leave before their parents end."""
    match how:
        case "cancelled":
            assert await asyncio.gather(*(core.ask(Cancel(node, ALICE, name)) for name in names))
        case "replaced":
            await asyncio.gather(*(publish(core, node, name) for name in names))
        case "purged":
            await core.ask(Purge(node, ALICE))
        case "expired":
            async with store.client() as client:
                async for key in client.scan_iter(match=f"*{node}@*:expirations"):
                    for member in await client.zrange(key, 0, -1):
                        await client.zadd(key, {member: 1}, xx=True)
            await core.ask_partition(Sweep(node, 0))
        case "deleted":
            assert await core.ask(Delete(node, ALICE)) == Done()
            await begin(core, node)
    counted = await core.ask(Stats(node, ALICE))
    assert isinstance(counted, Counted) and counted.dependent <= 1


@pytest.mark.parametrize("how", ["cancelled", "replaced", "purged", "expired", "deleted"])
async def test_children_that_leave(make_core: MakeCore, store: Store, node: str, how: str) -> None:
    """Of children that leave before their parent ends, its partition soon keeps nothing."""
    core, door = await make_core()
    children = f"child-{node}"
    await begin(core, node, children)
    for name in "ab":
        await publish(core, node, name)
    await publish(core, node, "kept", "a")
    for turn in range(3):
        names = {f"c{turn}-{number}": f"{node}#{'a' if number else 'b'}" for number in range(40)}
        await asyncio.gather(*(publish(core, children, *each, ttl_ms=3_600_000) for each in names.items()))
        await leave(core, store, children, list(names), how)
    if how != "deleted":
        # Only those of a deleted node are there until their parents end.
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len((await keys_of(store, node, "awaited"))["awaited"]) > 2:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    for name in "ab":
        assert isinstance(await core.ask(Retract(node, W1, name)), Retracted)
    await door.until(lambda: delivery(door, "kept") is not None)
    assert isinstance(await core.ask(Retract(node, W1, "kept")), Retracted)
    await until_clean(store, node)


@pytest.mark.parametrize(("partitions", "seed"), [("1", 3), ("3", 8)])
async def test_by_chance(make_core: MakeCore, store: Store, node: str, partitions: str, seed: int) -> None:
    """Sixty items wait for others by chance and end in any way through two frontends, of which one dies, as an oracle says.

    Some wait for an item that outlives them all; nothing of them is left there.
    """
    chance = Random(seed)
    (one, lost), (two, door) = await make_core(), await make_core()
    await begin(one, node, partitions=partitions)
    await publish(one, node, "root")
    names = [f"i{number}" for number in range(60)]
    waits: dict[str, tuple[list[str], bool]] = {}
    for number, name in enumerate(names):
        parents = chance.sample(names[:number], min(number, chance.choice((0, 1, 2, 5))))
        parents += ["root"] * (chance.random() < 0.1)
        waits[name] = (parents, bool(parents) and chance.random() < 0.3)
        await publish(chance.choice((one, two)), node, name, *parents, regardless=waits[name][1])
    ends: dict[str, bool] = {}
    for number in range(len(names) + 1):
        if number == len(names) // 3:
            # It goes on to end items, and brings nobody their ends any more.
            one._outbox.follow = lambda *_: None  # type: ignore[method-assign]
        settle(waits, ends)
        ready = [name for name in names if name not in ends and all(each in ends for each in waits[name][0])]
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not all(delivery(lost, name) or delivery(door, name) for name in ready):
                await age(store, node, two, int(partitions))
                await asyncio.sleep(0.01)
        given = {each.item_id for each in (*lost.deliveries, *door.deliveries)} - {"root"}
        assert given == {name for name in names if name in ready or (name in ends and name in given)}
        assert not any(
            name in given for name in names if name in ends and not ends[name] and name not in killed(waits, ends)
        )
        left = [name for name in names if name not in ends]
        if not left:
            break
        # An item that waits may be cancelled as well.
        name = chance.choice(left if chance.random() < 0.1 else ready or left)
        ways: list[tuple[Command, bool]] = [(Cancel(node, ALICE, name), False)]
        if name in ready:
            ways += [(completion(node, name), True), (Retract(node, W1, name), True)]
        command, ends[name] = chance.choice(ways)
        assert not isinstance(await chance.choice((one, two)).ask(command), Refused)
    assert ends.keys() == set(names)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await keys_of(store, node, "awaited", "dependents", "outbox_records"):
            await age(store, node, two, int(partitions))
            await asyncio.sleep(0.02)
    assert isinstance(await two.ask(Retract(node, W1, "root")), Retracted)
    await until_clean(store, node)


def settle(waits: dict[str, tuple[list[str], bool]], ends: dict[str, bool]) -> None:
    """Let items die whose parents have died: an item comes after its parents."""
    for name, (parents, regardless) in waits.items():
        if name not in ends and not regardless and any(ends.get(each) is False for each in parents):
            ends[name] = False


def killed(waits: dict[str, tuple[list[str], bool]], ends: dict[str, bool]) -> set[str]:
    """Return items that went out before they were ended otherwise: all their parents had ended well, or did not matter."""
    return {
        name
        for name, (parents, regardless) in waits.items()
        if ends.get(name) is False and (regardless or all(ends.get(each) for each in parents))
    }
