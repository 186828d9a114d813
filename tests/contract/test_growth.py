"""Items sent before a node has grown are found again afterwards: deduplication works for any number of partitions."""

# ruff: noqa: ANN401  (commands of all kinds)

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from broker.model.commands import (
    Bounce,
    Browse,
    Configure,
    Declare,
    Delete,
    Deliver,
    PrepareMessage,
    Publish,
    Renew,
    Retract,
    Stats,
    Subscribe,
    Unlock,
)
from broker.model.items import Delivery
from broker.model.names import Jid, Partition
from broker.model.problems import CoreUnavailable, Problem
from broker.model.results import Browsed, Counted, Done, Published, Refused, Renewed, Retracted, Unlocked
from broker.redis_core.commands.internal import FindItem, fulfil
from broker.redis_core.core import RedisCore
from broker.redis_core.registry.partitioner import partition_of_id
from broker.tasks import start
from tests.contract.conftest import EVERYWHERE, Asked, Door, MakeCore, Store
from tests.waiting import PATIENCE_SECONDS

ALICE = Jid("alice@x/home")
TRUSTED = Jid("alice@localhost/home")
W1 = Jid("w1@x/a")


def item(node: str, item_id: str, body: bytes = b"x", **more: Any) -> Publish:
    """Publish an item."""
    return Publish(node, ALICE, item_id, body, len(body), **more)


async def declared(core: RedisCore, node: str, **options: str) -> None:
    """Make a node of one partition."""
    assert not isinstance(
        await core.ask(Declare(node, ALICE, {f"stanzaq#{name}": (value,) for name, value in options.items()})), Refused
    )


async def grow(core: RedisCore, node: str, partitions: int) -> None:
    """Give a node more partitions."""
    assert await core.ask(Configure(node, ALICE, {"stanzaq#partitions": (str(partitions),)})) == Done()


async def bodies(core: RedisCore, node: str) -> list[tuple[str, bytes]]:
    """Return the bodies of a node's items."""
    found = await core.ask(Browse(node, ALICE, (), 1_000))
    assert isinstance(found, Browsed)
    return sorted((each.item_id, each.envelope) for each in found.items)


async def waiting(core: RedisCore, node: str) -> int:
    """Count what waits."""
    found = await core.ask(Stats(node, ALICE))
    assert isinstance(found, Counted)
    return found.waiting


