"""Gathers the jobs of a task for a handler that takes a list of them, and tells each how it has ended. Must not know locks.

A job ends when the handler does, so its lock is renewed until then as any other's.
"""

import asyncio
import contextlib
import contextvars
import logging
from dataclasses import replace
from functools import partial
from typing import Any, Final

from stanzaq import logs
from stanzaq.job import Job
from stanzaq.publisher.connected import current
from stanzaq.worker.callers import Callers
from stanzaq.worker.registration import Registration

log = logging.getLogger("stanzaq")

_DROPPED: Final = "the handler of a batch has returned a %s, which is dropped: give results by job.complete(result)"


class Batches:
    """The batches of a task, of which at most one is open for further jobs."""

    def __init__(self, task: Registration, callers: Callers, concurrency: int) -> None:
        """Let a batch have as many jobs as the task says, and as run at once."""
        self._task, self._callers = task, callers
        self._most = min(task.batch, concurrency)
        self._open: _Batch | None = None
        # A batch is no single job's: neither its logs nor its trace are. Only the publisher is that of all.
        self._context = contextvars.copy_context()

    async def run(self, job: Job[Any]) -> Any:  # noqa: ANN401  (what a handler returns)
        """Run a job in a batch; returns its result, and raises what it has failed with."""
        batch = self._open
        if batch is None:
            self._context.run(current.set, current.get())
            batch = self._open = _Batch()
            batch.timer = asyncio.get_running_loop().call_later(self._task.wait, self._begin, batch)
        ended = batch.add(job)
        if len(batch.jobs) == self._most:
            self._begin(batch)
        try:
            return await ended
        except asyncio.CancelledError:
            await batch.leave(ended)
            raise
        finally:
            # A fault refers to this frame, and the future to the fault.
            del ended

    def _begin(self, batch: "_Batch") -> None:
        """Close a batch and call the handler, unless all its jobs have left."""
        self._open = None
        if batch.timer is not None:
            batch.timer.cancel()
        if batch.jobs:
            batch.task = asyncio.create_task(self._work(batch), context=self._context.copy())

    async def _work(self, batch: "_Batch") -> None:
        jobs = list(batch.jobs.values())
        logs.current.set({"node": self._task.node})

        async def begin() -> None:
            for job in jobs:
                await job._begin()  # noqa: SLF001  (the same package's)

        try:
            returned = await self._callers.call(self._task, jobs[0], begin, jobs)
        except BaseException as error:  # noqa: BLE001  (any exception of a handler ends its jobs, not the worker)
            batch.end(error)
        else:
            if returned is not None:
                log.warning(_DROPPED, type(returned).__name__, extra={"node": self._task.node})
            batch.end(None)


class _Batch:
    """Some jobs, each with what tells its end to who waits for it."""

    def __init__(self) -> None:
        self.jobs: dict[asyncio.Future[Any], Job[Any]] = {}
        self.timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None
        self._settled: dict[object, tuple[BaseException | None, Any]] = {}
        self._names: dict[asyncio.Future[Any], object] = {}
        """By what a job names itself: if it knew its end, a fault would refer to itself by the handler's frame."""

    def add(self, job: Job[Any]) -> asyncio.Future[Any]:
        """Add a job; returns its end, once that is known."""
        ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        name = self._names[ended] = object()
        self.jobs[ended] = replace(job, _settle=partial(self._settle, name))
        return ended

    def _settle(self, name: object, fault: BaseException | None, result: Any) -> None:  # noqa: ANN401
        """Note how one job ends, from any thread; the first word counts."""
        self._settled.setdefault(name, (fault, result))

    async def leave(self, ended: asyncio.Future[Any]) -> None:
        """Leave as a job that was cancelled; the last one cancels the handler, and waits for its end."""
        if self.task is None:
            self.jobs.pop(ended, None)
        elif all(each.done() for each in self.jobs):
            while not self.task.done():
                self.task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait({self.task})

    def end(self, fault: BaseException | None) -> None:
        """Tell each job its end: the one that it has of its own, or the handler's."""
        for ended in self.jobs:
            own, result = self._settled.get(self._names[ended], (fault, None))
            if ended.done():
                continue
            if own is None:
                ended.set_result(result)
            else:
                ended.set_exception(own)
                # Who waits may be cancelled before it hears of it.
                ended.exception()
        for each in (self.jobs, self._names, self._settled):
            each.clear()
