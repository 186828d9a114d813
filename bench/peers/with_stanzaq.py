"""stanzaq's library over XMPP or HTTP: one process with 50 coroutines, acknowledgement after the job."""

import asyncio
import json
import os
import sys

import jobs

from stanzaq import Job, Publisher, Worker

ACCOUNT = json.loads(os.environ["PEERS_ACCOUNT"])
QUEUE = os.environ["PEERS_QUEUE"]


async def publish() -> None:
    """Publish jobs."""
    async with Publisher(**ACCOUNT) as publisher:
        await jobs.publish(int(sys.argv[2]), lambda payload: publisher.publish(QUEUE, payload))


def work() -> None:
    """Do nothing with each job."""
    worker = Worker(**ACCOUNT, concurrency=50)

    @worker.task(QUEUE)
    async def handle(_job: Job[str]) -> None:
        jobs.end()

    worker.run()


if sys.argv[1] == "work":
    work()
else:
    asyncio.run(publish())
