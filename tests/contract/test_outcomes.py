"""Publishers learn how their items have ended: at least once, whichever process ends them and whatever dies meanwhile."""

import asyncio
from random import Random

import pytest

from broker import codec, keys
from broker.model.commands import (
    Cancel,
    Complete,
    Configure,
    Declare,
    Delete,
    Deliver,
    PrepareMessage,
    Publish,
    ReadOutcome,
    Retract,
    Subscribe,
    Unlock,
)
from broker.model.items.hints import NO_HINTS, Hints
from broker.model.items.items import Envelope, ItemEnded
from broker.model.items.outcomes import RESULT_BYTES, End, ItemOutcome, ReplyMode
from broker.model.names import Jid, Partition
from broker.model.problems import Problem
from broker.model.results import Declared, Done, Ended, Published, Refused, Retracted, Subscribed
from broker.redis_core.commands.internal import Sweep
from broker.redis_core.core import RedisCore
from broker.settings import CommandSettings
from tests.admitting import ADMITTING
from tests.contract.conftest import Door, MakeCore, Store
from tests.contract.outbox import make_due
from tests.waiting import PATIENCE_SECONDS

ALICE, BOB, W1 = Jid("alice@x/home"), Jid("bob@x/b"), Jid("w1@x/a")

TOLD, KEPT = Hints(reply=ReplyMode.TOLD), Hints(reply=ReplyMode.KEPT)


async def begin(core: RedisCore, node: str, **options: str) -> None:
    """Create a node, and let a worker own all of its partitions."""
    fields = {f"stanzaq#{name}": (value,) for name, value in options.items()}
    assert await core.ask(Declare(node, ALICE, fields)) == Declared(node)
    assert isinstance(await core.ask(Subscribe(node, W1, W1, 100, group="g")), Subscribed)


async def publish(core: RedisCore, node: str, *items: str, hints: Hints = TOLD, key: str = "") -> None:
    """Publish items."""
    for item in items:
        sent = Publish(node, ALICE, item, codec.pack(Envelope(b"<x/>")), 4, key=key, hints=hints)
        assert await core.ask(sent) == Published(item)


def completion(node: str, item: str, result: bytes = b"done") -> Complete:
    """Acknowledge with a result."""
    return Complete(node, W1, item, envelope=codec.pack(Envelope(result)), body_bytes=len(result))


def ended(door: Door) -> dict[str, tuple[End, bytes]]:
    """Return the ends that a door was handed, by item."""
    return {
        each.outcome.item_id: (
            each.outcome.state,
            codec.unpack(each.outcome.envelope).body if each.outcome.envelope else b"",
        )
        for each in door.notices
        if isinstance(each, ItemEnded)
    }


async def partitions(store: Store, node: str, name: str) -> list[str]:
    """Return the keys of a node's partitions of this name that exist."""
    async with store.client() as client:
        return [key.decode() async for key in client.scan_iter(match=f"*{node}@*:{name}")]


