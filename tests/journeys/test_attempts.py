"""What counts as an attempt, and when a job has ended, by the library over both transports."""

import asyncio
import functools
from typing import Any

import pytest

from stanzaq import Job, Publisher, Retry, StanzaqError, Worker
from tests.journeys.conftest import Account, Join
from tests.waiting import PATIENCE_SECONDS


async def test_a_job_ends_with_its_work(user: Account, join: Join) -> None:
    """Issue 48.1: work that a partial hides has its lock until it ends; a result that cannot be sent fails a job with a reply."""
    owner, go_on = await join(), asyncio.Event()
    node = await owner.queue({"pubsub#access_model": "open"})
    worker = Worker(**user, grace=0)

    async def work(job: Job[str], _factor: int) -> Any:  # noqa: ANN401
        await go_on.wait()
        return object() if job.payload == "unsendable" else job.payload

    @functools.partial
    def hidden(job: Job[str]) -> Any:  # noqa: ANN401
        return work(job, 2)

    worker.task(node, retry=Retry(attempts=1))(hidden)
    serving = asyncio.create_task(worker.serve())
    async with Publisher(**user) as publisher:
        fine = await publisher.publish(node, "fine", reply=True)
        with pytest.raises(TimeoutError):
            await fine.result(timeout=0.5)
        assert await owner.browse(node)
        go_on.set()
        assert await fine.result(timeout=PATIENCE_SECONDS) == "fine"
        unsendable = await publisher.publish(node, "unsendable", reply=True)
        with pytest.raises(StanzaqError, match="the result cannot be sent"):
            await unsendable.result(timeout=PATIENCE_SECONDS)
        # Nobody asks for this one.
        await publisher.publish(node, "unsendable")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await owner.browse(node):  # noqa: ASYNC110  (nobody is told)
                await asyncio.sleep(0.02)
    worker.stop()
    await serving


async def test_stops_and_deaths(user: Account, join: Join) -> None:
    """Issue 48.3 and 4: three stops cost what waits nothing; a policy counts also what ended with its worker."""
    owner, seen = await join(), list[tuple[str, int]]()
    node = await owner.queue({"pubsub#access_model": "open", "stanzaq#max_deliveries": "9"})
    began = asyncio.Event()

    async def work(job: Job[str]) -> None:
        seen.append((job.payload, job.attempt))
        began.set()
        if job.payload == "long":
            await asyncio.Event().wait()

    async with Publisher(**user) as publisher:
        for payload in ("long", "short", "short"):
            await publisher.publish(node, payload)
    for how in ("stop", "stop", "stop", "die", "last"):
        worker = Worker(**user, grace=0, prefetch=5)
        worker.task(node, retry=Retry(attempts=4, delay=0))(work)
        began.clear()
        serving = asyncio.create_task(worker.serve())
        async with asyncio.timeout(PATIENCE_SECONDS):
            await began.wait()
            if how == "last":
                while await owner.browse(node):  # noqa: ASYNC110  (nobody is told)
                    await asyncio.sleep(0.02)
        if how == "die":
            serving.cancel()
        worker.stop()
        await asyncio.wait({serving}, timeout=PATIENCE_SECONDS)
    assert seen == [("long", 1), ("long", 2), ("long", 3), ("long", 4), ("short", 1), ("short", 1)]
