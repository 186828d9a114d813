"""What is published with an acknowledgement: both happen or neither, once, whoever dies and whatever the target says."""

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from broker import codec
from broker.model.commands import (
    Affiliate,
    Browse,
    CompleteAndPublish,
    Configure,
    Declare,
    Delete,
    Publish,
    Stats,
    Subscribe,
)
from broker.model.items.dependencies import Dependencies
from broker.model.items.durability import Durability
from broker.model.items.hints import NO_HINTS, Hints
from broker.model.items.items import Envelope, ItemEnded
from broker.model.items.outcomes import ReplyMode
from broker.model.names import Jid
from broker.model.nodes.nodes import Affiliation
from broker.model.nodes.options import MAX_PAYLOAD_BYTES
from broker.model.problems import Problem
from broker.model.results import (
    Browsed,
    Counted,
    Declared,
    Published,
    Refused,
    Retracted,
    Subscribed,
)
from broker.redis_core.core import RedisCore
from frontends.tools.servers.redis import RedisServer
from tests.contract.conftest import SOMEWHERE, Door, MakeCore, Store
from tests.contract.outbox import due_again, rested
from tests.contract.test_losses import network_to
from tests.waiting import PATIENCE_SECONDS

ALICE, W1, W2 = Jid("alice@x/home"), Jid("w1@x/a"), Jid("w2@x/a")


async def begin(core: RedisCore, node: str, *items: str, **options: str) -> str:
    """Create a queue whose items a worker holds, and another one, to which it may publish; returns that one's name."""
    fields = {f"pubsub#{name}": (value,) for name, value in {"publish_model": "open", **options}.items()}
    for name, said in ((node, {}), (f"{node}-2", fields)):
        assert await core.ask(Declare(name, ALICE, said)) == Declared(name)
    assert isinstance(await core.ask(Subscribe(node, W1, W1, 100)), Subscribed)
    for item in items:
        assert await core.ask(following(node, item, ALICE)) == Published(item)
    return f"{node}-2"


def following(node: str, item: str | None, by: Jid = W1, body: bytes = b"<x/>", **more: Any) -> Publish:  # noqa: ANN401
    """Make the publish of an item."""
    return Publish(node, by, item, codec.pack(Envelope(body)), len(body), **more)


async def items(core: RedisCore, node: str) -> Counter[tuple[str, Jid, bytes, str]]:
    """Return the items of a queue."""
    found = await core.ask(Browse(node, ALICE, (), 200))
    assert isinstance(found, Browsed)
    return Counter((each.item_id, each.publisher, codec.unpack(each.envelope).body, each.state) for each in found.items)


async def arrived(core: RedisCore, node: str, count: int) -> None:
    """Wait until a queue has so many items."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await items(core, node)).total() < count:  # noqa: ASYNC110  (nothing tells)
            await asyncio.sleep(0.005)


async def in_flight(core: RedisCore, node: str) -> int:
    """Return how many items are held."""
    counted = await core.ask(Stats(node, ALICE))
    assert isinstance(counted, Counted)
    return counted.in_flight


@SOMEWHERE
async def test_together(core: RedisCore, node: str) -> None:
    """The items are there with their options, in the name of who held the item; also between masters of a cluster."""
    target = await begin(core, node, "a", "b")
    hints = Hints(delay_ms=600_000, priority=9, ttl_ms=900_000)
    publishes = (
        following(target, "one"),
        following(target, "late", body=b"<y/>", hints=hints, key="k"),
        following(node, None, ALICE, body=b"<z/>"),
    )
    done = await core.ask(CompleteAndPublish(node, W1, "a", publishes=publishes[:2]))
    assert done == Retracted(W1)
    await arrived(core, target, 2)
    assert await items(core, target) == {
        ("one", Jid("w1@x"), b"<x/>", "waiting"): 1,
        ("late", Jid("w1@x"), b"<y/>", "delayed"): 1,
    }
    # An item without an id gets one.
    assert await core.ask(CompleteAndPublish(node, W1, "b", publishes=(following(target, None),))) == Retracted(W1)
    await arrived(core, target, 3)
    await rested(core)
    assert core.metrics.tally.counts["acknowledged"] == 2 and core.metrics.tally.counts["published"] == 2 + 3


async def test_into_its_own_node(core: RedisCore, node: str) -> None:
    """An item may follow itself, and its owner's quota counts what is published so."""
    await begin(core, node, "a")
    await core.ask(Configure(node, ALICE, {"pubsub#publish_model": ("open",)}))
    before = core.quota_use.published.copy()
    done = await core.ask(CompleteAndPublish(node, W1, "a", publishes=(following(node, "a", body=b"<next/>"),)))
    assert done == Retracted(W1)
    await arrived(core, node, 1)
    await rested(core)
    ((name, _, body, state),) = await items(core, node)
    assert (name, body, state) == ("a", b"<next/>", "locked")
    assert (core.quota_use.published - before).total() == 1


