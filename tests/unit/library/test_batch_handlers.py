"""Handlers that take a list of jobs: what is in a batch, when it begins, and how each of its jobs ends."""

import asyncio
import functools
import gc
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from stanzaq import CallNext, Job, Reject, Retry, StanzaqError, Task, Worker
from stanzaq.logs import current
from stanzaq.retry import Release
from stanzaq.testing import TestBroker
from stanzaq.transport.gatherer import Gatherer
from stanzaq.transport.interface import Content, Lock, Outgoing
from tests.references import uncollected
from tests.unit.library.test_runs import Service, delivery, runs, until


def worker(concurrency: int = 10) -> Worker:
    """Make a worker."""
    return Worker("xmpp://worker@example.org", password="x", concurrency=concurrency)


async def nothing(_jobs: list[Job[Any]]) -> None:
    """Succeed."""


def batching(service: Service, handler: Callable[[list[Job[Any]]], Any], **more: Any) -> Any:  # noqa: ANN401
    """Make the runs of a worker with a handler of batches."""
    return runs(service, handler, **{"batch": 3, "wait": 0.01, **more})


def deliver(played: Any, *items: str) -> None:  # noqa: ANN401
    """Deliver items, whose payloads are their ids."""
    for item in items:
        played.deliver(delivery(item, body=f'"{item}"'.encode()))


async def test_how_many_and_when() -> None:
    """A full batch begins at once, another one when the time since its first job is over; none has more than run at once."""
    service, seen = Service(), []

    async def handler(jobs: list[Job[str]]) -> None:
        seen.append([job.payload for job in jobs])
        await asyncio.sleep(0)

    played = batching(service, handler, batch=3, wait=0.05)
    deliver(played, *"abcdefgh")
    await until(lambda: len(service.told) == 8)
    assert seen == [["a", "b", "c"], ["d", "e", "f"], ["g", "h"]]
    assert {told for told, _ in service.told} == {"acknowledged"}
    seen.clear()
    small = batching(service, handler, batch=100, wait=3600, concurrency=2)
    deliver(small, *"ijkl")
    await until(lambda: len(service.told) == 12)
    assert seen == [["i", "j"], ["k", "l"]]


async def test_one_of_them_fails() -> None:
    """A handler that fails loses nothing: all that has no end of its own is tried again, what is done is done."""
    made, seen = worker(), []

    @made.task("jobs", retry=Retry(2, delay=0), batch=6, wait="1s", never_retry=[KeyError])
    async def _jobs(jobs: list[Job[str]]) -> None:
        seen.append(sorted(job.payload for job in jobs))
        for job in jobs:
            match job.payload:
                case "done":
                    job.complete()
                case "rejected":
                    job.fail(Reject("no such picture"))
                    job.complete()
                case "never":
                    job.fail(KeyError("never"))
                case "later":
                    job.fail(Retry(delay="1h"))
        if len(seen) == 1:
            raise ValueError

    async with TestBroker(made) as broker:
        for payload in ("done", "rejected", "never", "later", "one", "two"):
            await broker.publish("jobs", payload, id=payload)
        await broker.drain()
        dead = {letter.id: letter.reason for letter in await broker.dead("jobs")}
    assert seen == [["done", "later", "never", "one", "rejected", "two"], ["one", "two"], ["later"]]
    assert dead == {
        "rejected": "no such picture",
        "never": "not retried: KeyError: 'never'",
        "later": "attempt 2 of 2 failed: Retry: again after 3600 s",
    }


async def test_one_request() -> None:
    """The acknowledgements of a batch share a request, also if its jobs have waited apart."""
    requests: list[list[str]] = []

    class Told:
        refusals: Mapping[str, Any] = MappingProxyType({})

    async def send(_node: str, rows: Mapping[str, str]) -> Told:
        requests.append(list(rows))
        return Told()

    class Gathering(Service):
        async def acknowledge(
            self,
            lock: Lock,
            result: Content | None = None,  # noqa: ARG002
            then: Sequence[Outgoing] = (),  # noqa: ARG002
        ) -> bool:
            return await gatherer.ask(lock.node, lock.item, lock.item, "acknowledge") is not None

    gatherer = Gatherer(send)
    played = batching(Gathering(), nothing, batch=3, wait=60)
    for item in "abc":
        deliver(played, item)
        await asyncio.sleep(0.01)
    await until(lambda: not played.locks("jobs"))
    assert requests == [["a", "b", "c"]]


