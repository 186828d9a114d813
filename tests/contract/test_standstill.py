"""A Redis that hangs for longer than every time-out, or is killed, while pull subscriptions hold items."""

import asyncio
import gc
import secrets
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
import redis.asyncio as aioredis

from broker import codec
from broker.model.commands import Declare, Publish, Receive, Retract, Subscribe, Unsubscribe
from broker.model.core import WAITING_BYTES, Core
from broker.model.items.items import Envelope
from broker.model.items.qos import Qos
from broker.model.names import Jid
from broker.model.nodes.pull_subscriptions import pull_jid
from broker.model.results import Declared, Published, Received, Refused, Result, Retracted, Subscribed
from broker.redis_core.core import RedisCore
from broker.settings import CommandSettings
from frontends.tools.servers.redis import RedisServer
from tests.admitting import ADMITTING
from tests.waiting import PATIENCE_SECONDS

ALICE = Jid("alice@x")
TIMEOUT = 0.5
STANDS = 2.0
SURE = {"appendonly": "yes", "appendfsync": "always"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """Provide a Redis of the test's own."""
    with RedisServer(tmp_path / "redis", options=SURE) as server:
        yield server


@pytest.fixture
async def core(server: RedisServer) -> AsyncIterator[RedisCore]:
    """Return a core that cannot send, as the doors of HTTP and AMQP have."""
    core = RedisCore(CommandSettings(**ADMITTING, redis_url=server.url, redis_timeout=TIMEOUT), None)
    await core.start()
    yield core
    await core.stop()


def item(node: str) -> Publish:
    """Publish an item."""
    return Publish(node, ALICE, None, codec.pack(Envelope(b"<x/>")), 4)


async def fetched(core: Core, node: str, jid: Jid, wait: float = 0) -> Result:
    """Fetch what a lease holds."""
    return await core.ask(Receive(node, ALICE, jid, 60_000, wait))


async def stands_still(server: RedisServer, seconds: float = STANDS) -> None:
    """Let Redis hang for longer than every time-out."""
    server.process.pause()
    try:
        await asyncio.sleep(seconds)
    finally:
        server.process.resume()


async def dies(server: RedisServer) -> None:
    """Kill Redis and start it again."""
    server.kill()
    await asyncio.sleep(TIMEOUT)
    server.start()


@pytest.mark.parametrize("trouble", [stands_still, dies])
async def test_everyone_is_answered(server: RedisServer, core: RedisCore, node: str, trouble) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    """Guarantee 8: a lease holds an item and Redis is away; commands under way and later ones are answered in time."""
    assert isinstance(await core.ask(Declare(node, ALICE, {})), Declared)
    jid = pull_jid(ALICE, secrets.token_hex(8))
    assert isinstance(await core.ask(Subscribe(node, ALICE, jid, 2, Qos.PULLED, lease_ms=60_000)), Subscribed)
    assert isinstance(await core.ask(item(node)), Published)
    held = await fetched(core, node, jid)
    assert isinstance(held, Received) and len(held.items) == 1
    away = asyncio.create_task(trouble(server))
    await asyncio.sleep(0.05)
    async with asyncio.timeout(PATIENCE_SECONDS):
        waiting = asyncio.create_task(fetched(core, node, jid, 1))
        asked = [asyncio.create_task(core.ask(item(node))) for _ in range(8)]
        while not away.done():
            await asyncio.sleep(TIMEOUT / 3)
            asked.append(asyncio.create_task(core.ask(item(node))))
        # The pipeline has lost replies, and so searches for what they handed out.
        asked += [asyncio.create_task(core.ask(item(node))) for _ in range(8)]
        outcomes = await asyncio.gather(*asked)
        assert isinstance(await waiting, Received | Refused)
    assert {type(outcome) for outcome in outcomes} <= {Published, Refused}
    async with asyncio.timeout(PATIENCE_SECONDS):
        # Those that were refused may all be missing.
        for _ in range(2):
            while not isinstance(await core.ask(item(node)), Published):  # noqa: ASYNC110  (it is asked, not told)
                await asyncio.sleep(0.05)
        first = held.items[0]
        assert isinstance(await core.ask(Retract(node, jid, first.item_id, first.token)), Retracted)
        # Its worker gets the next ones.
        while not (isinstance(found := await fetched(core, node, jid, 1), Received) and len(found.items) == 2):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert first.token not in {each.token for each in found.items}


async def test_bounded_by_bytes(server: RedisServer, core: RedisCore, node: str) -> None:
    """Guarantee 6: commands that wait for a hanging Redis are bounded in bytes.

    Further ones are refused at once, to be repeated.
    """
    assert isinstance(await core.ask(Declare(node, ALICE, {})), Declared)
    jid = pull_jid(ALICE, secrets.token_hex(8))
    assert isinstance(await core.ask(Subscribe(node, ALICE, jid, 2, Qos.PULLED, lease_ms=60_000)), Subscribed)
    envelope = codec.pack(Envelope(b"<x>" + b"." * 100_000 + b"</x>"))
    server.process.pause()
    asked: list[list[Result]] = [[] for _ in range(1_000)]
    for answers in asked:
        core.submit(Publish(node, ALICE, None, envelope, 100_000), answers.append)
    # They are refused before anything else happens, and commands that end locks and leases are accepted all the same.
    refused = [answers[0] for answers in asked if answers]
    assert {each.problem.retryable for each in refused if isinstance(each, Refused)} == {True}
    assert 0.9 * WAITING_BYTES < (1_000 - len(refused)) * len(envelope) <= WAITING_BYTES
    ended: list[Result] = []
    core.submit(Unsubscribe(node, ALICE, jid, "", release=True), ended.append)
    assert not ended
    async with asyncio.timeout(10):
        while not (ended and all(asked)):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    server.process.resume()
    # All have been answered, so there is room again.
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not isinstance(await core.ask(Publish(node, ALICE, None, envelope, 100_000)), Published):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert core._waiting_bytes == 0


@asynccontextmanager
async def hanging(server: RedisServer) -> AsyncIterator[None]:
    """Let Redis hang meanwhile."""
    server.process.pause()
    yield
    server.process.resume()


@asynccontextmanager
async def gone(server: RedisServer) -> AsyncIterator[None]:
    """Let there be no Redis meanwhile."""
    server.kill()
    yield
    server.start()


@asynccontextmanager
async def full(server: RedisServer) -> AsyncIterator[None]:
    """Let Redis refuse meanwhile what needs memory."""
    async with aioredis.Redis.from_url(server.url) as client:
        await client.config_set("maxmemory", 1)
        yield
        await client.config_set("maxmemory", 0)


@pytest.mark.parametrize("trouble", [hanging, gone, full])
async def test_no_payload_is_kept(
    server: RedisServer, core: RedisCore, node: str, trouble: Callable[[RedisServer], AbstractAsyncContextManager[None]]
) -> None:
    """Guarantee 6: once its sender is answered, nothing keeps a payload, not even until Python collects garbage.

    So a process does not grow while Redis hangs: it collects seldom, and each time-out may end 32 MiB of commands.
    """
    assert isinstance(await core.ask(Declare(node, ALICE, {})), Declared)
    envelope = codec.pack(Envelope(bytes(1_000)))
    held = sys.getrefcount(envelope)
    gc.disable()
    try:
        async with trouble(server):
            # Twice: after a fault the record of the node is read again.
            for _ in range(2):
                asked = [core.ask(Publish(node, ALICE, None, envelope, 1_000)) for _ in range(300)]
                assert {type(each) for each in await asyncio.gather(*asked)} == {Refused}
            async with asyncio.timeout(PATIENCE_SECONDS):
                while sys.getrefcount(envelope) > held:  # noqa: ASYNC110  (nobody tells when the last reference goes)
                    await asyncio.sleep(0.05)
    finally:
        gc.enable()


async def test_stopped_while_asked(core: RedisCore, server: RedisServer, node: str) -> None:
    """Guarantee 8: commands that wait when a core stops are told so, and later ones too."""
    assert isinstance(await core.ask(Declare(node, ALICE, {})), Declared)
    jid = pull_jid(ALICE, secrets.token_hex(8))
    assert isinstance(await core.ask(Subscribe(node, ALICE, jid, 2, Qos.PULLED, lease_ms=60_000)), Subscribed)
    waiting = asyncio.create_task(fetched(core, node, jid, 60))
    await asyncio.sleep(0.1)
    begun = asyncio.create_task(core.ask(Declare(f"{node}-2", ALICE, {})))
    await asyncio.sleep(0)
    server.process.pause()
    asked = asyncio.create_task(core.ask(item(node)))
    await asyncio.sleep(0)
    async with asyncio.timeout(20):
        await core.stop()
        assert isinstance(await waiting, Refused)
        assert isinstance(await asked, Refused)
        await begun
        assert isinstance(await core.ask(item(node)), Refused)
        assert isinstance(await core.ask(Declare(f"{node}-3", ALICE, {})), Refused)
    server.process.resume()
