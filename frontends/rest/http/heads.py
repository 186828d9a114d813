"""Validates the head of a request before anything else: target, version, fields (RFC 9110, RFC 9112).

Pure; llhttp has already refused what is not HTTP. Must not know paths or the meaning of fields.
"""

import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Final

from broker.model.frozen import frozen
from broker.model.problems import MalformedRequest, Problem
from frontends.rest.errors import Fault, headers_too_large, method_unknown, target_too_long, version_unknown

METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE", "QUERY"})
"""All known methods, whether any resource supports them or not (RFC 9110 §9.1)."""

EVERYTHING: Final = b"*"
"""The target of an OPTIONS request for the whole server (RFC 9112 §3.2.4)."""

_ONCE: Final = frozenset(
    {
        "authorization",
        "content-type",
        "group-key",
        "idempotency-key",
        "message-after",
        "message-at",
        "message-confirm",
        "message-delay",
        "message-keep",
        "message-priority",
        "message-regardless",
        "message-reply",
        "message-ttl",
        "origin",
        "sec-fetch-site",
        "x-request-id",
    }
)
"""Fields with a single value: of two, the meaning would be unclear (RFC 9110 §5.3)."""
_ITEM: Final = "item-"

_ABSOLUTE: Final = re.compile(rb"(?i:https?)://([^/?#]*)(/.*)?")
_HOST: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)(?::[0-9]*)?")


@frozen
class Head:
    """A valid head: the path of its target, and its fields by name in lower case."""

    path: bytes
    fields: Mapping[str, str]


def read(version: str, method: str, target: bytes, raw: Iterable[tuple[bytes, bytes]], most_bytes: int) -> Head:
    """Validate a head; `target` excludes the query. Raises Fault or MalformedRequest."""
    fields = join_fields(raw, most_bytes)
    if not version.startswith("1."):
        raise version_unknown()
    if method not in METHODS:
        raise method_unknown()
    if len(target) > most_bytes:
        raise target_too_long()
    _check_framing(version, fields)
    if "content-range" in fields and method == "PUT":
        # RFC 9110 §14.5: a part must not be stored as the whole.
        raise MalformedRequest(Problem.BAD_REQUEST, "Content-Range: partial bodies are not supported")
    if fields.get("expect", "100-continue").lower() != "100-continue":
        raise Fault(HTTPStatus.EXPECTATION_FAILED, "expectation-unknown", "Expect: only 100-continue is supported")
    path, host = _target(method, target)
    # RFC 9112 §3.2.2: the host in the target replaces that of the field.
    fields |= {"host": host} if host else {}
    # RFC 9112 §3.2: HTTP/1.0 knows no such field.
    if ("host" not in fields and version != "1.0") or not _HOST.fullmatch(fields.get("host", "")):
        detail = "Host: it must be there, once, and be a name, optionally with a port"
        raise Fault(HTTPStatus.BAD_REQUEST, Problem.BAD_REQUEST.value, detail, {"Connection": "close"})
    return Head(path, fields)


def join_fields(raw: Iterable[tuple[bytes, bytes]], most_bytes: int) -> dict[str, str]:
    """Return fields by name, in lower case already; repeated ones are joined as lists (RFC 9110 §5.3).

    Raises MalformedRequest if one is repeated that has a single value, Fault if they are too large.
    """
    size, found = 0, dict[str, str]()
    for name_bytes, value in raw:
        size += len(name_bytes) + len(value)
        # The server gives names in lower case.
        name, text = name_bytes.decode("latin-1"), value.decode("latin-1")
        if name not in found:
            found[name] = text
        elif name in _ONCE or name.startswith(_ITEM):
            raise MalformedRequest(Problem.BAD_REQUEST, f"{name[:80]} is repeated")
        else:
            found[name] = f"{found[name]}, {text}"
    # The connection limits a head that arrives in parts, but not one that arrives at once.
    if size > most_bytes:
        raise headers_too_large()
    return found


def _check_framing(version: str, fields: Mapping[str, str]) -> None:
    """Refuse a body whose end two parsers could see in different places (RFC 9112 §6.1, §6.3)."""
    if "transfer-encoding" in fields and ("content-length" in fields or version == "1.0"):
        detail = "a body has either Content-Length or, from HTTP/1.1 on, Transfer-Encoding"
        raise Fault(HTTPStatus.BAD_REQUEST, Problem.BAD_REQUEST.value, detail, {"Connection": "close"})


def _target(method: str, target: bytes) -> tuple[bytes, str]:
    """Return the path of a target, and its host if it has one."""
    if target.startswith(b"/") or (target == EVERYTHING and method == "OPTIONS"):
        return target, ""
    absolute = _ABSOLUTE.fullmatch(target)
    # RFC 9110 §4.2.1, §4.2.4: the host is required, and user information is forbidden.
    if absolute is None or not absolute[1] or b"@" in absolute[1]:
        raise MalformedRequest(Problem.BAD_REQUEST, "the target must be a path, or http://HOST/PATH")
    return absolute[2] or b"/", absolute[1].decode("ascii")
