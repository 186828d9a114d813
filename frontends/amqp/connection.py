"""One AMQP connection: bytes between a socket and proton, SASL, and the connection's links. Must not know what a link is for.

Everything that a peer can make it keep is bounded: message bytes that wait for Redis (above the bound it stops reading),
bytes that the peer does not read (its links stop delivering), links, sessions, and the bytes and the time to authenticate.
"""

import asyncio
import math
import time
from typing import TYPE_CHECKING, Final, cast

import structlog

from broker.model.names import Jid
from broker.model.problems import MalformedRequest
from broker.tasks import serve
from frontends.amqp import refusal_log
from frontends.amqp.auth.identity import Stranger, never, read_certificate
from frontends.amqp.errors import FORCED, INTERNAL, INVALID_FIELD, LIMIT, NOT_IMPLEMENTED, UNAUTHORIZED, Fault, fault
from frontends.amqp.event_hubs.profile import Profile
from frontends.amqp.links.attach import LinkAttacher, Part
from frontends.amqp.links.context import LinkContext
from frontends.amqp.links.log_consumer import LogConsumer
from frontends.amqp.links.producer import Producer
from frontends.amqp.links.queue_consumer import QueueConsumer
from frontends.amqp.links.request_response import RequestReceiver
from frontends.amqp.protocol import sasl
from frontends.amqp.protocol.engine import CHANNELS, FRAME_BYTES, Engine, EngineEvent
from frontends.amqp.protocol.grammar import Frames
from frontends.amqp.protocol.links import Incoming, ProtonLink
from frontends.amqp.protocol.order import Order
from frontends.amqp.protocol.types import Malformed
from frontends.amqp.server_state import ServerState

if TYPE_CHECKING:
    from collections.abc import Coroutine

_LINKS_MOST: Final = 256
_HELD_BYTES: Final = 4_194_304
_WRITE_BYTES: Final = 1_048_576
_GREETING_SECONDS: Final = 10.0
_CLOSING_SECONDS: Final = 2.0
"""How long a connection that ends waits for a peer that does not read or does not close."""

_LONGEST_TICK_SECONDS: Final = 5.0
_EXPIRE_SECONDS: Final = 1.0
"""The longest time that a token still works after its expiry."""

_IDLE_LEAST_SECONDS: Final = 0.5
"""The shortest idle time-out that is accepted: any pause of this process would break a shorter one.

Clients that give up after one second send half of that (§2.4.5).
"""

_SHORTEST_TICK_SECONDS: Final = 0.05

_log = structlog.get_logger("stanzaq.amqp")


