"""A nightly flow: at three in the morning in Berlin the sales of 50 shops are counted beside one another, and then summed.

The service publishes the first item of the night, so no other program must run at three. All ids follow from that item's: if
`begin` is run again, because its worker died, this is the same flow, and not a second one.

$ STANZAQ_PASSWORD=secret python nightly.py

The twin, with Celery, does not promise as much. Nothing begins without beat, and two of them begin everything twice. If the
worker dies in `begin`, the chord is sent again as another one, and the night may have two reports. A chord needs a result
backend as well, and what that loses is not summed.
"""

from typing import Any

from stanzaq import Job, Retry, Worker, chain, group

AT: dict[str, Any] = {"service": "queue.localhost", "address": "127.0.0.1:5222", "tls": "disabled"}
worker = Worker("xmpp://worker@localhost", concurrency=10, create="if-missing", **AT)
SHOPS = [f"shop {number}" for number in range(50)]


@worker.task("sales", retry=Retry(attempts=5))
async def count(job: Job[str]) -> int:
    print("counting", job.payload, flush=True)
    return len(job.payload)


@worker.task("totals")
async def report(job: Job[list[int]]) -> None:
    print(f"{len(job.payload)} shops sold {sum(job.payload)}", flush=True)


@worker.schedule(cron="0 3 * * *", zone="Europe/Berlin")
@worker.task("nights")
async def begin(job: Job[None]) -> None:
    await chain(group(*(count.item(shop, id=f"{job.id} {shop}") for shop in SHOPS)), report).send()


worker.run()
