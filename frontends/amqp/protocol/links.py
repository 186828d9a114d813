"""Wraps proton's links: what the peer asks for, and how to accept, refuse and end a link. Must not know asyncio.

Per-message work uses proton's C functions: its Python objects for deliveries cost three times as much. A delivery that
waits for its outcome holds a reference; it is not touched once its link is gone.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from cproton_ffi import ffi, lib
from proton import Condition, Data, DataException, Described, Endpoint, Link, Terminus
from proton import symbol as symbol  # noqa: PLC0414  (re-exported for names of properties)

from frontends.amqp.errors import DECODE, LIMIT, TOO_BIG, TRANSFER_LIMIT, Fault
from frontends.amqp.protocol.filters import Filter
from frontends.amqp.protocol.outcomes import Outcome, OutcomeKind

_SETTLED: Final = 1
_RECEIVED, _ACCEPTED, _REJECTED, _RELEASED, _MODIFIED = range(0x23, 0x28)
_ANY: Final = 2**64
DETAIL_CHARS: Final = 300


class ProtonLink:
    """A link that a peer has requested, and how to accept, refuse and end it."""

    def __init__(self, link: Link) -> None:
        """Take a link that is not answered yet."""
        self._link = link
        self.raw = link._impl  # noqa: SLF001  (see the module)
        self.alive = True
        self.over = False

    @property
    def sends(self) -> bool:
        """Tell whether messages go to the peer."""
        return bool(self._link.is_sender)

    @property
    def name(self) -> str:
        """The name that the peer gave it."""
        return str(self._link.name)

    @property
    def address(self) -> str | None:
        """The node's address in the peer's request."""
        terminus = self._link.remote_source if self.sends else self._link.remote_target
        return terminus.address

    @property
    def session(self) -> object:
        """An identity of its session."""
        return lib.pn_link_session(self.raw)

    @property
    def reply_address(self) -> str | None:
        """The address at which the peer receives."""
        return self._link.remote_target.address

    @property
    def dynamic(self) -> bool:
        """Tell whether the peer asks for a generated address."""
        return bool((self._link.remote_source if self.sends else self._link.remote_target).dynamic)

    @property
    def declares(self) -> bool:
        """Tell whether the peer wants to declare transactions (part 4 §4.1)."""
        return bool(self._link.remote_target.type == Terminus.COORDINATOR)

    @property
    def copies(self) -> bool:
        """Tell whether the peer asks for copies, without consuming."""
        return bool(self._link.remote_source.distribution_mode == Terminus.DIST_MODE_COPY)

    @property
    def properties(self) -> dict[str, Any]:
        """The properties in the peer's request."""
        return read_properties(self._link)

    @property
    def filters(self) -> dict[str, Filter]:
        """The filters of the source."""
        found = {}
        with _reading():
            filters = _mapping(self._link.remote_source.filter)
        for name, said in filters.items():
            if isinstance(said, Described):
                descriptor = said.descriptor
                found[str(name)] = Filter(
                    int(descriptor) if isinstance(descriptor, int) else str(descriptor), _value(said.value)
                )
            else:
                found[str(name)] = Filter(str(name), _value(said))
        return found

    def accept(
        self, properties: Mapping[str, Any], *, address: str | None = None, most_bytes: int = 0, moves: bool = False
    ) -> None:
        """Open the link with the peer's filters, all of which apply; `moves`: messages are consumed."""
        link = self._link
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        for end in (link.source, link.target):
            # Do not confirm any durability: nothing is kept of an ended link.
            end.durability, end.expiry_policy, end.timeout = Terminus.NONDURABLE, Terminus.EXPIRE_WITH_LINK, 0
            end.capabilities.clear()
        if address is not None:
            link.source.address = address
        if self.sends:
            link.source.distribution_mode = Terminus.DIST_MODE_MOVE if moves else Terminus.DIST_MODE_COPY
        link.snd_settle_mode = link.remote_snd_settle_mode
        link.rcv_settle_mode = Link.RCV_FIRST
        if most_bytes:
            link.max_message_size = most_bytes
        link.properties = {symbol(name): value for name, value in properties.items()}
        link.open()

    def refuse(self, fault: Fault) -> None:
        """Answer without a terminus, then end the link (part 2 §2.6.3); nothing if the peer has ended it meanwhile."""
        link = self._link
        if self.alive and link.state & Endpoint.LOCAL_UNINIT:
            if self.sends:
                link.target.copy(link.remote_target)
                link.source.type = Terminus.UNSPECIFIED
            else:
                link.source.copy(link.remote_source)
                link.target.type = Terminus.UNSPECIFIED
            link.open()
        self.end(fault)

    def end(self, fault: Fault | None = None) -> None:
        """Close the link, with an error if there is one."""
        if self.alive and not self._link.state & Endpoint.LOCAL_CLOSED:
            self.over = True
            if fault:
                self._link.condition = Condition(fault.condition, fault.detail[:DETAIL_CHARS])
            self._link.close()

    def lose(self) -> None:
        """Note that the link is gone."""
        self.alive = False

    def ended(self, *, closed: bool) -> None:
        """Answer the peer's close or detach, and free the link."""
        self.lose()
        if not self._link.state & Endpoint.LOCAL_CLOSED:
            if self._link.state & Endpoint.LOCAL_UNINIT:
                self._link.open()
            if closed:
                self._link.close()
            else:
                self._link.detach()
        self._link.free()


