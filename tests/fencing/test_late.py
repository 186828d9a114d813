"""`TestBroker.late`: a job that has lost its lock right before its fence is refused by the store, and a test shows it."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

import psycopg
import pytest
import redis
import redis.asyncio as aioredis

from frontends.tools.servers.redis import RedisServer
from stanzaq import Fenced, Job, Worker
from stanzaq.fencing import TABLE
from stanzaq.testing import TestBroker
from stanzaq.worker.worker import held
from tests.fencing.postgres import PostgresServer


async def test_in_the_loop(postgres: PostgresServer) -> None:
    """The late job is refused, and the row is what the second attempt has made of it."""
    worker, seen = Worker("xmpp://worker@example.org"), list[tuple[int, int]]()

    @worker.task("orders")
    async def _book(job: Job[dict[str, str]]) -> None:
        seen.append((job.attempt, job.token))
        order, connecting = job.payload["order"], psycopg.AsyncConnection.connect(postgres.url())
        async with await connecting as connection, job.fence(connection, "late", order):
            await connection.execute("INSERT INTO orders VALUES (%s, %s)", (order, [job.token]))

    async with TestBroker(worker) as broker:
        async with broker.late("orders"):
            await broker.publish("orders", {"order": "late"})
            await broker.publish("orders", {"order": "other"})
        await broker.publish("orders", {"order": "later"})
        await broker.drain()
    assert sorted(attempt for attempt, _ in seen) == [1, 1, 1, 2]
    (second,) = (token for attempt, token in seen if attempt == 2)
    with psycopg.connect(postgres.url()) as connection:
        row = connection.execute("SELECT tokens FROM orders WHERE id = 'late'").fetchone()
    assert row == ([second],)


async def test_in_threads(postgres: PostgresServer) -> None:
    """The same for a handler that is a plain function; the worker needs room for the attempt that comes first."""
    worker = Worker("xmpp://worker@example.org", concurrency=2)

    @worker.task("orders")
    def _book(job: Job[str]) -> None:
        with psycopg.connect(postgres.url()) as connection, job.fence(connection, "threads", job.payload):
            connection.execute("INSERT INTO orders VALUES (%s, %s)", (job.payload, [job.token]))

    async with TestBroker(worker) as broker, broker.late("orders"):
        await broker.publish("orders", "in a thread")


async def test_programs_of_the_docs(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs in library.md and its statement are complete: the order is what the second attempt has made of it."""
    page = (Path(__file__).parents[2] / "docs" / "library.md").read_text()
    programs = dict(re.findall(r"```python\n# (\w+)\.py\n(.*?)```", page, re.DOTALL))
    (statement,) = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    assert dedent(statement).strip() == TABLE
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE shop")
    with psycopg.connect(postgres.url("shop")) as connection:
        connection.execute(TABLE)
        connection.execute("CREATE TABLE orders AS SELECT 7 AS id, 0 AS total")
    fenced = ModuleType("fenced")
    monkeypatch.setitem(sys.modules, "fenced", fenced)
    with held():
        exec(programs["fenced"].replace("postgresql://localhost/shop", postgres.url("shop")), vars(fenced))  # noqa: S102
    names: dict[str, Any] = {}
    exec(programs["test_fenced"], names)  # noqa: S102
    await names["test_late_write"]()
    with psycopg.connect(postgres.url("shop")) as connection:
        assert connection.execute("SELECT id, total FROM orders").fetchall() == [(7, 12)]
        (forget,) = re.findall(r"`(DELETE FROM stanzaq_fences .*?)`", page)
        assert connection.execute(forget).rowcount == 0
        assert connection.execute(forget.replace("- interval", "+ interval")).rowcount == 1


@pytest.fixture
async def client(valkey: RedisServer) -> AsyncIterator[aioredis.Redis]:
    """Provide a client of a Redis."""
    async with aioredis.Redis.from_url(valkey.url) as client:
        yield client


async def _play(client: aioredis.Redis, way: str) -> None:
    worker = Worker("xmpp://worker@example.org")

    @worker.task("orders")
    async def _job(job: Job[Any]) -> None:
        match way:
            case "no fence":
                return
            case "another key":
                async with job.fence(client, "orders", f"{job.id} {job.attempt}"):
                    pass
            case "fails":
                try:
                    async with job.fence(client, "orders", job.id):
                        pass
                except Fenced:
                    raise ZeroDivisionError from None

    async with TestBroker(worker) as broker, broker.late("orders", timeout="10s"):
        await broker.publish("orders", {})


async def test_without_a_fence(client: aioredis.Redis) -> None:
    """A job that has no fence cannot be stopped there, and the test fails for that reason."""
    wanted = "a job of orders has ended without a fence in this process: write inside `async with job.fence(…)`"
    with pytest.raises(AssertionError, match=f"^{re.escape(wanted)}$"):
        await _play(client, "no fence")


async def test_fences_that_do_not_meet(client: aioredis.Redis) -> None:
    """A key that differs between attempts fences nothing: the late write is done, and the test fails."""
    with pytest.raises(
        AssertionError, match=r"^a late job of orders has written: another name or key, or another store"
    ):
        await _play(client, "another key")


async def test_a_fence_that_blocks_the_loop(valkey: RedisServer) -> None:
    """Over a connection that blocks, a coroutine would stop the test as well: it is told so."""
    worker = Worker("xmpp://worker@example.org")

    @worker.task("orders")
    async def _job(job: Job[Any]) -> None:
        with redis.Redis.from_url(valkey.url) as blocking, job.fence(blocking, "orders", 1):
            pytest.fail("it was let in")

    with pytest.raises(
        RuntimeError, match=r"^the fence blocks the event loop: make the handler a plain function, or take"
    ):
        async with TestBroker(worker) as broker, broker.late("orders"):
            await broker.publish("orders", {})


async def test_other_ends(client: aioredis.Redis) -> None:
    """What else the late job raises is raised."""
    with pytest.raises(ZeroDivisionError):
        await _play(client, "fails")


async def _fail_inside(broker: TestBroker) -> None:
    async with broker.late("orders"):
        await broker.publish("orders", {})
        raise ZeroDivisionError


async def test_nobody_comes(client: aioredis.Redis) -> None:
    """A test that publishes nothing ends with its time; one that fails inside ends as it does, and lets the job go on."""
    worker, ended = Worker("xmpp://worker@example.org"), asyncio.Event()

    @worker.task("orders")
    async def _job(job: Job[Any]) -> None:
        async with job.fence(client, "nobody", job.id):
            ended.set()

    async with TestBroker(worker) as broker:
        with pytest.raises(TimeoutError):
            async with broker.late("orders", timeout="50ms"):
                pass
        with pytest.raises(ZeroDivisionError):
            await _fail_inside(broker)
        await broker.drain()
    assert ended.is_set()