class AmqpConnection(asyncio.Protocol):
    """One peer's connection."""

    def __init__(self, shared: ServerState) -> None:
        """Wait for the transport."""
        self._shared = shared
        self._transport: asyncio.Transport
        self._loop = asyncio.get_running_loop()
        self._engine: Engine | None = None
        self._attaching: LinkAttacher | None = None
        self._profile: Profile | None = None
        self._parts: dict[ProtonLink, Part] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._buffer = b""
        self._greeted = b""
        self._address = ""
        self._certified: Jid | None = None
        self._jid: Jid | None = None
        self._ends = never
        self._authenticating = False
        self._authenticated = False
        self._held = 0
        self._full = False
        self._flushing = False
        self._closed = False
        self._leaving = False
        self._frames = Frames(FRAME_BYTES)
        self._order = Order(CHANNELS)
        self._deadline: asyncio.TimerHandle | None = None
        self._ticking: asyncio.TimerHandle | None = None
        self._ending: asyncio.TimerHandle | None = None

    # Callbacks from asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept a peer unless the frontend is full."""
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self._address = peer[0] if isinstance(peer, tuple) else ""
        if not self._shared.enter(self, self._address):
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(_WRITE_BYTES)
        tls = transport.get_extra_info("ssl_object")
        self._certified = read_certificate(tls.getpeercert()) if tls else None
        self._deadline = self._loop.call_later(_GREETING_SECONDS, self._transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  (asyncio's signature)
        """Stop all links and release proton's memory."""
        self._shared.leave(self)
        for timer in (self._deadline, self._ticking, self._ending):
            if timer is not None:
                timer.cancel()
        for task in self._tasks:
            task.cancel()
        for part in self._parts.values():
            if isinstance(part, LogConsumer):
                part.stop(lost=not self._closed)
            else:
                part.stop()
        self._parts.clear()
        if self._attaching:
            self._attaching.replies.stop()
        # Both refer to this connection.
        self._attaching = self._profile = None
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.release()

    def data_received(self, data: bytes) -> None:
        """Receive bytes."""
        if self._engine is not None:
            self._on_data(data)
            return
        self._buffer += data
        try:
            self._read_greeting()
        except Malformed:
            self._transport.abort()
        if self._authenticating and len(self._buffer) > sasl.FRAME_MOST:
            # A client may send ahead while its password is checked, but not without end.
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        """Stop writing: the peer does not read. Output stays in proton, where links see its size."""
        self._full = True

    def resume_writing(self) -> None:
        """Write again."""
        self._full = False
        self.flush()

    # Authentication, before AMQP.

    def _read_greeting(self) -> None:
        while not self._authenticating and self._engine is None and not self._transport.is_closing():
            if self._greeted == sasl.SASL_HEADER and not self._authenticated:
                size = sasl.frame_length(self._buffer)
                if not size:
                    return
                frame, self._buffer = self._buffer[:size], self._buffer[size:]
                self._authenticating = True
                self._run(self._authenticate(sasl.init(frame)))
            elif len(self._buffer) < len(sasl.AMQP_HEADER):
                return
            else:
                header, self._buffer = self._buffer[:8], self._buffer[8:]
                self._read_header(header)

    def _read_header(self, header: bytes) -> None:
        identity = self._shared.identity
        if header == sasl.SASL_HEADER and not self._greeted:
            self._greeted = header
            self._transport.write(header + sasl.mechanisms(identity.mechanisms(self._certified)))
        elif header == sasl.AMQP_HEADER and (self._authenticated or identity.anonymous):
            self._jid = self._jid or identity.anonymous
            if not (self._jid is None or self.claim(self._jid)):
                self._transport.abort()
                return
            data, self._buffer = self._buffer, b""
            self._begin(header, data)
        else:
            # Part 2 §2.2: answer with the expected header and close.
            self._transport.write(sasl.AMQP_HEADER if self._authenticated else sasl.SASL_HEADER)
            self._close()

    async def _authenticate(self, init: sasl.Init) -> None:
        try:
            self._jid, self._ends = await self._shared.identity.of(init, self._certified, self._address)
            if self._jid and not self.claim(self._jid):
                raise Stranger(sasl.LATER)  # noqa: TRY301  (one way to refuse)
        except Stranger as refusal:
            self._transport.write(sasl.outcome(refusal.outcome))
            self._close()
            return
        self._authenticating, self._authenticated = False, True
        self._transport.resume_reading()
        self._transport.write(sasl.outcome(sasl.OK))
        try:
            self._read_greeting()
        except Malformed:
            self._transport.abort()

    # AMQP.

    def _begin(self, header: bytes, data: bytes) -> None:
        self._engine = Engine()
        context = LinkContext(self._shared.core, self._shared.tails, self, self._jid or Jid(""))
        if self._jid:
            self._attaching = LinkAttacher(context)
        else:
            self._profile = Profile(context, self._shared.identity)
            self._attaching = self._profile.attaching
        self._tick()
        self._receive(header)
        self._on_data(data)

    @property
    def message_format(self) -> int:
        """The format of the incoming message."""
        return self._order.format

    def claim(self, jid: Jid) -> bool:
        """Note whose connection it is; returns whether that account has room for it."""
        return not self._shared.connection_limits.claim(self, jid)

    def refuse_token(self, why: str) -> None:
        """Note a token that was refused."""
        self._shared.identity.failed.tell("", self._address, why)

    def make_room(self) -> None:
        """Close: nobody has logged in here, and others need the room."""
        self._transport.abort()

    def authenticated(self) -> None:
        """End the limit on the time to authenticate."""
        if self._deadline is not None:
            self._deadline.cancel()

    def _on_data(self, data: bytes) -> None:
        if self._leaving:
            return
        sound: list[bytes] = []
        try:
            for frame in self._frames.complete_frames(data):
                if not self._order.check(frame):
                    continue
                if self._profile:
                    # One frame at a time: each event belongs to the message in that frame.
                    self._receive(frame)
                else:
                    sound.append(frame)
        except Fault as refusal:
            # Not kept beyond this block: it refers to this frame, and so to the bytes read.
            self._receive(b"".join(sound))
            self._leave(refusal)
        else:
            self._receive(b"".join(sound))
        self.flush()

    def _receive(self, data: bytes) -> None:
        rest, stuck = memoryview(data), False
        while rest and self._engine is not None and not self._leaving:
            taken = self._engine.receive(rest)
            if taken < 0 or (stuck and not taken):
                self._leave(None)
                return
            rest, stuck = rest[taken:], not taken
            self._handle_events()

    def _leave(self, why: Fault | None) -> None:
        """Close the connection after a fault of the peer: ignore further input, and leave the peer time to read the reason."""
        if self._engine is None or self._leaving:
            return
        self._engine.close(why)
        self._flush()
        self._leaving = True
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._abort_later()

    def _close(self) -> None:
        """Close the transport once the peer has read the output."""
        self._transport.close()
        self._abort_later()

    def _abort_later(self) -> None:
        """End the connection after a while, whatever the peer has read by then."""
        if self._ending is None:
            self._ending = self._loop.call_later(_CLOSING_SECONDS, self._transport.abort)

    def _handle_events(self) -> None:
        if self._engine is None:
            return
        for what, link in self._engine.events():
            try:
                self._handle_event(what, link)
            except Exception:  # noqa: BLE001  (logged, and reported to the peer)
                _log.exception("an AMQP event failed", command=what.name)
                self._engine.close(Fault(INTERNAL))

    def _handle_event(self, what: EngineEvent, link: ProtonLink | None) -> None:
        assert self._engine, "what happens happens before its end"
        match what:
            case EngineEvent.OPENED:
                self._on_open(self._engine)
            case EngineEvent.CLOSED:
                self._closed = True
                self._engine.close(None)
                self._abort_later()
            case EngineEvent.ATTACHED if link is not None:
                if self._engine.links > _LINKS_MOST:
                    link.refuse(Fault(LIMIT, f"a connection has at most {_LINKS_MOST} links"))
                else:
                    self._run(self._attach(link))
            case EngineEvent.ENDED if link is not None:
                part = self._parts.pop(link, None)
                if part is not None and self._attaching:
                    part.stop()
                    self._attaching.left(part)
            case _ if link is not None and (part := self._parts.get(link)):
                part.wake()
            case EngineEvent.MESSAGES if isinstance(link, Incoming):
                # The link has no producer that granted credit.
                link.discard()

    @property
    def client(self) -> str:
        """The peer's program, as its open names it."""
        assert self._engine, "links are attached after the open"
        return self._engine.client

    def _on_open(self, engine: Engine) -> None:
        engine.open()
        if 0 < engine.idle_seconds < _IDLE_LEAST_SECONDS:
            # Part 2 §2.4.5: an idle time-out that cannot be met is refused.
            engine.close(
                Fault(INVALID_FIELD, f"the idle time-out must be at least {_IDLE_LEAST_SECONDS * 1000:.0f} ms")
            )
        if self._jid:
            self.authenticated()
        # The open says how often the peer expects a frame.
        self._tick()

    async def _attach(self, link: ProtonLink) -> None:
        assert self._attaching, "links are attached after the open"
        if not link.alive:
            # The peer has detached it in the same turn: nobody would be told to forget it.
            return
        try:
            if link.declares:
                raise Fault(NOT_IMPLEMENTED, "transactions are not supported")  # noqa: TRY301  (one way to refuse)
            part = await self._attaching.attach(link)
            if part is not None:
                self._parts[link] = part
                part.start()
        except Fault as refusal:
            self._refuse(link, refusal)
        except MalformedRequest as refusal:
            self._refuse(link, fault(refusal))
        except Exception:  # noqa: BLE001  (likewise)
            _log.exception("a link could not be attached")
            link.refuse(Fault(INTERNAL))
        self.flush()

    def _refuse(self, link: ProtonLink, refusal: Fault) -> None:
        refusal_log.log(refusal, self._jid, link.address)
        link.refuse(refusal)

    def _run(self, work: "Coroutine[None, None, None]") -> None:
        task = serve(work, self._on_fault)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _on_fault(self, error: Exception) -> None:
        _log.error("a connection failed", exc_info=error)
        self._transport.abort()

    # Output and its bounds.

    def flush(self) -> None:
        """Write pending output at the end of this turn of the event loop."""
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self._engine is None or self._leaving:
            return
        self._handle_events()
        while not self._full:
            data = self._engine.output()
            if data is None:
                self._close()
                return
            if not data:
                break
            self._transport.write(self._profile.rewrite(data) if self._profile else data)
            # A link may have waited for this output.
            self._handle_events()
        for part in list(self._parts.values()):
            if isinstance(part, LogConsumer | QueueConsumer):
                part.on_credit()

    def hold(self, size: int) -> None:
        """Add to the bytes that wait for Redis; above the bound, stop reading from peers."""
        shared = self._shared
        self._held += size
        shared.held += size
        if size > 0:
            if self._held > _HELD_BYTES or shared.full:
                self._transport.pause_reading()
                shared.paused.add(self)
            return
        if not shared.full:
            for each in list(shared.paused):
                each.resume()
        self.flush()

    def resume(self) -> None:
        """Read again, unless this peer's own messages are above the bound."""
        if self._held <= _HELD_BYTES:
            self._shared.paused.discard(self)
            self._transport.resume_reading()

    @property
    def begun(self) -> int:
        """The bytes of incomplete messages."""
        return sum(part.link.begun for part in self._parts.values() if isinstance(part, Producer | RequestReceiver))

    def _tick(self) -> None:
        if self._engine is None:
            return
        if self._ticking is not None:
            self._ticking.cancel()
        now = self._loop.time()
        due = self._engine.tick(now)
        if self._full and self._engine.ended:
            # The peer was silent for too long: it will not read the close that proton has for it.
            self._close()
        # proton notices only here that something was sent, and then waits half of the idle time-out: tick more often.
        longest = min(_LONGEST_TICK_SECONDS, self._engine.idle_seconds / 4 or _LONGEST_TICK_SECONDS)
        ends = self._ends()
        if self._profile or ends < math.inf:
            longest = min(_EXPIRE_SECONDS, longest)
            if ends <= time.time() or (self._profile and not self._profile.attaching.expire()):
                self._engine.close(Fault(UNAUTHORIZED, "the token has expired"))
        pause = max(_SHORTEST_TICK_SECONDS, due - now) if due else longest
        self._ticking = self._loop.call_later(min(pause, longest), self._tick)
        self.flush()

    # The server's interface.

    @property
    def quiet(self) -> bool:
        """Tell whether no message waits for Redis."""
        return self._held == 0

    def review(self) -> None:
        """Close the connection if its peer's password, or the key of its token, has been changed or removed."""
        if self._ends():
            return
        if self._engine is None:
            self._transport.abort()
        self._leave(Fault(UNAUTHORIZED, "the credentials of this connection are no longer valid"))

    def end(self) -> None:
        """Close the connection because the frontend shuts down."""
        if self._engine is None:
            self._transport.abort()
            return
        self._engine.close(Fault(FORCED, "the frontend is shutting down: connect again"))
        self._flush()
        for part in self._parts.values():
            # While the core still accepts commands.
            if isinstance(part, QueueConsumer):
                part.stop()
        self._close()
