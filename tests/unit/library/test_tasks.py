"""Tasks with types: what is sent for them, who gets it, and what they return."""

from __future__ import annotations

import asyncio
import pickle
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pytest

from stanzaq import Job, Publisher, StanzaqError, Task, Worker, group, sync
from stanzaq.testing import TestBroker
from stanzaq.worker.processes import _pickle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@dataclass
class Picture:
    """A payload."""

    path: str
    side: int = 100


@dataclass
class Size:
    """A result."""

    width: int


resize = Task[Picture, Size]("pictures", "resize")
"""As a program declares it that does not have the handler."""

worker = Worker("xmpp://worker@example.org", concurrency=4)


@worker.task("pictures", name="resize")
async def _resize(job: Job[Picture]) -> Size:
    return Size(job.payload.side)


@worker.task("pictures", name="count")
def count(job: Job[list[int]]) -> int:
    """Count, in a thread."""
    return sum(job.payload)


@worker.task("albums")
async def album(job: Job[list[Picture]]) -> list[int]:
    """Call another task over the worker's own connection."""
    return [(await resize.call(picture)).width for picture in job.payload]


@worker.task("doubles", run_in="process")
def double(job: Job[int]) -> int:
    """Double a number, in another process."""
    return 2 * job.payload


async def test_types_and_names() -> None:
    """A task of a worker sends and calls over its connection, each item to the task of its name; results have their types."""
    async with TestBroker(worker) as broker:
        assert await _resize.call(Picture("cat.png", 7), key="cats") == Size(7)
        assert await count.call([1, 2]) == 3
        assert await album.call([Picture("a"), Picture("b", 5)], timeout="20s") == [100, 5]
        assert await resize.on(broker).call(Picture("dog.png", 8)) == Size(8)
        assert await resize.on(broker).send(Picture("dog.png"), id="one", delay="1h") == "one"
        assert len(await count.send_many([n] for n in range(3))) == 3

        async def pictures() -> AsyncIterator[Picture]:
            yield Picture("a.png")

        assert len(await resize.on(broker).send_many(pictures())) == 1
        await broker.drain(raises=True)


async def test_process() -> None:
    """A decorated function runs in another process, though its name there is its task's."""
    assert pickle.loads(_pickle((double.handler, 1)))[0] is double.handler  # noqa: S301
    async with TestBroker(worker):
        assert await double.call(21, timeout="60s") == 42


def test_functions() -> None:
    """A task is still called as its function, and is known by its name and docstring; one function may be two tasks."""
    made = Worker("xmpp://worker@example.org")
    twice = made.task("b")(made.task("a")(count.handler))
    assert repr(count) == "pictures (count)" and count.__doc__ == "Count, in a thread."
    assert twice.handler is count.handler and (twice.node, repr(twice)) == ("b", "b")
    assert repr(resize) == "pictures (resize)"

    class Named:
        name, node = "an object's", "own"

        def __call__(self, job: Job[int]) -> int:
            return job.payload

    handler = Named()
    vars(handler)["name"] = "own"
    named = made.task("c")(handler)
    assert (named.node, named.name, named.handler) == ("c", "", handler)


async def test_unknown_names() -> None:
    """An item of a name that the worker has no task for becomes a dead letter that says so, as one without a name."""
    async with TestBroker(worker) as broker:
        await Task[int, None]("pictures", "crop").on(broker).send(1, id="one")
        await Task[int, None]("pictures").on(broker).send(1, id="two")
        await broker.drain()
        dead = {each.id: each.reason for each in await broker.dead("pictures")}
    assert dead == {
        "one": "the worker has no task 'crop' for pictures: it has 'count', 'resize'",
        "two": "the worker has no task without a name for pictures: it has 'count', 'resize'",
    }


async def test_wrong_payloads() -> None:
    """Guarantee 8: what the handler would not accept is refused before it is sent; type checkers find it before that."""
    async with TestBroker(worker) as broker:
        with pytest.raises(
            TypeError, match=r"^pictures \(resize\): the payload \(application/json\) is no Picture: .*`path`"
        ):
            await resize.on(broker).send({"file": "cat.png"})  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="is no list"):
            await count.call(1)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="is no list"):
            await count.send_many([1])  # type: ignore[list-item]
        total: list[str] = [await count.call([1])]  # type: ignore[list-item]
        assert len(total) == 1
        await broker.drain(raises=True)


