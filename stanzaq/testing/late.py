"""A job that is late: it stops at its fence while the service gives its item to another job. Must not know the service."""

import asyncio
import threading
from contextlib import suppress
from typing import Any

from stanzaq import fencing
from stanzaq.errors import Fenced
from stanzaq.job import Job
from stanzaq.worker.hooks import Run


class LateJob:
    """The first job of a node. It hears nothing of its cancellation, as a process that is paused."""

    def __init__(self, node: str) -> None:
        """Wait for a job of a node."""
        self.node = node
        self.stopped, self.lost = asyncio.Event(), asyncio.Event()
        """It stands at its fence; its lock has ended."""

        self.work: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._goes_on, self._goes_on_in_thread = asyncio.Event(), threading.Event()

    async def run(self, job: Job[Any], call_next: Run) -> None:
        """Run the job; when it is cancelled it goes on alone."""
        hidden = fencing.stop.set(self)
        self.work = asyncio.create_task(call_next(job))
        fencing.stop.reset(hidden)
        # Also a job that ends without a fence is waited for.
        self.work.add_done_callback(lambda _: self.stopped.set())
        try:
            await asyncio.shield(self.work)
        except asyncio.CancelledError:
            self.lost.set()
            raise

    async def wait(self) -> None:
        """Stop the job here."""
        self.stopped.set()
        await self._goes_on.wait()

    def block(self) -> None:
        """Stop the job here, in its thread. Raises RuntimeError in the event loop, where it would stop everything."""
        if asyncio._get_running_loop() is not None:  # noqa: SLF001
            msg = (
                "the fence blocks the event loop: make the handler a plain function, or take an asynchronous connection"
            )
            raise RuntimeError(msg)
        self._loop.call_soon_threadsafe(self.stopped.set)
        self._goes_on_in_thread.wait()

    async def end(self) -> None:
        """Let the job go on, and wait until it has ended."""
        self._goes_on.set()
        self._goes_on_in_thread.set()
        if self.work is not None:
            await asyncio.wait({self.work})

    def check_stopped(self) -> None:
        """Raise AssertionError if the job has ended without a fence, or what it has raised."""
        assert self.work is not None
        if self.work.done():
            self.work.result()
            msg = f"a job of {self.node} has ended without a fence in this process: write inside `async with job.fence(…)`"
            raise AssertionError(msg)

    def check_refused(self) -> None:
        """Raise AssertionError if the late write was not refused, or what else the job raised."""
        assert self.work is not None
        with suppress(Fenced):
            self.work.result()
            msg = f"a late job of {self.node} has written: another name or key, or another store, or no other job has written"
            raise AssertionError(msg)
