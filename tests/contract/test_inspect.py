"""lua/inspect: what redis-cli shows of a queue, as an operator calls it, on each kind of server."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from importlib.metadata import version
from typing import Any

import pytest
import redis
from structlog.testing import capture_logs

from broker import codec
from broker.model.commands import Declare, Publish, Subscribe, Unlock
from broker.model.items.dependencies import Dependencies, Parent
from broker.model.items.hints import Hints
from broker.model.items.items import XML, Envelope
from broker.model.names import Jid
from broker.model.results import Declared, Published, Subscribed, Unlocked
from broker.redis_core.core import RedisCore
from broker.scripts.location import lua_directory
from broker.scripts.packaging import inspection
from broker.settings import Packaging, Settings
from frontends.tools.servers.cluster import RedisCluster
from frontends.tools.servers.redis import RedisServer
from frontends.tools.servers.sentinels import RedisSentinels
from tests.admitting import ADMITTING
from tests.contract.conftest import Door, MakeCore
from tests.operations import PASSWORD, make_user
from tests.waiting import PATIENCE_SECONDS

ALICE, WORKER = Jid("alice@x/home"), Jid("worker@x/a b")
FOLDER = lua_directory()
FILE = FOLDER / "inspect" / "stanzaq.lua"
Inspect = Callable[..., list[str]]
FUNCTIONS = ("node", "locks", "subscribers", "item", "dead", "frontends")


@pytest.fixture(params=["valkey", "redis7"])
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """Give each server in turn, empty; other tests use it too, so no library stays."""
    found: RedisServer = request.getfixturevalue(request.param)
    with redis.Redis.from_url(found.url) as client:
        client.flushall()
        client.function_flush()
        yield found
        client.function_flush()


def said(*words: str) -> list[str]:
    """Return the lines that redis-cli prints."""
    command = ["redis-cli", "--user", "inspector", "--pass", PASSWORD, "--no-auth-warning", "--raw", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS)
    return done.stdout.splitlines()


@pytest.fixture(params=["function", "script"])
def inspect(server: RedisServer, request: pytest.FixtureRequest) -> Inspect:
    """Return a function that runs redis-cli as its user, with the function and with the same text as a script."""
    make_user(server.url, "inspector", *(["+eval_ro"] if request.param == "script" else []))

    def run(name: str, *given: str) -> list[str]:
        reach = ("-s", str(server.socket))
        if request.param == "function":
            return said(*reach, "FCALL_RO", f"stanzaq_{name}", *given)
        count = 1 + int(given[0])
        text = FILE.read_text("utf-8").partition("\n")[2]
        return said(*reach, "EVAL_RO", text, *given[:count], f"stanzaq_{name}", *given[count:])

    return run


@pytest.fixture
async def service(server: RedisServer) -> AsyncIterator[tuple[RedisCore, Door]]:
    """Give a frontend's core."""
    door = Door()
    given: dict[str, Any] = {"redis_url": server.url, "xmpp_domain": "q.localhost", "xmpp_secret": "secret"}
    core = RedisCore(Settings(**ADMITTING, **given), door)
    await core.start()
    yield core, door
    await core.stop()


@pytest.fixture
async def life(service: tuple[RedisCore, Door], server: RedisServer) -> str:
    """Return the incarnation of a node with one item locked, one waiting, one delayed, and one dead letter."""
    core, door = service
    assert await core.ask(Declare("jobs", ALICE, {"stanzaq#max_deliveries": ("9",)})) == Declared("jobs")
    for name, body in (("a", b"<a>x</a>"), ("b", b"<b/>"), ("c", b"\x00\xff"), ("d", b"<d/>")):
        envelope = codec.pack(Envelope(body, "text/plain" if name == "c" else XML, {"colour": "red"}))
        assert isinstance(await core.ask(Publish("jobs", ALICE, name, envelope, len(body))), Published)
    assert isinstance(await core.ask(Subscribe("jobs", WORKER, WORKER, 1)), Subscribed)
    await door.until(lambda: len(door.deliveries) == 1)
    assert isinstance(await core.ask(Unlock("jobs", WORKER, "a", None, reason="torn", dead_letter=True)), Unlocked)
    await door.until(lambda: len(door.deliveries) == 2)
    assert isinstance(await core.ask(Unlock("jobs", WORKER, "b", None, delay_ms=60_000)), Unlocked)
    await door.until(lambda: len(door.deliveries) == 3)
    while not core._is_idle():  # noqa: ASYNC110  (the dead letter is on its way, and tells nobody when it is there)
        await asyncio.sleep(0.01)
    return lived(server, "jobs")


