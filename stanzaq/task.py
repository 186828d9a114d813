"""A task: the function that processes the items of one node, and how it is called. Must not know transports or locks."""

import asyncio
import contextlib
import contextvars
import inspect
import logging
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from stanzaq import logs
from stanzaq.job import Job
from stanzaq.retry import Retry

log = logging.getLogger("stanzaq")

SETTLE_SECONDS: Final = 5.0
"""Time for a cancelled handler to end."""

IGNORES: Final = "the handler ignores that its job is cancelled, and keeps its place: let asyncio.CancelledError pass"

RunIn = Literal["loop", "thread", "process"]
Handler = Callable[[Job[Any]], Awaitable[None] | None]


@dataclass(frozen=True, slots=True)
class Task:
    """The handler of a node's items, and its settings; `timeout` is in seconds or None."""

    node: str
    handler: Handler
    payload: Any
    retry: Retry
    timeout: float | None
    run_in: RunIn


class Callers:
    """Calls handlers in the event loop, in threads or in processes, as many as jobs run at once."""

    def __init__(self, concurrency: int) -> None:
        """Start no thread or process yet."""
        self._concurrency = concurrency
        self._places = asyncio.Semaphore(concurrency)
        self._threads: Executor | None = None
        self._processes: Executor | None = None
        self._running: dict[Future[Any], Job[Any]] = {}

    async def call(self, task: Task, job: Job[Any]) -> Any:  # noqa: ANN401  (what a handler returns)
        """Run the handler of a task; raises what it raises, and TimeoutError after the task's timeout.

        What is not done by then in a thread or process goes on, so the time of the next job begins when that has a place.
        """
        if task.run_in != "loop":
            await self._places.acquire()
        if task.timeout is None:
            return await self._call(task, job)
        limit = asyncio.timeout(task.timeout)
        late = partial(log.warning, IGNORES, extra=logs.fields(job))
        warning = asyncio.get_running_loop().call_later(task.timeout + SETTLE_SECONDS, late)
        try:
            async with limit:
                return await self._call(task, job)
        except BaseException:
            if limit.expired():
                msg = f"not done in {task.timeout:g} s"
                raise TimeoutError(msg) from None
            raise
        finally:
            warning.cancel()

    async def _call(self, task: Task, job: Job[Any]) -> Any:  # noqa: ANN401
        match task.run_in:
            case "loop":
                return await _call_coroutine(task.handler, job)
            case "thread":
                self._threads = self._threads or ThreadPoolExecutor(self._concurrency, "stanzaq-job")
                # As asyncio.to_thread does: logs and traces in the thread know their job.
                here = contextvars.copy_context()
                return await self._call_elsewhere(self._threads, job, here.run, _call_handler, task.handler, job)
            case "process":
                pool = self._processes = self._processes or _processes(self._concurrency)
                try:
                    return await self._call_elsewhere(pool, job, _call_in_process, task.handler, job.apart())
                except Retry as asked:
                    # Its cause is now the other process's traceback, which is no reason for a retry.
                    raise asked from None
                except BrokenExecutor:
                    # A process died. Its executor takes nothing more, so the next job gets a new one.
                    if self._processes is pool:
                        self._processes = None
                    raise

    async def _call_elsewhere(self, pool: Executor, job: Job[Any], *call: Any) -> Any:  # noqa: ANN401
        """Call in a thread or a process that has a place, and wait for the outcome; the call goes on when this is cancelled."""
        loop = asyncio.get_running_loop()

        def ended(future: "Future[Any]") -> None:
            self._running.pop(future, None)
            # The loop may be closed by then.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._places.release)

        try:
            future = pool.submit(*call)
        except BaseException:
            self._places.release()
            raise
        self._running[future] = job
        future.add_done_callback(ended)
        try:
            return await asyncio.wrap_future(future)
        finally:
            # A fault refers to this frame, and the future to the fault.
            del future

    def jobs_running(self) -> list[Job[Any]]:
        """Return the jobs whose calls run in threads and processes."""
        return list(self._running.values())

    def close(self) -> None:
        """Shut down threads and processes without waiting for those still busy."""
        for executor in (self._threads, self._processes):
            if executor is not None:
                executor.shutdown(wait=False, cancel_futures=True)


async def _call_coroutine(handler: Handler, job: Job[Any]) -> Any:  # noqa: ANN401
    try:
        return await handler(job)  # type: ignore[misc]  # a coroutine function, as `run_in` has seen
    except (KeyboardInterrupt, SystemExit) as error:
        # asyncio would end the whole loop.
        msg = f"the handler raised {type(error).__name__}"
        raise RuntimeError(msg) from error


def _processes(count: int) -> Executor:
    # Forking a process with threads and connections is unsafe. Ctrl-C is for the worker, which gives its jobs their grace.
    return ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _begin_process)


def _begin_process() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process when the worker's has ended, however: nobody would receive the outcome of its job."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _call_handler(handler: Handler, job: Job[Any]) -> Any:  # noqa: ANN401
    try:
        return handler(job)
    except StopIteration as error:
        # A future cannot carry it: whoever waits would wait for ever.
        msg = "the handler raised StopIteration"
        raise RuntimeError(msg) from error


def _call_in_process(handler: Handler, job: Job[Any]) -> Any:  # noqa: ANN401
    try:
        return _call_handler(handler, job)
    except BaseException as error:
        try:
            pickle.loads(pickle.dumps(error))  # noqa: S301  (it is our own)
        except Exception:  # noqa: BLE001  (whatever its class does)
            # The executor would be broken by it, and fail all its jobs.
            msg = f"{type(error).__name__}: {error}"
            raise RuntimeError(msg) from None
        raise


def run_in(handler: Handler, asked: RunIn | None) -> RunIn:
    """Decide where a handler runs: by default coroutines in the loop, plain functions in threads. Raises TypeError."""
    call = handler if inspect.isroutine(handler) else type(handler).__call__
    is_coroutine = inspect.iscoroutinefunction(call)
    if asked is None:
        return "loop" if is_coroutine else "thread"
    if is_coroutine != (asked == "loop"):
        kind = "coroutines run in the loop" if is_coroutine else "only coroutines run in the loop"
        msg = f"run_in={asked!r} for {getattr(handler, '__qualname__', handler)}: {kind}"
        raise TypeError(msg)
    return asked
