"""Refusals as problem documents (RFC 9457). Must not know requests."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from broker.model.problems import MalformedRequest
from broker.model.results import Refused
from frontends.errors import ERRORS

MEDIA: Final = "application/problem+json"
TYPE: Final = "urn:stanzaq:0:problem:"

RETRY_SECONDS: Final = 1
"""Seconds until the next attempt after a temporary problem."""

_WAITS: Final = {
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
    HTTPStatus.INSUFFICIENT_STORAGE,
}


class Fault(Exception):  # noqa: N818  (named after what it is)
    """A refusal in HTTP's terms; `code` is stable like a problem's."""

    def __init__(self, status: HTTPStatus, code: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        """Keep status, code, detail and headers."""
        super().__init__(f"{code}: {detail}")
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = headers or {}


def headers_too_large() -> Fault:
    """Return the refusal of a large head, which two places use."""
    detail = "the headers are too large"
    return Fault(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "headers-too-large", detail)


def target_too_long() -> Fault:
    """Return the refusal of a long target, which two places use (RFC 9110 §15.5.15)."""
    return Fault(HTTPStatus.REQUEST_URI_TOO_LONG, "target-too-long", "the target is too long")


def method_unknown() -> Fault:
    """Return the refusal of a method that is not of HTTP, which two places use (RFC 9110 §15.6.2)."""
    return Fault(HTTPStatus.NOT_IMPLEMENTED, "method-unknown", "the method is unknown")


def version_unknown() -> Fault:
    """Return the refusal of another version of HTTP, which two places use (RFC 9110 §15.6.6)."""
    close = {"Connection": "close"}
    return Fault(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "version-unknown", "only HTTP/1.1 is supported", close)


def fault(refusal: Refused | MalformedRequest) -> Fault:
    """Turn a refusal of the core or a translator into HTTP's terms."""
    status = HTTPStatus(ERRORS[refusal.problem].http)
    headers = {"Retry-After": str(-(-refusal.wait_ms // 1000) or RETRY_SECONDS)} if status in _WAITS else {}
    return Fault(status, refusal.problem.value, refusal.detail, headers)


def document(told: Fault) -> dict[str, object]:
    """Return the problem document."""
    return {
        "type": f"{TYPE}{told.code}",
        "title": told.code.replace("-", " "),
        "status": told.status.value,
        "detail": told.detail or told.status.description or told.status.phrase,
    }


def row(told: Fault) -> dict[str, object]:
    """Return the problem document of one of several results: its own time to wait is a member, for want of headers."""
    seconds = told.headers.get("Retry-After")
    return {**document(told), **({"retry_after": int(seconds)} if seconds else {})}


def write_problem(told: Fault) -> bytes:
    """Write the problem document."""
    return json.dumps(document(told)).encode()
