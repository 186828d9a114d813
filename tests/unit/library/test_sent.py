"""What a program has sent: items that tests compare, whoever opened the publisher, and without a handler."""

import asyncio
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from stanzaq import Job, Publisher, Queue, StanzaqError, Task, Worker, chain, sync
from stanzaq.testing import Sent, TestBroker

RESIZE = Task[dict[str, Any], int]("pictures", "resize")

shop = sync.Publisher("http://127.0.0.1:9", password="x")
"""As a program has it that serves web pages: open as long as that."""

Take = Callable[..., list[Sent]]


async def test_a_broker_without_a_worker() -> None:
    """It takes items, and tells them as they were asked for, in order."""
    async with TestBroker(nodes={"orders": {}, "pictures": {}}) as broker:
        how: Any = {"key": "k", "priority": 7, "ttl": "2h", "headers": {"a": "b"}, "keep": True}
        await broker.publish("orders", {"total": 12}, id="one", delay="10m", **how)
        at = datetime.now(UTC) + timedelta(days=1)
        await broker.publish("orders", "text", id="two", at=at, after=["one"], regardless=True, reply=True)
        await RESIZE.on(broker).send({"file": "cat.png"}, id="three", headers={"a": "b"})
        await broker.publish_many("orders", iter([1, 2, 3]))
        assert broker.sent("pictures") == [
            Sent("pictures", "three", {"file": "cat.png"}, task="resize", headers={"a": "b"})
        ]
        one, two, *many = broker.sent("orders")
        assert one == Sent("orders", "one", {"total": 12}, delay=600, **{**how, "ttl": 7200})
        assert two == Sent("orders", "two", "text", at=at, after=(("", "one"),), regardless=True, reply=True)
        assert [each.payload for each in many] == [1, 2, 3]
        assert [each.id for each in broker.sent()][:3] == ["one", "two", "three"]
        with pytest.raises(
            StanzaqError,
            match=r"^cannot publish to oders: item-not-found \(the test has no such queue: check its name, or declare it",
        ):
            await broker.publish("oders", 1)
        await broker.declare(Queue("oders"))
        await broker.publish("oders", 1)
        assert len(broker.sent("oders")) == 1
        with pytest.raises(StanzaqError, match="bad-request"):
            await broker.publish("orders", 1, priority=10)
        assert len(broker.sent("orders")) == 5


async def test_what_jobs_send() -> None:
    """What jobs publish is there as well, at once or with their ends."""
    worker = Worker("xmpp://worker@example.org")

    @worker.task("orders")
    async def _order(job: Job[int]) -> None:
        await job.publish("mails", job.payload, id=f"mail-{job.attempt}")
        job.then("invoices", job.payload, id=f"invoice-{job.attempt}", delay="1d")
        if job.attempt == 1:
            raise ZeroDivisionError

    may: Any = {"pubsub#publish_model": "open"}
    async with TestBroker(worker, nodes={"orders": {}, "mails": may, "invoices": may}) as broker:
        await broker.publish("orders", 7, id="order")
        await broker.drain()
        assert [each.id for each in broker.sent()] == ["order", "mail-1", "mail-2", "invoice-2"]
        assert broker.sent("invoices") == [Sent("invoices", "invoice-2", 7, delay=86_400)]


@pytest.mark.parametrize("number", [1, 2])
def test_a_blocking_program(stanzaq_sent: Take, number: int) -> None:
    """A program's own publisher sends to the test's queues, in each test anew; queues that it does not have are told."""
    sent = stanzaq_sent("orders", Queue("pictures", max_items=1, node_full="reject"))
    assert sent == []
    shop.publish("orders", {"total": number}, id="one", key="k")
    sync.Task(RESIZE).on(shop).send({"file": "cat.png"}, id="two")
    assert sent == [
        Sent("orders", "one", {"total": number}, key="k"),
        Sent("pictures", "two", {"file": "cat.png"}, task="resize"),
    ]
    with pytest.raises(StanzaqError, match=r"cannot publish to oders: item-not-found \(the test has no such queue"):
        shop.publish("oders", 1)
    with pytest.raises(StanzaqError, match=r"cannot publish to pictures: conflict"):
        shop.publish("pictures", 1)
    reply = shop.publish("orders", 1, id="three", reply=True)
    assert shop.cancel("orders", "three") and not shop.cancel("orders", "nothing")
    with pytest.raises(StanzaqError, match="three is cancelled"):
        reply.result("30s")
    assert shop.schedule("orders", "report", 1, cron="0 9 * * *").id == "report"
    assert len(sent) == 3


def test_the_documentation(stanzaq_sent: Take) -> None:
    """The test of a program that only publishes does what library.md says."""
    page = (Path(__file__).parents[3] / "docs" / "library.md").read_text()
    (program,) = re.findall(r"```python\n# test_shop\.py\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(program, names)  # noqa: S102
    names["test_order"](stanzaq_sent)


async def test_an_async_program(stanzaq_sent: Take) -> None:
    """So does one with an event loop of its own, over whichever transport."""
    sent = stanzaq_sent("pictures")
    for url in ("xmpp://publisher@example.org", "https://publisher@example.org@queue.example.org"):
        async with Publisher(url) as publisher:
            await chain(RESIZE.item({}, id="one"), Task[int, None]("pictures", "frame")).on(publisher).send()
    first, second, *_ = sent
    assert (first.id, first.keep, second.id, second.after) == ("one", True, "one/frame", (("pictures", "one"),))
    assert len(sent) == 4
    with pytest.raises(TypeError, match="is no name of a node"):
        await asyncio.to_thread(stanzaq_sent, "")
