"""`TestBroker`: a worker's tasks run on the service's own scripts, and nothing has to be waited for."""

import asyncio
import json
import logging
import re
import sys
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import REGISTRY

from stanzaq import Job, Queue, Reject, Retry, StanzaqError, Worker, metrics, telemetry
from stanzaq.logs import JobFields, Lines
from stanzaq.testing import DeadLetter, TestBroker
from stanzaq.transport import traceparent


def made(group: str | None = None, **more: Any) -> tuple[Worker, list[Any]]:  # noqa: ANN401
    """Make a worker with one task, which does what the payload says and notes its attempts."""
    worker, seen = Worker("xmpp://worker@example.org", concurrency=3, group=group), list[Any]()

    @worker.task("jobs", retry=Retry(**{"delay": "1h", "limit": "2h", "jitter": False, **more}))
    async def _job(job: Job[str]) -> None:
        seen.append((job.id, job.attempt))
        match job.payload:
            case "reject":
                raise Reject("no such picture")  # noqa: EM101, TRY003
            case "fail":
                raise ZeroDivisionError("by zero")  # noqa: EM101, TRY003
            case "fail once" if job.attempt == 1:
                raise Retry(delay="12h")
            case "hang":
                await asyncio.Event().wait()

    return worker, seen


async def test_retries_and_dead_letters() -> None:
    """Q32: items are tried again after their delays, which take no time here, and are dead letters for their reasons."""
    worker, seen = made(attempts=3)
    async with TestBroker(worker) as broker:
        for payload in ("reject", "fail", "fail once", "fine"):
            assert await broker.publish("jobs", payload, id=payload) == payload
        await broker.publish("jobs", {"a": 1}, id="unfit")
        await broker.publish("jobs", "fine", id="later", delay="7d", headers={"color": "red"}, priority=9)
        await broker.publish("jobs", "fine", id="over", delay="1h", ttl="2h")
        await broker.drain()
        dead = {letter.id: letter for letter in await broker.dead("jobs")}
    assert seen[-1] == ("later", 1)
    tried = [("fail", 1), ("fail", 2), ("fail", 3), ("fail once", 1), ("fail once", 2), ("fine", 1), ("later", 1)]
    assert sorted(seen) == [*tried, ("over", 1), ("reject", 1)]
    assert dead.pop("unfit").reason.startswith("the payload (application/json) is no str: ")
    assert dead == {
        "reject": DeadLetter("reject", "reject", "no such picture", 1),
        "fail": DeadLetter("fail", "fail", "attempt 3 of 3 failed: ZeroDivisionError: by zero", 3),
    }


async def test_what_no_service_takes_as_a_reason(caplog: pytest.LogCaptureFixture) -> None:
    """A reason is as long as over XMPP, and without what cannot be written: a file may have any bytes for a name."""
    # pytest's workers could not report it.
    caplog.set_level(logging.CRITICAL, "stanzaq")
    worker = Worker("xmpp://worker@example.org")

    @worker.task("jobs", retry=Retry(attempts=1))
    async def _job(_job: Job[Any]) -> None:
        raise FileNotFoundError("\udcff" + "x" * 5_000)

    async with TestBroker(worker) as broker:
        await broker.publish("jobs", 1)
        await broker.drain(timeout="5s")
        (dead,) = await broker.dead("jobs")
    assert "FileNotFoundError:  xxx" in dead.reason and len(dead.reason) == 1_024


async def test_without_dead_letters() -> None:
    """An item that is rejected where there are no dead letters rests as its node says, before it comes again."""
    worker, seen = Worker("xmpp://worker@example.org"), list[Job[Any]]()

    @worker.task("jobs")
    async def _job(job: Job[Any]) -> None:
        seen.append(job)
        if job.attempt < 3:
            raise Reject("unfit")  # noqa: EM101

    options = {"stanzaq#dead_letter_node": "", "stanzaq#retry_delay": "600"}
    async with TestBroker(worker, nodes={"jobs": options}) as broker:
        await broker.publish("jobs", 1)
        await broker.drain()
    assert [job.attempt for job in seen] == [1, 2, 3]
    for before, job in pairwise(seen):
        assert (job.deadline - before.deadline).total_seconds() >= 600


