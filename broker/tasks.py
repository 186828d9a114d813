"""Background tasks: the one place where they are started, and the answers that callers wait for.

A failed task is logged, and each of its callers gets an answer, even when the task is cancelled before it begins. A test keeps
tasks from being started anywhere else. Must not know what any task does.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any, Final, TypeVar

import structlog

from broker.model.problems import CoreUnavailable, OperationDefect, Problem
from broker.model.results import Refused

_T = TypeVar("_T")

Reply = Callable[[Any], None]

FAILED: Final = Refused(Problem.UNAVAILABLE, "the service could not complete the request")
"""The answer after a defect of this program."""

STOPPED: Final = Refused(Problem.UNAVAILABLE, "this process is stopping: ask again, another one answers")

_PAUSE_SECONDS: Final = 0.5
"""Pause before a failed permanent task is started again."""

_running: set[asyncio.Task[Any]] = set()
"""All tasks: the event loop keeps weak references only, so a task could vanish before it ends."""

log = structlog.get_logger()


class Answer:
    """The answer to one caller: only the first one counts, and giving it never raises."""

    __slots__ = ("_reply",)

    def __init__(self, reply: Reply) -> None:
        """Keep the callback that takes the answer."""
        self._reply: Reply | None = reply

    @property
    def answered(self) -> bool:
        """Whether it was given or passed on."""
        return self._reply is None

    def __call__(self, outcome: Any) -> None:  # noqa: ANN401  (outcomes of every kind)
        """Give the answer, unless it was given before."""
        reply, self._reply = self._reply, None
        if reply is not None:
            try:
                reply(outcome)
            except Exception:
                # The task serves other callers too, so it must go on.
                log.exception("an answer could not be given")


class Request(Answer):
    """A command, as it was given and as it was judged last, and the answer to it."""

    __slots__ = ("command", "judged")

    def __init__(self, command: Any, reply: Reply) -> None:  # noqa: ANN401  (commands of every kind)
        """Keep a command and the callback that takes its answer."""
        self.command = self.judged = command
        self._reply = reply

    def pass_on(self, submit: Callable[[Any, Reply], None]) -> None:
        """Submit the command elsewhere, which then answers it."""
        reply, self._reply = self._reply, None
        if reply is not None:
            answer = Answer(reply)
            try:
                submit(self.command, answer)
            except Exception:
                log.exception("a command could not be passed on")
                answer(FAILED)


def then(reply: Reply, step: Callable[..., None], *about: Any) -> Reply:  # noqa: ANN401
    """Return a callback that passes an outcome through `step` on its way to `reply`; if the step fails, `reply` gets FAILED.

    The step is called with `about`, `reply` and the outcome.
    """

    def taken(outcome: Any) -> None:  # noqa: ANN401
        try:
            step(*about, reply, outcome)
        except Exception:
            log.exception("an outcome could not be passed on")
            reply(FAILED)

    return taken


def fulfil(future: asyncio.Future[_T], outcome: _T) -> None:
    """Set the outcome of a future, unless it was cancelled."""
    if not future.done():
        future.set_result(outcome)


def start(work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
    """Start a task whose outcome may be awaited; a defect of this program is logged in any case."""
    task = asyncio.get_running_loop().create_task(work)
    _running.add(task)
    task.add_done_callback(_on_end)
    return task


def _on_end(task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    # The caller may be gone.
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, CoreUnavailable | OperationDefect):
        log.error("a task failed", exc_info=error)


def serve(work: Coroutine[Any, Any, None], failed: Callable[[Exception], None]) -> asyncio.Task[None]:
    """Start the service of one peer; `failed` gets the exception that ended it, so that the peer can be told."""

    async def served() -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001  (whoever is told decides what it means)
            failed(error)

    task = start(served())
    # A task that is cancelled before it begins never awaits its work, and Python would warn.
    task.add_done_callback(lambda _task: work.close())
    return task


def keep_running(work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
    """Start a permanent task; after a failure it is logged and started again."""

    async def run() -> None:
        while True:
            try:
                await work()
            except Exception:
                log.exception("a task failed and is started again")
            await asyncio.sleep(_PAUSE_SECONDS)

    return start(run())


class Tasks:
    """Tasks that are cancelled together."""

    def __init__(self) -> None:
        """Begin without tasks."""
        self._tasks: set[asyncio.Task[Any]] = set()

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        """Return the running tasks."""
        return iter(tuple(self._tasks))

    def __len__(self) -> int:
        """Count the running tasks."""
        return len(self._tasks)

    def background(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Run work in the background; errors are logged, and it never begins if it is cancelled before."""
        self._keep(start(_guard(work)))

    def answer(self, work: Coroutine[Any, Any, Any], reply: Reply) -> asyncio.Task[None]:
        """Run work and answer with its outcome exactly once, even if it fails or is cancelled; returns its task."""
        answer = Answer(reply)
        task = start(_run_and_answer(work, answer))
        self._keep(task)
        task.add_done_callback(partial(_on_cancelled, work, answer))
        return task

    def cancel(self) -> None:
        """Cancel all tasks; their callers are answered in the next turn of the event loop."""
        for task in self:
            task.cancel()

    def _keep(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _guard(work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    try:
        await work()
    except CoreUnavailable as error:
        log.warning("background work postponed", error=str(error))
    except Exception:
        log.exception("background work failed")


async def _run_and_answer(work: Coroutine[Any, Any, Any], answer: Answer) -> None:
    try:
        outcome = await work
    except CoreUnavailable as error:
        outcome = Refused(error.problem, error.detail)
    except Exception:
        log.exception("a command failed")
        outcome = FAILED
    answer(outcome)


def _on_cancelled(work: Coroutine[Any, Any, Any], answer: Answer, _task: asyncio.Task[None]) -> None:
    # A task that is cancelled before it begins never awaits its work, and Python would warn.
    work.close()
    answer(STOPPED)