class Incoming(ProtonLink):
    """A link over which the peer sends."""

    rejects = False
    """Whether a message that is too long is rejected, instead of ending the link."""

    _part = b""
    _size = 0

    def messages(self, most: int, held: int) -> Iterator[tuple[Any, bytes, bool]]:
        """Yield complete messages: the delivery to settle, its bytes, and whether the peer has settled it.

        Raises Fault for a message above `most` bytes, or incomplete messages, with `held` of other links, above twice that.
        """
        while self.alive and (delivery := lib.pn_link_current(self.raw)) != ffi.NULL:
            if not lib.pn_delivery_readable(delivery):
                return
            if self.over:
                # It was still in transit when the link was ended.
                self._part, self._size = b"", 0
                self.discard()
                return
            if lib.pn_delivery_aborted(delivery):
                self._part, self._size = b"", 0
                lib.pn_link_advance(self.raw)
                lib.pn_delivery_settle(delivery)
                continue
            self._gather(delivery, most, held)
            if lib.pn_delivery_partial(delivery):
                return
            whole, size, self._part, self._size = self._part, self._size, b"", 0
            lib.pn_link_advance(self.raw)
            lib.pn_incref(delivery)
            if size > most:
                self.settle(delivery, Fault(TOO_BIG, f"a message has at most {most} bytes"))
            else:
                yield delivery, whole, bool(lib.pn_delivery_settled(delivery))

    def _gather(self, delivery: Any, most: int, held: int) -> None:  # noqa: ANN401  (a pointer)
        """Append a part of a message; keeps nothing of one that is too long."""
        if lib.pn_link_credit(self.raw) <= 0:
            raise Fault(TRANSFER_LIMIT, "the link has no credit for so many messages")
        pending = lib.pn_delivery_pending(delivery)
        self._size += pending
        if self._size > most and not self.rejects:
            raise Fault(TOO_BIG, f"a message has at most {most} bytes")
        data = bytearray(pending)
        if pending:
            lib.pn_link_recv(self.raw, ffi.from_buffer(data), pending)
        self._part = b"" if self._size > most else self._part + data
        if lib.pn_delivery_partial(delivery) and len(self._part) + held > 2 * most:
            raise Fault(LIMIT, "too many messages are incomplete")

    def discard(self) -> None:
        """Release what has arrived, without an effect."""
        while self.alive and (delivery := lib.pn_link_current(self.raw)) != ffi.NULL:
            partial = lib.pn_delivery_partial(delivery)
            if pending := lib.pn_delivery_pending(delivery):
                lib.pn_link_recv(self.raw, ffi.from_buffer(bytearray(pending)), pending)
            if partial and not lib.pn_delivery_aborted(delivery):
                return
            lib.pn_link_advance(self.raw)
            lib.pn_delivery_update(delivery, _RELEASED)
            lib.pn_delivery_settle(delivery)

    @property
    def begun(self) -> int:
        """The bytes of an incomplete message."""
        return len(self._part)

    def grant(self, window: int) -> None:
        """Grant credit up to a window."""
        credit = lib.pn_link_credit(self.raw) if self.alive else 0
        if self.alive and not self.over and credit <= window // 2:
            lib.pn_link_flow(self.raw, window - credit)

    def settle(self, delivery: Any, fault: Fault | None) -> None:  # noqa: ANN401  (a pointer)
        """Settle a message: accepted, or rejected with the error."""
        if self.alive:
            lib.pn_delivery_update(delivery, _ACCEPTED if fault is None else _reject(delivery, fault))
            lib.pn_delivery_settle(delivery)
        lib.pn_decref(delivery)


