"""What counts as an attempt, and when a job has ended: by a plain client over XMPP, and by the library over both transports."""

import asyncio
import functools
from typing import Any

import pytest

from stanzaq import Job, Publisher, Retry, StanzaqError, Worker
from tests.journeys.client import STANZAQ, Client, Delivery
from tests.journeys.conftest import Account, Join
from tests.waiting import PATIENCE_SECONDS

_TEN = [f"i{number}" for number in range(10)]


async def _held(worker: Client, count: int) -> dict[str, Delivery]:
    found = [await worker.next(Delivery) for _ in range(count)]
    return {delivery.item: delivery for delivery in found}


async def test_nine_of_ten_are_innocent(join: Join) -> None:
    """Issue 48.3: of ten items one kills its worker three times, which told that it had begun: the others lose nothing."""
    owner = await join()
    node = await owner.queue({"stanzaq#max_deliveries": "3"})
    for item in _TEN:
        assert (await owner.publish(node, item)).error == ""
    for attempt in (1, 2, 3):
        worker = await join()
        worker.present()
        assert (await worker.subscribe(node, 10)).error == ""
        held = await _held(worker, 10)
        assert {item: delivery.attempt for item, delivery in held.items()} == dict.fromkeys(_TEN, 1) | {"i7": attempt}
        row = f"<renew id='i7' token='{held['i7'].token}' begun='1'/>"
        assert (await worker.ask(f"<settle xmlns='{STANZAQ}' node='{node}'>{row}</settle>")).error == ""
        await worker.close()
    worker = await join()
    assert (await worker.subscribe(node, 10)).error == ""
    assert {item: each.attempt for item, each in (await _held(worker, 9)).items()} == {
        item: 1 for item in _TEN if item != "i7"
    }


async def test_untried(join: Join) -> None:
    """An item that comes back untried is at its first attempt, however often; one that is asked for says so."""
    owner, worker = await join(), await join()
    node = await owner.queue({"stanzaq#max_deliveries": "2"})
    assert (await owner.publish(node, "a")).error == ""
    assert (await worker.subscribe(node, 1)).error == ""
    for _ in range(6):
        delivery = await worker.next(Delivery)
        assert delivery.attempt == 1 and "reply" not in delivery.lock.attrib
        hint = f"<hint xmlns='{STANZAQ}' untried='1'/>"
        item = f"<item id='a' token='{delivery.token}'/>"
        unlock = f"<unlock xmlns='urn:xmpp:pubsub:queueing:0' node='{node}'>{item}{hint}</unlock>"
        pubsub = f"<pubsub xmlns='http://jabber.org/protocol/pubsub'>{unlock}</pubsub>"
        assert (await worker.ask(pubsub)).error == ""


async def test_a_job_ends_with_its_work(user: Account, join: Join) -> None:
    """Issue 48.1: work that a partial hides has its lock until it ends; a result that cannot be sent fails a job with a reply."""
    owner, go_on = await join(), asyncio.Event()
    node = await owner.queue({"pubsub#access_model": "open"})
    worker = Worker(**user, grace=0)

    async def work(job: Job[str], _factor: int) -> Any:  # noqa: ANN401
        await go_on.wait()
        return object() if job.payload == "unsendable" else job.payload

    @functools.partial
    def hidden(job: Job[str]) -> Any:  # noqa: ANN401
        return work(job, 2)

    worker.task(node, retry=Retry(attempts=1))(hidden)
    serving = asyncio.create_task(worker.serve())
    async with Publisher(**user) as publisher:
        fine = await publisher.publish(node, "fine", reply=True)
        with pytest.raises(TimeoutError):
            await fine.result(timeout=0.5)
        assert await owner.browse(node)
        go_on.set()
        assert await fine.result(timeout=PATIENCE_SECONDS) == "fine"
        unsendable = await publisher.publish(node, "unsendable", reply=True)
        with pytest.raises(StanzaqError, match="the result cannot be sent"):
            await unsendable.result(timeout=PATIENCE_SECONDS)
        # Nobody asks for this one.
        await publisher.publish(node, "unsendable")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await owner.browse(node):  # noqa: ASYNC110  (nobody is told)
                await asyncio.sleep(0.02)
    worker.stop()
    await serving


async def test_stops_and_deaths(user: Account, join: Join) -> None:
    """Issue 48.3 and 4: three stops cost what waits nothing; a policy counts also what ended with its worker."""
    owner, seen = await join(), list[tuple[str, int]]()
    node = await owner.queue({"pubsub#access_model": "open", "stanzaq#max_deliveries": "9"})
    began = asyncio.Event()

    async def work(job: Job[str]) -> None:
        seen.append((job.payload, job.attempt))
        began.set()
        if job.payload == "long":
            await asyncio.Event().wait()

    async with Publisher(**user) as publisher:
        for payload in ("long", "short", "short"):
            await publisher.publish(node, payload)
    for how in ("stop", "stop", "stop", "die", "last"):
        worker = Worker(**user, grace=0, prefetch=5)
        worker.task(node, retry=Retry(attempts=4, delay=0))(work)
        began.clear()
        serving = asyncio.create_task(worker.serve())
        async with asyncio.timeout(PATIENCE_SECONDS):
            await began.wait()
            if how == "last":
                while await owner.browse(node):  # noqa: ASYNC110  (nobody is told)
                    await asyncio.sleep(0.02)
        if how == "die":
            serving.cancel()
        worker.stop()
        await asyncio.wait({serving}, timeout=PATIENCE_SECONDS)
    assert seen == [("long", 1), ("long", 2), ("long", 3), ("long", 4), ("short", 1), ("short", 1)]