async def test_many_dead_letters() -> None:
    """All are listed, whatever their size: a page of the service has a limit in bytes."""
    worker, _ = made()
    async with TestBroker(worker) as broker:
        sent = {await broker.publish("jobs", {"unfit": "x" * 100_000}) for _ in range(20)}
        await broker.drain()
        assert {letter.id for letter in await broker.dead("jobs")} == sent


async def test_replies_to_items_of_one_id() -> None:
    """A reply is that of its own item, as over XMPP, though an earlier one of its id has ended."""
    worker, seen = Worker("xmpp://worker@example.org"), list[str]()

    @worker.task("jobs")
    async def _job(job: Job[Any]) -> int:
        seen.append(job.id)
        return len(seen)

    async with TestBroker(worker) as broker:
        first = await broker.publish("jobs", 1, id="one", reply=True)
        await broker.drain()
        second = await broker.publish("jobs", 2, id="one", reply=True)
        await broker.drain()
        assert [await each.result(timeout="60s") for each in (first, second)] == [1, 2]


async def test_options_of_nodes() -> None:
    """Nodes have the options that are given, so that their limits and their order hold."""
    worker, seen = made(group="g")
    options = {"stanzaq#max_deliveries": "2", "stanzaq#partitions": "3", "stanzaq#ordered": "1"}
    async with TestBroker(worker, nodes={"jobs": options, "results": {"stanzaq#dedupe": "ignore"}}) as broker:
        await broker.publish("jobs", "fail", id="first", key="k")
        await broker.publish("jobs", "fine", id="second", key="k")
        await broker.publish("results", "done")
        await broker.drain()
        assert [letter.id for letter in await broker.dead("jobs")] == ["first"]
        with pytest.raises(StanzaqError, match="cannot publish to nowhere: item-not-found") as refused:
            await broker.publish("nowhere", "x")
        assert refused.value.condition == "item-not-found"
        with pytest.raises(StanzaqError, match="cannot publish to jobs: bad-request"):
            await broker.publish("jobs", "x", priority=10)
        long = "é" * 512
        for wrong in (broker.publish("jobs", "x", id=long), broker.publish("jobs", "x", key=long)):
            with pytest.raises(StanzaqError, match=r"cannot publish to jobs: bad-request .*: at most 1023 bytes"):
                await wrong
    assert seen == [("first", 1), ("first", 2), ("second", 1)]


async def test_several_partitions() -> None:
    """Several partitions are not shared: a worker without a group is refused, as by the service."""
    with pytest.raises(StanzaqError, match=r"cannot subscribe to jobs: not-acceptable .*name a group"):
        async with TestBroker(made()[0], nodes={"jobs": {"stanzaq#partitions": "3"}}):
            pass


async def test_a_collection() -> None:
    """H5: a collection's handler gets the items of the queues below it, those with a delay as well, once each."""
    worker, seen = Worker("xmpp://worker@example.org"), list[tuple[str, str, int]]()

    @worker.task("all")
    async def _job(job: Job[int]) -> None:
        seen.append((job.node, job.id, job.attempt))

    above = {"pubsub#node_type": "collection"}
    nodes = {"all": above, "some": {**above, "pubsub#collection": "all"}}
    nodes |= {"a": {"pubsub#collection": "all"}, "b": {"pubsub#collection": "some"}}
    async with TestBroker(worker, nodes=nodes) as broker:
        for number in range(6):
            await broker.publish("ab"[number % 2], number, id=str(number), delay=f"{10 * number}m")
        await broker.drain()
    assert seen == [("ab"[number % 2], str(number), 1) for number in range(6)]


