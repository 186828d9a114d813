"""The Redis users of docs/operations.md: each may do what its part needs, and nothing else.

The other tests of cores and of whole services run as the user for frontends.
"""

import ast
import asyncio
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import redis
from structlog.testing import capture_logs

from broker import codec
from broker.model.commands import (
    Declare,
    Describe,
    Frontends,
    InspectItems,
    Overview,
    Publish,
    Retract,
    Stats,
    Subscribe,
)
from broker.model.items.items import Envelope
from broker.model.names import Jid, bare_jid
from broker.model.results import (
    Counted,
    Declared,
    Described,
    FrontendList,
    InspectedItems,
    Overviewed,
    Published,
    Refused,
    Retracted,
    Subscribed,
)
from broker.redis_core.core import RedisCore
from broker.redis_core.nodes.diagnostics import examine_nodes
from broker.redis_core.redis_client.diagnostics import Level, examine
from broker.scripts.location import lua_directory
from broker.scripts.packaging import library
from broker.scripts.source import module_files, operation_files
from broker.settings import CommandSettings, Packaging
from frontends.tools.servers.cluster import RedisCluster
from frontends.tools.servers.redis import RedisServer
from frontends.tools.servers.sentinels import RedisSentinels
from tests.admitting import ADMITTING
from tests.contract.conftest import Door, MakeCore
from tests.operations import PAGE, USERS, WITH_SENTINELS, as_user, make_user
from tests.waiting import PATIENCE_SECONDS

ALICE, WORKER = Jid("alice@x/home"), Jid("worker@x/a")
BROKER: Final = Path(__file__).parents[2] / "broker"

ON_A_CLUSTER: Final = ("+cluster|info", "+cluster|slots", "+asking")


@pytest.fixture(params=["valkey", "redis7"])
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """Provide each server in turn, empty, with all users; they are removed at the end."""
    found: RedisServer = request.getfixturevalue(request.param)
    with redis.Redis.from_url(found.url) as client:
        client.flushall()
        for name in USERS:
            make_user(found.url, name)
        yield found
        client.execute_command("ACL", "DELUSER", *USERS)


def may(name: str) -> set[str]:
    """Return the commands that a user may run."""
    return {word[1:] for word in USERS[name] if word.startswith("+")}


def commands(server: RedisServer, words: Iterable[str]) -> set[str]:
    """Return the commands among words, those of two words as ACLs write them."""
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        known: Any = client.command_list()
    return {word.lower().replace(" ", "|") for word in words} & {name.lower() for name in known}


def told_to_redis(*paths: Path) -> set[str]:
    """Return the quoted words in capitals of modules or scripts: the commands are among them."""
    found: set[str] = set()
    for path in paths:
        if path.suffix == ".lua":
            found.update(re.findall(r"'([A-Z]+)'", re.sub("--.*", "", path.read_text())))
            continue
        for each in ast.walk(ast.parse(path.read_text())):
            if isinstance(each, ast.Constant) and isinstance(each.value, str):
                found.update(re.findall(r"^[A-Z_]+(?: [A-Z-]+)*$", each.value), re.findall(r"'([A-Z]+)'", each.value))
    return found


def test_frontends(redis7: RedisServer) -> None:
    """The user of frontends may run exactly the commands in scripts and in the core."""
    scripts = [*operation_files(lua_directory()).values(), *module_files(lua_directory()).values()]
    modules = {*(BROKER / "redis_core").rglob("*.py"), BROKER / "keys.py"}
    client = BROKER / "redis_core" / "redis_client"
    elsewhere = {client / f"{name}.py" for name in ("diagnostics", "cluster", "cluster_router", "sentinel")}
    assert all(path.is_file() for path in elsewhere)
    # Error replies, of a replica and of a migrating slot; and an option of ZADD.
    needed = commands(redis7, told_to_redis(*scripts, *(modules - elsewhere))) - {"readonly", "incr"}
    # These are sent as two words of one command.
    assert may("stanzaq") == needed - {"xinfo"} | {"xinfo|stream"}
    assert [word for word in USERS["stanzaq"] if not word.startswith("+")] == ["reset", "on", ">PASSWORD", "~sq:*"]


