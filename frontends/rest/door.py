"""The RESTful door's shell: a request's bytes to an operation, its answer to bytes. Must not know Redis, nor what operations do.

It holds nothing that matters: how fast who asks, and no more.
"""

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl

import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from broker.model.core import Core
from broker.model.names import Jid
from broker.model.problems import CorruptRecord, MalformedRequest, Problem
from frontends.rest import media, origins, paths, refusals, replies, routes
from frontends.rest.asked import Answer, Asked
from frontends.rest.errors import Fault, fault, headers_too_large
from frontends.rest.identity import Identity
from frontends.rest.rates import Rates
from frontends.rest.resources import OPERATIONS
from frontends.rest.routes import Body, Operation, Shown

_log = structlog.get_logger("stanzaq.rest")

_SWALLOWED_BYTES: Final = 65_536
"""A body that nobody wants is read up to here, so that the connection may live on; a longer one ends it."""

_KINDS: Final = {Shown.PAGE: media.KINDS, Shown.MESSAGE: media.KINDS, Shown.HELD: (*media.KINDS, media.EVENTS)}
"""What the answers come as that do not come as JSON alone."""
_AS_THEY_ARE: Final = {Shown.CONTENT, Shown.FILE}


class Door:
    """The application."""

    def __init__(
        self, identity: Identity, *, rate: float, header_bytes: int, body_bytes: int, slow_seconds: float
    ) -> None:
        """Prepare the door; `open` lets requests in."""
        self._identity = identity
        self._rates = Rates(rate)
        self._header_bytes = header_bytes
        self._body_bytes = body_bytes
        self._slow_seconds = slow_seconds
        self._core: Core

    def open(self, core: Core) -> None:
        """Serve this core."""
        self._core = core

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        request = Request(scope, receive)
        try:
            answer = await self._answered(request)
        except ClientDisconnect:
            return
        if answer.events is not None and request.method != "HEAD":
            headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
            stream = StreamingResponse(answer.events, answer.status, headers, answer.media)
            await stream(scope, receive, send)
            return
        body = b"" if request.method == "HEAD" else answer.body
        response = Response(body, answer.status, dict(answer.headers))
        if answer.media:
            response.headers["Content-Type"] = answer.media
        if request.method == "HEAD":
            response.headers["Content-Length"] = str(len(answer.body))
        await response(scope, receive, send)

    async def _answered(self, request: Request) -> Answer:
        about = {"request": request.headers.get("x-request-id", "")}
        try:
            answer = await self._served(request, about)
        except Fault as refusal:
            return _refused(request, refusal, about)
        except MalformedRequest as refusal:
            return _refused(request, fault(refusal), about)
        except ClientDisconnect:
            raise
        except CorruptRecord as defect:
            _log.error("a message cannot be read", path=request.url.path, fault=str(defect))
        except Exception:  # noqa: BLE001  (logged, and told to the asker)
            _log.exception("a request failed", method=request.method, path=request.url.path)
        else:
            for part in answer.refusals:
                refusals.log(part, about)
            return answer
        failed = Fault(HTTPStatus.INTERNAL_SERVER_ERROR, "internal-error", "the service could not carry this out")
        return _closing(request, replies.refused(failed))

    async def _served(self, request: Request, about: dict[str, str]) -> Answer:
        """Serve a request; what is read of it goes to `about` for the log."""
        # h11 judges a head that comes in parts, and not one that comes at once.
        if sum(len(name) + len(value) for name, value in request.headers.raw) > self._header_bytes:
            raise headers_too_large()
        place = paths.read(request.scope["raw_path"])
        if place is None:
            raise Fault(HTTPStatus.NOT_FOUND, "not-found", "there is nothing at this path: /openapi.json has all")
        about |= {"node": place.node, "item": place.item}
        allow = {"Allow": ", ".join(routes.allowed(place.pattern))}
        if request.method == "OPTIONS":
            return Answer(HTTPStatus.NO_CONTENT, headers=allow)
        operation = routes.found(place.pattern, request.method)
        if operation is None:
            detail = f"{place.pattern} takes {allow['Allow']}"
            raise Fault(HTTPStatus.METHOD_NOT_ALLOWED, "method-not-allowed", detail, allow)
        about["command"] = operation.name
        origins.judge(request.method, request.headers)
        sender = Jid("") if operation.public else await self._admitted(request)
        about["subscriber"] = sender
        query = _query(request.scope["query_string"], operation)
        kinds = next((_KINDS[each] for each in operation.answers.values() if each in _KINDS), (media.JSON,))
        accept = ",".join(request.headers.getlist("accept"))
        wants = "" if _AS_THEY_ARE & set(operation.answers.values()) else media.wanted(accept, kinds)
        body = await self._body(request) if operation.body is not Body.NONE else b""
        asked = Asked(place, sender, query, dict(request.headers), body, wants)
        return await OPERATIONS[operation.name](self._core, asked)

    async def _admitted(self, request: Request) -> Jid:
        sender = await self._identity.of(request.headers.get("authorization", ""))
        seconds = self._rates.wait(sender)
        if seconds:
            raise Fault(
                HTTPStatus.TOO_MANY_REQUESTS, "too-fast", "you ask faster than you may", {"Retry-After": str(seconds)}
            )
        return sender

    async def _body(self, request: Request) -> bytes:
        coding = request.headers.get("content-encoding", "identity").strip().lower()
        if coding != "identity":
            raise Fault(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                "content-encoding-unknown",
                "Content-Encoding: bodies are taken as they are",
                {"Accept-Encoding": "identity"},
            )
        if _length(request) > self._body_bytes:
            raise self._too_big()
        pieces, size = [], 0
        try:
            async with asyncio.timeout(self._slow_seconds):
                async for piece in request.stream():
                    size += len(piece)
                    if size > self._body_bytes:
                        raise self._too_big()
                    pieces.append(piece)
        except TimeoutError:
            raise Fault(
                HTTPStatus.REQUEST_TIMEOUT, "too-slow", "the body took too long", {"Connection": "close"}
            ) from None
        return b"".join(pieces)

    def _too_big(self) -> Fault:
        detail = f"a body has at most {self._body_bytes} bytes"
        return Fault(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, Problem.PAYLOAD_TOO_BIG.value, detail, {"Connection": "close"}
        )


def _query(raw: bytes, operation: Operation) -> dict[str, str]:
    """Read the parameters of a query: those of the operation, each once."""
    try:
        # A UnicodeError is a ValueError, and so is what breaks the limit.
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=20)
    except ValueError:
        raise MalformedRequest(Problem.BAD_REQUEST, "the query is not NAME=VALUE&… in UTF-8") from None
    query = dict(pairs)
    unknown = query.keys() - set(operation.query)
    if unknown or len(query) < len(pairs):
        name = min(unknown, default="one of them")[:80]
        raise MalformedRequest(Problem.BAD_REQUEST, f"the query: {name} is not known here, or there twice")
    return query


def _length(request: Request) -> int:
    """Give the length that a body is said to have; h11 has judged that it is a number."""
    return int(request.headers.get("content-length", "0"))


def _refused(request: Request, refusal: Fault, about: Mapping[str, str]) -> Answer:
    refusals.log(refusal, about)
    return _closing(request, replies.refused(refusal))


def _closing(request: Request, refusal: Answer) -> Answer:
    """End the connection when the rest of a refused body would be long to come."""
    if "transfer-encoding" not in request.headers and _length(request) <= _SWALLOWED_BYTES:
        return refusal
    return Answer(refusal.status, refusal.body, refusal.media, {**refusal.headers, "Connection": "close"})
