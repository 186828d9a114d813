"""Routers: what modules declare for a worker that includes them."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from stanzaq import CallNext, Job, Queue, Router, StanzaqError, Worker
from stanzaq.testing import TestBroker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

processes = Router()


@processes.task("doubles", run_in="process")
def double(job: Job[int]) -> int:
    """Double a number, in another process."""
    return 2 * job.payload


def made(url: str = "xmpp://worker@example.org") -> Worker:
    """Make a worker."""
    return Worker(url, concurrency=4)


async def test_routers() -> None:
    """A worker runs the tasks of its routers, each inside its own hooks and the worker's, and they send over its connection."""
    worker, pictures, albums, did = made(), Router(), Router(), list[Any]()

    def hooks(name: str, of: Router) -> None:
        @of.lifespan
        async def _lifespan() -> AsyncIterator[str]:
            did.append(f"{name} opened")
            yield name
            did.append(f"{name} closed")

        @of.middleware
        async def _middleware(job: Job, call_next: CallNext) -> None:
            did.append((name, job.state))
            await call_next(job)

    @pictures.task(Queue("pictures", max_deliveries=3))
    async def resize(job: Job[str]) -> str:
        did.append(job.state)
        return f"small-{job.payload}"

    @albums.task("albums")
    async def album(job: Job[list[str]]) -> list[str]:
        return [await resize.call(name) for name in job.payload]

    @worker.task("jobs")
    async def _job(job: Job[str]) -> None:
        did.append(job.state)

    hooks("albums", albums)
    hooks("pictures", pictures)
    albums.include(pictures)
    worker.include(albums)
    # As in a program whose hooks stand below.
    hooks("worker", worker)
    with pytest.raises(StanzaqError, match="no connection here, where no worker runs"):
        await resize.send("cat.png")
    async with TestBroker(worker) as broker:
        assert await album.call(["cat.png"]) == ["small-cat.png"]
        await broker.publish("jobs", "one")
        await broker.drain()
        await broker.publish("pictures", "dog.png", headers={"task": "none"})
        await broker.drain()
        (dead,) = await broker.dead("pictures")
    assert "the worker has no task 'none' for pictures" in dead.reason
    assert did == [
        *("worker opened", "albums opened", "pictures opened"),
        *(("worker", "albums"), ("albums", "albums")),
        *(("worker", "pictures"), ("albums", "pictures"), ("pictures", "pictures"), "pictures"),
        *(("worker", "worker"), "worker"),
        # An item for no task is nobody's.
        ("worker", "worker"),
        *("pictures closed", "albums closed", "worker closed"),
    ]


async def test_documentation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker and the router in library.md do what is said of them."""
    page = (Path(__file__).parents[3] / "docs" / "library.md").read_text()
    programs = dict(re.findall(r"```python\n# (\w+)\.py.*?\n(.*?)```", page, re.DOTALL))
    for module in ("mails", "shop"):
        monkeypatch.setitem(sys.modules, module, ModuleType(module))
        exec(programs[module], vars(sys.modules[module]))  # noqa: S102
    shop, mails = (vars(sys.modules[module]) for module in ("shop", "mails"))
    async with TestBroker(shop["worker"]) as broker:
        await broker.publish("orders", "order-7")
        await broker.drain(raises=True)
    assert mails["sent"] == ["thanks for order-7"]


async def test_processes() -> None:
    """A task of a router runs in another process, where its module knows it by its name."""
    worker = made()
    worker.include(processes)
    async with TestBroker(worker):
        assert await double.call(21, timeout="20s") == 42


def test_refusals() -> None:
    """What cannot be included, or comes too late, is refused with one sentence, and nothing is lost silently."""

    async def handle(job: Job) -> None: ...

    def router(name: str) -> Router:
        declared = Router()
        declared.schedule(id="daily", every="1d")(declared.task("jobs", name=name)(handle))
        return declared

    worker, first = made(), router("one")
    for wrong in (None, "router", Router, made()):
        with pytest.raises(TypeError, match=r"^include takes a stanzaq\.Router, and not .*: a worker includes"):
            worker.include(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the router has no task: import the modules"):
        worker.include(Router())
    worker.include(first)
    for includer in (worker, made(), Router()):
        with pytest.raises(
            ValueError, match=r"^the router was included already: declare all before that, and include it"
        ):
            includer.include(first)
    with pytest.raises(ValueError, match="was included already"):
        first.task("late")(handle)
    with pytest.raises(ValueError, match="was included already"):
        first.on_start(made().serve)
    with pytest.raises(ValueError, match=r"^jobs has a task one already: <function .*handle"):
        worker.include(router("one"))
    with pytest.raises(ValueError, match=r"^jobs has a schedule task:daily already"):
        worker.include(router("two"))
    queues = [Router(), Router()]
    for each, count in zip(queues, (1, 2), strict=True):
        each.task(Queue("queue", max_deliveries=count), name=str(count))(handle)
    worker.include(queues[0])
    with pytest.raises(ValueError, match=r"^queue is declared twice, and differently"):
        worker.include(queues[1])
    (itself := Router()).task("jobs")(handle)
    with pytest.raises(ValueError, match="was included already"):
        itself.include(itself)
