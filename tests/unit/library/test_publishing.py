"""Publishing without a server: what ends while it waits, and what no server would take."""

import asyncio
import contextlib
import gc
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from stanzaq import Publisher, StanzaqError
from stanzaq.payloads import decode, encode
from stanzaq.transport.account import Account
from stanzaq.transport.interface import Hints
from stanzaq.xmpp import connection
from stanzaq.xmpp.connection import XmppConnection
from stanzaq.xmpp.publisher import XmppSender
from stanzaq.xmpp.stanzas import STANZAQ, item, publish
from tests.references import uncollected
from tests.waiting import PATIENCE_SECONDS


@pytest.fixture
def publisher(monkeypatch: pytest.MonkeyPatch) -> Publisher:
    """Make one whose connection never comes up."""

    async def never(_self: XmppConnection, _listener: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(XmppConnection, "run", never)
    return Publisher("xmpp://publisher@example.org", password="x")


async def test_cancelled(publisher: Publisher) -> None:
    """A publish that is cancelled is not sent later."""
    before = asyncio.all_tasks()
    async with publisher:
        sending = asyncio.create_task(publisher.publish("node", {}))
        await asyncio.sleep(0.01)
        sending.cancel()
        await asyncio.wait({sending})
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks() - before) == 1, "only the connection is left"


async def test_closed(publisher: Publisher) -> None:
    """A publish that waits when the publisher is closed ends with an error that says so."""
    async with publisher:
        waits = asyncio.create_task(publisher.publish("node", {}, id="one"))
        await asyncio.sleep(0.01)
    with pytest.raises(StanzaqError, match="closed before one was answered"):
        await waits


