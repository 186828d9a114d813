"""Handlers of every kind: which are refused when they are registered, and when the work of the others has ended."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from stanzaq import Job, Reject, Retry, StanzaqError, Worker
from stanzaq.retry import Release
from stanzaq.testing import TestBroker
from tests.unit.library.test_runs import Service, delivery, in_process, runs, until
from tests.waiting import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping

    from nowhere import Result  # type: ignore[import-not-found]  # what only type checkers know

    from stanzaq.transport.interface import Prepare, Receiver


def worker() -> Worker:
    """Make a worker."""
    return Worker("xmpp://worker@example.org", password="x", concurrency=2)


class Work:
    """Work that ends when it is let go on."""

    def __init__(self) -> None:
        """Begin with none done."""
        self.go_on = asyncio.Event()
        self.done: list[str] = []

    async def do(self, job: Job[Any], more: str = "") -> str:
        """Do it."""
        await self.go_on.wait()
        self.done.append(job.id)
        return f"{job.id}{more}"


class _Awaitable:
    def __init__(self, work: Awaitable[str]) -> None:
        self._work = work

    def __await__(self) -> Any:  # noqa: ANN401
        return self._work.__await__()


def _kinds(work: Work) -> dict[str, Callable[[Job[Any]], Any]]:
    """Return handlers that begin the work in all ways that Python has."""
    loop = asyncio.get_running_loop()

    def undecorated(function: Callable[..., Any]) -> Callable[..., Any]:
        def inner(*arguments: Any) -> Any:  # noqa: ANN401
            return function(*arguments)

        return inner

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        return functools.wraps(function)(undecorated(function))

    async def forgets_await(job: Job[Any]) -> Any:  # noqa: ANN401
        return work.do(job)

    def future(job: Job[Any]) -> asyncio.Future[str]:
        ended = loop.create_future()
        loop.call_soon_threadsafe(lambda: loop.create_task(work.do(job)).add_done_callback(ended.set_result))
        return ended

    def pooled(job: Job[Any]) -> Future[str]:
        return asyncio.run_coroutine_threadsafe(work.do(job), loop)

    def plain(job: Job[Any]) -> Any:  # noqa: ANN401
        return pooled(job).result()

    class Callable_:  # noqa: N801
        async def __call__(self, job: Job[Any]) -> str:
            return await work.do(job)

    class Plain:
        def __call__(self, job: Job[Any]) -> Any:  # noqa: ANN401
            return work.do(job)

    return {
        "coroutine": work.do,
        "partial": functools.partial(work.do, more="!"),
        "partial of a partial": functools.partial(functools.partial(forgets_await)),
        "decorated": decorated(work.do),
        "decorated without wraps": undecorated(work.do),
        "lambda": lambda job: work.do(job),  # noqa: PLW0108
        "awaitable": lambda job: _Awaitable(work.do(job)),
        "forgets await": forgets_await,
        "future": future,
        "future of a thread": pooled,
        "plain": plain,
        "object": Callable_(),
        "plain object": Plain(),
    }


KINDS = (
    *("coroutine", "partial", "partial of a partial", "decorated", "decorated without wraps", "lambda", "awaitable"),
    *("forgets await", "future", "future of a thread", "plain", "object", "plain object"),
)


@pytest.mark.parametrize("kind", KINDS)
async def test_nothing_is_acknowledged_before_its_work_has_ended(kind: str) -> None:
    """A handler may hide its work as it likes: its item counts as done once that has ended, and has its result."""
    service, work = Service(), Work()
    kinds = _kinds(work)
    assert tuple(kinds) == KINDS
    played = runs(service, kinds[kind])
    played.deliver(delivery())
    # Its work waits, however long: what would be acknowledged at once is by then.
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert not service.told and not work.done
    work.go_on.set()
    await until(lambda: service.told)
    assert work.done == ["one"] and service.told[0][0] == "one"
    played.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_in_a_test_broker(kind: str) -> None:
    """`TestBroker` waits for the same."""
    made, work = worker(), Work()
    made.task("jobs")(_kinds(work)[kind])
    async with TestBroker(made) as broker:
        await broker.publish("jobs", {}, id="one")
        work.go_on.set()
        await broker.drain(raises=True)
    assert work.done == ["one"]


async def test_a_future_of_another_loop() -> None:
    """A future is awaited where it belongs; one whose loop does not run fails its job."""
    service, other = Service(), asyncio.new_event_loop()
    thread = threading.Thread(target=other.run_forever)
    futures = {"runs": other.create_future(), "stands": asyncio.new_event_loop().create_future()}

    def handler(job: Job[Any]) -> Any:  # noqa: ANN401
        return futures[job.id]

    thread.start()
    played = runs(service, handler)
    played.deliver(delivery("runs"))
    other.call_soon_threadsafe(futures["runs"].set_result, 3)
    await until(lambda: service.told)
    played.deliver(delivery("stands"))
    await until(lambda: len(service.told) == 2)
    other.call_soon_threadsafe(other.stop)
    thread.join()
    other.close()
    futures["stands"].get_loop().close()
    assert service.told[0][1].body == b"3"
    reason = "RuntimeError: the handler returned a future of an event loop that does not run"
    assert service.told[1] == ("stands", Release(reason, 2.0))
    played.close()


async def _counts() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("returned", "name"),
    [
        (lambda: (number for number in range(3)), "generator"),
        (_counts, "async_generator"),
        (lambda: map(print, [1]), "map"),
    ],
)
async def test_work_that_has_not_begun(returned: Callable[[], Any], name: str) -> None:
    """An iterator that a handler returns has done nothing yet: that is a failure, and no end."""
    service = Service()

    async def handler(_job: Job[Any]) -> Any:  # noqa: ANN401
        return returned()

    runs(service, handler).deliver(delivery())
    await until(lambda: service.told)
    reason = f"TypeError: the handler returned a {name}, whose work has not begun: return a list"
    assert service.told == [("one", Release(reason, 2.0))]


@pytest.mark.parametrize("how", ["returned", "dropped"])
async def test_middleware_that_does_not_wait(how: str) -> None:
    """Middleware that calls the handler and does not await it has not ended its job."""
    made, ran = worker(), []

    @made.middleware
    async def hasty(job: Job[Any], call_next: Callable[[Job[Any]], Any]) -> Any:  # noqa: ANN401
        called = call_next(job)
        return called if how == "returned" else None

    @made.task("jobs", retry=Retry(attempts=1))
    async def handler(job: Job[Any]) -> None:
        ran.append(job.id)

    async with TestBroker(made) as broker:
        await broker.publish("jobs", {}, id="one")
        await broker.drain()
        (letter,) = await broker.dead("jobs")
    assert "the middleware has returned before the job ended: write `await call_next(job)`" in letter.reason
    assert not ran


def _generator(_job: Job[Any]) -> Iterator[int]:
    yield 1


async def _async_generator(_job: Job[Any]) -> AsyncIterator[int]:
    yield 1


def _plain(_job: Job[Any]) -> None:
    """Do nothing."""


def _result(_job: Job[Any]) -> Result:
    """Return what only type checkers know."""


def _unknown(_job: Job[Unknown]) -> None:  # type: ignore[name-defined]  # noqa: F821
    """Take what nobody knows."""


def _two(_job: Job[Any], _other: int) -> None:
    """Take too much."""


def _hidden(_job: Job[Any]) -> None:
    """Have a name that something else has now."""


_shadowed = _hidden
_hidden = _plain


def _local() -> Callable[[Job[Any]], None]:
    def inner(_job: Job[Any]) -> None:
        """Cannot be imported."""

    return inner


class _Class:
    def __init__(self, job: Job[Any]) -> None:
        """Look like a handler."""


@pytest.mark.parametrize(
    ("handler", "more", "said"),
    [
        (_generator, {}, "_generator is a generator, which would return before its work begins"),
        (_async_generator, {}, "_async_generator is a generator"),
        (functools.partial(_generator), {}, "_generator is a generator"),
        (_Class, {}, "_Class is no handler: a handler is a function that takes a job"),
        (3, {}, "int is no handler"),
        (None, {}, "NoneType is no handler"),
        (_two, {}, "_two takes 2 arguments: a handler takes one, the job"),
        (_plain, {"retry": 3}, r"retry=3 for _plain: write retry=Retry\(attempts=3\)"),
        (_plain, {"retry": Retry}, r"for _plain: write retry=Retry\(attempts=3\)"),
        (_plain, {"run_in": "core"}, "run_in='core' for _plain: it is 'loop', 'thread' or 'process'"),
        (_plain, {"run_in": "loop"}, "only coroutines run in the loop: write `async def`"),
        (_local(), {"run_in": "process"}, "_local.<locals>.inner cannot be imported in another process: write a function"),
        (lambda _job: None, {"run_in": "process"}, "<lambda> cannot be imported in another process"),
        (functools.partial(_local()), {"run_in": "process"}, "inner cannot be imported in another process"),
        (_unknown, {}, "_unknown has an annotation that cannot be read .name 'Unknown' is not defined.: import or define"),
        (_result, {}, "_result has an annotation that cannot be read .name 'Result' is not defined.: import or define"),
    ],
)  # fmt: skip
def test_refused(handler: Any, more: dict[str, Any], said: str) -> None:  # noqa: ANN401
    """What cannot work is refused when it is registered, in one sentence with the handler's name and what to write."""
    with pytest.raises(TypeError, match=said) as refused:
        worker().task("jobs", **more)(handler)
    assert "\n" not in str(refused.value)


