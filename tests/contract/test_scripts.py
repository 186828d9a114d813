"""Redis loses the operations, has none of them or forbids functions: order holds, and they are loaded once for all."""

import asyncio
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from pydantic import SecretStr
from redis.crc import key_slot
from structlog.testing import capture_logs

from broker import keys
from broker.model.commands import Browse, Declare, Publish, Retract
from broker.model.names import Jid
from broker.model.problems import CoreUnavailable, Problem
from broker.model.results import Browsed, Declared, Published, Refused, Retracted
from broker.redis_core import core as core_module
from broker.redis_core.core import RedisCore
from broker.redis_core.redis_client.client import Server
from broker.redis_core.redis_client.libraries import KEPT_MS, Libraries
from broker.scripts.location import lua_directory
from broker.scripts.packaging import library, script
from broker.scripts.source import operation_files, operations
from broker.settings import Packaging, Settings
from frontends.tools.servers.cluster import RedisCluster
from frontends.tools.servers.redis import RedisServer
from tests.admitting import ADMITTING
from tests.contract.conftest import EVERYWHERE, Asked, Door, MakeCore, Store
from tests.operations import as_user, make_user
from tests.waiting import PATIENCE_SECONDS

ALICE = Jid("alice@x/home")
TIMEOUT = 30.0
"""REDIS_TIMEOUT of commands that must not wait: long enough for a slow machine."""
FOLDER = lua_directory()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """Provide a server for functions and scripts of this module only."""
    with RedisServer(tmp_path / "redis") as server:
        yield server


def forget(server: RedisServer, *known: str) -> None:
    """Let Redis forget all functions, and all scripts but these."""
    with redis.Redis.from_url(server.url) as client:
        client.function_flush()
        client.script_flush()
        for name in known:
            client.script_load(script(FOLDER, name).text)


def without_functions(server: RedisServer) -> str:
    """Create a user who may do anything but use functions; return the URL for it."""
    with redis.Redis.from_url(server.url) as client:
        client.execute_command("ACL", "SETUSER", "scripts", "on", ">word", "~*", "+@all", "-function", "-fcall")
    return server.url.replace("://", "://scripts:word@", 1)


async def listed(core: RedisCore, node: str) -> list[str]:
    """Name the items of a node."""
    browsed = await core.ask(Browse(node, ALICE, (), 100))
    assert isinstance(browsed, Browsed)
    return [each.item_id for each in browsed.items]


@pytest.mark.parametrize("packaging", [Packaging.FUNCTIONS, Packaging.SCRIPTS])
@pytest.mark.parametrize("connected", [False, True])
async def test_some_are_known(
    make_core: MakeCore, server: RedisServer, node: str, packaging: Packaging, *, connected: bool
) -> None:
    """Core.submit: a sender's retract never runs before the publish that it sent earlier, whichever of them Redis has loaded."""
    core, _ = await make_core(server.url, redis_packaging=packaging)
    await core.ask(Declare(node, ALICE, {}))
    if not connected:
        # As a new frontend finds a master that another version has used.
        forget(server, "heartbeat", "retract", "browse")
        core, _ = await make_core(server.url, redis_packaging=packaging)
        assert await listed(core, node) == []
    forget(server, "heartbeat", "retract", "browse")
    asked = Asked(core)
    asked.submit(Publish(node, ALICE, "i", b"x", 1), Retract(node, ALICE, "i"), Publish(node, ALICE, "after", b"x", 1))
    before, retracted, after = await asked.settled()
    # An overtaken command has not run, and its sender may repeat it.
    assert isinstance(before, Published) is isinstance(retracted, Retracted)
    assert isinstance(before, Published) or (isinstance(before, Refused) and before.problem.retryable)
    assert after == Published("after")
    assert await listed(core, node) == ["after"]


async def test_order_in_a_round_trip(server: RedisServer) -> None:
    """Calls that a later call of the same caller has overtaken do not run after it; those at the end run again."""
    # Without a core, whose own calls may load the operations at any time.
    client = Server.connect(server.url, FOLDER, TIMEOUT, Packaging.SCRIPTS)
    try:
        names = [keys.of_service(name) for name in client.operations["list_frontends"].keys]
        known = client.write_call("list_frontends", names, {"now": ""})
        about: dict[str, Any] = {"now": "", "by": "x", "keep_ms": 86_400_000, "most": 1000}
        first, last = (client.write_call("disconnect_frontend", names, {**about, "frontend": name}) for name in "ab")
        await client.run(known)
        forget(server, "list_frontends")
        overtaken, *ran = await client.run_all([first, known, last])
        assert isinstance(overtaken, CoreUnavailable) and "a later one has run" in str(overtaken)
        assert [code for code, *_ in ran] == [b"ok", b"ok"]
        assert await client.command("HKEYS", keys.of_service("disconnected")) == [b"b"]
    finally:
        await client.close()


