"""Stores that earlier versions wrote are worked empty. `python -m tests.contract.test_stores` writes the one of this version.

A store is dumped by the oldest Redis, key by key; its delays and locks end within a minute. The dumps of older formats stay.
"""

import asyncio
import gzip
import json
from base64 import b64decode, b64encode
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest
import redis
import redis.asyncio as aioredis

from broker.model.commands import Configure, Presence, Retract, Stats, Subscribe
from broker.model.names import Jid
from broker.model.results import Counted, Retracted
from broker.redis_core.core import RedisCore
from broker.settings import Settings
from broker.store_format import FIRST, FORMAT
from frontends.tools.servers.redis import RedisServer, redis_binary
from tests.admitting import ADMITTING
from tests.contract.conftest import Door, MakeCore
from tests.contract.test_keys import ALICE, busy
from tests.waiting import PATIENCE_SECONDS

FOLDER: Final = Path(__file__).parents[1] / "golden" / "stores"

HELPER: Final = Jid("alice@example.org/helper")

_OF_PROCESSES: Final = ("process:", "service}:frontends", "service}:libraries", "service}:frontend_details")
"""What a store has of processes that have ended since: the dump is without it, as a stopped service would be."""


def dump_file(number: int) -> Path:
    """Return the file of a format's dump."""
    return FOLDER / f"{number}.dump.gz"


async def counts(core: RedisCore) -> dict[str, int]:
    """Return how many items wait or are held in each queue."""
    found: dict[str, int] = {}
    for name in await core._store.names():
        counted = await core.ask(Stats(name, ALICE))
        if isinstance(counted, Counted):
            found[name] = counted.waiting + counted.in_flight
    return found


async def write() -> bytes:
    """Let a service be busy, and dump its store."""
    with RedisServer(binary=redis_binary()) as server:
        async with aioredis.Redis.from_url(server.url) as client:
            given: dict[str, Any] = {
                "admins": "engine@example.org",
                "redis_url": server.url,
                "xmpp_domain": "queue.example.org",
                "xmpp_secret": "secret",
            }
            door = Door()
            core = RedisCore(Settings(**(ADMITTING | given)), door)
            await core.start()
            await busy(core, door)
            found = await counts(core)
            await core.stop()
            lines = [json.dumps({"counts": found})]
            for key in sorted([name async for name in client.scan_iter()]):
                if not any(word in key.decode() for word in _OF_PROCESSES):
                    value: Any = await client.dump(key)
                    lines.append(json.dumps([b64encode(key).decode(), b64encode(value).decode()]))
    return gzip.compress("\n".join(lines).encode(), mtime=0)


def read(path: Path, client: redis.Redis) -> dict[str, int]:
    """Restore a dump in an empty Redis; returns how many items it has in each queue."""
    first, *lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    for line in lines:
        key, value = map(b64decode, json.loads(line))
        client.restore(key, 0, value)
    found: dict[str, int] = json.loads(first)["counts"]
    return found


@pytest.mark.parametrize("number", range(FIRST, FORMAT + 1))
async def test_worked_empty(make_core: MakeCore, valkey: RedisServer, number: int) -> None:
    """What waited, was delayed, held, ordered or bounded in a store of each format is handed out, once it is due."""
    with redis.Redis.from_url(valkey.url) as client:
        client.flushall()
        expected = read(dump_file(number), client)
    assert sum(expected.values()) > 30
    core, door = await make_core(valkey.url, xmpp_domain="queue.example.org", admins="engine@example.org")
    await core.ask(Presence(HELPER, available=True))
    await core.ask(Configure("bounded", ALICE, {"stanzaq#rate_by_key": ("",)}))
    for node in expected:
        await core.ask(Subscribe(node, HELPER, HELPER, 100, group="billing" if node == "owned" else ""))
    done: Counter[str] = Counter()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while any((await counts(core)).values()):
            for one in door.deliveries:
                where = one.partition
                command = Retract(where.node, one.subscriber, one.item_id, one.token, partition=where.number)
                done[where.node] += isinstance(await core.ask(command), Retracted)
            door.deliveries.clear()
            await asyncio.sleep(0.05)
    # One that had a minute to live has expired, and a schedule may have published another.
    assert done.pop("jobs") >= expected.pop("jobs") - 1
    assert +done == +Counter(expected)


if __name__ == "__main__":
    dump_file(FORMAT).write_bytes(asyncio.run(write()))
