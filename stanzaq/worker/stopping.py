"""How a worker's program ends: the request to stop, and the end by force of what blocks the event loop. Must not know jobs."""

import asyncio
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

log = logging.getLogger("stanzaq")

STUCK: Final = "stanzaq: ended by force: a coroutine blocks the event loop, or the lifespan does not end"

_WATCH_SECONDS = 1.0
_BLOCKED_SECONDS = 5.0
"""A delay of the event loop that is worth a warning, and after the grace the end."""


class Stop:
    """The request to stop a worker, from its moment on; it is kept for a `serve` that has not begun."""

    def __init__(self) -> None:
        """Begin without a request."""
        self.serves = False
        self._asked_at: float | None = None
        self._tell: Callable[[], object] = lambda: None

    @contextmanager
    def watched(self, begin_no_more: Callable[[], None]) -> Iterator[asyncio.Event]:
        """Meanwhile pass the request on: at once by a call from whatever thread, and in the loop by the event."""
        event, loop = asyncio.Event(), asyncio.get_running_loop()

        def tell() -> None:
            begin_no_more()
            loop.call_soon_threadsafe(event.set)

        self.serves, self._tell = True, tell
        try:
            if self._asked_at is not None:
                tell()
            yield event
        finally:
            self.serves, self._asked_at, self._tell = False, None, lambda: None

    def ask(self) -> None:
        """Stop; may be called from any thread, and by a signal while a handler blocks the event loop."""
        if self._asked_at is None:
            self._asked_at = time.monotonic()
        self._tell()

    def left_of(self, grace: float) -> float:
        """Return how much of the grace is left, in seconds."""
        return grace if self._asked_at is None else max(0.0, self._asked_at + grace - time.monotonic())


def end_at_once(fault: str) -> None:
    """End the program whatever runs, with one line if it could not do its work."""
    if fault:
        print(fault, file=sys.stderr)  # noqa: T201
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(1 if fault else 0)


def end_if_blocked(loop: asyncio.AbstractEventLoop, grace: float, ended: threading.Event) -> None:
    """End the program once its grace is over, if a handler blocks the event loop; a thread."""
    ended.wait(grace)
    while not ended.is_set():
        answered = threading.Event()
        try:
            loop.call_soon_threadsafe(answered.set)
        except RuntimeError:
            # The loop has been closed.
            return
        if not answered.wait(_BLOCKED_SECONDS) and not ended.is_set():
            end_at_once(STUCK)
        ended.wait(_WATCH_SECONDS)


async def watch_loop() -> None:
    """Warn when the event loop was blocked."""
    clock = asyncio.get_running_loop().time
    while True:
        began = clock()
        await asyncio.sleep(_WATCH_SECONDS)
        late = clock() - began - _WATCH_SECONDS
        if late > _BLOCKED_SECONDS:
            log.warning(
                "the event loop was blocked for %.0f s, and no lock was renewed: a coroutine must not block."
                " Make the handler a plain function, which runs in a thread",
                late,
            )