async def test_without_a_limit() -> None:
    """An item of a node without a limit is tried as often as the policy says."""
    worker, seen = made(attempts=30)
    async with TestBroker(worker, nodes={"jobs": {"stanzaq#max_deliveries": "0"}}) as broker:
        await broker.publish("jobs", "fail", id="one")
        await broker.drain()
        assert [letter.attempts for letter in await broker.dead("jobs")] == [30]
    assert len(seen) == 30


async def test_what_a_handler_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    """It can be raised by `drain`; settings of a real service in the environment are ignored."""
    monkeypatch.setenv("STANZAQ_REDIS_URL", "redis://nowhere.invalid")
    worker, _ = made()
    async with TestBroker(worker) as broker:
        await broker.publish("jobs", "fail")
        with pytest.raises(ZeroDivisionError):
            await broker.drain(raises=True)


async def test_what_hangs() -> None:
    """`drain` says what is left after its timeout, and leaving ends what still runs."""
    worker, seen = made()
    async with TestBroker(worker) as broker:
        await broker.publish("jobs", "hang", id="one")
        with pytest.raises(TimeoutError, match=r"not drained in 0.05 s: .*in_flight=1"):
            await broker.drain(timeout="50ms")
    assert seen == [("one", 1)]
    async with TestBroker(worker) as broker:
        await broker.drain()


def test_in_threads() -> None:
    """Redis outlives the thread that was the first to need it."""

    async def drained() -> list[Any]:
        worker, seen = made()
        async with TestBroker(worker) as broker:
            await broker.publish("jobs", "fine", id="one")
            await broker.drain()
        return seen

    for _ in range(2):
        with ThreadPoolExecutor(1) as thread:
            assert thread.submit(asyncio.run, drained()).result() == [("one", 1)]


async def test_a_worker_that_cannot_start() -> None:
    """What its lifespan raises is raised by the broker."""
    worker, seen = made()

    @worker.lifespan
    async def _broken() -> AsyncIterator[None]:
        if not seen:
            msg = "no database"
            raise ConnectionError(msg)
        yield

    with pytest.raises(ConnectionError, match="no database"):
        async with TestBroker(worker):
            pass


async def test_middleware() -> None:
    """Middleware sees each job before and after its handler, whatever becomes of it, the first one outside the others."""
    worker, did = Worker("xmpp://worker@example.org"), list[str]()

    @worker.middleware
    async def _outer(job: Job[Any], call_next: Any) -> None:  # noqa: ANN401
        did.append(f"{job.id} begins")
        try:
            await call_next(job)
        except Exception as error:
            did.append(f"{job.id} failed: {type(error).__name__}")
            raise
        did.append(f"{job.id} ends")

    @worker.middleware
    async def _inner(job: Job[Any], call_next: Any) -> None:  # noqa: ANN401
        if job.id == "known":
            return
        did.append("inside")
        await call_next(job)

    @worker.task("jobs", retry=Retry(attempts=1), timeout="50ms")
    async def _job(job: Job[dict[str, int]]) -> None:
        did.append("handler")
        if job.id == "slow":
            await asyncio.Event().wait()

    said = {
        "fine": ["fine begins", "inside", "handler", "fine ends"],
        "known": ["known begins", "known ends"],
        "unfit": ["unfit begins", "inside", "unfit failed: Unfit"],
        "slow": ["slow begins", "inside", "handler", "slow failed: TimeoutError"],
    }
    async with TestBroker(worker) as broker:
        for item, lines in said.items():
            await broker.publish("jobs", "text" if item == "unfit" else {}, id=item)
            await broker.drain()
            assert did == lines
            did.clear()
        assert [letter.id for letter in await broker.dead("jobs")] == ["unfit", "slow"]


def test_no_hooks() -> None:
    """What cannot be a hook is refused when it is registered, with what to write."""
    worker = Worker("xmpp://worker@example.org")
    with pytest.raises(TypeError, match=r"is no middleware: write `async def name\(job, call_next\)`"):
        worker.middleware(lambda _job, _call_next: None)  # type: ignore[type-var]
    with pytest.raises(TypeError, match=r"is no lifespan: .* no @asynccontextmanager"):
        worker.lifespan(nullcontext)  # type: ignore[type-var]


