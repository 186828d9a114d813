"""Frontends in the memory that the chart gives them, while one account has as many partitions as any may have."""

import asyncio
import os
import re
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
import redis

from broker import keys
from broker.model.commands import Declare
from broker.model.names import Jid
from broker.model.nodes.options import MAX_PARTITIONS
from broker.model.results import Declared
from broker.redis_core.core import RedisCore
from broker.settings import CommandSettings
from frontends.tools.servers.ejabberd import Ejabberd
from frontends.tools.servers.redis import RedisServer, redis_binary
from tests.admitting import ADMITTING
from tests.faults.house import MEMORY_BYTES, Frontend
from tests.waiting import PATIENCE_SECONDS

OWNER: Final = Jid("owner@x")
NODES: Final = [20, pytest.param(98, marks=pytest.mark.soak)]
DEAD: Final = 3


@pytest.mark.parametrize("nodes", NODES)
def test_takeover_of_many_partitions(ejabberd: Ejabberd, nodes: int) -> None:
    """Three of five frontends die at 20,480 or 100,352 partitions: the others take over within their memory, and stay ready."""
    with ExitStack() as stack:
        server = stack.enter_context(RedisServer(binary=redis_binary()))
        frontends = [
            stack.enter_context(Frontend(server.url, ejabberd.component_port, ejabberd.secret)) for _ in range(5)
        ]
        asyncio.run(_make_nodes(server.url, nodes))
        client = stack.enter_context(redis.Redis.from_url(server.url))
        assert _alive(client) == len(frontends)
        dead, rest = frontends[:DEAD], frontends[DEAD:]
        for each in dead:
            each.doomed = True
            os.kill(each.process.pid, signal.SIGKILL)
        _until(lambda: _alive(client) == len(rest))
        assert [each.get("/readyz") for each in rest] == [200] * len(rest)
        # A page of partitions has bounded bytes, whoever has how many: what is left is for items.
        assert max(map(_peak, rest)) < MEMORY_BYTES * 5 // 8
        assert all("MemoryError" not in each.log for each in rest)


def _alive(client: redis.Redis) -> int:
    return int(client.zcard(keys.of_service("frontends")))


def _peak(frontend: Frontend) -> int:
    status = Path(f"/proc/{frontend.process.pid}/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) * 1024


async def _make_nodes(url: str, nodes: int) -> None:
    # An administrator has no quota.
    core = RedisCore(CommandSettings(**ADMITTING, redis_url=url, admins=(OWNER,)), None)
    for number in range(nodes):
        declared = await core.ask(Declare(f"n{number}", OWNER, {"stanzaq#partitions": (str(MAX_PARTITIONS),)}))
        assert isinstance(declared, Declared), declared
    await core.stop()


def _until(done: Callable[[], bool]) -> None:
    ends = time.monotonic() + PATIENCE_SECONDS
    while not done():
        assert time.monotonic() < ends
        time.sleep(0.05)
