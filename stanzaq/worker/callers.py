"""Calls handlers in the event loop, in threads or in processes. Must not know locks, nor what an outcome means to the service."""

import asyncio
import contextlib
import contextvars
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Final

from stanzaq import logs
from stanzaq.job import Job
from stanzaq.retry import ProcessDiedError, Retry
from stanzaq.worker.processes import JobProcess, Processes
from stanzaq.worker.registration import Handler, Registration
from stanzaq.worker.returned import wait_until_done

log = logging.getLogger("stanzaq")

SETTLE_SECONDS: Final = 5.0
"""Time for a cancelled handler to end."""

IGNORES: Final = "the handler ignores that its job is cancelled, and keeps its place: let asyncio.CancelledError pass"

Begin = Callable[[], Awaitable[None]]
"""Called right before the handler: the work on the item begins. It may wait for ever."""


class Callers:
    """Calls handlers, as many as jobs run at once."""

    def __init__(self, tasks: Collection[Registration], concurrency: int) -> None:
        """Start no thread or process yet."""
        self._concurrency = concurrency
        self._places = asyncio.Semaphore(concurrency)
        self._threads: Executor | None = None
        self._processes = Processes([task for task in tasks if task.run_in == "process"])
        self._running: dict[Future[Any], Job[Any]] = {}

    async def start(self) -> None:
        """Start what a first job would wait for. Raises NotStartedError if handlers run in processes, and none can be started."""
        await self._processes.start()

    async def call(self, task: Registration, job: Job[Any], begin: Begin, batch: list[Job[Any]] | None = None) -> Any:  # noqa: ANN401  (what a handler returns)
        """Run the handler of a task until its work has ended; raises what it raises, and TimeoutError after the task's timeout.

        It gets the job, or the batch whose first one that is.
        A process that is not done by then is killed. A thread goes on, so the time of the next job begins when that has a place.
        Raises NotStartedError if the handler has not begun.
        """
        given: Any = job if batch is None else batch
        if task.run_in == "loop":
            await begin()
            return await _limit(task, job, _call_in_loop(task.handler, given))
        future, process = await self._begin_elsewhere(task, job, given, begin)
        end = None if process is None else partial(_kill, process, future)
        try:
            return await _limit(task, job, _wait_for_call(future), end)
        except Retry as asked:
            if task.run_in == "process":
                # Its cause is now the other process's traceback, which is no reason for a retry.
                raise asked from None
            raise
        finally:
            # A fault refers to this frame, and the future to the fault.
            del future, end

    async def _begin_elsewhere(
        self,
        task: Registration,
        job: Job[Any],
        given: Any,  # noqa: ANN401  (what the handler takes)
        begin: Begin,
    ) -> "tuple[Future[Any], JobProcess | None]":
        """Begin a call in a thread or a process that is free; it goes on when its job is cancelled."""
        loop, process = asyncio.get_running_loop(), None
        with contextlib.ExitStack() as place:
            await self._places.acquire()
            place.callback(self._places.release)
            if task.run_in == "process":
                process = await self._processes.take()
                place.callback(self._processes.give_back, process)
                await begin()
                future = self._processes.submit(process, task, given)
            else:
                await begin()
                self._threads = self._threads or ThreadPoolExecutor(self._concurrency, "stanzaq-job")
                # As asyncio.to_thread does: logs and traces in the thread know their job.
                here = contextvars.copy_context()
                future = self._threads.submit(here.run, _call_in_thread, task.handler, given)
            freed = place.pop_all()
        self._running[future] = job

        def end(ended: "Future[Any]") -> None:
            self._running.pop(ended, None)
            # The loop may be closed by then.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(freed.close)

        future.add_done_callback(end)
        return future, process

    def jobs_running(self) -> list[Job[Any]]:
        """Return the jobs whose calls run in threads and processes."""
        return list(self._running.values())

    def close(self) -> None:
        """Shut down threads and processes without waiting for those still busy."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        self._processes.close()


async def _limit(
    task: Registration, job: Job[Any], work: Coroutine[Any, Any, Any], end: Callable[[], Awaitable[None]] | None = None
) -> Any:  # noqa: ANN401
    """Wait for the work on a job, at most for its task's timeout; then `end` what goes on."""
    if task.timeout is None:
        return await work
    limit = asyncio.timeout(task.timeout)
    late = partial(log.warning, IGNORES, extra=logs.fields(job))
    warning = asyncio.get_running_loop().call_later(task.timeout + SETTLE_SECONDS, late)
    try:
        async with limit:
            return await work
    except BaseException:
        if limit.expired():
            if end is not None:
                await end()
            msg = f"not done in {task.timeout:g} s"
            raise TimeoutError(msg) from None
        raise
    finally:
        warning.cancel()


async def _kill(process: JobProcess, future: "Future[Any]") -> None:
    """Kill the process of a call, and wait for its death: the next attempt must find no other one under way."""
    # Nothing else runs there yet: its place is freed in this loop.
    if not future.done():
        process.kill()
        with contextlib.suppress(Exception):
            async with asyncio.timeout(SETTLE_SECONDS):
                await asyncio.wrap_future(future)


async def _call_in_loop(handler: Handler, given: Any) -> Any:  # noqa: ANN401
    return await _wait_in_loop(handler(given))


async def _wait_for_call(future: "Future[Any]") -> Any:  # noqa: ANN401
    """Wait for a call in a thread or process, and then for the work that it has left to the loop."""
    try:
        returned = await asyncio.wrap_future(future)
    except BrokenExecutor as error:
        msg = "the process of the handler has died: it was killed, e.g. for its memory, or ended itself"
        raise ProcessDiedError(msg) from error
    finally:
        del future
    return await _wait_in_loop(returned)


async def _wait_in_loop(returned: Any) -> Any:  # noqa: ANN401
    try:
        return await wait_until_done(returned)
    except (KeyboardInterrupt, SystemExit) as error:
        # asyncio would end the whole loop.
        msg = f"the handler raised {type(error).__name__}"
        raise RuntimeError(msg) from error


def _call_in_thread(handler: Handler, given: Any) -> Any:  # noqa: ANN401
    try:
        return handler(given)
    except StopIteration as error:
        # A future cannot carry it: whoever waits would wait for ever.
        msg = "the handler raised StopIteration"
        raise RuntimeError(msg) from error
