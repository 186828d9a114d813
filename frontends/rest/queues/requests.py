"""Turns requests into commands. Pure; must not know answers or the core."""

import hashlib
from collections.abc import Mapping
from dataclasses import field
from http import HTTPStatus
from typing import Final

from broker import codec, payloads
from broker.model.commands import Browse, Configure, Declare, Nodes, Publish, Redeem
from broker.model.frozen import frozen
from broker.model.items import headers, trace
from broker.model.items.dependencies import Dependencies
from broker.model.items.hints import NO_HINTS, Hints
from broker.model.items.outcomes import ReplyMode
from broker.model.names import ITEM_ID_BYTES, is_printable
from broker.model.nodes.fields import Decimal, Whole
from broker.model.nodes.nodes import change_config
from broker.model.nodes.options import BY_NAME, MAX_PAYLOAD_BYTES, NodeConfig
from broker.model.nodes.tree import tree_request
from broker.model.positions import Position
from broker.model.problems import MalformedRequest, Problem
from frontends.rest import paths
from frontends.rest.errors import Fault
from frontends.rest.http import fields as request_fields
from frontends.rest.http import negotiation
from frontends.rest.http.values import ApiRequest

GROUP_KEY: Final = "group-key"
HINTS: Final = {
    "delay": "Message-Delay",
    "at": "Message-At",
    "priority": "Message-Priority",
    "ttl": "Message-TTL",
    "reply": "Message-Reply",
    "keep": "Message-Keep",
    "after": "Message-After",
    "regardless": "Message-Regardless",
    "confirm": "Message-Confirm",
}
"""The names of delivery hints in JSON, each with its header."""

TEXTS: Final = frozenset({"at", "after", "confirm"})
FLAGS: Final = frozenset({"reply", "keep", "regardless"})
"""The hints that are texts, or true or false; the others are whole numbers."""

_HINT_FIELDS: Final = frozenset(map(str.lower, HINTS.values()))

ITEM: Final = "item-"
GUID: Final = "idempotency-key"

_DIGITS: Final = 12

WAIT_MOST: Final = 60
"""The longest wait for the end of a message, in seconds."""

NAMES_A_LOOK: Final = 1_000


@frozen
class NewMessage:
    """A message to send: body, content type and metadata. `exact`: a repeat with different content is refused."""

    body: bytes
    content_type: str
    key: str = ""
    guid: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    asks: Mapping[str, str | int] = field(default_factory=dict)
    exact: bool = False


def options(request: ApiRequest) -> dict[str, tuple[str, ...]]:
    """Read the options of a queue, `{"options": {NAME: VALUE}}`; none without a body."""
    if not request.body:
        return {}
    if not negotiation.is_json(request.headers.get("content-type", "")):
        raise Fault(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "media-type-unknown",
            f"options must be {negotiation.JSON}",
            ACCEPT_PATCH,
        )
    said = request_fields.parse_json(request.body)
    if not isinstance(said, dict) or set(said) - {"options"} or not isinstance(said.get("options", {}), dict):
        raise MalformedRequest(Problem.BAD_REQUEST, 'the body must be {"options": {NAME: VALUE, …}}')
    return {name: (_value(name, value),) for name, value in said.get("options", {}).items()}


ACCEPT_PATCH: Final = {"Accept-Patch": negotiation.JSON}


def declare(request: ApiRequest) -> Declare:
    """Create a queue, under a generated name if the path has none."""
    wanted = options(request)
    # Validate first, so that a client learns about wrong options even if the queue exists.
    change_config(NodeConfig(), tree_request(wanted)[0])
    return Declare(request.path.node or None, request.sender, wanted)


def configure(request: ApiRequest) -> Configure:
    """Change options of a queue."""
    return Configure(request.path.node, request.sender, options(request))


def publish(request: ApiRequest, item_id: str | None, ticket: str = "") -> Publish:
    """Publish the body of the request."""
    kind, key = request.headers.get("content-type", ""), request_fields.text(request.headers, GROUP_KEY)
    exact = bool(ticket) and GUID in request.headers
    sent = NewMessage(
        request.body, kind, key, headers=read_headers(request.headers), asks=read_hints(request.headers), exact=exact
    )
    return message(request, sent, item_id, ticket)


