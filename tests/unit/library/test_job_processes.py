"""Processes of jobs: they are killed when a job's time is over, and replaced after so many jobs; no other job is harmed."""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from stanzaq import Job, Retry, Worker
from stanzaq.retry import Release
from stanzaq.testing import TestBroker
from tests.unit.library.test_runs import Service, delivery, runs
from tests.waiting import PATIENCE_SECONDS


def tell(job: Job[str]) -> int:
    """Return the process's id, if need be after a while, or never."""
    if job.payload == "soon":
        time.sleep(0.3)
    if job.payload == "raises":
        # It has not taken too long, whatever it says.
        raise TimeoutError(os.getpid())
    while job.payload == "never":
        time.sleep(3600)
    return os.getpid()


def _ends(service: Service) -> dict[str, Any]:
    return {item: told for item, told in service.told if item not in {"begun", "renewed"}}


async def _until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def _job_processes() -> set[int]:
    """Return the ids of the living processes of this one that run jobs; the tracker of resources is no such process."""
    found = set()
    for each in psutil.Process().children():
        # It may end meanwhile.
        with contextlib.suppress(psutil.Error):
            found |= {each.pid} if "spawn_main" in " ".join(each.cmdline()) else set()
    return found


async def test_killed_after_its_time() -> None:
    """A process whose job takes too long is dead when its attempt has failed, and its place is free; others go on."""
    service, before = Service(), _job_processes()
    played = runs(service, tell, concurrency=2, payload=str, run_in="process", timeout=5.0)
    try:
        for item in ("never", "soon"):
            played.deliver(delivery(item, body=f'"{item}"'.encode()))
        await _until(lambda: len(_ends(service)) == 2)
        assert _ends(service)["never"] == Release("TimeoutError: not done in 5 s", 2.0)
        (soon,) = _job_processes() - before
        assert _ends(service)["soon"].body == str(soon).encode()
        # Both places are free.
        for item in ("next", "last"):
            played.deliver(delivery(item, body=b'"soon"'))
        await _until(lambda: len(_ends(service)) == 4)
        pids = {_ends(service)[item].body for item in ("next", "last")}
        assert len(pids) == 2 and str(soon).encode() in pids
    finally:
        played.close()
    await _until(lambda: _job_processes() <= before)


async def test_a_handler_that_raises_timeouts() -> None:
    """A TimeoutError of the handler's own costs no process."""
    service, before = Service(), _job_processes()
    played = runs(service, tell, concurrency=1, payload=str, run_in="process", timeout=60)
    try:
        for count, item in enumerate(("raises", "fine"), 1):
            played.deliver(delivery(item, body=f'"{item}"'.encode()))
            await _until(lambda: len(_ends(service)) == count)  # noqa: B023
        (pid,) = _job_processes() - before
        assert _ends(service)["raises"].reason == f"TimeoutError: {pid}"
        assert _ends(service)["fine"].body == str(pid).encode()
    finally:
        played.close()


async def test_replaced() -> None:
    """A process ends after so many jobs of a task, the next one begins in a new one, and all are done once."""
    made = Worker("xmpp://worker@example.org", password="x", prefetch=8)
    made.task("jobs", run_in="process", max_jobs_per_process=2)(tell)
    made.task("others", run_in="process")(tell)
    async with TestBroker(made) as broker:
        replies = [await broker.publish("jobs", "fine", reply=True) for _ in range(3)]
        others = [await broker.publish("others", "fine", reply=True)]
        await broker.drain()
        pids = [await each.result(timeout="30s") for each in replies]
        assert all([await each.result(timeout="30s") for each in others])
        assert await broker.dead("jobs") == []
    counts = sorted(pids.count(pid) for pid in set(pids))
    assert counts == [1, 2]


async def test_replaced_after_each() -> None:
    """Jobs that fail count as well."""
    made = Worker("xmpp://worker@example.org", password="x")
    made.task("jobs", retry=Retry(1), run_in="process", max_jobs_per_process=1)(tell)
    async with TestBroker(made) as broker:
        for _ in range(2):
            await broker.publish("jobs", "raises")
        await broker.drain()
        letters = await broker.dead("jobs")
    assert len({letter.reason for letter in letters}) == 2


def _thread(_job: Job[Any]) -> None:
    """Do nothing."""


@pytest.mark.parametrize(
    ("kind", "more", "said"),
    [
        (TypeError, {"max_jobs_per_process": 3}, "max_jobs_per_process=3 for _thread: write run_in='process' as well"),
        (
            ValueError,
            {"max_jobs_per_process": 0},
            "max_jobs_per_process=0 for _thread: a process runs at least one job",
        ),
        (TypeError, {"max_jobs_per_process": "9"}, "max_jobs_per_process='9' for _thread: write a number of jobs"),
        (TypeError, {"max_jobs_per_process": True}, "max_jobs_per_process=True for _thread: write a number of jobs"),
        (TypeError, {"max_jobs_per_process": 1.5}, r"max_jobs_per_process=1.5 for _thread: write a number of jobs"),
    ],
)
def test_refused(kind: type[Exception], more: dict[str, Any], said: str) -> None:
    """A number that makes no sense is refused when the handler is registered."""
    made = Worker("xmpp://worker@example.org", password="x")
    run_in: Any = None if said.endswith("as well") else "process"
    with pytest.raises(kind, match=said) as refused:
        made.task("jobs", run_in=run_in, **more)(_thread)
    assert "\n" not in str(refused.value)
