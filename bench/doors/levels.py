"""`stanzaq bench xmpp --qos`: the cost of each level of `urn:xmpp:qos`, next to plain messages in the same run.

It counts the stanzas that the sender writes and reads, and the time until a worker has acknowledged, with a window of
messages. README and CI name the rows and their targets.
"""

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import uvloop
from rich.console import Console

from bench.doors.promised import ACKNOWLEDGED, ASSURED, LEVELS, PLAIN, Messages
from bench.report import Row, row_at_most, row_without_target, show
from frontends.tools.demo.frontend import Frontend
from frontends.tools.servers.ejabberd import Ejabberd
from frontends.tools.servers.redis import RedisServer

_ROUNDS: Final = 3


def main(*, as_json: bool, quick: bool) -> int:
    """Run the benchmark; 1 when a target is missed. Raises ServerError when its servers cannot start."""
    seconds = 0.2 if quick else 4.0
    with ExitStack() as stack:
        status = stack.enter_context(Console(stderr=True).status("starting Redis, ejabberd and a frontend"))
        ejabberd = stack.enter_context(Ejabberd())
        redis = stack.enter_context(RedisServer(options={"appendonly": "yes"}))
        stack.enter_context(Frontend(ejabberd.open_settings(redis.url)))
        status.update("measuring plain, acknowledged and assured messages, in turns")
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            found = runner.run(_measure(ejabberd, seconds))
    return show(_rows(found), as_json=as_json)


@dataclass(frozen=True, slots=True)
class LevelCost:
    """The cost of a message at a level: stanzas of its sender, and milliseconds."""

    stanzas: float
    time: float


def _rows(found: dict[str, LevelCost]) -> list[Row]:
    plain, acknowledged, assured = (found[level] for level in (PLAIN, ACKNOWLEDGED, ASSURED))
    return [
        row_at_most("qos_acknowledged_stanzas", "stanzas", acknowledged.stanzas, 2, plain.stanzas),
        row_at_most("qos_assured_stanzas", "stanzas", assured.stanzas, 4, plain.stanzas),
        row_without_target("qos_acknowledged_time", "ms", acknowledged.time, plain.time),
        row_without_target("qos_assured_time", "ms", assured.time, plain.time),
    ]


async def _measure(ejabberd: Ejabberd, seconds: float) -> dict[str, LevelCost]:
    """Measure all levels, alternating, so that noise hits them alike; the best repetition of each counts."""
    loads = {
        level: await Messages.open(ejabberd.c2s_port, ejabberd.anonymous, ejabberd.domain, level) for level in LEVELS
    }
    done = dict.fromkeys(LEVELS, 0)
    best = dict.fromkeys(LEVELS, 0.0)
    for _ in range(_ROUNDS):
        for level, load in loads.items():
            count, rate = await load.loop.rate(seconds)
            done[level] += count
            best[level] = max(best[level], rate)
    for load in loads.values():
        load.close()
    return {level: LevelCost(load.stanzas / done[level], 1000 / best[level]) for level, load in loads.items()}
