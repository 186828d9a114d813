"""uvicorn's connection with limits of its own, with stricter lines, and with refusals as problem documents.

uvicorn itself limits how long a connection may idle between requests, but not how long sending one may take. Its limit of
connections would refuse the requests of all of them; this one refuses those that have no place.
"""

import asyncio
import re
import sys
from http import HTTPStatus
from typing import Any, Final

import h11
from h11._receivebuffer import ReceiveBuffer
from h11._util import LocalProtocolError
from starlette.responses import Response
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from frontends import places
from frontends.rest.errors import MEDIA, RETRY_SECONDS, Fault, headers_too_large, target_too_long, write_problem

CONNECTION: Final = "connection"
"""The name of the connection in the state of a request's scope."""

_LOOSE: Final = re.compile(rb"(?<!\r)\n|\r\n[ \t]")
"""A line that ends without a CR, or that goes on after its end."""


def crowded(why: str) -> Fault:
    """Return the refusal of a connection that has no place."""
    whose = {places.ACCOUNT: "your account has", places.ADDRESS: "your address has"}.get(why, "the service has")
    status = HTTPStatus.SERVICE_UNAVAILABLE if why == places.FULL else HTTPStatus.TOO_MANY_REQUESTS
    detail = f"{whose} as many connections as it may have: close one, or come again"
    return Fault(status, "too-many-connections", detail, {"Retry-After": str(RETRY_SECONDS), "Connection": "close"})


class _StrictLines(ReceiveBuffer):
    """What was received of a head, or of the trailers of a body.

    h11 takes a bare LF for the end of a line, and unfolds lines (RFC 9112 §2.2, §5.2): a proxy may do neither.
    """

    def maybe_extract_lines(self) -> list[bytearray] | None:
        """Return the lines up to an empty one, if it has come."""
        before = bytes(self._data)
        lines = super().maybe_extract_lines()
        if lines is not None and _LOOSE.search(before, 0, len(before) - len(self._data)):
            msg = "a line ends with CR and LF, and does not go on in the next one"
            raise LocalProtocolError(msg)
        return lines


class Limited(Config):
    """uvicorn's configuration, with the time limit of a head in seconds, and the places of connections."""

    def __init__(self, slow_seconds: float, held: places.Places, **options: Any) -> None:  # noqa: ANN401  (uvicorn's arguments)
        """Keep the limits."""
        super().__init__(**options)
        self.slow_seconds = slow_seconds
        self.places = held


class Connection(H11Protocol):
    """One connection. It handles a request, or waits for the first byte of one, or for the rest of its head."""

    def __init__(self, config: Limited, *arguments: Any, **options: Any) -> None:  # noqa: ANN401  (uvicorn's arguments)
        """Start without a connection."""
        super().__init__(config, *arguments, **options)
        self._limits = config
        self.conn._receive_buffer = _StrictLines()  # noqa: SLF001  (there is no other way to a strict head)
        # The application says whose requests come by this connection.
        self.app_state = {**self.app_state, CONNECTION: self}
        self._deadline: asyncio.TimerHandle | None = None
        self._begun = False
        self._placed = False
        self.address = ""
        """The address of the peer, perhaps a proxy."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's own
        """Wait for the first request."""
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        self.address = peer[0] if isinstance(peer, tuple) else ""
        self._enter()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer, and leave room for another connection."""
        self._stop()
        self._limits.places.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on; the time of a head runs from its first byte to its last."""
        if not self._placed:
            self._enter()
        super().data_received(data)
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            self._stop()
            self._begun = False
            return
        # The rest of a body whose request was refused begins no head.
        begins = self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])
        if (begins and not self._begun) or self._deadline is None:
            self._begun = begins
            self._wait()

    def send_400_response(self, msg: str) -> None:
        """Refuse malformed HTTP, or a head that is too large."""
        match getattr(sys.exception(), "error_status_hint", HTTPStatus.BAD_REQUEST):
            case HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
                # Without the end of its first line, the target is what is too long.
                line_ended = b"\n" in self.conn.trailing_data[0]
                self._refuse(headers_too_large() if line_ended else target_too_long())
            case HTTPStatus.NOT_IMPLEMENTED:
                self._refuse(
                    Fault(HTTPStatus.NOT_IMPLEMENTED, "coding-unknown", "Transfer-Encoding: only chunked is supported")
                )
            case _:
                self._refuse(Fault(HTTPStatus.BAD_REQUEST, "bad-request", msg))

    def make_room(self) -> None:
        """Close: nobody has logged in here, and others need the place."""
        self._stop()
        self.transport.close()

    def claim(self, account: str, address: str) -> str:
        """Note whose request came, and from where; returns why this connection has no place for it, or nothing."""
        return self._limits.places.claim(self, account, address)

    def _enter(self) -> None:
        """Take a place; without one, the next request is refused."""
        self._placed = self._limits.places.enter(self, self.address)
        if self._placed:
            self.app = self.config.loaded_app
        else:
            refusal = crowded(places.FULL)
            self.app = Response(write_problem(refusal), refusal.status, refusal.headers, MEDIA)

    def _wait(self) -> None:
        self._stop()
        self._deadline = self.loop.call_later(self._limits.slow_seconds, self._on_timeout)

    def _stop(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _on_timeout(self) -> None:
        # A client that has sent nothing gets no answer: a 408 could hit its next request (RFC 9110 §15.5.9).
        if self._begun:
            self._refuse(Fault(HTTPStatus.REQUEST_TIMEOUT, "too-slow", "the headers took too long"))
        else:
            self.transport.close()

    def _refuse(self, fault: Fault) -> None:
        self._stop()
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            # The body of this request cannot be read: the application's answer comes too late.
            cycle.disconnected = True
            cycle.message_event.set()
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            body = write_problem(fault)
            head = h11.Response(
                status_code=fault.status.value,
                reason=fault.status.phrase.encode(),
                headers=[("Content-Type", MEDIA), ("Content-Length", str(len(body))), ("Connection", "close")],
            )
            for event in (head, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
