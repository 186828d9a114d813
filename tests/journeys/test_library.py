"""The library `stanzaq` over XMPP and HTTP with a real ejabberd and frontends: workers and publishers as users write them."""

import asyncio
import contextlib
import json
import logging
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element

import pytest

from frontends.tools.servers.process import free_port
from stanzaq import Job, Publisher, Queue, Reject, Retry, StanzaqError, Task, Worker, chain, group, sync
from stanzaq.xmpp import worker as xmpp_worker
from stanzaq.xmpp.connection import XmppConnection
from tests.doors.frontend import ALICE, HASH
from tests.doors.rest.served import RestFrontend, client
from tests.journeys.client import (
    COMMANDS,
    DISCO_INFO,
    PUBSUB,
    RETRACTED,
    STANZAQ,
    UNLOCKED,
    Client,
    Delivery,
    form_values,
    submitted,
)
from tests.journeys.conftest import Account, Join, over_http
from tests.journeys.service import DOMAIN, Service
from tests.network import network
from tests.waiting import PATIENCE_SECONDS

_AGAIN_SECONDS = 2.0
"""The pause before a file is changed again that may not have been watched yet."""


@dataclass
class Picture:
    """A payload."""

    path: str
    width: int = 100


@dataclass
class Seen:
    """Records what handlers did, in order, from any thread; tests can wait for it."""

    all: list[Any] = field(default_factory=list)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, what: Any) -> None:  # noqa: ANN401
        """Record something."""
        self.all.append(what)
        self._loop.call_soon_threadsafe(self._changed.set)

    async def until(self, count: int) -> list[Any]:
        """Wait for so many records; return them."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(self.all) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.all


def through(user: Account, address: str) -> Account:
    """Change the address of a worker or publisher."""
    return {**user, "address": address} if "address" in user else over_http(int(address.rpartition(":")[2]))


@asynccontextmanager
async def serving(worker: Worker) -> AsyncIterator[asyncio.Task[None]]:
    """Run a worker meanwhile, and stop it in order."""
    task = asyncio.create_task(worker.serve())
    try:
        yield task
    finally:
        worker.stop()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await task


def in_process(job: Job[dict[str, str]]) -> None:
    """Run in another process, and leave a file there."""
    with open(job.payload["path"], "x") as file:  # noqa: PTH123
        file.write(f"{threading.current_thread().name} {job.attempt}")


async def test_payloads_and_places(user: Account, join: Join, tmp_path: Any) -> None:  # noqa: ANN401
    """Coroutines, functions in threads and in processes get items of their declared types; returning acknowledges."""
    seen, owner = Seen(), await join()
    pictures, texts, files, elements = [await owner.queue() for _ in range(4)]
    worker = Worker(grace=5, **user, concurrency=3)

    @worker.task(pictures)
    async def _picture(job: Job[Picture]) -> None:
        seen.add((job.payload, job.id, job.attempt, dict(job.headers), job.key))

    @worker.task(texts)
    def _text(job: Job[str]) -> None:
        seen.add((job.payload, threading.current_thread() is threading.main_thread()))

    @worker.task(elements)
    async def _element(job: Job[Element]) -> None:
        seen.add(job.payload.get("kind"))

    worker.task(files, run_in="process")(in_process)
    async with serving(worker), Publisher(**user) as publisher:
        headers = {"color": "red", "traceparent": f"00-{1:032x}-{2:016x}-01"}
        await publisher.publish(pictures, Picture("ü<&>.png"), id="one", key="k", headers=headers)
        assert await seen.until(1) == [(Picture("ü<&>.png"), "one", 1, headers, "k")]
        ids = await publisher.publish_many(texts, ["x", "ü<&>\n"])
        assert len(set(ids)) == 2
        await publisher.publish(elements, ET.fromstring("<job xmlns='urn:x' kind='ä'/>"))
        assert sorted(map(str, (await seen.until(4))[1:])) == ["('x', False)", "('ü<&>\\n', False)", "ä"]
        await publisher.publish(files, {"path": str(tmp_path / "done")})
        for node in (pictures, texts, files, elements):
            await eventually_empty(owner, node)
    assert (tmp_path / "done").read_text() == "MainThread 1"


async def test_batches(over_xmpp: Account, join: Join, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is published or finished in one turn goes in one stanza, by publishers and workers that know nothing of it."""
    said, seen, owner, ready = list[str](), Seen(), await join(), asyncio.Event()
    send = XmppConnection.send

    def note(connection: XmppConnection, text: str) -> None:
        said.append(text)
        send(connection, text)

    monkeypatch.setattr(XmppConnection, "send", note)
    node = await owner.queue()
    worker = Worker(grace=5, **over_xmpp, concurrency=30)

    @worker.task(node)
    async def _work(job: Job[int]) -> None:
        seen.add((job.payload, job.attempt))
        await ready.wait()

    async with Publisher(**over_xmpp) as publisher:
        await publisher.publish(node, 0)
        ids = await publisher.publish_many(node, range(1, 30))
        with pytest.raises(StanzaqError, match="item-not-found"):
            await publisher.publish_many(f"{node}-none", range(2))
        async with serving(worker):
            assert sorted(await seen.until(30)) == [(number, 1) for number in range(30)]
            ready.set()
            await eventually_empty(owner, node)
    assert len(set(ids)) == 29 and len(seen.all) == 30
    assert sum(text.count("<publish ") for text in said) < 30
    assert any("<settle " in text and text.count("<ack ") > 1 for text in said)
    assert any("stanzaq#batch" in text for text in said)


