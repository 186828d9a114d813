"""uvicorn's connection with two limits of its own, and with refusals as problem documents.

uvicorn itself limits how long a connection may idle between requests, but not how long sending one may take. Its limit of
connections would refuse the requests of all of them; this one refuses those that are one too many.
"""

import asyncio
import sys
from http import HTTPStatus
from typing import Any

import h11
from starlette.responses import Response
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from frontends.rest.errors import MEDIA, RETRY_SECONDS, Fault, headers_too_large, target_too_long, write_problem

_CROWDED = Fault(
    HTTPStatus.SERVICE_UNAVAILABLE,
    "too-many-connections",
    "the service has as many connections as it may have",
    {"Retry-After": str(RETRY_SECONDS), "Connection": "close"},
)


class Limited(Config):
    """uvicorn's configuration, with the time limit of a head in seconds and the most connections at once.

    `admitted` are the connections whose requests are served.
    """

    def __init__(self, slow_seconds: float, connections: int, **options: Any) -> None:  # noqa: ANN401  (uvicorn's arguments)
        """Keep the limits."""
        super().__init__(**options)
        self.slow_seconds = slow_seconds
        self.connections = connections
        self.admitted: set[Connection] = set()


class Connection(H11Protocol):
    """One connection. It handles a request, or waits for the first byte of one, or for the rest of its head."""

    def __init__(self, config: Limited, *arguments: Any, **options: Any) -> None:  # noqa: ANN401  (uvicorn's arguments)
        """Start without a connection."""
        super().__init__(config, *arguments, **options)
        self._limits = config
        self._deadline: asyncio.TimerHandle | None = None
        self._begun = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's own
        """Wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer, and leave room for another connection."""
        self._stop()
        self._limits.admitted.discard(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on; the time of a head runs from its first byte to its last."""
        self._admit()
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

    def _admit(self) -> None:
        """Judge whether the next request is one too many; connections that have sent nothing take no room."""
        if len(self._limits.admitted) < self._limits.connections:
            self._limits.admitted.add(self)
        if self not in self._limits.admitted:
            self.app = Response(write_problem(_CROWDED), _CROWDED.status, _CROWDED.headers, MEDIA)

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
