"""The outbox of a publisher: what it keeps, what is sent again, and its errors when its file cannot be used."""

import asyncio
import logging
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element, SubElement

import pytest

from stanzaq import Publisher, StanzaqError, schemes, sync
from stanzaq.publisher import publisher as publishing
from stanzaq.publisher.outbox import Outbox
from stanzaq.transport.account import Account
from stanzaq.transport.interface import Content, Hints, Outgoing, Save
from stanzaq.xmpp.connection import XmppConnection
from stanzaq.xmpp.publisher import XmppSender
from tests.references import uncollected
from tests.waiting import PATIENCE_SECONDS

ONE = Outgoing("name-1", "jobs", "one", Content(b"\0\xff", "image/png"), {"a": "ü"}, Hints("k", 1.5, 0, None))


class Service:
    """Simulates the transport of a publisher; `answer` decides the outcome of an item."""

    def __init__(self) -> None:
        """Answer nobody."""
        self.sent: list[str] = []
        self.answer: Any = lambda _: asyncio.Event().wait()
        self.account: Any = None

    async def run(self) -> None:
        """Stay connected."""
        await asyncio.Event().wait()

    async def publish(self, outgoing: Outgoing) -> None:
        """Take an item."""
        await self.publish_once(outgoing, lambda _: asyncio.sleep(0))

    async def publish_once(self, outgoing: Outgoing, save: Save) -> None:
        """Take an item in two steps."""
        await save(replace(outgoing, since=1.0))
        self.sent.append(outgoing.item)
        await self.answer(outgoing)

    async def close(self) -> None:
        """Disconnect."""


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    """Give what publishers send to."""
    played = Service()

    def sender(account: Any) -> Service:  # noqa: ANN401
        played.account = account
        return played

    monkeypatch.setattr(schemes, "sender", sender)
    return played


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Give a file that is not there yet."""
    return tmp_path / "outbox.db"


def made(path: Path) -> Publisher:
    """Make a publisher with an outbox."""
    return Publisher("xmpp://p@example.org", password="x", outbox=path)


async def stored(_outgoing: Outgoing) -> None:
    """Store an item."""


async def refused(_outgoing: Outgoing) -> None:
    """Refuse it."""
    msg = "cannot publish to jobs: item-not-found"
    raise StanzaqError(msg, "item-not-found")


async def left(path: Path) -> list[Outgoing]:
    """Read what is in an outbox."""
    outbox = Outbox(path)
    try:
        return await outbox.open()
    finally:
        await outbox.close()


async def test_kept(path: Path) -> None:
    """Items are read in the order in which they came, at their last step, and with the same resource."""
    outbox = Outbox(path)
    assert await outbox.open() == []
    two = replace(ONE, name="name-2", item="two")
    for each in (ONE, two, replace(ONE, since=5.0, sender="p@x/a")):
        await outbox.save(each)
    resource = outbox.resource
    await outbox.close()
    outbox = Outbox(path)
    assert await outbox.open() == [replace(ONE, since=5.0, sender="p@x/a"), two]
    await outbox.remove(ONE)
    await outbox.close()
    assert await left(path) == [two] and resource == outbox.resource != ""


async def test_sent_by_the_next(service: Service, path: Path) -> None:
    """What waits when a publisher is closed, or its caller has gone, is sent by the next, as the same sender."""
    async with made(path) as publisher:
        waits = asyncio.create_task(publisher.publish("jobs", {}, id="one"))
        leaves = asyncio.create_task(publisher.publish("jobs", {}, id="two"))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(service.sent) < 2:  # noqa: ASYNC110  (nobody is told)
                await asyncio.sleep(0)
        leaves.cancel()
        await asyncio.wait({leaves})
        first = service.account
    with pytest.raises(StanzaqError, match="closed before one was answered: one is in the outbox"):
        await waits
    assert [each.item for each in await left(path)] == ["one", "two"]
    service.answer = stored
    async with made(path) as publisher:
        assert await publisher.publish("jobs", {}, id="three") == "three"
    assert sorted(service.sent) == ["one", "one", "three", "two", "two"]
    assert await left(path) == [] and first.jid == service.account.jid


@pytest.mark.parametrize("why", ["failed", "closed"])
async def test_while_it_is_saved(service: Service, path: Path, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An item that is being written when the connection fails for good, or the publisher is closed, is told as kept: it is."""

    async def fails() -> None:
        raise StanzaqError("the server refuses the account", "not-authorized")  # noqa: EM101, TRY003

    if why == "failed":
        monkeypatch.setattr(service, "run", fails)
    async with made(path) as publisher:
        publishing = asyncio.create_task(publisher.publish("jobs", {}, id="one"))
        # It begins, and then its sending.
        for _ in range(2):
            await asyncio.sleep(0)
        if why == "failed":
            await asyncio.wait({publishing})
    with pytest.raises(StanzaqError, match="one is in the outbox, and the next publisher sends it"):
        await publishing
    assert [each.item for each in await left(path)] == ["one"]


