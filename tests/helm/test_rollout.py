"""An upgrade under load, with the pods that the chart describes as processes."""

import asyncio
import base64
import contextlib
import secrets
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from redis import Redis

from broker.journal.schema import record
from frontends.tools.servers.ejabberd import Ejabberd
from frontends.tools.servers.redis import RedisServer
from stanzaq import Job, Publisher, StanzaqError, Worker
from tests.helm.charts import Object, having, rendered, the
from tests.helm.pods import Deployment
from tests.waiting import PATIENCE_SECONDS

_AT_ONCE = 20
"""Items that are published and worked on at once."""

_PAUSE_SECONDS = 0.1
"""Between two publishes of one publisher."""


def _release(ejabberd: Ejabberd, redis: RedisServer, domain: str, drain: str) -> list[Object]:
    """Render the chart for these servers."""
    settings = {
        "xmpp.server": f"{ejabberd.host}:{ejabberd.component_port}",
        "xmpp.domain": domain,
        "xmpp.secret": ejabberd.secret,
        "settings.drain_seconds": drain,
        # None of the records that are counted is trimmed.
        "settings.journal_records": "1000000",
    }
    objects = rendered("helm4", *having("ejabberd", *(f"{name}={value}" for name, value in settings.items())))
    # It listens at a file, which no pod could reach.
    the(objects, "Secret")["data"]["redis-url"] = base64.b64encode(redis.url.encode()).decode()
    return objects


def _acknowledged(redis: RedisServer) -> Counter[str]:
    """Count the acknowledgements of each item in the journals."""
    found: Counter[str] = Counter()
    with Redis.from_url(redis.url) as client:
        for key in client.scan_iter("sq:*:journal"):
            records = [record(fields) for _, fields in client.xrange(key)]
            found.update(str(each["item"]) for each in records if each["type"] == "acknowledged")
    return found


async def _until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110  (two programs are watched)
        await asyncio.sleep(0.01)


async def test_upgrade_under_load(ejabberd: Ejabberd, valkey: RedisServer, tmp_path: Path) -> None:
    """Issue 26: an upgrade loses nothing, has nothing acknowledged twice, and a frontend is ready all the time."""
    with Redis.from_url(valkey.url) as client:
        client.flushall()
    domain = f"rollout-{secrets.token_hex(4)}.localhost"
    user: dict[str, Any] = {
        "url": f"xmpp://{ejabberd.register(f'rollout-{secrets.token_hex(4)}', 'secret')}",
        "service": domain,
        "password": "secret",
        "address": f"127.0.0.1:{ejabberd.c2s_port}",
        "tls": "disabled",
    }
    worker, published, done = Worker(**user, concurrency=_AT_ONCE, create="if-missing"), list[str](), set[str]()

    @worker.task("jobs")
    async def _work(job: Job[int]) -> None:
        await asyncio.sleep(0.01)
        done.add(job.id)

    deployment, upgraded = Deployment("xmpp", tmp_path), asyncio.Event()

    async def publish(publisher: Publisher) -> None:
        while not upgraded.is_set():
            published.append(await publisher.publish("jobs", len(published)))
            await asyncio.sleep(_PAUSE_SECONDS)

    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await deployment.roll_out(_release(ejabberd, valkey, domain, "5"))
            serving = asyncio.create_task(worker.serve())
            async with Publisher(**user) as publisher, asyncio.TaskGroup() as group:
                while not published:
                    # The worker makes the node.
                    with contextlib.suppress(StanzaqError):
                        published.append(await publisher.publish("jobs", 0))
                for _ in range(_AT_ONCE):
                    group.create_task(publish(publisher))
                await _until(lambda: len(done) >= _AT_ONCE)
                before, count = len(deployment.served), len(published)
                await deployment.roll_out(_release(ejabberd, valkey, domain, "6"))
                # They publish all the time; a busy machine may answer them only now.
                await _until(lambda: len(published) - count > 2 * _AT_ONCE)
                upgraded.set()
            await _until(lambda: len(done) >= len(published))
            worker.stop()
            await serving
    finally:
        deployment.kill()
    assert deployment.exits == [0, 0]
    assert min(deployment.served[before:]) >= 1
    assert _acknowledged(valkey) == Counter(published)