async def test_many_are_refused(publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    """`publish_many` raises what `publish` does."""

    async def refused(*_: Any) -> str:  # noqa: ANN401
        msg = "cannot publish"
        raise StanzaqError(msg)

    monkeypatch.setattr(XmppSender, "publish", refused)
    async with publisher:
        with pytest.raises(StanzaqError, match="cannot publish"):
            await publisher.publish_many("node", range(3))


@pytest.mark.parametrize("hints", [{"id": "a\0"}, {"key": "a\x1b"}, {"headers": {"a": "\uffff"}}])
async def test_unsayable(publisher: Publisher, hints: dict[str, Any]) -> None:
    """Characters that would break this stream, and each next one, are refused."""
    async with publisher, asyncio.timeout(PATIENCE_SECONDS):
        with pytest.raises(StanzaqError, match="which XML cannot contain"):
            await publisher.publish("node", {}, **hints)
        with pytest.raises(StanzaqError, match="which XML cannot contain"):
            await XmppConnection(Account.read("xmpp://a@b", None, "x", None, "required")).ask("say", "get", "\ud800")


async def test_streams_that_end_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A publisher that can log in, but whose streams end at once, pauses for longer each time."""
    pauses, go_on = list[float](), asyncio.sleep

    class Short(TooBig):
        async def wait_until_ended(self) -> str:
            return "End of stream"

    async def sleep(seconds: float) -> None:
        pauses.extend([seconds] if seconds else [])
        await go_on(0)

    monkeypatch.setattr(connection, "_Stream", Short)
    monkeypatch.setattr("stanzaq.xmpp.connection.asyncio.sleep", sleep)
    async with Publisher("xmpp://publisher@example.org", password="x"):
        await until(lambda: len(pauses) > 4)
    assert pauses[4] > 2 * pauses[0]


async def test_a_server_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left of attempts to log in that nobody has answered, and they go on."""
    attempts = 0

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal attempts
        attempts += 1
        with contextlib.suppress(OSError):
            await reader.read()
        writer.close()

    monkeypatch.setattr(connection, "_LOGIN_SECONDS", 0.05)
    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        before = asyncio.all_tasks()
        async with Publisher("xmpp://a@example.org", password="x", address=address, tls="disabled"):
            async with asyncio.timeout(PATIENCE_SECONDS):
                while attempts < 3:  # noqa: ASYNC110  (nobody is told)
                    await asyncio.sleep(0.01)
        server.close()
        await until(lambda: asyncio.all_tasks() == before)


class TooBig:
    """Simulates streams of a server that ends each one at a stanza over 10,000 bytes, and does not answer others."""

    def __init__(self, account: Account, _hear: object) -> None:
        """Open it."""
        self.xmpp = self.transport = self
        self.boundjid, self.is_violated = SimpleNamespace(full=account.jid), False
        self._gone = asyncio.Event()

    def is_closing(self) -> bool:
        """Return whether it ends."""
        return self._gone.is_set()

    def get_write_buffer_size(self) -> int:
        """Return how much waits to be sent."""
        return 0

    def tell_unsent(self) -> None:
        """Do it anyway."""

    def send_raw(self, text: str) -> None:
        """Receive stanzas."""
        if len(text) > 10_000:
            self.is_violated = True
            self._gone.set()

    async def open(self) -> str:
        """Connect."""
        return ""

    async def wait_until_ended(self) -> str:
        """Wait for the end."""
        await self._gone.wait()
        return "End of stream"

    async def disconnect(self, **_: float) -> None:
        """Leave."""
        self._gone.set()

    async def drop(self) -> None:
        """End."""


async def test_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """An item that the XMPP server does not take is refused, and does not end each further stream with all that waits."""
    monkeypatch.setattr(connection, "_Stream", TooBig)
    async with Publisher("xmpp://publisher@example.org", password="x") as publisher, asyncio.timeout(PATIENCE_SECONDS):
        small = asyncio.create_task(publisher.publish("node", "small"))
        with pytest.raises(StanzaqError, match=r"takes no stanza of \d+ bytes: make the payload smaller") as refused:
            await publisher.publish("node", "x" * 20_000)
        assert refused.value.condition == "not-acceptable" and not small.done()
        small.cancel()


class Slow(TooBig):
    """Simulates a stream whose server takes a byte each time somebody looks, until it is `stuck`."""

    stuck = False

    def __init__(self, account: Account, hear: object) -> None:
        """Have much to send."""
        super().__init__(account, hear)
        self.sent, self.left = 0, 1_000_000
        self.is_aborted = False

    def send_raw(self, text: str) -> None:
        """Count items."""
        self.sent += text.count("<publish ")

    def get_write_buffer_size(self) -> int:
        """Send a byte."""
        self.left -= not self.stuck
        return self.left

    def abort(self) -> None:
        """End."""
        self.is_aborted = True
        self._gone.set()


async def test_a_slow_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request is not repeated, nor its stream ended, while the server still takes it; only once it takes no more."""
    opened: list[Slow] = []

    def opening(account: Account, hear: object) -> Slow:
        opened.append(Slow(account, hear))
        return opened[-1]

    monkeypatch.setattr(connection, "_Stream", opening)
    monkeypatch.setattr(connection, "_ANSWER_SECONDS", 0.01)
    async with Publisher("xmpp://publisher@example.org", password="x") as publisher, asyncio.timeout(PATIENCE_SECONDS):
        publishing = asyncio.create_task(publisher.publish("node", "x"))
        await until(lambda: bool(opened) and opened[0].left < 999_960)
        (slow,) = opened
        assert slow.sent == 1 and not slow.is_aborted
        slow.stuck = True
        await until(lambda: slow.is_aborted)
        publishing.cancel()


def test_json_names_them() -> None:
    """JSON text has them by their numbers."""
    content = encode({"a": "\uffff\ufffe ü\0"})
    stanza = ET.fromstring(publish("node", item("one", content, {}, Hints())))
    (json,) = stanza.iter("{urn:xmpp:json:0}json")
    assert "\uffff" not in (json.text or "")
    assert decode(type(content)((json.text or "").encode(), content.type), Any) == {"a": "\uffff\ufffe ü\0"}


@pytest.mark.parametrize("text", ["<a t=' xmlns='/>", "<a t='x'><b xmlns='urn:x'/></a>", "<a xmlns='urn:x'/>"])
def test_namespaces(text: str) -> None:
    """An element keeps its namespace in a stanza, also if an attribute has a text like a declaration."""
    payload = ET.fromstring(text)
    stanza = ET.fromstring(publish("node", item("one", encode(payload), {}, Hints())))
    (sent,) = stanza.iter("{http://jabber.org/protocol/pubsub}item")
    assert sent[0].tag == payload.tag


def test_comments() -> None:
    """Elements with comments, which end a stream, are refused."""
    element = ET.Element("{urn:x}a")
    element.append(ET.Comment("no"))
    with pytest.raises(TypeError, match="XMPP forbids them"):
        encode(element)


@pytest.mark.parametrize("name", ["a b", "", "1", "p:a", "{urn:x}a/", "{urn:x}"])
def test_names(name: str) -> None:
    """Elements and attributes with names that XML does not have, which end a stream, are refused."""
    with pytest.raises(TypeError, match="is no XML"):
        encode(ET.Element(name))
    with pytest.raises(TypeError, match="is no XML"):
        encode(ET.Element("{urn:x}a", {name: "b"}))


async def test_an_id_that_has_ended_before() -> None:
    """A reply waits for the item that was published with it, also while somebody keeps that of an earlier item of the id."""
    sender = XmppSender(XmppConnection(Account.read("xmpp://a@b", None, "x", None, "required")))

    def tell(state: str) -> None:
        outcome = f"<outcome xmlns='{STANZAQ}' node='n' item='a' state='{state}'/>"
        sender.message(ET.fromstring(f"<message>{outcome}</message>"))

    first = sender.reply("n", "a")
    same = sender.reply("n", "a")
    tell("cancelled")
    assert [(await each()).state for each in (first, same)] == ["cancelled"] * 2
    second = sender.reply("n", "a")
    tell("acknowledged")
    assert [(await each()).state for each in (first, second)] == ["cancelled", "acknowledged"]


async def test_an_end_of_an_earlier_item(monkeypatch: pytest.MonkeyPatch) -> None:
    """A publisher that connects while an item is on its way does not take the end of an earlier item of the id for its own."""
    kept = f"<outcome xmlns='{STANZAQ}' node='n' item='a' state='cancelled'/>"

    async def ask(_self: XmppConnection, what: str, _kind: str, _payload: str) -> ET.Element:
        if what == "find a" and not kept:
            raise StanzaqError(what, "item-not-found")
        return ET.fromstring(f"<iq>{kept if what == 'find a' else ''}</iq>")

    monkeypatch.setattr(XmppConnection, "ask", ask)
    sender = XmppSender(XmppConnection(Account.read("xmpp://a@b", None, "x", None, "required")))
    ended = sender.reply("n", "a")
    await sender.connected()
    # The service has stored the item, and with that forgotten the earlier one.
    kept = ""
    waiting = asyncio.ensure_future(ended())
    await asyncio.sleep(0)
    assert not waiting.done()
    # The item ends while the publisher is not connected.
    kept = f"<outcome xmlns='{STANZAQ}' node='n' item='a' state='acknowledged'/>"
    await sender.connected()
    assert (await waiting).state == "acknowledged"


async def until(holds: Callable[[], object]) -> None:
    """Wait for something that no event tells."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0)


@pytest.mark.parametrize("why", ["refused", "stream lost", "too large"])
async def test_no_stanza_is_kept(why: str) -> None:
    """Guarantee 6: once a request has failed, however, nothing keeps it, not even until Python collects garbage."""
    asked = XmppConnection(Account.read("xmpp://a@b", None, "x", None, "required"))
    asked._up.set()
    payload = "".join(["x"] * 20_000)
    held = sys.getrefcount(payload)
    with uncollected():
        asking: asyncio.Task[ET.Element | None] = asyncio.create_task(
            asked.ask_once("set", payload) if why == "stream lost" else asked.ask("publish", "set", payload)
        )
        await until(lambda: asked._answers)
        match why:
            case "refused":
                error = "<error type='cancel'><conflict xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error>"
                (name,) = asked._answers
                iq = f"<iq xmlns='jabber:client' id='{name}' type='error' from='queue.b'>{error}</iq>"
                asked._hear(ET.fromstring(iq))
            case "stream lost":
                for answer in asked._answers.values():
                    answer.set_result(None)
                del answer
            case "too large":
                asked._refuse_largest()
        await asyncio.wait({asking})
        del asking
        await until(lambda: sys.getrefcount(payload) == held)


async def test_who_leaves_as_the_stream_ends() -> None:
    """A program that ends while its server refuses a stanza says nothing of faults that nobody took."""
    asked, said = XmppConnection(Account.read("xmpp://a@b", None, "x", None, "required")), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _loop, about: said.append(about))
    asked._up.set()
    asking = asyncio.create_task(asked.ask("publish", "set", "x" * 20_000))
    await until(lambda: asked._answers)
    assert asked._refuse_largest() and asking.cancel()
    await asyncio.wait({asking})
    del asking
    gc.collect()
    assert said == []


