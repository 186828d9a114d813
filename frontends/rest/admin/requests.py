"""Turns requests into commands of owners and administrators. Pure; must not know answers or the core."""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

from broker.model.commands import (
    Affiliate,
    Approve,
    Cancel,
    InspectItems,
    ListQuotas,
    MoveItems,
    Overview,
    Release,
    SetQuota,
)
from broker.model.frozen import frozen
from broker.model.items.headers import MOST
from broker.model.names import Jid, read_affiliate, read_jid
from broker.model.nodes.nodes import Affiliation
from broker.model.nodes.quotas import FIELDS, Quota
from broker.model.problems import MalformedRequest, Problem
from frontends.rest import paths
from frontends.rest.errors import Fault
from frontends.rest.http import fields, negotiation
from frontends.rest.http.values import ApiRequest

REDRIVEN_MOST: Final = 100
RELEASED_MOST: Final = 200
CANCELLED_MOST: Final = 100
STEP: Final = 200
"""The items that one redrive request examines; its answer has the position to continue from."""

DEAD_REASON: Final = "stanzaq-dead-reason"
"""The header of a dead letter that says of what it died."""

SCAN_MOST: Final = 100
REASON_MOST: Final = 1_024
_WAYS: Final = {"items", "reason", "headers", "all"}
JID_MOST: Final = 3_071
AFFILIATIONS: Final = sorted(each.value for each in Affiliation)


def overview(request: ApiRequest) -> Overview:
    """List a page of queues."""
    return Overview(request.sender, fields.first(request), fields.page(request))


def quotas(request: ApiRequest) -> ListQuotas:
    """List all quotas, or those that hold for an owner."""
    owner = request.query.get("owner")
    return ListQuotas(request.sender, None if owner is None else _jid(owner, "owner"))


def quota(request: ApiRequest) -> SetQuota:
    """Set a quota."""
    limits = dict[str, str]()
    for name, value in _read_body(request, set(FIELDS)).items():
        number = fields.read_whole(value)
        if number is None and not isinstance(value, str):
            raise MalformedRequest(Problem.BAD_REQUEST, f"{name}: a whole number, or a text")
        limits[name] = str(value if number is None else number)
    return SetQuota(request.sender, request.path.item, Quota.read(limits))


def survey(request: ApiRequest) -> InspectItems:
    """List a page of items, or the named one; with a key, a header or a reason those that have it."""
    query = request.query
    wanted, scan = query.get("item"), _scan(query.get("scan", ""))
    items = () if wanted is None else (paths.item_id(wanted, "item"),)
    headers = dict[str, str]()
    if "header" in query:
        name, given, headers[name] = query["header"].partition("=")
        if not (name and given):
            raise MalformedRequest(Problem.BAD_REQUEST, "header must be NAME=VALUE")
    if "reason" in query:
        headers[DEAD_REASON] = query["reason"]
    return InspectItems(
        request.path.node,
        request.sender,
        items,
        fields.page(request),
        # A named item is looked up in all partitions at once.
        "" if items else scan,
        query.get("group_key", ""),
        tuple(headers.items()),
    )


@frozen
class Redrive:
    """Which dead letters to redrive, and the position of an earlier step: in the queue itself, or `elsewhere`."""

    node: str
    sender: Jid
    items: tuple[str, ...]
    reason: str
    headers: tuple[tuple[str, str], ...]
    scan: str
    elsewhere: bool

    def step(self, letters: str) -> MoveItems:
        """Return one step through the queue that has the letters."""
        died_in = "" if letters == self.node else self.node
        return MoveItems(letters, self.sender, None, self.items, self.reason, STEP, self.scan, died_in, self.headers)


ELSEWHERE: Final = "letters "
"""The prefix of a scan through the dead letters of the named queue, instead of through that queue."""


def redrive(request: ApiRequest) -> Redrive:
    """Redrive a step of dead letters."""
    said = _read_body(request, {"items", "reason", "headers", "all", "scan"})
    items, reason = _items(said, REDRIVEN_MOST), _text(said, "reason", REASON_MOST)
    scan = _scan(_text(said, "scan", SCAN_MOST))
    headers = _headers(said)
    # A reason and headers may be combined.
    one_way = len({name.replace("headers", "reason") for name in said.keys() & _WAYS}) == 1
    if not one_way or not (items or reason or headers or said.get("all") is True):
        raise MalformedRequest(Problem.BAD_REQUEST, "name items, a reason, headers, or all")
    if items and "scan" in said:
        raise MalformedRequest(Problem.BAD_REQUEST, "scan: named items take one step")
    place = scan.removeprefix(ELSEWHERE)
    return Redrive(request.path.node, request.sender, items, reason, headers, place, elsewhere=place != scan)


