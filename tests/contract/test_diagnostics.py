"""The diagnostics of queues: which partitions with waiting items have no owner."""

import pytest

from broker import codec
from broker.model.commands import Declare, Publish, Retract, Subscribe
from broker.model.items.items import Envelope
from broker.model.names import Jid
from broker.model.results import Declared, Published, Subscribed
from broker.redis_core.core import RedisCore
from broker.redis_core.nodes import diagnostics
from broker.redis_core.redis_client.diagnostics import Finding, Level
from tests.contract.conftest import MakeCore, Store

ALICE = Jid("alice@x")
WORKER = Jid("worker@x/1")


async def declared(core: RedisCore, node: str, partitions: int = 4, **more: str) -> None:
    """Create a node of some partitions."""
    options = {"stanzaq#partitions": (str(partitions),)} | {name: (value,) for name, value in more.items()}
    assert isinstance(await core.ask(Declare(node, ALICE, options)), Declared)


async def published(core: RedisCore, node: str, number: int, item: str | None = None) -> None:
    """Publish an item into a partition."""
    result = await core.ask(Publish(node, ALICE, item, codec.pack(Envelope(b"<x/>")), 4, partition=number))
    assert isinstance(result, Published)


async def examined(url: str) -> Finding:
    """Return the finding."""
    (found,) = await diagnostics.examine_nodes(url, 5.0)
    assert (found.what, bool(found.remedy)) == ("owners", found.level is not Level.FINE)
    return found


@pytest.mark.parametrize("store", ["single", "cluster"], indirect=True)
async def test_items_without_an_owner(make_core: MakeCore, store: Store, node: str) -> None:
    """A queue is named with the partitions in which items wait and that nobody owns, until somebody does."""
    core, door = await make_core()
    await declared(core, node)
    # What may wait without an owner: items of one partition, and what a log keeps.
    await declared(core, f"{node}/one", 1)
    await declared(core, f"{node}/log", 4, **{"{urn:xmpp:pubsub:queueing:0}enabled": "0"})
    for other in (f"{node}/one", f"{node}/log"):
        await published(core, other, 0)
    for number in (0, 1, 3):
        await published(core, node, number, "a")
    assert isinstance(await core.ask(Subscribe(node, WORKER, WORKER, 1, partitions=(0,), group="g")), Subscribed)
    await published(core, node, 0, "b")
    found = await examined(store.url)
    assert found.level is Level.WARNING and found.found.endswith(f"owner: {node} (1, 3)") and "group=" in found.remedy
    await core.ask(Subscribe(node, WORKER, WORKER, 3, partitions=(0, 1, 3), group="g"))
    assert (await examined(store.url)).level is Level.FINE
    await door.until(lambda: len(door.deliveries) >= 3)


async def test_nothing_waits(make_core: MakeCore, store: Store, node: str) -> None:
    """Items that are held, done, kept or replaced do not wait, so nobody is missed."""
    core, door = await make_core()
    await declared(core, node, 2, **{"stanzaq#retention_items": "9"})
    assert isinstance(await core.ask(Subscribe(node, WORKER, WORKER, 9, partitions=(1,), group="g")), Subscribed)
    for item in "aab":
        await published(core, node, 1, item)
    await door.until(lambda: {each.item_id for each in door.deliveries} == {"a", "b"})
    for each in tuple(door.deliveries):
        await core.ask(Retract(node, WORKER, each.item_id, each.token, partition=1))
    await door.until(lambda: len(door.deliveries) == 3)
    await core.ask(Retract(node, WORKER, "a", door.deliveries[-1].token, partition=1))
    async with store.client() as client:
        (meta,) = [key async for key in client.scan_iter("*/1}:meta")]
        assert int(await client.hget(meta, "kept") or 0) > 0
        await client.hdel(meta, "owner")
    assert (await examined(store.url)).level is Level.FINE


async def test_many_are_not_all_named(make_core: MakeCore, store: Store, node: str) -> None:
    """A finding names ten queues, and ten partitions of each."""
    core, _ = await make_core()
    for number in range(12):
        await declared(core, f"{node}/{number}", 2)
        await published(core, f"{node}/{number}", 1)
    await declared(core, f"{node}/wide", 16)
    found = (await examined(store.url)).found
    assert found.endswith(f"{node}/9 (1), and 2 more") and found.count("(1)") == 10
