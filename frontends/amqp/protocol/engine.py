"""proton without its I/O: bytes in, events and bytes out. Must not know asyncio or the core.

What happens for every message is told by proton's C functions themselves: its Python events cost three times as much.
"""

from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from cproton_ffi import ffi, lib
from proton import (
    Collector,
    Condition,
    Connection,
    Endpoint,
    Event,
    Session,
    Transport,
)
from proton import symbol as symbol  # noqa: PLC0414  (what properties are named with)

from frontends.amqp.constants import CAPABILITY
from frontends.amqp.errors import Fault
from frontends.amqp.protocol.links import DETAIL_CHARS, Incoming, Outgoing, ProtonLink

if TYPE_CHECKING:
    from collections.abc import Iterator

CONTAINER: Final = "stanzaq"
FRAME_BYTES: Final = 32_768
CHANNELS: Final = 64
IDLE_SECONDS: Final = 60.0
"""A peer that says nothing for so long is gone."""

SESSION_BYTES: Final = 2_000 * FRAME_BYTES
"""What a peer may have under way on a session: so many frames, however short. Nothing of it stays in proton, for links are
emptied as soon as something has arrived, and with too much that waits for Redis no more is read."""


_OPEN: Final = bytes.fromhex("00000011 02000000 005310c0 0401a10130")
"""The shortest open that there is."""


class EngineEvent(Enum):
    """What a door has to hear of."""

    OPENED = auto()
    CLOSED = auto()
    ATTACHED = auto()
    ENDED = auto()
    FLOW = auto()
    MESSAGES = auto()


class Engine:
    """One connection's side of the protocol."""

    def __init__(self) -> None:
        """Begin before the header of AMQP."""
        self._transport = Transport(Transport.SERVER)
        self._transport.max_frame_size = FRAME_BYTES
        self._transport.idle_timeout = IDLE_SECONDS
        self._transport.channel_max = CHANNELS - 1
        self._connection = Connection()
        self._collector = Collector()
        self._connection.collect(self._collector)
        self._transport.bind(self._connection)
        self._proton_links: dict[Any, ProtonLink] = {}

    def receive(self, data: memoryview) -> int:
        """Take bytes, as many as there is room for now; -1 when no more are taken at all."""
        room = self._transport.capacity()
        if room < 0:
            return -1
        taken = min(room, len(data))
        if taken:
            self._transport.push(bytes(data[:taken]))
        return taken

    def output(self) -> bytes | None:
        """Give what is to be sent now; None when there will be no more."""
        pending = self._transport.pending()
        if pending < 0:
            return None
        if not pending:
            return b""
        data = self._transport.peek(pending) or b""
        self._transport.pop(len(data))
        return bytes(data)

    def tick(self, now: float) -> float:
        """Let time pass; gives when it wants to be told again, 0 for never."""
        return float(self._transport.tick(now) or 0.0)

    @property
    def idle_seconds(self) -> float:
        """After how long without a word the peer ends the connection; 0 for never."""
        return float(self._transport.remote_idle_timeout)

    def events(self) -> "Iterator[tuple[EngineEvent, ProtonLink | None]]":
        """Give what has happened, and to which link."""
        collector = self._collector._impl  # noqa: SLF001  (proton's own methods on it are the slow ones)
        while (event := lib.pn_collector_peek(collector)) != ffi.NULL:
            kind = lib.pn_event_type(event)
            if kind == lib.PN_DELIVERY:
                delivery = lib.pn_event_delivery(event)
                proton_link = self._proton_links.get(lib.pn_delivery_link(delivery))
                if isinstance(proton_link, Outgoing):
                    proton_link.hear(delivery)
                    yield EngineEvent.FLOW, proton_link
                elif proton_link is not None:
                    yield EngineEvent.MESSAGES, proton_link
            elif kind == lib.PN_LINK_FLOW:
                if proton_link := self._proton_links.get(lib.pn_event_link(event)):
                    yield EngineEvent.FLOW, proton_link
            else:
                found = self._collector.peek()
                if found is not None:
                    yield from self._rare(found)
            lib.pn_collector_pop(collector)

    def _rare(self, event: Event) -> "Iterator[tuple[EngineEvent, ProtonLink | None]]":
        link: Any = event.link
        session: Any = event.session
        proton_link: ProtonLink | None
        match event.type:
            case Event.CONNECTION_REMOTE_OPEN:
                yield EngineEvent.OPENED, None
            case Event.CONNECTION_REMOTE_CLOSE:
                yield EngineEvent.CLOSED, None
            case Event.SESSION_REMOTE_OPEN:
                if session.state & Endpoint.LOCAL_UNINIT:
                    session.incoming_capacity = SESSION_BYTES
                    session.open()
            case Event.SESSION_REMOTE_CLOSE:
                yield from self._left(session)
            case Event.LINK_REMOTE_OPEN:
                if link.state & Endpoint.LOCAL_UNINIT:
                    proton_link = (Outgoing if link.is_sender else Incoming)(link)
                    self._proton_links[proton_link.raw] = proton_link
                    yield EngineEvent.ATTACHED, proton_link
            case Event.LINK_REMOTE_CLOSE | Event.LINK_REMOTE_DETACH:
                proton_link = self._proton_links.pop(link._impl, None)  # noqa: SLF001
                if proton_link is not None:
                    yield EngineEvent.ENDED, proton_link
                    proton_link.ended(closed=event.type is Event.LINK_REMOTE_CLOSE)

    def _left(self, session: Session) -> "Iterator[tuple[EngineEvent, ProtonLink | None]]":
        """End the links of a session with it."""
        for raw, proton_link in list(self._proton_links.items()):
            if lib.pn_link_session(raw) == session._impl:  # noqa: SLF001
                del self._proton_links[raw]
                yield EngineEvent.ENDED, proton_link
                proton_link.alive = False
        session.close()
        session.free()

    @property
    def links(self) -> int:
        """How many there are."""
        return len(self._proton_links)

    def open(self) -> None:
        """Answer the peer's open, once."""
        if not self._connection.state & Endpoint.LOCAL_UNINIT:
            return
        self._connection.container = CONTAINER
        self._connection.offered_capabilities = [symbol(CAPABILITY)]
        self._connection.properties = {symbol("product"): CONTAINER}
        self._connection.open()

    def close(self, fault: Fault | None) -> None:
        """End the connection, and say why."""
        if self._connection.state & Endpoint.LOCAL_CLOSED:
            return
        if self._connection.state & Endpoint.LOCAL_UNINIT:
            # Part 2 §2.4.3: there is no close without an open; and proton says none to a peer that it has not heard one from.
            self.open()
            self._transport.push(_OPEN)
        if fault:
            self._connection.condition = Condition(fault.condition, fault.detail[:DETAIL_CHARS])
        self._connection.close()

    def release(self) -> None:
        """Let go of all that proton has of it: nothing is done with a link from here on."""
        for proton_link in self._proton_links.values():
            proton_link.alive = False
        self._proton_links.clear()
        self._transport.unbind()
        lib.pn_connection_collect(self._connection._impl, ffi.NULL)  # noqa: SLF001  (proton's own way to do it fails)
        self._connection.free()
