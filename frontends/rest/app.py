"""The application of the RESTful door: finds and runs the operation of a request, and writes its answer. Must not know Redis.

Its only state is the rate limit of each sender. Must not know what operations do.
"""

import asyncio
import math
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl

import structlog
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response as HttpResponse
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from broker.model.audit import ADDRESS
from broker.model.core import Core
from broker.model.names import Jid
from broker.model.problems import CorruptRecord, MalformedRequest, Problem
from broker.tasks import start
from frontends.rest import paths, refusal_log, replies, routes
from frontends.rest.auth import csrf
from frontends.rest.auth.identity import Identity
from frontends.rest.auth.rate_limit import RateLimit
from frontends.rest.errors import Fault, fault
from frontends.rest.http import codings, conditions, heads, negotiation
from frontends.rest.http.connection import CONNECTION, HttpConnection, crowded
from frontends.rest.http.forwarded import Networks, find_sender
from frontends.rest.http.values import ApiRequest, Response, SignOn
from frontends.rest.operations import OPERATIONS
from frontends.rest.routes import Body, Operation, Shown

_log = structlog.get_logger("stanzaq.rest")

_SWALLOWED_BYTES: Final = 65_536
"""An unwanted body is read up to this size, to keep the connection; a longer one closes it."""

_KINDS: Final = {
    Shown.PAGE: negotiation.KINDS,
    Shown.MESSAGE: negotiation.KINDS,
    Shown.MESSAGE_OR_END: negotiation.KINDS,
    Shown.HELD: (*negotiation.KINDS, negotiation.EVENTS),
}
"""The media types of answers that are not JSON only."""
_AS_THEY_ARE: Final = {Shown.CONTENT, Shown.FILE}

_NOT_THERE: Final = {HTTPStatus.NOT_FOUND, HTTPStatus.GONE}
"""The answers that mean that nothing exists, for conditional requests."""
_VARY: Final = "Accept, Accept-Encoding"

_SWIFT_BYTES: Final = 65_536
"""Smaller bodies are compressed in the event loop: that takes a millisecond at most."""

_REQUEST: Final = "X-Request-Id"
_PLAIN: Final = re.compile(r"[\x21-\x7e]{1,200}")