async def test_lifespan() -> None:
    """It surrounds all jobs, and what it yields is their `state`; there is one."""
    worker, did = Worker("xmpp://worker@example.org"), list[Any]()

    @worker.lifespan
    async def _pool() -> AsyncIterator[dict[str, int]]:
        did.append("opened")
        yield {"size": 3}
        did.append("closed")

    @worker.task("jobs")
    def _job(job: Job[Any]) -> None:
        did.append(job.state)

    with pytest.raises(ValueError, match="a lifespan already"):
        worker.lifespan(_pool)
    async with TestBroker(worker) as broker:
        await broker.publish("jobs", {})
        await broker.drain()
        assert did == ["opened", {"size": 3}]
    assert did[-1] == "closed"


async def test_on_start() -> None:
    """What must be there before the first job is made on start, and is the jobs' state; it is a lifespan."""
    worker, did = Worker("xmpp://worker@example.org"), list[Any]()

    @worker.on_start
    async def open_pool() -> dict[str, int]:
        did.append("opened")
        return {"size": 3}

    @worker.task("jobs")
    async def _job(job: Job[Any]) -> None:
        did.append(job.state)

    with pytest.raises(ValueError, match="a lifespan already"):
        worker.on_start(open_pool)
    with pytest.raises(TypeError, match=r"write `async def name\(\)`"):
        worker.on_start(nullcontext)  # type: ignore[type-var]
    async with TestBroker(worker) as broker:
        await broker.publish("jobs", {})
        await broker.drain()
    assert did == ["opened", {"size": 3}]


async def test_flow() -> None:
    """An item waits for others that have ended before, if these were published with keep; else the refusal says what to do."""
    worker, told = Worker("xmpp://worker@example.org"), list[Any]()

    @worker.task("jobs")
    async def _job(job: Job[int]) -> int:
        told.append([each["result"] for each in json.loads(job.headers.get("stanzaq-parents", "[]"))])
        return 2 * job.payload

    async with TestBroker(
        worker, nodes={"none": {"stanzaq#result_seconds": "0"}, "log": {"pubsub#queueing": "0"}}
    ) as broker:
        for number in range(3):
            await broker.publish("jobs", number, id=f"part-{number}", keep=number < 2)
        await broker.drain()
        with pytest.raises(
            StanzaqError, match=r"'part-2' to wait for.*: publish parents first, and with keep"
        ) as error:
            await broker.publish("jobs", 3, after=["part-0", "part-2"])
        assert error.value.condition == "item-not-found"
        whole = await broker.publish("jobs", 3, after=["part-0", "part-1"], keep=True, reply=True)
        await broker.drain()
        assert await whole.result(timeout="10s") == 6
        await broker.publish("jobs", 4, after=[whole.id])
        await broker.drain()
        for node, why in (("none", "stanzaq#result_seconds is 0"), ("log", "the node is a log")):
            with pytest.raises(StanzaqError, match=why):
                await broker.publish(node, 1, keep=True)
    assert told == [[], [], [], ["0", "2"], ["6"]]


