"""Retries and dead letters: a mail that is sent at the second attempt, and one that is given up, whose reason is printed.

$ curl --user publisher@localhost:secret --request PUT http://127.0.0.1:8080/queues/mails
$ STANZAQ_PASSWORD=secret python examples/retries.py
"""

import asyncio
from typing import Any

from stanzaq import Job, Publisher, Reject, Retry, Worker

AT: dict[str, Any] = {"service": "queue.localhost", "address": "127.0.0.1:5222", "tls": "disabled"}
# The owner of `mails` creates the node of its dead letters, so that it is theirs.
worker = Worker("xmpp://publisher@localhost", create="if-missing", **AT)
ended: set[str] = set()


@worker.task("mails", retry=Retry(attempts=3, delay="1s"), timeout="10s")
async def send(job: Job[dict[str, str]]) -> None:
    if "@" not in job.payload["to"]:
        raise Reject(f"{job.payload['to']} is no address")
    if job.attempt == 1:
        raise ConnectionError("the mail server is busy")
    print(f"sent to {job.payload['to']} at attempt {job.attempt}", flush=True)
    end(job.id)


@worker.task("mails/dead")
async def given_up(job: Job[dict[str, str]]) -> None:
    print(f"given up: {job.headers['stanzaq-dead-reason']}", flush=True)
    end(job.headers["stanzaq-dead-item"])


def end(item: str) -> None:
    ended.add(item)
    if len(ended) == 2:
        worker.stop()


async def main() -> None:
    async with Publisher("xmpp://publisher@localhost", **AT) as publisher:
        await publisher.publish("mails", {"to": "anna@example.org"})
        await publisher.publish("mails", {"to": "nobody"})
    await worker.serve()


asyncio.run(main())