def loads(server: RedisServer) -> int:
    """Count the libraries and scripts that were ever loaded."""
    with redis.Redis.from_url(server.url) as client:
        said: Any = client.info("commandstats")
    return sum(int(said.get(f"cmdstat_{kind}|load", {"calls": 0})["calls"]) for kind in ("script", "function"))


@pytest.mark.parametrize(
    ("packaging", "most"), [(Packaging.FUNCTIONS, 2), (Packaging.SCRIPTS, len(operations(FOLDER)))]
)
async def test_loaded_once(
    make_core: MakeCore, server: RedisServer, node: str, packaging: Packaging, most: int
) -> None:
    """A frontend whose 64 connections find all operations missing loads them once, and the library for redis-cli."""
    core, _ = await make_core(server.url, redis_packaging=packaging)
    nodes = [f"{node}-{number}" for number in range(100)]
    await asyncio.gather(*(core.ask(Declare(name, ALICE, {})) for name in nodes))

    async def publish() -> None:
        outcomes = await asyncio.gather(*(core.ask(Publish(name, ALICE, None, b"x", 1)) for name in nodes))
        assert [outcome for outcome in outcomes if not isinstance(outcome, Published)] == []

    await publish()
    before = loads(server)
    assert before <= most
    forget(server)
    await publish()
    await publish()
    assert loads(server) - before <= most


async def test_forbidden(make_core: MakeCore, server: RedisServer, node: str) -> None:
    """Where functions are forbidden, scripts are used, with a line in the log; a frontend that requires functions is told."""
    url = without_functions(server)
    with capture_logs() as logs:
        core, _ = await make_core(url)
        await core.ask(Declare(node, ALICE, {}))
        assert await core.ask(Publish(node, ALICE, "i", b"x", 1)) == Published("i")
    assert [line["event"] for line in logs if line["log_level"] == "warning"] == [
        "functions are not available, so scripts are used"
    ]
    # It serves beside one that has functions.
    other, _ = await make_core(server.url)
    assert await listed(other, node) == ["i"]
    insisting = RedisCore(
        Settings(
            **ADMITTING,
            redis_url=url,
            redis_packaging=Packaging.FUNCTIONS,
            xmpp_domain="q.localhost",
            xmpp_secret=SecretStr("none"),
        ),
        None,
    )
    refused = await insisting.ask(Publish(node, ALICE, "j", b"x", 1))
    assert isinstance(refused, Refused) and "'function|list'" in refused.detail
    await insisting.stop()


async def not_ready(url: str, packaging: Packaging = Packaging.AUTO) -> tuple[RedisCore, "asyncio.Task[None]", str]:
    """Return a core that waits for Redis to accept the operations, its start, and the reason, which the log gives once."""
    given: Any = {"redis_url": url, "xmpp_domain": "q.localhost", "xmpp_secret": "none", "redis_timeout": TIMEOUT}
    core = RedisCore(Settings(**ADMITTING, **given, redis_packaging=packaging), Door())
    with capture_logs() as logs:
        start = asyncio.create_task(core.start())
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not core.healthy():  # noqa: ASYNC110  (nobody tells)
                await asyncio.sleep(0.01)
    (reason,) = core.healthy()
    told = [(line["event"], line["error"]) for line in logs]
    assert told == [("Redis rejects the operations", reason), ("heartbeat failed", reason)]
    return core, start, reason


async def refused_in_time(core: RedisCore, node: str) -> Refused:
    """Run many commands at once, none of which waits longer than REDIS_TIMEOUT; return their common refusal."""
    began = time.monotonic()
    answers = await asyncio.gather(*(core.ask(Declare(f"{node}-{number}", ALICE, {})) for number in range(100)))
    assert time.monotonic() - began < TIMEOUT
    (answer,) = set(answers)
    assert isinstance(answer, Refused) and answer.problem.retryable
    return answer


