"""Parses URL paths into resources, and writes them. Pure; must not know methods or existing queues.

A queue's name is one percent-encoded segment or a path with slashes (RX4): `/queues/uk%2Fproducts` and `/queues/uk/products`
are one resource. A dot is an ordinary character.
"""

import re
from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from broker.model.frozen import frozen
from broker.model.names import ITEM_ID_BYTES, NODE_NAME_BYTES, is_printable
from broker.model.problems import MalformedRequest, Problem

_SEGMENT: Final = re.compile(rb"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})*")
"""The characters allowed in a segment (RFC 3986 §3.3)."""
_SAFE: Final = ":@"
_STEPS: Final = frozenset({"", ".", ".."})
_DOTS: Final = {b"=.": ".", b"=..": ".."}
"""How a name that clients and proxies take for a step in the tree is written (RFC 3986 §6.2.2): no other is written with `=`."""

QUEUES: Final = "/queues"
QUEUE: Final = "/queues/{queue}"
MESSAGE: Final = "/messages/{queue}/{message}"
CONTENT: Final = "/contents/{queue}/{message}"
BATCH: Final = "/batches/{queue}"
SUBSCRIPTIONS: Final = "/subscriptions"
SUBSCRIPTION: Final = "/subscriptions/{subscription}"
ACKNOWLEDGEMENTS: Final = "/subscriptions/{subscription}/acknowledgements"
HELD: Final = "/subscriptions/{subscription}/messages/{message}"
RELEASE: Final = f"{HELD}/release"
RENEW: Final = f"{HELD}/renew"
COMPLETE: Final = f"{HELD}/complete"
THEN: Final = f"{HELD}/then"
DEAD_LETTER: Final = f"{HELD}/dead-letter"
OVERVIEW: Final = "/overview"
FRONTENDS: Final = "/frontends"
QUOTAS: Final = "/quotas"
QUOTA: Final = "/quotas/{subject}"
SURVEY: Final = "/surveys/{queue}"
SUBSCRIBERS: Final = "/subscribers/{queue}"
AFFILIATIONS: Final = "/affiliations/{queue}"
REQUESTS: Final = "/requests/{queue}"
HISTORIES: Final = "/histories/{queue}"
ENDS: Final = "/ends/{queue}"
REDRIVES: Final = "/redrives/{queue}"
RELEASES: Final = "/releases/{queue}"
CANCELLATIONS: Final = "/cancellations/{queue}"
PURGES: Final = "/purges/{queue}"
SCHEDULES: Final = "/schedules/{queue}"
SCHEDULE: Final = "/schedule/{queue}/{schedule}"
OPENAPI: Final = "/openapi.json"
UI: Final = "/ui"
SIGN_ON: Final = "/sign-on"
UI_FILE: Final = "/ui/{file}"

_ALONE: Final = {
    path.encode(): path for path in (QUEUES, SUBSCRIPTIONS, OVERVIEW, FRONTENDS, QUOTAS, OPENAPI, SIGN_ON, UI)
} | {b"/ui/": UI_FILE}
_OF_QUEUES: Final = {
    b"queues": QUEUE,
    b"batches": BATCH,
    b"surveys": SURVEY,
    b"subscribers": SUBSCRIBERS,
    b"affiliations": AFFILIATIONS,
    b"requests": REQUESTS,
    b"histories": HISTORIES,
    b"ends": ENDS,
    b"redrives": REDRIVES,
    b"releases": RELEASES,
    b"cancellations": CANCELLATIONS,
    b"purges": PURGES,
    b"schedules": SCHEDULES,
}
_OF_MESSAGES: Final = {b"messages": MESSAGE, b"contents": CONTENT, b"schedule": SCHEDULE}
_OF_NOTHING: Final = {b"ui": UI_FILE, b"quotas": QUOTA}
"""Roots with one name below, of a file or of the subject of a quota."""
_ACTIONS: Final = {
    "complete": COMPLETE,
    "then": THEN,
    "release": RELEASE,
    "renew": RENEW,
    "dead-letter": DEAD_LETTER,
}


@frozen
class ResourcePath:
    """A parsed path: its pattern, and its queue, message, subscription, file or subject."""

    pattern: str
    node: str = ""
    item: str = ""
    subscription: str = ""


