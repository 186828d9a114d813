"""The cases of `stanzaq bench bounds` whose cost must not grow with the amount of data, and those of an idle frontend."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from bench.queue.scene import OWNER, Scene
from broker import codec, keys
from broker.model.commands import Associate, Declare, Publish, Retract, Subscribe
from broker.model.items.items import Envelope
from broker.model.names import Jid
from broker.model.nodes.tree import Scope, SubscriptionType
from broker.redis_core.operations.operation import subid

ROUNDS: Final = 10
ITEMS: Final = 10
"""The items of a step."""

BESIDE: Final = 400
"""Queues below one collection."""
SELECTORS: Final = 100
SUBSCRIBERS: Final = 2_000
NODES: Final = 1_000
_AT_ONCE: Final = 50

Step = Callable[[], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class GrowthCost:
    """A step whose cost must not grow with the data beside it: `prepare` returns the step, with little or much data."""

    name: str
    prepare: Callable[[Scene, bool], Awaitable[Step]]


async def _waiting_leases(scene: Scene, much: bool) -> Step:  # noqa: FBT001  (which of the two)
    """Look for fifty pull subscriptions that hold one item or a hundred each."""
    node = await scene.node(f"leases{much}")
    jids = await node.subscribe_workers(50, 100, pulled=True)
    await node.publish_items(50 * (100 if much else 1))
    token = int(await scene.client.hget(keys.of_partition("meta", node.partition), "token") or 0)
    rows = [
        {"subid": subid(jid), "jid": jid, "lease": "0", "limit": "", "lock_ms": "", "after": token}
        | {"process": "", "selector": "=", "references": "", "collection": "", "deadline": 0, "credit": ""}
        for jid in jids
    ]
    fixed = {"now": "", "revision": "", "frontend": "", "number": 0, "retry": scene.core.retry}
    return lambda: node.run("receive", fixed | {"most": 200, "max_bytes": 1_048_576}, rows)


async def _ordered_bodies(scene: Scene, much: bool) -> Step:  # noqa: FBT001  (which of the two)
    """Deliver the next item of an ordered node with few items, or with many large ones."""
    node = await scene.node(f"ordered{much}", ordered="true", max_items="1000")
    await node.subscribe_workers(1, 1)
    held = await node.publish_items(1)
    await node.publish_items(120 if much else ROUNDS + 2, 65_536)

    async def step() -> None:
        held[:] = await node.acknowledge(held)

    return step


async def put_below(scene: Scene, leaf: str, beside: int, credit: int) -> None:
    """Put a queue below a collection with a worker, and with so many queues beside it."""
    top, jid = f"{leaf}-all", Jid(f"above@{leaf}.example/1")
    await scene.ask(Declare(top, OWNER, {"pubsub#node_type": ("collection",)}))
    await scene.ask(Associate(top, OWNER, leaf))
    await scene.ask(Subscribe(top, jid, jid, credit, scope=Scope(SubscriptionType.ITEMS, None)))
    below = {"pubsub#collection": (top,)}
    for first in range(0, beside, _AT_ONCE):
        some = range(first, min(first + _AT_ONCE, beside))
        await asyncio.gather(*(scene.ask(Declare(f"{leaf}-{number}", OWNER, below)) for number in some))


def _worked(scene: Scene, leaf: str) -> Step:
    """Publish items one by one, then acknowledge them."""

    async def step() -> None:
        for _ in range(ITEMS):
            await scene.ask(Publish(leaf, OWNER, None, b"x" * 100, 100))
        for _ in range(ITEMS):
            async with asyncio.timeout(20):
                each = await scene.sink.deliveries.get()
            await scene.ask(Retract(leaf, each.subscriber, each.item_id, each.token))

    return step


async def _collections(scene: Scene, much: bool) -> Step:  # noqa: FBT001  (which of the two)
    """Pass items through a collection above their queue, which has no other queue below it, or 400."""
    leaf = f"below{much}"
    await scene.node(leaf)
    await put_below(scene, leaf, scene.share_of(BESIDE) if much else 0, 1000)
    return _worked(scene, leaf)


async def _collections_beside(scene: Scene, much: bool) -> Step:  # noqa: FBT001  (which of the two)
    """Pass items to a queue's own worker, below no collection or below one with an idle worker."""
    leaf = f"own{much}"
    node = await scene.node(leaf)
    await node.subscribe_workers(1, 1000)
    if much:
        await put_below(scene, leaf, 0, 1000)
    return _worked(scene, leaf)