def message(request: ApiRequest, sent: NewMessage, item_id: str | None, ticket: str) -> Publish:
    """Publish one message, which joins the trace of its request, if any."""
    if sent.key and (not is_printable(sent.key) or len(sent.key.encode()) > ITEM_ID_BYTES):
        raise MalformedRequest(Problem.BAD_REQUEST, f"Group-Key has at most {ITEM_ID_BYTES} printable bytes")
    for name, text in sent.headers.items():
        # Messages may be delivered in XML, which has no control characters.
        if not is_printable(name + text):
            raise MalformedRequest(Problem.PAYLOAD_INVALID, f"the header {name[:80]!a} is not printable")
    said = headers.validate_headers(sent.headers.items()) if sent.headers else {}
    traced: Mapping[str, str] = {}
    if trace.PARENT in request.headers:
        traced = trace.headers(request.headers[trace.PARENT], request.headers.get(trace.STATE))
    envelope = pack_envelope(sent.body, sent.content_type, {**said, **traced})
    size = len(sent.body) + (headers.size(said) if said else 0)
    asked_hints, digest = hints(sent.asks), _digest(sent, said) if sent.exact else ""
    return Publish(
        request.path.node,
        request.sender,
        item_id,
        envelope,
        size,
        ticket,
        key=sent.key,
        hints=asked_hints,
        digest=digest,
    )


def pack_envelope(body: bytes, content_type: str, headers: Mapping[str, str]) -> bytes:
    """Pack the envelope of a message; raises MalformedRequest if it is too big for any queue, Fault for a wrong content type."""
    if len(body) > MAX_PAYLOAD_BYTES:
        raise MalformedRequest(
            Problem.PAYLOAD_TOO_BIG, f"the body has {len(body)} bytes, a message at most {MAX_PAYLOAD_BYTES}"
        )
    kind = content_type.strip()
    if kind and not payloads.is_type(kind):
        raise Fault(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "media-type-invalid", "Content-Type is not TYPE/SUBTYPE with parameters"
        )
    return codec.pack(payloads.make_envelope(body, kind, headers))


def _digest(sent: NewMessage, said: Mapping[str, str]) -> str:
    """Return a digest of a message's content, without its trace."""
    told = repr((sent.body, sent.content_type, sent.key, sorted(said.items()), sorted(sent.asks.items())))
    return hashlib.blake2b(told.encode(), digest_size=12).hexdigest()


def read_hints(fields: Mapping[str, str]) -> dict[str, str | int]:
    """Read the delivery hints from headers."""
    if _HINT_FIELDS.isdisjoint(fields):
        return {}
    return {header: fields[header.lower()] for header in HINTS.values() if header.lower() in fields}


def hints(said: Mapping[str, str | int]) -> Hints:
    """Validate delivery hints by their client's names: whole numbers, times in seconds, when as in RFC 3339, flags, ids."""
    if not said:
        return NO_HINTS
    found = {name: (each, said[each]) for name, header in HINTS.items() for each in (name, header) if each in said}
    delay, priority, ttl = (_count(*found[name]) if name in found else None for name in ("delay", "priority", "ttl"))
    delay_ms = None if delay is None else delay * 1000
    try:
        at = str(found["at"][1]) if "at" in found else None
        reply, keep, regardless = (name in found and _flag(*found[name]) for name in ("reply", "keep", "regardless"))
        after = Dependencies.parse_names(str(found["after"][1]) if "after" in found else "", regardless=regardless)
        mode = ReplyMode.KEPT if reply or keep else ReplyMode.NONE
        confirm = str(found["confirm"][1]) if "confirm" in found else None
        ttl_ms = None if ttl is None else ttl * 1000
        return Hints.validate(delay_ms, priority, ttl_ms, mode, after, at=at, confirm=confirm)
    except MalformedRequest as wrong:
        raise MalformedRequest(wrong.problem, f"{', '.join(said)}: {wrong.detail}") from None


