"""proton without its I/O: bytes in, events and bytes out, and what can be done with a link. Must not know asyncio or the core.

What happens for every message goes through proton's C functions themselves: its Python objects for deliveries cost three times
as much. A delivery that waits for its outcome is held by a reference; nothing is done with it once its link is gone.
"""

from collections.abc import Iterator, Mapping
from enum import Enum, auto
from typing import Any, Final

from cproton_ffi import ffi, lib
from proton import (
    Collector,
    Condition,
    Connection,
    Data,
    Described,
    Endpoint,
    Event,
    Link,
    Session,
    Terminus,
    Transport,
)
from proton import symbol as symbol  # noqa: PLC0414  (what properties are named with)

from frontends.amqp.errors import LIMIT, TOO_BIG, Fault
from frontends.amqp.filters import Filter
from frontends.amqp.words import CAPABILITY

CONTAINER: Final = "stanzaq"
FRAME_BYTES: Final = 32_768
CHANNELS: Final = 64
IDLE_SECONDS: Final = 60.0
"""A peer that says nothing for so long is gone."""

SESSION_BYTES: Final = 2_000 * FRAME_BYTES
"""What a peer may have under way on a session: so many frames, however short. Nothing of it stays in proton, for links are emptied
as soon as something has arrived, and with too much that waits for Redis no more is read."""

_SETTLED: Final = 1
_ACCEPTED, _REJECTED = 0x24, 0x25
_DETAIL_CHARS: Final = 300


class Happening(Enum):
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
        self._bonds: dict[Any, Bond] = {}

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

    def events(self) -> "Iterator[tuple[Happening, Bond | None]]":
        """Give what has happened, and to which link."""
        collector = self._collector._impl  # noqa: SLF001  (proton's own methods on it are the slow ones)
        while (event := lib.pn_collector_peek(collector)) != ffi.NULL:
            kind = lib.pn_event_type(event)
            if kind == lib.PN_DELIVERY:
                delivery = lib.pn_event_delivery(event)
                bond = self._bonds.get(lib.pn_delivery_link(delivery))
                if isinstance(bond, Outgoing):
                    _settled_there(delivery)
                    yield Happening.FLOW, bond
                elif bond is not None:
                    yield Happening.MESSAGES, bond
            elif kind == lib.PN_LINK_FLOW:
                if bond := self._bonds.get(lib.pn_event_link(event)):
                    yield Happening.FLOW, bond
            else:
                found = self._collector.peek()
                if found is not None:
                    yield from self._rare(found)
            lib.pn_collector_pop(collector)

    def _rare(self, event: Event) -> "Iterator[tuple[Happening, Bond | None]]":
        link: Any = event.link
        session: Any = event.session
        bond: Bond | None
        match event.type:
            case Event.CONNECTION_REMOTE_OPEN:
                yield Happening.OPENED, None
            case Event.CONNECTION_REMOTE_CLOSE:
                yield Happening.CLOSED, None
            case Event.SESSION_REMOTE_OPEN:
                if session.state & Endpoint.LOCAL_UNINIT:
                    session.incoming_capacity = SESSION_BYTES
                    session.open()
            case Event.SESSION_REMOTE_CLOSE:
                yield from self._left(session)
            case Event.LINK_REMOTE_OPEN:
                if link.state & Endpoint.LOCAL_UNINIT:
                    bond = (Outgoing if link.is_sender else Incoming)(link)
                    self._bonds[bond.raw] = bond
                    yield Happening.ATTACHED, bond
            case Event.LINK_REMOTE_CLOSE | Event.LINK_REMOTE_DETACH:
                bond = self._bonds.pop(link._impl, None)  # noqa: SLF001
                if bond is not None:
                    yield Happening.ENDED, bond
                    bond.ended(closed=event.type is Event.LINK_REMOTE_CLOSE)

    def _left(self, session: Session) -> "Iterator[tuple[Happening, Bond | None]]":
        """End the links of a session with it."""
        for raw, bond in list(self._bonds.items()):
            if lib.pn_link_session(raw) == session._impl:  # noqa: SLF001
                del self._bonds[raw]
                yield Happening.ENDED, bond
                bond.alive = False
        session.close()
        session.free()

    @property
    def links(self) -> int:
        """How many there are."""
        return len(self._bonds)

    def open(self) -> None:
        """Answer the peer's open."""
        self._connection.container = CONTAINER
        self._connection.offered_capabilities = [symbol(CAPABILITY)]
        self._connection.properties = {symbol("product"): CONTAINER}
        self._connection.open()

    def close(self, fault: Fault | None) -> None:
        """End the connection, and say why."""
        if self._connection.state & Endpoint.LOCAL_CLOSED:
            return
        if fault:
            self._connection.condition = Condition(fault.condition, fault.detail[:_DETAIL_CHARS])
        self._connection.close()

    def release(self) -> None:
        """Let go of all that proton has of it: nothing is done with a link from here on."""
        for bond in self._bonds.values():
            bond.alive = False
        self._bonds.clear()
        self._transport.unbind()
        lib.pn_connection_collect(self._connection._impl, ffi.NULL)  # noqa: SLF001  (proton's own way to do it fails)
        self._connection.free()


