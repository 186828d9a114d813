"""Wraps proton without its I/O: bytes in, events and bytes out. Must not know asyncio or the core.

Per-message events come from proton's C functions: its Python events cost three times as much.
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
from proton import symbol as symbol  # noqa: PLC0414  (re-exported for names of properties)

from frontends.amqp.constants import CAPABILITY
from frontends.amqp.errors import Fault
from frontends.amqp.protocol.links import DETAIL_CHARS, Incoming, Outgoing, ProtonLink, read_properties

if TYPE_CHECKING:
    from collections.abc import Iterator

CONTAINER: Final = "stanzaq"
FRAME_BYTES: Final = 32_768
CHANNELS: Final = 64
IDLE_SECONDS: Final = 60.0
"""A peer that is silent for this long counts as gone."""

SESSION_BYTES: Final = 2_000 * FRAME_BYTES
"""What a peer may have in transit on a session, in frames of any length.

Links are emptied on each arrival, so proton keeps none of it. With too many bytes waiting for Redis, reading stops.
"""


_OPEN: Final = bytes.fromhex("00000011 02000000 005310c0 0401a10130")
"""The shortest open frame."""


class EngineEvent(Enum):
    """The events of an engine."""

    OPENED = auto()
    CLOSED = auto()
    ATTACHED = auto()
    ENDED = auto()
    FLOW = auto()
    MESSAGES = auto()


class Engine:
    """The protocol state of one connection."""

    def __init__(self) -> None:
        """Start before the AMQP header."""
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
        """Take bytes, as many as fit now, and return their number; -1 when input has ended."""
        room = self._transport.capacity()
        if room < 0:
            return -1
        taken = min(room, len(data))
        if taken:
            self._transport.push(bytes(data[:taken]))
        return taken

    def output(self) -> bytes | None:
        """Return the bytes to send now; None at the end of the output."""
        pending = self._transport.pending()
        if pending < 0:
            return None
        if not pending:
            return b""
        data = self._transport.peek(pending) or b""
        self._transport.pop(len(data))
        return bytes(data)

    def tick(self, now: float) -> float:
        """Process time-outs; returns when to call again, 0 for never."""
        return float(self._transport.tick(now) or 0.0)

    @property
    def ended(self) -> bool:
        """Tell whether input has ended: by the peer's close, by a fault, or because the peer was silent for too long."""
        return bool(self._transport.capacity() < 0)

    @property
    def idle_seconds(self) -> float:
        """The peer's idle time-out in seconds; 0 for none."""
        return float(self._transport.remote_idle_timeout)

    def events(self) -> "Iterator[tuple[EngineEvent, ProtonLink | None]]":
        """Yield the events, with the link of each."""
        collector = self._collector._impl  # noqa: SLF001  (proton's own methods on it are slow)
        while (event := lib.pn_collector_peek(collector)) != ffi.NULL:
            kind = lib.pn_event_type(event)
            if kind == lib.PN_DELIVERY:
                delivery = lib.pn_event_delivery(event)
                proton_link = self._proton_links.get(lib.pn_delivery_link(delivery))
                if isinstance(proton_link, Outgoing):
                    proton_link.on_delivery(delivery)
                    yield EngineEvent.FLOW, proton_link
                elif proton_link is not None:
                    yield EngineEvent.MESSAGES, proton_link
            elif kind == lib.PN_LINK_FLOW:
                if proton_link := self._proton_links.get(lib.pn_event_link(event)):
                    yield EngineEvent.FLOW, proton_link
            else:
                found = self._collector.peek()
                if found is not None:
                    yield from self._read_rare_events(found)
            lib.pn_collector_pop(collector)

    def _read_rare_events(self, event: Event) -> "Iterator[tuple[EngineEvent, ProtonLink | None]]":
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
                yield from self._end_links(session)
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

    def _end_links(self, session: Session) -> "Iterator[tuple[EngineEvent, ProtonLink | None]]":
        """End the links of a session that has ended."""
        for raw, proton_link in list(self._proton_links.items()):
            if lib.pn_link_session(raw) == session._impl:  # noqa: SLF001
                del self._proton_links[raw]
                yield EngineEvent.ENDED, proton_link
                proton_link.lose()
        session.close()
        session.free()

    @property
    def links(self) -> int:
        """The number of links."""
        return len(self._proton_links)

    @property
    def client(self) -> str:
        """The peer's program: product, version and container of its open; empty before that."""
        told = read_properties(self._connection)
        name = "/".join(str(told[each]) for each in ("product", "version") if each in told)
        container = self._connection.remote_container or ""
        return f"{name} ({container})" if name else container

    def open(self) -> None:
        """Answer the peer's open, once."""
        if not self._connection.state & Endpoint.LOCAL_UNINIT:
            return
        self._connection.container = CONTAINER
        self._connection.offered_capabilities = [symbol(CAPABILITY)]
        self._connection.properties = {symbol("product"): CONTAINER}
        self._connection.open()

    def close(self, fault: Fault | None) -> None:
        """Close the connection, with an error if there is one."""
        if self._connection.state & Endpoint.LOCAL_CLOSED:
            return
        if self._connection.state & Endpoint.LOCAL_UNINIT:
            # Part 2 §2.4.3: a close needs an open before it, and proton sends none before the peer's.
            self.open()
            self._transport.push(_OPEN)
        if fault:
            self._connection.condition = Condition(fault.condition, fault.detail[:DETAIL_CHARS])
        self._connection.close()

    def release(self) -> None:
        """Free proton's objects; links must not be used afterwards."""
        for proton_link in self._proton_links.values():
            proton_link.lose()
        self._proton_links.clear()
        self._transport.unbind()
        lib.pn_connection_collect(self._connection._impl, ffi.NULL)  # noqa: SLF001  (proton's Python method fails here)
        self._connection.free()