def release(request: ApiRequest) -> Release:
    """Force the end of locks."""
    said = _read_body(request, {"items", "holder"})
    items, holder = _items(said, RELEASED_MOST), _text(said, "holder", JID_MOST)
    if len(said) != 1 or not (items or holder):
        raise MalformedRequest(Problem.BAD_REQUEST, "name either items or a holder")
    return Release(request.path.node, request.sender, items, _jid(holder, "holder") if holder else None)


def cancel(request: ApiRequest) -> list[Cancel]:
    """Cancel messages."""
    items = _items(_read_body(request, {"items"}), CANCELLED_MOST)
    if not items:
        raise MalformedRequest(Problem.BAD_REQUEST, "name items")
    return [Cancel(request.path.node, request.sender, item) for item in items]


def affiliate(request: ApiRequest) -> Affiliate:
    """Change affiliations, by bare JID or group."""
    said = _read_body(request, {"affiliations"}).get("affiliations")
    if not isinstance(said, dict) or not said or not all(each in AFFILIATIONS for each in said.values()):
        raise MalformedRequest(
            Problem.BAD_REQUEST,
            f"affiliations: an object of bare JIDs, each with one of {', '.join(AFFILIATIONS)}",
        )
    changes = {_jid(text, "affiliations", read_affiliate): affiliation for text, affiliation in said.items()}
    if len(changes) < len(said):
        raise MalformedRequest(Problem.BAD_REQUEST, "affiliations: two names stand for one bare JID")
    return Affiliate(request.path.node, request.sender, changes)


def decide(request: ApiRequest) -> Approve:
    """Approve or refuse a request for a subscription."""
    said = _read_body(request, {"jid", "allow"})
    jid, allow = _text(said, "jid", JID_MOST), said.get("allow")
    if not jid or not isinstance(allow, bool):
        raise MalformedRequest(Problem.BAD_REQUEST, "name a jid, and allow as true or false")
    return Approve(request.path.node, request.sender, _jid(jid, "jid"), "", allow)


def _jid(text: str, where: str, read: Callable[[str], Jid] = read_jid) -> Jid:
    try:
        return read(text)
    except ValueError as fault:
        raise MalformedRequest(Problem.BAD_REQUEST, f"{where}: {fault}") from None


def _read_body(request: ApiRequest, known: set[str]) -> Mapping[str, Any]:
    if not negotiation.is_json(request.headers.get("content-type", "")):
        raise Fault(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "media-type-unknown", f"the body must be {negotiation.JSON}")
    said = fields.parse_json(request.body)
    if not isinstance(said, dict) or set(said) - known:
        raise MalformedRequest(
            Problem.BAD_REQUEST, f"the body must be an object with some of {', '.join(sorted(known))}"
        )
    return said


def _items(said: Mapping[str, Any], most: int) -> tuple[str, ...]:
    given = said.get("items", [])
    if not isinstance(given, list) or len(given) > most or not all(isinstance(each, str) for each in given):
        raise MalformedRequest(Problem.BAD_REQUEST, f"items: at most {most} ids")
    if "items" in said and not given:
        raise MalformedRequest(Problem.BAD_REQUEST, "items: the list is empty")
    return tuple(dict.fromkeys(paths.item_id(each, "items") for each in given))


def _text(said: Mapping[str, Any], name: str, most: int) -> str:
    text = said.get(name, "")
    # JSON allows half a surrogate pair, which is no text.
    if not isinstance(text, str) or len(text) > most or any("\ud800" <= char <= "\udfff" for char in text):
        raise MalformedRequest(Problem.BAD_REQUEST, f"{name}: a text of at most {most} characters")
    return text


def _headers(said: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    given = said.get("headers", {})
    if not isinstance(given, dict) or len(given) > MOST:
        raise MalformedRequest(Problem.BAD_REQUEST, f"headers: an object of at most {MOST} texts")
    return tuple((name, _text({"headers": value}, "headers", REASON_MOST)) for name, value in given.items())


def _scan(text: str) -> str:
    if len(text) > SCAN_MOST or not text.isascii():
        raise MalformedRequest(Problem.BAD_REQUEST, "scan: use the value from the last answer")
    return text
