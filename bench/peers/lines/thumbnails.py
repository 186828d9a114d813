"""The twin of examples/thumbnails.py, with Celery.

$ celery --app thumbnails worker --concurrency 4
$ python thumbnails.py cat.png dog.png
"""

import sys
from pathlib import Path

from celery import Celery
from celery.exceptions import SoftTimeLimitExceeded
from PIL import Image

app = Celery("thumbnails", broker="redis://localhost")
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=1,
    worker_max_tasks_per_child=100,
)


@app.task(
    name="thumbnail",
    soft_time_limit=30,
    time_limit=40,
    autoretry_for=(OSError, SoftTimeLimitExceeded),
    max_retries=2,
    retry_backoff=True,
)
def thumbnail(path: str) -> None:
    with Image.open(path) as picture:
        picture.thumbnail((128, 128))
        picture.save(Path(path).with_suffix(".small.png"))


if __name__ == "__main__":
    for path in sys.argv[1:]:
        thumbnail.delay(path)
