"""Runs of jobs with a simulated service: what is renewed, cancelled, acknowledged and released, and when."""

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from xml.etree.ElementTree import Element

import pytest

from stanzaq.errors import StanzaqError
from stanzaq.job import Job
from stanzaq.payloads import BYTES, JSON, XML
from stanzaq.retry import Reject, Release, Retry
from stanzaq.transport.interface import Content, Delivery, Hints, Lock, Outgoing, Prepare, Progress, Receiver
from stanzaq.worker.registration import Handler, Registration, choose_place
from stanzaq.worker.runs import Runs
from tests.references import uncollected
from tests.waiting import PATIENCE_SECONDS

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""The service's clock is far from ours."""

ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


@dataclass
class Service:
    """Records its requests; locks that are in `gone` have ended."""

    lasts: float = 60.0
    told: list[tuple[str, Any]] = field(default_factory=list)
    gone: set[Lock] = field(default_factory=set)
    broken: bool = False
    silent: bool = False
    timeless: bool = False
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    async def run(self, receiver: Receiver, nodes: Mapping[str, int], prepare: Prepare) -> None:
        """Play no part here."""

    async def acknowledge(self, lock: Lock, result: Content | None = None, then: Sequence[Outgoing] = ()) -> bool:
        """Note it; refuse a result of XML, and items for a node that is closed."""
        if refused := {"closed": "not-acceptable", "longname": "bad-request"}.get(then[0].node if then else ""):
            msg = f"cannot acknowledge: {refused}"
            raise StanzaqError(msg, refused)
        self.told += [("then", (each.node, each.item, each.hints)) for each in then]
        if result is not None and result.type == XML:
            msg = "cannot acknowledge"
            raise StanzaqError(msg, "not-acceptable")
        self.told.append(("acknowledged", lock.item) if result is None else (lock.item, result))
        return lock not in self.gone

    async def release(self, lock: Lock, how: Release) -> bool:
        """Note it."""
        if self.broken:
            msg = "cannot give back"
            raise StanzaqError(msg, "internal-server-error")
        self.told.append((lock.item, how))
        return lock not in self.gone

    async def renew(self, lock: Lock, progress: Progress | None = None, *, begun: bool = False) -> datetime | None:
        """Note it; deadlines are by its clock."""
        self.told.append(("begun" if begun else "renewed", lock.item) if progress is None else (lock.item, progress))
        if self.silent:
            await asyncio.Event().wait()
        return None if lock in self.gone else EPOCH + timedelta(seconds=asyncio.get_running_loop().time() + self.lasts)

    async def lock_seconds(self, node: str) -> float:
        """Give what a worker is told."""
        assert node == "jobs"
        if self.timeless:
            msg = "cannot find jobs"
            raise StanzaqError(msg, "item-not-found")
        return self.lasts

    async def publish(self, outgoing: Outgoing) -> None:
        """Note it, from the loop of the worker alone."""
        assert asyncio.get_running_loop() is self.loop
        self.told.append((outgoing.node, outgoing))

    async def pause(self) -> None:
        """Play no part here."""

    async def close(self) -> None:
        """Play no part here."""

    def sender(self) -> Any:  # noqa: ANN401
        """Play no part here."""


def delivery(
    item: str = "one", *, token: int = 1, attempt: int = 1, of: int = 20, body: bytes = b"{}", reply: bool = False
) -> Delivery:
    """Make a delivery of JSON."""
    deadline = EPOCH + timedelta(seconds=asyncio.get_running_loop().time() + 60)
    content = Content(body, "application/json")
    return Delivery(Lock("jobs", item, token), attempt, of, deadline, content, {}, "", EPOCH, reply=reply)


def runs(service: Service, handler: Handler, *, concurrency: int = 5, **more: Any) -> Runs:  # noqa: ANN401
    """Make the runs of a worker with one task."""
    given = {"retry": Retry(delay="2s", jitter=False), "timeout": None, "payload": Any, **more}
    given["run_in"] = choose_place(handler, given.get("run_in"))
    return Runs(service, [Registration("jobs", handler, **given)], concurrency)


async def prepare(_node: str, *, missing: bool) -> None:
    """Leave nodes as they are."""
    assert not missing