async def test_documentation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers with hooks and with tasks in library.md, and their tests, do what is said of them."""
    page = (Path(__file__).parents[3] / "docs" / "library.md").read_text()
    programs = dict(re.findall(r"```python\n# (\w+)\.py.*?\n(.*?)```", page, re.DOTALL))
    for module in ("hooks", "thumbnails", "declared", "pictures"):
        monkeypatch.setitem(sys.modules, module, ModuleType(module))
        exec(programs[module], vars(sys.modules[module]))  # noqa: S102
    for program, test in (("test_orders", "test_orders"), ("test_thumbnails", "test_album")):
        names: dict[str, Any] = {}
        exec(programs[program], names)  # noqa: S102
        await names[test]()
    declared = vars(sys.modules["declared"])
    async with TestBroker(declared["worker"]):
        assert await declared["resize"].call("cat.png") == "small-cat.png"
    pictures = vars(sys.modules["pictures"])
    async with TestBroker(pictures["worker"]) as broker:
        assert await pictures["flow"].on(broker).call() == 2


async def test_logs(caplog: pytest.LogCaptureFixture) -> None:
    """What is logged while a job runs, in whatever thread, says which job it was; lines for people end with that."""
    worker = Worker("xmpp://worker@example.org")

    @worker.task("jobs", retry=Retry(attempts=1))
    def _job(_job: Job[Any]) -> None:
        logging.getLogger("app").warning("half done")
        raise KeyError

    caplog.handler.addFilter(fields := JobFields())
    try:
        async with TestBroker(worker) as broker:
            await broker.publish("jobs", {}, id="one")
            await broker.drain()
    finally:
        caplog.handler.removeFilter(fields)
    half, failed = (each for each in caplog.records if each.name in {"app", "stanzaq"})
    for record in (half, failed):
        assert {"node": "jobs", "item": "one", "attempt": 1}.items() <= vars(record).items()
    lines = Lines("%(levelname)s %(message)s").format(failed).splitlines()
    token = vars(failed)["token"]
    assert (
        lines[0] == f"WARNING job failed: attempt 1 of 1 failed: KeyError:  node=jobs item=one attempt=1 token={token}"
    )
    assert lines[-1] == "KeyError"
    logging.getLogger("app").warning("elsewhere")
    assert not hasattr(caplog.records[-1], "node")


async def test_traces() -> None:
    """A job is a span in the trace of its publisher, also in a thread; what it publishes continues the trace."""
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    worker, seen = Worker("xmpp://worker@example.org"), list[Any]()
    worker.middleware(telemetry.traced)

    @worker.task("jobs", retry=Retry(attempts=1))
    def _job(job: Job[Any]) -> None:
        seen.append((dict(job.headers), traceparent.current()))
        raise KeyError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(telemetry, "_TRACER", provider.get_tracer("test"))
        with provider.get_tracer("test").start_as_current_span("publisher"):
            async with TestBroker(worker) as broker:
                await broker.publish("jobs", {}, id="one", headers={"color": "red"})
                await broker.drain()
    job, publisher = spans.get_finished_spans()
    assert job.parent and job.context and publisher.context
    assert (job.name, job.parent.span_id, job.status.is_ok) == ("process jobs", publisher.context.span_id, False)
    ((headers, inside),) = seen
    begins = f"00-{job.context.trace_id:032x}"
    assert headers.pop("traceparent").startswith(f"{begins}-{publisher.context.span_id:016x}-")
    assert headers == {"color": "red"}
    assert inside["traceparent"].startswith(f"{begins}-{job.context.span_id:016x}-")


async def test_metrics() -> None:
    """Jobs are counted by node and outcome, with how long they took and how many run."""

    def counted() -> list[float]:
        jobs = [
            REGISTRY.get_sample_value("stanzaq_worker_jobs_total", {"node": "jobs", "outcome": outcome})
            for outcome in ("done", "retried", "dead", "cancelled")
        ]
        took = REGISTRY.get_sample_value("stanzaq_worker_job_seconds_count", {"node": "jobs"})
        return [each or 0 for each in (*jobs, took)]

    before = counted()
    worker, _ = made(attempts=2)
    worker.middleware(metrics.measured)
    async with TestBroker(worker) as broker:
        for payload in ("reject", "fail", "fine"):
            await broker.publish("jobs", payload)
        await broker.drain()
        await broker.publish("jobs", "hang")
        with pytest.raises(TimeoutError):
            await broker.drain(timeout="50ms")
        assert REGISTRY.get_sample_value("stanzaq_worker_jobs_running", {"node": "jobs"}) == 1

    assert [now - then for now, then in zip(counted(), before, strict=True)] == [1, 1, 2, 1, 5]
    assert REGISTRY.get_sample_value("stanzaq_worker_jobs_running", {"node": "jobs"}) == 0


async def test_a_handler_that_blocks(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A coroutine that never awaits is told of: it keeps the locks of all jobs from being renewed."""
    monkeypatch.setattr("stanzaq.worker.stopping._WATCH_SECONDS", 0.01)
    monkeypatch.setattr("stanzaq.worker.stopping._BLOCKED_SECONDS", 0.2)
    worker = Worker("xmpp://worker@example.org")

    @worker.task("jobs")
    async def _job(_job: Job[str]) -> None:
        # The worker has begun to watch.
        await asyncio.sleep(0.05)
        time.sleep(0.3)  # noqa: ASYNC251  (the fault)

    async with TestBroker(worker) as broker:
        await broker.publish("jobs", "blocks")
        await broker.drain()
        while "the event loop was blocked" not in caplog.text:  # noqa: ASYNC110  (nobody is told)
            await asyncio.sleep(0.01)
    assert "Make the handler a plain function" in caplog.text