def _settled_there(delivery: Any) -> None:  # noqa: ANN401  (a pointer)
    """Forget a delivery of ours once its outcome is known."""
    if lib.pn_delivery_updated(delivery) and (
        lib.pn_delivery_settled(delivery) or lib.pn_delivery_remote_state(delivery)
    ):
        lib.pn_delivery_settle(delivery)


class Bond:
    """A link that a peer has asked for: what it asks, and how it is accepted, refused and ended."""

    def __init__(self, link: Link) -> None:
        """Take a link that is not answered yet."""
        self._link = link
        self.raw = link._impl  # noqa: SLF001  (see the module)
        self.alive = True
        self.over = False

    @property
    def sends(self) -> bool:
        """Tell whether messages go out over it."""
        return bool(self._link.is_sender)

    @property
    def name(self) -> str:
        """The name that the peer has given it."""
        return str(self._link.name)

    @property
    def address(self) -> str | None:
        """The node's address, as the peer has it."""
        terminus = self._link.remote_source if self.sends else self._link.remote_target
        return terminus.address

    @property
    def reply_address(self) -> str | None:
        """Where the peer says that it receives."""
        return self._link.remote_target.address

    @property
    def dynamic(self) -> bool:
        """Tell whether the peer asks for an address of its own."""
        return bool((self._link.remote_source if self.sends else self._link.remote_target).dynamic)

    @property
    def copies(self) -> bool:
        """Tell whether the peer asks for copies, and so to consume nothing."""
        return bool(self._link.remote_source.distribution_mode == Terminus.DIST_MODE_COPY)

    @property
    def properties(self) -> dict[str, Any]:
        """What the peer says of it."""
        return {str(name): value for name, value in _mapping(self._link.remote_properties).items()}

    @property
    def filters(self) -> dict[str, Filter]:
        """The filters of the source."""
        found = {}
        for name, said in _mapping(self._link.remote_source.filter).items():
            if isinstance(said, Described):
                descriptor = said.descriptor
                found[str(name)] = Filter(
                    int(descriptor) if isinstance(descriptor, int) else str(descriptor), _value(said.value)
                )
            else:
                found[str(name)] = Filter(str(name), _value(said))
        return found

    def accept(self, properties: Mapping[str, Any], *, address: str | None = None, most_bytes: int = 0) -> None:
        """Open it on this side: with the filters that it came with, which all apply."""
        link = self._link
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        if address is not None:
            link.source.address = address
        link.snd_settle_mode = link.remote_snd_settle_mode
        link.rcv_settle_mode = Link.RCV_FIRST
        if most_bytes:
            link.max_message_size = most_bytes
        link.properties = {symbol(name): value for name, value in properties.items()}
        link.open()

    def refuse(self, fault: Fault) -> None:
        """Answer with no node, and end it (part 2 §2.6.3)."""
        link = self._link
        if link.state & Endpoint.LOCAL_UNINIT:
            if self.sends:
                link.target.copy(link.remote_target)
                link.source.type = Terminus.UNSPECIFIED
            else:
                link.source.copy(link.remote_source)
                link.target.type = Terminus.UNSPECIFIED
            link.open()
        self.end(fault)

    def end(self, fault: Fault | None = None) -> None:
        """Close it from this side."""
        if self.alive and not self._link.state & Endpoint.LOCAL_CLOSED:
            self.over = True
            if fault:
                self._link.condition = Condition(fault.condition, fault.detail[:_DETAIL_CHARS])
            self._link.close()

    def ended(self, *, closed: bool) -> None:
        """Answer the peer, who has closed it, or detached it, and forget it."""
        self.alive = False
        if not self._link.state & Endpoint.LOCAL_CLOSED:
            if self._link.state & Endpoint.LOCAL_UNINIT:
                self._link.open()
            if closed:
                self._link.close()
            else:
                self._link.detach()
        self._link.free()