async def test_ends_that_it_knows(over_xmpp: Account, join: Join, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker is not told of ends that are its own doing: it may have the next item of that id by then, and would cancel it."""
    told, seen, owner = list[str](), Seen(), await join()
    hear = XmppConnection._hear

    def note(connection: XmppConnection, stanza: Element) -> bool:
        told.extend(each.tag for each in stanza.iter() if each.tag in {RETRACTED, UNLOCKED})
        return hear(connection, stanza)

    monkeypatch.setattr(XmppConnection, "_hear", note)
    node, worker = await owner.queue(), Worker(grace=5, **over_xmpp)

    @worker.task(node)
    async def _job(job: Job[Any]) -> str:
        seen.add(job.attempt)
        if job.attempt == 1:
            raise Retry(delay=0)
        return "a result"

    async with serving(worker):
        assert (await owner.publish(node, "one")).error == ""
        assert await seen.until(2) == [1, 2]
        await eventually_empty(owner, node)
    assert told == []


async def release(owner: Client, node: str, item: str) -> None:
    """End a lock by force."""
    form = submitted(f"{STANZAQ}#release", {"node": node, "items": item})
    told = await owner.ask(f"<command xmlns='{COMMANDS}' node='{STANZAQ}#release'>{form}</command>")
    assert told.error == ""


async def counted(owner: Client, node: str, what: str) -> int:
    """Ask a node for one of its counts."""
    told = await owner.ask(f"<query xmlns='{DISCO_INFO}' node='{node}'/>", "get")
    return int(form_values(told.element)[f"stanzaq#{what}"])


async def logged(caplog: pytest.LogCaptureFixture, text: str, times: int = 1) -> None:
    """Wait until this is logged so many times."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while caplog.text.count(text) < times:  # noqa: ASYNC110  (nobody is told)
            await asyncio.sleep(0.02)


async def eventually_empty(owner: Client, node: str) -> None:
    """Wait until a node is empty."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await owner.browse(node):  # noqa: ASYNC110  (nobody is told)
            await asyncio.sleep(0.05)


async def test_a_long_job_is_run_once(over_xmpp: Account, join: Join, door: RestFrontend) -> None:
    """A job of 7 s under a lock of 3 s keeps it, over each transport: the lock is renewed, and the job is run once."""
    seen, owner = Seen(), await join()
    async with AsyncExitStack() as stack:
        for user in (over_xmpp, over_http(door.port)):
            node, worker = await owner.queue({"stanzaq#lock_seconds": "3"}), Worker(grace=5, **user)

            @worker.task(node)
            async def _long(job: Job[Any]) -> None:
                seen.add((job.node, job.attempt))
                await asyncio.sleep(7)
                seen.add((job.node, "done"))

            await stack.enter_async_context(serving(worker))
            publisher = await stack.enter_async_context(Publisher(**user))
            await publisher.publish(node, {})
        nodes = {node for node, _ in await seen.until(4)}
        for node in nodes:
            await eventually_empty(owner, node)
    assert set(seen.all) == {(node, what) for node in nodes for what in (1, "done")} and len(seen.all) == 4


async def test_a_collection(user: Account, join: Join) -> None:
    """H5: a task of a collection works the items of all queues below it."""
    seen, owner = Seen(), await join()
    above = f"above-{secrets.token_hex(4)}"
    options = {"pubsub#node_type": "collection", "pubsub#access_model": "open"}
    assert (await owner.create(above, options)).error == ""
    assert (await owner.create(f"{above}-2", {**options, "pubsub#collection": above})).error == ""
    below = sorted([await owner.queue({"pubsub#collection": name}) for name in (above, f"{above}-2")])
    worker = Worker(grace=5, **user)

    @worker.task(above)
    async def _job(job: Job[Any]) -> None:
        await job.renew()
        seen.add(job.node)

    async with serving(worker), Publisher(**user) as publisher:
        for node in below:
            await publisher.publish(node, {})
        assert sorted(await seen.until(2)) == below
        for node in below:
            await eventually_empty(owner, node)


async def test_a_collection_again(over_xmpp: Account, join: Join, monkeypatch: pytest.MonkeyPatch) -> None:
    """P12, H5: a worker confirms its subscription to all that is below a collection, and has no other one."""
    asked, seen, owner, send = list[str](), Seen(), await join(), XmppConnection.send
    above = f"above-{secrets.token_hex(4)}"
    options = {"pubsub#node_type": "collection", "pubsub#access_model": "open"}
    assert (await owner.create(above, options)).error == ""
    assert (await owner.create(f"{above}-2", {**options, "pubsub#collection": above})).error == ""
    node = await owner.queue({"pubsub#collection": f"{above}-2"})

    def note(connection: XmppConnection, text: str) -> None:
        asked.append(text)
        send(connection, text)

    monkeypatch.setattr(XmppConnection, "send", note)
    monkeypatch.setattr(xmpp_worker, "_AGAIN_SECONDS", 0.1)
    worker = Worker(grace=5, **over_xmpp)

    @worker.task(above)
    async def _job(job: Job[Any]) -> None:
        seen.add(job.node)

    async with serving(worker):
        async with asyncio.timeout(PATIENCE_SECONDS):
            while sum(text.startswith("<presence") for text in asked) < 4:  # noqa: ASYNC110  (nobody is told)
                await asyncio.sleep(0.01)
        assert sum("<subscribe " in text for text in asked) == 1
        assert (await owner.publish(node, "one")).error == ""
        assert await seen.until(1) == [node]


async def test_a_queue_below_is_deleted(user: Account, join: Join) -> None:
    """H5: the worker of a collection goes on when a queue below it is deleted: only the jobs of that one are cancelled."""
    seen, owner = Seen(), await join()
    above = f"above-{secrets.token_hex(4)}"
    options = {"pubsub#node_type": "collection", "pubsub#access_model": "open"}
    assert (await owner.create(above, options)).error == ""
    # Over HTTP a worker learns of it when it renews the lock.
    deleted, kept = [await owner.queue({"pubsub#collection": above, "stanzaq#lock_seconds": "3"}) for _ in range(2)]
    worker = Worker(grace=5, **user, concurrency=2)

    @worker.task(above)
    async def _job(job: Job[Any]) -> None:
        seen.add(job.node)
        try:
            await asyncio.sleep(3600 if job.node == deleted else 0)
        except asyncio.CancelledError:
            seen.add("cancelled")
            raise

    async with serving(worker), Publisher(**user) as publisher:
        await publisher.publish(deleted, {})
        await seen.until(1)
        assert (await owner.owner(f"<delete node='{deleted}'/>")).error == ""
        assert await seen.until(2) == [deleted, "cancelled"]
        await publisher.publish(kept, {})
        assert await seen.until(3) == [deleted, "cancelled", kept]
        await eventually_empty(owner, kept)


async def test_failures(user: Account, join: Join) -> None:
    """A failed job is tried again until its attempts are used up; Reject and an unfit payload are dead-lettered at once."""
    seen, owner, reader = Seen(), await join(), await join()
    node = await owner.queue()
    assert (await owner.create(f"{node}/dead", {"pubsub#access_model": "open"})).error == ""
    assert (await reader.subscribe(f"{node}/dead", 10)).error == ""
    worker = Worker(grace=5, **user, concurrency=5)

    @worker.task(node, retry=Retry(attempts=2, delay=0, jitter=False), timeout="200ms")
    async def _job(job: Job[dict[str, str]]) -> None:
        seen.add((job.id, job.attempt, job.max_attempts))
        match job.id:
            case "rejected":
                raise Reject("no such picture")  # noqa: EM101, TRY003  (as users write it)
            case "fails":
                raise ZeroDivisionError("by zero")  # noqa: EM101, TRY003
            case "slow":
                await asyncio.sleep(60)
            case "later" if job.attempt == 1:
                raise Retry(delay="1s")

    async with serving(worker), Publisher(**user) as publisher:
        for name in ("rejected", "fails", "slow", "later"):
            await publisher.publish(node, {}, id=name)
        await publisher.publish(node, "text", id="unfit")
        reasons = {}
        for _ in range(4):
            letter = await reader.next(Delivery)
            headers = {
                each.get("name"): each.text for each in letter.message.iter("{http://jabber.org/protocol/shim}header")
            }
            reasons[headers["stanzaq-dead-item"]] = headers["stanzaq-dead-reason"]
        await seen.until(7)
    assert str(reasons.pop("unfit")).startswith("the payload (text/plain;charset=utf-8) is no dict[str, str]: ")
    assert reasons == {
        "rejected": "no such picture",
        "fails": "attempt 2 of 2 failed: ZeroDivisionError: by zero",
        "slow": "attempt 2 of 2 failed: TimeoutError: not done in 0.2 s",
    }
    tried = [
        ("fails", 1, 2),
        ("fails", 2, 2),
        ("later", 1, 2),
        ("later", 2, 2),
        ("rejected", 1, 2),
        ("slow", 1, 2),
        ("slow", 2, 2),
    ]
    assert sorted(seen.all) == tried


async def work_until_cancelled(job: Job[Any], seen: Seen) -> None:
    """Work for an hour at the first attempt, and record that this is cancelled."""
    try:
        await asyncio.sleep(3600 if job.attempt == 1 else 0)
    except asyncio.CancelledError:
        seen.add("cancelled")
        raise


async def test_a_lost_lock_cancels(user: Account, join: Join) -> None:
    """A handler whose lock an owner ends is cancelled at once; the item is worked again under a larger token."""
    seen, owner = Seen(), await join()
    node = await owner.queue()
    worker = Worker(grace=5, **user)

    @worker.task(node)
    async def _job(job: Job[Any]) -> None:
        seen.add(job.token)
        await work_until_cancelled(job, seen)

    async with serving(worker), Publisher(**user) as publisher:
        await publisher.publish(node, {}, id="one")
        (first,) = await seen.until(1)
        await release(owner, node, "one")
        _first, cancelled, second = sorted(await seen.until(3), key=seen.all.index)
        assert cancelled == "cancelled" and second > first
        await eventually_empty(owner, node)


async def test_progress(user: Account, join: Join, door: RestFrontend) -> None:
    """A job tells how far it is; the item's publisher sees it, and the queue's owner which program works on it."""
    owner, go_on, told = await join(), asyncio.Event(), asyncio.Event()
    node = await owner.queue()
    assert (await owner.affiliate(node, ALICE, "owner")).error == ""
    worker = Worker(grace=5, **user)

    @worker.task(node)
    async def _job(job: Job[Any]) -> None:
        await job.progress(0.4, "two of five\n")
        told.set()
        await go_on.wait()

    async with serving(worker), Publisher(**user) as publisher:
        await publisher.publish(node, {}, id="one")
        async with asyncio.timeout(PATIENCE_SECONDS):
            await told.wait()
        with client(door, ALICE) as http:
            shown = await asyncio.to_thread(http.get, f"/messages/{node}/one", headers={"Accept": "application/json"})
            (one,) = (await asyncio.to_thread(http.get, f"/subscribers/{node}")).json()["subscribers"]
        assert one["client"] == f"stanzaq/{version('stanzaq')} ({socket.gethostname()})"
        progress = shown.json()["progress"]
        assert (progress["share"], progress["note"]) == (0.4, "two of five ")
        go_on.set()
        await eventually_empty(owner, node)


async def test_replies(user: Account, join: Join) -> None:
    """A publisher gets what a handler returned, or learns why there is nothing; also of ends while it was not connected."""
    owner = await join()
    node = await owner.queue({"pubsub#publish_model": "open"})
    worker = Worker(grace=5, **user, concurrency=3)

    @worker.task(node)
    async def _job(job: Job[dict[str, int]]) -> dict[str, int] | None:
        if job.payload["n"] == 0:
            reason = "torn"
            raise Reject(reason)
        return {"twice": 2 * job.payload["n"]} if job.payload["n"] > 1 else None

    async with Publisher(**user) as publisher:
        dead, nothing, result, cancelled = [await publisher.publish(node, {"n": n}, reply=True) for n in range(4)]
        with pytest.raises(TimeoutError):
            await result.result(timeout="10ms")
        assert await publisher.cancel(node, cancelled.id)
        async with serving(worker):
            assert await result.result(timeout=PATIENCE_SECONDS) == {"twice": 4}
            assert await nothing.result(timeout=PATIENCE_SECONDS) is None
            with pytest.raises(StanzaqError, match=r"dead: .*torn") as error:
                await dead.result(timeout=PATIENCE_SECONDS)
            assert error.value.condition == "dead"
        with pytest.raises(StanzaqError) as error:
            await cancelled.result(timeout=PATIENCE_SECONDS)
        assert error.value.condition == "cancelled"
        open_ended = await publisher.publish(node, {"n": 1}, reply=True)
    with pytest.raises(StanzaqError, match="closed before"):
        await open_ended.result(timeout=PATIENCE_SECONDS)
    # Another process of the account reads them as well.
    async with Publisher(**user) as another:
        assert await another.result(node, result.id) == {"twice": 4}
        for item, condition in ((dead.id, "dead"), (open_ended.id, "item-not-found")):
            with pytest.raises(StanzaqError) as error:
                await another.result(node, item)
            assert error.value.condition == condition
    with sync.Publisher(**user) as blocking:
        assert await asyncio.to_thread(blocking.result, node, result.id, timeout=PATIENCE_SECONDS) == {"twice": 4}


async def test_published_by_a_job(user: Account, join: Join) -> None:
    """A job publishes over its worker's connection at once, and with its acknowledgement: the latter only if that succeeds."""
    owner = await join()
    node, following = [await owner.queue({"pubsub#publish_model": "open"}) for _ in range(2)]
    closed = await owner.queue({"pubsub#publish_model": "publishers"})
    worker, seen = Worker(grace=5, **user, concurrency=3), Seen()

    @worker.task(node, retry=Retry(delay=0))
    async def _job(job: Job[str]) -> str:
        if job.payload == "now":
            await job.publish(following, {"now": job.attempt}, id="now", headers={"colour": "röt"})
        job.then(following, {"then": job.attempt}, id=f"{job.payload}-1", key="k")
        job.then(following if job.attempt > 1 else closed, b"\x00\xff", id=f"{job.payload}-2")
        return job.payload

    @worker.task(following)
    def _following(job: Job[Any]) -> None:
        seen.add((job.id, job.payload, job.headers.get("colour"), job.key))

    async with serving(worker), Publisher(**user) as publisher:
        now, later = [await publisher.publish(node, word, reply=True) for word in ("now", "later")]
        assert [await each.result(timeout=PATIENCE_SECONDS) for each in (now, later)] == ["now", "later"]
        found = await seen.until(5)
        await eventually_empty(owner, following)
    # The second attempt publishes `now` again, which replaces the first one only while that waits.
    at_once = [each for each in found if each[0] == "now"]
    assert at_once[0] == ("now", {"now": 1}, "röt", "") and len(at_once) <= 2
    assert sorted((each for each in found if each not in at_once), key=repr) == sorted(
        each
        for word in ("now", "later")
        for each in ((f"{word}-1", {"then": 2}, None, "k"), (f"{word}-2", b"\x00\xff", None, ""))
    )


async def test_a_reply_to_a_repeat(user: Account, join: Join) -> None:
    """A publish that the node ignores, as a repeat of an item that has ended, is told how that one did."""
    owner = await join()
    options = {"stanzaq#dedupe": "ignore", "pubsub#publish_model": "open"}
    node, worker = await owner.queue(options), Worker(grace=5, **user)

    @worker.task(node)
    async def _job(job: Job[int]) -> int:
        return job.payload

    async with serving(worker), Publisher(**user) as publisher:
        for number in (1, 2):
            reply = await publisher.publish(node, number, id="one", reply=True)
            assert await reply.result(timeout=PATIENCE_SECONDS) == 1


async def test_fan_in(user: Account, join: Join) -> None:
    """An item waits for two others, and its handler gets what theirs returned; one whose parent fails never runs."""
    owner, seen = await join(), Seen()
    node = await owner.queue({"pubsub#publish_model": "open"})
    worker = Worker(grace=5, **user)

    @worker.task(node)
    async def _job(job: Job[int]) -> int:
        if job.payload < 0:
            raise Reject("torn")  # noqa: EM101
        parents = json.loads(job.headers.get("stanzaq-parents", "[]"))
        seen.add((job.payload, tuple(each.get("result") for each in parents)))
        return 2 * job.payload

    async with Publisher(**user) as publisher:
        ids = [await publisher.publish(node, number) for number in (1, 2, -1)]
        both = await publisher.publish(node, 3, after=ids[:2], reply=True)
        never = await publisher.publish(node, 4, after=[(node, ids[2])], reply=True)
        last = await publisher.publish(node, 5, after=[both.id, never.id], regardless=True, reply=True)
        with pytest.raises(StanzaqError) as error:
            await publisher.publish(node, 6, after=["none"])
        assert error.value.condition == "item-not-found"
        async with serving(worker):
            assert await both.result(timeout=PATIENCE_SECONDS) == 6
            with pytest.raises(StanzaqError, match="dead: parent-dead"):
                await never.result(timeout=PATIENCE_SECONDS)
            assert await last.result(timeout=PATIENCE_SECONDS) == 10
    assert {3: ("2", "4"), 5: ("6", None)}.items() <= dict(seen.all).items()


async def test_schedules(user: Account) -> None:
    """Issue 25: a program lets its own node publish at certain times; its worker gets an item for each, once."""
    seen, node = Seen(), f"mine-{secrets.token_hex(4)}"
    worker = Worker(grace=5, create="if-missing", **user)

    @worker.task(node)
    async def _job(job: Job[Any]) -> None:
        seen.add((job.id, job.payload, job.key, job.headers["kind"]))

    async with Publisher(**user) as publisher, serving(worker):
        async with asyncio.timeout(PATIENCE_SECONDS):
            made = None
            # The worker makes the node.
            while made is None:
                with contextlib.suppress(StanzaqError):
                    made = await publisher.schedule(node, "tick", {"a": 1}, every="1s", key="k", headers={"kind": "x"})
                await asyncio.sleep(0.1)
        assert made.state == "active" and made.next is not None and made.published == 0
        daily = await publisher.schedule(node, "daily", "x", cron="0 9 * * 1-5", zone="Europe/Berlin", jitter=5)
        assert (daily.said["cron"], daily.said["zone"], daily.said["jitter"]) == ("0 9 * * 1-5", "Europe/Berlin", "5s")
        found = await seen.until(2)
        assert len({name for name, *_ in found}) == len(found)
        first = f"tick@{made.next.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
        assert found[0] == (first, {"a": 1}, "k", "x")
        assert (await publisher.pause_schedule(node, "tick")).state == "paused"
        listed = await publisher.schedules(node)
        # An item is there before it is counted.
        async with asyncio.timeout(PATIENCE_SECONDS):
            while listed[1].published < 2:
                await asyncio.sleep(0.1)
                listed = await publisher.schedules(node)
        assert [each.id for each in listed] == ["daily", "tick"] and not listed[1].missed
        assert (await publisher.resume_schedule(node, "tick")).state == "active"

        def from_a_thread() -> None:
            with sync.Publisher(**user) as blocking:
                assert blocking.pause_schedule(node, "tick").state == "paused"
                assert blocking.resume_schedule(node, "tick").state == "active"

        await asyncio.to_thread(from_a_thread)
        assert await publisher.unschedule(node, "tick") and not await publisher.unschedule(node, "tick")
        for wrong in ({"cron": "0 9 * * 8"}, {"every": 0}, {"cron": "0 9 * * *", "zone": "Mars/Phobos"}, {}):
            with pytest.raises(StanzaqError, match="bad-request"):
                await publisher.schedule(node, "wrong", 1, **wrong)


async def test_rights(user: Account, join: Join) -> None:
    """P26, P27: an owner changes affiliations of accounts and domains, all or none, and decides who may subscribe."""
    node, (worker, other, late) = f"mine-{secrets.token_hex(4)}", [await join() for _ in range(3)]
    strangers = worker.bare.partition("@")[2]
    async with Publisher(**user) as publisher:
        await publisher.declare(Queue(node, access_model="authorize"))
        ((me, owns),) = (await publisher.affiliations(node)).items()
        assert owns == "owner" and await publisher.requests(node) == []
        assert (await worker.subscribe(node)).error == (await other.subscribe(node)).error == ""
        assert await publisher.requests(node) == [worker.jid, other.jid]
        await publisher.decide(node, worker.jid, allow=True)
        await publisher.decide(node, other.bare, allow=False)
        await publisher.decide(node, "nobody@example.org", allow=True)
        assert await publisher.requests(node) == []
        now = {me: "owner", worker.bare: "member", "bot@example.org": "publish-only", strangers: "outcast"}
        await publisher.affiliate(node, {"bot@example.org/x": "publish-only", strangers: "outcast"})
        assert await publisher.affiliations(node) == now
        assert (await late.subscribe(node)).error == "auth forbidden"
        # The account's own affiliation overrides that of its domain.
        assert (await worker.publish(node)).error == "auth forbidden" and await worker.browse(node) == []
        for wrong, why in (
            ({"bot@example.org": "member", "a@b@c": "member"}, "a@b@c' is not a JID|a@b@c is neither a JID"),
            ({"bot@example.org": "member", me: "none"}, "not-acceptable .*owner"),
            ({"bot@example.org": "member", "juliet@example.org": "boss"}, "bad-request .*publish-only"),
        ):
            with pytest.raises(StanzaqError, match=f"^cannot change any affiliation with {node}: .*({why})"):
                await publisher.affiliate(node, wrong)
        assert await publisher.affiliations(node) == now
        with pytest.raises(StanzaqError, match="item-not-found"):
            await publisher.decide("nowhere", worker.jid, allow=True)

        def from_a_thread() -> None:
            with sync.Publisher(**user) as blocking:
                blocking.affiliate(node, {strangers: "none"})
                assert strangers not in blocking.affiliations(node) and blocking.requests(node) == []
                blocking.decide(node, late.jid, allow=False)

        await asyncio.to_thread(from_a_thread)


async def test_a_cancelled_item(user: Account, join: Join) -> None:
    """A publisher cancels an item that a worker has: its handler is cancelled, and nobody gets the item again."""
    seen, owner = Seen(), await join()
    # Over HTTP a worker learns of it when it renews the lock.
    node = await owner.queue({"stanzaq#lock_seconds": "3"})
    worker = Worker(grace=5, **user)

    @worker.task(node)
    async def _job(job: Job[Any]) -> None:
        seen.add(job.id)
        try:
            await asyncio.sleep(3600 if job.id == "one" else 0)
        except asyncio.CancelledError:
            seen.add("cancelled")
            raise

    async with Publisher(**user) as publisher:
        await publisher.publish(node, {}, id="waits")
        assert await publisher.cancel(node, "waits")
        assert not await publisher.cancel(node, "none")
        async with serving(worker):
            await publisher.publish(node, {}, id="one")
            await seen.until(1)
            assert await publisher.cancel(node, "one")
            await publisher.publish(node, {}, id="two")
            assert await seen.until(3) == ["one", "cancelled", "two"]
            await eventually_empty(owner, node)
        await owner.publish(node, "another's")
        with pytest.raises(StanzaqError, match="forbidden"):
            await publisher.cancel(node, "another's")


class FencedStore:
    """What handlers write to: it refuses a token smaller than the largest it has seen."""

    def __init__(self) -> None:
        """Begin empty."""
        self._token = 0
        self.writer = ""

    def write(self, writer: str, token: int) -> None:
        """Accept a write, or refuse it."""
        if token >= self._token:
            self._token, self.writer = token, writer


async def test_a_silent_line(
    user: Account, join: Join, door: RestFrontend, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    """A handler whose lock cannot be renewed is cancelled when its time is over; another worker's effect is not overwritten."""
    caplog.set_level(logging.INFO, "stanzaq")
    seen, store, owner = Seen(), FencedStore(), await join()
    node = await owner.queue({"stanzaq#lock_seconds": "2"})
    async with AsyncExitStack() as stack:
        (link,) = stack.enter_context(network(1))
        address = f"127.0.0.1:{link.lead(service.ejabberd.c2s_port if 'address' in user else door.port)}"
        workers = {"first": Worker(grace=5, **through(user, address)), "second": Worker(grace=5, **user)}
        for name, worker in workers.items():

            @worker.task(node)
            async def _job(job: Job[Any], name: str = name) -> None:
                seen.add((name, job.attempt))
                store.write(name, job.token)
                try:
                    while name == "first":
                        await asyncio.sleep(0.02)
                        store.write(name, job.token)
                except asyncio.CancelledError:
                    seen.add("cancelled")
                    raise

        await stack.enter_async_context(serving(workers["first"]))
        publisher = await stack.enter_async_context(Publisher(**user))
        await publisher.publish(node, {})
        assert await seen.until(1) == [("first", 1)]
        await stack.enter_async_context(serving(workers["second"]))
        await logged(caplog, f"ready for items of {node}", times=2)
        link.hang()
        assert set(await seen.until(3)) == {("first", 1), "cancelled", ("second", 2)}
        await eventually_empty(owner, node)
        link.cut()
        # It can leave in order.
        link.heal()
    assert store.writer == "second"


async def test_stopping(user: Account, join: Join, caplog: pytest.LogCaptureFixture) -> None:
    """A worker holds its concurrency and prefetch of items; when it stops, jobs have its grace, and others get the rest."""
    caplog.set_level(logging.INFO, "stanzaq")
    seen, owner, other = Seen(), await join(), await join()
    node, go_on = await owner.queue(), asyncio.Event()
    worker = Worker(**user, concurrency=2, prefetch=1, grace=1)

    @worker.task(node)
    async def _job(job: Job[Any]) -> None:
        seen.add(job.id)
        await (go_on.wait() if job.id == "ends" else asyncio.sleep(3600))

    async with serving(worker) as serve, Publisher(**user) as publisher:
        for count, name in enumerate(("ends", "hangs"), 1):
            await publisher.publish(node, {}, id=name)
            await seen.until(count)
        await logged(caplog, f"ready for items of {node}, up to 3 at once")
        for name in ("waits", "stays"):
            await publisher.publish(node, {}, id=name)
            while await counted(owner, node, "in_flight") < 3:  # noqa: ASYNC110  (nobody is told)
                await asyncio.sleep(0.02)
        assert await counted(owner, node, "waiting") == 1
        worker.stop()
        await logged(caplog, "waiting up to 1 s")
        go_on.set()
        await asyncio.wait_for(serve, PATIENCE_SECONDS)
    assert sorted(seen.all) == ["ends", "hangs"]
    assert sorted(item.get("id", "") for item in await owner.browse(node)) == ["hangs", "stays", "waits"]
    assert (await other.subscribe(node, 5)).error == ""
    again = {delivery.item: delivery.attempt for delivery in [await other.next(Delivery) for _ in range(3)]}
    # What only waited has lost no attempt.
    assert again == {"hangs": 2, "waits": 1, "stays": 1}


async def test_stopped_while_it_subscribes(over_xmpp: Account, join: Join, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that stops while it confirms its subscription ends that for good: nothing is sent to it, and back, again."""
    asked, seen, owner, other = list[str](), Seen(), await join(), await join()
    node, confirms, left, go_on = await owner.queue(), asyncio.Event(), asyncio.Event(), asyncio.Event()
    ask = XmppConnection.ask

    async def noted(connection: XmppConnection, what: str, *how: str) -> Element:
        asked.append(what)
        if asked.count(f"find {node}") == 2 and what == f"find {node}":
            confirms.set()
            await left.wait()
        answer = await ask(connection, what, *how)
        if what == f"unsubscribe from {node}":
            left.set()
        return answer

    monkeypatch.setattr(xmpp_worker, "_AGAIN_SECONDS", 0.1)
    worker = Worker(**over_xmpp, concurrency=2, grace=PATIENCE_SECONDS)

    @worker.task(node)
    async def _job(job: Job[Any]) -> None:
        seen.add(job.id)
        await go_on.wait()

    assert (await owner.publish(node, "runs")).error == ""
    monkeypatch.setattr(XmppConnection, "ask", noted)
    async with serving(worker) as serve:
        await asyncio.wait_for(confirms.wait(), PATIENCE_SECONDS)
        await seen.until(1)
        worker.stop()
        await asyncio.wait_for(left.wait(), PATIENCE_SECONDS)
        assert (await owner.publish(node, "late")).error == ""
        await owner.settle()
        go_on.set()
        await asyncio.wait_for(serve, PATIENCE_SECONDS)
    assert f"subscribe to {node}" not in asked[asked.index(f"unsubscribe from {node}") :]
    assert (await other.subscribe(node)).error == ""
    late = await other.next(Delivery)
    assert (late.item, late.attempt) == ("late", 1)


async def test_waits_for_approval(
    over_xmpp: Account, join: Join, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """P27: a worker waits, also for longer than until it asks again, for an owner to approve its subscription."""
    caplog.set_level(logging.INFO, "stanzaq")
    seen, owner = Seen(), await join()
    node = await owner.queue({"pubsub#access_model": "authorize"})
    monkeypatch.setattr(xmpp_worker, "_AGAIN_SECONDS", 0.1)
    worker = Worker(**over_xmpp, grace=5)

    @worker.task(node)
    async def _job(job: Job[Any]) -> None:
        seen.add(job.id)

    async with serving(worker) as serve:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while caplog.text.count(f"the subscription to {node} waits for the approval of an owner") < 2:
                assert not serve.done()
                await asyncio.sleep(0.01)
        assert "ready for items" not in caplog.text
        assert (await owner.publish(node, "one")).error == ""
        assert (await owner.affiliate(node, over_xmpp["url"].removeprefix("xmpp://"), "member")).error == ""
        assert await seen.until(1) == ["one"]
        await logged(caplog, f"ready for items of {node}")
        await eventually_empty(owner, node)


async def test_one_subscription(over_xmpp: Account, join: Join, monkeypatch: pytest.MonkeyPatch) -> None:
    """P12: a worker has one subscription, also where each subscribe makes a new one: it confirms that, and ends it."""
    asked, seen, owner, other = list[str](), Seen(), await join(), await join()
    node, go_on = await owner.queue({"stanzaq#multi_subscribe": "1"}), asyncio.Event()
    send = XmppConnection.send

    def note(connection: XmppConnection, text: str) -> None:
        asked.append(text)
        send(connection, text)

    monkeypatch.setattr(XmppConnection, "send", note)
    monkeypatch.setattr(xmpp_worker, "_AGAIN_SECONDS", 0.1)
    worker = Worker(**over_xmpp, grace=PATIENCE_SECONDS)

    @worker.task(node)
    async def _job(job: Job[Any]) -> None:
        seen.add(job.id)
        await go_on.wait()

    async with serving(worker) as serve:
        for name in ("runs", "waits", "waits, too"):
            assert (await owner.publish(node, name)).error == ""
        await seen.until(1)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while sum(text.startswith("<presence") for text in asked) < 4:  # noqa: ASYNC110  (nobody is told)
                await asyncio.sleep(0.01)
        assert sum("<subscribe " in text for text in asked) == 1
        assert await counted(owner, node, "in_flight") == 1
        worker.stop()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not any("<unsubscribe " in text for text in asked):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await owner.settle()
        go_on.set()
        await asyncio.wait_for(serve, PATIENCE_SECONDS)
    assert (await other.subscribe(node, 2)).error == ""
    left = [await other.next(Delivery) for _ in range(2)]
    assert {(each.item, each.attempt) for each in left} == {("waits", 1), ("waits, too", 1)}


_TEN_JOBS = """
import asyncio, pathlib, sys
from stanzaq import Job, Worker

worker = Worker(**{user!r}, concurrency=10, grace="10m")

@worker.task({node!r})
async def work(job: Job[bool]) -> None:
    print("running", flush=True)
    while not (job.payload and pathlib.Path("go_on").exists()):
        await asyncio.sleep(0.02)

worker.run()
"""


async def test_signals(user: Account, join: Join, tmp_path: Path) -> None:
    """SIGTERM lets ten running jobs go on and takes no new one; after the second signal the rest are others' at once."""
    owner = await join()
    node = await owner.queue()
    program = _TEN_JOBS.format(user=user, node=node)
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=tmp_path
    )
    assert worker.stdout is not None and worker.stderr is not None
    try:
        async with asyncio.timeout(PATIENCE_SECONDS), Publisher(**user) as publisher:
            await publisher.publish_many(node, [number % 2 == 0 for number in range(10)])
            for _ in range(10):
                assert await worker.stdout.readline() == b"running\n"
            worker.terminate()
            while b"waiting up to 600 s for 10 running jobs" not in await worker.stderr.readline():
                pass
            await publisher.publish(node, True)  # noqa: FBT003  (a payload)
            (tmp_path / "go_on").touch()
            while await counted(owner, node, "in_flight") > 5:  # noqa: ASYNC110  (nobody is told)
                await asyncio.sleep(0.02)
            worker.terminate()
            assert (await worker.communicate())[0] == b"" and worker.returncode == 0
            while await counted(owner, node, "in_flight"):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    finally:
        if worker.returncode is None:
            worker.kill()
    assert len(await owner.browse(node)) == 6


async def test_killed(user: Account, join: Join, tmp_path: Path) -> None:
    """Others get the items of a worker that is killed at once, not when its locks end."""
    seen, owner = Seen(), await join()
    node = await owner.queue({"stanzaq#lock_seconds": "600"})
    program = _TEN_JOBS.format(user=user, node=node)
    killed = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        cwd=tmp_path,
    )
    worker = Worker(grace=5, **user)

    @worker.task(node)
    async def _job(job: Job[Any]) -> None:
        seen.add(job.attempt)

    async with asyncio.timeout(2 * PATIENCE_SECONDS), Publisher(**user) as publisher:
        await publisher.publish_many(node, [True, True])
        for _ in range(2):
            assert killed.stdout is not None and await killed.stdout.readline() == b"running\n"
        killed.kill()
        await killed.communicate()
        async with serving(worker):
            # It told nothing within its first second, so the oldest of the two counts.
            assert sorted(await seen.until(2)) == [1, 2]
            await eventually_empty(owner, node)


async def test_locks_lost_while_it_was_away(
    user: Account, join: Join, door: RestFrontend, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker that is connected again asks which locks it still holds, and cancels the jobs of those that have ended."""
    caplog.set_level(logging.INFO, "stanzaq")
    seen, owner = Seen(), await join()
    # No renewal tells it so soon.
    node = await owner.queue({"stanzaq#lock_seconds": "600"})
    with network(1) as (link,):
        over = through(user, f"127.0.0.1:{link.lead(service.ejabberd.c2s_port if 'address' in user else door.port)}")
        worker = Worker(grace=5, **over)

        @worker.task(node)
        async def _job(job: Job[Any]) -> None:
            seen.add(job.attempt)
            await work_until_cancelled(job, seen)

        async with serving(worker), Publisher(**user) as publisher:
            await publisher.publish(node, {})
            await seen.until(1)
            await logged(caplog, f"ready for items of {node}")
            link.cut()
            assert await seen.until(3) == [1, "cancelled", 2]
            await eventually_empty(owner, node)


async def test_a_group(over_xmpp: Account, join: Join, service: Service, caplog: pytest.LogCaptureFixture) -> None:
    """Members of a group divide a queue's partitions, keep them, and join again; when one stops, the other gets all.

    No item is lost, and no job runs twice.
    """
    caplog.set_level(logging.INFO, "stanzaq")
    seen, owner = Seen(), await join()
    node = await owner.queue({"stanzaq#partitions": "4", "stanzaq#lock_seconds": "2"})

    async def work(member: int, job: Job[float]) -> None:
        seen.add((member, job.id))
        await asyncio.sleep(job.payload)

    async def publish(name: str, lasts: float, partitions: int = 4) -> list[str]:
        """Publish an item into each partition; returns their names."""
        names = [f"{name} {partition}" for partition in range(partitions)]
        for number, item in enumerate(names):
            hint = f"<hint xmlns='{STANZAQ}' partition='{number}'/>"
            payload = f"<json xmlns='urn:xmpp:json:0'>{lasts}</json>"
            answer = await owner.pubsub(f"<publish node='{node}'>{hint}<item id='{item}'>{payload}</item></publish>")
            assert answer.error == ""
        return names

    with network(1) as (link,):
        user = through(over_xmpp, f"127.0.0.1:{link.lead(service.ejabberd.c2s_port)}")
        workers = [Worker(grace=5, **each, concurrency=4, prefetch=4, group="billing") for each in (user, over_xmpp)]
        for number, worker in enumerate(workers):
            worker.task(node)(partial(work, number))
        async with serving(workers[0]) as first:
            await logged(caplog, f"ready for items of {node}")
            async with serving(workers[1]):
                await logged(caplog, f"ready for items of {node}", 2)
                # Longer than two leases, and no job renews those of the other partitions.
                items = await publish("long", 4.5, 1)
                await eventually_empty(owner, node)
                items += await publish("even", 0)
                assert sorted(member for member, _ in (await seen.until(5))[1:]) == [0, 0, 1, 1]
                assert "lapsed" not in caplog.text
                await eventually_empty(owner, node)
                link.cut()
                await logged(caplog, f"ready for items of {node}", 3)
                items += await publish("again", 0)
                assert sorted(member for member, _ in (await seen.until(9))[5:]) == [0, 0, 1, 1]
                for number in range(10):
                    items += await publish(f"short {number}", 0.1)
                workers[0].stop()
                items += await publish("late", 0)
                await first
                items += await publish("last", 0)
                await eventually_empty(owner, node)
    assert {member for member, item in seen.all if item.startswith("last")} == {1}
    assert sorted(item for _, item in seen.all) == sorted(items)


async def test_reconnects(
    user: Account, join: Join, door: RestFrontend, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker and a publisher whose connections are cut reconnect: no item is lost, none is done twice."""
    caplog.set_level(logging.WARNING, "stanzaq")
    seen, owner = Seen(), await join()
    node = await owner.queue({"stanzaq#dedupe": "ignore"})
    with network(1) as (link,):
        over = through(user, f"127.0.0.1:{link.lead(service.ejabberd.c2s_port if 'address' in user else door.port)}")
        worker = Worker(grace=5, **over, concurrency=4)

        @worker.task(node)
        async def _job(job: Job[Any]) -> None:
            seen.add((job.id, job.token))

        async with serving(worker), Publisher(**over) as publisher:
            for number in range(60):
                if number % 20 == 10:
                    link.cut()
                await publisher.publish(node, {}, id=f"job-{number}")
            await eventually_empty(owner, node)
    assert {name for name, _token in seen.all} == {f"job-{number}" for number in range(60)}
    assert len(set(seen.all)) == len(seen.all), "one lock is worked once"
    assert "no connection " in caplog.text


async def test_refusals(user: Account, join: Join) -> None:
    """A wrong password and an unknown node are reported in one clear line."""
    owner = await join()
    node = await owner.queue()
    wrong = Worker(**{**user, "password": "wrong"})
    wrong.task(node)(in_process)
    with pytest.raises(
        StanzaqError, match=r"the serv\w+ refuses \S+ \(not-authorized\): correct the user or the password"
    ):
        await wrong.serve()
    with pytest.raises(StanzaqError, match="correct the user or the password"):
        async with Publisher(**{**user, "password": "wrong"}) as publisher:
            await publisher.publish(node, {})
    nowhere = Worker(grace=5, **user)
    nowhere.task("nowhere")(in_process)
    with pytest.raises(
        StanzaqError,
        match=r"cannot (find|subscribe to) nowhere: item-not-found.*: create the node, or give create=\"if-missing\"",
    ):
        await nowhere.serve()
    async with Publisher(**user) as publisher:
        with pytest.raises(StanzaqError, match="cannot publish to nowhere: item-not-found") as refused:
            await publisher.publish("nowhere", {})
        assert refused.value.condition == "item-not-found"


async def test_a_log(user: Account, join: Join) -> None:
    """A worker at a log, whose entries are no jobs, ends with a line that says so."""
    owner = await join()
    worker, node = Worker(**user), await owner.queue({"pubsub#queueing": "0"})
    worker.task(node)(in_process)
    why = rf"cannot subscribe to {node}.*: its entries are not handed out as work"
    with pytest.raises(StanzaqError, match=why):
        await asyncio.wait_for(worker.serve(), PATIENCE_SECONDS)


async def test_a_server_without_tls(over_xmpp: Account) -> None:
    """A server that offers no TLS is not taken for one that refuses the password."""
    async with Publisher(**{**over_xmpp, "tls": "required"}) as publisher, asyncio.timeout(PATIENCE_SECONDS):
        with pytest.raises(StanzaqError, match=r"^the server offers no way to log in that is safe on this connection"):
            await publisher.publish("jobs", {})


async def test_the_same_resource(over_xmpp: Account, join: Join) -> None:
    """A worker whose resource another one takes ends and says so: two that replace each other would use up all attempts."""
    seen, owner = Seen(), await join()
    node = await owner.queue()
    workers = [Worker(**{**over_xmpp, "url": f"{over_xmpp['url']}/same"}, grace=5) for _ in range(2)]
    for number, worker in enumerate(workers):

        @worker.task(node)
        async def _job(job: Job[Any], number: int = number) -> None:
            seen.add((number, job.attempt))
            await asyncio.sleep(3600 if job.attempt == 1 else 0)

    assert (await owner.publish(node, "one")).error == ""
    first = asyncio.create_task(workers[0].serve())
    await seen.until(1)
    async with serving(workers[1]):
        with pytest.raises(StanzaqError, match=r"another program has connected as \S+/same: leave out the resource"):
            await asyncio.wait_for(first, PATIENCE_SECONDS)
        assert await seen.until(2) == [(0, 1), (1, 2)]
        await eventually_empty(owner, node)


async def test_a_domain_that_is_not_there(over_xmpp: Account, caplog: pytest.LogCaptureFixture) -> None:
    """Why the server ends a stream is told."""
    user = {**over_xmpp, "url": "xmpp://worker@nowhere.localhost"}
    async with Publisher(**user):
        await logged(caplog, "the server ended the stream (host-unknown)")


async def test_another_service(over_xmpp: Account, join: Join, service: Service) -> None:
    """A worker at a service of another kind ends with a line that says so."""
    owner, node = await join(over_xmpp["url"].removeprefix("xmpp://"), over_xmpp["password"]), secrets.token_hex(4)
    create = f"<pubsub xmlns='{PUBSUB}'><create node='{node}'/></pubsub>"
    assert (await owner.ask(create, to=service.ejabberd.pubsub)).error == ""
    worker = Worker(**{**over_xmpp, "service": service.ejabberd.pubsub})
    worker.task(node)(in_process)
    with pytest.raises(StanzaqError, match=rf"{service.ejabberd.pubsub} has {node}, but is no stanzaq service"):
        await asyncio.wait_for(worker.serve(), PATIENCE_SECONDS)


async def test_a_service_that_is_away(user: Account, caplog: pytest.LogCaptureFixture) -> None:
    """A service that is away, or whose name is wrong, is waited for, and its users are told why and what to do."""
    wrong, told = over_http(free_port()), "; does a frontend for HTTP run there?; trying again"
    if "service" in user:
        wrong = {**user, "service": f"not-there.{DOMAIN}"}
        told = f"; does the service run, and is not-there.{DOMAIN} its domain (service=)?; trying again"
    lost = Worker(**wrong, grace=0)
    lost.task("jobs")(in_process)
    async with serving(lost):
        await logged(caplog, told)


async def test_blocking(over_xmpp: Account, join: Join) -> None:
    """The blocking publisher is used from threads; it reports refusals and time-outs."""
    owner = await join()
    node = await owner.queue()

    def work() -> None:
        with sync.Publisher(**over_xmpp) as publisher:
            with ThreadPoolExecutor(4) as threads:
                assert len(set(threads.map(lambda number: publisher.publish(node, number), range(20)))) == 20
            assert len(publisher.publish_many(node, [1, 2], timeout=PATIENCE_SECONDS)) == 2
            with pytest.raises(StanzaqError, match="item-not-found"):
                publisher.publish("nowhere", {})
            with pytest.raises(ValueError, match="no length of time"):
                publisher.publish(node, {}, timeout="5 sec")
            publisher.close()
            assert publisher.publish(node, 1, id="again") == "again"
        nobody = sync.Publisher(**through(over_xmpp, f"127.0.0.1:{free_port()}"))
        with pytest.raises(TimeoutError):
            nobody.publish(node, {}, timeout="100ms")
        nobody.close()

    await asyncio.to_thread(work)
    assert len(await owner.browse(node)) == 23


async def test_blocking_replies(over_xmpp: Account, join: Join) -> None:
    """A program without an event loop waits for what a handler returned, and learns why there is nothing."""
    owner = await join()
    node = await owner.queue({"stanzaq#result_seconds": "600", "pubsub#publish_model": "open"})
    worker, publisher = Worker(grace=5, **over_xmpp), sync.Publisher(**over_xmpp)

    @worker.task(node)
    async def _job(job: Job[int]) -> int:
        if not job.payload:
            raise Reject("torn")  # noqa: EM101
        return 2 * job.payload

    twice, dead = [await asyncio.to_thread(publisher.publish, node, n, reply=True) for n in (21, 0)]
    with pytest.raises(TimeoutError):
        await asyncio.to_thread(twice.result, "10ms")
    async with serving(worker):
        assert await asyncio.to_thread(twice.result, PATIENCE_SECONDS) == 42
        with pytest.raises(StanzaqError, match=r"dead: .*torn") as error:
            await asyncio.to_thread(dead.result, PATIENCE_SECONDS)
        assert error.value.condition == "dead"
    never = await asyncio.to_thread(publisher.publish, node, 1, reply=True)
    waits = asyncio.create_task(asyncio.to_thread(never.result))
    await asyncio.to_thread(publisher.close)
    with pytest.raises(StanzaqError, match="closed"):
        await waits


async def test_created(user: Account) -> None:
    """With `create` a worker creates its node, which then ignores repeated publishes."""
    seen, node = Seen(), f"library-{secrets.token_hex(4)}"
    worker = Worker(grace=5, **user, create="if-missing")

    @worker.task(node)
    async def _job(job: Job[Any]) -> None:
        seen.add(job.id)

    async with serving(worker), Publisher(**user) as publisher:
        began = time.monotonic()
        while True:
            try:
                await publisher.publish(node, {}, id="one")
                break
            except StanzaqError:
                assert time.monotonic() < began + PATIENCE_SECONDS
                await asyncio.sleep(0.05)
        await seen.until(1)
        await publisher.publish(node, {}, id="one")
        await publisher.publish(node, {}, id="two")
        assert await seen.until(2) == ["one", "two"]


async def test_declared(user: Account) -> None:
    """A declared queue is created, compared and changed; its tasks call one another over the worker's own connection."""
    node = f"library-{secrets.token_hex(4)}"
    weights = {"a": 2.0, "b c": 0.5}
    queue = Queue(
        node, rate="50/s", retry_delay="250ms", fair="key", fair_weights=weights, description="ü<&>", lock="5m"
    )
    changed = replace(queue, rate="100/s", fair_weights={"a": 3.0})
    worker = Worker(grace=5, **user, create="if-missing", concurrency=3)

    @worker.task(queue, name="double")
    async def double(job: Job[int]) -> int:
        return 2 * job.payload

    @worker.task(queue, name="outer")
    async def outer(job: Job[int]) -> int:
        return await double.call(job.payload, timeout=PATIENCE_SECONDS) + 1

    @worker.task(queue, name="thread")
    def thread(job: Job[int]) -> int:
        return sync.Task(double).call(job.payload, timeout=PATIENCE_SECONDS)

    async with serving(worker), Publisher(**user) as publisher:
        await publisher.declare(queue)
        assert await outer.on(publisher).call(3, timeout=PATIENCE_SECONDS) == 7
        assert await thread.call(3, timeout=PATIENCE_SECONDS) == 6
        with pytest.raises(
            StanzaqError, match=f"^{node}: rate is 50/s, and the program declares 100/s; fair_weights is"
        ) as no:
            await publisher.declare(changed)
        assert no.value.condition == "conflict"
    other = Worker(grace=5, **user, create="never")
    other.task(changed)(double.handler)
    with pytest.raises(StanzaqError, match=f"^{node}: rate is 50/s, and the program declares 100/s"):
        await other.serve()
    update = Worker(grace=5, **user, create="update")
    update.task(changed)(double.handler)
    async with serving(update), Publisher(**user) as publisher:
        assert await Task[int, int](node).on(publisher).call(2, timeout=PATIENCE_SECONDS) == 4
        await publisher.declare(changed, create="never")
        with pytest.raises(StanzaqError, match="cannot find library-nowhere: item-not-found: create the node, or give"):
            await publisher.declare(Queue("library-nowhere"), create="never")
        with pytest.raises(StanzaqError, match="not-acceptable"):
            await publisher.declare(replace(changed, rate="often"), create="update")
    blocking = sync.Publisher(**user)
    with blocking:
        blocking.declare(changed, create="never", timeout=PATIENCE_SECONDS)


async def test_flows(user: Account) -> None:
    """Groups and chains pass results on, also those that are read from their kept ends; a dead link is told."""
    node, other = (f"library-{secrets.token_hex(4)}" for _ in range(2))
    worker = Worker(grace=5, **user, create="if-missing", concurrency=4)

    @worker.task(node, name="repeat")
    async def repeat(job: Job[int]) -> str:
        if job.payload < 0:
            raise Reject("too few")  # noqa: EM101, TRY003
        return "ü" * job.payload

    @worker.task(other)
    async def lengths(job: Job[list[str]]) -> list[int]:
        return [len(each) for each in job.payload]

    @worker.task(node, name="length")
    async def length(job: Job[str]) -> int:
        return len(job.payload)

    async with serving(worker), Publisher(**user) as publisher:
        for each in (node, other):
            await publisher.declare(Queue(each))
        assert await chain(repeat.item(3), length).on(publisher).call(timeout=PATIENCE_SECONDS) == 3
        assert await chain(repeat.item(3_000), length).on(publisher).call(timeout=PATIENCE_SECONDS) == 3_000
        many = chain(group(*map(repeat.item, (1, 2_000, 3, 4_000))), lengths)
        assert await many.call(timeout=PATIENCE_SECONDS) == [1, 2_000, 3, 4_000]
        with pytest.raises(StanzaqError, match="is dead: parent-dead"):
            await chain(repeat.item(-1), length).call(timeout=PATIENCE_SECONDS)
        blocking = sync.Publisher(**user)
        with blocking:
            flow = sync.Flow(chain(repeat.item(5), length)).on(blocking)
            assert await asyncio.to_thread(flow.call, timeout=PATIENCE_SECONDS) == 5


async def test_scheduled(user: Account, caplog: pytest.LogCaptureFixture) -> None:
    """The service has the schedules of a program, whoever had made others, and forgets those that its next version has not."""
    caplog.set_level(logging.INFO, "stanzaq")
    seen, node = Seen(), f"library-{secrets.token_hex(4)}"
    worker = Worker(grace=5, **user, create="if-missing")

    async def count(job: Job[int]) -> None:
        seen.add((job.payload, job.headers["task"]))

    counts = worker.task(node, name="count")(count)
    worker.schedule(7, every="1s", headers={"a": "b"})(counts)
    worker.schedule(8, cron="0 9 * * 1-5", zone="Europe/Berlin", id="later")(counts)
    async with Publisher(**user) as publisher:
        async with serving(worker):
            assert (await seen.until(2))[:2] == [(7, "count")] * 2
            await publisher.schedule(node, "mine", 9, every="7d")
            made = {each.id: each for each in await publisher.schedules(node)}
            assert set(made) == {"mine", "task:later", "task:test_scheduled.<locals>.count"}
            assert made["task:later"].said["zone"] == "Europe/Berlin"
        following = Worker(grace=5, **user)
        following.schedule(8, cron="0 9 * * 1-5", zone="Europe/Berlin", id="later")(following.task(node)(count))
        async with serving(following):
            async with asyncio.timeout(PATIENCE_SECONDS):
                while "is deleted: the program has no such schedule" not in caplog.text:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            assert {each.id for each in await publisher.schedules(node)} == {"mine", "task:later"}
        wrong = Worker(grace=5, **user)
        wrong.schedule(8, cron="0 25 * * *")(wrong.task(node)(count))
        with pytest.raises(StanzaqError, match=r"cannot schedule task:.*bad-request"):
            await wrong.serve()


async def test_declared_by_others(user: Account, join: Join, caplog: pytest.LogCaptureFixture) -> None:
    """Who does not own a queue works on it whatever is declared, is told so, and cannot change it."""
    caplog.set_level(logging.WARNING, "stanzaq")
    owner = await join()
    queue = Queue(await owner.queue(), rate="50/s")
    worker = Worker(grace=5, **user, create="if-missing")

    @worker.task(queue)
    async def double(job: Job[int]) -> int:
        return 2 * job.payload

    async with serving(worker), Publisher(**user) as publisher:
        assert await double.on(publisher).call(3, timeout=PATIENCE_SECONDS) == 6
        with pytest.raises(StanzaqError, match="forbidden"):
            await publisher.declare(queue, create="update")
    assert f"{queue.name} is not compared with its declaration: only its owners see its options" in caplog.text


async def test_deleted_while_it_subscribes(over_xmpp: Account, join: Join, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `create` a worker also creates a node that is deleted after it was found, and before it has subscribed."""
    seen, owner, deleted = Seen(), await join(), asyncio.Event()
    node, ask = await owner.queue(), XmppConnection.ask

    async def asked(connection: XmppConnection, what: str, *how: str) -> Element:
        if what == f"subscribe to {node}" and not deleted.is_set():
            assert (await owner.owner(f"<delete node='{node}'/>")).error == ""
            deleted.set()
        return await ask(connection, what, *how)

    monkeypatch.setattr(XmppConnection, "ask", asked)
    worker = Worker(grace=5, **over_xmpp, create="if-missing")

    @worker.task(node)
    async def _job(job: Job[Any]) -> None:
        seen.add(job.id)

    # The worker's account owns the new node.
    async with serving(worker) as serve:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await deleted.wait()
        async with Publisher(**over_xmpp) as publisher:
            while True:
                with contextlib.suppress(StanzaqError):
                    await publisher.publish(node, {}, id="one")
                    break
                assert not serve.done()
                await asyncio.sleep(0.02)
        assert await seen.until(1) == ["one"]


async def test_a_frontend_restarts(join: Join, service: Service) -> None:
    """Over HTTP a job continues while the frontend is restarted, and is run once: its subscription outlives the process."""
    seen, owner, go_on = Seen(), await join(), asyncio.Event()
    node = await owner.queue()
    with RestFrontend(service.redis.url, HTTP_PASSWORDS=f"{ALICE}:{HASH}") as door:
        worker = Worker(**over_http(door.port), grace=5)

        @worker.task(node)
        async def _job(job: Job[Any]) -> None:
            seen.add((job.id, job.attempt))
            await go_on.wait()

        async with serving(worker), Publisher(**over_http(door.port)) as publisher:
            await publisher.publish(node, {}, id="one")
            await seen.until(1)
            await asyncio.to_thread(door.stop)
            publishing = asyncio.create_task(publisher.publish(node, {}, id="two"))
            await asyncio.to_thread(door.start)
            # The attempts come further apart the longer it takes.
            async with asyncio.timeout(3 * PATIENCE_SECONDS):
                await publishing
                go_on.set()
                while len(seen.all) < 2:  # noqa: ASYNC110  (it has a patience of its own)
                    await asyncio.sleep(0.02)
            await eventually_empty(owner, node)
    assert seen.all == [("one", 1), ("two", 1)]


_TASKS = """
from stanzaq import Job, Worker

print({word!r}, "begins", flush=True)
worker = Worker({url!r}, password={password!r})

@worker.task({node!r})
async def work(job: Job[dict[str, int]]) -> list[int]:
    print({word!r}, job.payload["a"], flush=True)
    return [2 * job.payload["a"]]
"""


async def test_from_the_shell(join: Join, door: RestFrontend, tmp_path: Path) -> None:
    """`stanzaq publish` sends what `stanzaq worker` works, which begins again when its file changes."""
    owner, user = await join(), over_http(door.port)
    node = await owner.queue()
    environment = {**os.environ, "STANZAQ_URL": user["url"], "STANZAQ_PASSWORD": user["password"]}

    async def start(*arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "stanzaq", *arguments),
            stdout=asyncio.subprocess.PIPE,
            cwd=tmp_path,
            env=environment,
        )

    tasks = tmp_path / "tasks.py"
    tasks.write_text(_TASKS.format(**user, node=node, word="first"))
    worker = await start("worker", "tasks:worker", "--reload")
    output = worker.stdout
    assert output is not None
    try:
        assert await asyncio.wait_for(output.readline(), PATIENCE_SECONDS) == b"first begins\n"
        async with asyncio.timeout(PATIENCE_SECONDS):
            second = asyncio.create_task(output.readuntil(b"second begins\n"))
            while not second.done():
                # A change before the file is watched goes unnoticed.
                tasks.write_text(_TASKS.format(**user, node=node, word="second"))
                await asyncio.wait([second], timeout=_AGAIN_SECONDS)
            await second
        publisher = await start("publish", node, "--json", '{"a": 1}', "--count", "2")
        ids, _ = await asyncio.wait_for(publisher.communicate(), PATIENCE_SECONDS)
        assert publisher.returncode == 0 and len(set(ids.split())) == 2
        async with asyncio.timeout(PATIENCE_SECONDS):
            for _ in range(2):
                while (line := await output.readline()) == b"second begins\n":
                    pass
                assert line == b"second 1\n"
        asking = await start("publish", node, "--json", '{"a": 2}', "--reply")
        result, _ = await asyncio.wait_for(asking.communicate(), PATIENCE_SECONDS)
        assert (asking.returncode, result) == (0, b"[4]\n")
    finally:
        worker.terminate()
        await asyncio.wait_for(worker.communicate(), PATIENCE_SECONDS)
