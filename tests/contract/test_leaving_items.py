"""Items on their way to another node: none blocks another, none arrives twice, and all arrive in the end (A7)."""

# ruff: noqa: ANN401  (commands and outcomes of every kind pass through here)

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from broker import codec, keys
from broker.model.commands import (
    Browse,
    Configure,
    Declare,
    Delete,
    MoveItems,
    Publish,
    Purge,
    Stats,
    Subscribe,
    Unlock,
)
from broker.model.items.items import Envelope
from broker.model.names import Jid
from broker.model.results import (
    Browsed,
    Counted,
    Declared,
    Done,
    MovedItems,
    Published,
    Purged,
    Refused,
    Subscribed,
    Unlocked,
)
from broker.redis_core.commands.outbox import AcceptEntry, EndEntry, ReadOutbox
from broker.redis_core.core import RedisCore
from broker.redis_core.operations import outbox as outbox_calls
from broker.redis_core.outbox import leaving_items, outbox
from broker.tasks import FAILED
from tests.contract.conftest import MakeCore, Store
from tests.contract.outbox import Ask, due_again, interpose, rested
from tests.waiting import PATIENCE_SECONDS

ALICE, EVE, W1 = Jid("alice@x/home"), Jid("eve@y/b"), Jid("w1@x/a")


async def declared(core: RedisCore, node: str, **options: str) -> None:
    """Create a node; options are named without their prefix."""
    fields = {f"{'pubsub' if name == 'max_items' else 'stanzaq'}#{name}": (value,) for name, value in options.items()}
    assert await core.ask(Declare(node, ALICE, fields)) == Declared(node)


async def published(core: RedisCore, node: str, *items: str, body: bytes = b"<x/>", key: str = "") -> None:
    """Publish items."""
    commands = [Publish(node, ALICE, item, codec.pack(Envelope(body)), len(body), key=key) for item in items]
    assert all(isinstance(each, Published) for each in await asyncio.gather(*map(core.ask, commands)))


async def died(core: RedisCore, node: str, *items: str, body: bytes = b"<x/>") -> None:
    """Make items dead letters."""
    assert isinstance(await core.ask(Subscribe(node, W1, W1, len(items))), Subscribed)
    await published(core, node, *items, body=body)
    unlocked = await asyncio.gather(*(core.ask(Unlock(node, W1, item, dead_letter=True)) for item in items))
    assert all(isinstance(each, Unlocked) for each in unlocked)
    assert isinstance(await core.ask(Subscribe(node, W1, W1, 0)), Subscribed)


async def sent(core: RedisCore, node: str, to: str) -> int:
    """Move all waiting items to another node."""
    count, scan = 0, ""
    while True:
        done = await core.ask(MoveItems(node, ALICE, to, (), "", 200, scan))
        assert isinstance(done, MovedItems), done
        count, scan = count + done.count, done.scan
        if not scan:
            return count


async def counted(core: RedisCore, node: str) -> Counted:
    """Count a node's items."""
    found = await core.ask(Stats(node, ALICE))
    assert isinstance(found, Counted)
    return found


async def bodies(core: RedisCore, node: str) -> list[bytes]:
    """Return the bodies of waiting items."""
    found = await core.ask(Browse(node, ALICE, (), 100))
    assert isinstance(found, Browsed)
    return sorted(codec.unpack(each.envelope).body for each in found.items)


