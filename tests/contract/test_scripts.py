"""Redis forgets scripts, or knows some of them only: order holds, and they are loaded once for all who need them."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from broker.model.commands import Browse, Declare, Publish, Retract
from broker.model.names import Jid
from broker.model.results import Browsed, Published, Refused, Retracted
from broker.redis_core.service import RedisCore
from broker.scripts.location import lua_directory
from broker.scripts.source import operations, script
from frontends.servers.redis import RedisServer
from tests.contract.conftest import EVERYWHERE, Asked, MakeCore, Store

ALICE = Jid("alice@x/home")
SCRIPTS = {name: script(lua_directory(), name) for name in operations(lua_directory())}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """Give a server whose scripts are nobody else's."""
    with RedisServer(tmp_path / "redis") as server:
        yield server


def known(server: RedisServer, *names: str) -> None:
    """Let Redis forget all scripts but these."""
    with redis.Redis.from_url(server.url) as client:
        client.script_flush()
        for name in names:
            client.script_load(SCRIPTS[name].text)


async def listed(core: RedisCore, node: str) -> list[str]:
    """Name the items of a node."""
    browsed = await core.ask(Browse(node, ALICE, (), 100))
    assert isinstance(browsed, Browsed)
    return [each.item_id for each in browsed.items]


@pytest.mark.parametrize("connected", [False, True])
async def test_some_are_known(make_core: MakeCore, server: RedisServer, node: str, *, connected: bool) -> None:
    """Core.submit: a sender's retract never runs before the publish that it sent earlier, whichever of them Redis knows."""
    core, _ = await make_core(server.url)
    await core.ask(Declare(node, ALICE, {}))
    if not connected:
        # As a new frontend finds a master that another version has used.
        known(server, "heartbeat", "retract", "browse")
        core, _ = await make_core(server.url)
        assert await listed(core, node) == []
    known(server, "heartbeat", "retract", "browse")
    asked = Asked(core)
    asked.submit(Publish(node, ALICE, "i", b"x", 1), Retract(node, ALICE, "i"), Publish(node, ALICE, "after", b"x", 1))
    before, retracted, after = await asked.settled()
    # What was overtaken has not run, and its sender may ask again.
    assert isinstance(before, Published) is isinstance(retracted, Retracted)
    assert isinstance(before, Published) or (isinstance(before, Refused) and before.problem.retryable)
    assert after == Published("after")
    assert await listed(core, node) == ["after"]


async def test_a_new_connection_knows_all(make_core: MakeCore, server: RedisServer, node: str) -> None:
    """During a rolling upgrade nobody is refused for scripts that another version has not brought along."""
    first, _ = await make_core(server.url)
    await first.ask(Declare(node, ALICE, {}))
    await first.stop()
    known(server, "retract", "browse")
    second, _ = await make_core(server.url)
    asked = Asked(second)
    asked.submit(Publish(node, ALICE, "i", b"x", 1), Retract(node, ALICE, "i"), Publish(node, ALICE, "after", b"x", 1))
    before, retracted, after = await asked.settled()
    assert [before, after] == [Published("i"), Published("after")] and isinstance(retracted, Retracted)
    assert await listed(second, node) == ["after"]


def loads(server: RedisServer) -> int:
    """Count the scripts that were ever loaded."""
    with redis.Redis.from_url(server.url) as client:
        said: Any = client.info("commandstats")
        return int(said.get("cmdstat_script|load", {"calls": 0})["calls"])


async def test_loaded_once(make_core: MakeCore, server: RedisServer, node: str) -> None:
    """A frontend whose 64 connections find that Redis has forgotten all scripts loads them once."""
    core, _ = await make_core(server.url)
    nodes = [f"{node}-{number}" for number in range(100)]
    await asyncio.gather(*(core.ask(Declare(name, ALICE, {})) for name in nodes))

    async def publish() -> None:
        outcomes = await asyncio.gather(*(core.ask(Publish(name, ALICE, None, b"x", 1)) for name in nodes))
        assert all(isinstance(outcome, Published) for outcome in outcomes)

    await publish()
    before = loads(server)
    assert before <= len(SCRIPTS)
    known(server)
    await publish()
    await publish()
    assert loads(server) - before <= len(SCRIPTS)


@EVERYWHERE
async def test_forgotten_again_and_again(make_core: MakeCore, store: Store, node: str) -> None:
    """Guarantee 8: while somebody has Redis forget its scripts, publishes are answered, and each that was is there once."""
    core, _ = await make_core()
    await core.ask(Declare(node, ALICE, {}))
    names: list[str] = []
    async with store.client() as client:
        for number in range(10):
            await client.script_flush()
            outcomes = await asyncio.gather(
                *(core.ask(Publish(node, ALICE, f"i{number}-{n}", b"x", 1)) for n in range(3))
            )
            names += [outcome.item_id for outcome in outcomes if isinstance(outcome, Published)]
    assert sorted(await listed(core, node)) == sorted(names) and len(names) == 30