def lived(server: RedisServer, node: str) -> str:
    """Give the incarnation of a node."""
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        return str(client.hget(f"sq:{{{node}}}:node", "incarnation"))


async def test_node(inspect: Inspect, life: str) -> None:
    """A node by its name or a key of it: its incarnation, its options, its partitions and what they hold."""
    shown = inspect("node", "0", "jobs")
    assert {f"node incarnation {life}", "options stanzaq#max_deliveries 9", "affiliations 1"} <= set(shown)
    at = shown.index(f"partition sq:{{jobs@{life}/0}}:meta")
    held = {"waiting 2", "  delayed 1", "in flight 1", "subscribers 1", "  with free credit 0", "owner nobody"}
    assert held <= set(shown[at + 1 :])
    assert inspect("node", "1", "sq:{jobs}:node") == shown
    assert inspect("node", "1", f"sq:{{jobs@{life}/0}}:log") == shown[at + 1 :]
    assert inspect("node", "0", f"jobs@{life}/0") == shown[at + 1 :]


async def test_dependent(inspect: Inspect, life: str, service: tuple[RedisCore, Door]) -> None:
    """An item that waits for others counts apart from those that are delayed, and says for which."""
    waits = Hints(after=Dependencies((Parent("b"),)))
    envelope = codec.pack(Envelope(b"<e/>"))
    assert isinstance(await service[0].ask(Publish("jobs", ALICE, "e", envelope, 4, hints=waits)), Published)
    assert {"waiting 3", "  delayed 1", "  dependent 1"} <= set(inspect("node", "0", f"jobs@{life}/0"))
    shown = dict(line.split(" ", 1) for line in inspect("item", "0", "jobs", "e"))
    (parent,) = json.loads(shown["parents"])["parents"]
    assert (shown["state"], parent["item"], parent["state"]) == ("dependent", "b", "awaited")


async def test_item(inspect: Inspect, life: str) -> None:
    """An item by its state, and its payload as JSON; by its id, or by its position if it has none."""
    shown = dict(line.split(" ", 1) for line in inspect("item", "0", "jobs", "b"))
    assert shown["state"] == "delayed" and shown["publisher"] == "alice@x"
    assert json.loads(shown["payload"]) == {
        "type": "application/xml",
        "headers": {"colour": "red"},
        "bytes": 4,
        "body": "<b/>",
    }
    assert inspect("item", "0", "jobs", shown["position"])[0] == f"position {shown['position']}"
    shown = dict(line.split(" ", 1) for line in inspect("item", "1", f"sq:{{jobs@{life}/0}}:meta", "c"))
    assert shown["state"] == "locked" and shown["holder"] == WORKER and shown["attempt"] == "1"
    assert json.loads(shown["payload"]) == {
        "type": "text/plain",
        "headers": {"colour": "red"},
        "bytes": 2,
        "hex": "00ff",
    }
    assert inspect("item", "0", "jobs", "nothing")[0] == "ERR there is no item nothing"
    assert inspect("item", "0", "jobs")[0].startswith("ERR name the item")


async def test_locks(inspect: Inspect, life: str) -> None:
    """Locks by their deadline."""
    (shown,) = inspect("locks", "0", "jobs", "20")
    left, token, attempt, item, holder = shown.split(", ")
    assert 0 < int(left.removesuffix(" ms")) <= 60_000 and token.startswith("token ")
    assert (attempt, item, holder) == ("attempt 1", "c", WORKER)
    assert len(inspect("locks", "1", f"sq:{{jobs@{life}/0}}:meta")) == 1


@pytest.mark.usefixtures("life")
async def test_subscribers(inspect: Inspect) -> None:
    """Subscribers with what they hold and may hold."""
    assert inspect("subscribers", "0", "jobs") == [f"1 of 1, 0 bounces, unacknowledged, {WORKER}"]