async def test_an_id_that_is_there(core: RedisCore, node: str) -> None:
    """An item whose id another item has gets another one: both stay."""
    target = await begin(core, node, "a")
    assert await core.ask(following(target, "one", body=b"<first/>")) == Published("one")
    await core.ask(CompleteAndPublish(node, W1, "a", publishes=(following(target, "one"),)))
    await arrived(core, target, 2)
    assert sorted(body for _, _, body, _ in await items(core, target)) == [b"<first/>", b"<x/>"]


@pytest.mark.parametrize(
    "wrong",
    ["nobody's", "forbidden", "collection", "large", "draining", "log", "many", "together", "outcast", "unsubscribed"],
)
async def test_refused_together(core: RedisCore, node: str, wrong: str) -> None:
    """What one node refuses changes nothing anywhere: the item is held, and may be acknowledged otherwise."""
    target = await begin(core, node, "a")
    other = f"{node}-3"
    options = {
        "forbidden": {"pubsub#publish_model": "publishers"},
        "collection": {"pubsub#node_type": "collection"},
        "large": {"pubsub#max_payload_size": "3"},
        "draining": {"stanzaq#state": "draining"},
        "log": {"pubsub#queueing": "0"},
        "unsubscribed": {"pubsub#publish_model": "subscribers"},
    }.get(wrong, {})
    if wrong != "nobody's":
        said = {"pubsub#publish_model": "open", **options}
        if wrong == "collection":
            del said["pubsub#publish_model"]
        made = await core.ask(Declare(other, ALICE, {name: (value,) for name, value in said.items()}))
        assert made == Declared(other), made
    if wrong == "outcast":
        await core.ask(Affiliate(other, ALICE, {Jid("w1@x"): Affiliation.OUTCAST.value}))
    hints = Hints(priority=9) if wrong == "log" else NO_HINTS
    publishes: tuple[Publish, ...] = (following(target, "one"), following(other, "two", hints=hints))
    if wrong == "many":
        publishes = tuple(following(target, f"i{n}") for n in range(11))
    if wrong == "together":
        publishes = tuple(following(target, f"i{n}", body=bytes(MAX_PAYLOAD_BYTES // 2 + 1)) for n in range(2))
    refused = await core.ask(CompleteAndPublish(node, W1, "a", publishes=publishes))
    assert isinstance(refused, Refused) and refused.problem is Problem.NOT_ACCEPTABLE
    assert (other in refused.detail) == (wrong not in {"many", "together"})
    await rested(core)
    assert await in_flight(core, node) == 1 and not await items(core, target)
    assert await core.ask(CompleteAndPublish(node, W1, "a", publishes=publishes[:1])) == Retracted(W1)


@pytest.mark.parametrize(
    "more",
    [
        {"partition": 0},
        {"options": {"pubsub#max_items": ("1",)}},
        {"hints": Hints(reply=ReplyMode.KEPT)},
        {"hints": Hints(confirm=Durability.REPLICATED)},
        {"hints": Hints(after=Dependencies.parse_names("b", regardless=False))},
    ],
)
async def test_what_cannot_follow(core: RedisCore, node: str, more: dict[str, Any]) -> None:
    """An item that names a partition or required options, asks for a reply or waits for others cannot be published so."""
    target = await begin(core, node, "a")
    refused = await core.ask(CompleteAndPublish(node, W1, "a", publishes=(following(target, "one", **more),)))
    assert isinstance(refused, Refused) and "names no partition" in refused.detail
    assert await in_flight(core, node) == 1


async def test_a_subscriber_publishes(core: RedisCore, node: str) -> None:
    """Where subscribers publish, a worker that is one does."""
    target = await begin(core, node, "a", publish_model="subscribers")
    assert isinstance(await core.ask(Subscribe(target, W1, W1, 1)), Subscribed)
    assert await core.ask(CompleteAndPublish(node, W1, "a", publishes=(following(target, "one"),))) == Retracted(W1)
    await arrived(core, target, 1)


async def test_only_the_holder(core: RedisCore, node: str) -> None:
    """Who does not hold the item publishes nothing, be it an owner, or a worker whose lock has ended."""
    target = await begin(core, node, "a")
    for by, token, problem in (
        (W2, None, Problem.FORBIDDEN),
        (ALICE, None, Problem.LOCKED_BY_ANOTHER),
        (W1, 5, Problem.LOCK_LOST),
    ):
        command = CompleteAndPublish(node, by, "a", token, publishes=(following(target, "one", by),))
        refused = await core.ask(command)
        assert isinstance(refused, Refused) and refused.problem is problem
    await rested(core)
    assert not await items(core, target)


async def test_lost_reply(make_core: MakeCore, valkey: RedisServer, node: str) -> None:
    """Q27: the reply is lost, and the request repeated: the answer is that of the first one, and each item is there once.

    Also if the worker may not publish there any more: the repeat is told that it is done.
    """
    async with await network_to(valkey) as network:
        core, _ = await make_core(network.url)
        two, _ = await make_core()
        target = await begin(core, node, "a")
        command = CompleteAndPublish(node, W1, "a", request="r", publishes=(following(target, "followed"),))
        network.about = b"followed"
        publishes: Any = core._handlers.publishes
        ask = publishes._ask

        async def ask_and_lose(command: Any) -> Any:  # noqa: ANN401  (of every kind)
            network.losing = True
            outcome = await ask(command)
            network.losing = False
            return outcome

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(publishes, "_ask", ask_and_lose)
            async with asyncio.timeout(PATIENCE_SECONDS):
                # Another reply may be lost first.
                while not network.answered.is_set():
                    assert isinstance(await core.ask(command), Refused)
        await core.ask(Configure(target, ALICE, {"pubsub#publish_model": ("publishers",)}))
        for each in (core, two):
            assert await each.ask(command) == Retracted(W1, replayed=True)
        await arrived(two, target, 1)
        assert (await items(two, target)).total() == 1
        refused = await core.ask(replace(command, request="r2"))
        assert isinstance(refused, Refused) and refused.problem is Problem.ITEM_NOT_FOUND


async def test_the_target_later(core: RedisCore, store: Store, node: str) -> None:
    """A node that is full, or gone, has the items once it takes them: nothing is dropped, and nothing is stored twice."""
    target = await begin(core, node, "a", "b", max_items="1")
    assert await core.ask(CompleteAndPublish(node, W1, "a", publishes=(following(target, "one"),))) == Retracted(W1)
    await arrived(core, target, 1)
    publishes = (following(target, "two"),)
    assert await core.ask(CompleteAndPublish(node, W1, "b", publishes=publishes)) == Retracted(W1)
    await rested(core)
    await due_again(core, store, node)
    assert {name for name, *_ in await items(core, target)} == {"one"}
    await core.ask(Delete(target, ALICE))
    await due_again(core, store, node)
    assert await core.ask(Declare(target, ALICE, {})) == Declared(target)
    await due_again(core, store, node)
    assert {name for name, *_ in await items(core, target)} == {"two"}
    await due_again(core, store, node)
    assert (await items(core, target)).total() == 1


async def test_times_count_from_the_acknowledgement(core: RedisCore, store: Store, node: str) -> None:
    """A delay that is over when the item arrives is none, and a time to live that is over leaves nothing."""
    target = await begin(core, node, "a", max_items="1")
    assert await core.ask(following(target, "full")) == Published("full")
    publishes = (
        following(target, "late", hints=Hints(delay_ms=50)),
        following(target, "short", hints=Hints(ttl_ms=50)),
    )
    assert await core.ask(CompleteAndPublish(node, W1, "a", publishes=publishes)) == Retracted(W1)
    await rested(core)
    await asyncio.sleep(0.06)
    await core.ask(Configure(target, ALICE, {"pubsub#max_items": ("9",)}))
    await due_again(core, store, node)
    await asyncio.sleep(0.01)
    await due_again(core, store, target)
    assert {(name, state) for name, _, _, state in await items(core, target)} == {
        ("full", "waiting"),
        ("late", "waiting"),
    }


async def test_a_result(core_and_door: tuple[RedisCore, Door], node: str) -> None:
    """A result goes with the items; without one the publisher is told that the item is acknowledged."""
    core, door = core_and_door
    target = await begin(core, node)
    for name, result in (("a", codec.pack(Envelope(b"42"))), ("b", b"")):
        assert await core.ask(following(node, name, ALICE, hints=Hints(reply=ReplyMode.TOLD))) == Published(name)
        publishes = (following(target, f"after-{name}"),)
        done = await core.ask(CompleteAndPublish(node, W1, name, envelope=result, publishes=publishes))
        assert done == Retracted(W1)
    await arrived(core, target, 2)
    await door.until(lambda: sum(isinstance(each, ItemEnded) for each in door.notices) == 2)
    ends = {each.outcome.item_id: each.outcome.envelope for each in door.notices if isinstance(each, ItemEnded)}
    assert ends == {"a": codec.pack(Envelope(b"42")), "b": b""}
