"""A registration: the function that processes the items of one node, and its settings. Must not know who calls it, nor how."""

import functools
import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final, Literal, get_origin

from stanzaq import payloads
from stanzaq.durations import Duration, seconds
from stanzaq.job import Job
from stanzaq.retry import ALL_KINDS, Kinds, Reject, Retry
from stanzaq.worker.dependencies import inject
from stanzaq.worker.hooks import NO_HOOKS, Hooks

RunIn = Literal["loop", "thread", "process"]
Handler = Callable[[Job[Any]], Any] | Callable[[list[Job[Any]]], Any]
"""Its job has ended once what it returns, if that can be awaited, has been awaited."""

MOST_JOBS: Final = 1_000
"""The most items that a worker holds at once."""

_BATCH: Final = 100
_WAIT_SECONDS: Final = 0.05

Classes = Collection[type[Exception]]


@dataclass(frozen=True, slots=True)
class Registration:
    """The handler of a node's items, or of those that bear the `name`, and its settings; `timeout` is in seconds or None.

    One that takes a list gets up to `batch` jobs, `wait` seconds after the first one at the latest; otherwise `batch` is 0.
    """

    node: str
    handler: Handler
    payload: Any
    retry: Retry
    timeout: float | None
    run_in: RunIn
    kinds: Kinds = ALL_KINDS
    max_jobs_per_process: int | None = None
    batch: int = 0
    wait: float = 0.0
    name: str = ""
    hooks: Hooks = NO_HOOKS
    """Those of the routers that it comes from."""

    @classmethod
    def make(  # noqa: PLR0913  (what users may say)
        cls,
        node: str,
        handler: Handler,
        *,
        retry: Retry | None,
        timeout: Duration | None,
        run_in: RunIn | None,
        retry_on: Classes | None,
        never_retry: Classes,
        max_jobs_per_process: int | None,
        batch: int | None,
        wait: Duration | None,
    ) -> "Registration":
        """Check what a user registers; raises TypeError or ValueError with the handler's name and what to write."""
        name = name_of(handler)
        if inspect.isclass(handler) or not callable(handler):
            msg = f"{name} is no handler: a handler is a function that takes a job"
            raise TypeError(msg)
        call = _called(handler)
        if inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call):
            msg = f"{name} is a generator, which would return before its work begins: write it without `yield`"
            raise TypeError(msg)
        handler = inject(handler, name)
        policy: object = Retry() if retry is None else retry
        if not isinstance(policy, Retry):
            msg = f"retry={retry!r} for {name}: write retry=Retry(attempts=3)"
            raise TypeError(msg)
        limit = None if timeout is None else seconds(timeout)
        if limit == 0:
            msg = f"timeout={timeout!r} for {name}: no job ends at once; leave it out for no limit"
            raise ValueError(msg)
        where = choose_place(handler, run_in)
        only = None if retry_on is None else _check_classes("retry_on", retry_on, name)
        most = _check_most_jobs(max_jobs_per_process, where, name)
        kinds = Kinds(only, _check_classes("never_retry", never_retry, name))
        payload = payloads.payload_type(handler, name)
        return cls(node, handler, payload, policy, limit, where, kinds, most, *_read_batch(handler, name, batch, wait))


def name_of(handler: Any) -> str:  # noqa: ANN401  (whatever a user registers)
    """Return the name of a handler for people."""
    inner = _without_arguments(handler)
    return str(getattr(inner, "__qualname__", None) or type(inner).__name__)


def choose_place(handler: Handler, run_in: RunIn | None) -> RunIn:
    """Decide where a handler runs: by default coroutines in the loop, plain functions in threads. Raises TypeError."""
    is_coroutine = inspect.iscoroutinefunction(_called(handler))
    if run_in is None:
        return "loop" if is_coroutine else "thread"
    if run_in not in {"loop", "thread", "process"}:
        msg = f"run_in={run_in!r} for {name_of(handler)}: it is 'loop', 'thread' or 'process'"
        raise TypeError(msg)
    if is_coroutine != (run_in == "loop"):
        kind = "coroutines run in the loop" if is_coroutine else "only coroutines run in the loop: write `async def`"
        msg = f"run_in={run_in!r} for {name_of(handler)}: {kind}"
        raise TypeError(msg)
    if run_in == "process" and (local := _local_part(handler)):
        msg = (
            f"run_in='process' for {name_of(handler)}: {local} cannot be imported in another process:"
            " write a function at the top level of a module"
        )
        raise TypeError(msg)
    return run_in


def _check_classes(option: str, given: object, name: str) -> tuple[type[Exception], ...]:
    """Check the exceptions that an option of a handler names; raises TypeError."""
    classes = tuple(given) if isinstance(given, (tuple, list, set, frozenset)) else (given,)
    wrong = [each for each in classes if not (inspect.isclass(each) and issubclass(each, Exception))]
    if wrong or classes == (given,):
        msg = f"{option}={given!r} for {name}: it takes classes of exceptions: write {option}=(TimeoutError,)"
        raise TypeError(msg)
    if own := [each.__name__ for each in classes if issubclass(each, (Retry, Reject))]:
        msg = f"{option} for {name} names {own[0]}, which says itself what becomes of the item: leave it out"
        raise TypeError(msg)
    return classes


def _read_batch(handler: Handler, name: str, batch: int | None, wait: Duration | None) -> tuple[int, float]:
    """Return how many jobs a handler gets at once, and the seconds until then; 0 and 0 if one. Raises TypeError or ValueError."""
    hint = payloads.read_parameter(handler, name)
    takes_list = hint is list or get_origin(hint) is list
    if batch is None and wait is None and not takes_list:
        return 0, 0.0
    if not takes_list and hint is not Any:
        msg = f"batch= and wait= for {name}, which takes one job: annotate its parameter as list[Job[…]]"
        raise TypeError(msg)
    most = _BATCH if batch is None else batch
    if type(most) is not int:
        msg = f"batch={batch!r} for {name}: write a number of jobs"
        raise TypeError(msg)
    if not 1 <= most <= MOST_JOBS:
        msg = f"batch={batch} for {name}: a batch has 1 to {MOST_JOBS} jobs"
        raise ValueError(msg)
    return most, _WAIT_SECONDS if wait is None else seconds(wait)


def _check_most_jobs(most: int | None, where: RunIn, name: str) -> int | None:
    """Check after how many jobs a process ends; raises TypeError or ValueError."""
    if most is None:
        return None
    told = f"max_jobs_per_process={most!r} for {name}"
    if type(most) is not int:
        msg = f"{told}: write a number of jobs"
        raise TypeError(msg)
    if most < 1:
        msg = f"{told}: a process runs at least one job"
        raise ValueError(msg)
    if where != "process":
        msg = f"{told}: write run_in='process' as well"
        raise TypeError(msg)
    return most


def _without_arguments(handler: Any) -> Any:  # noqa: ANN401
    while isinstance(handler, functools.partial):
        handler = handler.func
    return handler


def _called(handler: Any) -> Any:  # noqa: ANN401
    """Return the function that a call runs first. What a decorator hides shows when it returns."""
    inner = _without_arguments(handler)
    return inner if inspect.isroutine(inner) else type(inner).__call__


def _local_part(handler: Any) -> str:  # noqa: ANN401
    """Return the name of what is defined inside a function, and so unknown elsewhere; empty if nothing is."""
    inner = _without_arguments(handler)
    named = inner if inspect.isroutine(inner) else type(inner)
    name = str(getattr(named, "__qualname__", ""))
    return name if "<" in name else ""