async def test_replies() -> None:
    """A program that waits for results can be tested: it gets what the handler returned, or why there is nothing."""
    worker = Worker("xmpp://worker@example.org")

    @worker.task("jobs")
    async def _job(job: Job[int]) -> int:
        await job.progress(0.5)
        if not job.payload:
            raise Reject("torn")  # noqa: EM101
        return 2 * job.payload

    async with TestBroker(worker) as broker:
        twice, dead = [await broker.publish("jobs", n, reply=True) for n in (21, 0)]
        await broker.drain()
        assert await twice.result(timeout="30s") == 42
        with pytest.raises(StanzaqError, match="torn"):
            await dead.result(timeout="30s")


async def test_publishes_of_a_job() -> None:
    """A job publishes where its worker's account may, and a refusal is the job's fault."""
    worker = Worker("xmpp://worker@example.org")
    seen = []

    @worker.task("jobs")
    async def _job(job: Job[str]) -> None:
        await job.publish(job.payload, job.id, id=f"{job.id}-next")
        await job.send(next_one, job.id, id=f"{job.id}-sent")
        with pytest.raises(TypeError, match="next"):
            await job.send(next_one, 1)  # type: ignore[misc]

    @worker.task("next")
    async def next_one(job: Job[str]) -> None:
        seen.append((job.id, job.payload))

    async with TestBroker(worker, nodes={"next": {"pubsub#publish_model": "open"}, "closed": {}}) as broker:
        await broker.publish("jobs", "next", id="a")
        await broker.drain(raises=True)
        assert seen == [("a-next", "a"), ("a-sent", "a")]
        await broker.publish("jobs", "closed", id="b")
        with pytest.raises(StanzaqError, match="only the node's publishers"):
            await broker.drain(raises=True)


async def test_what_is_published_then() -> None:
    """What a job publishes with its end is there once, and not if it fails; a refusal lets it fail."""
    worker = Worker("xmpp://worker@example.org")
    seen = []

    @worker.task("jobs", retry=Retry(attempts=2))
    async def _job(job: Job[str]) -> str:
        job.then(job.payload, {"from": job.id, "attempt": job.attempt}, key=job.id, delay="1h")
        if job.attempt == 1:
            msg = "broken"
            raise ValueError(msg)
        return "done"

    @worker.task("next")
    async def _next(job: Job[dict[str, Any]]) -> None:
        seen.append((job.key, job.payload))

    async with TestBroker(worker, nodes={"next": {"pubsub#publish_model": "open"}, "closed": {}}) as broker:
        reply = await broker.publish("jobs", "next", id="a", reply=True)
        await broker.drain()
        assert seen == [("a", {"from": "a", "attempt": 2})]
        assert await reply.result(timeout="30s") == "done"
        await broker.publish("jobs", "closed", id="b")
        await broker.drain()
        (dead,) = await broker.dead("jobs")
        assert dead.id == "b" and "'closed' is refused: only the node's publishers" in dead.reason
    assert len(seen) == 1