async def until_reported(store: Store, node: str) -> None:
    """Wait until nothing is left to tell."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await partitions(store, node, "outbox_records"):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert not await partitions(store, node, "outbox_replies") and not await partitions(store, node, "replies")


async def test_two_frontends(make_core: MakeCore, store: Store, node: str) -> None:
    """Whoever ends an item tells its publisher, with the result; in any partition; and nothing is left of it."""
    (one, other), (two, door) = await make_core(), await make_core()
    await begin(one, node, partitions="3")
    items = [f"i{number}" for number in range(12)]
    await publish(one, node, *items)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(other.deliveries) + len(door.deliveries) < 12:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    outcomes = await asyncio.gather(*(two.ask(completion(node, item, item.encode())) for item in items))
    assert all(isinstance(each, Retracted) for each in outcomes)
    await door.until(lambda: len(ended(door)) == 12)
    assert ended(door) == {item: (End.ACKNOWLEDGED, item.encode()) for item in items}
    told = [each for each in door.notices if isinstance(each, ItemEnded)]
    assert {(each.node, each.subscriber) for each in told} == {(node, ALICE)} and len(
        {each.name for each in told}
    ) == 12
    await until_reported(store, node)


async def test_a_frontend_dies(make_core: MakeCore, store: Store, node: str) -> None:
    """What a frontend has not written before it dies another one tells, under the same name; once written, it is told once."""
    (one, broken), (two, door) = await make_core(), await make_core()
    await begin(one, node)
    await publish(one, node, "a")
    broken.writes = False
    assert isinstance(await one.ask(completion(node, "a")), Retracted)
    await broken.until(lambda: bool(ended(broken)))
    one._tasks.cancel()
    await make_due(store, node)
    await two.ask_partition(Sweep(node, 0))
    await door.until(lambda: bool(ended(door)))
    assert ended(door) == ended(broken) == {"a": (End.ACKNOWLEDGED, b"done")}
    names = {each.name for each in (*door.notices, *broken.notices) if isinstance(each, ItemEnded)}
    assert len(names) == 1
    await until_reported(store, node)


async def test_a_stream_that_comes_back(make_core: MakeCore, store: Store, node: str) -> None:
    """What is told while the stream is down is told again, though it is up by the time that this counts as written."""
    (one, broken), (two, door) = await make_core(), await make_core()
    await begin(two, node)
    await publish(two, node, "a")
    one.on_stream_state(up=False)
    assert isinstance(await one.ask(completion(node, "a")), Retracted)
    await broken.until(lambda: bool(ended(broken)))
    one.on_stream_state(up=True)
    await asyncio.sleep(1.2)
    await make_due(store, node)
    await two.ask_partition(Sweep(node, 0))
    await door.until(lambda: bool(ended(door)))
    await until_reported(store, node)


async def test_a_congested_door(make_core: MakeCore, store: Store, node: str) -> None:
    """While a door has too much to write it is told of no ends; they come later."""
    core, door = await make_core()
    await begin(core, node)
    await publish(core, node, *(f"i{number}" for number in range(20)))
    door.congested = lambda: True  # type: ignore[method-assign]
    for number in range(20):
        assert isinstance(await core.ask(completion(node, f"i{number}")), Retracted)
    await asyncio.sleep(0.1)
    assert not ended(door)
    door.congested = lambda: False  # type: ignore[method-assign]
    await make_due(store, node)
    await core.ask_partition(Sweep(node, 0))
    await door.until(lambda: len(ended(door)) == 20)
    await until_reported(store, node)


async def test_a_process_that_cannot_send(make_core: MakeCore, store: Store, node: str) -> None:
    """Of an item that ends through a process without a stream, a frontend tells at once."""
    core, door = await make_core()
    await begin(core, node)
    await publish(core, node, "a", "b")
    other = RedisCore(CommandSettings(**ADMITTING, redis_url=store.url), None, "rest")
    await other.start()
    assert isinstance(await other.ask(completion(node, "a")), Retracted)
    assert isinstance(await other.ask(Retract(node, W1, "b")), Retracted)
    await door.until(lambda: len(ended(door)) == 2)
    assert ended(door) == {"a": (End.ACKNOWLEDGED, b"done"), "b": (End.ACKNOWLEDGED, b"")}
    await other.stop()
    await until_reported(store, node)


async def test_kept(make_core: MakeCore, node: str) -> None:
    """stanzaq#result_seconds: whoever waits for an end gets it as soon as it is there, in any partition; others do not."""
    core, door = await make_core()
    await begin(core, node, partitions="3", result_seconds="60")
    await publish(core, node, "a", hints=KEPT, key="k")
    waiting = asyncio.create_task(core.ask(ReadOutcome(node, Jid("alice@x"), "a", 30)))
    assert await core.ask(ReadOutcome(node, ALICE, "a")) == Ended(None, awaited=True)
    await publish(core, node, "b", hints=NO_HINTS)
    assert await core.ask(ReadOutcome(node, ALICE, "b", 3_600)) == Ended(None), "nobody has asked"
    assert isinstance(await core.ask(completion(node, "a")), Retracted)
    found = await waiting
    outcome = ItemOutcome("a", End.ACKNOWLEDGED, "", codec.pack(Envelope(b"done")), ALICE)
    assert found == Ended(outcome, awaited=True) and await core.ask(ReadOutcome(node, ALICE, "a")) == found
    assert await core.ask(ReadOutcome(node, BOB, "a")) == Ended(None)
    assert ended(door) == {}, "it looks for the end, and is not told"


async def test_kept_by_default(make_core: MakeCore, store: Store, node: str) -> None:
    """A node made with defaults keeps the ends that somebody asked for, and stores nothing for that; 0 is stored and stays."""
    core, _ = await make_core()
    await begin(core, node)
    await publish(core, node, "a", hints=KEPT)
    assert isinstance(await core.ask(completion(node, "a")), Retracted)
    assert (await core.ask(ReadOutcome(node, ALICE, "a"))) != Ended(None)
    (meta,) = await partitions(store, node, "meta")
    async with store.client() as client:
        assert await client.hget(meta, "result_ms") is None
        assert await core.ask(Configure(node, ALICE, {"stanzaq#result_seconds": ("0",)})) == Done()
        assert await client.hget(meta, "result_ms") == b"0"
        assert await core.ask(Configure(node, ALICE, {"stanzaq#result_seconds": ("3600",)})) == Done()
        assert await client.hget(meta, "result_ms") is None


