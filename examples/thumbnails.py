"""Thumbnails: each picture is made small in a process, which is killed after 30 seconds; the picture is tried three times.

Whatever ends the process, its picture is tried again, and no other is lost. After 100 pictures a new process takes its place.

$ pip install pillow
$ STANZAQ_PASSWORD=secret stanzaq worker thumbnails:worker
$ STANZAQ_PASSWORD=secret python thumbnails.py cat.png dog.png

The twin, with Celery, does not promise as much. Celery counts no attempt whose process was killed: a picture that kills its
process, e.g. for its memory, is tried for ever, and one that is killed by its hard limit never again (or for ever as well, with
`task_acks_on_timeout=False`). Only the soft limit leads to a counted retry, and a library in C may not notice it. What a lost
machine had begun stays away until the visibility timeout is over, by default an hour.
"""

import sys
from pathlib import Path
from typing import Any

from PIL import Image

from stanzaq import Job, Retry, Worker, sync

AT: dict[str, Any] = {"service": "queue.localhost", "address": "127.0.0.1:5222", "tls": "disabled"}
worker = Worker("xmpp://worker@localhost", concurrency=4, create="if-missing", **AT)


@worker.task("thumbnails", run_in="process", timeout="30s", max_jobs_per_process=100, retry=Retry(attempts=3))
def thumbnail(job: Job[str]) -> None:
    with Image.open(job.payload) as picture:
        picture.thumbnail((128, 128))
        picture.save(Path(job.payload).with_suffix(".small.png"))


if __name__ == "__main__":
    with sync.Publisher("xmpp://worker@localhost", **AT) as publisher:
        sync.Task(thumbnail).on(publisher).send_many(sys.argv[1:])