async def until(holds: Callable[[], object]) -> None:
    """Wait for something that no event tells."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0)


async def nothing(_job: Job[Any]) -> None:
    """Succeed."""


async def test_done_once() -> None:
    """What returns is acknowledged; the same lock that is delivered again meanwhile is not worked again."""
    service, seen, go_on = Service(), [], asyncio.Event()

    async def handler(job: Job[Any]) -> None:
        seen.append(job.token)
        await go_on.wait()

    played = runs(service, handler)
    for token in (1, 1, 2, 1):
        played.deliver(delivery(token=token))
    await until(lambda: len(seen) == 2)
    go_on.set()
    await until(lambda: not played.locks("jobs"))
    assert seen == [1, 2] and service.told == [("acknowledged", "one")] * 2


@pytest.mark.parametrize(
    ("fault", "attempt", "policy", "end"),
    [
        (ValueError("broken"), 1, Retry(delay="2s", jitter=False), Release("ValueError: broken", 2.0)),
        (ValueError("broken"), 3, Retry(delay="2s", backoff=3, jitter=False), Release("ValueError: broken", 18.0)),
        (ValueError("broken"), 9, Retry(limit="5s", jitter=False), Release("ValueError: broken", 5.0)),
        (ValueError("x"), 4, Retry(attempts=4), Release("attempt 4 of 4 failed: ValueError: x", dead=True)),
        (ValueError("x"), 20, Retry(attempts=50), Release("attempt 20 of 20 failed: ValueError: x", dead=True)),
        (Retry(delay="1h"), 1, Retry(), Release("Retry: again after 3600 s", 3600.0)),
        (
            Retry(delay="1h"),
            2,
            Retry(attempts=2),
            Release("attempt 2 of 2 failed: Retry: again after 3600 s", dead=True),
        ),
        (Reject("no such picture"), 1, Retry(), Release("no such picture", dead=True)),
        (SystemExit(3), 1, Retry(delay=0), Release("RuntimeError: the handler raised SystemExit", 0.0)),
        (Retry(delay="7d"), 1, Retry(), Release("Retry: again after 604800 s", 43_200.0)),
        (asyncio.CancelledError(), 1, Retry(delay=0), Release("CancelledError: ", 0.0)),
    ],
)
async def test_failures(fault: BaseException, attempt: int, policy: Retry, end: Release) -> None:
    """Whatever a handler raises ends its job alone; the policy says when it is tried again."""
    service = Service()

    async def handler(_job: Job[Any]) -> None:
        raise fault

    runs(service, handler, retry=policy).deliver(delivery(attempt=attempt))
    await until(lambda: service.told)
    assert service.told == [("one", end)]


class TextlessError(Exception):
    """An exception whose text cannot be made."""

    def __str__(self) -> str:
        """Fail."""
        return str(self.args[7])


@pytest.mark.parametrize(
    ("fault", "end"),
    [
        (TextlessError(), Release("TextlessError: a TextlessError that has no text", 2.0)),
        (type("TornError", (Reject, TextlessError), {})(), Release("a TornError that has no text", dead=True)),
    ],
)
async def test_a_failure_without_a_text(fault: BaseException, end: Release) -> None:
    """A job also ends, and its item is given back, if what its handler raised cannot say what it is."""
    await test_failures(fault, 1, Retry(delay="2s", jitter=False), end)


@pytest.mark.parametrize("kind", [KeyError, SystemExit, KeyboardInterrupt, BaseException])
async def test_a_thread_fails(kind: type[BaseException]) -> None:
    """A function that raises in its thread fails likewise."""
    service = Service()

    def handler(job: Job[dict[str, int]]) -> None:
        raise kind(job.payload["a"])

    runs(service, handler, payload=dict[str, int]).deliver(delivery(body=b'{"a": 1}'))
    await until(lambda: service.told)
    assert service.told == [("one", Release(f"{kind.__name__}: 1", 2.0))]


async def test_unfit() -> None:
    """A payload that is not what the handler takes goes to the dead letters, with what is wrong and where."""
    service = Service()
    runs(service, nothing, payload=dict[str, int]).deliver(delivery(body=b'{"a": "b"}'))
    await until(lambda: service.told)
    ((item, end),) = service.told
    assert item == "one" and end.dead
    assert end.reason == "the payload (application/json) is no dict[str, int]: Expected `int`, got `str` - at `$[...]`"


async def test_renewed_while_it_runs_and_while_it_waits() -> None:
    """Locks are renewed at a third of their time, also of what waits for its turn, and follow a time that has been changed."""
    service, go_on = Service(lasts=0.3), asyncio.Event()

    async def handler(_job: Job[Any]) -> None:
        await go_on.wait()

    played = runs(service, handler, concurrency=1)
    for item in ("runs", "waits"):
        played.deliver(delivery(item))
    await until(lambda: {("begun", "runs"), ("renewed", "runs"), ("renewed", "waits")} <= set(service.told))
    assert ("begun", "waits") not in service.told
    go_on.set()
    await until(lambda: {("acknowledged", "runs"), ("acknowledged", "waits")} <= set(service.told))


async def test_renewed_at_a_third_of_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two renewals may fail before a lock ends."""
    service, slept, go_on = Service(lasts=60), list[float](), asyncio.sleep

    async def sleep(seconds: float) -> None:
        slept.extend([seconds] if seconds else [])
        await go_on(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)

    async def handler(_job: Job[Any]) -> None:
        await asyncio.Event().wait()

    played = runs(service, handler)
    played.deliver(delivery())
    await until(lambda: slept)
    assert slept == [20.0]
    played.close()
    await until(lambda: not played.locks("jobs"))