@pytest.mark.parametrize("why", ["refused", "many refused", "many cancelled", "no connection"])
async def test_no_payload_is_kept(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarantee 6: once a publish has failed, however, nothing keeps its payload, not even until Python collects garbage."""
    ends = asyncio.Event()

    async def run(_self: XmppConnection, _listener: object) -> None:
        await ends.wait()
        msg = "the server refuses publisher@example.org"
        raise StanzaqError(msg)

    async def publish(*_: object) -> None:
        if "refused" not in why:
            await asyncio.Event().wait()
        msg = "cannot publish"
        raise StanzaqError(msg)

    monkeypatch.setattr(XmppConnection, "run", run)
    monkeypatch.setattr(XmppSender, "publish", publish)
    body = bytes(1_000)
    held = sys.getrefcount(body)
    async with Publisher("xmpp://publisher@example.org", password="x") as publisher:
        with uncollected():
            many = publisher.publish_many("node", iter((b"", body))) if "many" in why else None
            asking: asyncio.Task[Any] = asyncio.create_task(many or publisher.publish("node", body))
            del many
            await until(lambda: publisher._sending or "refused" in why)
            if why == "no connection":
                ends.set()
            elif why == "many cancelled":
                asking.cancel()
            await asyncio.wait({asking})
            del asking
            await until(lambda: sys.getrefcount(body) == held)
