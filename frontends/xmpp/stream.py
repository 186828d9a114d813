"""The component's stream (XEP-0114) through slixmpp. Knows the connection; must not know what a stanza means.

Slixmpp connects and shakes hands; `reader` parses the stream, for reasons given there. Stanzas never become slixmpp objects,
and output is bytes, written once per turn of the event loop: that takes a fifth of the time.
"""

import random
import ssl
from asyncio import BaseTransport, TimerHandle
from collections.abc import Callable
from typing import Final, assert_never, cast
from xml.etree.ElementTree import Element

import structlog
from slixmpp import ComponentXMPP
from slixmpp.stanza import Handshake

from broker.model.problems import MalformedRequest
from frontends.xmpp import namespaces as ns
from frontends.xmpp.xml.reader import Broken, Closed, Opened, Reader, Stanza

_log = structlog.get_logger("stanzaq.xmpp")

# Servers differ in the namespace of what they route to a component.
_STANZAS: Final = frozenset(
    f"{{{space}}}{name}" for space in (ns.COMPONENT, ns.CLIENT) for name in ("iq", "message", "presence")
)
_HANDSHAKE: Final = f"{{{ns.COMPONENT}}}handshake"
_STREAM_ERROR: Final = f"{{{ns.STREAM}}}error"
_REMEDIES: Final = {
    "not-authorized": "the secret differs from the server's for this component: compare the two settings",
    "conflict": "the server takes one connection per component domain: use one domain per frontend, or let it take several",
    "host-unknown": "the server has no component of this domain: add it there, or correct the domain here",
}

_RETRY_FIRST: Final = 0.2
_RETRY_MOST: Final = 2.0
"""The longest time until the next attempt: the service is down that long after the server is back. An attempt is cheap."""

_HANDSHAKE_SECONDS: Final = 10.0
_BUFFER_SLOW: Final = 4 * 1024 * 1024
_BUFFER_MOST: Final = 64 * 1024 * 1024