async def test_rights() -> None:
    """P26: a tested program changes affiliations of the test's queues, all or none, as the service does."""
    async with TestBroker(nodes={"jobs": {}}) as broker:
        ((owner, _),) = (await broker.affiliations("jobs")).items()
        await broker.affiliate(
            "jobs", {"Juliet@example.org/x": "member", "example.net": "outcast", "group:/A@b": "member"}
        )
        for wrong in ({"bot@x": "member", owner: "none"}, {"bot@x": "boss"}, {"bot@x": "member", "a@b@c": "member"}):
            with pytest.raises(StanzaqError, match="cannot change any affiliation with jobs"):
                await broker.affiliate("jobs", wrong)
        now = {owner: "owner", "juliet@example.org": "member", "example.net": "outcast", "group:/A@b": "member"}
        assert await broker.affiliations("jobs") == now
        await broker.decide("jobs", "juliet@example.org", allow=True)
        assert await broker.requests("jobs") == []


async def test_schedules() -> None:
    """A node's schedules publish as time passes, each time in its order with what is delayed, and not while they are paused."""
    worker, seen = Worker("xmpp://worker@example.org"), list[str]()

    @worker.schedule("own", every="2h", id="own")
    @worker.task("jobs", retry=Retry(delay="90m", limit="90m", jitter=False))
    async def _job(job: Job[str]) -> None:
        seen.append(f"{job.payload} {job.attempt}")
        if job.payload == "fails" and job.attempt == 1:
            raise ZeroDivisionError

    async with TestBroker(worker, nodes={"jobs": {}, "other": {}}) as broker:
        made = await broker.schedule("jobs", "hourly", "hourly", every="1h", key="k")
        assert made.state == "active" and made.next is not None
        await broker.schedule("other", "daily", 1, cron="0 0 * * *", zone="Asia/Tokyo")
        assert [each.id for each in await broker.schedules("jobs")] == ["hourly", "task:own"]
        await broker.publish("jobs", "fails")
        await broker.advance("59m")
        assert seen == ["fails 1"]
        await broker.advance("62m")
        assert seen == ["fails 1", "hourly 1", "fails 2", *seen[3:]] and sorted(seen[3:]) == ["hourly 1", "own 1"]
        assert (await broker.pause_schedule("jobs", "hourly")).state == "paused"
        await broker.advance("2h")
        assert seen[5:] == ["own 1"]
        assert (await broker.resume_schedule("jobs", "hourly")).state == "active"
        await broker.advance("1h")
        assert seen[6:] == ["hourly 1"]
        assert await broker.unschedule("jobs", "hourly") and not await broker.unschedule("jobs", "hourly")
        (before,) = await broker.schedules("other")
        await broker.advance("3d")
        assert set(seen[7:]) == {"own 1"}
        (daily,) = await broker.schedules("other")
        assert daily.published - before.published == 3
        with pytest.raises(StanzaqError, match=r"cannot schedule hourly: bad-request \(.* either cron or every"):
            await broker.schedule("jobs", "hourly", "hourly")
        with pytest.raises(StanzaqError, match=r"cannot schedule hourly: bad-request"):
            await broker.schedule("jobs", "hourly", "hourly", cron="every day")
        with pytest.raises(StanzaqError, match="cannot pause nothing: item-not-found"):
            await broker.pause_schedule("jobs", "nothing")


async def test_what_is_cancelled_and_declared() -> None:
    """A broker cancels and declares as a publisher does."""
    worker, seen = made()
    async with TestBroker(worker) as broker:
        reply = await broker.publish("jobs", "hang", id="one", reply=True)
        assert await broker.cancel("jobs", "one") and not await broker.cancel("jobs", "two")
        with pytest.raises(StanzaqError, match="one is cancelled"):
            await reply.result(timeout="30s")
        await broker.drain()
        await broker.declare(Queue("other", max_deliveries=3))
        with pytest.raises(StanzaqError, match="max_deliveries is 3, and the program declares 4"):
            await broker.declare(Queue("other", max_deliveries=4))
        await broker.declare(Queue("other", max_deliveries=4), create="update")
        await broker.publish("other", 1)
    assert seen in ([], [("one", 1)])
