"""Makes the report of a simulated week, of loads by day and in bursts: `python -m tests.analytics.week OUT`.

The records are those that operations write. The queues are opened, and their workers subscribed, by operations. Must not know
what is reported.
"""

import math
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import redis

from broker.model.names import Partition
from frontends.commands import report
from frontends.tools.servers.redis import RedisServer
from tests.analytics.shapes import DAY_MS, HOUR_MS, Share, come_and_go
from tests.analytics.simulator import Run, entries
from tests.lua.driver import Queue, Runner

WEEK_MS = 7 * DAY_MS


@dataclass(frozen=True)
class Load:
    """The load of a queue at its highest, its share of that at each time since 1970, and its workers, each with a credit of 3."""

    node: str
    most_per_s: float
    service_ms: float
    share: Share
    workers: int
    bound: int = 0


def _by_day(at: float) -> float:
    """Rise and fall, to the most at two in the afternoon, and less on Saturday and Sunday."""
    day = (1 - 0.8 * math.cos(2 * math.pi * (at - 2 * HOUR_MS) / DAY_MS)) / 1.8
    # The first day since 1970 was a Thursday.
    return day * (0.4 if (at // DAY_MS + 3) % 7 > 4 else 1.0)


def _after_the_hour(at: float) -> float:
    return 1.0 if at % HOUR_MS < 4 * 60_000 else 0.03


LOADS = (
    Load("thumbnails", 0.2, 45_000, _by_day, 3),
    Load("webhooks", 0.6, 8_000, _after_the_hour, 4, bound=3),
    Load("invoices", 0.02, 20_000, lambda _: 1.0, 1),
)


def main(out: Path) -> int:
    """Play the week that ends now, write it into a Redis, and report it."""
    began_ms = int(time.time()) * 1000 - WEEK_MS
    # By whole days, so that the afternoon is one.
    began_ms -= began_ms % DAY_MS
    with RedisServer() as server, redis.Redis.from_url(server.url) as client:
        for load in LOADS:
            share = partial(_since, began_ms, load.share)
            shape = come_and_go(load.node, load.most_per_s, load.service_ms, share, WEEK_MS)
            _write(client, load, shape.run(load.bound or 3 * load.workers, began_ms))
        return report.capacity(report.Asked("redis", server.url, out))


def _since(began_ms: int, share: Share, at: float) -> float:
    return share(began_ms + at)


def _write(client: Any, load: Load, run: Run) -> None:  # noqa: ANN401  (what redis-py has)
    first = run.attempts[0]
    queue = Queue(Runner(client, checked=False), Partition(first.node, first.incarnation))
    queue.open(limits=f"{load.bound} 0 0 0" if load.bound else "")
    for number in range(load.workers):
        queue.subscribe(f"worker{number}@example.org/{load.node}", 3)
    pipe = client.pipeline(transaction=False)
    for key, offset, fields in entries(run):
        pipe.xadd(key, fields, id=offset)
    pipe.execute()


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
