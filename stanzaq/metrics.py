"""Metrics of a worker for Prometheus, in the default registry. Needs prometheus-client."""

import asyncio
import time
from typing import Any, Final

from prometheus_client import Counter, Gauge, Histogram

from stanzaq.job import Job
from stanzaq.worker.hooks import Run

_JOBS: Final = Counter(
    "stanzaq_worker_jobs", "Jobs that have ended: done, retried, dead or cancelled", ["node", "outcome"]
)
_SECONDS: Final = Histogram(
    "stanzaq_worker_job_seconds",
    "Duration of jobs",
    ["node"],
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1_000, 3_000),
)
_RUNNING: Final = Gauge("stanzaq_worker_jobs_running", "Jobs that run now", ["node"])


async def measured(job: Job[Any], call_next: Run) -> None:
    """Measure a job; a middleware."""
    began, outcome = time.monotonic(), "done"
    with _RUNNING.labels(job.node).track_inprogress():
        try:
            await call_next(job)
        except asyncio.CancelledError:
            # Its lock was lost, or the worker stops.
            outcome = "cancelled"
            raise
        except BaseException as error:
            gives_up = not job._kinds.retries(error) or 0 < job.max_attempts <= job.attempt  # noqa: SLF001  (the same package's)
            outcome = "dead" if gives_up else "retried"
            raise
        finally:
            _JOBS.labels(job.node, outcome).inc()
            _SECONDS.labels(job.node).observe(time.monotonic() - began)
