"""Kills this process when its event loop hangs. Knows a pipe and a process id; must not know what the loop does.

A frontend that hangs keeps its share of the stanzas, since ejabberd spreads them over all connections: only its death lets
others take over. Nothing inside the process can ensure that, so a second process watches it.
"""

import contextlib
import os
import select
import signal
from typing import Final, Self

_SILENCES: Final = 2


class Watchdog:
    """A child that kills its parent with SIGKILL `seconds` after the last `feed`, and ends when the parent ends.

    Its time begins with the first `feed`: a start may be slow, and nobody sends anything to a frontend that starts. Create it
    before threads and the event loop exist: it is a fork.
    """

    def __init__(self, seconds: float) -> None:
        """Fork the child."""
        reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)
        parent = os.getpid()
        self._child = os.fork()
        if self._child == 0:
            os.close(self._writing)
            _watch(parent, reading, seconds)
        os.close(reading)

    def feed(self) -> None:
        """Report that the loop runs; raises BrokenPipeError when the watchdog is gone."""
        # A pipe fills only in hours, when the watchdog is stopped; the loop must not wait for it.
        with contextlib.suppress(BlockingIOError):
            os.write(self._writing, b".")

    def stop(self) -> None:
        """End the child."""
        os.close(self._writing)
        os.waitpid(self._child, 0)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the child."""
        self.stop()


def _watch(parent: int, reading: int, seconds: float) -> None:
    """Run the child; never returns."""
    # Ctrl-C and service managers signal the whole group; the child waits for the parent to close the pipe.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if not os.read(reading, 1):
        os._exit(0)
    silences = 0
    # Two time-outs, not one: after a whole container was frozen, the parent gets the chance to write first.
    while silences < _SILENCES:
        if not select.select([reading], [], [], seconds / _SILENCES)[0]:
            silences += 1
        elif os.read(reading, 4096):
            silences = 0
        else:
            os._exit(0)
    os.write(2, b"stanzaq: the event loop hangs; the watchdog kills the process\n")
    os.kill(parent, signal.SIGKILL)
    os._exit(1)
