"""Hooks of a worker: middleware around each job, and a lifespan around all of them. Must not know what a job does."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from stanzaq.job import Job

Run = Callable[[Job[Any]], Awaitable[None]]
"""Runs a job; raises what its handler raises."""

Middleware = Callable[[Job[Any], Run], Awaitable[None]]
"""Called with a job and the way to run it: what happens before and after is the middleware's."""

Lifespan = Callable[[], AsyncIterator[Any]]


@dataclass(frozen=True, slots=True)
class Hooks:
    """What a worker's program has registered; the first middleware is the outermost one."""

    middleware: tuple[Middleware, ...] = ()
    lifespan: Callable[[], AbstractAsyncContextManager[Any]] = nullcontext

    def around(self, run: Run) -> Run:
        """Return a run with all middleware around it."""
        for each in reversed(self.middleware):
            run = _inside(each, run)
        return run


def _inside(middleware: Middleware, run: Run) -> Run:
    return lambda job: middleware(job, run)