@pytest.mark.parametrize(
    "fault", [ValueError("x"), Reject("x"), Retry(delay="1h"), SystemExit(3), asyncio.CancelledError()]
)
async def test_all_fail(fault: BaseException) -> None:
    """What a handler raises is the end of each of its jobs."""
    service = Service()

    async def handler(_jobs: list[Job[Any]]) -> None:
        raise fault

    deliver(batching(service, handler), *"abc")
    await until(lambda: len(service.told) == 3)
    assert {item for item, _ in service.told} == set("abc") and len({told for _, told in service.told}) == 1


async def test_a_payload_of_another_type() -> None:
    """One that is not what the handler takes is a dead letter alone, and the handler gets the others."""
    made, seen = worker(), list[int]()

    @made.task("jobs")
    async def _jobs(jobs: list[Job[dict[str, int]]]) -> None:
        seen.extend(job.payload["a"] for job in jobs)

    async with TestBroker(made) as broker:
        for number in (1, "two", 3):
            await broker.publish("jobs", {"a": number}, id=f"{number}")
        await broker.drain()
        (letter,) = await broker.dead("jobs")
    assert sorted(seen) == [1, 3] and letter.id == "two" and "no dict" in letter.reason


async def test_results() -> None:
    """Who asked for a result gets that of its own job; what the handler itself returns is nobody's."""
    made = worker()

    @made.task("jobs", batch=10, wait="20ms")
    async def _jobs(jobs: list[Job[int]]) -> list[int]:
        for job in jobs:
            if job.payload:
                job.complete(2 * job.payload)
            else:
                job.fail(Reject("zero"))
        return [1]

    async with TestBroker(made) as broker:
        four, zero = [await broker.publish("jobs", n, reply=True) for n in (2, 0)]
        await broker.drain()
        assert await four.result(timeout="30s") == 4
        with pytest.raises(StanzaqError, match="zero"):
            await zero.result(timeout="30s")


async def test_middleware_surrounds_each_job() -> None:
    """Each job of a batch has its own middleware, and the handler's logs are of no single job."""
    made, seen = worker(), list[Any]()

    @made.middleware
    async def noted(job: Job[Any], call_next: CallNext) -> None:
        seen.append(job.id)
        await call_next(job)
        seen.append(job.id)

    @made.task("jobs")
    async def _jobs(jobs: list[Job[Any]]) -> None:
        seen.append(current.get())
        assert jobs[0].state is None
        await jobs[0].progress(0.5)

    async with TestBroker(made) as broker:
        for item in "ab":
            await broker.publish("jobs", {}, id=item)
        await broker.drain(raises=True)
    assert sorted(map(str, seen)) == sorted([*"aabb", "{'node': 'jobs'}"])


async def test_documentation() -> None:
    """The handler of batches in library.md does what is said of it."""
    page = (Path(__file__).parents[3] / "docs" / "library.md").read_text()
    names: dict[str, Any] = {}
    exec(re.findall(r"```python\n# readings.py\n(.*?)```", page, re.DOTALL)[0], names)  # noqa: S102
    async with TestBroker(names["worker"]) as broker:
        for item, payload in (("one", {"celsius": 20.5}), ("two", {"kelvin": 3}), ("three", "hot")):
            await broker.publish("readings", payload, id=item)
        await broker.drain()
        dead = {letter.id: letter.reason for letter in await broker.dead("readings")}
    assert names["rows"] == [("one", 20.5)]
    assert dead["two"] == "no temperature" and "no dict" in dead["three"]


def in_thread(jobs: list[Job[str]]) -> None:
    """Run elsewhere than in the loop."""
    with open(jobs[0].headers["file"], "a") as file:  # noqa: PTH123
        file.write("".join(sorted(job.payload for job in jobs)) + f" {os.getpid()}\n")


@pytest.mark.parametrize("run_in", ["thread", "process"])
async def test_elsewhere(run_in: Any, tmp_path: Any) -> None:  # noqa: ANN401
    """Functions that take a list run in threads and processes as well; a process has run as many jobs as it got."""
    made = worker()
    more: Any = {"max_jobs_per_process": 2} if run_in == "process" else {}
    made.task("jobs", run_in=run_in, batch=2, wait="5s", **more)(in_thread)
    file = tmp_path / "file"
    async with TestBroker(made) as broker:
        for item in "abcd":
            await broker.publish("jobs", item, headers={"file": str(file)})
        await broker.drain(raises=True)
        assert await broker.dead("jobs") == []
    lines = [line.split() for line in file.read_text().splitlines()]
    assert sorted("".join(jobs for jobs, _ in lines)) == list("abcd") and len(lines) == 2
    assert len({pid for _, pid in lines}) == (2 if run_in == "process" else 1)


