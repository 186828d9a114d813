"""Fences in Redis: the queued writes are one transaction with the check, on both servers and in both ways of redis-py."""

from collections.abc import AsyncIterator, Iterator
from itertools import count

import pytest
import redis
import redis.asyncio as aioredis

from frontends.tools.servers.redis import RedisServer
from stanzaq import Fenced
from tests.fencing.jobs import make_job

_keys = (f"order/{number}" for number in count())


@pytest.fixture
def blocking(redis7: RedisServer) -> Iterator[redis.Redis]:
    """Provide a client that blocks, and reads text."""
    with redis.Redis.from_url(redis7.url, decode_responses=True) as client:
        yield client


@pytest.fixture
async def client(valkey: RedisServer) -> AsyncIterator[aioredis.Redis]:
    """Provide an asynchronous client."""
    async with aioredis.Redis.from_url(valkey.url) as client:
        yield client


def test_smaller_tokens_are_refused_when_it_blocks(blocking: redis.Redis) -> None:
    """The same token and larger ones write, a smaller one does not."""
    key = next(_keys)
    for token in (5, 5, 7):
        with make_job(token).fence(blocking, "orders", key) as pipeline:
            pipeline.rpush(key, token)
    with pytest.raises(Fenced), make_job(6).fence(blocking, "orders", key):
        pytest.fail("it was let in")
    with make_job(4, "refunds").fence(blocking, "orders", key) as pipeline:
        pipeline.rpush(key, 4)
    assert blocking.lrange(key, 0, -1) == ["5", "5", "7", "4"]
    assert 600_000 < blocking.ttl(f"stanzaq:fence:orders:orders:{key.replace('/', '%2F')}") <= 604_800


async def test_smaller_tokens_are_refused(client: aioredis.Redis) -> None:
    """The same over asyncio."""
    key = next(_keys)
    for token in (5, 5, 9_007_199_254_740_991):
        async with make_job(token).fence(client, "orders", key) as pipeline:
            pipeline.rpush(key, token)
    with pytest.raises(Fenced):
        async with make_job(9_007_199_254_740_990).fence(client, "orders", key):
            pytest.fail("it was let in")
    assert await client.lrange(key, 0, -1) == [b"5", b"5", b"9007199254740991"]


async def _be_overtaken(client: aioredis.Redis, key: str, *, executes: bool) -> None:
    async with make_job(5).fence(client, "orders", key) as late:
        late.set(key, 5)
        async with make_job(6).fence(client, "orders", key) as pipeline:
            pipeline.set(key, 6)
        if executes:
            await late.execute()


@pytest.mark.parametrize("executes", [False, True])
async def test_overtaken_in_the_block(client: aioredis.Redis, *, executes: bool) -> None:
    """Whoever is overtaken between its check and its write writes nothing, whether or not it executes by itself."""
    key = next(_keys)
    with pytest.raises(Fenced):
        await _be_overtaken(client, key, executes=executes)
    assert await client.get(key) == b"6"


async def test_the_same_job_twice_at_once(client: aioredis.Redis) -> None:
    """Two blocks of one job do not hinder each other."""
    key, job = next(_keys), make_job(5)
    async with job.fence(client, "orders", key) as outer:
        outer.rpush(key, "outer")
        async with job.fence(client, "orders", key) as inner:
            inner.rpush(key, "inner")
    assert await client.lrange(key, 0, -1) == [b"inner", b"outer"]


async def test_blocks_that_fail_write_nothing(client: aioredis.Redis) -> None:
    """Nothing that was queued is written; the token counts as seen."""
    key = next(_keys)

    async def fail() -> None:
        async with make_job(5).fence(client, "orders", key) as pipeline:
            pipeline.set(key, 5)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert not await client.exists(key)


def _execute_early(client: redis.Redis, key: str) -> None:
    with make_job(5).fence(client, "orders", key) as pipeline:
        pipeline.incr(key)
        pipeline.execute()
        pipeline.incr(key)


def test_commands_after_an_execute(blocking: redis.Redis) -> None:
    """A program may execute to read the answers, but what follows would be guarded by nothing."""
    key = next(_keys)
    with make_job(5).fence(blocking, "orders", key) as pipeline:
        pipeline.incr(key)
        assert pipeline.execute() == [1]
    with pytest.raises(RuntimeError, match=r"^commands follow an execute\(\) in the block of a fence: one execute"):
        _execute_early(blocking, key)
    assert blocking.get(key) == "2"


def test_a_pipeline_is_no_client(blocking: redis.Redis) -> None:
    """A pipeline only queues, so it cannot be asked for the token."""
    with (
        blocking.pipeline() as pipeline,
        pytest.raises(TypeError, match=r"^no fence knows a redis\.client\.Pipeline: "),
    ):
        make_job(5).fence(pipeline, "orders", 1)