def carried(core: RedisCore, command: Publish) -> "asyncio.Future[Any]":
    """Publish an item with a ticket or without."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    core.router(command.node).submit(command, partial(fulfil, future))
    return future


KINDS: dict[str, Callable[[str, int], Any]] = {
    "ignored": lambda node, n: item(node, f"i{n}"),
    "with a key": lambda node, n: item(node, f"i{n}", key=f"k{n}"),
    "with a ticket": lambda node, n: item(node, f"i{n}", ticket=f"\0t{n}"),
}


@EVERYWHERE
@pytest.mark.parametrize("kind", KINDS)
async def test_once(make_core: MakeCore, node: str, kind: str) -> None:
    """S14, X1, guarantee 1: deduplication holds from one to four to eight partitions, consumed or not, at any frontend."""
    (core, _), (other, _) = await make_core(), await make_core()
    await declared(core, node, dedupe="ignore" if kind in {"ignored", "with a key"} else "overwrite")
    made: list[Any] = [KINDS[kind](node, n) for n in range(16)]

    async def sent(by: RedisCore, commands: Sequence[Any]) -> list[bool]:
        found = await asyncio.gather(*(carried(by, command) for command in commands))
        assert all(isinstance(each, Published) for each in found), found
        return [each.duplicate for each in found]

    assert await sent(core, made[:8]) == [False] * 8
    # The other one has read the record and does not learn of the growth.
    assert await sent(other, made[:1]) == [True]
    await grow(core, node, 4)
    assert await sent(other, made[:8]) == [True] * 8
    assert await sent(other, made[8:]) == [False] * 8
    await grow(other, node, 8)
    assert await sent(core, made) == await sent(other, made) == [True] * 16
    assert await waiting(core, node) == 16
    for name, _body in await bodies(core, node):
        assert isinstance(await core.ask(Retract(node, ALICE, name)), Retracted)
    assert await sent(core, made) == await sent(other, made) == [True] * 16
    assert await waiting(core, node) == 0


@pytest.mark.parametrize("cut", ["held", "claimed", "published"])
async def test_assured(make_core: MakeCore, node: str, monkeypatch: pytest.MonkeyPatch, cut: str) -> None:
    """S14: an assured message counts once when its node grows between the two steps, or within the second."""
    core, _ = await make_core(qos_trusted="localhost")
    await core.ask(Declare(node, TRUSTED, {"pubsub#publish_model": ("open",)}))
    for n in range(8):
        held = PrepareMessage(TRUSTED, f"m{n}", Publish(node, TRUSTED, None, b"x", 1), "m")
        assert await core.ask(held) == Done()
    assured = core._handlers.exactly_once
    run = assured._run

    async def broken(script: Any, **fixed: Any) -> Any:
        if cut == "claimed" or script == "end_delivery":
            msg = "cut"
            raise CoreUnavailable(msg)
        return await run(script, **fixed)

    if cut != "held":
        with monkeypatch.context() as patched:
            patched.setattr(assured, "_publish" if cut == "claimed" else "_run", broken)
            for n in range(8):
                assert isinstance(await core.ask(Deliver(TRUSTED, f"m{n}")), Refused)
    await core.ask(Configure(node, TRUSTED, {"stanzaq#partitions": ("4",)}))
    for _again in range(2):
        assert [await core.ask(Deliver(TRUSTED, f"m{n}")) for n in range(8)] == [Done()] * 8
    found = await core.ask(Stats(node, TRUSTED))
    assert isinstance(found, Counted) and found.waiting == 8


IDS: dict[str, Callable[[str], Publish]] = {
    "the publisher's": lambda node: item(node, "a"),
    "the service's": lambda node: Publish(node, ALICE, None, b"x", 1),
    "the service's, with a key": lambda node: Publish(node, ALICE, None, b"x", 1, key="k"),
    "with a key": lambda node: item(node, "b", key="k"),
    "with a partition": lambda node: item(node, "c", partition=1),
    # Items that came from nodes with more partitions have such ids.
    "as of a partition to come": lambda node: item(node, "3-1700000000000-0"),
    "as of another partition": lambda node: item(node, "0-1700000000000-0", partition=1),
}

ENDS: dict[str, Callable[[Delivery], Any]] = {
    "acknowledged": lambda of: Retract(of.partition.node, W1, of.item_id, of.token, "r"),
    "acknowledged without a token": lambda of: Retract(of.partition.node, W1, of.item_id, request="r"),
    "acknowledged where it was": lambda of: Retract(
        of.partition.node, W1, of.item_id, of.token, "r", of.partition.number
    ),
    "given back": lambda of: Unlock(of.partition.node, W1, of.item_id, of.token, request="r"),
    "given back for later": lambda of: Unlock(of.partition.node, W1, of.item_id, of.token, 60_000, request="r"),
    "to the dead letters": lambda of: Unlock(
        of.partition.node, W1, of.item_id, of.token, dead_letter=True, request="r"
    ),
    "deleted by its owner": lambda of: Retract(of.partition.node, ALICE, of.item_id, request="r"),
}


@pytest.mark.parametrize("end", ENDS)
async def test_answered_again(make_core: MakeCore, node: str, end: str) -> None:
    """Q27: a client that lost the answer to the end of a lock gets it again after any growth, at any frontend."""
    (core, door), (other, beyond) = await make_core(), await make_core()
    await declared(core, node, partitions="2")
    named = [await core.ask(make(node)) for make in IDS.values()]
    assert all(isinstance(each, Published) for each in named), named
    await core.ask(Subscribe(node, W1, W1, 100))
    await until(lambda: len(_given(door) + _given(beyond)) == len(IDS))
    commands = [ENDS[end](delivery) for delivery in door.deliveries + beyond.deliveries]
    if end == "deleted by its owner":
        for delivery in door.deliveries + beyond.deliveries:
            # Its owner may delete a waiting item: a minute is enough for that.
            back = Unlock(node, W1, delivery.item_id, delivery.token, 60_000, partition=delivery.partition.number)
            assert await core.ask(back) == Unlocked(W1)

    async def sent(by: RedisCore) -> list[Any]:
        return list(await asyncio.gather(*(by.ask(command) for command in commands)))

    holder = None if end == "deleted by its owner" else W1
    outcome = Unlocked if isinstance(commands[0], Unlock) else Retracted
    assert await sent(core) == [outcome(holder)] * len(IDS)  # type: ignore[arg-type]
    for partitions in (2, 3, 4, 8, 13):
        await grow(other, node, partitions)
        for by in (core, other):
            assert await sent(by) == [outcome(holder, replayed=True)] * len(IDS)  # type: ignore[arg-type]


async def test_held_still(make_core: MakeCore, node: str) -> None:
    """Q34, QX14: locks from before the growth are renewed, bounced and acknowledged as before, by any id."""
    (core, door), (other, beyond) = await make_core(), await make_core()
    await declared(core, node, partitions="2")
    for make in IDS.values():
        assert isinstance(await core.ask(make(node)), Published)
    await core.ask(Subscribe(node, W1, W1, 100))
    await until(lambda: len(_given(door) + _given(beyond)) == len(IDS))
    locked = door.deliveries + beyond.deliveries
    for partitions in (3, 4, 8):
        await grow(core, node, partitions)
        for each in locked:
            for _again in range(2):
                renewed = await other.ask(Renew(node, W1, each.item_id, each.token))
                assert isinstance(renewed, Renewed) and renewed.token == each.token, each.item_id
    back, *others = locked
    bounced = Bounce(W1, back.partition, back.position, back.token, gone=False)
    assert await other.ask(bounced) == Done()
    lost = await core.ask(bounced)
    assert isinstance(lost, Refused) and lost.problem is Problem.LOCK_LOST
    for each in others:
        assert await core.ask(Retract(node, W1, each.item_id)) == Retracted(W1)


async def test_not_all_can_be_asked(make_core: MakeCore, node: str) -> None:
    """Q27: while a partition cannot be asked, no item is reported as gone."""
    core, door = await make_core()
    await declared(core, node, partitions="4")
    elsewhere = (partition_of_id("a", 4) + 1) % 4
    await core.ask(item(node, "a", partition=elsewhere))
    await core.ask(Subscribe(node, W1, W1, 1))
    await until(lambda: door.deliveries)
    (delivery,) = door.deliveries
    pipeline = core.router(node).pipeline(elsewhere)
    taken = pipeline.submit

    def cut(command: Any, reply: Callable[[Any], None]) -> None:
        if isinstance(command, FindItem):
            reply(Refused(Problem.TIMED_OUT))
        else:
            taken(command, reply)

    pipeline.submit = cut  # type: ignore[method-assign]
    acknowledged = Retract(node, W1, "a", delivery.token, "r")
    assert await core.ask(acknowledged) == Refused(Problem.TIMED_OUT)
    pipeline.submit = taken  # type: ignore[method-assign]
    assert await core.ask(acknowledged) == Retracted(W1)


@pytest.mark.parametrize("when", ["refused", "looked for"])
async def test_changed_meanwhile(make_core: MakeCore, node: str, when: str) -> None:
    """Q27: a request for an item while its node grows is not answered from the state before."""
    (core, _), (other, _) = await make_core(), await make_core()
    await declared(core, node, partitions="2")
    name = next(f"i{n}" for n in range(100) if partition_of_id(f"i{n}", 2) == 1)
    await waiting(core, node)
    routes = core.router(node)
    pipeline = routes.pipeline(1 if when == "refused" else 0)
    taken = pipeline.submit

    async def grown() -> None:
        await grow(other, node, 4)
        assert isinstance(await other.ask(item(node, name, partition=3)), Published)

    async def slowly(command: Any, reply: Callable[[Any], None]) -> None:
        if when == "looked for":
            await grown()
            taken(command, reply)
            return
        outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        taken(command, partial(fulfil, outcome))
        await outcome
        await grown()
        # As when this frontend itself changes the node.
        routes.forget()
        reply(outcome.result())

    def late(command: Any, reply: Callable[[Any], None]) -> None:
        pipeline.submit = taken  # type: ignore[method-assign]
        start(slowly(command, reply))

    pipeline.submit = late  # type: ignore[method-assign]
    assert await core.ask(Retract(node, ALICE, name)) == Retracted(None)


async def test_overwritten(make_core: MakeCore, node: str) -> None:
    """X1: publishing an item again after a growth replaces it where it waits, and succeeds it where it is locked."""
    (core, door), (other, beyond) = await make_core(), await make_core()
    await declared(core, node)
    for n in range(8):
        await core.ask(item(node, f"i{n}", b"old"))
    await grow(core, node, 4)
    for n in range(8):
        assert await other.ask(item(node, f"i{n}", b"new")) == Published(f"i{n}")
    assert await bodies(core, node) == [(f"i{n}", b"new") for n in range(8)]
    await core.ask(Subscribe(node, W1, W1, 8))
    await door.until(lambda: len(door.deliveries) == 8)
    for n in range(8):
        await other.ask(item(node, f"i{n}", b"next"))
    await grow(core, node, 8)
    for delivery in door.deliveries[:8]:
        assert isinstance(await other.ask(Retract(node, W1, delivery.item_id, delivery.token)), Retracted)
    await until(lambda: sorted(_given(door)[8:] + _given(beyond)) == [f"i{n}" for n in range(8)])
    for n in range(8):
        await core.ask(item(node, f"i{n}", b"last"))
    assert {body for _name, body in await bodies(core, node)} == {b"next"} and await waiting(core, node) == 0


async def test_not_heard_of(make_core: MakeCore, node: str) -> None:
    """X1: a frontend that knows fewer partitions puts nothing new where it would not be found any more."""
    (core, _), (other, _) = await make_core(), await make_core()
    await declared(core, node, dedupe="ignore")
    assert await waiting(other, node) == 0
    await grow(core, node, 4)
    # This frontend is told that the first partition never had such items.
    for n in range(10):
        assert await core.ask(item(node, f"before{n}")) == Published(f"before{n}")
    asked = Asked(other)
    asked.submit(*(item(node, f"i{n}") for n in range(10)))
    assert await asked.settled() == [Published(f"i{n}") for n in range(10)]
    for n in range(10):
        assert await core.ask(item(node, f"i{n}")) == Published(f"i{n}", duplicate=True)
    assert await waiting(core, node) == 20


@pytest.mark.parametrize("seed", range(1))
async def test_under_load(make_core: MakeCore, node: str, seed: int) -> None:
    """X1: two frontends repeat the same ids while the node grows again and again: each is accepted once, and is there once."""
    chance = random.Random(seed)
    (core, _), (other, _) = await make_core(), await make_core()
    await declared(core, node, dedupe="ignore")
    taken: Counter[str] = Counter()

    async def repeat(names: Sequence[str]) -> None:
        for name in names:
            by = chance.choice((core, other))
            outcome = await by.ask(item(node, name, key=name if name.endswith("7") else ""))
            assert isinstance(outcome, Published), outcome
            taken[name] += not outcome.duplicate
            await asyncio.sleep(0)

    async def growing() -> None:
        for partitions in (2, 3, 5, 8, 13):
            await asyncio.sleep(0.02)
            await grow(chance.choice((core, other)), node, partitions)

    names = [f"i{n}" for n in range(150)]
    async with asyncio.TaskGroup() as group:
        group.create_task(growing())
        for _publisher in range(8):
            group.create_task(repeat(chance.sample(names, len(names))))
    assert taken == dict.fromkeys(names, 1)
    assert [name for name, _body in await bodies(core, node)] == sorted(names)


async def test_order(make_core: MakeCore, node: str) -> None:
    """Commands of one sender keep their order while a grown node is still asked for older items."""
    core, door = await make_core()
    await declared(core, node)
    await core.ask(item(node, "old"))
    await grow(core, node, 4)
    asked = Asked(core)
    for n in range(20):
        asked.submit(item(node, f"i{n}", key="k"), Publish(node, ALICE, None, b"x", 1, key="k"))
        asked.submit(item(node, f"gone{n}"), Retract(node, ALICE, f"gone{n}"))
    found = await asked.settled()
    assert not [each for each in found if isinstance(each, Refused)]
    await core.ask(Subscribe(node, W1, W1, 100))
    await until(lambda: len(_given(door)) == 41)
    keyed = [delivery.item_id for delivery in door.deliveries if delivery.key]
    assert keyed[::2] == [f"i{n}" for n in range(20)]


async def test_over(make_core: MakeCore, node: str) -> None:
    """A grown node is asked for older items only while it has some: then a publish is one script again."""
    core, _ = await make_core(qos_window_seconds=0.2)
    await declared(core, node, dedupe_seconds="1")
    await core.ask(item(node, "old"))
    await grow(core, node, 4)
    asked: list[Any] = []
    pipeline = core.router(node).pipeline(0)
    taken = pipeline.submit

    def counted(command: Any, reply: Callable[[Any], None]) -> None:
        asked.append(command)
        taken(command, reply)

    pipeline.submit = counted  # type: ignore[method-assign]

    async def published() -> int:
        del asked[:]
        for n in range(20):
            await core.ask(item(node, f"i{n}"))
        return sum(type(command).__name__ == "PublishIfKnown" for command in asked)

    assert await published() > 0
    assert isinstance(await core.ask(Retract(node, ALICE, "old")), Retracted)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await published():  # noqa: ASYNC110  (a window of time)
            await asyncio.sleep(0.1)


def _given(door: Door) -> list[str]:
    return [delivery.item_id for delivery in door.deliveries]


async def until(holds: Callable[[], object]) -> None:
    """Wait until this is true."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not holds():  # noqa: ASYNC110  (doors of several frontends)
            await asyncio.sleep(0.02)


async def test_deleted_while_it_grows(
    make_core: MakeCore, store: Store, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guarantee 6: partitions that come while their node is being deleted go with it."""
    (core, _), (other, _) = await make_core(), await make_core()
    await declared(core, node)
    delete = core._store._delete

    async def after_growth(partition: Partition) -> list[Jid]:
        monkeypatch.undo()
        await grow(other, node, 3)
        assert isinstance(await other.ask(item(node, "a", partition=2)), Published)
        return await delete(partition)

    monkeypatch.setattr(core._store, "_delete", after_growth)
    assert await core.ask(Delete(node, ALICE)) == Done()
    assert isinstance(await other.ask(item(node, "b", partition=1)), Refused)
    async with store.client() as client:
        left = [key.decode() async for key in client.scan_iter(f"sq:{{{node}@*")]
    # A deleted partition leaves a mark for a while.
    assert {key.rpartition(":")[2] for key in left} == {"meta"}
