"""The outbox: whoever dies between two steps, what leaves a partition arrives once, and nothing is left of it."""

# ruff: noqa: ANN401  (commands and outcomes of every kind pass through here)

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from broker import codec
from broker.model.commands import (
    Browse,
    Cancel,
    CompleteAndPublish,
    Declare,
    MoveItems,
    Publish,
    Retract,
    Subscribe,
    Unlock,
)
from broker.model.items.dependencies import Dependencies
from broker.model.items.hints import NO_HINTS, Hints
from broker.model.items.items import Envelope, ItemEnded
from broker.model.items.outcomes import ReplyMode
from broker.model.names import Jid
from broker.model.results import Browsed, Declared, MovedItems, Published, Refused, Subscribed
from broker.redis_core.commands.dependency_parts import AwaitEnd, NoteParent
from broker.redis_core.commands.internal import Sweep
from broker.redis_core.commands.outbox import AcceptEntry, EndEntry, ExpireTicket, ReadOutbox
from broker.redis_core.core import RedisCore
from broker.redis_core.outbox import replies
from tests.contract.conftest import Door, MakeCore, Store
from tests.contract.outbox import Ask, interpose, is_busy, make_due
from tests.seeds import seeds
from tests.waiting import PATIENCE_SECONDS

ALICE, W1 = Jid("alice@x/home"), Jid("w1@x/a")
STEPS = (ReadOutbox, AcceptEntry, EndEntry, ExpireTicket, AwaitEnd, NoteParent)
KINDS = ("dead", "moved", "replied", "child", "parents", "left", "followed")


class Life:
    """A frontend that dies at its n-th step, before or after Redis has done it: nothing that it asks is answered then."""

    def __init__(self, core: RedisCore, patch: pytest.MonkeyPatch, dies_at: int, *, executed: bool) -> None:
        """Stand in its way."""
        self.core = core
        self.left, self._executed = dies_at, executed
        self.dead = asyncio.Event()
        self._doing = list[asyncio.Task[object]]()
        interpose(core, patch, self._wrap)

    def _wrap(self, ask: Ask) -> Ask:
        async def asked(command: Any) -> Any:
            self.left -= isinstance(command, STEPS)
            if self.left > 0 and not self.dead.is_set():
                return await ask(command)
            if self._executed and not self.dead.is_set():
                await ask(command)
            self.dead.set()
            return await asyncio.Event().wait()

        return asked

    async def act(self, act: Coroutine[Any, Any, object], *, rests: bool = True) -> None:
        """Let it do something, until it is dead, or has nothing more to do."""
        doing = asyncio.create_task(act)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not self.dead.is_set() and (not doing.done() or (rests and is_busy(self.core))):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            # A reply is ended when it is written.
            await asyncio.sleep(0.02)
        self._doing.append(doing)

    async def end(self) -> None:
        """Let it die, if it has not."""
        self.left = 0
        self.dead.set()
        for each in self._doing:
            each.cancel()
        await asyncio.gather(*self._doing, return_exceptions=True)
        self.core._tasks.cancel()


def _item(node: str, item: str, hints: Hints) -> Publish:
    return Publish(node, ALICE, item, codec.pack(Envelope(b"<x/>")), 4, hints=hints)


