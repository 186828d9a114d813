"""`stanzaq bench xmpp`: whole jobs over a real ejabberd, next to ejabberd's own pubsub in the same run.

Redis keeps an append-only file, as in production. README and CI name the rows and their targets.
"""

import asyncio
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

import redis.asyncio as aioredis
import uvloop
from rich.console import Console

from frontends.tools.bench.core import BODY
from frontends.tools.bench.load import STANZAS_PER_JOB, Jobs, Pubsub
from frontends.tools.bench.report import Row, at_least, at_most, show
from frontends.tools.demo.frontend import Frontend
from frontends.tools.demo.tally import percentile
from frontends.tools.servers.ejabberd import Ejabberd
from frontends.tools.servers.process import Process
from frontends.tools.servers.redis import RedisServer

_ROUNDS: Final = 3
_PACE: Final = 100


def main(*, as_json: bool, quick: bool) -> int:
    """Run the benchmark; 1 when a target is missed. Raises ServerError when its servers cannot start."""
    seconds = 0.2 if quick else 4.0
    with ExitStack() as stack:
        status = stack.enter_context(Console(stderr=True).status("starting Redis, ejabberd and a frontend"))
        ejabberd = stack.enter_context(Ejabberd())
        redis = stack.enter_context(RedisServer(options={"appendonly": "yes"}))
        settings = ejabberd.settings(redis.url)
        frontend = stack.enter_context(Frontend(settings))
        status.update("measuring ejabberd's pubsub, one frontend and two, in turns")
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            processes = frontend.process, redis.process
            found = runner.run(_measured(ejabberd, *processes, settings, seconds))
    return show(_rows(found), as_json=as_json)


@dataclass(frozen=True, slots=True)
class Found:
    """The measurements: rates a second, times in seconds."""

    publishes: float
    jobs: float
    jobs_of_two: float
    cpu_per_stanza: float
    redis_per_job: float
    redis_per_native: float
    waits: list[float]


def _rows(found: Found) -> list[Row]:
    return [
        at_least("jobs", "jobs/s", found.jobs, found.publishes, 1.0),
        at_most("cpu_per_stanza", "µs", found.cpu_per_stanza * 1e6, 40),
        at_most("redis_per_job", "µs", found.redis_per_job * 1e6, 0.53, found.redis_per_native * 1e6),
        at_most("latency_p50", "ms", percentile(found.waits, 0.5), 5),
        at_most("latency_p99", "ms", percentile(found.waits, 0.99), 25),
        at_least("two_frontends", "jobs/s", found.jobs_of_two, found.jobs, 0.9),
    ]


async def _measured(
    ejabberd: Ejabberd, frontend: Process, redis: Process, settings: Mapping[str, str], seconds: float
) -> Found:
    """Measure all rates, alternating, so that noise hits them alike; the best repetition of each counts."""
    pubsub = await Pubsub.open(ejabberd.c2s_port, ejabberd.anonymous, ejabberd.pubsub, "ceiling")
    jobs = await Jobs.open(ejabberd.c2s_port, ejabberd.anonymous, ejabberd.domain, "jobs")
    publishes = of_one = of_two = cpu = redis_cpu = native_cpu = 0.0
    count = native = 0
    for _ in range(_ROUNDS):
        publishes = max(publishes, (await pubsub.loop.rate(seconds))[1])
        before, redis_before = frontend.cpu_seconds(), redis.cpu_seconds()
        done, rate = await jobs.loop.rate(seconds)
        cpu += frontend.cpu_seconds() - before
        redis_cpu += redis.cpu_seconds() - redis_before
        count += done
        redis_before = redis.cpu_seconds()
        native += await _native_jobs(settings["REDIS_URL"], seconds / 2)
        native_cpu += redis.cpu_seconds() - redis_before
        of_one = max(of_one, rate)
        with Frontend(settings) as second:
            of_two = max(of_two, (await jobs.loop.rate(seconds))[1])
            # Graceful, so that nothing is left for the next repetition.
            second.stop()
    await jobs.paced(_PACE, _ROUNDS * seconds)
    pubsub.close()
    jobs.close()
    per_stanza = cpu / (count * STANZAS_PER_JOB)
    return Found(publishes, of_one, of_two, per_stanza, redis_cpu / count, native_cpu / native, jobs.waits)


async def _native_jobs(url: str, seconds: float) -> int:
    """Pass items through a plain stream of the same server, one at a time, as a worker does; returns how many."""
    done, ends = 0, time.monotonic() + seconds
    async with aioredis.Redis.from_url(url) as client:
        await client.xgroup_create("native", "workers", mkstream=True)
        while time.monotonic() < ends:
            await client.xadd("native", {"body": BODY})
            read: Any = await client.xreadgroup("workers", "one", {"native": ">"}, count=1)
            (entry,) = read[0][1]
            await client.xack("native", "workers", entry[0])
            await client.xdel("native", entry[0])
            done += 1
        await client.delete("native")
    return done
