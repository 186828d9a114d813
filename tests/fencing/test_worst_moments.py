"""A job that is paused anywhere never overwrites what a newer job of its item has written: 1,000 tries over each store.

Two jobs with neighbouring tokens write, and each pauses at random before its fence and inside it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from random import Random

import asyncpg
import psycopg
import pytest
import redis.asyncio as aioredis

from frontends.tools.servers.redis import RedisServer
from stanzaq import Fenced
from tests.fencing.jobs import make_job
from tests.fencing.postgres import PostgresServer

_TRIES = 1_000
_PAIRS = 8
"""Tries at once, each with two connections."""

_PAUSES = (0.0, 0.001, 0.002, 0.004, 0.01)

Write = Callable[[str, int, float], Awaitable[None]]
"""Appends a token to a list under its fence, and pauses between the check and the end of the block."""


class Store:
    """Connections to a store: how jobs write there, and who has written."""

    def __init__(self, writes: list[Write], tokens: Callable[[str], Awaitable[list[int]]]) -> None:
        """Take a way to write for each job that writes at once."""
        self.writes, self.tokens = writes, tokens


@pytest.fixture(params=["psycopg", "asyncpg", "redis"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """Provide a store of each kind."""
    async with AsyncExitStack() as stack:
        if request.param == "redis":
            yield await _redis(stack, request.getfixturevalue("redis7"))
        else:
            make = _psycopg if request.param == "psycopg" else _asyncpg
            yield await make(stack, request.getfixturevalue("postgres"))


_APPEND = (
    "INSERT INTO orders VALUES ({}, ARRAY[CAST({} AS bigint)])"
    " ON CONFLICT (id) DO UPDATE SET tokens = orders.tokens || excluded.tokens"
)


async def _psycopg(stack: AsyncExitStack, server: PostgresServer) -> Store:
    async def connect() -> psycopg.AsyncConnection:
        opening = psycopg.AsyncConnection.connect(server.url(), autocommit=True)
        return await stack.enter_async_context(await opening)

    def writing(connection: psycopg.AsyncConnection) -> Write:
        async def write(key: str, token: int, pause: float) -> None:
            async with make_job(token).fence(connection, "orders", key):
                await asyncio.sleep(pause)
                await connection.execute(_APPEND.format("%s", "%s"), (key, token))

        return write

    reader = await connect()

    async def tokens(key: str) -> list[int]:
        row = await (await reader.execute("SELECT tokens FROM orders WHERE id = %s", (key,))).fetchone()
        assert row
        return list(row[0])

    return Store([writing(await connect()) for _ in range(2 * _PAIRS)], tokens)


async def _asyncpg(stack: AsyncExitStack, server: PostgresServer) -> Store:
    pool = await stack.enter_async_context(asyncpg.create_pool(server.url(), min_size=1, max_size=2 * _PAIRS + 1))

    async def write(key: str, token: int, pause: float) -> None:
        async with pool.acquire() as connection, make_job(token).fence(connection, "orders", key):
            await asyncio.sleep(pause)
            await connection.execute(_APPEND.format("$1", "$2"), key, token)

    async def tokens(key: str) -> list[int]:
        return list(await pool.fetchval("SELECT tokens FROM orders WHERE id = $1", key))

    return Store([write] * (2 * _PAIRS), tokens)


async def _redis(stack: AsyncExitStack, server: RedisServer) -> Store:
    client = await stack.enter_async_context(aioredis.Redis.from_url(server.url))

    async def write(key: str, token: int, pause: float) -> None:
        async with make_job(token).fence(client, "orders", key) as pipeline:
            pipeline.rpush(key, token)
            await asyncio.sleep(pause)

    async def tokens(key: str) -> list[int]:
        return [int(token) for token in await client.lrange(key, 0, -1)]

    return Store([write] * (2 * _PAIRS), tokens)


async def test_never_overwritten(store: Store, request: pytest.FixtureRequest) -> None:
    """The newer job always writes, and nobody with a smaller token writes after it."""
    chance, refused = Random(request.node.name), 0

    async def play(write: Write, key: str, token: int, before: Awaitable[object], done: asyncio.Event) -> bool:
        await before
        try:
            await write(key, token, chance.choice(_PAUSES))
        except Fenced:
            return False
        finally:
            done.set()
        return True

    async def play_tries(pair: int) -> None:
        nonlocal refused
        for number in range(pair, _TRIES, _PAIRS):
            key = f"{request.node.name}-{number}"
            late, newer = store.writes[2 * pair : 2 * pair + 2]
            late_done, newer_done = asyncio.Event(), asyncio.Event()
            # In a third of the tries each, the late job is paused for as long as the newer one takes, or is in time.
            case = chance.randrange(3)
            before_late = newer_done.wait() if case == 0 else asyncio.sleep(chance.choice(_PAUSES))
            before_newer = late_done.wait() if case == 1 else asyncio.sleep(chance.choice(_PAUSES))
            late_wrote, newer_wrote = await asyncio.gather(
                play(late, key, 7, before_late, late_done), play(newer, key, 8, before_newer, newer_done)
            )
            assert newer_wrote
            assert await store.tokens(key) == ([7, 8] if late_wrote else [8])
            refused += not late_wrote

    await asyncio.gather(*map(play_tries, range(_PAIRS)))
    assert _TRIES / 4 < refused < _TRIES * 3 / 4
