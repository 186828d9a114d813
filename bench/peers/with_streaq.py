"""streaq over Redis Streams: one process with 50 coroutines, acknowledgement after the job."""

import asyncio
import os
import sys

import jobs
from streaq import Worker

worker = Worker(redis_url=os.environ["PEERS_REDIS"], concurrency=50, sync_concurrency=1)


@worker.task(ttl=0)
async def work(_payload: str) -> None:
    """Do nothing."""
    jobs.end()


async def publish() -> None:
    """Publish jobs."""
    async with worker:
        await jobs.publish(int(sys.argv[2]), lambda payload: work.enqueue(payload).start())


if sys.argv[1] == "work":
    worker.run_sync()
else:
    asyncio.run(publish())