def test_a_decorator_without_a_node() -> None:
    """`@worker.task` without the node's name would register nothing."""
    with pytest.raises(TypeError, match=r'write @worker.task\("NODE"\) above the function'):
        worker().task(_plain)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="timeout='0s' for _plain: no job ends at once"):
        worker().task("jobs", timeout="0s")(_plain)


def test_the_payload_of_a_partial() -> None:
    """A partial has the payload type of its function."""

    async def handler(job: Job[int], factor: int) -> None:
        """Take an argument more."""

    made = worker()
    made.task("jobs")(functools.partial(handler, factor=2))
    assert made._tasks["jobs", ""].payload is int


async def test_the_policy_decides_before_the_handler_runs() -> None:
    """`Retry(attempts=2)` means two, also when attempts have ended without a word: the third one does not begin."""
    service, ran = Service(), []

    async def handler(job: Job[Any]) -> None:
        ran.append(job.attempt)

    played = runs(service, handler, retry=Retry(attempts=2))
    for attempt in (1, 2, 3):
        played.deliver(delivery(attempt=attempt, token=attempt))
        await until(lambda: len(service.told) == attempt)  # noqa: B023
    reason = "attempt 3 of 2: the earlier ones ended without a word of the worker"
    assert ran == [1, 2] and service.told[-1] == ("one", Release(reason, dead=True))