@lru_cache(maxsize=256)
def read(raw: bytes) -> ResourcePath | None:
    """Parse a raw path; None when no resource has this form. Raises MalformedRequest."""
    if raw in _ALONE:
        return ResourcePath(_ALONE[raw])
    root, *segments = raw.removeprefix(b"/").split(b"/")
    if not segments:
        return None
    if root == b"subscriptions":
        return _read_subscription_path([_decode(segment) for segment in segments])
    if root in _OF_QUEUES:
        return ResourcePath(_OF_QUEUES[root], node([_decode(segment) for segment in segments]))
    if root in _OF_MESSAGES and len(segments) > 1:
        names = [_decode(segment) for segment in segments]
        return ResourcePath(_OF_MESSAGES[root], node(names[:-1]), item_id(names[-1], "the path"))
    single = root in _OF_NOTHING and len(segments) == 1
    return ResourcePath(_OF_NOTHING[root], item=_decode(segments[0])) if single else None


def _read_subscription_path(names: list[str]) -> ResourcePath | None:
    match names:
        case [subscription]:
            return ResourcePath(SUBSCRIPTION, subscription=subscription)
        case [subscription, "acknowledgements"]:
            return ResourcePath(ACKNOWLEDGEMENTS, subscription=subscription)
        case [subscription, "messages", item]:
            return ResourcePath(HELD, item=item_id(item, "the path"), subscription=subscription)
        case [subscription, "messages", item, action] if action in _ACTIONS:
            return ResourcePath(_ACTIONS[action], item=item_id(item, "the path"), subscription=subscription)
    return None


def item_id(text: str, where: str) -> str:
    """Validate the id of a message."""
    if not text or not is_printable(text) or len(text.encode()) > ITEM_ID_BYTES:
        raise MalformedRequest(
            Problem.ITEM_ID_INVALID, f"{where}: a message's id has 1 to {ITEM_ID_BYTES} printable bytes"
        )
    return text


def queue(node: str) -> str:
    """Return the path of a queue."""
    return f"{QUEUES}/{_encode(node)}"


def message(node: str, item: str) -> str:
    """Return the path of a message."""
    return f"/messages/{_encode(node)}/{_segment(item)}"


def content(node: str, item: str) -> str:
    """Return the path of a message's body."""
    return f"/contents/{_encode(node)}/{_segment(item)}"


def held_message(subscription: str, item: str) -> str:
    """Return the path of a message that a subscription holds."""
    return f"{SUBSCRIPTIONS}/{subscription}/messages/{_segment(item)}"


def schedules(node: str) -> str:
    """Return the path of a queue's schedules."""
    return f"/schedules/{_encode(node)}"


def schedule(node: str, name: str) -> str:
    """Return the path of a schedule."""
    return f"/schedule/{_encode(node)}/{_segment(name)}"


def survey(node: str) -> str:
    """Return the path of the owner's view of a queue's items."""
    return f"/surveys/{_encode(node)}"


def _decode(segment: bytes) -> str:
    if segment in _DOTS:
        return _DOTS[segment]
    if not _SEGMENT.fullmatch(segment):
        raise MalformedRequest(
            Problem.BAD_REQUEST, "the path: a character in it is to be written as % and two hexadecimal digits"
        )
    try:
        text = unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        raise MalformedRequest(Problem.BAD_REQUEST, "the path is not UTF-8") from None
    # Clients and proxies drop these, even when encoded.
    if text in _STEPS:
        raise MalformedRequest(Problem.NODE_NAME_INVALID, "the path: no segment is empty, . or ..")
    return text


def node(names: list[str], where: str = "the path") -> str:
    """Validate the name of a queue, given its parts."""
    name = "/".join(names)
    if not is_printable(name) or len(name.encode()) > NODE_NAME_BYTES:
        raise MalformedRequest(
            Problem.NODE_NAME_INVALID, f"{where}: a queue's name has 1 to {NODE_NAME_BYTES} printable bytes"
        )
    return name


@lru_cache(maxsize=256)
def _encode(node: str) -> str:
    return quote(node, safe=f"/{_SAFE}") if _STEPS.isdisjoint(node.split("/")) else _segment(node)


def _segment(name: str) -> str:
    return f"={name}" if name in _STEPS else quote(name, safe=_SAFE)