def watched(core: RedisCore, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the commands of deliveries, and the bytes that they send."""
    seen = Counter[str]()

    def watch(ask: Ask) -> Ask:
        async def asked(command: Any) -> Any:
            seen[type(command).__name__] += 1
            if isinstance(command, AcceptEntry):
                seen["bytes"] += len(command.envelope)
            outcome = await ask(command)
            if isinstance(command, ReadOutbox):
                seen["read"] = max(seen["read"], sum(len(entry.content[2]) for entry in outcome.entries))
            return outcome

        return asked

    interpose(core, monkeypatch, watch)
    return seen


def unanswered(*kinds: type) -> Callable[[Ask], Ask]:
    """Let commands of these kinds fail before they are carried out."""

    def wrap(ask: Ask) -> Ask:
        async def asked(command: Any) -> Any:
            return FAILED if isinstance(command, kinds) else await ask(command)

        return asked

    return wrap


async def test_none_hides_another(
    make_core: MakeCore, store: Store, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many items are on their way to a full node, others arrive, and those are not sent again and again."""
    core, _ = await make_core()
    await declared(core, node)
    await declared(core, f"{node}-full", max_items="1")
    await declared(core, f"{node}-open")
    await published(core, f"{node}-full", "taken")
    stuck = [f"s{number}" for number in range(2_000)]
    for first in range(0, len(stuck), 500):
        await published(core, node, *stuck[first : first + 500], body=b"x" * 20_000)
    assert await sent(core, node, f"{node}-full") == len(stuck)
    await rested(core)
    free = [f"f{number}" for number in range(100)]
    await published(core, node, *free)
    # All that continue are interrupted before they arrive: they are behind the others.
    with monkeypatch.context() as patch:
        interpose(core, patch, unanswered(AcceptEntry))
        assert await sent(core, node, f"{node}-open") == len(free)
        await rested(core)
    assert (await counted(core, node)).dying == len(stuck) + len(free)
    seen = watched(core, monkeypatch)
    await due_again(core, store, node)
    assert (await counted(core, f"{node}-open")).waiting == len(free)
    assert (await counted(core, node)).dying == len(stuck)
    assert seen["read"] <= outbox_calls.MOST_BYTES + 20_500 and seen["AcceptEntry"] < len(free) + 100


async def test_drains_at_once(make_core: MakeCore, store: Store, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """When there is room again, all arrive by as many scripts as they need, without waiting."""
    core, _ = await make_core()
    await declared(core, node)
    await declared(core, f"{node}-2", max_items="1")
    await published(core, f"{node}-2", "taken")
    items = [f"i{number}" for number in range(500)]
    await published(core, node, *items)
    assert await sent(core, node, f"{node}-2") == len(items)
    await rested(core)
    assert (await counted(core, node)).dying == len(items)
    assert await core.ask(Configure(f"{node}-2", ALICE, {"pubsub#max_items": ("1000",)})) == Done()
    seen = watched(core, monkeypatch)
    await due_again(core, store, node)
    assert (await counted(core, node)).dying == 0
    assert (await counted(core, f"{node}-2")).waiting == len(items) + 1
    assert seen["AcceptEntry"] == len(items) and seen["ReadOutbox"] <= 5


async def test_an_outage_costs_one_turn(
    make_core: MakeCore, store: Store, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guarantee 4: a node that could not answer is tried again at the next attempt."""
    core, _ = await make_core()
    await declared(core, node)
    await declared(core, f"{node}-2")
    await published(core, node, "a")
    monkeypatch.setattr(leaving_items, "PAUSE_SECONDS", 0.5)

    def swallow(ask: Ask) -> Ask:
        async def swallowed(command: Any) -> Any:
            if not isinstance(command, AcceptEntry):
                return await ask(command)
            await asyncio.sleep(0.6)
            return FAILED

        return swallowed

    with monkeypatch.context() as patch:
        interpose(core, patch, swallow)
        assert await sent(core, node, f"{node}-2") == 1
        await rested(core)
    await due_again(core, store, node, paused=True)
    assert (await counted(core, f"{node}-2")).waiting == 1


async def test_read_within_a_bound(make_core: MakeCore, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarantee 6: large items are handed over a few at a time."""
    core, _ = await make_core()
    await declared(core, node)
    await declared(core, f"{node}-2")
    size = 250_000
    await published(core, node, *(f"i{number}" for number in range(20)), body=b"x" * size)
    seen = watched(core, monkeypatch)
    assert await sent(core, node, f"{node}-2") == 20
    await rested(core)
    assert (await counted(core, f"{node}-2")).waiting == 20
    assert seen["read"] <= outbox_calls.MOST_BYTES + size + 100 and seen["AcceptEntry"] == 20


async def test_without_a_node_for_dead_letters(make_core: MakeCore, store: Store, node: str) -> None:
    """A dead letter whose node was removed from the configuration comes back to its own queue, as it was."""
    core, _ = await make_core()
    await declared(core, node)
    await declared(core, f"{node}/dead", max_items="1")
    await published(core, f"{node}/dead", "taken")
    await died(core, node, "a", "b", body=b"<job/>")
    await rested(core)
    assert (await counted(core, node)).dying == 2
    assert await core.ask(Configure(node, ALICE, {"stanzaq#dead_letter_node": ("",)})) == Done()
    await due_again(core, store, node)
    now = await counted(core, node)
    assert (now.dying, now.waiting) == (0, 2)
    found = await core.ask(Browse(node, ALICE, ("a", "b"), 10))
    assert isinstance(found, Browsed) and [codec.unpack(each.envelope) for each in found.items] == 2 * [
        Envelope(b"<job/>")
    ]
    assert (await counted(core, f"{node}/dead")).waiting == 1


async def test_to_a_node_that_is_gone(make_core: MakeCore, store: Store, node: str) -> None:
    """An item on its way to a deleted node comes back to its own queue."""
    core, _ = await make_core()
    await declared(core, node)
    await declared(core, f"{node}-2", max_items="1")
    await published(core, f"{node}-2", "taken")
    await published(core, node, "a")
    assert await sent(core, node, f"{node}-2") == 1
    await rested(core)
    assert await core.ask(Delete(f"{node}-2", ALICE)) == Done()
    await due_again(core, store, node)
    now = await counted(core, node)
    assert (now.dying, now.waiting) == (0, 1)


async def test_to_a_node_that_is_now_of_another(
    make_core: MakeCore, store: Store, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dead letter does not go to somebody else who creates its node again while it is on its way."""
    core, _ = await make_core()
    dead = f"{node}/dead"
    await declared(core, node)
    await declared(core, dead)
    made = list[bool]()

    def delay(ask: Ask) -> Ask:
        async def late(command: Any) -> Any:
            if isinstance(command, AcceptEntry) and not made:
                made.append(True)
                assert await core.ask(Delete(dead, ALICE)) == Done()
                assert await core.ask(Declare(dead, EVE, {})) == Declared(dead)
            return await ask(command)

        return late

    interpose(core, monkeypatch, delay)
    await died(core, node, "a")
    await rested(core)
    for _ in range(2):
        found = await core.ask(Browse(dead, EVE, (), 100))
        assert isinstance(found, Browsed) and (made, found.items) == ([True], ())
        await due_again(core, store, node)
    assert await core.ask(Delete(dead, EVE)) == Done()
    await due_again(core, store, node)
    assert (await counted(core, node)).dying == 0
    assert len(await bodies(core, dead)) == 1


@pytest.mark.parametrize("dedupe", ["ignore", "overwrite"])
async def test_forged_ids(make_core: MakeCore, store: Store, node: str, dedupe: str) -> None:
    """Nobody erases another queue's dead letter by publishing its id at its node, before it arrives or meanwhile."""
    core, _ = await make_core()
    await declared(core, node)
    await declared(core, f"{node}/dead", dedupe=dedupe, max_items="1")
    await published(core, f"{node}/dead", "taken")
    await died(core, node, "a", body=b"<job/>")
    await rested(core)
    record = await core._store.read(node)
    assert record
    async with store.client() as client:
        (position,) = await client.hkeys(keys.of_partition("outbox_items", record.partition(0)))
    assert await core.ask(Configure(f"{node}/dead", ALICE, {"pubsub#max_items": ("100",)})) == Done()
    forged = f"{record.incarnation}-0-{position.decode()}"
    await published(core, f"{node}/dead", forged, f"handed {forged}", body=b"<forged/>")
    await due_again(core, store, node)
    assert (await counted(core, node)).dying == 0
    assert await bodies(core, f"{node}/dead") == [b"<forged/>", b"<forged/>", b"<job/>", b"<x/>"]


async def test_in_doubt(make_core: MakeCore, store: Store, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An item that may have arrived is sent to the same place, though another one is configured since."""
    core, _ = await make_core()
    await declared(core, node)
    await declared(core, f"{node}/dead")
    await died(core, node, *(f"i{number}" for number in range(10)))
    await rested(core)
    assert isinstance(await core.ask(Purge(f"{node}/dead", ALICE)), Purged)
    with monkeypatch.context() as patch:
        interpose(core, patch, unanswered(EndEntry))
        await died(core, node, *(f"j{number}" for number in range(10)))
        await rested(core)
    await declared(core, f"{node}-2")
    assert await core.ask(Configure(node, ALICE, {"stanzaq#dead_letter_node": (f"{node}-2",)})) == Done()
    for _ in range(2):
        await due_again(core, store, node)
    assert (await counted(core, node)).dying == 0
    assert (await counted(core, f"{node}/dead")).waiting == 10


async def test_another_version(make_core: MakeCore, store: Store, node: str) -> None:
    """Entries of a kind that only another version knows stay, and hide nobody."""
    core, _ = await make_core()
    await declared(core, node)
    record = await core._store.read(node)
    assert record
    later = {f"later/{number}": 1 for number in range(1_000)}
    async with store.client() as client:
        await client.zadd(keys.of_partition("outbox", record.partition(0)), later)
        await died(core, node, "b")
        await due_again(core, store, node)
        assert (await counted(core, f"{node}/dead")).waiting == 1
        assert await client.zcard(keys.of_partition("outbox", record.partition(0))) == len(later)


async def test_an_old_page(make_core: MakeCore, store: Store, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is sent of what was read so long ago that another process may have read it since."""
    core, _ = await make_core()
    await declared(core, node)
    with monkeypatch.context() as patch:
        patch.setattr(outbox, "_OWN_SECONDS", -1.0)
        await died(core, node, "a")
        await rested(core)
        assert (await counted(core, node)).dying == 1
    await due_again(core, store, node)
    assert (await counted(core, f"{node}/dead")).waiting == 1


async def test_slow_refusal(make_core: MakeCore, store: Store, node: str) -> None:
    """An item that a node has refused, and taken at a later attempt, does not also go to the node that is chosen since."""
    (slow, _), (other, _) = await make_core(), await make_core()
    await declared(other, node)
    await declared(other, f"{node}/dead", max_items="1")
    await declared(other, f"{node}-2")
    await published(other, f"{node}/dead", "taken")
    refused, goes_on = asyncio.Event(), asyncio.Event()

    def delay(ask: Ask) -> Ask:
        async def late(command: Any) -> Any:
            outcome = await ask(command)
            if isinstance(command, AcceptEntry):
                assert isinstance(outcome, Refused)
                refused.set()
                await goes_on.wait()
            return outcome

        return late

    with pytest.MonkeyPatch.context() as patch:
        await died(other, node, "a")
        await rested(other)
        assert await other.ask(Configure(node, ALICE, {"stanzaq#dead_letter_node": (f"{node}-2",)})) == Done()
        interpose(slow, patch, delay)
        trying = asyncio.create_task(due_again(slow, store, node))
        async with asyncio.timeout(PATIENCE_SECONDS):
            await refused.wait()
        assert await other.ask(Configure(f"{node}/dead", ALICE, {"pubsub#max_items": ("9",)})) == Done()
        await due_again(other, store, node)
        assert (await counted(other, node)).dying == 0
        goes_on.set()
        await trying
    assert [(await counted(other, name)).waiting for name in (f"{node}/dead", f"{node}-2")] == [2, 0]


async def test_calls(make_core: MakeCore, store: Store, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 51: 10,000 dead letters arrive in at most 600 calls."""
    core, _ = await make_core()
    await declared(core, node)
    await declared(core, f"{node}/dead", max_items="20000")
    with monkeypatch.context() as patch:
        interpose(core, patch, unanswered(ReadOutbox))
        for first in range(0, 10_000, 1_000):
            await died(core, node, *(f"i{number}" for number in range(first, first + 1_000)))
    assert (await counted(core, node)).dying == 10_000
    calls, call = Counter[str](), core._server.write_call

    def count(name: str, *about: Any) -> Any:
        calls[name] += 1
        return call(name, *about)

    monkeypatch.setattr(core._server, "write_call", count)
    await due_again(core, store, node)
    assert (await counted(core, node)).dying == 0
    assert (await counted(core, f"{node}/dead")).waiting == 10_000
    assert calls["read_outbox"] >= 50 and calls.total() <= 600, calls