def test_reports(redis7: RedisServer) -> None:
    """The same holds for the user of reports."""
    modules = [
        *(BROKER / "analytics" / "source").glob("*.py"),
        BROKER / "analytics" / "census.py",
        BROKER / "store_format.py",
    ]
    needed = commands(redis7, told_to_redis(*modules)) | {"xinfo|stream"}
    # Some are sent as two words of one command, others only in a cluster.
    apart = {"readonly", "asking", "info", "cluster", "cluster|slots", "slots", "xinfo", "sentinel"}
    assert may("reports") - {"info"} == needed - apart


def test_others_are_named() -> None:
    """Further needed commands are in the table."""
    for word in (*ON_A_CLUSTER, *WITH_SENTINELS, "+select", "+readonly", "+cluster|nodes"):
        assert word.replace("|", "\\|") in PAGE.split("| `stanzaq` | frontends |")[1]


@pytest.mark.parametrize(
    "words",
    [
        "FLUSHALL",
        "FLUSHDB",
        "KEYS *",
        "CONFIG SET maxmemory-policy allkeys-lru",
        "ACL LIST",
        "SHUTDOWN",
        "REPLICAOF 127.0.0.1 1",
        "SCRIPT FLUSH",
        "FUNCTION FLUSH",
        "SET sq:{a}:node x",
        "DEL sq:{a}:node",
        "HGET other field",
        "XRANGE other - +",
        "PUBLISH sq:channel x",
        "SUBSCRIBE sq:channel",
        "CLIENT KILL ID 1",
        "MONITOR",
    ],
)
def test_nothing_else(server: RedisServer, words: str) -> None:
    """Everything else in Redis is refused to all: destructive commands, other keys, channels."""
    for name in USERS:
        refused(server, name, words)


def test_reading_is_for_one(server: RedisServer) -> None:
    """Only the inspector may read any key of ours by a plain command."""
    for name in set(USERS) - {"inspector"}:
        refused(server, name, "GET sq:{a}:node")
    with redis.Redis.from_url(as_user(server.url, "inspector")) as client:
        assert client.get("sq:{a}:node") is None


def refused(server: RedisServer, name: str, *words: str) -> None:
    """Check that a user may not do it."""
    with redis.Redis.from_url(as_user(server.url, name)) as client, pytest.raises(redis.exceptions.NoPermissionError):
        client.execute_command(*(words if len(words) > 1 else words[0].split()))


def permitted(client: Any, name: str) -> set[str]:  # noqa: ANN401  (redis-py's is in part untyped)
    """Return the commands that a user may run, of all that the server has."""
    found = set()
    for command in {each for kind in client.acl_cat() for each in client.acl_cat(kind)}:
        for count in range(8):
            try:
                said = client.execute_command("ACL", "DRYRUN", name, *command.split("|"), *["1"] * count)
            except redis.ResponseError as error:
                if "number of arguments" not in str(error):
                    break
            else:
                found.update([command] if "to run the" not in said else [])
                break
    return found


@pytest.mark.parametrize(
    ("name", "exceptions"),
    [
        ("doctor", {"config|get", "exists", "fcall_ro", "function|list", "info"}),
        ("inspector", {"exists", "fcall_ro", "function|list", "info", "type"}),
        ("reports", {"eval_ro", "exists", "info", "role", "scan"}),
    ],
)
def test_readers_read(server: RedisServer, name: str, exceptions: set[str]) -> None:
    """Of all commands of a server, those who read may run none that writes, loads code, administers or lists others' keys."""
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        kinds = ("write", "admin", "dangerous", "scripting", "pubsub", "keyspace", "transaction")
        harmful = {command for kind in kinds for command in client.acl_cat(kind)}
        assert permitted(client, "stanzaq") & harmful > {"fcall", "function|load", "hset"}
        assert permitted(client, name) & harmful == exceptions