@pytest.mark.usefixtures("life")
async def test_dead(inspect: Inspect) -> None:
    """Dead letters with their reasons."""
    (shown,) = inspect("dead", "0", "jobs/dead", "20")
    assert shown.endswith(f": item a of jobs, torn, 1 attempts, last held by {WORKER}")


async def test_frontends(inspect: Inspect, service: tuple[RedisCore, Door]) -> None:
    """Frontends with their last heartbeats."""
    (shown,) = inspect("frontends", "0")
    assert shown.endswith(f" ms ago, {service[0].frontend}") and int(shown.split()[0]) < 5_000


async def test_partitions(inspect: Inspect, service: tuple[RedisCore, Door], server: RedisServer) -> None:
    """A node of several partitions lists each, and at most so many entries of each as requested."""
    core, door = service
    name = "a job {1}"
    assert await core.ask(Declare(name, ALICE, {"stanzaq#partitions": ("2",)})) == Declared(name)
    for number in range(20):
        assert isinstance(await core.ask(Publish(name, ALICE, f"i{number}", b"x", 1)), Published)
    assert isinstance(await core.ask(Subscribe(name, WORKER, WORKER, 40, group="g")), Subscribed)
    await door.until(lambda: len(door.deliveries) == 20)
    life = lived(server, "a%20job%20%7B1%7D")
    headings = [f"partition sq:{{a%20job%20%7B1%7D@{life}/{number}}}:meta" for number in (0, 1)]
    shown = inspect("locks", "0", name, "2")
    assert [shown[0], shown[3]] == headings and len(shown) == 6
    assert len(inspect("locks", "0", name, "0")) == 4, "a count below one is one"
    assert [line for line in inspect("node", "0", name) if line.startswith("partition ")] == headings
    for number in range(20):
        assert "state locked" in inspect("item", "0", name, f"i{number}")


@pytest.mark.parametrize("name", ["node", "item"])
def test_bad_input(inspect: Inspect, server: RedisServer, name: str) -> None:
    """An unknown node, or a foreign key, is answered with how to call it."""
    load(server, FILE.read_text("utf-8"))
    for given in (("0",), ("0", ""), ("1", "sq:something"), ("1", "sq:{}:node")):
        assert inspect(name, *given)[0].startswith("ERR name a node, such as 0 jobs")
    for given in (("0", "jobs"), ("1", "sq:{jobs}:node")):
        assert inspect(name, *given)[0] == "ERR there is no node jobs"


def load(server: RedisServer, text: str) -> None:
    """Load a library by hand."""
    with redis.Redis.from_url(server.url) as client:
        client.function_load(text, replace=True)


def listed(server: RedisServer) -> dict[str, Any]:
    """Return Redis's listing of the library for redis-cli."""
    with redis.Redis.from_url(server.url, protocol=3, decode_responses=True) as client:
        found: Any = client.function_list("stanzaq", withcode=True)
    return dict(found[0]) if found else {"library_code": ""}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_reads_only(server: RedisServer, name: str) -> None:
    """Redis refuses every write of them; FUNCTION LIST describes each."""
    writing = "callback = function(...) redis.call('SET', 'sq:{a}:node', 'x') return callback(...) end"
    load(server, FILE.read_text("utf-8").replace("callback = callback", writing))
    with redis.Redis.from_url(server.url) as client:
        with pytest.raises(redis.ResponseError, match=r"[Ww]rite commands are not allowed"):
            client.fcall_ro(f"stanzaq_{name}", 0, "jobs")
        assert client.keys() == []
    described = {each["name"]: each["description"] for each in listed(server)["functions"]}
    assert set(described) == {f"stanzaq_{each}" for each in FUNCTIONS} and all(described.values())


