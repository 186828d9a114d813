"""Logs of frontends while clients err, Redis is away and records are damaged: everything useful, and nothing secret."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import pytest
import redis

from frontends.tools.servers.ejabberd import Ejabberd
from frontends.tools.servers.redis import RedisServer, redis_binary
from tests.journeys.client import Client, Delivery
from tests.journeys.service import Frontend, eventually
from tests.operations import PASSWORD, as_user, make_user

DOMAIN: Final = "logs.localhost"
PAYLOAD: Final = "<job xmlns='urn:x'>THE-PAYLOAD</job>"
_NO_WAKE_UPS: Final = "wake-ups cannot be received"


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """Provide a Redis whose user has a password."""
    with RedisServer(binary=redis_binary()) as found:
        make_user(found.url, "stanzaq")
        with redis.Redis.from_url(found.url) as client:
            client.execute_command("ACL", "SETUSER", "stanzaq", "resetpass", ">open-sesame")
        yield found


@pytest.fixture(scope="module")
def frontend(server: RedisServer, ejabberd: Ejabberd) -> Iterator[Frontend]:
    """Provide a frontend with secrets in its settings."""
    url = as_user(server.url, "stanzaq").replace(PASSWORD, "open-sesame")
    with Frontend(url, ejabberd.component_port, ejabberd.secret, XMPP_DOMAIN=DOMAIN, REDIS_TIMEOUT="0.5") as found:
        yield found


@pytest.fixture
async def client(frontend: Frontend, ejabberd: Ejabberd) -> AsyncIterator[Client]:
    """Return a client; after whatever it did, the log has no payload and no secret in it."""
    found = Client(ejabberd.c2s_port, DOMAIN, ejabberd.anonymous)
    await found.open()
    yield found
    await found.close()
    assert not [secret for secret in ("THE-PAYLOAD", "open-sesame", ejabberd.secret) if secret in frontend.log]


def lines(frontend: Frontend, **having: str) -> list[dict[str, Any]]:
    """Return the lines of the log that have these."""
    found = [json.loads(line) for line in frontend.log.splitlines()]
    return [line for line in found if having.items() <= line.items()]


async def test_refusals(frontend: Frontend, client: Client) -> None:
    """Each refusal is a line with node, item, subscriber, stanza and problem as far as they are known."""
    node = await client.queue({"pubsub#max_payload_size": "10"})
    assert (await client.publish(node, "big", PAYLOAD)).error
    (line,) = lines(frontend, problem="payload-too-big")
    assert (line["node"], line["item"], line["subscriber"], line["level"]) == (node, "big", client.jid, "info")
    assert line["stanza"] in client.answers and line["command"] == "Publish"
    assert (await client.retract(node, "nothing")).error
    (line,) = lines(frontend, problem="item-not-found")
    assert (line["node"], line["item"]) == (node, "nothing")
    assert (await client.pubsub(f"<publish>{PAYLOAD}</publish>")).error
    assert lines(frontend, problem="node-required", subscriber=client.jid)
    client.send(f"<message to='nowhere@{DOMAIN}' id='m1'><body>THE-PAYLOAD</body></message>")
    await eventually(lambda: bool(lines(frontend, stanza="m1")), "a message that is refused is not logged")
    (line,) = lines(frontend, stanza="m1")
    assert line["node"] == "nowhere" and line["problem"] == "node-not-found"


async def test_a_flood(frontend: Frontend, client: Client) -> None:
    """A client that errs without end gets every answer and a few log lines, with the number of those left out."""
    before = len(lines(frontend, event="refused"))
    loop = asyncio.get_running_loop()
    began = loop.time()
    answers = await asyncio.gather(*(client.retract("not-there", f"i{number}") for number in range(1_000)))
    assert all(answer.error for answer in answers)
    seconds = loop.time() - began
    await asyncio.sleep(1.1)
    await client.retract("not-there", "once more")
    refused = lines(frontend, event="refused")[before:]
    assert len(refused) <= 5 * (seconds + 2)
    # A busy machine takes more than one second, of each of which some lines are left out.
    assert len(refused) + sum(line.get("suppressed", 0) for line in refused) == 1_001


async def test_records_that_cannot_be_read(frontend: Frontend, client: Client, server: RedisServer) -> None:
    """A record and an item that something else has damaged are logged with node, item and subscriber; nobody else suffers."""
    node, spoilt = await client.queue(), await client.queue()
    with redis.Redis.from_url(server.url) as admin:
        life = admin.hget(f"sq:{{{node}}}:node", "incarnation").decode()
        admin.hset(f"sq:{{{spoilt}}}:node", "revision", "none")
        log = f"sq:{{{node}@{life}/0}}:log"
        assert (await client.publish(node, "a", PAYLOAD)).error == ""
        ((first, fields),) = admin.xrange(log)
        admin.xdel(log, first)
        # Redis gives no id twice: the stream begins anew with the entry as somebody else might have written it.
        admin.delete(log)
        admin.xadd(log, {**fields, b"body": b"THE-PAYLOAD"}, id=first)
    assert (await client.subscribe(node, 1)).error == ""
    await eventually(lambda: bool(lines(frontend, event="an item cannot be read")), "the item is not missed")
    (line, *_more) = lines(frontend, event="an item cannot be read")
    assert (line["node"], line["item"], line["subscriber"]) == (node, "a", client.jid)
    assert (await client.publish(spoilt, "b", PAYLOAD)).error
    told = [line for line in lines(frontend, level="error") if spoilt in json.dumps(line)]
    assert any(line.get("exception") for line in told)
    other = await client.queue()
    assert (await client.subscribe(other, 1)).error == ""
    assert (await client.publish(other, "c", PAYLOAD)).error == ""
    while (await client.next(Delivery)).node != other:
        pass


async def test_redis_away(frontend: Frontend, client: Client, server: RedisServer) -> None:
    """While Redis hangs, requests are refused as `warning`, and the heartbeat logs its failure and its recovery once each."""
    failed, over = (len(lines(frontend, event=event)) for event in ("heartbeat failed", "heartbeat failed: recovered"))
    # A connection is up: one that had to be made while Redis hangs would be refused in other words.
    assert (await client.publish(await client.queue(), "a", PAYLOAD)).error == ""
    server.process.pause()
    try:
        answer = await client.pubsub(f"<publish node='any'><item>{PAYLOAD}</item></publish>")
        assert answer.error == "wait remote-server-timeout"
        await eventually(lambda: len(lines(frontend, event="heartbeat failed")) > failed, "no heartbeat has failed")
    finally:
        server.process.resume()
    (line, *_more) = lines(frontend, problem="timed-out")
    assert line["level"] == "warning" and line["node"] == "any"
    await eventually(lambda: len(lines(frontend, event="heartbeat failed: recovered")) == over + 1, "it is not over")
    told = [line["error"] for line in lines(frontend, event="heartbeat failed")[failed:]]
    # Once for each kind of failure: no answer at first, then perhaps no connection.
    assert told and all(one != other for one, other in itertools.pairwise(told))


async def test_refused_by_redis(frontend: Frontend, client: Client, server: RedisServer) -> None:
    """A user that Redis refuses is reported without its password."""
    cut, back = (len(lines(frontend, event=event)) for event in (_NO_WAKE_UPS, f"{_NO_WAKE_UPS}: recovered"))
    with redis.Redis.from_url(server.url) as admin:
        admin.execute_command("ACL", "SETUSER", "stanzaq", "resetpass", ">another")
        admin.execute_command("CLIENT", "KILL", "USER", "stanzaq")
        await eventually(
            lambda: "refuses the user or password of REDIS_URL" in frontend.log, "nothing is said of the password"
        )
        admin.execute_command("ACL", "SETUSER", "stanzaq", ">open-sesame")
    await eventually(lambda: frontend.get("/readyz") == 200, "the frontend does not come back")
    # Their connection was cut too: the next test finds all of them whole.
    if len(lines(frontend, event=_NO_WAKE_UPS)) > cut:
        await eventually(
            lambda: len(lines(frontend, event=f"{_NO_WAKE_UPS}: recovered")) > back, "wake-ups do not come back"
        )
