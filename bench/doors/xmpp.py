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

from bench.doors.batches import Batches
from bench.doors.load import STANZAS_PER_JOB, Jobs, Pubsub
from bench.queue.core import BODY
from bench.report import Row, row_at_least, row_at_most, row_without_target, show
from frontends.tools.demo.frontend import Frontend
from frontends.tools.demo.tally import percentile
from frontends.tools.servers.ejabberd import Ejabberd
from frontends.tools.servers.process import Process
from frontends.tools.servers.redis import RedisServer

_ROUNDS: Final = 3
_PACE: Final = 100


def main(batch: int | None, *, as_json: bool, quick: bool) -> int:
    """Run the benchmark; 1 when a target is missed. Raises ServerError when its servers cannot start.

    With a `batch` all is measured also with up to so many items in a stanza.
    """
    seconds = 0.2 if quick else 4.0
    with ExitStack() as stack:
        status = stack.enter_context(Console(stderr=True).status("starting Redis, ejabberd and a frontend"))
        ejabberd = stack.enter_context(Ejabberd())
        redis = stack.enter_context(RedisServer(options={"appendonly": "yes"}))
        settings = ejabberd.open_settings(redis.url)
        frontend = stack.enter_context(Frontend(settings))
        status.update("measuring ejabberd's pubsub, one frontend and two, in turns")
        bench = _Bench(ejabberd, frontend.process, redis.process, settings, seconds, 1 if quick else _ROUNDS)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            rows = runner.run(_single(bench) if batch is None else _measure_batches(bench, batch))
    return show(rows, as_json=as_json)


@dataclass(slots=True)
class Found:
    """The measurements of a load: rates a second, times in seconds."""

    load: Jobs
    count: int = 0
    rate: float = 0.0
    rate_of_two: float = 0.0
    cpu: float = 0.0
    redis_cpu: float = 0.0

    @property
    def cpu_per_job(self) -> float:
        """Processor time of the frontend for a job, in µs."""
        return self.cpu / self.count * 1e6

    @property
    def redis_per_job(self) -> float:
        """Processor time of Redis for a job, in µs."""
        return self.redis_cpu / self.count * 1e6

    def latencies(self) -> list[Row]:
        """Return the rows of the jobs that began at a fixed rate."""
        return [
            row_at_most("latency_p50", "ms", percentile(self.load.waits, 0.5), 5),
            row_at_most("latency_p99", "ms", percentile(self.load.waits, 0.99), 25),
        ]


async def _single(bench: "_Bench") -> list[Row]:
    jobs = Found(await bench.jobs())
    publishes, native = await bench.measure(jobs)
    await bench.end(jobs)
    return [
        row_at_least("jobs", "jobs/s", jobs.rate, publishes, 1.0),
        row_at_most("cpu_per_stanza", "µs", jobs.cpu_per_job / STANZAS_PER_JOB, 40),
        row_at_most("redis_per_job", "µs", jobs.redis_per_job, 0.53, native),
        *jobs.latencies(),
        row_at_least("two_frontends", "jobs/s", jobs.rate_of_two, jobs.rate, 0.9),
    ]


async def _measure_batches(bench: "_Bench", batch: int) -> list[Row]:
    jobs, single = Found(await bench.batches(batch)), Found(await bench.jobs())
    publishes, native = await bench.measure(jobs, single)
    await bench.end(jobs, single)
    return [
        row_at_least("jobs", "jobs/s", jobs.rate, publishes, 4.0),
        row_at_most("cpu_per_job", "µs", jobs.cpu_per_job, 60),
        row_at_most("redis_per_job", "µs", jobs.redis_per_job, 50),
        *jobs.latencies(),
        row_without_target("two_frontends", "jobs/s", jobs.rate_of_two, jobs.rate),
        row_at_least("single_jobs", "jobs/s", single.rate, publishes, 1.0),
        row_without_target("single_cpu_per_job", "µs", single.cpu_per_job, jobs.cpu_per_job),
        row_without_target("single_redis_per_job", "µs", single.redis_per_job, native),
        row_without_target("single_two_frontends", "jobs/s", single.rate_of_two, single.rate),
    ]


@dataclass(frozen=True, slots=True)
class _Bench:
    """The servers of a measurement."""

    ejabberd: Ejabberd
    frontend: Process
    redis: Process
    settings: Mapping[str, str]
    seconds: float
    rounds: int

    async def jobs(self) -> Jobs:
        """Connect the clients of single items."""
        return await Jobs.open(self.ejabberd.c2s_port, self.ejabberd.anonymous, self.ejabberd.domain, "jobs")

    async def batches(self, batch: int) -> Jobs:
        """Connect the clients of batches."""
        accounts, domain = self.ejabberd.anonymous, self.ejabberd.domain
        return await Batches.open_with(self.ejabberd.c2s_port, accounts, domain, "batches", batch)

    async def measure(self, *loads: Found) -> tuple[float, float]:
        """Measure all rates, alternating, so that noise hits them alike; the best repetition of each counts.

        Returns publishes a second of ejabberd's own pubsub, and µs of Redis for a job by native commands.
        """
        pubsub = await Pubsub.open(self.ejabberd.c2s_port, self.ejabberd.anonymous, self.ejabberd.pubsub, "ceiling")
        publishes = native_cpu = 0.0
        native = 0
        for _ in range(self.rounds):
            publishes = max(publishes, (await pubsub.loop.rate(self.seconds))[1])
            for found in loads:
                await self._measure(found)
            before = self.redis.cpu_seconds()
            native += await _native_jobs(self.settings["REDIS_URL"], self.seconds / 2)
            native_cpu += self.redis.cpu_seconds() - before
            with Frontend(self.settings) as second:
                for found in loads:
                    found.rate_of_two = max(found.rate_of_two, (await found.load.loop.rate(self.seconds))[1])
                # Graceful, so that nothing is left for the next repetition.
                second.stop()
        pubsub.close()
        return publishes, native_cpu / native * 1e6

    async def _measure(self, found: Found) -> None:
        cpu, redis_cpu = self.frontend.cpu_seconds(), self.redis.cpu_seconds()
        done, rate = await found.load.loop.rate(self.seconds)
        found.cpu += self.frontend.cpu_seconds() - cpu
        found.redis_cpu += self.redis.cpu_seconds() - redis_cpu
        found.count += done
        found.rate = max(found.rate, rate)

    async def end(self, timed: Found, *others: Found) -> None:
        """Time jobs that begin at a fixed rate, and disconnect all clients."""
        await timed.load.run_paced(_PACE, self.rounds * self.seconds)
        for found in (timed, *others):
            found.load.close()


async def _native_jobs(url: str, seconds: float) -> int:
    """Pass items through a plain stream of the same server, one at a time, as a worker does; returns how many."""
    done, ends = 0, time.monotonic() + seconds
    async with aioredis.Redis.from_url(url) as client:
        await client.xgroup_create("native", "workers", mkstream=True)
        # At least one, however long the connection has taken.
        while not done or time.monotonic() < ends:
            await client.xadd("native", {"body": BODY})
            read: Any = await client.xreadgroup("workers", "one", {"native": ">"}, count=1)
            (entry,) = read[0][1]
            await client.xack("native", "workers", entry[0])
            await client.xdel("native", entry[0])
            done += 1
        await client.delete("native")
    return done
