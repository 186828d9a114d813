"""What the RESTful Queue (docs/rest.md) says and is told: messages, refusals, events. Pure; must not know connections."""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qs, quote, urlsplit

from stanzaq.errors import StanzaqError
from stanzaq.retry import Release
from stanzaq.transport import traceparent
from stanzaq.transport.interface import Content, Delivery, Hints, Lock, Outcome, Outgoing, Progress, Scheduling, line

UNAUTHORIZED: Final = HTTPStatus.UNAUTHORIZED

EXPIRED: Final = "not-authorized"
"""The condition of a refusal that may pass: there is a newer token than the one that was refused."""

_PASSING: Final = {
    # Of a stream whose token has expired. Other requests are judged by whether there is a newer one.
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.TOO_MANY_REQUESTS,
}
_LASTING: Final = {HTTPStatus.NOT_IMPLEMENTED, HTTPStatus.HTTP_VERSION_NOT_SUPPORTED}

_CONDITIONS: Final = {
    HTTPStatus.BAD_REQUEST: "bad-request",
    HTTPStatus.UNAUTHORIZED: "not-authorized",
    HTTPStatus.FORBIDDEN: "forbidden",
    HTTPStatus.NOT_FOUND: "item-not-found",
    HTTPStatus.METHOD_NOT_ALLOWED: "not-allowed",
    HTTPStatus.CONFLICT: "conflict",
    HTTPStatus.GONE: "gone",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "not-acceptable",
    HTTPStatus.UNPROCESSABLE_ENTITY: "not-acceptable",
    HTTPStatus.TOO_MANY_REQUESTS: "policy-violation",
    HTTPStatus.INTERNAL_SERVER_ERROR: "internal-server-error",
    HTTPStatus.SERVICE_UNAVAILABLE: "service-unavailable",
    HTTPStatus.GATEWAY_TIMEOUT: "remote-server-timeout",
    HTTPStatus.INSUFFICIENT_STORAGE: "resource-constraint",
}
"""The names of errors over XMPP, where programs look for them (RFC 6120 §8.3.3, XEP-0086)."""

ENDED: Final = frozenset({"item-not-found", "conflict", "forbidden", "gone"})
"""The errors for a lock that the worker no longer holds."""


_ENDS: Final = frozenset({"acknowledged", "dead", "cancelled", "expired"})


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error answer; `seconds` is the time that the service wants to be left alone."""

    condition: str
    detail: str
    passing: bool = False
    seconds: float = 0.0

    def fault(self, what: str) -> StanzaqError:
        """Return the exception for a request that could not do `what`."""
        told = f" ({self.detail})" if self.detail else ""
        return StanzaqError(f"cannot {what}: {self.condition}{told}", self.condition)


def refusal(status: int, body: bytes, seconds: float = 0.0) -> Refusal:
    """Read an error answer: a problem document (RFC 9457), or the text of a gateway."""
    try:
        said = json.loads(body)
    except ValueError:
        said = None
    return _refusal(status, said.get("detail", "") if isinstance(said, dict) else "", seconds)


def problem(document: Mapping[str, Any]) -> Refusal:
    """Read a problem document; one of several results names its own time to wait."""
    return _refusal(document["status"], document["detail"], document.get("retry_after", 0.0))


def _refusal(status: int, detail: str, seconds: float = 0.0) -> Refusal:
    condition = _CONDITIONS.get(HTTPStatus(status)) if status in set(HTTPStatus) else None
    return Refusal(condition or f"HTTP status {status}", detail, _is_passing(status), seconds)


def _is_passing(status: int) -> bool:
    """Return whether the same request may succeed later: after faults of the service, and of gateways, whatever their codes."""
    return status in _PASSING or (status >= HTTPStatus.INTERNAL_SERVER_ERROR and status not in _LASTING)


@dataclass(frozen=True, slots=True)
class HttpOutcomes:
    """The answer to a request about several messages: the refusals, by what names a message in it."""

    refusals: Mapping[str, Refusal]


def outcomes(names: Iterable[str], document: Mapping[str, Any]) -> HttpOutcomes:
    """Read the result of each message, in the order of the request."""
    results = zip(names, document["results"], strict=True)
    return HttpOutcomes({name: problem(each) for name, each in results if each["status"] >= HTTPStatus.BAD_REQUEST})


def batch_body(rows: Iterable[str]) -> Content:
    """Return the body of a request about several messages."""
    return Content(f"[{','.join(rows)}]".encode(), "application/json")


def acknowledgements(subscription: str, rows: Iterable[str], more: int) -> tuple[str, Content]:
    """Return the path and the body that acknowledge messages of a subscription, and receive so many more."""
    return f"{subscription}/acknowledgements" + (f"?next={more}" if more else ""), batch_body(rows)


def subscription(node: str, credit: int, seconds: int) -> dict[str, Any]:
    """Request items, at most `credit` at once, for as long as the stream lasts and `seconds` after it broke."""
    return {"destinations": node, "prefetch": credit, "lease": seconds}


def _segment(name: str) -> str:
    """Write a name in a path; dots alone would be taken for steps in the tree."""
    return f"={name}" if name in {".", ".."} else quote(name, safe="")


def queue_path(node: str) -> str:
    """Return the path of a node."""
    return f"/queues/{_segment(node)}"


def affiliations_path(node: str) -> str:
    """Return the path of a node's affiliations."""
    return f"/affiliations/{_segment(node)}"


