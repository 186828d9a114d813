"""Webhooks: each customer's server gets ten events a second and five at once, and a customer with many makes nobody wait.

What fails is tried again after 1, 3, 9 … seconds, ten times in all; what a server refuses (4xx) is a dead letter at once.

$ pip install httpx
$ STANZAQ_PASSWORD=secret stanzaq worker webhooks:worker
$ STANZAQ_PASSWORD=secret python webhooks.py anna http://127.0.0.1:8000/hook first second third

The twin, with Dramatiq, does not promise as much. Its queue is worked in the order of sending, so one customer's million events
delay all others. An event over its limit can only fail, which uses up its retries, or be sent again, which forgets how many it
has had. The share of a killed worker is free again when its customer has had no event for a minute.
"""

import sys
from collections.abc import AsyncIterator
from typing import Any

import httpx

from stanzaq import Job, Queue, Retry, Worker, sync

AT: dict[str, Any] = {"service": "queue.localhost", "address": "127.0.0.1:5222", "tls": "disabled"}
worker = Worker("xmpp://worker@localhost", concurrency=100, create="if-missing", **AT)
webhooks = Queue("webhooks", fair="key", rate_by_key="10/s", max_in_flight_by_key=5)


class RefusedError(Exception):
    pass


@worker.lifespan
async def connect() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=10) as client:
        yield client


@worker.task(webhooks, retry=Retry(attempts=10, backoff=3, limit="6h"), never_retry=(RefusedError,), timeout="30s")
async def deliver(job: Job[dict[str, str]]) -> None:
    event, sign = job.payload["event"], {"Idempotency-Key": job.id}
    answer = await job.state.post(job.payload["url"], json=event, headers=sign)
    if answer.is_client_error and answer.status_code != 429:
        raise RefusedError(f"{job.key}: {answer.status_code} {answer.reason_phrase}")
    answer.raise_for_status()


if __name__ == "__main__":
    customer, url, *events = sys.argv[1:]
    with sync.Publisher("xmpp://worker@localhost", **AT) as publisher:
        sync.Task(deliver).on(publisher).send_many(({"url": url, "event": each} for each in events), key=customer)
