"""Workers and publishers for a stanzaq queue: `Worker` runs functions for items, `Publisher` sends items.

The package needs an account at an XMPP server, or at the service's HTTP frontend, and nothing of the service itself. It must not
import `broker` or `frontends`. The worker is imported where a program has one: those that only publish begin sooner.
"""

from typing import TYPE_CHECKING

from stanzaq.codec import Codec
from stanzaq.errors import Fenced, StanzaqError
from stanzaq.job import Job
from stanzaq.publisher.flow import Flow, chain, group
from stanzaq.publisher.publisher import Publisher, Reply
from stanzaq.publisher.task import Task
from stanzaq.queue import Queue
from stanzaq.retry import Reject, Retry
from stanzaq.transport.interface import Schedule

if TYPE_CHECKING:
    from stanzaq.worker.hooks import Run as CallNext
    from stanzaq.worker.router import Router
    from stanzaq.worker.worker import Worker
else:

    def __getattr__(name: str) -> object:
        """Import what a worker needs; raises AttributeError for other names."""
        if name not in {"CallNext", "Router", "Worker"}:
            msg = f"module 'stanzaq' has no attribute {name!r}"
            raise AttributeError(msg)
        from stanzaq.worker import hooks, router, worker  # noqa: PLC0415

        return {"CallNext": hooks.Run, "Router": router.Router, "Worker": worker.Worker}[name]


__all__ = [
    "CallNext",
    "Codec",
    "Fenced",
    "Flow",
    "Job",
    "Publisher",
    "Queue",
    "Reject",
    "Reply",
    "Retry",
    "Router",
    "Schedule",
    "StanzaqError",
    "Task",
    "Worker",
    "chain",
    "group",
]
