"""Traces of OpenTelemetry: a job continues the trace in which its item was published. Needs opentelemetry-api.

Must not know payloads: no attribute of a span has any of it.
"""

from typing import Any, Final

from opentelemetry import propagate, trace

from stanzaq.job import Job
from stanzaq.worker.hooks import Run

_TRACER: Final = trace.get_tracer("stanzaq")


async def traced(job: Job[Any], call_next: Run) -> None:
    """Run a job as a span, whose parent is named by the item's headers; a middleware."""
    attributes: dict[str, str | int] = {
        "messaging.system": "stanzaq",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": job.node,
        "messaging.message.id": job.id,
        "stanzaq.attempt": job.attempt,
    }
    parent, kind = propagate.extract(job.headers), trace.SpanKind.CONSUMER
    with _TRACER.start_as_current_span(f"process {job.node}", parent, kind, attributes):
        await call_next(job)
