"""One AMQP connection: a socket's bytes to proton and back, SASL before it, and its links. Must not know what a link is for.

What a peer can make it keep is bounded: bytes of messages that wait for Redis (else nothing more is read of it), bytes that it
does not read (else its links deliver no more), links, sessions, and the time until it has said who it is.
"""

import asyncio
from typing import TYPE_CHECKING, Final, cast

import structlog

from broker.model.names import Jid
from broker.model.problems import MalformedRequest
from broker.tasks import serve
from frontends.amqp.auth.identity import Untrusted, certified
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
_LONGEST_TICK_SECONDS: Final = 5.0
_EXPIRE_SECONDS: Final = 1.0
"""Longest time that a token opens anything after its end."""

_IDLE_LEAST_SECONDS: Final = 0.5
"""Shortest idle time-out that is kept: whoever asks for less would be let down by any pause of this process. Clients that give
up after a second say half of that (§2.4.5)."""

_SHORTEST_TICK_SECONDS: Final = 0.05

_log = structlog.get_logger("stanzaq.amqp")


class Connection(asyncio.Protocol):
    """One peer."""

    def __init__(self, shared: ServerState) -> None:
        """Wait for it."""
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
        self._certified: Jid | None = None
        self._jid: Jid | None = None
        self._believing = False
        self._believed = False
        self._held = 0
        self._full = False
        self._flushing = False
        self._closed = False
        self._leaving = False
        self._frames = Frames(FRAME_BYTES)
        self._order = Order(CHANNELS)
        self._deadline: asyncio.TimerHandle | None = None
        self._ticking: asyncio.TimerHandle | None = None

    # What asyncio sees.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Meet a peer, if there is room for one."""
        self._transport = cast("asyncio.Transport", transport)
        if not self._shared.enter(self):
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(_WRITE_BYTES)
        tls = transport.get_extra_info("ssl_object")
        self._certified = certified(tls.getpeercert()) if tls else None
        self._deadline = self._loop.call_later(_GREETING_SECONDS, self._transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  (asyncio's)
        """Let go of all."""
        self._shared.leave(self)
        for timer in (self._deadline, self._ticking):
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
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.release()

    def data_received(self, data: bytes) -> None:
        """Take bytes."""
        if self._engine is not None:
            self._received(data)
            return
        self._buffer += data
        try:
            self._greet()
        except Malformed:
            self._transport.abort()

    def pause_writing(self) -> None:
        """Hear that the peer does not read: what proton has stays there, and links see that it does."""
        self._full = True

    def resume_writing(self) -> None:
        """Hear that it does."""
        self._full = False
        self.flush()

    # Before AMQP: who is it?

    def _greet(self) -> None:
        while not self._believing and self._engine is None and not self._transport.is_closing():
            if self._greeted == sasl.SASL_HEADER and not self._believed:
                size = sasl.framed(self._buffer)
                if not size:
                    return
                frame, self._buffer = self._buffer[:size], self._buffer[size:]
                self._believing = True
                self._run(self._believe(sasl.init(frame)))
            elif len(self._buffer) < len(sasl.AMQP_HEADER):
                return
            else:
                header, self._buffer = self._buffer[:8], self._buffer[8:]
                self._headed(header)

    def _headed(self, header: bytes) -> None:
        identity = self._shared.identity
        if header == sasl.SASL_HEADER and not self._greeted:
            self._greeted = header
            self._transport.write(header + sasl.mechanisms(identity.mechanisms(self._certified)))
        elif header == sasl.AMQP_HEADER and (self._believed or identity.anonymous):
            self._jid = self._jid or identity.anonymous
            data, self._buffer = self._buffer, b""
            self._begin(header, data)
        else:
            # Part 2 §2.2: what is wanted is said, and the connection closed.
            self._transport.write(sasl.AMQP_HEADER if self._believed else sasl.SASL_HEADER)
            self._transport.close()

    async def _believe(self, init: sasl.Init) -> None:
        try:
            self._jid = await self._shared.identity.of(init, self._certified)
        except Untrusted as refusal:
            self._transport.write(sasl.outcome(refusal.outcome))
            self._transport.close()
            return
        self._believing, self._believed = False, True
        self._transport.write(sasl.outcome(sasl.OK))
        try:
            self._greet()
        except Malformed:
            self._transport.abort()

    # AMQP.

    def _begin(self, header: bytes, data: bytes) -> None:
        self._engine = Engine()
        context = LinkContext(self._shared.core, self._shared.tails, self, self._jid or Jid(""))
        if self._jid:
            self._attaching = LinkAttacher(context)
        else:
            self._profile = Profile(context, self._shared.identity.keys)
            self._attaching = self._profile.attaching
        self._tick()
        self._receive(header)
        self._received(data)

    @property
    def message_format(self) -> int:
        """The format of the message that arrives."""
        return self._order.format

    def authenticated(self) -> None:
        """Hear that it is known who the peer is: from here on it may take its time."""
        if self._deadline is not None:
            self._deadline.cancel()

    def _received(self, data: bytes) -> None:
        if self._leaving:
            return
        sound: list[bytes] = []
        refusal = None
        try:
            for frame in self._frames.whole(data):
                self._order.check(frame)
                if self._profile:
                    # One by one: what happens at a frame is of the message that it has a part of.
                    self._receive(frame)
                else:
                    sound.append(frame)
        except Fault as wrong:
            refusal = wrong
        self._receive(b"".join(sound))
        if refusal:
            self._leave(refusal)
        self.flush()

    def _receive(self, data: bytes) -> None:
        rest, stuck = memoryview(data), False
        while rest and self._engine is not None and not self._leaving:
            taken = self._engine.receive(rest)
            if taken < 0 or (stuck and not taken):
                self._leave(None)
                return
            rest, stuck = rest[taken:], not taken
            self._happen()

    def _leave(self, why: Fault | None) -> None:
        """End the connection after a fault of the peer: it is heard no more, and has some time to read why."""
        if self._engine is None or self._leaving:
            return
        self._engine.close(why)
        self._flush()
        self._leaving = True
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._loop.call_later(_CLOSING_SECONDS, self._transport.close)

    def _happen(self) -> None:
        if self._engine is None:
            return
        for what, link in self._engine.events():
            try:
                self._met(what, link)
            except Exception:  # noqa: BLE001  (logged, and told to the peer)
                _log.exception("an AMQP event failed", command=what.name)
                self._engine.close(Fault(INTERNAL))

    def _met(self, what: EngineEvent, link: ProtonLink | None) -> None:
        assert self._engine, "what happens happens before its end"
        match what:
            case EngineEvent.OPENED:
                self._opened(self._engine)
            case EngineEvent.CLOSED:
                self._closed = True
                self._engine.close(None)
                self._loop.call_later(_CLOSING_SECONDS, self._transport.close)
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
                # Nobody has let it send.
                link.discard()

    def _opened(self, engine: Engine) -> None:
        engine.open()
        if 0 < engine.idle_seconds < _IDLE_LEAST_SECONDS:
            # Part 2 §2.4.5: what cannot be kept is refused.
            engine.close(Fault(INVALID_FIELD, f"an idle time-out is {_IDLE_LEAST_SECONDS * 1000:.0f} ms at least"))
        if self._jid:
            self.authenticated()
        # From here on it is known how often the peer has to hear something.
        self._tick()

    async def _attach(self, link: ProtonLink) -> None:
        assert self._attaching, "links are attached after the open"
        refusal = None
        try:
            if link.declares:
                raise Fault(NOT_IMPLEMENTED, "there are no transactions here")  # noqa: TRY301  (one way to refuse)
            part = await self._attaching.attach(link)
            if part is not None:
                self._parts[link] = part
                part.start()
        except Fault as wrong:
            refusal = wrong
        except MalformedRequest as wrong:
            refusal = fault(wrong)
        except Exception:  # noqa: BLE001  (likewise)
            _log.exception("a link could not be attached")
            refusal = Fault(INTERNAL)
        if refusal is not None and link.alive:
            link.refuse(refusal)
        self.flush()

    def _run(self, work: "Coroutine[None, None, None]") -> None:
        task = serve(work, self._failed)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _failed(self, error: Exception) -> None:
        _log.error("a connection failed", exc_info=error)
        self._transport.abort()

    # Writing, and its bounds.

    def flush(self) -> None:
        """Write what there is to be written, at the end of this turn of the loop."""
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self._engine is None or self._leaving:
            return
        self._happen()
        while not self._full:
            data = self._engine.output()
            if data is None:
                self._transport.close()
                return
            if not data:
                break
            self._transport.write(self._profile.written(data) if self._profile else data)
            # What was written may have been what a link waited for.
            self._happen()
        for part in list(self._parts.values()):
            if isinstance(part, LogConsumer | QueueConsumer):
                part.on_credit()

    def hold(self, size: int) -> None:
        """Count bytes of messages that wait for Redis: with too many this peer is read no more for now."""
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
        """Read on, unless there is too much of this peer's own that waits."""
        if self._held <= _HELD_BYTES:
            self._shared.paused.discard(self)
            self._transport.resume_reading()

    @property
    def begun(self) -> int:
        """Bytes of messages that are not all there."""
        return sum(part.link.begun for part in self._parts.values() if isinstance(part, Producer | RequestReceiver))

    def _tick(self) -> None:
        if self._engine is None:
            return
        if self._ticking is not None:
            self._ticking.cancel()
        now = self._loop.time()
        due = self._engine.tick(now)
        # proton notices here that something was said, and waits for half of the peer's time from then on.
        longest = min(_LONGEST_TICK_SECONDS, self._engine.idle_seconds / 4 or _LONGEST_TICK_SECONDS)
        if self._profile:
            longest = min(_EXPIRE_SECONDS, longest)
            if not self._profile.attaching.expire():
                self._engine.close(Fault(UNAUTHORIZED, "the token is over"))
        pause = max(_SHORTEST_TICK_SECONDS, due - now) if due else longest
        self._ticking = self._loop.call_later(min(pause, longest), self._tick)
        self.flush()

    # What the server sees.

    @property
    def quiet(self) -> bool:
        """Tell whether nothing waits for Redis."""
        return self._held == 0

    def end(self) -> None:
        """End it from this side, because the frontend goes."""
        if self._engine is None:
            self._transport.abort()
            return
        self._engine.close(Fault(FORCED, "the frontend is going: connect again"))
        self._flush()
        for part in self._parts.values():
            # While there is a core to give back to.
            if isinstance(part, QueueConsumer):
                part.stop()
        self._transport.close()
