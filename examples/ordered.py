r"""Order by key: the orders of one customer are worked one after another, those of two customers at the same time.

$ curl --user publisher@localhost:secret --request PUT --header 'Content-Type: application/json' \
    --data '{"options": {"stanzaq#ordered": true}}' http://127.0.0.1:8080/queues/orders
$ curl --user publisher@localhost:secret --request PATCH --header 'Content-Type: application/json' \
    --data '{"affiliations": {"worker@localhost": "member"}}' http://127.0.0.1:8080/affiliations/orders
$ STANZAQ_PASSWORD=secret python ordered.py
"""

import asyncio
from typing import Any

from stanzaq import Job, Publisher, Worker

AT: dict[str, Any] = {"service": "queue.localhost", "address": "127.0.0.1:5222", "tls": "disabled"}
ORDERS = 3
worker = Worker("xmpp://worker@localhost", concurrency=10, **AT)
booked: list[str] = []


@worker.task("orders")
async def book(job: Job[int]) -> None:
    # Without the order the last one, which takes the least time, would be first.
    await asyncio.sleep(0.1 * (ORDERS - job.payload))
    print(job.key, job.payload, flush=True)
    booked.append(job.id)
    if len(booked) == 2 * ORDERS:
        worker.stop()


async def main() -> None:
    async with Publisher("xmpp://publisher@localhost", **AT) as publisher:
        for number in range(ORDERS):
            for customer in ("anna", "bert"):
                await publisher.publish("orders", number, key=customer)
    await worker.serve()


asyncio.run(main())
