"""Ends this process when its event loop stands still. Knows a pipe and a process id; must not know what the loop does.

A frontend that hangs or is stopped keeps its share of the stanzas, since ejabberd spreads them over every connection:
only its death lets the others take over. Nothing inside the process can see to that, so a second process watches it.
"""

import contextlib
import os
import select
import signal
from typing import Final, Self

_SILENCES: Final = 2


class Watchdog:
    """A child that kills its parent with SIGKILL after `seconds` without `feed`, and goes when the parent goes.

    Make it before threads and the event loop exist: it is a fork.
    """

    def __init__(self, seconds: float) -> None:
        """Fork the child; the time runs from now on."""
        reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)
        parent = os.getpid()
        self._child = os.fork()
        if self._child == 0:
            os.close(self._writing)
            _watch(parent, reading, seconds)
        os.close(reading)

    def feed(self) -> None:
        """Show that the loop turns; raises BrokenPipeError when the watchdog is gone."""
        # A full pipe holds the meals of hours: it is the watchdog that is stopped, and the loop must not wait for it.
        with contextlib.suppress(BlockingIOError):
            os.write(self._writing, b".")

    def stop(self) -> None:
        """Send the child away."""
        os.close(self._writing)
        os.waitpid(self._child, 0)

    def __enter__(self) -> Self:
        """Give itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Send the child away."""
        self.stop()


def _watch(parent: int, reading: int, seconds: float) -> None:
    """Live the child's life; never returns."""
    # Ctrl-C and a service manager signal the whole group: the parent decides, and the pipe tells.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    silences = 0
    # Two silences, not one: when a whole container has been frozen, both processes thaw with their time run out, and
    # the parent gets the chance to speak first.
    while silences < _SILENCES:
        if not select.select([reading], [], [], seconds / _SILENCES)[0]:
            silences += 1
        elif os.read(reading, 4096):
            silences = 0
        else:
            os._exit(0)
    os.write(2, b"stanzaq: the event loop stands still; the watchdog ends the process\n")
    os.kill(parent, signal.SIGKILL)
    os._exit(1)
