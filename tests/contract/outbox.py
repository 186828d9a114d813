"""Looks at the outbox of a core from outside: waits until it rests, lets its entries be due again, and stands in its way."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from broker.redis_core.core import RedisCore
from broker.redis_core.outbox.leaving_items import ItemDeliverer
from tests.contract.conftest import Store
from tests.waiting import PATIENCE_SECONDS

Ask = Callable[[Any], Awaitable[Any]]


def items_of(core: RedisCore) -> ItemDeliverer:
    """Return what brings items to their nodes."""
    found: Any = core._outbox._deliverers["item"]
    deliverer = found.__self__
    assert isinstance(deliverer, ItemDeliverer)
    return deliverer


def interpose(core: RedisCore, patch: pytest.MonkeyPatch, wrap: Callable[[Ask], Ask]) -> None:
    """Let all commands of the loop and of its deliverers pass through `wrap`."""
    handlers: Any = core._handlers
    holders = items_of(core), handlers.dependencies, handlers.publishes, handlers.firing, handlers.firing._storage
    for holder in holders:
        patch.setattr(holder, "_ask", wrap(holder._ask))
    patch.setattr(core, "ask_partition", wrap(core.ask_partition))


def is_busy(core: RedisCore) -> bool:
    """Return whether entries are being read or delivered."""
    return not core._outbox.idle


async def rested(core: RedisCore) -> None:
    """Wait until nothing is under way."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while is_busy(core):  # noqa: ASYNC110  (nothing tells when it is done)
            await asyncio.sleep(0.005)


async def due_again(core: RedisCore, store: Store, node: str, *, paused: bool = False) -> None:
    """Let all entries of a node be due, and deliver them; with `paused` also to nodes that have just taken none."""
    if not paused:
        items_of(core)._paused = dict.fromkeys(items_of(core)._paused, 1.0)
    await make_due(store, node)
    record = await core._store.read(node)
    assert record
    for number in range(record.config.partitions):
        core.router(node).pipeline(number).sweep()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not all(pipeline.quiet for pipeline in core.router(node).pipelines()):  # noqa: ASYNC110  (as above)
            await asyncio.sleep(0.005)
    await rested(core)


async def make_due(store: Store, node: str) -> None:
    """Let all entries of all partitions of a node be due."""
    async with store.client() as client:
        keys = [key async for key in client.scan_iter(match=f"*{node}@*:outbox*") if await client.type(key) == b"zset"]
        for key in keys:
            if entries := await client.zrange(key, 0, -1):
                await client.zadd(key, dict.fromkeys(entries, 1), xx=True)