class Play:
    """Queues `NODE`, `NODE-2` and `NODE/dead`, a worker of the first two, and what has to come of it."""

    def __init__(self, store: Store, node: str, doors: list[Door]) -> None:
        """Look at the doors."""
        self.store, self.node, self.doors = store, node, doors
        self.dead, self.moved, self.replied = set[str](), set[str](), set[str]()
        self.freed, self.waiting, self.left = set[str](), set[str](), set[str]()
        self.followed = set[str]()
        self.acts: dict[str, Callable[[RedisCore, str], Coroutine[Any, Any, object]]] = {
            "dead": self._die,
            "moved": self._move,
            "replied": self._reply,
            "child": self._free,
            "parents": self._wait,
            "left": self._leave,
            "followed": self._follow,
        }

    async def begin(self, core: RedisCore) -> None:
        """Make the queues, each with items for each kind of act."""
        for name in (self.node, f"{self.node}-2", f"{self.node}/dead"):
            assert await core.ask(Declare(name, ALICE, {"pubsub#publish_model": ("open",)})) == Declared(name)
        assert isinstance(await core.ask(Subscribe(self.node, W1, W1, 1_000)), Subscribed)

    async def prepare(self, core: RedisCore, kind: str, tag: str) -> None:
        """Publish what an act needs."""
        match kind:
            case "moved":
                await self._publish(core, f"{self.node}-2", f"m{tag}", NO_HINTS)
            case "replied":
                await self._publish(core, self.node, f"r{tag}", Hints(reply=ReplyMode.TOLD))
            case _:
                await self._publish(core, self.node, f"p{tag}", NO_HINTS)
                if kind in {"child", "left"}:
                    await self._publish(core, f"{self.node}-2", f"c{tag}", self._after(tag))

    def _after(self, tag: str) -> Hints:
        return Hints(after=Dependencies.parse_names(f"{self.node}#p{tag}", regardless=False))

    async def _publish(self, core: RedisCore, node: str, item: str, hints: Hints) -> None:
        assert await core.ask(_item(node, item, hints)) == Published(item)

    async def _die(self, core: RedisCore, tag: str) -> None:
        self.dead.add(f"p{tag}")
        assert not isinstance(await core.ask(Unlock(self.node, W1, f"p{tag}", dead_letter=True)), Refused)

    async def _move(self, core: RedisCore, tag: str) -> None:
        self.moved.add(f"m{tag}")
        done = await core.ask(MoveItems(f"{self.node}-2", ALICE, f"{self.node}/dead", (f"m{tag}",), "", 10))
        assert isinstance(done, MovedItems) and done.count == 1

    async def _reply(self, core: RedisCore, tag: str) -> None:
        self.replied.add(f"r{tag}")
        assert not isinstance(await core.ask(Retract(self.node, W1, f"r{tag}")), Refused)

    async def _free(self, core: RedisCore, tag: str) -> None:
        self.freed.add(f"c{tag}")
        assert not isinstance(await core.ask(Retract(self.node, W1, f"p{tag}")), Refused)

    async def _wait(self, core: RedisCore, tag: str) -> None:
        self.waiting.add(f"c{tag}")
        await core.ask(_item(f"{self.node}-2", f"c{tag}", self._after(tag)))

    async def _leave(self, core: RedisCore, tag: str) -> None:
        self.left.add(f"c{tag}")
        assert not isinstance(await core.ask(Cancel(f"{self.node}-2", ALICE, f"c{tag}")), Refused)

    async def _follow(self, core: RedisCore, tag: str) -> None:
        self.followed |= {f"n{tag}", f"o{tag}"}
        publishes = tuple(replace(_item(f"{self.node}-2", f"{name}{tag}", NO_HINTS), sender=W1) for name in "no")
        done = await core.ask(CompleteAndPublish(self.node, W1, f"p{tag}", publishes=publishes))
        assert not isinstance(done, Refused)

    async def repeat(self, core: RedisCore, acts: Sequence[tuple[str, str]]) -> None:
        """Do again what may not have been done, because its frontend died or Redis did not answer; the rest is refused."""
        for kind, tag in acts:
            with contextlib.suppress(AssertionError):
                await self.acts[kind](core, tag)

    async def finish(self, core: RedisCore) -> None:
        """Let another frontend do the rest, and see that all is there once and nothing is left."""
        await self._until(core, 2 * len(self.waiting))
        for child in self.waiting | self.left:
            assert not isinstance(await core.ask(Retract(self.node, W1, f"p{child[1:]}")), Refused)
        await self._until(core, 0)
        assert not await self._members("dependents", "replies")
        assert await self._found(core, f"{self.node}/dead") == Counter(self.dead | self.moved)
        assert await self._found(core, f"{self.node}-2") == Counter(self.freed | self.waiting | self.followed)
        told = [
            each
            for door in self.doors
            for each in door.notices
            if isinstance(each, ItemEnded) and each.node == self.node
        ]
        assert {each.outcome.item_id for each in told} == self.replied
        assert len({each.name for each in told}) == len(self.replied)

    async def _until(self, core: RedisCore, awaited: int) -> None:
        """Let entries come again until none is left, but those of items that wait for parents that know it."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                left = [
                    each
                    for each in await self._members("outbox", "outbox_replies")
                    if not (awaited and each.startswith("parents/"))
                ]
                left += await self._members("outbox_items", "outbox_records")
                if not left and len(await self._members("awaited")) == awaited:
                    break
                for name in (self.node, f"{self.node}-2"):
                    await make_due(self.store, name)
                    await core.ask_partition(Sweep(name, 0))
                await asyncio.sleep(0.01)
        assert awaited or not await self._members("outbox_attempts")

    async def _members(self, *names: str) -> list[str]:
        """Return the members of keys of the queues' partitions."""
        found = list[str]()
        async with self.store.client() as client:
            for name in names:
                async for key in client.scan_iter(match=f"*{{{self.node}*:{name}"):
                    kind = await client.type(key)
                    members = await client.hkeys(key) if kind == b"hash" else await client.zrange(key, 0, -1)
                    found += [each.decode() for each in members]
        return found

    async def _found(self, core: RedisCore, node: str) -> Counter[str]:
        """Count the items that wait in a queue, by the ids that they were published with."""
        found = await core.ask(Browse(node, ALICE, (), 200))
        assert isinstance(found, Browsed) and all(each.state == "waiting" for each in found.items)
        headers = [codec.unpack(each.envelope).headers for each in found.items]
        return Counter(
            told.get("stanzaq-dead-item", each.item_id) for told, each in zip(headers, found.items, strict=True)
        )


