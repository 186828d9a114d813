"""The twin of examples/nightly.py, with Celery.

$ celery --app nightly worker --concurrency 10
$ celery --app nightly beat
"""

from celery import Celery, chord
from celery.schedules import crontab

app = Celery("nightly", broker="redis://localhost", backend="redis://localhost")
app.conf.update(
    timezone="Europe/Berlin",
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    beat_schedule={"begin": {"task": "begin", "schedule": crontab(hour=3, minute=0)}},
)
SHOPS = [f"shop {number}" for number in range(50)]


@app.task(name="count", autoretry_for=(Exception,), max_retries=4, retry_backoff=True)
def count(shop: str) -> int:
    print("counting", shop, flush=True)
    return len(shop)


@app.task(name="report", ignore_result=True)
def report(sales: list[int]) -> None:
    print(f"{len(sales)} shops sold {sum(sales)}", flush=True)


@app.task(name="begin", ignore_result=True)
def begin() -> None:
    chord((count.s(shop) for shop in SHOPS), report.s()).delay()
