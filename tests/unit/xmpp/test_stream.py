"""The stream: it shakes hands, reconnects by itself, and says clearly why it cannot."""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Callable
from importlib.metadata import version
from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element

import pytest
from structlog.testing import capture_logs

from frontends.xmpp import namespaces as ns
from frontends.xmpp import stream as module
from frontends.xmpp.stream import Stream

if TYPE_CHECKING:
    from broker.model.problems import MalformedRequest
    from tests.unit.xmpp.conftest import Wire

_SECRET = "s3cret"
_HEADER = f"<?xml version='1.0'?><stream:stream xmlns='{ns.COMPONENT}' xmlns:stream='{ns.STREAM}' id='s&amp;1'>"


class Server:
    """A server that takes one component at a time, by XEP-0114; it hangs up on wrong secrets."""

    def __init__(self) -> None:
        """Begin without anyone connected."""
        self.writer: asyncio.StreamWriter | None = None
        self.connections = 0
        self.arrivals: asyncio.Queue[int] = asyncio.Queue()
        self.secret = _SECRET
        self.silent = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Shake hands and keep the line open until the component hangs up."""
        self.connections += 1
        self.arrivals.put_nowait(self.connections)
        self.writer = writer
        try:
            await reader.readuntil(b">")
            if self.silent:
                await reader.read()
                return
            writer.write(_HEADER.encode())
            said = (await reader.readuntil(b"</handshake>")).decode()
            digest = hashlib.sha1(f"s&1{self.secret}".encode()).hexdigest()  # noqa: S324  (XEP-0114 §3)
            if not re.search(f"<handshake[^>]*>{digest}<", said):
                writer.write(
                    b"<stream:error><not-authorized xmlns='urn:ietf:params:xml:ns:xmpp-streams'/></stream:error>"
                    b"</stream:stream>"
                )
                return
            writer.write(b"<handshake/>")
            await reader.readuntil(b"</stream:stream>")
            writer.write(b"</stream:stream>")
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


class Ends:
    """Both ends of a stream, and what the component's end noticed."""

    def __init__(self, server: Server, port: int) -> None:
        """Prepare the component's end."""
        self.server = server
        self.links: asyncio.Queue[bool] = asyncio.Queue()
        self.elements: asyncio.Queue[Element] = asyncio.Queue()
        self.stream = Stream("q.x", _SECRET, "127.0.0.1", port, receive=self._receive, changed=self.links.put_nowait)

    def _receive(self, element: Element, fault: "MalformedRequest | None") -> None:
        self.elements.put_nowait(element)
        if element.get("id") == "poison":
            msg = f"a defect, {fault}"
            raise RuntimeError(msg)


@pytest.fixture
async def ends(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Ends]:
    """Give a stream and its server; the first retries come at once."""
    monkeypatch.setattr(module, "_RETRY_FIRST", 0.001)
    server = Server()
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    pair = Ends(server, listener.sockets[0].getsockname()[1])
    yield pair
    await pair.stream.close(1)
    listener.close()
    await listener.wait_closed()


def test_slixmpp_is_the_one_that_was_read() -> None:
    """The stream overrides `data_received` and `init_parser` of this slixmpp; another one must be read again first."""
    assert version("slixmpp") == "1.17.0"


async def test_elements_arrive_as_elements(ends: Ends) -> None:
    """Canary: through slixmpp's connection stanzas come as elements, without any of its own objects in between."""
    ends.stream.open()
    assert await ends.links.get() is True
    assert ends.server.writer is not None
    ends.server.writer.write(b"<iq id='1' type='get'/><message id='poison'/><presence id='3'/>")
    with capture_logs() as logs:
        found = [await ends.elements.get() for _ in range(3)]
    assert [(type(element), element.tag) for element in found] == [
        (Element, f"{{{ns.COMPONENT}}}iq"),
        (Element, f"{{{ns.COMPONENT}}}message"),
        (Element, f"{{{ns.COMPONENT}}}presence"),
    ]
    # An exception of a stanza affected it alone.
    assert [entry["event"] for entry in logs] == ["a stanza failed"]
    assert ends.stream.connected