class Incoming(Bond):
    """A link over which a peer sends."""

    _part = b""

    def messages(self, most: int, held: int) -> Iterator[tuple[Any, bytes, bool]]:
        """Give what has arrived whole: a delivery to be settled, its bytes, and whether the peer has settled it already.

        Raises Fault for one of more than `most` bytes, and for parts that with `held` elsewhere are more than two such messages.
        """
        while self.alive and (delivery := lib.pn_link_current(self.raw)) != ffi.NULL:
            if not lib.pn_delivery_readable(delivery):
                return
            if self.over:
                # Still on its way when the link was ended.
                self._part = b""
                self.discard()
                return
            if lib.pn_delivery_aborted(delivery):
                self._part = b""
                lib.pn_link_advance(self.raw)
                lib.pn_delivery_settle(delivery)
                continue
            pending = lib.pn_delivery_pending(delivery)
            if len(self._part) + pending > most:
                raise Fault(TOO_BIG, f"a message has at most {most} bytes")
            data = bytearray(pending)
            if pending:
                lib.pn_link_recv(self.raw, ffi.from_buffer(data), pending)
            if lib.pn_delivery_partial(delivery):
                self._part += bytes(data)
                if len(self._part) + held > 2 * most:
                    raise Fault(LIMIT, "too many messages are begun and not ended")
                return
            whole, self._part = self._part + data, b""
            lib.pn_link_advance(self.raw)
            lib.pn_incref(delivery)
            yield delivery, bytes(whole), bool(lib.pn_delivery_settled(delivery))

    def discard(self) -> None:
        """Drop what has arrived."""
        while self.alive and (delivery := lib.pn_link_current(self.raw)) != ffi.NULL:
            partial = lib.pn_delivery_partial(delivery)
            if pending := lib.pn_delivery_pending(delivery):
                lib.pn_link_recv(self.raw, ffi.from_buffer(bytearray(pending)), pending)
            if partial and not lib.pn_delivery_aborted(delivery):
                return
            lib.pn_link_advance(self.raw)
            lib.pn_delivery_settle(delivery)

    @property
    def begun(self) -> int:
        """Bytes of a message that is not all there."""
        return len(self._part)

    def grant(self, window: int) -> None:
        """Let the peer send, up to so many messages at once."""
        credit = lib.pn_link_credit(self.raw) if self.alive else 0
        if self.alive and not self.over and credit <= window // 2:
            lib.pn_link_flow(self.raw, window - credit)

    def settle(self, delivery: Any, fault: Fault | None) -> None:  # noqa: ANN401  (a pointer)
        """Say how it went with a message: accepted, or rejected and why."""
        if self.alive:
            if fault is not None:
                condition = lib.pn_disposition_condition(lib.pn_delivery_local(delivery))
                lib.pn_condition_set_name(condition, fault.condition.encode())
                lib.pn_condition_set_description(condition, fault.detail[:_DETAIL_CHARS].encode())
            lib.pn_delivery_update(delivery, _ACCEPTED if fault is None else _REJECTED)
            lib.pn_delivery_settle(delivery)
        lib.pn_decref(delivery)


class Outgoing(Bond):
    """A link over which a peer receives."""

    _count = 0

    def open_for(self) -> int:
        """Give how many messages the peer takes now."""
        return int(lib.pn_link_credit(self.raw)) if self.alive and not self.over else 0

    @property
    def draining(self) -> bool:
        """Tell whether the peer wants its credit used or given back."""
        return self.alive and bool(lib.pn_link_get_drain(self.raw))

    @property
    def unsent(self) -> int:
        """Bytes that wait until the peer takes them."""
        return int(lib.pn_session_outgoing_bytes(lib.pn_link_session(self.raw))) if self.alive else 0

    @property
    def unsettled(self) -> int:
        """Messages of which the peer has not said what became of them."""
        return int(lib.pn_link_unsettled(self.raw)) if self.alive else 0

    def prepare(self) -> None:
        """Settle what is sent at once if the peer asks for that; else it says when, though nothing hangs on it (E1)."""
        self._settles = lib.pn_link_remote_snd_settle_mode(self.raw) == _SETTLED

    def send(self, message: bytes) -> None:
        """Send a message, for which there is credit."""
        self._count += 1
        tag = b"%x" % self._count
        delivery = lib.pn_delivery(self.raw, (len(tag), ffi.from_buffer(tag)))
        lib.pn_link_send(self.raw, ffi.from_buffer(message), len(message))
        lib.pn_link_advance(self.raw)
        if self._settles:
            lib.pn_delivery_settle(delivery)

    def drained(self) -> None:
        """Give back the credit for which there is nothing."""
        if self.alive:
            lib.pn_link_drained(self.raw)


def _mapping(said: Any) -> Mapping[Any, Any]:  # noqa: ANN401  (of any type that AMQP has)
    if isinstance(said, Data):
        said.rewind()
        said = said.get_object() if said.next() else None
    return said if isinstance(said, dict) else {}


def _value(said: Any) -> Any:  # noqa: ANN401
    """Give a value of the wire as what it is beneath its type."""
    if isinstance(said, dict):
        return {str(name): _value(each) for name, each in said.items()}
    if isinstance(said, bool) or not isinstance(said, int | str):
        return said
    return int(said) if isinstance(said, int) else str(said)
