"""A slixmpp stream without a network, on a loop whose clock stands until it is advanced."""

import asyncio
from collections import deque
from collections.abc import Coroutine
from copy import deepcopy
from typing import Any, Final, TypeVar
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element

from slixmpp import JID, ClientXMPP
from slixmpp.xmlstream.stanzabase import StanzaBase
from slixmpp.xmlstream.tostring import tostring

from stanzaq.xep_qos import Outbox, XepQos

SENDER: Final = "sender@example.org/desk"
PEER: Final = "jobs@queue.example.org"
STANZAS: Final = "urn:ietf:params:xml:ns:xmpp-stanzas"

T = TypeVar("T")


class StillLoop(asyncio.SelectorEventLoop):
    """A loop with a clock of its own."""

    now = 1_000_000.0
    _ready: deque[asyncio.Handle]

    def time(self) -> float:
        """Give the time that it is told to be."""
        return self.now

    def settle(self) -> None:
        """Run everything that needs no time to pass."""

        async def turns() -> None:
            # Timers that are due become ready with the next turn.
            quiet = 0
            while quiet < 2:
                await asyncio.sleep(0)
                quiet = 0 if self._ready else quiet + 1

        self.run_until_complete(turns())

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        self.settle()

    def start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Begin something and let it come as far as it can."""
        task = self.create_task(work)
        self.settle()
        return task


class Stream(ClientXMPP):
    """A client with the plugin; `sent` is what it has written, read again as a server would."""

    def __init__(self, loop: StillLoop, outbox: Outbox | None = None, **config: object) -> None:
        """Prepare; `bind` begins the session."""
        asyncio.set_event_loop(loop)
        super().__init__(SENDER, "")
        self.sent: list[Element] = []
        self._still = loop
        self.qos = self.begin(outbox, **config)

    def begin(self, outbox: Outbox | None, **config: object) -> XepQos:
        """Load the plugin."""
        self.register_plugin("xep_qos", {"outbox": outbox, "clock": self._still.time, **config})
        plugin = self.get("xep_qos")
        assert isinstance(plugin, XepQos)
        return plugin

    def end(self) -> None:
        """Unload the plugin."""
        plugins: Any = self.plugin
        plugins.disable("xep_qos")

    def bind(self, jid: str = SENDER) -> None:
        """Begin a session."""
        self.boundjid = JID(jid)
        self.session_bind_event.set()
        self.event("session_bind", self.boundjid)

    def lose(self) -> None:
        """Lose the connection."""
        self.session_bind_event.clear()
        self.event("disconnected", "")

    def send(self, data: StanzaBase | str, use_filters: bool = True) -> None:  # noqa: FBT001, FBT002  (slixmpp's signature)
        """Keep what would be written."""
        assert use_filters
        assert isinstance(data, StanzaBase)
        text = tostring(data.xml, xmlns=self.default_ns, stream=self, top_level=True)
        self.sent.append(ET.fromstring(f"<stream xmlns='jabber:client'>{text}</stream>")[0])

    def take(self) -> Element:
        """Take the only stanza that was written."""
        (element,) = self.sent
        self.sent.clear()
        return element

    def hear(self, *stanzas: Element) -> None:
        """Read stanzas, and let happen what follows from them."""
        for stanza in stanzas:
            self._spawn_event(deepcopy(stanza))
        self._still.settle()


def result(request: Element, inside: str = "") -> Element:
    """Answer a request with a result."""
    return _reply(request, "result", inside)


def received(request: Element) -> Element:
    """Answer <assured/> as it should be."""
    return result(request, f"<received xmlns='urn:xmpp:qos' msgId='{request[0].get('msgId')}'/>")


def error(request: Element, kind: str, condition: str, text: str = "") -> Element:
    """Answer a request with an error."""
    explained = f"<text xmlns='{STANZAS}'>{text}</text>" if text else ""
    inside = f"<error type='{kind}'><{condition} xmlns='{STANZAS}'/>{explained}</error>"
    return _reply(request, "error", inside)


def _reply(request: Element, kind: str, inside: str) -> Element:
    attributes = f"type='{kind}' id='{request.get('id')}' from='{request.get('to')}' to='{SENDER}'"
    return ET.fromstring(f"<iq xmlns='jabber:client' {attributes}>{inside}</iq>")
