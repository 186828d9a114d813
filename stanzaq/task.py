"""A task: the function that processes the items of one node, and how it is called. Must not know transports or locks."""

import asyncio
import inspect
import multiprocessing
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

from stanzaq.job import Job
from stanzaq.retry import Retry

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
        self._threads: Executor | None = None
        self._processes: Executor | None = None

    async def call(self, task: Task, job: Job[Any]) -> Any:  # noqa: ANN401  (what a handler returns)
        """Run the handler of a task; raises what it raises."""
        match task.run_in:
            case "loop":
                return await _guarded(task.handler, job)
            case "thread":
                self._threads = self._threads or ThreadPoolExecutor(self._concurrency, "stanzaq-job")
                return await asyncio.get_running_loop().run_in_executor(self._threads, task.handler, job)
            case "process":
                # Forking a process with threads and connections is unsafe.
                context = multiprocessing.get_context("spawn")
                self._processes = self._processes or ProcessPoolExecutor(self._concurrency, context)
                return await asyncio.get_running_loop().run_in_executor(self._processes, task.handler, job.apart())

    def close(self) -> None:
        """Shut down threads and processes without waiting for those still busy."""
        for executor in (self._threads, self._processes):
            if executor is not None:
                executor.shutdown(wait=False, cancel_futures=True)


async def _guarded(handler: Handler, job: Job[Any]) -> Any:  # noqa: ANN401
    try:
        return await handler(job)  # type: ignore[misc]  # a coroutine function, as `run_in` has seen
    except (KeyboardInterrupt, SystemExit) as error:
        # asyncio would end the whole loop.
        msg = f"the handler raised {type(error).__name__}"
        raise RuntimeError(msg) from error


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