async def test_marks_from_a_thread() -> None:
    """A handler in a thread ends its jobs one by one as well."""
    service = Service()

    def handler(jobs: list[Job[str]]) -> None:
        jobs[1].fail(Reject("no"))
        time.sleep(0.01)
        raise ValueError

    deliver(batching(service, handler), *"abc")
    await until(lambda: len(service.told) == 3)
    fault = Release("ValueError: ", 2.0)
    assert dict(service.told) == {"a": fault, "b": Release("no", dead=True), "c": fault}


async def test_locks_are_renewed() -> None:
    """The locks of all are renewed while the batch waits, and while it runs."""
    service, go_on = Service(lasts=0.2), asyncio.Event()

    async def handler(_jobs: list[Job[Any]]) -> None:
        await go_on.wait()

    played = batching(service, handler, wait=0.5)
    deliver(played, *"ab")
    await until(lambda: {("renewed", "a"), ("renewed", "b")} <= set(service.told))
    await until(lambda: {("begun", "a"), ("begun", "b")} <= set(service.told))
    go_on.set()
    await until(lambda: {("acknowledged", "a"), ("acknowledged", "b")} <= set(service.told))


async def test_a_lock_that_is_lost() -> None:
    """A job whose lock is lost leaves its batch, whose handler goes on; when it was the last one, the handler is cancelled."""
    service, began, cancelled = Service(), asyncio.Event(), []

    async def handler(jobs: list[Job[Any]]) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(len(jobs))
            await asyncio.sleep(0.01)
            raise

    played = batching(service, handler)
    deliver(played, *"abc")
    await began.wait()
    for item in "ab":
        played.lost(Lock("jobs", item, 1))
    await until(lambda: played.locks("jobs") == {Lock("jobs", "c", 1)})
    assert not cancelled
    played.lost(Lock("jobs", "c", 1))
    await until(lambda: not played.locks("jobs"))
    assert cancelled == [3] and not service.told
    # One that waits for others leaves no hole.
    late = batching(service, nothing, wait=0.05)
    deliver(late, *"de")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    late.lost(Lock("jobs", "d", 1))
    await until(lambda: service.told)
    assert service.told == [("acknowledged", "e")]


async def test_its_time() -> None:
    """The timeout is that of the whole batch; what was done by then is done."""
    service = Service()

    async def handler(jobs: list[Job[Any]]) -> None:
        jobs[0].complete()
        await asyncio.Event().wait()

    deliver(batching(service, handler, timeout=0.02), *"ab")
    await until(lambda: len(service.told) == 2)
    assert set(service.told) == {("acknowledged", "a"), ("b", Release("TimeoutError: not done in 0.02 s", 2.0))}


@pytest.mark.parametrize("begins", [True, False])
async def test_finish(*, begins: bool) -> None:
    """When the worker stops, a batch that waits is returned untried, one that runs has the grace."""
    service, began = Service(), asyncio.Event()

    async def handler(_jobs: list[Job[Any]]) -> None:
        began.set()
        await asyncio.Event().wait()

    played = batching(service, handler, wait=0 if begins else 3600)
    deliver(played, *"ab")
    if begins:
        await began.wait()
    else:
        await asyncio.sleep(0.01)
    await played.finish(0.01)
    end = Release("the worker stops", untried=not begins)
    assert sorted(service.told) == [("a", end), ("b", end)]
    played.close()
    await played.wait_closed()
    assert played.left == 0


async def test_closed() -> None:
    """Without a connection its handler is cancelled, and is waited for."""
    service, began, ended = Service(), asyncio.Event(), []

    async def handler(_jobs: list[Job[Any]]) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            ended.append(1)

    played = batching(service, handler, wait=0)
    deliver(played, *"ab")
    await began.wait()
    played.close()
    await played.wait_closed()
    assert ended == [1] and played.left == 0 and not service.told


@pytest.mark.parametrize("how", ["returns", "raises", "fails", "thread", "timeout", "lost", "waits"])
async def test_no_payload_is_kept(how: str) -> None:
    """Guarantee 6: nothing keeps a payload once its job is over, not even until Python collects garbage."""
    service, began = Service(), asyncio.Event()

    async def handler(jobs: list[Job[bytes]]) -> None:
        began.set()
        match how:
            case "lost" | "timeout":
                await asyncio.Event().wait()
            case "fails":
                jobs[0].fail(ValueError("x"))
            case "raises":
                raise ValueError

    def function(_jobs: list[Job[bytes]]) -> None:
        raise ValueError

    more = {"wait": 3600 if how == "waits" else 0, "timeout": 0.01 if how == "timeout" else None}
    played = batching(service, function if how == "thread" else handler, payload=bytes, **more)
    body = bytes(1_000)
    held = sys.getrefcount(body)
    gc.collect()
    with uncollected():
        for item in "ab":
            played.deliver(delivery(item, body=body))
        if how in {"lost", "waits"}:
            await (began.wait() if how == "lost" else asyncio.sleep(0.01))
            for item in "ab":
                played.lost(Lock("jobs", item, 1))
        await until(lambda: sys.getrefcount(body) == held)
    played.close()
    await played.wait_closed()


