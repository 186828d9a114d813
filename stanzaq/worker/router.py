"""A router: what a module declares for a worker, which may be in another one. Must not know any account, nor how a job runs."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar, Unpack

from stanzaq import payloads
from stanzaq.durations import Duration
from stanzaq.publisher import task as declared
from stanzaq.publisher.connected import ConnectedPublisher
from stanzaq.publisher.publisher import When
from stanzaq.queue import Queue
from stanzaq.retry import Retry
from stanzaq.transport.interface import Content
from stanzaq.worker.handled import HandledTask, Register
from stanzaq.worker.hooks import Hooks, Lifespan, Middleware
from stanzaq.worker.registration import Classes, Registration, RunIn, name_of

M = TypeVar("M", bound=Middleware)
L = TypeVar("L", bound=Lifespan)
A = TypeVar("A", bound=Callable[[], Awaitable[Any]])
S = TypeVar("S", bound=declared.Task[Any, Any])

SCHEDULED = "task:"
"""What the ids of a program's schedules begin with: others of its nodes are not the program's."""


class Router:
    """Declares tasks, schedules and hooks without an account, for a worker that includes it: `worker.include(router)`.

    Its middleware surrounds its own jobs, inside the worker's, and what its lifespan yields is the `state` of its own jobs.
    """

    def __init__(self) -> None:
        """Declare nothing yet."""
        self._queues: dict[str, Queue] = {}
        self._tasks: dict[tuple[str, str], Registration] = {}
        self._schedules: dict[tuple[str, str], tuple[Content, When]] = {}
        self._hooks = Hooks()
        self._publisher: ConnectedPublisher | None = None
        self._includer: Router | None = None

    def include(self, router: "Router") -> None:
        """Take over all that a router declares, which must be complete: it is included once.

        Raises TypeError, and ValueError if it was included before, declares nothing, or declares what there is already.
        """
        if type(router) is not Router:
            msg = f"include takes a stanzaq.Router, and not {router!r}: a worker includes what other modules declare with routers"
            raise TypeError(msg)
        queues, tasks, schedules, hooks = router._hand_over(self)  # noqa: SLF001  (the same class's)
        for queue in queues:
            self._keep(queue)
        for task in tasks:
            self._add(replace(task, hooks=task.hooks.inside(hooks)))
        for (node, name), what in schedules.items():
            self._add_schedule(node, name, what)

    def _hand_over(
        self, includer: "Router"
    ) -> tuple[Collection[Queue], Collection[Registration], Mapping[tuple[str, str], tuple[Content, When]], Hooks]:
        """Return all that is declared, and let nothing more be; raises ValueError if there is nothing, or it was included."""
        self._check_open()
        if not self._tasks:
            msg = "the router has no task: import the modules that declare its tasks before it is included"
            raise ValueError(msg)
        self._includer = includer
        return self._queues.values(), self._tasks.values(), self._schedules, self._hooks

    def _check_open(self) -> None:
        """Refuse to declare more when somebody has taken over what there was; raises ValueError."""
        if self._includer is not None:
            msg = "the router was included already: declare all before that, and include it once"
            raise ValueError(msg)

    def _add(self, registration: Registration) -> None:
        """Add a handler; raises ValueError if its task has one already."""
        self._check_open()
        node, name = registration.node, registration.name
        if known := self._tasks.get((node, name)):
            msg = f"{node} has a task {name + ' ' if name else ''}already: {known.handler!r}"
            raise ValueError(msg)
        self._tasks[node, name] = registration

    def _add_schedule(self, node: str, name: str, what: tuple[Content, When]) -> None:
        """Add a schedule; raises ValueError if its node has one of this name already."""
        self._check_open()
        if (node, name) in self._schedules:
            msg = f"{node} has a schedule {name} already: give this one an id"
            raise ValueError(msg)
        self._schedules[node, name] = what

    def _find_publisher(self) -> ConnectedPublisher | None:
        """Return the publisher of the worker while it runs."""
        return self._publisher if self._includer is None else self._includer._find_publisher()  # noqa: SLF001

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
            self._add(replace(registration, name=name))
            # What the handler of a batch returns is no job's result.
            types = registration.payload, Any if registration.batch else payloads.result_type(handler)
            return HandledTask(told, registration.handler, types, self._find_publisher)

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
            self._add_schedule(task.node, f"{SCHEDULED}{id or name_of(task.handler)}", task.scheduled(payload, **when))
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
        self._check_open()
        self._hooks = replace(self._hooks, middleware=(*self._hooks.middleware, function))
        return function

    def lifespan(self, function: L) -> L:
        """Register an asynchronous generator function that is run around the worker: up to its `yield` before the first job.

        What it yields is `job.state`; what follows runs after the last job. A worker or a router has one. Raises TypeError
        and ValueError.
        """
        can_be = inspect.isasyncgenfunction(function)
        if not can_be:
            msg = f"{function!r} is no lifespan: write `async def name()` with a `yield`, and no @asynccontextmanager"
            raise TypeError(msg)
        if self._hooks.lifespans:
            msg = "there is a lifespan already: a worker has one, and so has each of its routers"
            raise ValueError(msg)
        self._check_open()
        self._hooks = replace(self._hooks, lifespans=(asynccontextmanager(function),))
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
