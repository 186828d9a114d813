"""Keeps several processes of one worker's program alive, and ends them in order. Must not know what they run.

A process that dies is started again after a growing pause. It leads a session of its own: Ctrl-C is for this program, which
passes it on once. When this program is killed, the others stop as by SIGTERM.
"""

import asyncio
import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from stanzaq.errors import StanzaqError
from stanzaq.transport.backoff import Backoff

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

log = logging.getLogger("stanzaq")

MISUSE: Final = 2
"""The exit code of wrong use, which argparse has too."""

_EARLY_SECONDS = 10.0
_MOST_EARLY: Final = 5
"""So many ends in a row, each within that time of its start, are no accident."""

_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0

Program = Callable[[Sequence[str]], None]


class Several:
    """Processes that run the same program, and whether they are to stop."""

    def __init__(self, program: Program, arguments: Sequence[str]) -> None:
        """Run a program, a function of a module, with these arguments."""
        self._program, self._arguments = program, arguments
        self._running: set[SpawnProcess] = set()
        self._stopping = asyncio.Event()
        self._fault = ""
        self.code = 0
        """With what the command is to exit."""

    async def run(self, count: int) -> None:
        """Keep so many processes alive until a signal, or until all have ended by themselves.

        Raises StanzaqError if one of them cannot live.
        """
        loop = asyncio.get_running_loop()
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(each, self._stop)
        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(self._keep())
        if self._fault:
            raise StanzaqError(self._fault)

    def _stop(self) -> None:
        """Pass a signal on; the second one ends running jobs at once."""
        # Two of one kind that come together may be taken for one.
        passed_on = signal.SIGINT if self._stopping.is_set() else signal.SIGTERM
        self._stopping.set()
        for process in self._running:
            if process.pid is not None:
                os.kill(process.pid, passed_on)

    async def _keep(self) -> None:
        """Run the program again and again, until it ends in order or is to stop."""
        clock, backoff, early = asyncio.get_running_loop().time, Backoff(_FIRST_PAUSE, _LONGEST_PAUSE), 0
        while not self._stopping.is_set():
            began = clock()
            code = await self._run_once()
            # One that is stopped while it imports the program has begun nothing.
            if code == 0 or (code == -signal.SIGTERM and self._stopping.is_set()):
                return
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            if self._stopping.is_set() or code == MISUSE:
                self.code = max(self.code, code if code > 0 else 1)
                if not self._stopping.is_set():
                    self._stop()
                log.warning("a process of the worker %s", how)
                return
            early = early + 1 if clock() - began < _EARLY_SECONDS else 0
            if early == 0:
                backoff.reset()
            if early == _MOST_EARLY:
                self._fault = (
                    f"a process of the worker {how}, {early} times within {_EARLY_SECONDS:g} s of its start: see above"
                )
                self._stop()
                return
            pause = backoff.delay()
            log.warning("a process of the worker %s: a new one starts in %.1f s", how, pause)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stopping.wait()

    async def _run_once(self) -> int:
        """Run the program in a new process; returns its exit code, or the negative number of the signal that has killed it."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        process = multiprocessing.get_context("spawn").Process(target=_begin, args=(self._program, self._arguments))
        process.start()
        self._running.add(process)
        loop.add_reader(process.sentinel, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(process.sentinel)
            self._running.discard(process)
        process.join()
        code = process.exitcode
        process.close()
        return code or 0


def _begin(program: Program, arguments: Sequence[str]) -> None:
    os.setsid()
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    program(arguments)


def _stop_with_parent() -> None:
    """Stop this process as by SIGTERM when the one that has started it is dead: nobody would start it again."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
