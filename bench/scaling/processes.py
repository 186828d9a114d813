"""`stanzaq bench scale --processes`: jobs over XMPP with 1, 2, 4 … of each kind of process, next to what the model expects.

Processor time of a job is compared, not only jobs a second: on one machine all processes share its cores. Several XMPP servers
are not a cluster here: each has a queue, clients and frontends of its own, and all share Redis. Must not know how the model
computes.
"""

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import redis as blocking

from bench.doors.batches import Batches
from bench.doors.load import WINDOW, Jobs
from bench.queue.core import CALLS
from frontends.tools.demo.frontend import Frontend
from frontends.tools.servers.cluster import RedisCluster
from frontends.tools.servers.ejabberd import Ejabberd
from frontends.tools.servers.redis import RedisServer

BATCH: Final = 20
QUEUES: Final = 32
"""Queues of a load whose calls share nothing: each has so few jobs under way that nearly every command is a call."""

_SMALL_WINDOW: Final = 4
_OPTIONS: Final = {"appendonly": "yes"}


@dataclass(frozen=True, slots=True)
class Shape:
    """How many of each: frontends, XMPP servers, Redis masters, and partitions of each queue."""

    frontends: int = 1
    servers: int = 1
    masters: int = 1
    partitions: int = 1
    queues: int = 1

    def __str__(self) -> str:
        """Name it in a row."""
        return f"{self.frontends}f_{self.servers}x_{self.masters}r_{self.partitions}p"


@dataclass(slots=True)
class Spent:
    """Jobs, and the processor time meanwhile in seconds by kind of process: `others` are other programs of this machine."""

    jobs: int
    seconds: float
    redis: float
    frontend: float
    xmpp: float
    load: float
    others: float
    calls: int

    def us(self, kind: str) -> float:
        """Return the processor time of a job in µs."""
        spent: float = getattr(self, kind)
        return spent / self.jobs * 1e6

    @property
    def job_us(self) -> float:
        """The processor time of a job in all processes of the service, in µs."""
        return self.us("redis") + self.us("frontend") + self.us("xmpp")

    @property
    def rate(self) -> float:
        """Jobs a second."""
        return self.jobs / self.seconds

    @property
    def calls_of_job(self) -> float:
        """Calls of operations in Redis for a job."""
        return self.calls / self.jobs


@dataclass(frozen=True, slots=True)
class ProcessScene:
    """The running processes of a shape, and a load for each XMPP server."""

    shape: Shape
    ejabberds: Sequence[Ejabberd]
    redises: Sequence[RedisServer]
    frontends: Sequence[Frontend]

    async def loads(self, batch: int) -> list[Jobs]:
        """Connect the clients of each XMPP server to queues of its own."""
        partitions, queues = self.shape.partitions, self.shape.queues
        options = {"stanzaq#partitions": str(partitions)} if partitions > 1 else {}
        loads: list[Jobs] = []
        for number, each in enumerate(self.ejabberds):
            where = (each.c2s_port, each.anonymous, each.domain)
            for queue in range(queues):
                name = f"jobs-{batch}-{number}-{queue}"
                if batch > 1:
                    loads.append(await Batches.open_with(*where, name, batch, options))
                else:
                    window = WINDOW if queues == 1 else _SMALL_WINDOW
                    loads.append(await Jobs.open(*where, name, options=options, window=window))
        return loads

    def _cpu(self) -> tuple[float, float, float]:
        return _sum(self.redises), _sum(self.frontends), _sum(self.ejabberds)

    async def spend(self, loads: Sequence[Jobs], seconds: float) -> Spent:
        """Run jobs for a time, all loads at once."""
        before = _calls(self.redises)
        cpu, own, machine, began = self._cpu(), time.process_time(), _busy_s(), time.perf_counter()
        done = await asyncio.gather(*(load.loop.rate(seconds) for load in loads))
        took, load = time.perf_counter() - began, time.process_time() - own
        redis, frontend, xmpp = (after - before for after, before in zip(self._cpu(), cpu, strict=True))
        others = max(0.0, _busy_s() - machine - redis - frontend - xmpp - load)
        calls = _calls(self.redises) - before
        return Spent(sum(count for count, _ in done), took, redis, frontend, xmpp, load, others, calls)


def _busy_s() -> float:
    """Return for how many seconds the cores of this machine have been busy, with whatever."""
    user, nice, system, _idle, _waiting, interrupt, soft, *_ = (
        Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    )
    return sum(map(int, (user, nice, system, interrupt, soft))) / os.sysconf("SC_CLK_TCK")


def _calls(redises: Sequence[RedisServer]) -> int:
    """Return how many calls of operations all masters have run."""
    calls = 0
    for each in redises:
        with blocking.Redis.from_url(each.url) as client:
            stats: Any = client.info("commandstats")
        calls += sum(stats[name]["calls"] for name in CALLS if name in stats)
    return calls


def _sum(servers: Sequence[RedisServer] | Sequence[Frontend] | Sequence[Ejabberd]) -> float:
    return sum(each.process.cpu_seconds() for each in servers)


@contextmanager
def scene(shape: Shape) -> Iterator[ProcessScene]:
    """Start the processes of a shape."""
    with ExitStack() as stack:
        ejabberds = [stack.enter_context(Ejabberd()) for _ in range(shape.servers)]
        if shape.masters == 1:
            redises = [stack.enter_context(RedisServer(options=_OPTIONS))]
            url = redises[0].url
        else:
            cluster = stack.enter_context(RedisCluster(shape.masters, 0, options=_OPTIONS))
            redises, url = list(cluster.nodes), cluster.url
        homes = cycle(ejabberds)
        frontends = [
            stack.enter_context(Frontend(next(homes).open_settings(url)))
            for _ in range(max(shape.frontends, shape.servers))
        ]
        yield ProcessScene(shape, ejabberds, redises, frontends)
