"""A worker: functions for nodes, and a process that runs them until it is stopped. Must not know any transport."""

import asyncio
import inspect
import logging
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import Any, TypeVar, Unpack

from stanzaq import payloads, schemes
from stanzaq.durations import Duration, seconds
from stanzaq.errors import StanzaqError
from stanzaq.logs import show
from stanzaq.publisher import task as declared
from stanzaq.publisher.connected import ConnectedPublisher
from stanzaq.publisher.declaring import check_create
from stanzaq.publisher.publisher import When
from stanzaq.queue import Create, Queue
from stanzaq.retry import Retry
from stanzaq.transport.account import Password, Tls
from stanzaq.transport.interface import Content, Transport
from stanzaq.worker import processes
from stanzaq.worker.handled import HandledTask, Register
from stanzaq.worker.hooks import Hooks, Lifespan, Middleware
from stanzaq.worker.registration import MOST_JOBS, Classes, Registration, RunIn, name_of
from stanzaq.worker.runs import Runs
from stanzaq.worker.stopping import STUCK, Stop, end_at_once, end_if_blocked, watch_loop

log = logging.getLogger("stanzaq")

M = TypeVar("M", bound=Middleware)
L = TypeVar("L", bound=Lifespan)
A = TypeVar("A", bound=Callable[[], Awaitable[Any]])
S = TypeVar("S", bound=declared.Task[Any, Any])

_SCHEDULED = "task:"
"""What the ids of a program's schedules begin with: others of its nodes are not the program's."""

_END_SECONDS = 10.0
"""Time from the second signal to the end of the program, at most."""