@pytest.mark.parametrize("how", ["told", "deleted", "renewal", "silence"])
async def test_lost(how: str) -> None:
    """A handler whose lock has ended is cancelled, however that comes out, and the service is told nothing of its end."""
    service, cancelled, job = Service(lasts=60 if how in {"told", "deleted"} else 0.05), [], delivery()
    service.silent = how == "silence"
    began = asyncio.Event()

    async def handler(job: Job[Any]) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(job.token)
            raise

    played = runs(service, handler)
    played.deliver(job)
    await began.wait()
    if how == "told":
        played.lost(Lock("jobs", "one", 7))
        played.lost(job.lock)
    elif how == "deleted":
        played.deleted("jobs", "other")
        played.deleted("jobs", "one")
    elif how == "renewal":
        service.gone.add(job.lock)
    await until(lambda: not played.locks("jobs"))
    assert cancelled == [1] and set(service.told) <= {("begun", "one"), ("renewed", "one")}


async def test_finish() -> None:
    """What stops gives back at once what has not begun and what is delivered late, and after its grace what still runs."""
    service, began = Service(), asyncio.Event()

    async def handler(job: Job[Any]) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            # It ignores that it is cancelled, for a while.
            await asyncio.sleep(0.01)
            raise

    played = runs(service, handler, concurrency=1)
    played.deliver(delivery("runs"))
    played.deliver(delivery("waits"))
    await began.wait()
    finishing = asyncio.create_task(played.finish(0.05))
    await until(lambda: service.told)
    played.deliver(delivery("late"))
    await finishing
    untried, tried = Release("the worker stops", untried=True), Release("the worker stops")
    assert service.told == [("waits", untried), ("late", untried), ("runs", tried)]


async def test_an_end_that_cannot_be_told(caplog: pytest.LogCaptureFixture) -> None:
    """A service that refuses to hear of an end costs that job alone, and is logged with what the job was."""
    service = Service(broken=True)

    async def handler(_job: Job[Any]) -> None:
        raise ValueError

    played = runs(service, handler)
    played.deliver(delivery())
    await until(lambda: not played.locks("jobs"))
    record = next(each for each in caplog.records if "could not be told" in each.message)
    assert {"node": "jobs", "item": "one", "attempt": 1, "token": 1}.items() <= vars(record).items()