class Stream(ComponentXMPP):
    """A stream that reconnects by itself; `receive` gets each stanza, `changed` learns when it comes up or goes down."""

    def __init__(  # noqa: PLR0913  (five of them name the server)
        self,
        domain: str,
        secret: str,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        receive: Callable[[Element, MalformedRequest | None], None],
        changed: Callable[[bool], None],
    ) -> None:
        """Prepare a stream; `open` begins it. Must run inside the event loop."""
        super().__init__(domain, secret, host, port)  # type: ignore[no-untyped-call]
        if tls is not None:
            # Slixmpp has names of services instead of an address with TLS.
            self.tls_services = {"xmpps-component"}
            self.enable_direct_tls, self.enable_plaintext = True, False
        self.replace(secret, tls)
        self._receive = receive
        self._changed = changed
        self._reader = Reader()
        self._gathered: list[bytes] = []
        self._retry_seconds = _RETRY_FIRST
        self._timer: TimerHandle | None = None
        self._wanted = False
        self.connected = False
        self.add_event_handler("session_start", self._on_up)
        self.add_event_handler("disconnected", self._on_down)
        self.add_event_handler("connection_failed", self._on_failed)

    def replace(self, secret: str, tls: ssl.SSLContext | None) -> None:
        """Use these when it connects again."""
        self.secret = secret
        if tls is not None:
            self.ssl_context = tls

    def open(self) -> None:
        """Connect, and reconnect after each loss until `close`."""
        self._wanted = True
        self._dial()

    async def close(self, seconds: float) -> None:
        """Write pending output, end the stream gracefully, and stay offline."""
        self._wanted = False
        self._set_timer(None)
        self.cancel_connection_attempt()
        if self.is_connected():
            self._flush()
            # slixmpp's own queue has nothing of ours.
            await self.disconnect(wait=seconds, ignore_send_queue=True)
        # Slixmpp's own sender outlives its stream.
        if self._run_out_filters is not None:
            self._run_out_filters.cancel()

    def write(self, data: bytes) -> None:
        """Gather bytes for one write at the end of this turn of the event loop; drop them while the stream is down.

        Stanzas cannot wait for the next stream: by then other frontends have taken over the deliveries (X11).
        """
        if not self.connected or not data:
            return
        self._gathered.append(data)
        if len(self._gathered) == 1:
            self.loop.call_soon(self._flush)

    def congested(self) -> bool:
        """Tell whether the server reads more slowly than we write."""
        return self.transport is not None and self.transport.get_write_buffer_size() > _BUFFER_SLOW

    def flushed(self) -> bool:
        """Tell whether all bytes have left the process."""
        return (
            self.connected
            and not self._gathered
            and self.transport is not None
            and self.transport.get_write_buffer_size() == 0
        )

    def connection_made(self, transport: BaseTransport, send_event: bool = True) -> None:  # noqa: FBT001, FBT002  (slixmpp's signature)
        """Make the transport report when much is unsent."""
        super().connection_made(transport, send_event)
        if self.transport is not None:
            self.transport.set_write_buffer_limits(high=_BUFFER_SLOW)

    def pause_writing(self) -> None:
        """Log that the server reads slowly; waiting for a server that waits for us would be a deadlock."""
        _log.warning("the XMPP server reads slowly", unsent_bytes=_BUFFER_SLOW)

    def resume_writing(self) -> None:
        """Log that the server has caught up."""
        _log.info("the XMPP server has caught up")

    def data_received(self, data: bytes | str) -> None:
        """Parse the server's output, in place of slixmpp's parser."""
        for event in self._reader.feed(data.encode() if isinstance(data, str) else data):
            match event:
                case Stanza(element, fault):
                    self._route(element, fault)
                case Opened(element):
                    self.start_stream_handler(element)  # type: ignore[no-untyped-call]
                case Closed():
                    self.abort()
                case Broken(reason):
                    _log.error("the XMPP server sent unreadable XML: reconnecting", reason=reason)
                    self.abort()
                case _:
                    assert_never(event)

    def init_parser(self) -> None:
        """Start to parse a new stream."""
        self._reader = Reader()

    def _route(self, element: Element, fault: MalformedRequest | None) -> None:
        if element.tag in _STANZAS:
            # A fault in one stanza must not affect the others.
            try:
                self._receive(element, fault)
            except Exception:  # noqa: BLE001
                _log.exception("a stanza failed")
        elif element.tag == _STREAM_ERROR:
            self._on_stream_error(element)
        elif element.tag == _HANDSHAKE:
            self.recv_stanza(Handshake(self, element))

    def _on_stream_error(self, error: Element) -> None:
        names = [child.tag.rpartition("}")[2] for child in error]
        condition = next((name for name in names if name != "text"), "undefined-condition")
        text = next((child.text for child in error if child.tag.endswith("}text")), None)
        _log.error(
            "the XMPP server closed the stream",
            condition=condition,
            text=text,
            remedy=_REMEDIES.get(condition, "see the server's log"),
        )

    def _flush(self) -> None:
        if not self._gathered:
            return
        data = b"".join(self._gathered)
        self._gathered.clear()
        if self.transport is None:
            return
        self.transport.write(data)
        if self.transport.get_write_buffer_size() > _BUFFER_MOST:
            _log.error("the XMPP server has stopped reading: reconnecting", unsent_bytes=_BUFFER_MOST)
            self.abort()

    def _on_up(self, _: object) -> None:
        self._set_timer(None)
        self._retry_seconds = _RETRY_FIRST
        self.connected = True
        _log.info("connected to the XMPP server", domain=self.boundjid.bare)
        self._changed(True)  # noqa: FBT003  (its one argument)

    def _on_down(self, reason: object) -> None:
        self._gathered.clear()
        if self.connected:
            self.connected = False
            if self._wanted:
                _log.warning("the XMPP server is gone", reason=str(reason or "connection closed"))
            self._changed(False)  # noqa: FBT003  (its one argument)
        self._retry()

    def _on_failed(self, reason: object) -> None:
        # Slixmpp would also retry by itself, at intervals of up to five minutes.
        self.cancel_connection_attempt()
        _log.warning("cannot reach the XMPP server", reason=str(reason))
        self._retry()

    def _retry(self) -> None:
        if not self._wanted:
            return
        # Jitter, so that frontends do not all reconnect at once.
        delay = self._retry_seconds * random.uniform(0.5, 1.0)  # noqa: S311  (not a secret)
        self._retry_seconds = min(self._retry_seconds * 2, _RETRY_MOST)
        self._set_timer(self.loop.call_later(delay, self._dial))

    def _dial(self) -> None:
        self._set_timer(self.loop.call_later(_HANDSHAKE_SECONDS, self._overdue))
        self.connect(cast("str", self.server_host), cast("int", self.server_port))

    def _overdue(self) -> None:
        _log.warning("the XMPP server does not finish the handshake")
        if self.is_connected():
            self.abort()
        else:
            self.cancel_connection_attempt()
            self._retry()

    def _set_timer(self, timer: TimerHandle | None) -> None:
        """Set the one timer, which is either for the next attempt or for the current handshake."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = timer
