"""Hooks of a worker or a router: middleware around each job, and a lifespan around all of them. Must not know what a job does."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final

from stanzaq.job import Job

Run = Callable[[Job[Any]], Coroutine[Any, Any, None]]
"""Runs a job; raises what its handler raises."""

Middleware = Callable[[Job[Any], Run], Awaitable[None]]
"""Called with a job and the way to run it: what happens before and after is the middleware's."""

Lifespan = Callable[[], AsyncIterator[Any]]


@dataclass(frozen=True, slots=True)
class Hooks:
    """What a worker or a router has registered; the first one of each kind is the outermost."""

    middleware: tuple[Middleware, ...] = ()
    lifespans: tuple[Callable[[], AbstractAsyncContextManager[Any]], ...] = ()
    """What the last one yields is the state of jobs."""

    def inside(self, outer: "Hooks") -> "Hooks":
        """Return these hooks inside those of who includes them."""
        return Hooks((*outer.middleware, *self.middleware), (*outer.lifespans, *self.lifespans))

    def around(self, run: Run) -> Run:
        """Return a run with all middleware around it."""
        for each in reversed(self.middleware):
            run = _inside(each, run)
        return run


NO_HOOKS: Final = Hooks()


def _inside(middleware: Middleware, run: Run) -> Run:
    async def whole(job: Job[Any]) -> None:
        calls: list[Coroutine[Any, Any, None]] = []

        def call_next(job: Job[Any]) -> Coroutine[Any, Any, None]:
            calls.append(run(job))
            return calls[-1]

        await middleware(job, call_next)
        for call in calls:
            state = inspect.getcoroutinestate(call)
            if state == inspect.CORO_CREATED:
                call.close()
            if state != inspect.CORO_CLOSED:
                msg = "the middleware has returned before the job ended: write `await call_next(job)`"
                raise RuntimeError(msg)

    return whole