async def test_no_traceback_for_what_is_asked(caplog: pytest.LogCaptureFixture) -> None:
    """A retry or a rejection that the handler asks for is no fault: its line has no traceback, another one's has."""
    service, faults = Service(), iter([Retry(delay="1s"), Reject("no"), ValueError("broken")])

    async def handler(_job: Job[Any]) -> None:
        raise next(faults)

    played = runs(service, handler)
    for token in (1, 2, 3):
        played.deliver(delivery(token=token))
        await until(lambda: len(service.told) == token)  # noqa: B023
    records = [record for record in caplog.records if "job failed" in record.message]
    assert [bool(record.exc_info) for record in records] == [False, False, True]


async def test_what_has_begun_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that has run for a while is told to have begun, once and alone; a short one costs no request."""
    monkeypatch.setattr("stanzaq.worker.runs._TOLD_SECONDS", 0.02)
    service, go_on = Service(), asyncio.Event()

    async def handler(job: Job[Any]) -> None:
        if job.id == "tells":
            await job.progress(0.5)
        if job.id != "short":
            await go_on.wait()

    played = runs(service, handler, concurrency=2)
    for item in ("short", "long", "tells", "waits"):
        played.deliver(delivery(item))
    await until(lambda: ("begun", "long") in service.told)
    await asyncio.sleep(0.05)
    go_on.set()
    await until(lambda: not played.locks("jobs"))
    assert [told for told, _ in service.told].count("begun") == 1
    assert "renewed" not in dict(service.told)


async def test_stopped_while_it_waits_for_a_place() -> None:
    """A job whose thread is not free yet has not begun: the stop of its worker costs it nothing."""
    service, go_on = Service(), threading.Event()

    def handler(_job: Job[Any]) -> None:
        go_on.wait(30)

    played = runs(service, handler, concurrency=1, timeout=0.05)
    for item in ("stuck", "waits"):
        played.deliver(delivery(item))
    await until(lambda: service.told)
    await played.finish(0)
    go_on.set()
    assert service.told[-1] == ("waits", Release("the worker stops", untried=True))
    played.close()


async def test_what_arrives_while_the_worker_leaves() -> None:
    """An item that is on its way when an idle worker stops is returned before it disconnects, and has lost no attempt."""

    class Leaving(Service):
        async def pause(self) -> None:
            await asyncio.sleep(0)
            played.deliver(delivery("late"))

    service = Leaving()
    played = runs(service, _plain)
    await played.finish(0)
    assert service.told == [("late", Release("the worker stops", untried=True))]
    played.close()


async def test_nothing_begins_after_a_stop() -> None:
    """From the moment of the stop on no job begins, even if the loop hears of it later."""
    service, ran, going = Service(), [], asyncio.Event()

    async def handler(job: Job[Any]) -> None:
        ran.append(job.id)
        await going.wait()

    played = runs(service, handler, concurrency=1)
    for item in ("runs", "waits"):
        played.deliver(delivery(item))
    await until(lambda: ran)
    played.begin_no_more()
    going.set()
    await until(lambda: service.told)
    await asyncio.sleep(0.01)
    await played.finish(1)
    assert ran == ["runs"] and service.told == [
        ("acknowledged", "runs"),
        ("waits", Release("the worker stops", untried=True)),
    ]


def test_run_elsewhere_than_in_a_program() -> None:
    """`run` in a thread or a notebook says what to use instead."""
    made = worker()
    made.task("jobs")(_plain)

    async def notebook() -> None:
        made.run()

    with ThreadPoolExecutor(1) as pool:
        calls: tuple[Callable[[], None], ...] = (
            lambda: pool.submit(made.run).result(),
            lambda: asyncio.run(notebook()),
        )
        for call in calls:
            with pytest.raises(RuntimeError, match=r"use `await worker.serve\(\)` here"):
                call()


async def test_a_stop_before_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop that comes before `serve` has begun is kept; a worker serves once at a time, and may serve again."""
    made = worker()
    made.task("jobs")(_plain)
    monkeypatch.setattr("stanzaq.schemes.worker", lambda _account, **_: _Endless())
    made.stop()
    await asyncio.wait_for(made.serve(), PATIENCE_SECONDS)
    serving = asyncio.create_task(made.serve())
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="the worker runs already"):
        await made.serve()
    made.stop()
    await asyncio.wait_for(serving, PATIENCE_SECONDS)


