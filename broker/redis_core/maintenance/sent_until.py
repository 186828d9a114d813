"""Until when all that was handed to this frontend is surely sent: its heartbeats say so. Pure; must not know a clock.

An operation hands a delivery to a frontend, which receives it, writes it out of the process, and then the XMPP server reads it.
Only after that it survives this process's death: a server that finds the connection broken drops what it has not read.
"""

from collections import deque
from typing import Final

READ_SECONDS: Final = 1.0
"""Time that the XMPP server may take to read what was written: the stream does not confirm it."""


class SentUntil:
    """The time before which everything that was handed to this frontend is sent; all times are seconds of one steady clock."""

    def __init__(self, now: float) -> None:
        """Begin with nothing handed out before `now`."""
        self.time = now
        self._written: deque[tuple[float, float]] = deque()
        self._broken = False

    def look(self, now: float, received: float, *, written: bool) -> float:
        """Note whether all that was received has left the process, and return the time until which all is sent.

        Everything that was handed out before the time `received` has come here.
        """
        if written and not self._broken:
            self._written.append((now, received))
        while self._written and self._written[0][0] + READ_SECONDS <= now:
            self.time = self._written.popleft()[1]
        return self.time

    def break_off(self) -> None:
        """Note that the stream broke: what the server had not read is lost, and is to be searched for."""
        self._broken = True
        self._written.clear()

    def resume(self) -> None:
        """Note that all that may have been lost with the stream was sent again."""
        self._broken = False

    def close(self, now: float) -> None:
        """Note that the stream is closed in order, so that the server reads all that is written."""
        if not self._broken:
            self.time = now
