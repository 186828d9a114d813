"""Processes that run handlers, one job at a time in each: one that dies takes no other job with it.

Knows how a process starts, what it is told, and that it ends with the worker. Must not know what a job means to the service.
"""

import asyncio
import contextlib
import inspect
import io
import multiprocessing
import operator
import os
import pickle
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Future
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any, Final

from stanzaq.errors import StanzaqError
from stanzaq.job import Job
from stanzaq.retry import UnsentError
from stanzaq.worker.handled import HandledTask
from stanzaq.worker.registration import Registration, name_of
from stanzaq.worker.returned import is_pending, wait_until_done

_NAME: Final = "stanzaq-handlers"


class NotStartedError(StanzaqError):
    """No process can be started for a job, which has not begun; the message says why."""


class _NamedProcess(SpawnProcess):
    """Bears its name before it imports the program of the worker, which may end with `worker.run()`."""

    def __init__(self, *args: Any, **more: Any) -> None:  # noqa: ANN401  (multiprocessing's own)
        super().__init__(*args, **{**more, "name": _NAME})


class _Context(SpawnContext):
    """Starts new interpreters: forking a process with threads and connections is unsafe."""

    Process = _NamedProcess


def runs_handlers() -> bool:
    """Return whether this process was started to run handlers: it must never become a worker itself."""
    return multiprocessing.current_process().name == _NAME


class JobProcess:
    """One process of a worker: what it has run, and whether it may run more."""

    def __init__(self) -> None:
        """Start it with its first call."""
        # It brings much, which most programs do not need.
        from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415

        self._pool = ProcessPoolExecutor(1, _Context(), _begin_process)
        self._jobs: Counter[tuple[str, str]] = Counter()
        self.pid = 0
        """Known once its first call has told it."""
        self.is_spent = False

    def submit(self, function: Callable[..., Any], *arguments: Any) -> "Future[Any]":  # noqa: ANN401
        """Call a function there. Raises BrokenExecutor if the process has died."""
        return self._pool.submit(function, *arguments)

    def count(self, task: Registration, jobs: int) -> None:
        """Count jobs of a task, after which the process may have run enough of them."""
        key = task.node, task.name
        self._jobs[key] += jobs
        most = task.max_jobs_per_process
        self.is_spent = self.is_spent or (most is not None and self._jobs[key] >= most)

    def kill(self) -> None:
        """End it at once, whatever it does."""
        self.is_spent = True
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Let it end when it has nothing to do."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class Processes:
    """The processes of one worker, started when they are needed and kept."""

    def __init__(self, tasks: Sequence[Registration]) -> None:
        """Prepare for these tasks; start nothing yet."""
        self._tasks = tasks
        self._all: set[JobProcess] = set()
        self._idle: list[JobProcess] = []

    async def start(self) -> None:
        """Start one process, if a task needs any. Raises NotStartedError."""
        if self._tasks:
            self.give_back(await self.take())

    async def take(self) -> JobProcess:
        """Return a process that lives and has nothing to do, for one call until it is given back. Raises NotStartedError."""
        while self._idle:
            process = self._idle.pop()
            try:
                await asyncio.wrap_future(process.submit(os.getpid))
            except BrokenExecutor:
                # It was killed while it had nothing to do.
                self._all.discard(process)
            except asyncio.CancelledError:
                self.give_back(process)
                raise
            else:
                return process
        return await self._start_process()

    async def _start_process(self) -> JobProcess:
        try:
            handlers = [(name_of(task.handler), _pickle(task.handler)) for task in self._tasks]
        except Exception as error:
            names = ", ".join(name_of(task.handler) for task in self._tasks)
            msg = f"{names}: another process cannot import it ({error}): give it the name that its module knows it by"
            raise NotStartedError(msg) from error
        process: JobProcess | None = None
        try:
            process = JobProcess()
            self._all.add(process)
            process.pid, fault = await asyncio.wrap_future(process.submit(_find_handlers, handlers))
        except BaseException as error:
            if process is not None:
                self._end(process)
            if not isinstance(error, Exception):
                raise
            # No semaphores, no memory, no room for another process, or a program that cannot be imported.
            why = "it ends while it imports the program" if isinstance(error, BrokenExecutor) else error
            msg = f"no process can be started for handlers ({why}): mend that, or let them run in threads"
            raise NotStartedError(msg) from error
        if fault:
            self._end(process)
            raise NotStartedError(fault)
        return process

    def submit(self, process: JobProcess, task: Registration, given: Job[Any] | list[Job[Any]]) -> "Future[Any]":
        """Run a task's handler in a process that was taken. Raises TypeError if what it is given cannot be sent there."""
        jobs = [given] if isinstance(given, Job) else given
        apart = [job.apart() for job in jobs]
        try:
            sent = _pickle((task.handler, apart if task.batch else apart[0]))
        except Exception as error:
            msg = f"the job cannot be sent to another process: {error}"
            raise TypeError(msg) from error
        process.count(task, len(jobs))
        return process.submit(_run_handler, sent)

    def give_back(self, process: JobProcess) -> None:
        """Keep a process for the next call, unless it has run enough."""
        if process.is_spent:
            self._end(process)
        else:
            self._idle.append(process)

    def _end(self, process: JobProcess) -> None:
        self._all.discard(process)
        process.close()

    def close(self) -> None:
        """Let all processes end, those that are busy when their jobs have ended."""
        for process in self._all:
            process.close()