@pytest.mark.parametrize(
    "fault", [OSError(28, "No space left on device"), NotImplementedError("no semaphores"), MemoryError()]
)
async def test_a_process_that_cannot_start(fault: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker whose handlers run in processes says at its start that none can be had; later its jobs go back untried."""

    class Broken:
        def __init__(self, *_more: Any) -> None:  # noqa: ANN401
            raise fault

    service, made = _Endless(), worker()
    played = runs(service, in_process, payload=str, run_in="process")
    monkeypatch.setattr("concurrent.futures.ProcessPoolExecutor", Broken)
    played.deliver(delivery(body=b'"fine"'))
    await until(lambda: service.told)
    ((_item, end),) = service.told
    assert end == Release(end.reason, 10.0, untried=True)
    assert end.reason.startswith("no process can be started for handlers (")
    played.close()
    made.task("jobs", run_in="process")(in_process)
    monkeypatch.setattr("stanzaq.schemes.worker", lambda _account, **_: service)
    with pytest.raises(StanzaqError, match="no process can be started for handlers"):
        await made.serve()


async def test_a_handler_that_another_process_cannot_import() -> None:
    """A worker whose program hides a handler's name says so at its start."""
    made = worker()
    made.task("jobs", run_in="process")(_shadowed)
    with pytest.raises(StanzaqError, match="_hidden: another process cannot import it"):
        await made._serve(_Endless(), made._hooks, 0)


async def test_two_workers_in_one_process() -> None:
    """Two workers in one loop, also with handlers in processes, run and stop alone."""
    served = []
    for _ in range(2):
        made, service = worker(), _Endless()
        made.task("jobs", run_in="process")(in_process)
        served.append((made, asyncio.create_task(made._serve(service, made._hooks, 0))))
    for made, task in served:
        await asyncio.sleep(0)
        assert not task.done()
        made.stop()
        await asyncio.wait_for(task, PATIENCE_SECONDS)


class _Endless(Service):
    async def run(self, receiver: Receiver, nodes: Mapping[str, int], prepare: Prepare) -> None:  # noqa: ARG002
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