def requests_path(node: str) -> str:
    """Return the path of the requests to subscribe to a node."""
    return f"/requests/{_segment(node)}"


def batch_path(node: str) -> str:
    """Return the path to publish at, whose JSON names headers of any name."""
    return f"/batches/{_segment(node)}"


def message(
    item: str, content: Content, headers: Mapping[str, str], hints: Hints
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return an item as it is in a batch, and the trace headers of its request."""
    traced, headers = traceparent.split(headers)
    try:
        body = {"text": content.body.decode()}
    except UnicodeDecodeError:
        body = {"base64": base64.b64encode(content.body).decode()}
    asked: dict[str, Any] = {
        "group_key": hints.key,
        "headers": headers,
        "delay": round(hints.delay),
        "at": None if hints.at is None else datetime.fromtimestamp(hints.at, UTC).isoformat(),
        "priority": hints.priority,
        "ttl": None if hints.ttl is None else max(1, round(hints.ttl)),
        "reply": hints.reply,
        "keep": hints.keep,
        "after": hints.parents,
        "regardless": hints.regardless,
        "confirm": hints.confirm,
    }
    given = {name: value for name, value in asked.items() if value or (name == "priority" and value is not None)}
    return {**body, "content_type": content.type, "guid": item, **given}, traced


def completion(result: Content | None, then: Sequence[Outgoing]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the body that acknowledges with a result and with items to publish, and the trace headers of its request."""
    written = [(each.node, message(each.item, each.content, each.headers, each.hints)) for each in then]
    said: dict[str, Any] = {"then": [{**each, "queue": node} for node, (each, _) in written]}
    if result is not None:
        told, _ = message("", result, {}, Hints())
        said["result"] = {name: value for name, value in told.items() if name != "guid"}
    return said, written[0][1][1]


def schedule_path(node: str, name: str) -> str:
    """Return the path of a schedule."""
    return f"/schedule/{_segment(node)}/{_segment(name)}"


def schedules_path(node: str) -> str:
    """Return the path of a node's schedules."""
    return f"/schedules/{_segment(node)}"


def schedule(request: Scheduling) -> dict[str, Any]:
    """Return the body that makes a schedule."""
    said, _ = message("", request.content, request.headers, request.hints)
    return {**{name: value for name, value in said.items() if name != "guid"}, **request.when}


def cancellation(node: str, item: str) -> tuple[str, dict[str, Any]]:
    """Return the path and the body that cancel one item."""
    return f"/cancellations/{_segment(node)}", {"items": [item]}


def read_refused_item(document: Mapping[str, Any]) -> Refusal | None:
    """Read the result of the one item that was sent or cancelled; None if that is done."""
    (result,) = document["results"]
    return None if result["status"] < HTTPStatus.BAD_REQUEST else problem(result)


def release(how: Release) -> tuple[str, dict[str, Any]]:
    """Return which of a message's addresses returns it, and the body. Delays are whole seconds on the wire."""
    reason = line(how.reason)
    if how.dead:
        return "dead_letter", {"reason": reason}
    return "release", {"reason": reason, "delay": round(how.delay)} | ({"untried": True} if how.untried else {})


def renewal(progress: Progress | None, *, begun: bool) -> dict[str, Any]:
    """Return the body of a renewal that tells how far a job is, or that it has begun."""
    said: dict[str, Any] = {"begun": True} if begun else {}
    if progress is None:
        return said
    said |= {} if progress.share is None else {"progress": round(progress.share, 3)}
    return said | {"note": line(progress.note)}


def ended_path(node: str, item: str, seconds: int) -> str:
    """Return the path at which to wait so long for the end of an item."""
    return f"/messages/{_segment(node)}/{_segment(item)}?wait={seconds}"


def read_end(document: Mapping[str, Any]) -> Outcome | None:
    """Read how an item has ended; None if it has not."""
    if document["state"] not in _ENDS:
        return None
    result = document.get("result")
    return Outcome(
        document["state"],
        document["reason"],
        None if result is None else Content(_body(result), result["content_type"]),
    )


def _body(result: Mapping[str, Any]) -> bytes:
    return str(result["text"]).encode() if "text" in result else base64.b64decode(result["base64"])


@dataclass(frozen=True, slots=True)
class Addresses:
    """The paths that end and renew the lock of a message; `complete` takes a result, and `then` items, if the service does."""

    acknowledge: str
    release: str
    dead_letter: str
    renew: str
    complete: str
    then: str
    subscription: str

    @classmethod
    def of(cls, message: Mapping[str, Any], subscription: str) -> "Addresses":
        """Read them from a message that a subscription holds."""
        return cls(
            message["href"],
            message["release"],
            message["dead_letter"],
            message["renew"],
            message.get("complete", ""),
            message.get("then", ""),
            subscription,
        )


def delivery(message: Mapping[str, Any]) -> Delivery:
    """Read a held message."""
    body = _body(message)
    return Delivery(
        lock(message),
        message["attempt"],
        message["max_attempts"],
        moment(message["expires"]),
        Content(body, message["content_type"]),
        message["headers"],
        message["group_key"],
        moment(message["published"]),
        reply=message.get("reply", False),
    )


def lock(message: Mapping[str, Any]) -> Lock:
    """Read the lock of a held message; its address names the partition."""
    (text,) = parse_qs(urlsplit(message["href"]).query)["lock"]
    return Lock(message["queue"], message["id"], message["token"], int(text.partition("-")[0]))


def moment(text: str) -> datetime:
    """Read a time."""
    return datetime.fromisoformat(text)


class Events:
    """Reads `text/event-stream` (HTML standard §9.2) as this service writes it: an event name and one line of JSON each."""

    def __init__(self) -> None:
        """Begin with nothing read."""
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[tuple[str, Any]]:
        """Read what came; yields the events that are complete. Comments keep the stream alive and say nothing."""
        *blocks, self._rest = (self._rest + data).split(b"\n\n")
        for block in blocks:
            fields = dict(line.partition(b": ")[::2] for line in block.split(b"\n"))
            if b"data" in fields:
                yield fields.get(b"event", b"message").decode(), json.loads(fields[b"data"])