async def test_refusals(make_core: MakeCore, store: Store, node: str) -> None:
    """A result that is too large leaves the lock as it is; an end that nobody would learn is not asked for; logs have none."""
    core, door = await make_core()
    await begin(core, node, result_seconds="0")
    await publish(core, node, "a")
    outcome = await core.ask(completion(node, "a", b"x" * (RESULT_BYTES + 1)))
    assert isinstance(outcome, Refused) and outcome.problem is Problem.PAYLOAD_TOO_BIG
    assert isinstance(await core.ask(completion(node, "a", b"x" * RESULT_BYTES)), Retracted)
    await door.until(lambda: ended(door) == {"a": (End.ACKNOWLEDGED, b"x" * RESULT_BYTES)})
    asked = Publish(node, ALICE, "b", codec.pack(Envelope(b"<x/>")), 4, hints=KEPT)
    outcome = await core.ask(asked)
    assert isinstance(outcome, Refused) and outcome.problem is Problem.UNSUPPORTED
    assert "stanzaq#result_seconds is 0" in outcome.detail
    assert await core.ask(Configure(node, ALICE, {"stanzaq#result_seconds": ("5",)})) == Done()
    assert await core.ask(asked) == Published("b")
    await core.ask(Declare(f"{node}-log", ALICE, {"pubsub#queueing": ("0",)}))
    for hints in (TOLD, KEPT):
        outcome = await core.ask(Publish(f"{node}-log", ALICE, "b", codec.pack(Envelope(b"<x/>")), 4, hints=hints))
        assert isinstance(outcome, Refused) and outcome.problem is Problem.UNSUPPORTED
        assert "reply or kept end" in outcome.detail
    # A node that is deleted takes what it would have told with it.
    assert await core.ask(Delete(node, ALICE)) == Done()
    async with store.client() as client:
        partition = Partition(node, "*", 0)
        left = [
            key async for key in client.scan_iter(match=keys.of_partition("results", partition).replace("%2A", "*"))
        ]
    assert left == []
    assert isinstance(await core.ask(ReadOutcome(node, ALICE, "b")), Refused)


@pytest.mark.parametrize("sends", [True, False])
async def test_prepared(make_core: MakeCore, node: str, *, sends: bool) -> None:
    """QoS assured: a publish that is stored before it takes effect keeps that its sender wants to be told, by full JID."""
    core, door = await make_core(qos_trusted="x")
    await begin(core, node)
    sent = Publish(node, ALICE, "a", codec.pack(Envelope(b"<x/>")), 4, hints=TOLD if sends else Hints(priority=7))
    assert await core.ask(PrepareMessage(ALICE, "m", sent, "m")) == Done()
    assert await core.ask(Deliver(ALICE, "m")) == Done()
    assert isinstance(await core.ask(completion(node, "a")), Retracted)
    if sends:
        await door.until(lambda: bool(ended(door)))
    assert set(ended(door)) == ({"a"} if sends else set())


async def test_by_chance(make_core: MakeCore, store: Store, node: str) -> None:
    """Items of three partitions end in any way through two frontends, of which one hangs and dies: each end is told."""
    chance = Random(7)
    (one, broken), (two, door) = await make_core(), await make_core()
    await begin(one, node, partitions="3")
    items = [f"i{number}" for number in range(60)]
    await publish(one, node, *items)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(broken.deliveries) + len(door.deliveries) < len(items):  # noqa: ASYNC110  (either door may get them)
            await asyncio.sleep(0.02)
    wanted: dict[str, End] = {}
    written: dict[str, tuple[End, bytes]] = {}
    for number, item in enumerate(items):
        if number == len(items) // 2:
            # What it tells from now on never leaves the process.
            written, broken.writes = ended(broken), False
        command, wanted[item] = chance.choice(
            (
                (completion(node, item), End.ACKNOWLEDGED),
                (Retract(node, W1, item), End.ACKNOWLEDGED),
                (Cancel(node, ALICE, item), End.CANCELLED),
                (Unlock(node, W1, item, dead_letter=True), End.DEAD),
            )
        )
        assert not isinstance(await chance.choice((one, two)).ask(command), Refused)
    one._tasks.cancel()
    await make_due(store, node)
    await asyncio.gather(*(two.ask_partition(Sweep(node, number)) for number in range(3)))
    await door.until(lambda: len(written | ended(door)) == len(items))
    told = written | ended(door)
    assert {item: state for item, (state, _) in told.items()} == wanted
    await until_reported(store, node)
