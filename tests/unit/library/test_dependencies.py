"""Dependencies: what handlers get beside the job, by fast-depends."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import fast_depends
import pytest
from fast_depends import Depends

from stanzaq import Job, Reject, Retry, Worker
from stanzaq.testing import TestBroker

did: list[Any] = []


@pytest.fixture(autouse=True)
def _forget() -> None:
    did.clear()


def number() -> Iterator[int]:
    """Give a number, in a plain function."""
    did.append("number")
    yield 7
    did.append("number closed")


async def session(job: Job[str], number: Annotated[int, Depends(number)]) -> AsyncIterator[str]:
    """Give a session of a job."""
    did.append("session")
    try:
        yield f"{job.state}-{number}"
    finally:
        did.append("session closed")


Number = Annotated[int, Depends(number)]
Session = Annotated[str, Depends(session)]

worker, elsewhere = Worker("xmpp://worker@example.org", concurrency=3), Worker("xmpp://worker@example.org")


@worker.on_start
async def open_pool() -> str:
    """Make what sessions come from."""
    return "pool"


@worker.task("loop", retry=Retry(attempts=1), timeout="100ms")
async def in_loop(job: Job[str], session: Session, number: Number) -> str:
    """Run in the loop."""
    if job.payload == "late":
        await asyncio.sleep(60)
    if job.payload == "bad":
        raise Reject(session)
    return f"{job.payload} {session} {number}"


@worker.task("thread")
def in_thread(job: Job[int], number: Number, more: int = 1) -> int:
    """Run in a thread."""
    did.append("handler")
    return job.payload + number + more


@elsewhere.task("process", run_in="process")
def in_process(job: Job[int], number: Number) -> list[int]:
    """Run in another process."""
    return [job.payload + number, os.getpid()]


@worker.task("batch", batch=3, wait="1s")
async def in_batch(jobs: list[Job[int]], number: Number) -> None:
    """Run for a batch."""
    for job in jobs:
        job.complete(job.payload + number)


class Service:
    """Has a handler of its own."""

    async def handle(self, job: Job[str], number: int = Depends(number)) -> str:
        """Handle a job."""
        return f"{job.payload} {number}"


method = worker.task("method")(Service().handle)


async def test_dependencies() -> None:
    """A handler gets them in the loop, in threads and for batches; they may take the job, and are closed after it."""
    async with TestBroker(worker):
        assert await in_loop.call("one") == "one pool-7 7"
        assert did == ["number", "session", "session closed", "number closed"]
        did.clear()
        assert await in_thread.call(1) == 9
        assert did == ["number", "handler", "number closed"]
        did.clear()
        assert await asyncio.gather(*map(in_batch.call, (1, 2, 3))) == [8, 9, 10]
        assert did == ["number", "number closed"]
        assert await method.call("one") == "one 7"


async def test_processes() -> None:
    """A handler in another process gets them there."""
    async with TestBroker(elsewhere):
        result, pid = await in_process.call(1, timeout="20s")
    assert result == 8 and pid != os.getpid()


async def test_replaced() -> None:
    """A test replaces a dependency by fast-depends' own means."""
    with fast_depends.dependency_provider.scope(number, lambda: 3):
        async with TestBroker(worker):
            assert await in_thread.call(1) == 5
    assert did == ["handler"]


@pytest.mark.parametrize(("payload", "reason"), [("bad", "pool-7"), ("late", "not done in 0.1 s")])
async def test_ends(payload: str, reason: str) -> None:
    """However a job ends, its dependencies are closed, and know of it."""
    async with TestBroker(worker) as broker:
        await broker.publish("loop", payload)
        await broker.drain()
        (dead,) = await broker.dead("loop")
    assert reason in dead.reason
    assert did == ["number", "session", "session closed"]


def needy(engine: str) -> str:
    """Take what nobody gives."""
    return engine


def broken(job: Job) -> None:
    """Be no dependency by itself."""


async def test_refusals() -> None:
    """What cannot be resolved is refused when the handler is registered, with one sentence that says what to write."""

    async def unresolved(job: Job, engine: Annotated[str, Depends(needy)]) -> None: ...

    async def partly(job: Job, number: Number, more: int) -> None: ...

    async def alone(number: Number) -> None: ...

    def waits(job: Job[str], session: Session) -> None: ...

    async def undefined(job: Job, number: "Annotated[Nothing, Depends(number)]") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    told = "the others are Annotated"
    cases: list[tuple[Callable[..., Any], str]] = [
        (
            unresolved,
            "has a dependency that takes engine, which nobody provides: write Annotated.*, or job for the job$",
        ),
        (partly, f"takes 3 arguments: a handler takes one, the job; {told}"),
        (alone, r"annotate its parameter as Job\[…\]"),
        (waits, "has dependencies that cannot be read: You cannot use async dependency `session` at sync main"),
        (undefined, "has an annotation that cannot be read .name 'Nothing' is not defined"),
    ]
    for handler, line in cases:
        with pytest.raises(TypeError, match=line):
            worker.task("refused")(handler)


async def test_documentation() -> None:
    """The worker with dependencies in library.md does what is said of it."""
    page = (Path(__file__).parents[3] / "docs" / "library.md").read_text()
    names: dict[str, Any] = {}
    exec(re.findall(r"```python\n# stock.py\n(.*?)```", page, re.DOTALL)[0], names)  # noqa: S102
    async with TestBroker(names["worker"]) as broker:
        await broker.publish("orders", "cats")
        await broker.drain(raises=True)
    assert names["log"] == ["begin", "1 of cats", "commit"]


def test_without_the_package() -> None:
    """Without fast-depends other handlers work as ever, and one with dependencies is refused with what to install."""
    program = """
import sys
sys.modules["fast_depends"] = None
import importlib.util
importlib.util.find_spec = lambda name, find=importlib.util.find_spec: None if name == "fast_depends" else find(name)
from stanzaq import Job, Worker
worker = Worker("xmpp://worker@example.org")
@worker.task("fine")
async def fine(job: Job, more: int = 1) -> None: ...
@worker.task("needs")
async def needs(job: Job, session: str) -> None: ...
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert ended.stderr.splitlines()[-1] == (
        "TypeError: needs takes 2 arguments: a handler takes one, the job; "
        "the others are Annotated[…, Depends(…)], with pip install 'stanzaq[depends]'"
    )
