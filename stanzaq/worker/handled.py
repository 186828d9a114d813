"""A task whose handler is in this program: what `Worker.task` makes of a function. Must not know how a job runs."""

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, Protocol, TypeVar, overload

from stanzaq.job import Job
from stanzaq.publisher.connected import ConnectedPublisher
from stanzaq.publisher.task import Task

P = TypeVar("P")
R = TypeVar("R")
Given = TypeVar("Given")
Returned = TypeVar("Returned")


class HandledTask(Task[P, R], Generic[P, R, Given, Returned]):
    """A task that is still called as its function."""

    def __init__(
        self,
        task: Task[P, R],
        handler: Callable[[Given], Returned],
        types: tuple[Any, Any],
        find: Callable[[], ConnectedPublisher | None],
    ) -> None:
        """Be known as the handler is; `find` returns the publisher of the worker while it runs."""
        super().__init__(task.queue, task.name)
        functools.update_wrapper(self, handler, updated=())
        self.handler = handler
        self._types = types
        self._find = find

    def __call__(self, given: Given) -> Returned:
        """Call the handler."""
        return self.handler(given)

    def __reduce__(self) -> str:
        """Be found in another process by the name that its module knows it by."""
        return str(getattr(self, "__qualname__", self.name))


class Register(Protocol):
    """Makes a task of a function."""

    @overload
    def __call__(
        self, handler: Callable[[Job[P]], Coroutine[Any, Any, R]], /
    ) -> HandledTask[P, R, Job[P], Coroutine[Any, Any, R]]: ...

    @overload
    def __call__(self, handler: Callable[[Job[P]], R], /) -> HandledTask[P, R, Job[P], R]: ...

    @overload
    def __call__(self, handler: Callable[[list[Job[P]]], R], /) -> HandledTask[P, Any, list[Job[P]], R]: ...

    # With dependencies.
    @overload
    def __call__(
        self, handler: Callable[Concatenate[Job[P], ...], Coroutine[Any, Any, R]], /
    ) -> HandledTask[P, R, Job[P], Coroutine[Any, Any, R]]: ...

    @overload
    def __call__(self, handler: Callable[Concatenate[Job[P], ...], R], /) -> HandledTask[P, R, Job[P], R]: ...

    @overload
    def __call__(
        self, handler: Callable[Concatenate[list[Job[P]], ...], R], /
    ) -> HandledTask[P, Any, list[Job[P]], R]: ...
