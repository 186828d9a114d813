"""Parses several messages in one body: a JSON array, or `multipart/mixed` (RFC 2046 §5.1), parts byte for byte. Pure."""

import json
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from typing import Final, TypeVar

from broker.model.problems import MalformedRequest, Problem
from frontends.rest import paths
from frontends.rest.errors import Fault, fault
from frontends.rest.http import fields, heads, negotiation
from frontends.rest.http.values import ApiRequest
from frontends.rest.queues import requests
from frontends.rest.queues.requests import NewMessage

MOST: Final = 200
"""The most messages of a batch: as many as one call takes."""

_FIELDS: Final = frozenset({"json", "text", "base64", "content_type", "group_key", "guid", "headers", *requests.HINTS})
_PART_HEADER_BYTES: Final = 8_192

_KINDS: Final[dict[str, tuple[str, Callable[[object], bool]]]] = {
    **dict.fromkeys(requests.HINTS, ("a whole number", lambda value: fields.read_whole(value) is not None)),
    **dict.fromkeys(("text", *requests.TEXTS), ("a string", lambda value: isinstance(value, str))),
    **dict.fromkeys(("json", "headers"), ("anything", lambda _value: True)),
    **dict.fromkeys(requests.FLAGS, ("true or false", lambda value: isinstance(value, bool))),
}
"""What the fields of a message may be, each with a test; those that are not here are strings, as `text` is."""

_Part = TypeVar("_Part")


def read(request: ApiRequest) -> list[NewMessage | Fault]:
    """Parse the messages of a batch, or the fault of each; raises Fault or MalformedRequest if the batch cannot be split."""
    content_type = request.headers.get("content-type", "")
    if negotiation.drop_parameters(content_type) == "multipart/mixed":
        found = _multipart(request.body, negotiation.parameter(content_type, "boundary"))
    elif negotiation.drop_parameters(content_type) == negotiation.JSON:
        found = _array(request.body)
    else:
        raise Fault(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "media-type-unknown",
            f"a batch must be {negotiation.JSON} or multipart/mixed",
            {"Accept-Post": f"{negotiation.JSON}, multipart/mixed"},
        )
    if not 0 < len(found) <= MOST:
        raise MalformedRequest(Problem.BAD_REQUEST, f"a batch has 1 to {MOST} messages")
    return found


def _parse_each(read_one: Callable[[int, _Part], NewMessage], parts: Iterable[_Part]) -> list[NewMessage | Fault]:
    """Parse the messages one by one, so that each has a fault of its own."""
    found: list[NewMessage | Fault] = []
    for number, part in enumerate(parts):
        try:
            found.append(read_one(number, part))
        except MalformedRequest as wrong:
            found.append(fault(wrong))
    return found


def _array(body: bytes) -> list[NewMessage | Fault]:
    said = fields.parse_json(body)
    if not isinstance(said, list):
        raise MalformedRequest(Problem.BAD_REQUEST, "a batch in JSON must be an array of messages")
    return _parse_each(_object, said[: MOST + 1])


def _object(number: int, said: object) -> NewMessage:
    return parse_message(f"message {number}", said)


def parse_message(where: str, said: object) -> NewMessage:
    """Parse a message in JSON; an error begins with `where` it is."""
    if not isinstance(said, dict) or set(said) - _FIELDS or len(said.keys() & {"json", "text", "base64"}) != 1:
        raise MalformedRequest(
            Problem.BAD_REQUEST,
            f"{where} must have one of json, text and base64, and optionally content_type, group_key, guid, headers,"
            " delay, at, priority, ttl, reply, keep, after, regardless and confirm",
        )
    for name, value in said.items():
        kind, fits = _KINDS.get(name, _KINDS["text"])
        if not fits(value):
            raise MalformedRequest(Problem.BAD_REQUEST, f"{where}: {name} must be {kind}")
    told = said.get("headers", {})
    if not isinstance(told, dict) or not all(isinstance(text, str) for text in told.values()):
        raise MalformedRequest(Problem.BAD_REQUEST, f"{where}: headers must be names with strings")
    try:
        match said:
            case {"json": value}:
                body, kind = json.dumps(value, ensure_ascii=False, allow_nan=False).encode(), negotiation.JSON
            case {"text": text}:
                body, kind = text.encode(), "text/plain; charset=utf-8"
            case _:
                body, kind = b64decode(said["base64"], validate=True), ""
    except ValueError:
        raise MalformedRequest(Problem.BAD_REQUEST, f"{where} cannot be read as bytes") from None
    asks = {
        name: int(said[name]) if name not in requests.TEXTS | requests.FLAGS else said[name]
        for name in requests.HINTS
        if name in said
    }
    guid = paths.item_id(said["guid"], f"{where}: guid") if "guid" in said else ""
    return NewMessage(body, said.get("content_type", kind), said.get("group_key", ""), guid, told, asks)


def _multipart(body: bytes, boundary: str) -> list[NewMessage | Fault]:
    # RFC 2046 §5.1.1: at most 70 characters.
    if not 0 < len(boundary) <= 70 or not boundary.isascii():
        raise MalformedRequest(
            Problem.BAD_REQUEST, "Content-Type: multipart/mixed has a boundary of 1 to 70 characters"
        )
    return _parse_each(_part, _pieces(body, boundary.encode()))


def _pieces(body: bytes, boundary: bytes) -> Iterator[bytes]:
    """Split at the boundary lines; text before the first and after the last is ignored."""
    line = b"\r\n--" + boundary
    body = b"\r\n" + body
    at = body.find(line)
    for _ in range(MOST + 1):
        begin = at + len(line)
        if at < 0 or body[begin : begin + 2] == b"--":
            break
        ends = body.find(b"\r\n", begin)
        at = body.find(line, begin)
        if ends < 0 or at < 0 or body[begin:ends].strip(b" \t"):
            break
        # A part without headers begins with the empty line itself.
        yield body[ends:at]
    if at < 0 or body[at + len(line) : at + len(line) + 2] != b"--":
        raise MalformedRequest(Problem.BAD_REQUEST, f"the parts do not end with the boundary, or are more than {MOST}")


def _part(number: int, piece: bytes) -> NewMessage:
    head, empty, body = piece.partition(b"\r\n\r\n")
    if not empty or len(head) > _PART_HEADER_BYTES:
        raise MalformedRequest(Problem.BAD_REQUEST, f"part {number} has no empty line after its headers")
    lines = [line.partition(b":") for line in head.split(b"\r\n")[1:]]
    if not all(colon for _name, colon, _value in lines):
        raise MalformedRequest(Problem.BAD_REQUEST, f"part {number} has a header without a colon")
    headers = heads.join_fields(((name.strip().lower(), value.strip()) for name, _, value in lines), _PART_HEADER_BYTES)
    encoding = headers.get("content-transfer-encoding", "binary").lower()
    if encoding not in {"7bit", "8bit", "binary"}:
        raise MalformedRequest(Problem.BAD_REQUEST, f"part {number}: HTTP needs no Content-Transfer-Encoding")
    return NewMessage(
        body,
        headers.get("content-type", "text/plain"),
        fields.text(headers, requests.GROUP_KEY),
        requests.idempotency_key(headers),
        requests.read_headers(headers),
        requests.read_hints(headers),
        exact=requests.GUID in headers,
    )
