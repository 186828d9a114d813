"""Items that another version wrote and this one cannot read: they hide no others, and the log names them."""

import asyncio
import json
from typing import Any

import httpx
import msgpack  # type: ignore[import-untyped]  # msgpack ships no types
import pytest

from broker.model.commands import Command, Complete, ListSubscribers, Publish
from broker.model.names import Jid
from broker.model.results import Published, Result, Retracted, SubscriptionList
from broker.redis_core.core import RedisCore
from broker.settings import CommandSettings
from frontends.tools.servers.redis import RedisServer
from tests.admitting import ADMITTING
from tests.doors.frontend import ALICE
from tests.doors.rest.served import RestFrontend

NEWER = bytes(msgpack.packb((2, "text/plain", b"new", {})))
JSON = {"Accept": "application/json"}


def ask(redis: RedisServer, command: Command) -> Result:
    """Run a command that no client of this door has."""

    async def asked() -> Result:
        core = RedisCore(CommandSettings(**ADMITTING, redis_url=redis.url), None)
        try:
            return await core.ask(command)
        finally:
            await core.stop()

    return asyncio.run(asked())


def logged(frontend: RestFrontend, node: str) -> list[dict[str, Any]]:
    """Return the log events about a queue."""
    lines = [json.loads(line) for line in frontend.log.splitlines() if line.startswith("{")]
    return [line for line in lines if line.get("node") == node and line["level"] == "error"]


@pytest.fixture
def node(alice: httpx.Client, redis: RedisServer, queue: str) -> str:
    """Return the name of a queue with an item that cannot be read between two good ones."""
    name = queue.removeprefix("/queues/")
    text = {"Content-Type": "text/plain"}
    assert alice.post(queue, content="a", headers=text).status_code == 201
    assert ask(redis, Publish(name, Jid(ALICE), "bad", NEWER, 3)) == Published("bad")
    assert alice.post(queue, content="b", headers=text).status_code == 201
    return name


def leased(alice: httpx.Client, node: str) -> str:
    """Subscribe to a queue; return the path."""
    made = alice.post("/subscriptions", json={"destinations": node, "prefetch": 5})
    assert made.status_code == 201
    return made.headers["Location"]


def test_held(alice: httpx.Client, frontend: RestFrontend, node: str) -> None:
    """A subscription gets the good items of a fetch and can acknowledge them; the other one's lock expires."""
    path = leased(alice, node)
    found = alice.get(f"{path}?wait=5", headers=JSON)
    assert found.status_code == 200
    assert [each["text"] for each in found.json()["messages"]] == ["a", "b"]
    for each in found.json()["messages"]:
        assert alice.delete(each["href"]).status_code == 200
    (line, *_) = logged(frontend, node)
    told = {name: line[name] for name in ("event", "partition", "item", "subscriber")}
    assert told == {"event": "an item cannot be read", "partition": 0, "item": "bad", "subscriber": ALICE}


def test_streamed(alice: httpx.Client, frontend: RestFrontend, node: str) -> None:
    """An event stream goes on after an item that cannot be read."""
    path = leased(alice, node)
    with alice.stream("GET", path, headers={"Accept": "text/event-stream"}, timeout=20) as answer:
        lines = (line for line in answer.iter_lines() if line.startswith("data: "))
        texts = [json.loads(next(lines).removeprefix("data: "))["text"] for _ in range(2)]
    assert texts == ["a", "b"] and [line["item"] for line in logged(frontend, node)] == ["bad"]


def test_browsed(alice: httpx.Client, queue: str, node: str) -> None:
    """Who looks at a queue sees such an item, as its stored bytes: alone, as a body, and in both lists."""
    found = alice.get(queue, headers=JSON).json()["messages"]
    assert len(found) == 3 and found[1]["id"] == "bad"
    assert found[1]["content_type"] == "application/octet-stream"
    assert alice.get(queue, headers={"Accept": "application/atom+xml"}).status_code == 200
    assert alice.get(f"/messages/{node}/bad", headers=JSON).status_code == 200
    assert alice.get(f"/contents/{node}/bad").content == NEWER


def test_result(alice: httpx.Client, redis: RedisServer, frontend: RestFrontend, queue: str, node: str) -> None:
    """A publisher learns how its item has ended, without a result that cannot be read."""
    assert alice.patch(queue, json={"options": {"stanzaq#result_seconds": 600}}).status_code == 200
    asked = {"Message-Reply": "true"}
    item = alice.post(queue, content=b"x", headers=asked).json()["id"]
    alice.get(f"{leased(alice, node)}?wait=5")
    found = ask(redis, ListSubscribers(node, Jid(ALICE)))
    assert isinstance(found, SubscriptionList)
    done = Complete(node, found.subscriptions[0].jid, item, envelope=NEWER, body_bytes=3)
    assert isinstance(ask(redis, done), Retracted)
    ended = alice.get(f"/messages/{node}/{item}?wait=5")
    assert ended.status_code == 200 and ended.json()["state"] == "acknowledged" and "result" not in ended.json()
    assert [line["item"] for line in logged(frontend, node) if line["event"] == "a result cannot be read"] == [item]