def _count(name: str, value: str | int) -> int:
    if isinstance(value, int):
        return value
    if value.isascii() and value.isdigit() and len(value) <= _DIGITS:
        return int(value)
    raise MalformedRequest(Problem.BAD_REQUEST, f"{name} must be a whole number")


def _flag(name: str, value: str | int) -> bool:
    if value not in {"true", "false", True, False}:
        raise MalformedRequest(Problem.BAD_REQUEST, f"{name} must be true or false")
    return value in {"true", True}


def read_headers(fields: Mapping[str, str]) -> dict[str, str]:
    """Read the item's headers from `Item-NAME` fields: names in lower case, as in HTTP, values in UTF-8."""
    return {name.removeprefix(ITEM): request_fields.text(fields, name) for name in fields if name.startswith(ITEM)}


def publish_once(request: ApiRequest, guid: str) -> Publish:
    """Publish once under a client's id, which is also the ticket: it counts even after the item is gone (RX7)."""
    return publish(request, guid, guid)


def guid(request: ApiRequest) -> str:
    """Read the client's id of a message, `guid` or the header `Idempotency-Key`; empty if absent."""
    given = []
    if "guid" in request.query:
        given.append(paths.item_id(request.query["guid"], "guid"))
    if GUID in request.headers:
        given.append(idempotency_key(request.headers))
    if len(set(given)) > 1:
        raise MalformedRequest(Problem.BAD_REQUEST, "guid and Idempotency-Key differ")
    return given[0] if given else ""


def idempotency_key(fields: Mapping[str, str]) -> str:
    """Read the header `Idempotency-Key`: a string of RFC 9651, whose quotes many clients omit; empty if absent."""
    if GUID not in fields:
        return ""
    return paths.item_id(request_fields.text(fields, GUID).removeprefix('"').removesuffix('"'), "Idempotency-Key")


def redeem(request: ApiRequest) -> Redeem:
    """Send the body of a reserved message."""
    whole = publish(request, request.path.item)
    return Redeem(whole.node, whole.sender, request.path.item, whole.envelope, whole.body_bytes, whole.key, whole.hints)


def browse(request: ApiRequest) -> Browse | None:
    """Browse a page of messages; None when an earlier page had the last of them."""
    after = request.query.get("after")
    if after == "":
        return None
    try:
        begin = None if after is None else Position.parse(after)
    except ValueError:
        raise MalformedRequest(Problem.BAD_REQUEST, "after: use the value from the link to the next page") from None
    return Browse(request.path.node, request.sender, (), request_fields.page(request), begin)


def wait(request: ApiRequest) -> int:
    """Read how many seconds to wait for the end of a message."""
    text = request.query.get("wait", "0")
    seconds = int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else WAIT_MOST + 1
    if seconds > WAIT_MOST:
        raise MalformedRequest(Problem.BAD_REQUEST, f"wait must be a whole number from 0 to {WAIT_MOST}")
    return seconds


def names(request: ApiRequest) -> Nodes | None:
    """List names of queues; None when an earlier page had the last of them."""
    below = request.query.get("below")
    return None if below == "" else Nodes(request.sender, NAMES_A_LOOK, below or "")


def list_after(request: ApiRequest, name: str) -> Nodes:
    """List the names after one."""
    return Nodes(request.sender, NAMES_A_LOOK, name)


def _value(name: str, value: object) -> str:
    """Write an option's value as in forms: booleans for boolean options, numbers for these and numeric ones, or any text."""
    option, number = BY_NAME.get(name), request_fields.read_whole(value)
    match value:
        case str():
            return value
        case bool() if option is None or option.kind == "boolean":
            return "1" if value else "0"
        case float() if option is not None and isinstance(option.read, Decimal):
            # To milliseconds: JSON has no decimals, and 0.1 + 0.2 is meant as 0.3.
            return f"{value:.3f}"
    if number is not None and (option is None or option.kind == "boolean" or isinstance(option.read, Whole | Decimal)):
        return str(number)
    raise MalformedRequest(Problem.BAD_REQUEST, f"{name[:80]}: a value must be a string, a number, or true or false")