def test_code_is_loaded_by_frontends(server: RedisServer) -> None:
    """Nobody else replaces the library of operations, which frontends would run, or calls what writes in it."""
    whole = library(lua_directory())
    with redis.Redis.from_url(server.url) as client:
        client.function_load(whole.text, replace=True)
        dump: Any = client.function_dump()
        for name in USERS.keys() - {"stanzaq"}:
            for words in (
                ("FUNCTION", "LOAD", "REPLACE", whole.text.replace("'HSET'", "'HGET'")),
                ("FUNCTION", "LOAD", "#!lua name=other\nredis.register_function('other', function() return 1 end)"),
                ("FUNCTION", "RESTORE", dump, "FLUSH"),
                ("FUNCTION", "DELETE", whole.name),
                ("SCRIPT", "LOAD", "return 1"),
                ("SCRIPT", "FLUSH"),
                ("EVAL", "return 1", "0"),
                ("FCALL", whole.function("check_format"), "0", "1"),
                ("FCALL", "stanzaq_node", "0", "jobs"),
                ("FCALL_RO", whole.function("list_nodes"), "1", "other"),
            ):
                refused(server, name, *words)
        (found,) = client.function_list(whole.name, withcode=True)
        assert whole.text.encode() in found


@pytest.mark.parametrize("name", ["inspector", "reports"])
def test_scripts_of_readers(server: RedisServer, name: str) -> None:
    """A user who reads may be allowed scripts, and no script writes for it, nor reads other keys."""
    make_user(server.url, name, "+eval_ro")
    with redis.Redis.from_url(as_user(server.url, name)) as client:
        for body, key in (
            ("return redis.call('HSET', KEYS[1], 'a', 'b')", "sq:{a}:node"),
            ("return redis.call('XLEN', KEYS[1])", "other"),
            ("return redis.call('XLEN', 'other')", "sq:{a}:node"),
        ):
            with pytest.raises(
                redis.ResponseError,
                match=r"permission|can't run this command|can't access at least one of the keys|are not allowed from read-only",
            ):
                client.eval_ro(body, 1, key)


async def test_without_info(make_core: MakeCore, server: RedisServer) -> None:
    """A frontend that may not ask INFO serves, and says once what it cannot measure."""
    make_user(server.url, "stanzaq", "-info")
    core, _door = await make_core(as_user(server.url, "stanzaq"))
    assert await core.ask(Declare("jobs", ALICE, {})) == Declared("jobs")
    with capture_logs() as lines:
        await core.measure()
        await core.measure()
    (line,) = lines
    assert line["event"] == "the memory of Redis is not known" and "info" in line["error"].lower()


WITH_SCRIPTS: Final = ("+evalsha_ro", "+script|exists")


@pytest.mark.parametrize("packaging", Packaging)
async def test_commands_that_only_read(make_core: MakeCore, server: RedisServer, packaging: Packaging) -> None:
    """`stanzaq node list` and the like work as the read-only user, who may change nothing."""
    if packaging is Packaging.SCRIPTS:
        make_user(server.url, "inspector", *WITH_SCRIPTS)
    core, _door = await make_core(as_user(server.url, "stanzaq"), redis_packaging=packaging)
    assert await core.ask(Declare("jobs", ALICE, {})) == Declared("jobs")
    assert isinstance(await core.ask(Publish("jobs", ALICE, "a", codec.pack(Envelope(b"<a/>")), 4)), Published)
    url = as_user(server.url, "inspector")
    given = {"redis_url": url, "redis_packaging": packaging, "admins": (bare_jid(ALICE),)}
    quiet = RedisCore(CommandSettings(**(ADMITTING | given)), None)
    await quiet.reach()
    asked = (
        Overview(ALICE, 0, 10),
        Describe("jobs", ALICE, as_owner=True),
        Stats("jobs", ALICE),
        InspectItems("jobs", ALICE, (), 10, ""),
        Frontends(ALICE),
    )
    answers = [await quiet.ask(command) for command in asked]
    assert [type(answer) for answer in answers] == [Overviewed, Described, Counted, InspectedItems, FrontendList]
    refused = await quiet.ask(Publish("jobs", ALICE, "b", codec.pack(Envelope(b"<b/>")), 4))
    assert isinstance(refused, Refused) and refused.detail.startswith("Redis does not allow its user ")
    await quiet.stop()


