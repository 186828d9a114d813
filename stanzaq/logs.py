"""Log records of jobs: which job each is about, as attributes and at the end of a line. Must not know how jobs run."""

import logging
from contextvars import ContextVar
from typing import Any, Final

from stanzaq.job import Job

current: Final[ContextVar[dict[str, str | int] | None]] = ContextVar("stanzaq_job", default=None)
"""The fields of the job whose handler or middleware runs; not known in another process.

Not the job itself: tasks and connections that a handler opens keep its context, and a job's own task would refer to it.
"""

_SIGNING_IN: Final = "slixmpp.features.feature_mechanisms"

_FIELDS: Final = ("node", "item", "attempt", "token")


def fields(job: Job[Any]) -> dict[str, str | int]:
    """Return what records of a job say about it."""
    return {"node": job.node, "item": job.id, "attempt": job.attempt, "token": job.token}


class JobFields(logging.Filter):
    """Adds `node`, `item`, `attempt` and `token` to all records of a job; a filter for handlers of `logging`."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add them, and let the record pass."""
        known = current.get()
        if known is not None and not hasattr(record, "token"):
            vars(record).update(known)
        return True


def show(level: int) -> None:
    """Log to stderr from this level on, unless logging is already set up."""
    shown = logging.StreamHandler()
    shown.addFilter(JobFields())
    shown.addFilter(_drop_told)
    shown.setFormatter(Lines("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=level, handlers=[shown])


def _drop_told(record: logging.LogRecord) -> bool:
    """Leave out what slixmpp tells of each connection and of signing in, which this package tells in its own words; a filter."""
    lowest = logging.CRITICAL if record.name.startswith(_SIGNING_IN) else logging.WARNING
    return record.levelno >= lowest or not record.name.startswith("slixmpp")


class Lines(logging.Formatter):
    """Lines for people, which end with the fields of the job if there is one."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (logging's name)
        """Write the line, without a traceback."""
        fields = "".join(f" {name}={getattr(record, name)}" for name in _FIELDS if hasattr(record, name))
        return super().formatMessage(record) + fields
