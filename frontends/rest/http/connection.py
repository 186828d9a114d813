"""uvicorn's connection with limits of its own, and with refusals as problem documents.

uvicorn itself limits neither a head nor how long sending one may take. Its limit of connections would refuse the requests
of all of them; this one refuses those that are too many. llhttp, which httptools wraps, refuses what is not HTTP/1.
"""

import asyncio
import re
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote

import httptools
from starlette.responses import Response
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from broker.model.problems import Problem
from frontends.logins.connection_limits import ACCOUNT, ADDRESS, FULL, ConnectionLimits
from frontends.rest import errors
from frontends.rest.errors import MEDIA, RETRY_SECONDS, Fault

CONNECTION: Final = "connection"
"""The name of the connection in the state of a request's scope."""

_WAITING_REQUESTS: Final = 64
"""Most requests that wait for the answers to others before them: one read could hold thousands."""
_METHOD: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+ ")
_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding"})
"""The fields that say where a body ends."""


def crowded(why: str) -> Fault:
    """Return the refusal of a connection that is one too many."""
    whose = {ACCOUNT: "your account has", ADDRESS: "your address has"}.get(why, "the service has")
    status = HTTPStatus.SERVICE_UNAVAILABLE if why == FULL else HTTPStatus.TOO_MANY_REQUESTS
    detail = f"{whose} as many connections as it may have: close one, or come again"
    return Fault(status, "too-many-connections", detail, {"Retry-After": str(RETRY_SECONDS), "Connection": "close"})


class Limited(Config):
    """uvicorn's configuration, with limits of a head in seconds and bytes, and those of connections."""

    def __init__(self, slow_seconds: float, header_bytes: int, connections: ConnectionLimits, **options: Any) -> None:  # noqa: ANN401  (uvicorn's arguments)
        """Keep the limits."""
        super().__init__(**options)
        self.slow_seconds, self.header_bytes = slow_seconds, header_bytes
        self.connection_limits = connections