async def test_nothing_is_loaded(server: RedisServer) -> None:
    """Before a frontend of this version has loaded the operations, the read-only user is told to start one."""
    with redis.Redis.from_url(server.url) as client:
        client.function_flush()
    quiet = RedisCore(CommandSettings(redis_url=as_user(server.url, "inspector"), admins=(bare_jid(ALICE),)), None)
    await quiet.reach()
    refused = await quiet.ask(Frontends(ALICE))
    assert isinstance(refused, Refused) and refused.detail == (
        "Redis does not allow its user the command 'function|load'; the first frontend of this version loads the operations"
    )
    await quiet.stop()


async def test_without_rights(server: RedisServer) -> None:
    """A frontend whose user may do nothing says so once and what to do, and ends without a traceback."""
    make_user(server.url, "stanzaq", "-@all", "+ping")
    core = RedisCore(CommandSettings(**ADMITTING, redis_url=as_user(server.url, "stanzaq")), Door())
    with capture_logs() as lines:
        starting = asyncio.create_task(core.start())
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(lines) < 2:  # noqa: ASYNC110  (a log tells nobody)
                await asyncio.sleep(0.05)
        # Some more heartbeats.
        await asyncio.sleep(1.5)
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await core.stop()
    assert [line["event"] for line in lines] == [
        "Redis rejects the operations",
        "heartbeat failed",
        "could not deregister",
    ]
    for line in lines:
        assert re.fullmatch(
            rf"Redis at {server.socket} does not allow its user the command '.+': see users of Redis in docs/operations.md",
            line["error"],
        )
        assert "exc_info" not in line


async def test_without_wakeups(make_core: MakeCore, server: RedisServer) -> None:
    """Without the right to wait for wake-ups, as in the previous version, a frontend finds due partitions with heartbeats."""
    make_user(server.url, "stanzaq", "-blpop")
    with capture_logs() as lines:
        core, door = await make_core(as_user(server.url, "stanzaq"))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not lines:  # noqa: ASYNC110  (a log tells nobody)
                await asyncio.sleep(0.05)
        await asyncio.sleep(1.5)
    assert [line["event"] for line in lines] == ["wake-ups cannot be received"]
    assert await core.ask(Declare("jobs", ALICE, {})) == Declared("jobs")
    assert isinstance(await core.ask(Subscribe("jobs", WORKER, WORKER, 1)), Subscribed)
    quiet = RedisCore(CommandSettings(**ADMITTING, redis_url=server.url), None)
    assert isinstance(await quiet.ask(Publish("jobs", ALICE, "a", codec.pack(Envelope(b"<a/>")), 4)), Published)
    await door.until(lambda: len(door.deliveries) == 1)
    await quiet.stop()


async def worked(make_core: MakeCore, url: str) -> None:
    """Publish and finish an item."""
    core, door = await make_core(url)
    assert await core.ask(Declare("jobs", ALICE, {})) == Declared("jobs")
    assert isinstance(await core.ask(Subscribe("jobs", WORKER, WORKER, 1)), Subscribed)
    assert isinstance(await core.ask(Publish("jobs", ALICE, "a", codec.pack(Envelope(b"<a/>")), 4)), Published)
    await door.until(lambda: len(door.deliveries) == 1)
    assert isinstance(await core.ask(Retract("jobs", WORKER, "a", door.deliveries[0].token)), Retracted)
    await core.measure()


