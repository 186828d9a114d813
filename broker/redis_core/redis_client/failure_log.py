"""Logs a repeated failure once: when it begins, when its reason changes and when it has recovered.

A retry twice a second would otherwise fill the log. A defect of this program has a traceback. Must not know what is tried.
"""

import structlog

from broker.model.problems import CoreUnavailable, OperationDefect

log = structlog.get_logger()


class FailureLog:
    """The failures of one operation that is retried."""

    def __init__(self, event: str) -> None:
        """Log failures as `event`."""
        self._event = event
        self.reason = ""
        """Why the last try failed; empty when it succeeded."""

    def report(self, error: Exception | str) -> None:
        """Note a failure, and log it if its reason is new."""
        reason = str(error) or type(error).__name__
        if reason != self.reason:
            if isinstance(error, str | CoreUnavailable | OperationDefect):
                log.warning(self._event, error=reason)
            else:
                log.error(self._event, error=reason, exc_info=error)
        self.reason = reason

    def note_success(self) -> None:
        """Note a success, and log it if the last try failed."""
        if self.reason:
            log.info("%s: recovered", self._event, error=self.reason)
        self.reason = ""