async def test_a_lock_whose_time_cannot_be_read(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged with what the job was, whose lock nobody renews."""
    service, go_on = Service(timeless=True), asyncio.Event()

    async def handler(_job: Job[Any]) -> None:
        await go_on.wait()

    played = runs(service, handler)
    played.deliver(delivery())
    await until(lambda: "a lock is not renewed" in caplog.text)
    record = next(each for each in caplog.records if "a lock is not renewed" in each.message)
    assert {"node": "jobs", "item": "one", "attempt": 1, "token": 1}.items() <= vars(record).items()
    go_on.set()
    await until(lambda: service.told)
    assert service.told == [("acknowledged", "one")]


@pytest.mark.parametrize(
    ("result", "told", "warned"),
    [
        (None, None, ""),
        (12, Content(b"12", JSON), ""),
        ({"path": "ü"}, Content('{"path":"ü"}'.encode(), JSON), ""),
        (object(), None, "a object is no payload"),
        ("a file's name: \udcff", None, "surrogates not allowed"),
        (ENDLESS, None, "contains itself"),
        (b"x" * 65_536, Content(b"x" * 65_536, BYTES), ""),
        (b"x" * 65_537, None, "at most 65536"),
        (Element("a"), None, "cannot acknowledge"),
    ],
)
@pytest.mark.parametrize("reply", [False, True])
async def test_results(
    caplog: pytest.LogCaptureFixture, *, result: object, told: Content | None, warned: str, reply: bool
) -> None:
    """What a handler returns goes to who asked. What cannot be sent fails the job; if nobody asked, it is logged and dropped."""
    service = Service()

    async def handler(_job: Job[Any]) -> Any:  # noqa: ANN401
        return result

    runs(service, handler).deliver(delivery(reply=reply))
    await until(lambda: service.told)
    assert warned in caplog.text and bool(caplog.text) == bool(warned)
    if not (warned and reply):
        assert service.told == [("acknowledged", "one") if told is None else ("one", told)]
        assert ("a handler's result is dropped, for nobody asked for it: " in caplog.text) == bool(warned)
        return
    ((item, end),) = service.told
    assert item == "one" and end == Release(end.reason, 2.0)
    assert end.reason.startswith("TypeError: the result cannot be sent: ") and warned in end.reason


def test_where_it_runs() -> None:
    """Coroutines run in the loop, functions in threads or processes; anything else is refused when it is registered."""

    def function(_job: Job[Any]) -> None:
        pass

    assert (choose_place(nothing, None), choose_place(function, None)) == ("loop", "thread")
    assert choose_place(in_process, "process") == "process"
    with pytest.raises(TypeError, match=r"run_in='thread' for nothing: coroutines run in the loop"):
        choose_place(nothing, "thread")
    with pytest.raises(TypeError, match="only coroutines run in the loop"):
        choose_place(function, "loop")


async def test_a_late_thread_keeps_its_place() -> None:
    """A thread that goes on after its job's time occupies a place, so the time of the next job begins when that is free."""
    service, go_on, ran = Service(), threading.Event(), []

    def handler(job: Job[Any]) -> None:
        if job.id == "stuck":
            go_on.wait(PATIENCE_SECONDS)
        ran.append(job.id)

    played = runs(service, handler, concurrency=1, timeout=0.5)
    for item in ("stuck", "next"):
        played.deliver(delivery(item))
    await until(lambda: service.told)
    assert service.told == [("stuck", Release("TimeoutError: not done in 0.5 s", 2.0))]
    await asyncio.sleep(0.6)
    assert len(service.told) == 1 and not ran
    go_on.set()
    await until(lambda: len(service.told) == 2)
    assert ran == ["stuck", "next"]
    played.close()


async def test_a_thread_has_no_next() -> None:
    """StopIteration, which no future carries, ends its job too."""
    service = Service()

    def handler(_job: Job[Any]) -> None:
        next(iter(()))

    runs(service, handler).deliver(delivery())
    await until(lambda: service.told)
    assert service.told == [("one", Release("RuntimeError: the handler raised StopIteration", 2.0))]


class OddError(Exception):
    """Cannot be made again from its arguments."""

    def __init__(self, first: str, second: str) -> None:
        """Keep them joined."""
        super().__init__(first + second)


class OddBaseError(BaseException):
    """No Exception, and cannot be made again either."""

    def __init__(self, first: str, second: str) -> None:
        """Keep them joined."""
        super().__init__(first + second)


def in_process(job: Job[str]) -> None:
    """End as the payload says."""
    match job.payload:
        case "dies":
            os._exit(1)
        case "odd":
            raise OddError("a", "b")  # noqa: EM101
        case "base":
            raise OddBaseError("a", "b")  # noqa: EM101
        case "exits":
            sys.exit(3)
        case "later":
            raise Retry(delay="1h")


async def test_a_process_fails() -> None:
    """A process that dies, and exceptions that cannot be made again, cost one job alone: the next one is worked."""
    service = Service()
    played = runs(service, in_process, concurrency=1, payload=str, run_in="process")

    def ends() -> list[tuple[str, Any]]:
        # Beside much load a process starts so late that its job's lock is renewed before.
        return [each for each in service.told if each[0] not in {"begun", "renewed"}]

    try:
        for count, payload in enumerate(("odd", "base", "exits", "later", "dies", "fine"), 1):
            played.deliver(delivery(payload, body=f'"{payload}"'.encode()))
            async with asyncio.timeout(PATIENCE_SECONDS):
                while len(ends()) < count:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
    finally:
        played.close()
    odd, base, exits, later, (name, died), fine = ends()
    assert odd == ("odd", Release("OddError: ab", 2.0))
    assert base == ("base", Release("OddBaseError: ab", 2.0))
    assert exits == ("exits", Release("SystemExit: 3", 2.0))
    assert later == ("later", Release("Retry: again after 3600 s", 3600.0))
    assert name == "dies" and died.reason.startswith("ProcessDiedError: the process of the handler has died")
    assert fine == ("acknowledged", "fine")


@pytest.mark.parametrize("why", ["timeout", "lost"])
async def test_it_ignores_its_cancellation(
    why: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A handler that swallows its cancellation is warned of, with what to do, and its job ends when it ends."""
    monkeypatch.setattr("stanzaq.worker.callers.SETTLE_SECONDS", 0.01)
    monkeypatch.setattr("stanzaq.worker.runs.SETTLE_SECONDS", 0.01)
    service, go_on, began = Service(), asyncio.Event(), asyncio.Event()

    async def handler(_job: Job[Any]) -> None:
        began.set()
        while not go_on.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await go_on.wait()

    played = runs(service, handler, timeout=0.01 if why == "timeout" else 3600)
    played.deliver(delivery())
    await began.wait()
    if why == "lost":
        played.lost(delivery().lock)
    await until(lambda: "the handler ignores that its job is cancelled" in caplog.text)
    assert played.locks("jobs")
    go_on.set()
    await until(lambda: not played.locks("jobs"))
    assert service.told == ([("acknowledged", "one")] if why == "timeout" else [])
    record = next(each for each in caplog.records if "let asyncio.CancelledError pass" in each.message)
    assert {"node": "jobs", "item": "one", "attempt": 1, "token": 1}.items() <= vars(record).items()


async def test_closed(caplog: pytest.LogCaptureFixture) -> None:
    """Without a connection runs are cancelled, which is no failure of theirs, and nothing waits for a service."""
    service, began = Service(), asyncio.Event()

    async def handler(_job: Job[Any]) -> None:
        began.set()
        await asyncio.Event().wait()

    played = runs(service, handler, concurrency=1)
    for item in ("runs", "waits"):
        played.deliver(delivery(item))
    await began.wait()
    played.close()
    await until(lambda: not played.locks("jobs"))
    await played.wait_closed()
    assert not service.told and not caplog.text


async def test_a_handler_that_renews() -> None:
    """Renewals by the handler do not make those of the worker more frequent."""
    service, done = Service(lasts=6.0), asyncio.Event()
    lasted: list[float] = []

    async def handler(job: Job[Any]) -> None:
        for _ in range(5):
            await asyncio.sleep(0.02)
            await job.renew()
        (run,) = played._runs.values()
        lasted.append(run._lasts)
        done.set()

    played = runs(service, handler)
    first = delivery()
    played.deliver(replace(first, deadline=first.deadline - timedelta(seconds=54)))
    await done.wait()
    assert 5.9 < lasted[0] < 6.1


async def test_progress() -> None:
    """A job tells how far it is, and renews its lock with that; a share that is none is the handler's fault."""
    service = Service()

    async def handler(job: Job[Any]) -> None:
        await job.progress(0.25, "one of four")
        await job.progress(None, "nearly")
        with pytest.raises(ValueError, match="from 0 to 1"):
            await job.progress(2)
        await job.apart().progress(0.5)

    played = runs(service, handler)
    played.deliver(delivery())
    await until(lambda: len(service.told) == 3)
    assert service.told[:2] == [("one", Progress(0.25, "one of four")), ("one", Progress(None, "nearly"))]


async def test_a_handler_that_publishes() -> None:
    """A job publishes over the worker's connection, also from a thread with its own loop; in another process it cannot."""
    service = Service()

    async def in_loop(job: Job[Any]) -> None:
        assert await job.publish("next", {"n": 1}, id="first", key="k", delay="2s", priority=7) == "first"
        with pytest.raises(TypeError):
            await job.publish("next", object())
        with pytest.raises(StanzaqError, match="no connection"):
            await job.apart().publish("next", 1)

    def in_thread(job: Job[Any]) -> None:
        asyncio.run(job.publish("next", "text", id="second", ttl=60))

    for handler in (in_loop, in_thread):
        played = runs(service, handler)
        played.deliver(delivery())
        await until(lambda: not played.locks("jobs"))  # noqa: B023
    (_, first), done, (_, second), again = service.told
    assert done == again == ("acknowledged", "one")
    assert (first.item, first.content, first.hints) == ("first", Content(b'{"n":1}', JSON), Hints("k", 2.0, 7))
    assert (second.node, second.item, second.hints.ttl) == ("next", "second", 60)


async def test_what_is_published_then() -> None:
    """What a job notes goes with its acknowledgement, and only with that; a refusal is the job's failure."""
    service = Service()

    async def handler(job: Job[Any]) -> None:
        job.then(job.headers["to"], {"n": 1}, id="x", key="k", delay="2s")
        if job.headers["to"] == "failed":
            raise Reject("no")  # noqa: EM101

    for to in ("next", "failed", "closed", "longname"):
        played = runs(service, handler)
        played.deliver(replace(delivery(), headers={"to": to}))
        await until(lambda: not played.locks("jobs"))  # noqa: B023
    assert service.told == [
        ("then", ("next", "x", Hints("k", 2.0))),
        ("acknowledged", "one"),
        ("one", Release("no", dead=True)),
        ("one", Release("StanzaqError: cannot acknowledge: not-acceptable", 2.0)),
        ("one", Release("StanzaqError: cannot acknowledge: bad-request", 2.0)),
    ]


async def test_how_much_is_published_then() -> None:
    """A job may note so much and no more; one in a thread may, and one in another process may not."""
    service = Service()

    def handler(job: Job[Any]) -> None:
        job.then("next", bytes(262_143))
        with pytest.raises(ValueError, match="of together 262144 bytes"):
            job.then("next", "ab")
        for _ in range(9):
            job.then("next", b"")
        with pytest.raises(ValueError, match="at most 10 items"):
            job.then("next", b"")
        with pytest.raises(StanzaqError, match="another process"):
            job.apart().then("next", b"")

    played = runs(service, handler)
    played.deliver(delivery())
    await until(lambda: not played.locks("jobs"))
    assert [told for told, _ in service.told] == ["then"] * 10 + ["acknowledged"]


@pytest.mark.parametrize(
    "how", ["returns", "leaves a task", "raises", "untold", "unfit", "thread", "timeout", "lost", "waits"]
)
async def test_no_payload_is_kept(how: str) -> None:
    """Guarantee 6: once a job is over, however, nothing keeps its payload, not even until Python collects garbage."""
    service, began, later = Service(), asyncio.Event(), list[asyncio.Task[bool]]()
    service.broken = how == "untold"

    async def handler(_job: Job[bytes]) -> None:
        began.set()
        match how:
            case "waits" | "lost" | "timeout":
                await asyncio.Event().wait()
            case "raises" | "untold":
                raise ValueError
            case "leaves a task":
                later.append(asyncio.create_task(asyncio.Event().wait()))

    def function(_job: Job[bytes]) -> None:
        raise ValueError

    more = {"payload": int if how == "unfit" else bytes, "timeout": 0.01 if how == "timeout" else None}
    played = runs(service, function if how == "thread" else handler, concurrency=1, **more)
    body = bytes(1_000)
    held = sys.getrefcount(body)
    with uncollected():
        if how == "waits":
            # For the room of another one.
            played.deliver(delivery("first"))
            await began.wait()
        played.deliver(delivery(body=body, token=2))
        if how in {"waits", "lost"}:
            await began.wait()
            await asyncio.sleep(0)
            played.lost(Lock("jobs", "one", 2))
        await until(lambda: sys.getrefcount(body) == held)
    played.close()
    await played.wait_closed()
    for task in later:
        task.cancel()
