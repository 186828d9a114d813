"""The faults, each as a function that causes and ends it on a stage. Must not know how the outcome is judged."""

import contextlib
import json
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

import pytest
import redis

from broker.scripts.packaging import library
from frontends.tools.servers.process import Process
from tests.faults import past
from tests.faults.house import REDIS_TIMEOUT, ROOT, WATCHDOG_SECONDS, Frontend, Kind
from tests.faults.stage import Stage
from tests.waiting import PATIENCE_SECONDS

LONG: Final = 60
"""A lock time that nothing waits for: whatever comes back does so because the service saw to it."""

SHORT: Final = 4
"""A lock time for faults that only its end can heal: a silent worker reports nothing."""

OUTAGE_SECONDS: Final = 6.0
"""Longer than every time-out: of a call to Redis, of the watchdog, of a heartbeat, and of a short lock."""


def frontends_killed(stage: Stage) -> None:
    """SIGKILL, one frontend after another, sometimes two at once."""
    for _ in range(3):
        for frontend in stage.random.sample(stage.house.frontends, stage.random.choice([1, 1, 2])):
            frontend.doomed = True
            frontend.process._child.kill()
        stage.pause(0.5, 2)
    stage.heal()


def frontends_told_to_go(stage: Stage) -> None:
    """SIGTERM, one frontend after another: a rollout."""
    for frontend in stage.house.frontends:
        _replace(stage, frontend)
        stage.pause(0, 1)
    stage.heal()


def frontends_stopped_briefly(stage: Stage) -> None:
    """SIGSTOP and SIGCONT before the watchdog acts."""
    for _ in range(3):
        frontend = stage.random.choice(stage.house.frontends)
        frontend.process.pause()
        stage.pause(0.2, WATCHDOG_SECONDS / 3)
        frontend.process.resume()
        stage.pause(0.2, 1)
    stage.heal()


def frontend_stopped_for_good(stage: Stage) -> None:
    """SIGSTOP without an end: the watchdog ends it."""
    frontend = stage.random.choice(stage.house.frontends)
    frontend.doomed = True
    frontend.process.pause()
    stage.until(partial(_undisturbed, frontend, frontend.process), PATIENCE_SECONDS, "the watchdog ends nothing")
    stage.heal()


def workers_killed(stage: Stage) -> None:
    """SIGKILL of workers: the XMPP server notices and sends unavailable presence."""
    for _ in range(3):
        worker = stage.random.choice(stage.workers)
        with stage.severing(worker):
            worker.kill()
        stage.pause(0, 0.5)
        worker.start()
        stage.pause(0, 1)
    stage.heal()


def worker_falls_silent(stage: Stage) -> None:
    """Keep the connection and send nothing for longer than a lock; nobody is told."""
    worker = stage.random.choice(stage.workers)
    worker.process.pause()
    stage.pause(SHORT + 1, SHORT + 2)
    worker.process.resume()
    stage.heal()


def redis_killed_once(stage: Stage) -> None:
    """Redis dies and is back at once."""
    _restart_redis(stage)
    stage.heal()


def redis_killed_often(stage: Stage) -> None:
    """Redis dies five times within three seconds."""
    for _ in range(5):
        _restart_redis(stage)
        stage.pause(0, 0.4)
    stage.heal()


def redis_away_for_long(stage: Stage) -> None:
    """Redis is away for longer than every time-out."""
    stage.house.redis.kill()
    stage.rest(OUTAGE_SECONDS)
    stage.house.redis.start()
    stage.heal()


def ejabberd_restarted(stage: Stage) -> None:
    """Restart the XMPP server, and every connection with it."""
    with stage.severing():
        stage.house.ejabberd.stop()
    stage.pause(0, 2)
    stage.house.ejabberd.start()
    stage.heal()


def network_slow(stage: Stage) -> None:
    """Delay Redis's replies, at first a little, then too long."""
    for seconds in (REDIS_TIMEOUT / 10, REDIS_TIMEOUT * 1.5):
        stage.house.network.delay_seconds = seconds
        stage.pause(1, 2)
    stage.house.network.delay_seconds = 0
    stage.heal()


def network_cut(stage: Stage) -> None:
    """Break connections in the middle of a reply."""
    network = stage.house.network
    for _ in range(10):
        network.cutting = True
        stage.pause(0, 0.4)
    network.cutting = True
    stage.until(lambda: ["a reply"] if network.cutting else [], PATIENCE_SECONDS, "no reply was cut")
    stage.heal()


def network_swallows_replies(stage: Stage) -> None:
    """Scripts run, and their replies never come."""
    network = stage.house.network
    network.answered.clear()
    for _ in range(3):
        network.silent = True
        stage.pause(0.1, 0.6)
        network.silent = False
        stage.pause(0, 0.5)
    network.silent = True
    stage.until(lambda: [] if network.answered.is_set() else ["a reply"], PATIENCE_SECONDS, "no reply was lost")
    network.silent = False
    stage.heal()


def redis_full(stage: Stage) -> None:
    """Redis is at `maxmemory` for a while."""
    stage.house.command("CONFIG", "SET", "maxmemory", "1")
    stage.pause(1, 3)
    with pytest.raises(redis.OutOfMemoryError):
        stage.house.command("SET", "more", "x")
    stage.house.command("CONFIG", "SET", "maxmemory", "0")
    stage.heal()