async def test_refused(service: Service, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A refusal is raised, and the item is removed; when nobody waits for it, it stays and is logged."""
    service.answer = refused
    async with made(path) as publisher:
        with pytest.raises(StanzaqError, match="item-not-found"):
            await publisher.publish("jobs", {})
    assert await left(path) == []
    outbox = Outbox(path)
    await outbox.open()
    await outbox.save(ONE)
    await outbox.close()
    async with made(path):
        pass
    assert await left(path) == [ONE] or (await left(path))[0].since == 1.0
    assert "an item stays in the outbox: cannot publish to jobs: item-not-found" in caplog.text


def test_opened_again(service: Service, path: Path) -> None:
    """A publisher that was closed may be opened again, in another event loop; and items beyond those at once wait."""
    service.answer = lambda _: asyncio.sleep(0)
    publisher = made(path)

    async def work() -> None:
        async with publisher:
            await asyncio.gather(*(publisher.publish("jobs", number) for number in range(60)))

    for _ in range(2):
        asyncio.run(work())
    assert len(service.sent) == 120


async def test_full(service: Service, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond its limit a publisher refuses further items, with or without a file."""
    monkeypatch.setattr(publishing, "_MOST", 2)
    for publisher in (made(path), Publisher("xmpp://p@example.org", password="x")):
        async with publisher:
            waiting = [asyncio.create_task(publisher.publish("jobs", {})) for _ in range(2)]
            await asyncio.sleep(0)
            with pytest.raises(StanzaqError, match="2 items wait for the service already: publish x later"):
                await publisher.publish("jobs", {}, id="x")
            service.answer = stored
        assert all(isinstance(each, StanzaqError) for each in await asyncio.gather(*waiting, return_exceptions=True))


async def test_the_disk_is_full(service: Service, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What cannot be saved is not sent; when a later step cannot be saved, the item is sent all the same."""
    service.answer = stored
    async with made(path) as publisher:
        outbox = publisher._outbox
        assert outbox is not None and outbox._db is not None
        await publisher.publish("jobs", {})
        outbox._db.execute("PRAGMA max_page_count = 1")
        with pytest.raises(
            StanzaqError, match=r"cannot be written \(database or disk is full\): make room on its disk"
        ):
            await publisher.publish("jobs", "x" * 100_000)
        assert len(service.sent) == 1
        outbox._db.execute("PRAGMA max_page_count = 100000")
        await outbox._run("written", lambda: outbox._do("PRAGMA query_only = 0"))

        def read_only(outgoing: Outgoing) -> Any:  # noqa: ANN401
            return outbox._run("written", lambda: outbox._do("PRAGMA query_only = 1") and None)

        service.answer = read_only
        caplog.set_level(logging.ERROR, "stanzaq")
        await publisher.publish("jobs", {}, id="stays")
        assert "attempt to write a readonly database" in caplog.text
    assert [each.item for each in await left(path)] == ["stays"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"no database at all, but long enough to be taken for one" * 20, "it is no outbox: move it away"),
        (None, "its directory must exist and be writable"),
    ],
)
async def test_broken(content: bytes | None, told: str, path: Path, service: Service) -> None:
    """A file that cannot be used is told at the start, also by the blocking publisher."""
    where = path / "not-there" if content is None else path
    if content is not None:
        path.write_bytes(content)  # noqa: ASYNC240  (nothing else runs)
    with pytest.raises(StanzaqError, match=f"the outbox .* cannot be opened .*: {told}"):
        async with made(where):
            pass
    blocking = sync.Publisher("xmpp://p@example.org", password="x", outbox=where)
    for _ in range(2):
        with pytest.raises(StanzaqError, match=told):
            blocking.publish("jobs", {})
    assert service.sent == []


@pytest.mark.parametrize(
    "wrong", [{"id": 7}, {"id": 0}, {"key": 7}, {"headers": {"a": 7}}, {"headers": {7: "a"}}, {"priority": "9"}]
)
async def test_arguments(wrong: dict[str, Any], path: Path, service: Service) -> None:
    """What no transport can send is refused, and not kept: an item that cannot be read would block the whole file."""
    async with made(path) as publisher:
        with pytest.raises(TypeError, match=f"{next(iter(wrong))}.* is a (int|str); give an? "):
            await publisher.publish("jobs", {}, **wrong)
    assert await left(path) == [] and service.sent == []


async def test_unreadable(path: Path, service: Service) -> None:
    """An item that cannot be read is told as a damaged file."""
    async with made(path):
        pass
    with sqlite3.connect(path) as db:
        db.execute("INSERT INTO items VALUES ('a', X'00')")
    db.close()
    with pytest.raises(StanzaqError, match=r"cannot be opened .*: it is damaged: move it away"):
        async with made(path):
            pass


async def test_used_by_another(path: Path, service: Service) -> None:
    """Two publishers cannot use one file; and one of a newer version is left alone."""
    async with made(path):
        with pytest.raises(StanzaqError, match="another process uses it: give each process a file of its own"):
            async with made(path):
                pass
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 2")
    db.close()
    with pytest.raises(StanzaqError, match="is of a newer version"):
        async with made(path):
            pass


FORKED = """
import asyncio, os, sys
from pathlib import Path
from stanzaq import StanzaqError, sync
from stanzaq import schemes

class Service:
    async def run(self): await asyncio.Event().wait()
    async def publish(self, outgoing): pass
    async def publish_once(self, outgoing, save): pass
    async def close(self): pass
    def reply(self, node, item): return asyncio.Event().wait

schemes.sender = lambda account: Service()
kept = sync.Publisher("xmpp://p@example.org", password="x", outbox="outbox.db")
kept.publish("jobs", 1)
plain = sync.Publisher("xmpp://p@example.org", password="x")
asked = plain.publish("jobs", 1, reply=True)
child = os.fork()
if not child:
    plain.publish("jobs", 1, timeout="20s")
    try:
        asked.result("20s")
    except StanzaqError:
        pass
    plain.close()
    sys.exit()
assert os.waitpid(child, 0)[1] == 0
assert Path("outbox.db-wal").exists()
kept.close()
plain.close()
"""


def test_forked(tmp_path: Path) -> None:
    """A forked process has a connection of its own, and its end does not remove what SQLite keeps for its parent's outbox."""
    done = subprocess.run([sys.executable, "-c", FORKED], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_closed_meanwhile(service: Service) -> None:
    """A call that waits in another thread ends when the blocking publisher is closed."""
    publisher = sync.Publisher("xmpp://p@example.org", password="x")
    with ThreadPoolExecutor(1) as thread:
        waits = thread.submit(publisher.publish_many, "jobs", range(100))
        while not service.sent:
            time.sleep(0.001)
        publisher.close()
        with pytest.raises(StanzaqError, match=r"the publisher was closed|is not open"):
            waits.result(timeout=20)


class Stream:
    """Simulates an XMPP connection: `answers` has the reply to each request, an exception or nothing."""

    def __init__(self, *answers: str) -> None:
        """Prepare the answers: names of errors, empty for a result."""
        self.jid = "p@example.org/a"
        self.asked: list[str] = []
        self._answers = iter(answers)

    async def ask(self, what: str, _kind: str, payload: str) -> Element:
        """Answer."""
        request = ET.fromstring(payload)
        self.asked.append(request.tag.rpartition("}")[2])
        condition = next(self._answers)
        if condition:
            msg = f"cannot {what}: {condition}"
            raise StanzaqError(msg, condition)
        answer = Element("iq", {"type": "result"})
        if self.asked[-1] == "assured":
            SubElement(answer, "{urn:xmpp:qos}received", {"msgId": request.get("msgId", "")})
        return answer

    async def up(self) -> None:
        """Be there."""


@pytest.mark.parametrize(
    ("answers", "since", "asked", "told"),
    [
        (("", ""), 0.0, ["assured", "deliver"], ""),
        (("",), 9.0, ["deliver"], ""),
        (("item-not-found", "", ""), 9.0, ["deliver", "assured", "deliver"], ""),
        (
            ("item-not-found", "", "item-not-found"),
            9.0,
            ["deliver", "assured", "deliver"],
            "cannot tell whether one is",
        ),
        (("item-not-found",), 3_700.0, ["deliver"], "cannot tell whether one is published: look for it in jobs"),
        (("not-allowed",), 0.0, ["assured"], "cannot publish to jobs: not-allowed"),
        (("", "gone"), 0.0, ["assured", "deliver"], "item-not-found"),
    ],
)
async def test_two_steps(answers: tuple[str, ...], since: float, asked: list[str], told: str) -> None:
    """S9, S10: an item is held, then delivered; what the service has lost is sent again, but not after it may have forgotten."""
    sender = XmppSender(XmppConnection(Account.read("xmpp://p@example.org", None, "x", None, "required")))
    stream = Stream(*answers)
    sender._connection = stream  # type: ignore[assignment]  # it plays one
    saved: list[Outgoing] = []

    async def save(outgoing: Outgoing) -> None:
        saved.append(outgoing)

    began = replace(ONE, since=time.time() - since, sender=stream.jid) if since else ONE
    if told:
        with pytest.raises(StanzaqError, match=told):
            await sender.publish_once(began, save)
    else:
        await sender.publish_once(began, save)
    assert stream.asked == asked
    assert [each.sender for each in saved] == [stream.jid] * asked.count("assured") or told.endswith("not-allowed")


async def test_another_sender() -> None:
    """What was held in another's name cannot be told from a delivered one."""
    sender = XmppSender(XmppConnection(Account.read("xmpp://p@example.org", None, "x", None, "required")))
    sender._connection = Stream("item-not-found")  # type: ignore[assignment]  # it plays one
    with pytest.raises(StanzaqError, match="cannot tell whether one is published"):
        await sender.publish_once(replace(ONE, since=time.time(), sender="p@example.org/b"), stored)


def test_no_payload_is_kept(service: Service) -> None:
    """Guarantee 6: once a blocking publish has failed, nothing keeps its payload, not even until Python collects garbage."""
    service.answer = refused
    body = bytes(1_000)
    held = sys.getrefcount(body)
    with sync.Publisher("xmpp://p@example.org", password="x") as publisher, uncollected():
        with pytest.raises(StanzaqError, match="item-not-found") as failed:
            publisher.publish("jobs", body)
        del failed
        began = time.monotonic()
        while sys.getrefcount(body) > held:
            assert time.monotonic() - began < PATIENCE_SECONDS
            time.sleep(0.001)


async def test_no_record_is_kept(path: Path) -> None:
    """Guarantee 6: once an item could not be written, nothing keeps its record, not even until Python collects garbage."""
    outbox = Outbox(path)
    await outbox.open()
    assert outbox._db is not None
    outbox._db.execute("PRAGMA query_only = 1")
    record = bytes(1_000)
    held = sys.getrefcount(record)

    async def write() -> None:
        await outbox._run("written", partial(outbox._do, "INSERT INTO items VALUES ('a', ?)", record))

    with uncollected():
        with pytest.raises(StanzaqError, match="readonly database") as failed:
            await write()
        del failed
        async with asyncio.timeout(PATIENCE_SECONDS):
            while sys.getrefcount(record) > held:  # noqa: ASYNC110  (nobody tells when the last reference goes)
                await asyncio.sleep(0)
    await outbox.close()
