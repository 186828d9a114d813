"""`stanzaq bench xmpp`: whole jobs over a real ejabberd, next to what ejabberd's own pubsub does in the same run.

Redis keeps an append-only file, as one that is to lose nothing does. The names and targets of the rows are those that the
README and CI speak of.
"""

import asyncio
import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvloop
from rich.console import Console

from frontends.bench.load import STANZAS_PER_JOB, Jobs, Pubsub
from frontends.bench.report import Row, at_least, at_most, show
from frontends.demo.frontend import Frontend
from frontends.demo.tally import percentile
from frontends.servers.ejabberd import Ejabberd
from frontends.servers.redis import RedisServer

_ROUNDS: Final = 3
_PACE: Final = 100
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def main(*, as_json: bool, quick: bool) -> int:
    """Run the benchmark; 1 when a target is missed. Raises ServerError when its servers cannot be had."""
    seconds = 0.2 if quick else 4.0
    with ExitStack() as stack:
        status = stack.enter_context(Console(stderr=True).status("starting Redis, ejabberd and a frontend"))
        ejabberd = stack.enter_context(Ejabberd())
        redis = stack.enter_context(RedisServer(options={"appendonly": "yes"}))
        settings = {
            "REDIS_URL": redis.url,
            "XMPP_SERVER": f"{ejabberd.host}:{ejabberd.component_port}",
            "XMPP_DOMAIN": ejabberd.domain,
            "XMPP_SECRET": ejabberd.secret,
        }
        first = stack.enter_context(Frontend(settings))
        runner = stack.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
        status.update("measuring ejabberd's pubsub and one frontend")
        one = runner.run(_one(ejabberd, first.process.pid, seconds))
        status.update("measuring two frontends")
        stack.enter_context(Frontend(settings))
        two = runner.run(_two(ejabberd, seconds))
    return show(_rows(one, two), as_json=as_json)


@dataclass(frozen=True, slots=True)
class One:
    """What one frontend did: rates in jobs and publishes per second, times in seconds."""

    jobs: float
    publishes: float
    cpu_per_stanza: float
    waits: list[float]


def _rows(one: One, two: float) -> list[Row]:
    return [
        at_least("jobs", "jobs/s", one.jobs, one.publishes, 1.0),
        at_most("cpu_per_stanza", "µs", one.cpu_per_stanza * 1e6, 40),
        at_most("latency_p50", "ms", percentile(one.waits, 0.5), 5),
        at_most("latency_p99", "ms", percentile(one.waits, 0.99), 25),
        at_least("two_frontends", "jobs/s", two, one.jobs, 0.9),
    ]


async def _one(ejabberd: Ejabberd, pid: int, seconds: float) -> One:
    """Measure jobs and their ceiling in turns, so that noise hits both alike; the better round of each counts."""
    pubsub = await Pubsub.open(ejabberd.c2s_port, ejabberd.anonymous, ejabberd.pubsub, "ceiling")
    jobs = await Jobs.open(ejabberd.c2s_port, ejabberd.anonymous, ejabberd.domain, "one")
    best = ceiling = cpu = 0.0
    count = 0
    for _ in range(_ROUNDS):
        ceiling = max(ceiling, (await pubsub.loop.rate(seconds))[1])
        before = _cpu_seconds(pid)
        done, rate = await jobs.loop.rate(seconds)
        cpu += _cpu_seconds(pid) - before
        count += done
        best = max(best, rate)
    await jobs.paced(_PACE, _ROUNDS * seconds)
    pubsub.close()
    jobs.close()
    return One(best, ceiling, cpu / (count * STANZAS_PER_JOB), jobs.waits)


async def _two(ejabberd: Ejabberd, seconds: float) -> float:
    jobs = await Jobs.open(ejabberd.c2s_port, ejabberd.anonymous, ejabberd.domain, "two")
    best = 0.0
    for _ in range(_ROUNDS):
        best = max(best, (await jobs.loop.rate(seconds))[1])
    jobs.close()
    return best


def _cpu_seconds(pid: int) -> float:
    """Give the CPU time of a process, all its threads together (proc(5): fields 14 and 15)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