class Door:
    """The application."""

    def __init__(  # noqa: PLR0913  (settings, each named where it is given)
        self,
        identity: Identity,
        *,
        rate: float,
        header_bytes: int,
        body_bytes: int,
        slow_seconds: float,
        subscriptions: int,
        proxies: Networks = (),
        sign_on: SignOn = SignOn(),  # noqa: B008  (a frozen value)
    ) -> None:
        """Prepare the door; `open` accepts requests."""
        self._identity = identity
        self._rates = RateLimit(rate)
        self._header_bytes = header_bytes
        self._body_bytes = body_bytes
        self._slow_seconds = slow_seconds
        self._subscriptions = subscriptions
        self._proxies = proxies
        self._sign_on = sign_on
        self._core: Core

    def open(self, core: Core) -> None:
        """Serve this core."""
        self._core = core

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        http_request = HttpRequest(scope, receive)
        number = _number(http_request)
        try:
            answer = await self._answer(http_request, number)
        except ClientDisconnect:
            return
        headers = {**answer.headers, _REQUEST: number}
        if answer.events is not None and http_request.method != "HEAD":
            headers |= {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
            stream = StreamingResponse(answer.events, answer.status, headers, answer.media)
            try:
                await stream(scope, receive, send)
            finally:
                # Close now, so that a client's departure is noticed without waiting for garbage collection.
                await answer.events.aclose()
            return
        body = b"" if http_request.method == "HEAD" else answer.body
        response = HttpResponse(body, answer.status, headers)
        if answer.media:
            response.headers["Content-Type"] = answer.media
        if http_request.method == "HEAD" and answer.status is not HTTPStatus.NOT_MODIFIED:
            response.headers["Content-Length"] = str(len(answer.body))
        await response(scope, receive, send)

    async def _answer(self, http_request: HttpRequest, number: str) -> Response:
        about = {"request": number}
        try:
            answer = await self._serve(http_request, about)
        except Fault as refusal:
            return _refuse(http_request, refusal, about)
        except MalformedRequest as refusal:
            return _refuse(http_request, fault(refusal), about)
        except ClientDisconnect:
            raise
        except CorruptRecord as defect:
            _log.error("a message cannot be read", path=http_request.url.path, fault=str(defect))
        except Exception:  # noqa: BLE001  (logged, and reported to the client)
            _log.exception("a request failed", method=http_request.method, path=http_request.url.path)
        else:
            for part in answer.refusals:
                refusal_log.log(part, about)
            return await _compress(http_request, answer)
        failed = Fault(HTTPStatus.INTERNAL_SERVER_ERROR, "internal-error", "the service could not complete the request")
        return _close_if_long(http_request, replies.answer_refused(failed))

    async def _serve(self, http_request: HttpRequest, about: dict[str, str]) -> Response:
        """Serve a request; fills `about` with what the log may say of it."""
        version, target = http_request.scope["http_version"], http_request.scope["raw_path"]
        head = heads.read(version, http_request.method, target, http_request.headers.raw, self._header_bytes)
        if head.path == heads.EVERYTHING:
            return Response(HTTPStatus.NO_CONTENT, headers={"Allow": ", ".join(routes.EVERY)})
        path = paths.read(head.path)
        if path is None:
            raise Fault(HTTPStatus.NOT_FOUND, "not-found", "no resource has this path: see /openapi.json")
        about |= {"node": path.node, "item": path.item}
        operation = routes.find_operation(path.pattern, http_request.method)
        if operation is None:
            allow = {"Allow": ", ".join(routes.allowed_methods(path.pattern))}
            if http_request.method == "OPTIONS":
                return Response(HTTPStatus.NO_CONTENT, headers=allow)
            detail = f"{path.pattern} supports {allow['Allow']}"
            raise Fault(HTTPStatus.METHOD_NOT_ALLOWED, "method-not-allowed", detail, allow)
        about["command"] = operation.name
        fields = head.fields
        csrf.judge(http_request.method, fields)
        sender, ends = (Jid(""), lambda: math.inf) if operation.public else await self._admit(http_request, fields)
        about["subscriber"] = sender
        raw = http_request.scope["query_string"]
        query = _query(raw, operation) if raw else {}
        kinds = _MEDIA_TYPES[operation.name]
        wants = negotiation.choose_kind(fields.get("accept", ""), kinds) if kinds else ""
        coding = fields.get("content-encoding", "")
        body = await self._body(http_request, coding) if operation.body is not Body.NONE else b""
        request = ApiRequest(
            path,
            sender,
            query,
            fields,
            body,
            wants,
            looks=http_request.method == "HEAD",
            most_subscriptions=self._subscriptions,
            ends=ends,
            sign_on=self._sign_on,
        )
        if http_request.method in {"GET", "HEAD"}:
            answering = OPERATIONS[operation.name](self._core, request)
            return _answer_with_tag(
                fields, await (_wait_for(http_request, answering) if "wait" in query else answering)
            )
        if conditions.request(fields) and not (operation.creates and conditions.creates(fields)):
            conditions.evaluate(fields, await self._tags(request), reads=False)
        return await OPERATIONS[operation.name](self._core, request)

    async def _tags(self, request: ApiRequest) -> list[str]:
        """Return the tags of all representations of the requested resource; none if it does not exist."""
        operation = routes.find_operation(request.path.pattern, "GET")
        if operation is None:
            return []
        query = {name: value for name, value in request.query.items() if name in operation.query}
        shown = replace(request, query=query, body=b"", looks=True)
        try:
            answers = [
                await OPERATIONS[operation.name](self._core, replace(shown, wants=kind))
                for kind in _MEDIA_TYPES[operation.name] or ("",)
                if kind != negotiation.EVENTS
            ]
        except Fault as refusal:
            if refusal.status in _NOT_THERE:
                return []
            raise
        return [_tag(answer) for answer in answers]

    async def _admit(self, http_request: HttpRequest, fields: Mapping[str, str]) -> tuple[Jid, Callable[[], float]]:
        connection: HttpConnection = http_request.scope["state"][CONNECTION]
        address = connection.address
        if self._proxies:
            address = find_sender(address, fields.get("forwarded", ""), self._proxies)
        ADDRESS.set(address)
        sender, ends = await self._identity.of(fields.get("authorization", ""), address)
        if why := connection.claim(sender, address):
            raise crowded(why)
        seconds = self._rates.wait(sender)
        if seconds:
            raise Fault(
                HTTPStatus.TOO_MANY_REQUESTS, "too-fast", "you exceed your rate limit", {"Retry-After": str(seconds)}
            )
        return sender, ends

    async def _body(self, http_request: HttpRequest, coding: str) -> bytes:
        if _length(http_request) > self._body_bytes:
            raise self._size_fault()
        pieces, size = [], 0
        try:
            async with asyncio.timeout(self._slow_seconds):
                async for piece in http_request.stream():
                    size += len(piece)
                    if size > self._body_bytes:
                        raise self._size_fault()
                    pieces.append(piece)
        except TimeoutError:
            raise Fault(
                HTTPStatus.REQUEST_TIMEOUT, "too-slow", "the body took too long", {"Connection": "close"}
            ) from None
        body = codings.decompress(b"".join(pieces), coding, self._body_bytes)
        if body is None:
            raise self._size_fault()
        return body

    def _size_fault(self) -> Fault:
        detail = f"a body has at most {self._body_bytes} bytes"
        return Fault(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, Problem.PAYLOAD_TOO_BIG.value, detail, {"Connection": "close"}
        )


async def _wait_for(http_request: HttpRequest, answering: Awaitable[Response]) -> Response:
    """Wait for an answer; raises ClientDisconnect when the client has gone: what is found then, others may have."""
    here = asyncio.timeout(None)

    async def leave() -> None:
        while (await http_request.receive())["type"] != "http.disconnect":
            pass
        here.reschedule(asyncio.get_running_loop().time())

    try:
        async with here:
            leaving = start(leave())
            try:
                return await answering
            finally:
                leaving.cancel()
    except TimeoutError:
        if here.expired():
            raise ClientDisconnect from None
        raise


def _number(http_request: HttpRequest) -> str:
    """Return the id that came with a request, or a new one."""
    given = http_request.headers.get(_REQUEST, "")
    return given if _PLAIN.fullmatch(given) else secrets.token_hex(8)


def _kinds(operation: Operation) -> tuple[str, ...]:
    """Return the media types of an operation's answer; none for an answer of its own type."""
    if _AS_THEY_ARE & set(operation.answers.values()):
        return ()
    return next((_KINDS[each] for each in operation.answers.values() if each in _KINDS), (negotiation.JSON,))


_MEDIA_TYPES: Final = {each.name: _kinds(each) for methods in routes.ROUTES.values() for each in methods.values()}
"""The media types of each operation's answer, by its name."""


def _tag(answer: Response) -> str:
    return answer.headers.get("ETag") or conditions.tag(answer.body)


def _answer_with_tag(fields: Mapping[str, str], answer: Response) -> Response:
    """Return an answer with its tag, or 304 if the client has it already; raises MalformedRequest."""
    if answer.events is not None:
        return answer
    tag = _tag(answer)
    if codings.wants_gzip(fields.get("accept-encoding", ""), answer.media, len(answer.body)):
        tag = conditions.gzip_tag(tag)
    headers = {"Cache-Control": "no-cache", "Vary": _VARY, **answer.headers, "ETag": tag}
    if conditions.evaluate(fields, (tag,), reads=True):
        return replace(answer, headers=headers)
    return Response(HTTPStatus.NOT_MODIFIED, headers=headers)


async def _compress(http_request: HttpRequest, answer: Response) -> Response:
    """Compress an answer with gzip if the client prefers that."""
    if len(answer.body) < codings.LEAST_BYTES:
        return answer
    accept = ",".join(http_request.headers.getlist("accept-encoding"))
    if not codings.wants_gzip(accept, answer.media, len(answer.body)):
        return answer
    large = len(answer.body) > _SWIFT_BYTES
    body = await asyncio.to_thread(codings.compress, answer.body) if large else codings.compress(answer.body)
    headers = {"Vary": _VARY, **answer.headers, "Content-Encoding": codings.GZIP}
    return replace(answer, body=body, headers=headers)


def _query(raw: bytes, operation: Operation) -> dict[str, str]:
    """Parse the query: only the operation's parameters, each at most once."""
    try:
        # UnicodeError is a ValueError, and so is the error of the limit.
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=20)
    except ValueError:
        raise MalformedRequest(Problem.BAD_REQUEST, "the query is not NAME=VALUE&… in UTF-8") from None
    query = dict(pairs)
    unknown = query.keys() - set(operation.query)
    if unknown or len(query) < len(pairs):
        name = min(unknown, default="one of them")[:80]
        raise MalformedRequest(Problem.BAD_REQUEST, f"the query: {name} is unknown or repeated")
    return query


def _length(http_request: HttpRequest) -> int:
    """Return the announced length of a body; llhttp has checked that it is a number."""
    return int(http_request.headers.get("content-length", "0"))


def _refuse(http_request: HttpRequest, refusal: Fault, about: Mapping[str, str]) -> Response:
    refusal_log.log(refusal, about)
    return _close_if_long(http_request, replies.answer_refused(refusal))


def _close_if_long(http_request: HttpRequest, refusal: Response) -> Response:
    """Close the connection if the rest of a refused body would take long."""
    if "transfer-encoding" not in http_request.headers and _length(http_request) <= _SWALLOWED_BYTES:
        return refusal
    return Response(refusal.status, refusal.body, refusal.media, {**refusal.headers, "Connection": "close"})