class Outgoing(ProtonLink):
    """A link over which the peer receives. `on_outcome`, if set, is called once with the number and outcome of each message."""

    on_outcome: Callable[[int, Outcome, bool], None] | None = None
    _count = 0

    def __init__(self, link: Link) -> None:
        """Take a link that is not answered yet."""
        super().__init__(link)
        self._unanswered: dict[int, Any] = {}

    def lose(self) -> None:
        """Note that the link is gone, and let go of its consumer, which refers to it."""
        super().lose()
        self.on_outcome = None

    def open_for(self) -> int:
        """Return the peer's credit."""
        return int(lib.pn_link_credit(self.raw)) if self.alive and not self.over else 0

    @property
    def draining(self) -> bool:
        """Tell whether the peer wants its credit used or returned."""
        return self.alive and bool(lib.pn_link_get_drain(self.raw))

    @property
    def unsent(self) -> int:
        """The bytes that wait for the peer to read."""
        return int(lib.pn_session_outgoing_bytes(lib.pn_link_session(self.raw))) if self.alive else 0

    @property
    def unsettled(self) -> int:
        """The number of messages without an outcome."""
        return int(lib.pn_link_unsettled(self.raw)) if self.alive else 0

    def prepare(self) -> None:
        """Read the settle mode: messages are sent settled, or the peer settles them, which changes nothing in a log (E1)."""
        self.most_bytes = int(lib.pn_link_remote_max_message_size(self.raw)) or _ANY
        self.settles = lib.pn_link_remote_snd_settle_mode(self.raw) == _SETTLED

    def send(self, message: bytes) -> int:
        """Send a message within the credit; returns its number."""
        self._count += 1
        tag = b"%x" % self._count
        delivery = lib.pn_delivery(self.raw, (len(tag), ffi.from_buffer(tag)))
        lib.pn_link_send(self.raw, ffi.from_buffer(message), len(message))
        lib.pn_link_advance(self.raw)
        if self.settles:
            lib.pn_delivery_settle(delivery)
        return self._count

    def on_delivery(self, delivery: Any) -> None:  # noqa: ANN401  (a pointer)
        """Process the peer's outcome, and settle it: at once if the peer has settled, or if nobody waits for outcomes."""
        state, settled = lib.pn_delivery_remote_state(delivery), bool(lib.pn_delivery_settled(delivery))
        if not lib.pn_delivery_updated(delivery) or not (settled or state):
            return
        if self.on_outcome is None:
            lib.pn_delivery_settle(delivery)
        elif settled or state != _RECEIVED:
            tag = lib.pn_delivery_tag(delivery)
            number = int(ffi.buffer(tag.start, tag.size)[:], 16)
            known, outcome = number in self._unanswered, _outcome(delivery)
            if not (known or settled):
                lib.pn_incref(delivery)
                self._unanswered[number] = delivery
            if known and settled:
                self.answer(number, None)
            elif settled:
                lib.pn_delivery_settle(delivery)
            if not known:
                self.on_outcome(number, outcome, settled)

    def answer(self, number: int, fault: Fault | None) -> None:
        """Settle a message whose outcome the peer sent unsettled."""
        delivery = self._unanswered.pop(number, None)
        if delivery is None:
            return
        if self.alive:
            state = lib.pn_delivery_remote_state(delivery) if fault is None else _reject(delivery, fault)
            lib.pn_delivery_update(delivery, state)
            lib.pn_delivery_settle(delivery)
        lib.pn_decref(delivery)

    def forget(self) -> None:
        """Drop the open outcomes."""
        for delivery in self._unanswered.values():
            lib.pn_decref(delivery)
        self._unanswered.clear()

    def drained(self) -> None:
        """Return the unused credit."""
        if self.alive:
            lib.pn_link_drained(self.raw)