@pytest.mark.parametrize("executed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
async def test_crash_between_any_two_steps(
    make_core: MakeCore, store: Store, node: str, kind: str, monkeypatch: pytest.MonkeyPatch, *, executed: bool
) -> None:
    """Issue 51: for each kind of entry, whichever step is the last one of a frontend, before Redis has it or after."""
    monkeypatch.setattr(replies, "_READ_SECONDS", 0)
    two, door = await make_core()
    for dies_at in range(1, 20):
        one, other = await make_core()
        play = Play(store, f"{node}-{dies_at}", [door, other])
        await play.begin(two)
        await play.prepare(two, kind, "1")
        with pytest.MonkeyPatch.context() as patch:
            life = Life(one, patch, dies_at, executed=executed)
            await life.act(play.acts[kind](one, "1"))
            died = life.dead.is_set()
            await life.end()
        await play.finish(two)
        if not died:
            break
    assert 2 < dies_at < 19, "each step was the last one once"


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("store", ["valkey", "cluster"], indirect=True)
async def test_crash_in_a_mixture(make_core: MakeCore, store: Store, node: str, seed: int) -> None:
    """Issue 51: entries of all kinds, and frontends that die one after another, on one Redis and between masters."""
    chance = Random(seed)
    two, door = await make_core()
    play = Play(store, node, [door])
    await play.begin(two)
    acts = [(kind, f"{number}") for number, kind in enumerate(KINDS * 4)]
    for kind, tag in acts:
        await play.prepare(two, kind, tag)
    chance.shuffle(acts)
    all_acts = tuple(acts)
    while acts:
        one, other = await make_core()
        play.doors.append(other)
        with pytest.MonkeyPatch.context() as patch:
            life = Life(one, patch, chance.randint(1, 25), executed=chance.random() < 0.5)
            while acts and not life.dead.is_set():
                kind, tag = acts.pop()
                await life.act(play.acts[kind](one, tag), rests=chance.random() < 0.5)
            await life.end()
    await play.repeat(two, all_acts)
    await play.finish(two)