async def serves(core: RedisCore, start: "asyncio.Task[None]", node: str) -> None:
    """Check that a core has started by itself."""
    await asyncio.wait_for(start, 30)
    assert core.healthy() == []
    await core.ask(Declare(node, ALICE, {}))
    assert await core.ask(Publish(node, ALICE, "i", b"x", 1)) == Published("i")
    await core.stop()


@pytest.mark.parametrize("packaging", [Packaging.AUTO, Packaging.FUNCTIONS])
async def test_no_memory(server: RedisServer, node: str, packaging: Packaging) -> None:
    """A Redis with full memory accepts no library: the frontend says so and what to do, and starts when there is room."""
    with redis.Redis.from_url(server.url) as client:
        client.config_set("maxmemory", 1)
        core, start, reason = await not_ready(server.url, packaging)
        assert reason == (
            f"Redis at {server.socket} has no memory left to load the operations: raise maxmemory, or delete what is not needed"
        )
        assert (await refused_in_time(core, node)).problem is Problem.OUT_OF_MEMORY
        assert not start.done() and core.healthy() == [reason]
        client.config_set("maxmemory", 0)
    await serves(core, start, node)


@pytest.mark.parametrize("store", ["cluster"], indirect=True)
async def test_no_memory_on_one_master(make_core: MakeCore, redis_cluster: RedisCluster) -> None:
    """One master of a cluster accepts no library: the log names it, its nodes are refused in time, those of others are served."""
    full = next(m for m in redis_cluster.masters() if m is not redis_cluster.owner(slot(keys.of_service("frontends"))))
    theirs = next(n for n in map(str, range(1000)) if redis_cluster.owner(slot(keys.of_node("node", n))) is full)
    for command in (("FUNCTION", "FLUSH"), ("CONFIG", "SET", "maxmemory", 1)):
        redis_cluster.ask(full, *command)
    try:
        with capture_logs() as logs:
            core, _ = await make_core(redis_timeout=TIMEOUT)
            began = time.monotonic()
            refused = await core.ask(Declare(theirs, ALICE, {}))
            assert isinstance(refused, Refused) and refused.problem is Problem.OUT_OF_MEMORY
            # Nobody waits for a change that only an operator can make.
            assert time.monotonic() - began < TIMEOUT / 2
        (line,) = (line for line in logs if line["event"] == "Redis rejects the operations")
        assert line["error"].startswith(
            f"Redis at 127.0.0.1:{full.port} has no memory left to load the operations: raise "
        )
        assert core.healthy() == []
    finally:
        redis_cluster.ask(full, "CONFIG", "SET", "maxmemory", 0)
    assert await core.ask(Declare(theirs, ALICE, {})) == Declared(theirs)


def slot(key: str) -> int:
    """Give the slot of a key."""
    return key_slot(key.encode())


@pytest.mark.parametrize(
    ("packaging", "denied", "missing"),
    [
        (Packaging.FUNCTIONS, ("-function|load",), "function|load"),
        (Packaging.AUTO, ("-function|load", "-script|load"), "function|load"),
    ],
)
async def test_may_not_load(
    server: RedisServer, node: str, packaging: Packaging, denied: tuple[str, ...], missing: str
) -> None:
    """A user who may not load the operations is told which command is missing, and where; with it the frontend starts."""
    make_user(server.url, "stanzaq", *denied)
    core, start, reason = await not_ready(as_user(server.url, "stanzaq"), packaging)
    assert reason == (
        f"Redis at {server.socket} does not allow its user the command '{missing}': see users of Redis in docs/operations.md"
        "; the first frontend of this version loads the operations"
    )
    detail = (await refused_in_time(core, node)).detail
    assert detail.startswith(f"Redis does not allow its user the command '{missing}'; ")
    make_user(server.url, "stanzaq")
    await serves(core, start, node)


async def test_may_not_load_functions(make_core: MakeCore, server: RedisServer, node: str) -> None:
    """Where scripts may be loaded and no library, they are used: a user of the previous version has just these rights."""
    make_user(server.url, "stanzaq", "-function|load")
    core, _ = await make_core(as_user(server.url, "stanzaq"))
    await core.ask(Declare(node, ALICE, {}))
    assert await core.ask(Publish(node, ALICE, "i", b"x", 1)) == Published("i")


