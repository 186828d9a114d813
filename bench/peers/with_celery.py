"""Celery over Redis: two processes, acknowledgement after the job, no results."""

import os
import sys

import jobs
from celery import Celery

app = Celery("peers", broker=os.environ["PEERS_REDIS"])
app.conf.update(task_acks_late=True, task_ignore_result=True, worker_prefetch_multiplier=25)


@app.task(name="work")
def work(_payload: str) -> None:
    """Do nothing."""
    jobs.end()


if sys.argv[1] == "work":
    app.worker_main(["worker", "--concurrency=2", "--loglevel=ERROR", "--without-gossip", "--without-mingle"])
else:
    jobs.begin()
    for _ in range(int(sys.argv[2])):
        work.delay(jobs.PAYLOAD)
    jobs.published()
