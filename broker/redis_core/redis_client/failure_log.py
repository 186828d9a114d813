"""A failure that comes again and again, logged once: when it begins, when it changes, when it is over.

What is tried twice a second would else fill the log just when somebody needs it. Must not know what is tried.
"""

import structlog

log = structlog.get_logger()


class FailureLog:
    """One thing that is tried again and again."""

    def __init__(self, event: str) -> None:
        """Tell failures as `event`."""
        self._event = event
        self.reason = ""
        """Why it failed the last time; empty when it did not."""

    def report(self, error: Exception | str) -> None:
        """Note that it failed, and tell that unless it is known."""
        reason = str(error)
        if reason != self.reason:
            log.warning(self._event, error=reason)
        self.reason = reason

    def recovered(self) -> None:
        """Note that it succeeded."""
        if self.reason:
            log.info("%s: recovered", self._event, error=self.reason)
        self.reason = ""
