"""Sent marks of one partition: how far its deliveries are received, flushed and read. Pure; must not know a clock.

A delivery is received from Redis, flushed out of the process, then read by the XMPP server. Only after that it survives this
process's death: a server that finds the connection broken drops what it has received and not read.
"""

from typing import Final

READ_SECONDS: Final = 1.0
"""Time that the XMPP server may take to read what was flushed: the stream does not confirm it."""


class SendMarks:
    """Sequence numbers up to which deliveries are received, flushed, read, and reported to Redis as sent."""

    def __init__(self) -> None:
        """Begin with nothing handed out."""
        self.received = 0
        self.sent = 0
        self.reported = 0
        self._flushed = 0
        self.look_at = float("-inf")
        """Earliest time of the next flush check, in seconds of the clock of `flushed`."""

    @property
    def unreported(self) -> bool:
        """Whether deliveries were received that are not yet reported as sent."""
        return self.received > self.reported

    def flushed(self, now: float, *, closing: bool) -> None:
        """Note that everything received has left the process, at `now` seconds of any steady clock.

        With `closing` the stream is being closed in order: the server will read all that is written.
        """
        if closing:
            self.sent = self.received
        elif now >= self.look_at:
            # What was flushed at the last check has been read by now; later deliveries may not have been.
            self.sent, self._flushed, self.look_at = self._flushed, self.received, now + READ_SECONDS

    def report(self) -> int | None:
        """Return the mark to report to Redis, None when Redis knows the latest."""
        if self.sent == self.reported:
            return None
        self.reported = self.sent
        return self.sent

    def forget_report(self) -> None:
        """Note that the last report may not have reached Redis."""
        self.reported = 0