async def looked(url: str) -> None:
    """Run the doctor on a Redis with all details."""
    found = await examine(url, 2.0)
    assert {"persistence", "memory", "role", "functions", "format"} <= {each.what for each in found}
    assert "not reported" not in json.dumps([each.found for each in found])
    assert not any(each.what in {"INFO", "connection"} and each.level is not Level.FINE for each in found)


async def test_doctor(make_core: MakeCore, server: RedisServer) -> None:
    """The doctor sees all that it looks for; so does the read-only user, but for the configuration."""
    await make_core(as_user(server.url, "stanzaq"))
    await looked(as_user(server.url, "doctor"))
    found = {each.what: each for each in await examine(as_user(server.url, "inspector"), 2.0)}
    assert [name for name, each in found.items() if each.level is Level.PROBLEM or "allowed to" in each.found] == []
    assert {"memory", "format", "role"} < found.keys() and found["functions"].level is Level.FINE


async def test_who_sees_partitions_without_owners(make_core: MakeCore, server: RedisServer) -> None:
    """Whoever may read queues is told of items without an owner; others, and of an unreachable Redis, are told nothing."""
    core, _ = await make_core(as_user(server.url, "stanzaq"))
    assert isinstance(await core.ask(Declare("jobs", ALICE, {"stanzaq#partitions": ("4",)})), Declared)
    await core.ask(Publish("jobs", ALICE, "a", codec.pack(Envelope(b"<a/>")), 4, partition=2))
    for name in ("inspector", "stanzaq"):
        (found,) = await examine_nodes(as_user(server.url, name), 2.0)
        assert found.level is Level.WARNING and "jobs (2)" in found.found
    for url in (as_user(server.url, "doctor"), "redis://127.0.0.1:1/0", "embedded:/tmp/nothing"):
        assert await examine_nodes(url, 2.0) == []


async def test_doctor_compares_code(server: RedisServer) -> None:
    """Whoever looks is told of a library of the right name whose code was replaced, and what to do."""
    whole = library(lua_directory())
    with redis.Redis.from_url(server.url) as client:
        client.function_load(f"{whole.text}\n-- more", replace=True)
        for name in ("doctor", "inspector"):
            (found,) = (each for each in await examine(as_user(server.url, name), 2.0) if each.what == "functions")
            assert found.level is Level.PROBLEM
            assert found.found == f"the library {whole.name} has other code than this version"
            assert f"FUNCTION DELETE {whole.name}" in found.remedy
        client.function_delete(whole.name)


@pytest.mark.parametrize("store", ["cluster"], indirect=True)
async def test_cluster(make_core: MakeCore, redis_cluster: RedisCluster) -> None:
    """On a cluster a frontend and the doctor need to know which master serves what."""
    for node in redis_cluster.nodes:
        make_user(node.url, "stanzaq", *ON_A_CLUSTER)
        make_user(node.url, "doctor", *ON_A_CLUSTER[:2])
    await worked(make_core, as_user(redis_cluster.url, "stanzaq"))
    await looked(as_user(redis_cluster.url, "doctor"))


@pytest.mark.parametrize("store", ["sentinels"], indirect=True)
async def test_sentinels(make_core: MakeCore, redis_sentinels: RedisSentinels) -> None:
    """With sentinels they ask the master for its role; the sentinels are asked without a user."""
    for node in redis_sentinels.nodes:
        make_user(node.url, "stanzaq", *WITH_SENTINELS)
        make_user(node.url, "doctor", *WITH_SENTINELS)
    await worked(make_core, as_user(redis_sentinels.url, "stanzaq"))
    await looked(as_user(redis_sentinels.url, "doctor"))