async def test_ends_of_single_jobs() -> None:
    """A job that is in no batch, or in another process, says how it ends; what is no exception is none."""
    service, said = Service(), []

    async def handler(job: Job[Any]) -> None:
        for each in (job.complete, functools.partial(job.fail, ValueError("x")), job.apart().complete):
            with pytest.raises(RuntimeError, match="only a handler of batches") as refused:
                each()
            said.append(str(refused.value))
        with pytest.raises(TypeError, match=r"job.fail\(<class 'ValueError'>\): give an exception, such as Reject"):
            job.fail(ValueError)  # type: ignore[arg-type]

    runs(service, handler).deliver(delivery())
    await until(lambda: service.told)
    assert service.told == [("acknowledged", "one")] and len(said) == 3


def _one(_job: Job[Any]) -> None:
    """Take one job."""


def _bare(_jobs: list) -> None:  # type: ignore[type-arg]
    """Take a list of anything."""


def _unannotated(_jobs):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Say nothing."""


def test_recognised() -> None:
    """The annotation says that a handler takes batches, or `batch` or `wait` do where there is none."""

    async def typed(_jobs: list[Job[int]]) -> None:
        """Take numbers."""

    def found(handler: Any, **more: Any) -> tuple[Any, int, float]:  # noqa: ANN401
        made = worker()
        made.task("jobs", **more)(handler)
        task = made._tasks["jobs", ""]
        return task.payload, task.batch, task.wait

    assert found(typed) == (int, 100, 0.05)
    assert found(typed, batch=7, wait="1s") == (int, 7, 1.0)
    assert found(nothing, wait=0) == found(_bare, wait=0) == (Any, 100, 0.0)
    assert found(_unannotated, batch=3) == found(_unannotated, batch=3, wait="50ms") == (Any, 3, 0.05)
    assert found(_unannotated) == found(_one) == (Any, 0, 0.0)


def _numbers(_numbers: list[int]) -> None:
    """Take no jobs."""


@pytest.mark.parametrize(
    ("handler", "kind", "more", "said"),
    [
        (
            _one,
            TypeError,
            {"batch": 3},
            r"batch= and wait= for _one, which takes one job: annotate its parameter as list\[Job",
        ),
        (_one, TypeError, {"wait": "1s"}, "batch= and wait= for _one, which takes one job"),
        (_bare, TypeError, {"batch": "3"}, "batch='3' for _bare: write a number of jobs"),
        (_bare, TypeError, {"batch": True}, "batch=True for _bare: write a number of jobs"),
        (_bare, ValueError, {"batch": 0}, "batch=0 for _bare: a batch has 1 to 1000 jobs"),
        (_bare, ValueError, {"batch": 1001}, "batch=1001 for _bare: a batch has 1 to 1000 jobs"),
        (_bare, ValueError, {"wait": "soon"}, "'soon' is no length of time"),
        (_bare, ValueError, {"wait": -1}, "-1 is no length of time"),
        (
            _numbers,
            TypeError,
            {},
            r"_numbers takes list\[int\]: annotate its parameter as Job\[…\], or as list\[Job\[…\]\]",
        ),
    ],
)
def test_refused(handler: Any, kind: type[Exception], more: dict[str, Any], said: str) -> None:  # noqa: ANN401
    """What makes no sense is refused when the handler is registered, in one sentence."""
    with pytest.raises(kind, match=said) as refused:
        worker().task("jobs", **more)(handler)
    assert "\n" not in str(refused.value)


async def test_task_of_batches() -> None:
    """A task whose handler takes a list sends single payloads, also from its own handler and from that of a declared one."""
    app, got = worker(), list[list[int]]()

    @app.task("numbers", name="add", batch=2, wait=0.01)
    async def add(jobs: list[Job[int]]) -> None:
        got.append([job.payload for job in jobs])
        for job in jobs:
            job.complete(job.payload + 1)
        if jobs[0].payload == 1:
            await Task[int, int]("numbers", "add").send(7)

    async with TestBroker(app) as broker:
        assert await add.call(1) == 2
        await broker.drain()
        await add.send_many([3, 4])
        with pytest.raises(TypeError, match="numbers"):
            await add.send("five")  # type: ignore[arg-type]
        await broker.publish("numbers", 6)
        await broker.drain()
        (dead,) = await broker.dead("numbers")
    assert sorted(payload for batch in got for payload in batch) == [1, 3, 4, 7]
    assert "no task without a name" in dead.reason