def functions_lost(stage: Stage) -> None:
    """Redis forgets all functions, or is told to drop the library, again and again."""
    name = library(ROOT / "lua").name
    for number in range(10):
        if number % 2 and stage.house.command("FUNCTION", "LIST", "LIBRARYNAME", name):
            with contextlib.suppress(redis.ResponseError):
                stage.house.command("FUNCTION", "DELETE", name)
        else:
            stage.house.command("FUNCTION", "FLUSH")
        stage.pause(0, 0.2)
    stage.heal()


def clients_cut_off(stage: Stage) -> None:
    """Redis hangs up on its clients, again and again."""
    for _ in range(10):
        stage.house.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        stage.pause(0, 0.4)
    stage.heal()


def clocks_astray(stage: Stage) -> None:
    """One frontend's clock is an hour ahead, another's an hour behind: only Redis's clock counts."""
    library = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
    astray = stage.random.sample(stage.house.frontends, 2)
    for frontend, offset in zip(astray, ("+1h", "-1h"), strict=True):
        # The monotonic clock stays: setting a machine's clock does not move it.
        frontend.environment = {
            "LD_PRELOAD": str(library),
            "FAKETIME": offset,
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
    _replace(stage, *astray)
    stage.pause(2, 4)
    assert [round(_clock_of(frontend) - time.time(), -2) for frontend in astray] == [3600, -3600]
    for frontend in astray:
        frontend.environment = {}
    _replace(stage, *astray)
    stage.heal()


def rolling_upgrade(stage: Stage) -> None:
    """Frontends with two editions of the scripts serve side by side, and a rollback is possible."""
    first, second = stage.random.sample(stage.house.frontends, 2)
    tree = _second_edition(stage)
    for frontend in (first, second):
        frontend.tree = tree
    _replace(stage, first, second)
    stage.pause(1, 2)
    names = [library(folder / "lua").name for folder in (ROOT, tree)]
    assert names[0] != names[1]
    assert all(stage.house.command("FUNCTION", "LIST", "LIBRARYNAME", name) for name in names)
    for frontend in (first, second):
        frontend.tree = ROOT
        _replace(stage, frontend)
    stage.heal()


def record_loses_a_second(stage: Stage) -> None:
    """Let Redis lose the last change of the queue's record, but not the partitions, which know of it."""
    records = [past.of_record(stage.house.redis, queue) for queue in stage.queues]
    stage.retitle("Jobs")
    stage.pause(0.8, 1.2)
    for each in records:
        each.lose()
    stage.heal()


def partitions_lose_a_second(stage: Stage) -> None:
    """Let Redis lose the last second of the queue's partitions: items, locks, tokens and ends of locks, but no record."""
    with stage.forgetting():
        partitions = [past.of_partitions(stage.house.redis, queue) for queue in stage.queues]
        stage.pause(0.8, 1.2)
        for each in partitions:
            each.lose()
    stage.heal()


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault, the lock time of its queue, and the kind of Redis."""

    act: Callable[[Stage], None]
    lock_seconds: int
    kind: Kind = Kind.ONE


STRIKES: Final = (
    Strike(frontends_killed, LONG),
    Strike(frontends_told_to_go, LONG),
    Strike(frontends_stopped_briefly, LONG),
    Strike(frontend_stopped_for_good, LONG),
    Strike(workers_killed, LONG),
    Strike(worker_falls_silent, SHORT),
    Strike(redis_killed_once, LONG),
    Strike(redis_killed_often, LONG),
    Strike(redis_away_for_long, LONG),
    # Nobody is told of the workers' locks: no XMPP server is there to report that they are gone.
    Strike(ejabberd_restarted, SHORT),
    Strike(network_slow, LONG),
    Strike(network_cut, LONG),
    Strike(network_swallows_replies, LONG),
    Strike(redis_full, LONG),
    Strike(functions_lost, LONG),
    Strike(clients_cut_off, LONG),
    Strike(clocks_astray, LONG),
    Strike(rolling_upgrade, LONG),
    Strike(record_loses_a_second, LONG),
    # Items acknowledged in that second are locked again, unknown to their workers: the lock's end heals that.
    Strike(partitions_lose_a_second, SHORT),
)


def _undisturbed(frontend: Frontend, process: Process) -> list[str]:
    """Return why the wait goes on: the frontend is still this process."""
    return ["a frontend that is stopped"] if frontend.process is process else []


def _restart_redis(stage: Stage) -> None:
    stage.house.redis.kill()
    stage.house.redis.start()


def _replace(stage: Stage, *frontends: Frontend) -> None:
    """Stop frontends in order and let the supervisor start the changed ones; return when they serve."""
    for frontend in frontends:
        frontend.doomed = True
        frontend.process._child.send_signal(signal.SIGTERM)
    for frontend in frontends:
        frontend.process._child.wait()
    stage.until(stage.house.ailing, 20, "a new frontend does not serve")


def _clock_of(frontend: Frontend) -> float:
    """Read a frontend's clock from its log, which reported within the last minute that it serves."""
    last = json.loads(frontend.log.splitlines()[-1])
    return datetime.fromisoformat(last["timestamp"]).timestamp()


def _second_edition(stage: Stage) -> Path:
    """Copy the program, with another budget for each call: so the library has another name in Redis."""
    tree = stage.directory / "second"
    if tree.exists():
        return tree
    # With what was compiled: the copies have the same times.
    for name in ("broker", "frontends", "lua"):
        shutil.copytree(ROOT / name, tree / name)
    # This file marks a tree as the project's (broker.scripts.location).
    shutil.copy(ROOT / "pyproject.toml", tree)
    budget = tree / "lua" / "lib" / "budget.lua"
    budget.write_text(budget.read_text().replace("WORK = 1000", "WORK = 900"))
    return tree