async def test_does_not_compile(
    server: RedisServer, node: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A syntax error, in development: the frontend says where Redis finds it, and is not ready."""
    broken = tmp_path / "lua"
    shutil.copytree(FOLDER, broken)
    path = operation_files(broken)["list_nodes"]
    path.write_text(path.read_text() + "\nreturn return\n")
    monkeypatch.setattr(core_module, "lua_directory", lambda: broken)
    core, start, reason = await not_ready(server.url)
    assert reason.startswith(f"Redis at {server.socket} rejects the operations: Error compiling function: ")
    assert "near 'return'" in reason and reason.endswith(": install stanzaq again, or set REDIS_PACKAGING")
    assert "return" not in (await refused_in_time(core, node)).detail
    start.cancel()
    await core.stop()


async def test_other_code(server: RedisServer, node: str) -> None:
    """A library of the right name without its functions is named, with what to do, and a frontend starts once that is done."""
    name = library(FOLDER).name
    with redis.Redis.from_url(server.url) as client:
        client.function_load(f"#!lua name={name}\nredis.register_function('{name}_f', function() return 1 end)")
        core, start, reason = await not_ready(server.url)
        assert reason.startswith(
            f"Redis at {server.socket}: the library {name} has other code than this version: FUNCTION DELETE {name}, "
        )
        assert (
            await refused_in_time(core, node)
        ).detail == f"Redis: the library {name} has other code than this version"
        client.function_delete(name)
    await serves(core, start, node)


async def test_versions_side_by_side(make_core: MakeCore, server: RedisServer, node: str) -> None:
    """Another version's library is loaded beside ours, and neither disturbs the other."""
    whole = library(FOLDER)
    with redis.Redis.from_url(server.url) as client:
        client.function_load(whole.text.replace(whole.name, "stanzaq_000000000000"))
        core, _ = await make_core(server.url)
        await core.ask(Declare(node, ALICE, {}))
        names = {each[1].decode() for each in client.function_list()}
    assert names >= {"stanzaq_000000000000", whole.name}


async def test_unused_libraries(make_core: MakeCore, server: RedisServer, node: str) -> None:
    """A library that nobody has used for a day is dropped; one in use, or found for the first time, stays.

    The one for redis-cli stays, and so do foreign ones, whatever their names.
    """
    whole = library(FOLDER)
    with redis.Redis.from_url(server.url) as client:
        for name in ("stanzaq_000000000000", "stanzaq_111111111111", "another", "stanzaq_of_a_team"):
            client.function_load(f"#!lua name={name}\nredis.register_function('{name}_f', function() return 1 end)")
        core, _ = await make_core(server.url)
        await core.ask(Declare(node, ALICE, {}))
        # As if it were new: it looks once an hour.
        core._libraries = Libraries(core._server)
        named = keys.of_service("libraries")
        # First found a day ago, and unused since; ours has been in use all the time.
        long_ago = int(time.time() * 1000) - KEPT_MS - 10_000
        gone = ("stanzaq_000000000000", "stanzaq_222222222222", "stanzaq", "stanzaq_of_a_team", "another")
        client.zadd(named, dict.fromkeys((*gone, whole.name), long_ago))
        await core._sweeper._finish()
        names = {each[1].decode() for each in client.function_list()}
        assert names == {"stanzaq_111111111111", "another", "stanzaq_of_a_team", "stanzaq", whole.name}
        assert {name.decode() for name in client.zrange(named, 0, -1)} == {"stanzaq_111111111111", whole.name}
    assert await core.ask(Publish(node, ALICE, "i", b"x", 1)) == Published("i")


@EVERYWHERE
async def test_forgotten_again_and_again(make_core: MakeCore, store: Store, node: str) -> None:
    """Guarantee 8: while Redis is made to forget its functions, publishes are answered, and answered items are there once."""
    core, _ = await make_core()
    await core.ask(Declare(node, ALICE, {}))
    names: list[str] = []
    async with store.client() as client:
        for number in range(10):
            await client.function_flush()
            outcomes = await asyncio.gather(
                *(core.ask(Publish(node, ALICE, f"i{number}-{n}", b"x", 1)) for n in range(3))
            )
            names += [outcome.item_id for outcome in outcomes if isinstance(outcome, Published)]
    assert sorted(await listed(core, node)) == sorted(names) and len(names) == 30
