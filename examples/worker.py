"""A worker in ten lines. It works on ten items at once, retries what fails, and ends in order at Ctrl-C.

$ STANZAQ_PASSWORD=secret python worker.py
"""

from stanzaq import Job, Retry, Worker

worker = Worker(
    "xmpp://worker@localhost", service="queue.localhost", address="127.0.0.1:5222", tls="disabled", concurrency=10
)


@worker.task("jobs", retry=Retry(attempts=5, delay="10s"), timeout="5m")
async def thumbnail(job: Job[dict[str, str]]) -> None:
    print("working on", job.payload["file"], flush=True)


worker.run()
