"""Redis without memory: what frees it works at every door, also for workers that come now; publishers are refused.

The XMPP door takes part without its server: its translators over a core of this process.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from secrets import token_hex
from typing import Final

import pytest
import redis as redis_py
from proton import Message
from proton.utils import SendException

from broker import codec
from broker.model.commands import Declare, Publish, Retract, Stats, Subscribe, Unlock
from broker.model.items.items import Envelope
from broker.model.names import Jid
from broker.model.problems import Problem
from broker.model.results import Counted, Declared, Published, Refused, Retracted, Subscribed, Unlocked
from broker.redis_core.core import RedisCore
from broker.settings import CommandSettings
from frontends.tools.servers.redis import RedisServer, valkey_binary
from tests.admitting import ADMITTING
from tests.contract.conftest import Door
from tests.doors.amqp.served import AmqpFrontend, connected, consumer, producer
from tests.doors.frontend import ALICE
from tests.doors.rest.served import RestFrontend, client, problem
from tests.waiting import PATIENCE_SECONDS

OWNER: Final = Jid(f"{ALICE}/x")
ITEMS: Final = 8
BODY: Final = codec.pack(Envelope(b"<x/>"))


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    """Provide a server for these tests alone."""
    with RedisServer(binary=valkey_binary()) as server:
        yield server


@pytest.fixture(scope="module")
def doors(redis: RedisServer) -> Iterator[tuple[RestFrontend, AmqpFrontend]]:
    """Provide the doors that are processes."""
    with RestFrontend(redis.url) as rest, AmqpFrontend(redis.url) as amqp:
        yield rest, amqp


def make_core(redis: RedisServer, door: Door | None) -> RedisCore:
    """Make a core that serves XMPP, or a command."""
    return RedisCore(CommandSettings(**ADMITTING, redis_url=redis.url), door)


@pytest.fixture(params=[1, 2])
async def queue(redis: RedisServer, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """Provide a queue with items, of one partition and of several, in a Redis that has no memory left."""
    node, core = f"full-{request.param}-{token_hex(4)}", make_core(redis, None)
    options = {"stanzaq#partitions": (str(request.param),), "pubsub#publish_model": ("open",)}
    assert await core.ask(Declare(node, OWNER, options)) == Declared(node)
    for number in range(ITEMS):
        assert isinstance(await core.ask(Publish(node, OWNER, f"i{number}", BODY, 1)), Published)
    await core.stop()
    with redis_py.Redis.from_url(redis.url) as server:
        server.config_set("maxmemory", 1)
        yield node
        server.config_set("maxmemory", 0)


async def left(redis: RedisServer, node: str) -> int:
    """Count the items of a node."""
    core = make_core(redis, None)
    counted = await core.ask(Stats(node, OWNER))
    await core.stop()
    assert isinstance(counted, Counted)
    return counted.waiting + counted.in_flight


async def test_over_xmpp(redis: RedisServer, queue: str) -> None:
    """A frontend that starts now serves a worker that subscribes now: it acknowledges, and returns, what it gets."""
    door, worker = Door(), Jid("worker@example.org/new")
    core = make_core(redis, door)
    await core.start()
    try:
        refused = await core.ask(Publish(queue, OWNER, None, b"x", 1))
        assert isinstance(refused, Refused) and refused.problem is Problem.OUT_OF_MEMORY
        group = "g" if queue.startswith("full-2") else ""
        assert isinstance(await core.ask(Subscribe(queue, worker, worker, 2, group=group)), Subscribed)
        done: set[str] = set()
        while len(done) < ITEMS:
            await door.until(lambda: bool(door.deliveries))
            for each in list(door.deliveries):
                # Each item comes back once.
                kind, good = (Retract, Retracted) if each.attempt > 1 else (Unlock, Unlocked)
                outcome = await core.ask(kind(queue, worker, each.item_id, each.token))
                assert isinstance(outcome, good), outcome
                door.deliveries.remove(each)
                done |= {each.item_id} if kind is Retract else set()
    finally:
        await core.stop()
    assert await left(redis, queue) == 0


async def test_over_http(redis: RedisServer, doors: tuple[RestFrontend, AmqpFrontend], queue: str) -> None:
    """A new lease is given, fetches, renews, returns and acknowledges, while a message is refused."""

    def work() -> None:
        with client(doors[0], Accept="application/json") as http:
            assert problem(http.post(f"/queues/{queue}", content=b"x")) == (503, "out-of-memory")
            lease = http.post("/subscriptions", json={"destinations": [queue], "prefetch": 2})
            assert lease.status_code == 201, lease.text
            href, gone, returned = lease.json()["href"], set[str](), set[str]()
            while len(gone) < ITEMS:
                messages = http.get(href, params={"wait": 5}).json()["messages"]
                assert messages, (gone, returned)
                for each in messages:
                    if each["id"] in returned:
                        assert http.delete(each["href"]).status_code == 200
                        gone.add(each["id"])
                    else:
                        assert http.post(each["href"].replace("?", "/renew?"), json={}).status_code == 200
                        assert http.post(each["href"].replace("?", "/release?")).status_code == 200
                        returned.add(each["id"])
            assert http.delete(href).status_code == 200

    await asyncio.to_thread(work)
    assert await left(redis, queue) == 0


async def test_over_amqp(redis: RedisServer, doors: tuple[RestFrontend, AmqpFrontend], queue: str) -> None:
    """A new receiver gets all items and acknowledges them, while a message is refused."""

    def work() -> None:
        with connected(doors[1]) as connection:
            with pytest.raises(SendException):
                producer(connection, queue).send(Message(body="x"))
            receiver = consumer(connection, queue, credit=2)
            for number in range(ITEMS + 1):
                receiver.receive(timeout=PATIENCE_SECONDS)
                receiver.release(delivered=True) if number == 0 else receiver.accept()

    await asyncio.to_thread(work)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await left(redis, queue):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