def _reject(delivery: Any, fault: Fault) -> int:  # noqa: ANN401  (a pointer)
    """Set the error of a rejection; returns the state."""
    condition = lib.pn_disposition_condition(lib.pn_delivery_local(delivery))
    lib.pn_condition_set_name(condition, fault.condition.encode())
    lib.pn_condition_set_description(condition, fault.detail[:DETAIL_CHARS].encode())
    return _REJECTED


def _outcome(delivery: Any) -> Outcome:  # noqa: ANN401  (a pointer)
    """Read the peer's outcome; a delivery settled without a state counts as released."""
    said, state = lib.pn_delivery_remote(delivery), lib.pn_delivery_remote_state(delivery)
    if state == _ACCEPTED:
        return Outcome(OutcomeKind.ACCEPTED)
    if state == _REJECTED:
        condition = lib.pn_disposition_condition(said)
        texts = lib.pn_condition_get_description(condition), lib.pn_condition_get_name(condition)
        return Outcome(
            OutcomeKind.REJECTED, next((ffi.string(each).decode(errors="replace") for each in texts if each), "")
        )
    if state == _MODIFIED:
        failed, elsewhere = lib.pn_disposition_is_failed(said), lib.pn_disposition_is_undeliverable(said)
        return Outcome(OutcomeKind.MODIFIED, failed=bool(failed), elsewhere=bool(elsewhere))
    return Outcome(OutcomeKind.RELEASED)


@contextmanager
def _reading() -> Iterator[None]:
    """Refuse what proton cannot make values of Python of: symbols that are not ASCII, or a list as a key."""
    try:
        yield
    except (DataException, OverflowError, TypeError, ValueError) as wrong:
        raise Fault(DECODE, "the properties or filters of the link cannot be read") from wrong


def read_properties(endpoint: Any) -> dict[str, Any]:  # noqa: ANN401  (proton's)
    """Return a peer's properties of a link or a connection by their names; raises Fault if they cannot be read."""
    with _reading():
        # Proton decodes them here.
        return {str(name): value for name, value in _mapping(endpoint.remote_properties).items()}


def _mapping(said: Any) -> Mapping[Any, Any]:  # noqa: ANN401  (of any AMQP type)
    if isinstance(said, Data):
        said.rewind()
        said = said.get_object() if said.next() else None
    return said if isinstance(said, dict) else {}


def _value(said: Any) -> Any:  # noqa: ANN401
    """Strip proton's types from a value."""
    if isinstance(said, dict):
        return {str(name): _value(each) for name, each in said.items()}
    if isinstance(said, bool) or not isinstance(said, int | str):
        return said
    return int(said) if isinstance(said, int) else str(said)