class HttpConnection(HttpToolsProtocol):
    """One connection. It handles requests, or waits for the first byte of one, or for the rest of its head."""

    def __init__(self, config: Limited, *arguments: Any, **options: Any) -> None:  # noqa: ANN401  (uvicorn's arguments)
        """Start without a connection."""
        super().__init__(config, *arguments, **options)
        self._limits = config
        # The application says whose requests come by this connection.
        self.app_state = {**self.app_state, CONNECTION: self}
        self.url = b""
        self._deadline: asyncio.TimerHandle | None = None
        self._begun = False
        """Whether a head has begun, and not ended."""
        self._framing_bytes = 0
        """Bytes of the reads since the last in which a head ended or bytes of a body came."""
        self._repeating = False
        """Whether a new parser is told again of a head that has been read."""
        self._refused = False
        """Whether a refusal ends the connection: nothing more is read."""
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
        self._limits.connection_limits.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on; the time of a head runs from its first byte to its last."""
        if self._refused:
            return
        if not self._placed:
            self._enter()
        self._unset_keepalive_if_required()
        began = self._begun
        try:
            self._read(data)
        except Fault as fault:
            self._refuse(fault)
        except httptools.HttpParserError as error:
            self._refuse(self._explain(error, data))
        else:
            cycle: RequestResponseCycle | None = self.cycle
            if cycle is not None and not cycle.response_complete:
                self._stop()
            elif (self._begun and not began) or self._deadline is None:
                self._wait()

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio's own result
        """Keep open what a refusal is still to be written to."""
        return self._refused

    def on_message_begin(self) -> None:
        """Note that a head begins."""
        if not self._repeating:
            self._begun = True
            super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a field of a head; those after a body are ignored (RFC 9112 §7.1.2)."""
        if self._begun:
            super().on_header(name, value.rstrip(b" \t"))

    def on_headers_complete(self) -> None:
        """Start the request. Raises Fault if its body cannot be read."""
        if self._repeating:
            return
        if any(name == b"transfer-encoding" and value.lower() != b"chunked" for name, value in self.headers):
            raise Fault(HTTPStatus.NOT_IMPLEMENTED, "coding-unknown", "Transfer-Encoding: only chunked is supported")
        if len(self.pipeline) >= _WAITING_REQUESTS:
            raise Fault(HTTPStatus.TOO_MANY_REQUESTS, "too-fast", "wait for answers before you send more requests")
        self._begun, self._framing_bytes = False, 0
        self._start()

    def on_body(self, body: bytes) -> None:
        """Take in bytes of a body."""
        self._framing_bytes = 0
        super().on_body(body)

    def make_room(self) -> None:
        """Close: nobody has logged in here, and others need the room."""
        self._stop()
        self.transport.close()

    def claim(self, account: str, address: str) -> str:
        """Note whose request came, and from where; returns why this connection may not have it, or nothing."""
        return self._limits.connection_limits.claim(self, account, address)

    def _enter(self) -> None:
        """Ask for admission; without it, the next request is refused."""
        self._placed = self._limits.connection_limits.enter(self, self.address)
        self.app = self.config.loaded_app if self._placed else _answer(crowded(FULL))

    def _read(self, data: bytes) -> None:
        """Parse what came. Raises HttpParserError, and Fault if a head or what surrounds parts of a body is too large."""
        rest = memoryview(data)
        self._framing_bytes += len(data)
        while rest:
            try:
                self.parser.feed_data(rest)
                break
            except httptools.HttpParserUpgrade as upgrade:
                rest = rest[upgrade.args[0] :]
                self._stay()
        if self._framing_bytes > self._limits.header_bytes:
            raise errors.target_too_long() if 2 * len(self.url) > self._framing_bytes else errors.headers_too_large()

    def _start(self) -> None:
        """Start the request whose head has been read, or let it wait for the answers to those before it."""
        target, _, query = self.url.partition(b"?")
        # uvicorn knows no other targets than paths.
        self.url = b"/"
        super().on_headers_complete()
        self.scope |= {"path": unquote(target.decode("ascii")), "raw_path": target, "query_string": query}

    def _stay(self) -> None:
        """Read the body of a request that asks for another protocol: it gets none (RFC 9110 §7.8).

        The parser would leave HTTP now. A new one is told where the body ends, and reads on.
        """
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        framing = b"".join(b"%b: %b\r\n" % field for field in self.headers if field[0] in _FRAMING)
        self.cycle.more_body = True
        self._repeating = True
        self.parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % framing)
        self._repeating = False

    def _explain(self, error: httptools.HttpParserError, data: bytes) -> Fault:
        """Return what is wrong with a request that cannot be parsed."""
        if isinstance(error, httptools.HttpParserCallbackError):
            if isinstance(error.__context__, Fault):
                return error.__context__
            raise error
        if isinstance(error, httptools.HttpParserInvalidMethodError) and _METHOD.match(data):
            return errors.method_unknown()
        if not self.parser.get_http_version().startswith(("0.0", "1.")):
            return errors.version_unknown()
        return Fault(HTTPStatus.BAD_REQUEST, Problem.BAD_REQUEST.value, str(error))

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
        """Answer a request that cannot be read, after those before it, and close."""
        self._stop()
        self._refused = True
        self.app = _answer(fault)
        cycle: RequestResponseCycle | None = self.cycle
        if self._begun:
            self._start()
        elif cycle is None or cycle.response_started:
            self.transport.close()
        # The body of a request cannot be read.
        elif self.pipeline:
            self.pipeline[0] = (cycle, self.app)
        else:
            # What the application answers comes too late.
            cycle.disconnected = True
            cycle.message_event.set()
            self.cycle = None  # type: ignore[assignment]  # as before the first request
            self._start()


def _answer(refusal: Fault) -> Response:
    return Response(errors.write_problem(refusal), refusal.status, {**refusal.headers, "Connection": "close"}, MEDIA)