async def test_other_results() -> None:
    """A result of another type than a program declares is a fault of the call, which no worker takes for its own job's."""
    async with TestBroker(worker) as broker:
        with pytest.raises(StanzaqError, match=r"is not what the task declares: the payload .* is no Size"):
            await Task[list[int], Size]("pictures", "count").on(broker).call([1])


def test_bad_schedules() -> None:
    """What cannot be scheduled is refused where it is written."""
    made = Worker("xmpp://worker@example.org")
    task = made.task("jobs")(count.handler)
    made.schedule([1], cron="0 9 * * *")(task)
    with pytest.raises(ValueError, match="jobs has a schedule task:count already: give this one an id"):
        made.schedule([2], cron="0 10 * * *")(task)
    with pytest.raises(TypeError, match=r"jobs: the payload .* is no list"):
        made.schedule({}, every="1h", id="other")(task)
    with pytest.raises(TypeError, match=r"is no task: write @worker.schedule\(…\) above @worker.task\(…\)"):
        made.schedule()(count.handler)  # type: ignore[type-var]


async def test_without_a_connection() -> None:
    """Where no worker runs, a task says what it needs."""
    for task in (resize, _resize):
        with pytest.raises(
            StanzaqError, match=r"^pictures \(resize\) has no connection here.*: bind it to a publisher with on"
        ):
            await task.send(Picture("cat.png"))
    with pytest.raises(TypeError, match=r"'' is no name of a node: write Queue"):
        Task[int, int]("")
    closed = resize.on(Publisher("xmpp://publisher@example.org", password="x"))
    with pytest.raises(StanzaqError, match="the publisher is not open"):
        await closed.send(Picture("cat.png"))


async def test_blocking() -> None:
    """In a handler's thread the blocking twin sends over the worker's connection; in the loop it says what to do instead."""
    made = Worker("xmpp://worker@example.org", concurrency=3)
    blocking = sync.Task(resize)

    @made.task("threads")
    def thread(job: Job[int]) -> int:
        return blocking.call(Picture("a", job.payload), timeout="20s").width + len(blocking.send_many([Picture("b")]))

    @made.task("flows")
    def flows(job: Job[int]) -> list[int]:
        flow = group(*(resize.item(Picture("a", side)) for side in range(job.payload)))
        assert len(sync.Flow(flow).send(timeout="20s")) == job.payload
        return [size.width for size in sync.Flow(flow).call(timeout="20s")]

    @made.task("loops")
    async def loop(_job: Job[int]) -> str:
        try:
            return blocking.send(Picture("a"))
        except StanzaqError as error:
            return str(error)

    made.task("pictures", name="resize")(_resize)
    async with TestBroker(made) as broker:
        assert await thread.call(6) == 7
        assert await flows.call(3) == [0, 1, 2]
        assert (
            await loop.call(6) == f"{resize!r}: this would block the worker's own event loop: await stanzaq.Task there"
        )
        # A broker takes the calls of a blocking program as well.
        assert await asyncio.to_thread(sync.Task(resize.on(broker)).call, Picture("a", 7)) == Size(7)
    other = resize.on(Publisher("xmpp://publisher@example.org", password="x"))
    for send in (partial(sync.Task(other).send, Picture("a")), sync.Flow(other.item(Picture("a"))).send):
        with pytest.raises(StanzaqError, match="bound to a publisher that does not block"):
            send()
    closed = sync.Publisher("http://127.0.0.1:9", password="x")
    with closed, pytest.raises(TimeoutError):
        sync.Task(_resize).on(closed).send(Picture("a"), timeout=0.01)
    with closed, pytest.raises(TimeoutError):
        sync.Flow(_resize.item(Picture("a"))).on(closed).send(timeout=0.01)
    with pytest.raises(StanzaqError, match="has no connection here"):
        blocking.send(Picture("a"))