class Worker:
    """Processes the items of nodes with functions.

    `url` is the account, `xmpp://user@example.org`, or over HTTP `https://user@example.org@queue.example.org`. `service` is
    the queue's domain; if it is not given, `queue.` before the account's. The password is a string, or a callable that
    returns it at each login; by default `STANZAQ_PASSWORD`.
    `address` is `host:port` of the XMPP server if it is not in DNS. `concurrency` jobs run at once; `prefetch` more are
    held ready. After `stop` or SIGTERM running jobs have `grace` seconds. With `create="if-missing"` missing nodes are
    created, and with `"update"` those changed whose options differ from what is declared. Workers of a `group` divide the
    partitions of their nodes among them. Raises ValueError.
    """

    def __init__(  # noqa: PLR0913  (what users may say)
        self,
        url: str,
        *,
        service: str | None = None,
        password: Password = None,
        address: str | None = None,
        tls: Tls = "required",
        concurrency: int = 1,
        prefetch: int = 0,
        grace: Duration = 30.0,
        create: Create = "never",
        group: str | None = None,
    ) -> None:
        """Check the arguments; connects only in `run` or `serve`."""
        self._resize(concurrency, prefetch)
        self._account = schemes.account(url, service, password, address, tls)
        self._group = schemes.check_group(self._account, group)
        self._grace = seconds(grace)
        self._create = check_create(create)
        self._queues: dict[str, Queue] = {}
        self._tasks: dict[tuple[str, str], Registration] = {}
        self._schedules: dict[tuple[str, str], tuple[Content, When]] = {}
        self._hooks = Hooks()
        self._publisher: ConnectedPublisher | None = None
        self._stop = Stop()
        self._left = 0

    def task(  # noqa: PLR0913  (what users may say)
        self,
        queue: Queue | str,
        *,
        name: str = "",
        retry: Retry | None = None,
        timeout: Duration | None = None,
        run_in: RunIn | None = None,
        retry_on: Classes | None = None,
        never_retry: Classes = (),
        max_jobs_per_process: int | None = None,
        batch: int | None = None,
        wait: Duration | None = None,
    ) -> Register:
        """Register the decorated function as the handler of a queue's items, or of a node's, by its name.

        A coroutine runs in the event loop, a plain function in a thread, or in a process with `run_in="process"`. It takes a
        `Job[T]`, whose payload is a T. When it returns, and what it returns has been awaited if that is possible, the item is
        completed. When it raises, the item is retried as `retry` says, or as the `Retry` that it raises; `Reject` makes it a dead
        letter. After `timeout` it counts as failed, with a TimeoutError, and its process is killed. An exception of a class of
        `never_retry` makes the item a dead letter at once, and so does one of no class of `retry_on`, if that is given. A process
        is replaced after `max_jobs_per_process` jobs of the task. A function that takes a `list[Job[T]]` gets up to `batch` jobs
        at once (100), `wait` after the first one at the latest (50 ms). Several tasks share a node if each has a `name`, which
        its items bear in the header `task`. Returns a `Task`, which is still called as the function. Raises TypeError or
        ValueError if the function cannot be a handler.
        """

        def register(handler: Callable[[Any], Any]) -> HandledTask[Any, Any, Any, Any]:
            if isinstance(handler, HandledTask):
                # One function for several tasks.
                handler = handler.handler
            if (node, name) in self._tasks:
                msg = f"{node} has a task {name + ' ' if name else ''}already: {self._tasks[node, name].handler!r}"
                raise ValueError(msg)
            registration = Registration.make(
                node,
                handler,
                retry=retry,
                timeout=timeout,
                run_in=run_in,
                retry_on=retry_on,
                never_retry=never_retry,
                max_jobs_per_process=max_jobs_per_process,
                batch=batch,
                wait=wait,
            )
            self._keep(told.queue)
            self._tasks[node, name] = replace(registration, name=name)
            # What the handler of a batch returns is no job's result.
            types = registration.payload, Any if registration.batch else payloads.result_type(handler)
            return HandledTask(told, handler, types, lambda: self._publisher)

        if not (isinstance(queue, Queue) or (queue and isinstance(queue, str))):
            msg = f'{queue!r} is no name of a node: write @worker.task("NODE") above the function'
            raise TypeError(msg)
        told: declared.Task[Any, Any] = declared.Task(queue, name)
        node = told.node
        return register

    def _keep(self, queue: Queue) -> None:
        """Note a queue and how it is declared; raises ValueError if it is declared otherwise already."""
        known = self._queues.setdefault(queue.name, queue)
        if queue.options and known.options and known != queue:
            msg = f"{queue.name} is declared twice, and differently: give its tasks one Queue"
            raise ValueError(msg)
        if queue.options:
            self._queues[queue.name] = queue

    def schedule(
        self,
        payload: Any = None,  # noqa: ANN401
        *,
        id: str = "",  # noqa: A002  (the schedule's id, as everywhere)
        **when: Unpack[When],
    ) -> Callable[[S], S]:
        """Let the service publish for the decorated task at certain times, by the arguments of `Publisher.schedule`.

        It stands above `@worker.task`. When the worker starts, the service gets the schedules of the program, and forgets those
        that the program has no longer. The `id` is by default the function's name. Raises TypeError and ValueError.
        """

        def register(task: S) -> S:
            if not isinstance(task, HandledTask):
                msg = f"{task!r} is no task: write @worker.schedule(…) above @worker.task(…)"
                raise TypeError(msg)
            name = f"{_SCHEDULED}{id or name_of(task.handler)}"
            if (task.node, name) in self._schedules:
                msg = f"{task} has a schedule {name} already: give this one an id"
                raise ValueError(msg)
            self._schedules[task.node, name] = task.scheduled(payload, **when)
            return task

        return register

    def middleware(self, function: M) -> M:
        """Register a coroutine function around all jobs: `async def timed(job, call_next): ...; await call_next(job)`.

        `call_next` runs the handler, or the next middleware, and raises what that raises. If the middleware raises, the job has
        failed; if it returns, the item is completed, even without `call_next`. The first one registered is the outermost. It runs
        in the event loop, wherever the handler runs. Raises TypeError.
        """
        if not (inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)):
            msg = f"{function!r} is no middleware: write `async def name(job, call_next)`"
            raise TypeError(msg)
        self._hooks = replace(self._hooks, middleware=(*self._hooks.middleware, function))
        return function

    def lifespan(self, function: L) -> L:
        """Register an asynchronous generator function that is run around the worker: up to its `yield` before the first job.

        What it yields is `job.state`; what follows runs after the last job. A worker has one. Raises TypeError and ValueError.
        """
        can_be = inspect.isasyncgenfunction(function)
        if not can_be:
            msg = f"{function!r} is no lifespan: write `async def name()` with a `yield`, and no @asynccontextmanager"
            raise TypeError(msg)
        if self._hooks.lifespan is not nullcontext:
            msg = "the worker has a lifespan already"
            raise ValueError(msg)
        self._hooks = replace(self._hooks, lifespan=asynccontextmanager(function))
        return function

    def on_start(self, function: A) -> A:
        """Register a coroutine function that is run before the first job, and returns `job.state`: a lifespan without an end.

        Raises TypeError and ValueError.
        """
        can_be = inspect.iscoroutinefunction(function)
        if not can_be:
            msg = f"{function!r} cannot be run on start: write `async def name()`"
            raise TypeError(msg)

        async def whole() -> AsyncIterator[Any]:
            yield await function()

        self.lifespan(whole)
        return function

    def _resize(self, concurrency: int, prefetch: int) -> None:
        if not (concurrency >= 1 and prefetch >= 0 and concurrency + prefetch <= MOST_JOBS):
            msg = f"concurrency={concurrency}, prefetch={prefetch}: together 1 to {MOST_JOBS} items are held at once"
            raise ValueError(msg)
        self._concurrency, self._credit = concurrency, concurrency + prefetch

    def run(self, *, concurrency: int | None = None) -> None:
        """Run as a program until SIGTERM or SIGINT; a second signal ends running jobs at once.

        `concurrency` replaces the worker's own. Exits with one line if the service cannot be used. Logs to stderr, unless
        logging is already set up.
        """
        if processes.runs_handlers() or _held:
            # This process imports the program for its handlers, or for the command that runs the worker.
            return
        if threading.current_thread() is not threading.main_thread() or asyncio._get_running_loop() is not None:  # noqa: SLF001
            msg = "worker.run() is a whole program, in the main thread and without an event loop: use `await worker.serve()` here"
            raise RuntimeError(msg)
        if concurrency is not None:
            self._resize(concurrency, self._credit - self._concurrency)
        show(logging.INFO)
        fault = ""
        with asyncio.Runner() as runner:
            try:
                runner.run(self._serve_until_signalled())
            except StanzaqError as error:
                fault = f"stanzaq: {error}"
            if self._left:
                # Neither asyncio nor Python would end before they do.
                log.warning("the program ends, although jobs go on: %d", self._left)
                end_at_once(fault)
        if fault:
            sys.exit(fault)

    async def serve(self) -> None:
        """Run in the current event loop until `stop`. Raises StanzaqError if the service cannot be used."""
        if processes.runs_handlers() or _held:
            return
        transport = schemes.worker(self._account, group=self._group)
        await self._serve(transport, self._hooks, self._grace)

    async def _serve(self, transport: Transport, hooks: Hooks, grace: float) -> None:
        if not self._tasks:
            msg = "the worker has no task: decorate a function with @worker.task(node)"
            raise ValueError(msg)
        if self._stop.serves:
            msg = "the worker runs already: make another Worker for another loop"
            raise RuntimeError(msg)
        runs = Runs(transport, self._tasks.values(), self._concurrency, hooks)
        with self._stop.watched(runs.begin_no_more) as stopping:
            async with hooks.lifespan() as runs.state:
                await self._work(transport, runs, stopping, grace)

    async def _work(self, transport: Transport, runs: Runs, stopping: asyncio.Event, grace: float) -> None:
        """Run jobs until `stop`."""
        await runs.start()
        self._publisher = runs.publisher = ConnectedPublisher(transport.sender())
        prepare = partial(self._declare, self._publisher)
        working = self._publisher.start(transport.run(runs, dict.fromkeys(self._queues, self._credit), prepare))
        waiting = asyncio.create_task(stopping.wait())
        watching = asyncio.create_task(watch_loop())
        try:
            await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                await runs.finish(self._stop.left_of(grace), owns=bool(self._group))
        finally:
            waiting.cancel()
            watching.cancel()
            runs.close()
            self._publisher = None
            await transport.close()
            if not working.done():
                working.cancel()
            await asyncio.wait({working})
            try:
                await runs.wait_closed()
            finally:
                self._left = runs.left
        if not working.cancelled():
            working.result()

    async def _declare(self, publisher: ConnectedPublisher, node: str, *, missing: bool) -> None:
        """Make a node what its tasks declare; raises StanzaqError."""
        queue = self._queues[node]
        wanted = {name: what for (where, name), what in self._schedules.items() if where == node}
        if missing or queue.options or wanted:
            await publisher.declare(queue, create=self._create)
        for name, (payload, when) in wanted.items():
            await publisher.schedule(node, name, payload, **when)
        if self._schedules:
            await self._forget_schedules(publisher, node, wanted)

    @staticmethod
    async def _forget_schedules(publisher: ConnectedPublisher, node: str, wanted: Collection[str]) -> None:
        """Delete what an earlier version of the program has scheduled, and this one does not. Raises StanzaqError."""
        try:
            found = await publisher.schedules(node)
        except StanzaqError:
            if wanted:
                raise
            # A node of others, or a collection.
            return
        for each in found:
            if each.id.startswith(_SCHEDULED) and each.id not in wanted:
                await publisher.unschedule(node, each.id)
                log.info("%s of %s is deleted: the program has no such schedule", each.id, node)

    def stop(self) -> None:
        """Make `serve` end, also one that has not begun: no new jobs, and running ones have their grace.

        May be called from any thread.
        """
        self._stop.ask()

    async def _serve_until_signalled(self) -> None:
        loop, serving = asyncio.get_running_loop(), asyncio.create_task(self.serve())
        signalled, ended = 0, threading.Event()
        # For what does not end by being cancelled.
        ending = threading.Timer(_END_SECONDS, end_at_once, [STUCK])
        watching = threading.Thread(target=end_if_blocked, args=(loop, self._grace, ended))
        ending.daemon = watching.daemon = True

        def hear(_number: int, _frame: FrameType | None) -> None:
            nonlocal signalled
            signalled += 1
            if signalled == 1:
                # At once: a handler may block the event loop.
                self.stop()
                loop.call_soon_threadsafe(log.info, "stopping; a second signal ends running jobs at once")
                watching.start()
            elif signalled == 2:
                loop.call_soon_threadsafe(serving.cancel)
                ending.start()

        before = [(name, signal.signal(name, hear)) for name in (signal.SIGTERM, signal.SIGINT)]
        try:
            await serving
        except asyncio.CancelledError:
            if signalled < 2:
                raise
        finally:
            ended.set()
            ending.cancel()
            for name, handler in before:
                signal.signal(name, handler)


_held = False


@contextmanager
def held() -> Iterator[None]:
    """Let `run` and `serve` return at once: the command imports a program for its worker, whatever its last line is."""
    global _held  # noqa: PLW0603  (the import that is under way is the process's)
    _held = True
    try:
        yield
    finally:
        _held = False