class _Pickler(pickle.Pickler):
    """Names a decorated function by its task, which has its name in its module."""

    def reducer_override(self, value: Any) -> Any:  # noqa: ANN401  (pickle's own)
        """Return how to write a decorated function; anything else as usual."""
        if not inspect.isfunction(value):
            return NotImplemented
        module = sys.modules.get(value.__module__)
        found: object = module
        for name in value.__qualname__.split("."):
            found = getattr(found, name, None)
        is_decorated = isinstance(found, HandledTask) and found.handler is value
        return (operator.attrgetter("handler"), (found,)) if is_decorated else NotImplemented


def _pickle(value: object) -> bytes:
    written = io.BytesIO()
    _Pickler(written).dump(value)
    return written.getvalue()


def _begin_process() -> None:
    # Ctrl-C is for the worker, which gives its jobs their grace.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process when the worker's has ended, however: nobody would receive the outcome of its job."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _find_handlers(handlers: Sequence[tuple[str, bytes]]) -> tuple[int, str]:
    """Import the handlers, each with its name; returns the process's id, and what is wrong with one."""
    for name, handler in handlers:
        try:
            pickle.loads(handler)  # noqa: S301  (it is our own)
        except Exception as error:  # noqa: BLE001  (a user's module may raise anything)
            fault = f"{name}: another process cannot import it ({type(error).__name__}: {error}): put it into a module"
            return os.getpid(), fault
    return os.getpid(), ""


def _run_handler(sent: bytes) -> Any:  # noqa: ANN401  (what a handler returns)
    try:
        handler, given = pickle.loads(sent)  # noqa: S301  (it is our own)
        returned = handler(given)
        return asyncio.run(wait_until_done(returned)) if is_pending(returned) else returned
    except StopIteration:
        # A future cannot carry it: whoever waits would wait for ever.
        msg = "the handler raised StopIteration"
        raise RuntimeError(msg) from None
    except BaseException as error:
        try:
            pickle.loads(pickle.dumps(error))  # noqa: S301
        except Exception:  # noqa: BLE001  (whatever its class does)
            # The executor would be broken by it.
            raise UnsentError(_known(type(error)), type(error).__name__, str(error)) from None
        raise


def _known(kind: type[BaseException]) -> type[BaseException]:
    """Return a class of exceptions, or the nearest one below it that has a name elsewhere."""
    for each in kind.__mro__:
        with contextlib.suppress(Exception):
            pickle.dumps(each)
            return each
    return BaseException