async def _collections_busy(scene: Scene, much: bool) -> Step:  # noqa: FBT001  (which of the two)
    """Publish items that must wait because nobody has credit, below no collection or below one."""
    leaf = f"busy{much}"
    await scene.node(leaf)
    if much:
        await put_below(scene, leaf, 0, 1)
        await scene.ask(Publish(leaf, OWNER, None, b"x", 1))
        async with asyncio.timeout(60):
            await scene.sink.deliveries.get()

    async def step() -> None:
        for _ in range(ITEMS):
            await scene.ask(Publish(leaf, OWNER, None, b"x" * 100, 100))

    return step


async def put_selectors(scene: Scene, name: str, count: int) -> bytes:
    """Subscribe `count` workers, each with its own equality selector; returns a body that none of them selects."""
    await scene.node(name, max_items="100000")
    for number in range(count):
        jid = Jid(f"choosy{number}@bounds.example/1")
        await scene.ask(Subscribe(name, jid, jid, 3, selector=f"color = 'c{number}' AND size > {number}"))
    return codec.pack(Envelope(b"x", "text/plain", headers={"color": "none", "size": "5"}))


async def _selectors(scene: Scene, much: bool) -> Step:  # noqa: FBT001  (which of the two)
    """Publish items that nobody selects, beside one selector or a hundred."""
    name = f"choosy{much}"
    body = await put_selectors(scene, name, SELECTORS if much else 1)

    async def step() -> None:
        for _ in range(ITEMS):
            await scene.ask(Publish(name, OWNER, None, body, len(body)))

    return step


COSTS: Final = tuple(
    GrowthCost(name, prepare)
    for name, prepare in {
        "waiting_leases": _waiting_leases,
        "ordered_bodies": _ordered_bodies,
        "collections": _collections,
        "collections_beside": _collections_beside,
        "collections_busy": _collections_busy,
        "selectors": _selectors,
    }.items()
)


@dataclass(frozen=True, slots=True)
class Idle:
    """A state in which an idle frontend must send almost nothing; `prepare` creates it."""

    name: str
    prepare: Callable[[Scene], Awaitable[Any]]


async def _idle_subscribers(scene: Scene) -> None:
    """Subscribe many workers to a queue."""
    await scene.node("many")
    jids = [Jid(f"idle{number}@bounds.example/1") for number in range(scene.share_of(SUBSCRIBERS))]
    for first in range(0, len(jids), _AT_ONCE):
        await asyncio.gather(*(scene.ask(Subscribe("many", jid, jid, 10)) for jid in jids[first : first + _AT_ONCE]))


async def _idle_collections(scene: Scene) -> None:
    await scene.node("below")
    await put_below(scene, "below", scene.share_of(BESIDE), 1000)


async def _idle_selectors(scene: Scene) -> None:
    """Publish items that nobody selects."""
    body = await put_selectors(scene, "choosy", SELECTORS)
    for _ in range(scene.share_of(1_000)):
        await scene.ask(Publish("choosy", OWNER, None, body, len(body)))


async def _idle_together(scene: Scene) -> None:
    """Create all of these, and many nodes."""
    await _idle_subscribers(scene)
    await _idle_collections(scene)
    await _idle_selectors(scene)
    nodes = scene.share_of(NODES)
    for first in range(0, nodes, _AT_ONCE):
        some = range(first, min(first + _AT_ONCE, nodes))
        await asyncio.gather(*(scene.ask(Declare(f"idle{number}", OWNER, {})) for number in some))


IDLE: Final = tuple(
    Idle(name, prepare)
    for name, prepare in {
        "idle_subscribers": _idle_subscribers,
        "idle_collections": _idle_collections,
        "idle_selectors": _idle_selectors,
        "idle_together": _idle_together,
    }.items()
)
