"""Groups and chains: items that wait for others, and get what these return."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from stanzaq import Job, Reject, StanzaqError, Task, Worker, chain, group
from stanzaq.payloads import Unfit
from stanzaq.testing import TestBroker
from stanzaq.transport.interface import Content, Delivery, Lock, Outcome
from stanzaq.worker.passed import Find, read


@dataclass
class Picture:
    """A payload."""

    path: str
    side: int = 100


worker = Worker("xmpp://worker@example.org", concurrency=4)


@worker.task("pictures", name="resize")
async def resize(job: Job[Picture]) -> Picture:
    """Halve a picture; reject one that is gone."""
    if job.payload.path == "gone.png":
        raise Reject("no such picture")  # noqa: EM101, TRY003
    return Picture(job.payload.path, job.payload.side // 2)


@worker.task("pictures", name="frame")
async def frame(job: Job[Picture]) -> str:
    """Name a picture."""
    return f"{job.payload.path} {job.payload.side}"


@worker.task("texts")
async def repeat(job: Job[str]) -> str:
    """Repeat a text, so that it is too long to be passed."""
    return job.payload * 1_000


@worker.task("lengths")
async def length(job: Job[str]) -> int:
    """Measure a text."""
    return len(job.payload)


@worker.task("albums")
async def album(job: Job[list[Any]]) -> list[Any]:
    """Return what was passed."""
    return job.payload


@worker.task("nothing")
async def nothing(_job: Job[Any]) -> None:
    """Return nothing."""


@worker.task("anything")
async def anything(job: Job[Any]) -> list[Any]:
    """Return what was passed."""
    return [job.payload]


@worker.task("bytes")
async def raw(_job: Job[Any]) -> bytes:
    """Return what no list can have."""
    return b"\xff"


async def test_flows() -> None:
    """Results are passed on with their types, short ones by the header, long ones from the ends that are kept."""
    async with TestBroker(worker) as broker:
        assert await chain(resize.item(Picture("cat.png")), resize, frame).call(timeout="20s") == "cat.png 25"
        assert await group(*(length.item("x" * n) for n in range(3))).call() == [0, 1, 2]
        texts = group(resize.item(Picture("a", 4)), chain(resize.item(Picture("b", 8)), resize))
        assert await chain(texts, album).call() == [{"path": "a", "side": 2}, {"path": "b", "side": 2}]
        long = chain(repeat.item("ü7"), length)
        assert await long.call() == 2_000
        assert await chain(group(repeat.item("ab"), repeat.item("8")), album).call() == ["ab" * 1_000, int("8" * 1_000)]
        assert await chain(repeat.item(""), anything).call() == [""]
        assert await chain(nothing.item(None), anything).call() == [None]
        elsewhere = Task[Picture, str]("pictures", "frame")
        ids = await chain(resize.item(Picture("c"), id="one", delay="1h"), elsewhere).on(broker).send()
        assert ids == ["one/frame"]
        await broker.drain(raises=True)


async def test_links_with_options() -> None:
    """A later link may say how it is sent, and so may a task everywhere; what is given where it is sent comes first."""
    elsewhere = Task[Picture, str]("pictures", "frame").using(key="k", priority=7, ttl="1h", headers={"a": "b"})
    async with TestBroker(worker) as broker:
        late = chain(resize.item(Picture("c"), id="one"), frame.using(delay="1h").using(priority=2), length)
        await late.send()
        await chain(resize.item(Picture("d")), elsewhere).on(broker).send()
        await elsewhere.on(broker).send(Picture("e"), priority=1, headers={"c": "d"})
        _, first, _, _, second, third = broker.sent()
        assert (first.delay, first.priority, first.task) == (3_600, 2, "frame")
        assert (second.key, second.priority, second.ttl) == ("k", 7, 3_600)
        assert second.headers == {"a": "b", "payload": "result"}
        assert (third.key, third.priority, third.headers) == ("k", 1, {"a": "b", "c": "d"})
        with pytest.raises(TypeError, match="'prioriyt'"):
            await frame.using(prioriyt=7).send(Picture("f"))  # type: ignore[call-arg]
        await broker.drain(raises=True)


async def test_dead_links() -> None:
    """Guarantee 8: if a link is dead, those that wait for it die and say so, and whoever waits is told; nothing is lost."""
    async with TestBroker(worker) as broker:
        with pytest.raises(StanzaqError, match=r"^x/frame is dead: parent-dead") as dead:
            await chain(resize.item(Picture("gone.png"), id="x"), frame).call(timeout="20s")
        assert dead.value.condition == "dead"
        with pytest.raises(StanzaqError, match="no such picture"):
            await group(resize.item(Picture("gone.png")), resize.item(Picture("cat.png"))).call(timeout="20s")
        with pytest.raises(
            StanzaqError, match=r"is dead: a result of application/octet-stream cannot be passed in a list"
        ):
            await chain(group(raw.item(None)), album).call(timeout="20s")
        await broker.publish("albums", None, id="alone", headers={"payload": "results"})
        await broker.drain()
        told = {each.id: each.reason for each in await broker.dead("albums")}
        assert told["alone"] == "the item has the header 'payload', and waited for no other item"
        assert {each.id for each in await broker.dead("pictures")} >= {"x", "x/frame"}


def test_bad_flows() -> None:
    """What cannot be sent is refused before anything is."""
    item = length.item("a")
    with pytest.raises(ValueError, match=r"group\(\) takes items and chains, at least one"):
        group()
    with pytest.raises(ValueError, match="no groups: give their items to one group"):
        group(group(item))
    with pytest.raises(ValueError, match="albums would wait for 101 items: a group in a chain has at most 100"):
        chain(group(*[item] * 101), album)
    with pytest.raises(TypeError, match="is no str"):
        length.item(1)  # type: ignore[arg-type]
    chain(item, repeat)  # type: ignore[misc]


async def test_ends_that_are_not_to_be_read() -> None:
    """A long result that the worker's account may not read is told in a sentence; while the service is away, the job waits."""
    now, told = datetime.now(UTC), {"payload": "result", "stanzaq-parents": '[{"item": "one", "node": "a"}]'}
    delivery = Delivery(Lock("b", "two", 1), 1, 20, now, Content(b"null", "application/json"), told, "", now)

    def refuse(condition: str) -> Find:
        async def find(node: str, item: str) -> Outcome:
            raise StanzaqError(f"cannot read {node} {item}: {condition}", condition)  # noqa: EM102, TRY003

        return find

    why = r"^the result of one of a is nothing, or too long to be passed, and this account may not read it \(cannot read a one"
    with pytest.raises(Unfit, match=why):
        await read(delivery, str, refuse("item-not-found"))
    with pytest.raises(StanzaqError, match="internal-server-error"):
        await read(delivery, str, refuse("internal-server-error"))
