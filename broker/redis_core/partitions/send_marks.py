"""Sent marks of one partition: how far a frontend's deliveries have come on their way out. Pure; must not know a clock.

A delivery is received from Redis, then flushed out of the process, then read by the XMPP server. Only what is read is
safe from this process's death: a server that finds the connection broken drops what it has received and not read.
"""

from typing import Final

READ_SECONDS: Final = 1.0
"""For so long the XMPP server may take to read what was flushed to it: nothing on the stream tells when it has."""


class SendMarks:
    """Sequences up to which deliveries are received, flushed, read, and told to Redis as sent."""

    def __init__(self) -> None:
        """Begin with nothing handed out."""
        self.received = 0
        self.sent = 0
        self.told = 0
        self._flushed = 0
        self.look_at = float("-inf")
        """When it is next worth while to look what is flushed, in seconds of the clock of `flushed`."""

    @property
    def owed(self) -> bool:
        """Deliveries have been received that Redis has not been told are sent."""
        return self.received > self.told

    def flushed(self, now: float, *, closing: bool) -> None:
        """Take note that all which was received has left the process, at `now` seconds of any steady clock.

        With `closing` the stream is about to be closed in order: all that is written will be read.
        """
        if closing:
            self.sent = self.received
        elif now >= self.look_at:
            # What had left at the last look has been read by now; what has left since may not have been.
            self.sent, self._flushed, self.look_at = self._flushed, self.received, now + READ_SECONDS

    def tell(self) -> int | None:
        """Give the mark that Redis does not know yet, None when it knows the latest."""
        if self.sent == self.told:
            return None
        self.told = self.sent
        return self.sent

    def untold(self) -> None:
        """Take note that Redis may not have heard what it was told last."""
        self.told = 0