@pytest.mark.parametrize("store", ["cluster"], indirect=True)
async def test_cluster(make_core: MakeCore, redis_cluster: RedisCluster) -> None:
    """In a cluster a key leads to the master of a node, of a partition and of the frontends, from any master.

    Without a key, or where partitions are on other masters, the answer says which key to use.
    """
    core, _ = await make_core()
    for node in redis_cluster.nodes:
        make_user(node.url, "inspector")
    assert await core.ask(Declare("jobs", ALICE, {"stanzaq#partitions": ("8",)})) == Declared("jobs")
    for number in range(40):
        assert isinstance(await core.ask(Publish("jobs", ALICE, f"i{number}", b"x", 1)), Published)
    for master in redis_cluster.masters():
        there = ("-c", "-p", str(master.port), "FCALL_RO")
        shown = said(*there, "stanzaq_node", "1", "sq:{jobs}:node")
        keys = [line.split()[1] for line in shown if line.startswith("partition ")]
        assert len(keys) == 8 and any("is on another master" in line for line in shown)
        waiting = 0
        for key in keys:
            (line,) = (each for each in said(*there, "stanzaq_node", "1", key) if each.startswith("waiting "))
            waiting += int(line.split()[1])
        assert waiting == 40
        found = [key for key in keys if said(*there, "stanzaq_item", "1", key, "i7")[0].startswith("position ")]
        assert len(found) == 1
        (beat,) = said(*there, "stanzaq_frontends", "1", "sq:{service}:frontends")
        assert core.frontend in beat
    answers = [
        said("-p", str(master.port), "FCALL_RO", "stanzaq_locks", "0", "jobs")[0] for master in redis_cluster.masters()
    ]
    assert len([each for each in answers if each.startswith("ERR another master of the cluster has jobs")]) == 2


@pytest.mark.parametrize("store", ["sentinels"], indirect=True)
async def test_replica(make_core: MakeCore, redis_sentinels: RedisSentinels) -> None:
    """The functions read, so a replica answers as its master does, which is then left to those who write."""
    core, _ = await make_core()
    assert await core.ask(Declare("jobs", ALICE, {})) == Declared("jobs")
    assert isinstance(await core.ask(Publish("jobs", ALICE, "a", b"x", 1)), Published)
    master = redis_sentinels.master()
    redis_sentinels.wait_for_replicas(master)
    (replica, *_) = (each for each in redis_sentinels.nodes if each is not master)
    shown = []
    for each in (master, replica):
        make_user(each.url, "inspector")
        asked = ("-s", str(each.socket), "FCALL_RO", "stanzaq_node", "0", "jobs")
        shown.append(said(*asked))
    assert shown[0] == shown[1] and "waiting 1" in shown[0]


def code(server: RedisServer) -> str:
    """Return the text of the library for redis-cli, as Redis has it."""
    return str(listed(server)["library_code"])


async def test_newest_stays(make_core: MakeCore, server: RedisServer) -> None:
    """A frontend replaces an older library, one without a version, or none, and leaves a newer one."""
    ours = inspection(FOLDER, version("stanzaq"))
    await make_core(server.url)
    assert code(server) == ours.text
    newer, older = (inspection(FOLDER, other).text for other in ("1000.0.0", "0.0.9"))
    for there, expected in ((newer, newer), (older, ours.text), (FILE.read_text("utf-8"), ours.text)):
        load(server, there)
        await make_core(server.url)
        assert code(server) == expected
    with redis.Redis.from_url(server.url) as client:
        client.function_delete("stanzaq")
    await make_core(server.url)
    assert code(server) == ours.text


async def test_in_the_way(make_core: MakeCore, server: RedisServer) -> None:
    """Where foreign functions have these names the queue serves, and the log says why they are missing."""
    load(server, "#!lua name=another\nredis.register_function('stanzaq_node', function() return 1 end)")
    with capture_logs() as logs:
        core, _ = await make_core(server.url)
        assert await core.ask(Declare("jobs", ALICE, {})) == Declared("jobs")
    (line,) = (line for line in logs if line["log_level"] == "warning")
    assert line["event"] == "the functions for redis-cli are not loaded"
    assert str(server.socket) in line["error"] and "stanzaq_node already exists" in line["error"]


async def test_scripts_have_none(make_core: MakeCore, server: RedisServer) -> None:
    """Where operations run as scripts nothing is loaded as functions."""
    core, _ = await make_core(server.url, redis_packaging=Packaging.SCRIPTS)
    assert await core.ask(Declare("jobs", ALICE, {})) == Declared("jobs")
    assert code(server) == ""
