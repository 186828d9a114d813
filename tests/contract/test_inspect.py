"""lua/inspect: what redis-cli shows of a queue, as an SRE calls it, on each server that there is."""

import asyncio
import json
import re
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from broker import codec
from broker.model.commands import Declare, Publish, Subscribe, Unlock
from broker.model.items import XML, Envelope
from broker.model.names import Jid
from broker.model.results import Declared, Published, Subscribed, Unlocked
from broker.redis_core.service import RedisCore
from broker.settings import Settings
from frontends.servers.redis import RedisServer
from tests.contract.conftest import Door
from tests.operations import PASSWORD, make_user

ALICE, WORKER = Jid("alice@x/home"), Jid("worker@x/a b")
FOLDER = Path(__file__).parents[2] / "lua" / "inspect"
Inspect = Callable[..., list[str]]


@pytest.fixture(params=["valkey", "redis7"])
def server(request: pytest.FixtureRequest) -> RedisServer:
    """Give each server in turn, empty."""
    found: RedisServer = request.getfixturevalue(request.param)
    with redis.Redis.from_url(found.url) as client:
        client.flushall()
    return found


@pytest.fixture
def inspect(server: RedisServer) -> Inspect:
    """Give a way to run a script of lua/inspect by redis-cli, as the user for it; gives the lines that it prints."""
    make_user(server.url, "inspector")

    def run(name: str, key: str, *given: str) -> list[str]:
        command = [
            "redis-cli",
            "-s",
            str(server.socket),
            "--user",
            "inspector",
            "--pass",
            PASSWORD,
            "--no-auth-warning",
            "--raw",
            "--eval",
            str(FOLDER / f"{name}.lua"),
            key,
            ",",
            *given,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
        return done.stdout.splitlines()

    return run


@pytest.fixture
async def service(server: RedisServer) -> AsyncIterator[tuple[RedisCore, Door]]:
    """Give a frontend's core."""
    door = Door()
    given: dict[str, Any] = {"redis_url": server.url, "xmpp_domain": "q.localhost", "xmpp_secret": "secret"}
    core = RedisCore(Settings(**given), door)
    await core.start()
    yield core, door
    await core.stop()


@pytest.fixture
async def life(service: tuple[RedisCore, Door], server: RedisServer) -> str:
    """Give the incarnation of a node with one item locked, one waiting, one delayed, and one dead letter."""
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
    while not core._still():  # noqa: ASYNC110  (the dead letter is on its way, and tells nobody when it is there)
        await asyncio.sleep(0.01)
    return lived(server, "jobs")


def lived(server: RedisServer, node: str) -> str:
    """Give the incarnation of a node."""
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        return str(client.hget(f"sq:{{{node}}}:node", "incarnation"))


async def test_node(inspect: Inspect, life: str) -> None:
    """A node by its record: its life, its options, and where its partitions are."""
    shown = inspect("node", "sq:{jobs}:node")
    assert {f"node incarnation {life}", "options stanzaq#max_deliveries 9", "partitions 1"} <= set(shown)
    assert f"first partition sq:{{jobs@{life}/0}}:meta" in shown


async def test_partition(inspect: Inspect, life: str) -> None:
    """A partition by what it holds."""
    shown = inspect("node", f"sq:{{jobs@{life}/0}}:meta")
    assert {"waiting 2", "  delayed 1", "in flight 1", "subscribers 1", "  with free credit 0", "owner nobody"} <= set(
        shown
    )


async def test_item(inspect: Inspect, life: str) -> None:
    """An item by its state, and its payload as JSON."""
    key = f"sq:{{jobs@{life}/0}}:meta"
    shown = dict(line.split(" ", 1) for line in inspect("item", key, "b"))
    assert shown["state"] == "delayed" and shown["publisher"] == "alice@x"
    assert json.loads(shown["payload"]) == {
        "type": "application/xml",
        "headers": {"colour": "red"},
        "bytes": 4,
        "body": "<b/>",
    }
    shown = dict(line.split(" ", 1) for line in inspect("item", key, "c"))
    assert shown["state"] == "locked" and shown["holder"] == WORKER and shown["attempt"] == "1"
    assert json.loads(shown["payload"]) == {
        "type": "text/plain",
        "headers": {"colour": "red"},
        "bytes": 2,
        "hex": "00ff",
    }
    assert inspect("item", key, "nothing")[0] == "ERR the partition has no item nothing"


async def test_locks(inspect: Inspect, life: str) -> None:
    """Locks by their deadline."""
    (shown,) = inspect("locks", f"sq:{{jobs@{life}/0}}:meta")
    left, token, attempt, item, holder = shown.split(", ")
    assert 0 < int(left.removesuffix(" ms")) <= 60_000 and token.startswith("token ")
    assert (attempt, item, holder) == ("attempt 1", "c", WORKER)


async def test_subscribers(inspect: Inspect, life: str) -> None:
    """Subscribers with what they hold and may hold."""
    assert inspect("subscribers", f"sq:{{jobs@{life}/0}}:meta") == [f"1 of 1, 0 bounces, unacknowledged, {WORKER}"]


async def test_dead(inspect: Inspect, life: str, server: RedisServer) -> None:
    """Dead letters with what became of them."""
    (shown,) = inspect("dead", f"sq:{{jobs/dead@{lived(server, 'jobs/dead')}/0}}:meta")
    assert shown.endswith(f": item a of jobs, torn, 1 attempts, last held by {WORKER}")


async def test_frontends(inspect: Inspect, service: tuple[RedisCore, Door]) -> None:
    """Frontends with their last heartbeats."""
    (shown,) = inspect("frontends", "sq:{service}:frontends")
    assert shown.endswith(f" ms ago, {service[0].frontend}") and int(shown.split()[0]) < 5_000


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.lua")))
def test_reads_only(server: RedisServer, name: str) -> None:
    """Redis refuses every write of them, and a key of something else is refused with what to give."""
    text = (FOLDER / f"{name}.lua").read_text("utf-8")
    assert "redis-cli" in text.split("local", 1)[0], "each says how it is called"
    with redis.Redis.from_url(server.url) as client:
        with pytest.raises(redis.ResponseError, match=r"[Ww]rite commands are not allowed"):
            client.eval(text.replace("local ", "redis.call('SET', KEYS[1], 'x')\nlocal ", 1), 1, "sq:{a}:node")
        with pytest.raises(redis.ResponseError, match="name "):
            client.eval(text, *((1, "something") if name != "frontends" else (0,)))
        assert client.keys() == []


def test_envelopes_alike() -> None:
    """What redis-cli runs cannot include a fragment: the two that open an envelope do it by the same lines."""
    opened = [
        re.search(r"^local function opened.*?^end$", (FOLDER / f"{name}.lua").read_text(), re.DOTALL | re.MULTILINE)
        for name in ("dead", "item")
    ]
    assert opened[0] is not None
    assert opened[1] is not None
    assert opened[0][0] == opened[1][0]
