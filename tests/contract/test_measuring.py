"""The cost of measuring nodes, and that the figures are true."""

import asyncio

from broker import codec
from broker.model.commands import Declare, Publish, Purge
from broker.model.items import Envelope
from broker.model.names import Jid
from broker.model.results import Declared, Published, Refused
from broker.redis_core.core import RedisCore
from broker.settings import CommandSettings
from tests.contract.conftest import MakeCore, Store

ALICE = Jid("alice@x")


async def declared(core: RedisCore, node: str) -> None:
    """Create a node."""
    assert isinstance(await core.ask(Declare(node, ALICE, {})), Declared)


async def published(core: RedisCore, node: str) -> None:
    """Publish an item."""
    result = await core.ask(Publish(node, ALICE, None, codec.pack(Envelope(b"<x/>")), 4))
    assert isinstance(result, Published)


def shown(core: RedisCore, node: str, name: str) -> float | None:
    """Give a gauge of a node."""
    return core.metrics.registry.get_sample_value(f"stanzaq_node_{name}", {"node": node})


async def measured(core: RedisCore, node: str, name: str, wanted: float) -> None:
    """Measure until a gauge has this value: the other frontend reports the change within a few seconds."""
    async with asyncio.timeout(15):
        while shown(core, node, name) != wanted:
            await asyncio.sleep(0.2)
            await core.measure()


async def test_idle_nodes_cost_nothing(make_core: MakeCore, store: Store, node: str) -> None:
    """B: unchanged nodes are not read again, however many there are."""
    core, _ = await make_core()
    await asyncio.gather(*(declared(core, f"{node}/{number}") for number in range(60)))
    await published(core, f"{node}/0")
    # All changes are reported, and measured.
    await measured(core, f"{node}/0", "waiting", 1)
    for task in core._running:
        task.cancel()
    await asyncio.sleep(0.1)
    await core.measure()
    async with store.client() as client:
        await client.config_resetstat()
        await core.measure()
        calls = {name: found["calls"] for name, found in (await client.info("commandstats")).items()}
    assert "cmdstat_fcall" not in calls and sum(calls.values()) <= 8
    assert shown(core, f"{node}/59", "waiting") == 0


async def test_what_another_does(make_core: MakeCore, store: Store, node: str) -> None:
    """All frontends measure what another frontend or a shell command does; the age of waiting items grows meanwhile."""
    one, _ = await make_core()
    two, _ = await make_core()
    await declared(one, node)
    await two.measure()
    assert shown(two, node, "waiting") == 0
    await published(one, node)
    await measured(two, node, "waiting", 1)
    before = shown(two, node, "oldest_ms")
    await asyncio.sleep(0.3)
    await two.measure()
    after = shown(two, node, "oldest_ms")
    assert before is not None and after is not None and after - before >= 300
    shell = RedisCore(CommandSettings(redis_url=store.url), None)
    assert not isinstance(await shell.ask(Purge(node, ALICE)), Refused)
    await shell.drain(5)
    await shell.stop()
    await measured(two, node, "waiting", 0)