async def test_it_comes_back_after_a_loss(ends: Ends) -> None:
    """A lost connection, an orderly end and bytes that are no XML are each followed by a new stream."""
    ends.stream.open()
    assert await ends.links.get() is True
    for last_words in (b"", b"</stream:stream>", b"<iq></message>"):
        assert ends.server.writer is not None
        if last_words:
            ends.server.writer.write(last_words)
        else:
            ends.server.writer.transport.abort()
        assert await ends.links.get() is False
        assert not ends.stream.connected
        assert not ends.stream.flushed()
        assert await ends.links.get() is True
        assert ends.stream.connected
    assert ends.server.connections == 4


async def test_a_wrong_secret_is_named_and_retried(ends: Ends) -> None:
    """The log says what the server said and what to do; once the secret is right the stream comes up by itself."""
    ends.server.secret = "another"
    with capture_logs() as logs:
        ends.stream.open()
        for _ in range(3):
            await ends.server.arrivals.get()
        ends.server.secret = _SECRET
        assert await ends.links.get() is True
    entry = next(entry for entry in logs if entry["event"] == "the XMPP server closed the stream")
    assert (entry["log_level"], entry["condition"]) == ("error", "not-authorized")
    assert "secret" in entry["remedy"]
    assert _SECRET not in str(logs)


async def test_a_server_that_is_away_is_waited_for(ends: Ends) -> None:
    """Nobody listens, then somebody does: no restart is needed."""
    listening = ends.stream.server_port
    ends.stream.server_port = 1
    failures: asyncio.Queue[object] = asyncio.Queue()
    ends.stream.add_event_handler("connection_failed", failures.put_nowait)
    with capture_logs() as logs:
        ends.stream.open()
        for _ in range(2):
            await failures.get()
        ends.stream.server_port = listening
        assert await ends.links.get() is True
    assert "cannot reach the XMPP server" in [entry["event"] for entry in logs]


async def test_a_silent_server_is_left(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that accepts the connection and sends nothing is given up, and tried again."""
    monkeypatch.setattr(module, "_HANDSHAKE_SECONDS", 0.05)
    ends.server.silent = True
    ends.stream.open()
    for _ in range(2):
        await ends.server.arrivals.get()
    ends.server.silent = False
    assert await ends.links.get() is True


async def test_closing_is_final(ends: Ends) -> None:
    """A closed stream is ended in order, after what was gathered, and does not come back."""
    ends.stream.open()
    assert await ends.links.get() is True
    ends.stream.write(b"<message/>")
    await ends.stream.close(5)
    assert await ends.links.get() is False
    assert ends.stream._timer is None
    assert ends.server.connections == 1
    await ends.stream.close(5)


async def test_retries_grow_and_differ(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts come ever later, up to two seconds, with jitter so that frontends do not come together."""
    waits: list[float] = []

    class Clock:
        """A loop of which only the timer is used."""

        def call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
            waits.append(seconds)
            return asyncio.get_running_loop().call_later(60, callback)

    monkeypatch.setattr(ends.stream, "_loop", Clock())
    monkeypatch.setattr(ends.stream, "_retry_seconds", 0.2)
    ends.stream._wanted = True
    for _ in range(10):
        ends.stream._retry()
    monkeypatch.undo()
    most = [min(0.2 * 2**n, 2.0) for n in range(10)]
    assert all(limit / 2 <= wait <= limit for wait, limit in zip(waits, most, strict=True))


async def test_a_server_that_stops_reading(ends: Ends, wire: "Wire") -> None:
    """Unsent bytes are warned of when they are many, and end the connection before they fill the memory."""
    stream = ends.stream
    stream.connection_made(wire)  # type: ignore[arg-type]
    stream.data_received(_HEADER + "<handshake/>")
    with capture_logs() as logs:
        stream.pause_writing()
        stream.resume_writing()
        wire.unsent = module._BUFFER_MOST + 1
        stream.write(b"<message/>")
        await asyncio.sleep(0)
    assert [entry["log_level"] for entry in logs] == ["warning", "info", "error"]
    assert wire.aborted.is_set()
    stream.connection_lost(None)
