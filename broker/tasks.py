"""Background tasks: the one place where they are started, and what is owed to whoever waits for what a task does.

A task that fails is logged, and everybody to whom it owes an answer gets one: also when it is cancelled, and when it is
cancelled before it begins. A test keeps tasks from being started anywhere else. Must not know what any task does.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any, Final, TypeVar

import structlog

from broker.model.problems import CoreUnavailable, Problem, ScriptDefect
from broker.model.results import Refused

_T = TypeVar("_T")

Reply = Callable[[Any], None]

FAILED: Final = Refused(Problem.UNAVAILABLE, "the service could not carry this out")
"""What is answered when we are at fault."""

STOPPED: Final = Refused(Problem.UNAVAILABLE, "this process is stopping: ask again, another one answers")

_PAUSE_SECONDS: Final = 0.5
"""Between the failure of a task that is to run for ever and its next beginning."""

_running: set[asyncio.Task[Any]] = set()
"""The event loop keeps weak references only: a task that nobody else keeps could vanish before it ends."""

log = structlog.get_logger()


class Answer:
    """An answer that is owed to one caller: the first that is given counts, and giving it never raises."""

    __slots__ = ("_reply",)

    def __init__(self, reply: Reply) -> None:
        """Owe an answer to whoever listens at `reply`."""
        self._reply: Reply | None = reply

    @property
    def answered(self) -> bool:
        """It has been given, or somebody else owes it."""
        return self._reply is None

    def __call__(self, outcome: Any) -> None:  # noqa: ANN401  (outcomes of every kind)
        """Give it, unless it has been given."""
        reply, self._reply = self._reply, None
        if reply is not None:
            try:
                reply(outcome)
            except Exception:
                # Many are served by one task: one whose answer cannot be worded must not stop the others.
                log.exception("an answer could not be given")


class Ticket(Answer):
    """A command, and the answer that is owed for it."""

    __slots__ = ("command",)

    def __init__(self, command: Any, reply: Reply) -> None:  # noqa: ANN401  (commands of every kind)
        """Owe an answer for a command."""
        self.command = command
        self._reply = reply

    def pass_on(self, submit: Callable[[Any, Reply], None]) -> None:
        """Have the command carried out elsewhere, where its answer is owed from now on."""
        reply, self._reply = self._reply, None
        if reply is not None:
            answer = Answer(reply)
            try:
                submit(self.command, answer)
            except Exception:
                log.exception("a command could not be passed on")
                answer(FAILED)


def then(reply: Reply, step: Callable[..., None], *about: Any) -> Reply:  # noqa: ANN401
    """Give what takes an outcome a step further on its way to `reply`; should the step fail, `reply` hears that.

    The step is called with `about`, `reply` and the outcome.
    """

    def taken(outcome: Any) -> None:  # noqa: ANN401
        try:
            step(*about, reply, outcome)
        except Exception:
            log.exception("an outcome could not be passed on")
            reply(FAILED)

    return taken


def start(work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
    """Start a task whose outcome somebody may await; what fails by our fault is logged whether somebody does or not."""
    task = asyncio.get_running_loop().create_task(work)
    _running.add(task)
    task.add_done_callback(_ended)
    return task


def _ended(task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    # Whoever awaited it may be gone.
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, CoreUnavailable | ScriptDefect):
        log.error("a task failed", exc_info=error)


def serve(work: Coroutine[Any, Any, None], failed: Callable[[Exception], None]) -> asyncio.Task[None]:
    """Start what serves one peer; `failed` hears what has ended it, so that the peer can be told."""

    async def served() -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001  (whoever is told decides what it means)
            failed(error)

    task = start(served())
    # Nobody awaits it when the task is cancelled before it begins, and Python would warn of that.
    task.add_done_callback(lambda _task: work.close())
    return task


def keep_running(work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
    """Start what runs until it is cancelled: should it fail, it is logged and begins anew."""

    async def run() -> None:
        while True:
            try:
                await work()
            except Exception:
                log.exception("a task failed and begins anew")
            await asyncio.sleep(_PAUSE_SECONDS)

    return start(run())


class Tasks:
    """Tasks that are cancelled together."""

    def __init__(self) -> None:
        """Begin with none."""
        self._tasks: set[asyncio.Task[Any]] = set()

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        """Give those that are under way."""
        return iter(tuple(self._tasks))

    def __len__(self) -> int:
        """Count them."""
        return len(self._tasks)

    def background(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Run something that nobody waits for: what goes wrong is logged, and it never begins if it is cancelled before."""
        self._keep(start(_guarded(work)))

    def answer(self, work: Coroutine[Any, Any, Any], reply: Reply) -> None:
        """Answer with what a work comes to: once, whatever becomes of it."""
        answer = Answer(reply)
        task = start(_answered(work, answer))
        self._keep(task)
        task.add_done_callback(partial(_given_up, work, answer))

    def cancel(self) -> None:
        """Cancel all; who waits for an answer is told as soon as the event loop turns."""
        for task in self:
            task.cancel()

    def _keep(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _guarded(work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    try:
        await work()
    except CoreUnavailable as error:
        log.warning("background work put off", error=str(error))
    except Exception:
        log.exception("background work failed")


async def _answered(work: Coroutine[Any, Any, Any], answer: Answer) -> None:
    try:
        outcome = await work
    except CoreUnavailable as error:
        outcome = Refused(error.problem, error.detail)
    except Exception:
        log.exception("a command failed")
        outcome = FAILED
    answer(outcome)


def _given_up(work: Coroutine[Any, Any, Any], answer: Answer, _task: asyncio.Task[None]) -> None:
    # One that is cancelled before it begins has never awaited its work, and Python would warn of that.
    work.close()
    answer(STOPPED)
