"""Dramatiq over Redis: a process of eight threads, its default, and acknowledgement after the job."""

import os
import signal
import sys

import dramatiq
import jobs
from dramatiq.brokers.redis import RedisBroker

broker = RedisBroker(url=os.environ["PEERS_REDIS"])
dramatiq.set_broker(broker)


@dramatiq.actor
def work(_payload: str) -> None:
    """Do nothing."""
    jobs.end()


if sys.argv[1] == "work":
    worker = dramatiq.Worker(broker, worker_threads=8)
    worker.start()
    signal.sigwait({signal.SIGTERM})
    worker.stop()
else:
    jobs.begin()
    for _ in range(int(sys.argv[2])):
        work.send(jobs.PAYLOAD)
    jobs.published()
