"""`stanzaq bench worker`: whole jobs by the library's worker, next to workers that write raw stanzas, in the same run.

Both loads have the same publisher, and each runs in one process. Redis keeps an append-only file, as in production.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from typing import Any, Final

import uvloop
from rich.console import Console

from bench.doors.load import WINDOW, Jobs
from bench.report import Row, row_at_least, row_without_target, show
from frontends.tools.demo.frontend import Frontend
from frontends.tools.servers.ejabberd import Ejabberd
from frontends.tools.servers.redis import RedisServer
from stanzaq import Job, Worker

_REPEATS: Final = 3
_PASSWORD: Final = "bench"  # noqa: S105  (of a private server)


def main(*, as_json: bool, quick: bool) -> int:
    """Run the benchmark; 1 when a target is missed. Raises ServerError when its servers cannot start."""
    seconds = 0.2 if quick else 4.0
    with ExitStack() as stack:
        status = stack.enter_context(Console(stderr=True).status("starting Redis, ejabberd and a frontend"))
        ejabberd = stack.enter_context(Ejabberd())
        redis = stack.enter_context(RedisServer(options={"appendonly": "yes"}))
        stack.enter_context(Frontend(ejabberd.open_settings(redis.url)))
        ejabberd.register("worker", _PASSWORD)
        status.update("measuring raw workers and the library's, in turns")
        account = {
            "url": f"xmpp://worker@{ejabberd.accounts}",
            "service": ejabberd.domain,
            "password": _PASSWORD,
            "address": f"{ejabberd.host}:{ejabberd.c2s_port}",
            "tls": "disabled",
        }
        return show(measure(account, seconds), as_json=as_json)


def measure(account: dict[str, Any], seconds: float) -> list[Row]:
    """Measure both at the private ejabberd of an account, given as the arguments of a worker."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_measure(account, seconds))


async def _measure(account: dict[str, Any], seconds: float) -> list[Row]:
    """Measure both, alternating, so that noise hits them alike; the best repetition of each counts."""
    place = int(account["address"].rpartition(":")[2]), Ejabberd.anonymous, Ejabberd.domain
    raw, of_library = await Jobs.open(*place, "raw"), await Jobs.open(*place, "library", workers=0)
    rates, cpus = [0.0, 0.0], [0.0, 0.0]
    async with _run_worker(account, of_library):
        for _ in range(_REPEATS):
            for number, jobs in enumerate((raw, of_library)):
                began = time.process_time()
                done, rate = await jobs.loop.rate(seconds)
                cpus[number] += (time.process_time() - began) / done / _REPEATS
                rates[number] = max(rates[number], rate)
    raw.close()
    of_library.close()
    return [
        row_at_least("worker_jobs", "jobs/s", rates[1], rates[0], 0.8),
        row_without_target("worker_cpu", "µs", cpus[1] * 1e6, cpus[0] * 1e6),
    ]


@asynccontextmanager
async def _run_worker(account: dict[str, Any], jobs: Jobs) -> AsyncIterator[None]:
    """Run a worker whose jobs do nothing."""
    worker = Worker(**account, concurrency=WINDOW)

    @worker.task("library")
    async def _work(_: Job[object]) -> None:
        jobs.loop.end()

    async with asyncio.TaskGroup() as group:
        group.create_task(worker.serve())
        yield
        worker.stop()
