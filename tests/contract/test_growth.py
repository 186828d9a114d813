"""What was sent to a partition is found there again when the node has grown: once is once, whatever the number of partitions."""

# ruff: noqa: ANN401  (commands of all kinds)

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from broker.model.commands import Browse, Configure, Declare, Deliver, Hold, Publish, Retract, Stats, Subscribe
from broker.model.names import Jid
from broker.model.problems import CoreUnavailable
from broker.model.results import Browsed, Counted, Done, Published, Refused, Retracted
from broker.redis_core.internal import fulfil
from broker.redis_core.service import RedisCore
from tests.contract.conftest import EVERYWHERE, Asked, Door, MakeCore

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
    """Give what a node holds."""
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
    core.routes(command.node).submit(command, partial(fulfil, future))
    return future


KINDS: dict[str, Callable[[str, int], Any]] = {
    "ignored": lambda node, n: item(node, f"i{n}"),
    "with a key": lambda node, n: item(node, f"i{n}", key=f"k{n}"),
    "with a ticket": lambda node, n: item(node, f"i{n}", ticket=f"\0t{n}"),
}


@EVERYWHERE
@pytest.mark.parametrize("kind", KINDS)
async def test_once(make_core: MakeCore, node: str, kind: str) -> None:
    """S14, X1, guarantee 1: what counts once does so from one to four to eight partitions, consumed or not, at any frontend."""
    (core, _), (other, _) = await make_core(), await make_core()
    await declared(core, node, dedupe="ignore" if kind in {"ignored", "with a key"} else "overwrite")
    made: list[Any] = [KINDS[kind](node, n) for n in range(16)]

    async def sent(by: RedisCore, commands: Sequence[Any]) -> list[bool]:
        found = await asyncio.gather(*(carried(by, command) for command in commands))
        assert all(isinstance(each, Published) for each in found), found
        return [each.duplicate for each in found]

    assert await sent(core, made[:8]) == [False] * 8
    # The other one has read the record and does not hear of the growth.
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
        held = Hold(TRUSTED, f"m{n}", Publish(node, TRUSTED, None, b"x", 1), "m")
        assert await core.ask(held) == Done()
    assured = core._works.assured
    run = assured._run

    async def broken(script: Any, **fixed: Any) -> Any:
        if cut == "claimed" or script == "conclude":
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


async def test_overwritten(make_core: MakeCore, node: str) -> None:
    """X1: who publishes an item again after a growth replaces it where it waits, and follows it where it is locked."""
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
    """X1: a frontend that knows fewer partitions brings nothing new to where it is looked for no more."""
    (core, _), (other, _) = await make_core(), await make_core()
    await declared(core, node, dedupe="ignore")
    assert await waiting(other, node) == 0
    await grow(core, node, 4)
    # What this one is told: nothing ever was in the first partition.
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
    """X1: two frontends repeat the same ids while the node grows again and again: each is taken in once, and is there once."""
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
    """Commands of one sender keep their order while a node that has grown is still asked for what it knows."""
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
    """A node that has grown is asked for what it knew only as long as it knows something: then a publish is one script again."""
    core, _ = await make_core(qos_window_seconds=0.2)
    await declared(core, node, dedupe_seconds="1")
    await core.ask(item(node, "old"))
    await grow(core, node, 4)
    asked: list[Any] = []
    lane = core.routes(node).lane(0)
    taken = lane.submit

    def counted(command: Any, reply: Callable[[Any], None]) -> None:
        asked.append(command)
        taken(command, reply)

    lane.submit = counted  # type: ignore[method-assign]

    async def published() -> int:
        del asked[:]
        for n in range(20):
            await core.ask(item(node, f"i{n}"))
        return sum(type(command).__name__ == "PublishIfKnown" for command in asked)

    assert await published() > 0
    assert isinstance(await core.ask(Retract(node, ALICE, "old")), Retracted)
    async with asyncio.timeout(10):
        while await published():  # noqa: ASYNC110  (a window of time)
            await asyncio.sleep(0.1)


def _given(door: Door) -> list[str]:
    return [delivery.item_id for delivery in door.deliveries]


async def until(holds: Callable[[], object]) -> None:
    """Wait until this is true."""
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110  (doors of several frontends)
            await asyncio.sleep(0.02)
