"""What a subscription over HTTP is and holds, in words: its id, what is asked of it, and how its messages are named. Pure.

A subscription's id says all that this door has to know of it, so that any process serves it and nothing has to be kept beside the
lease in Redis. It is no secret: whoever asks has to be its owner.
"""

import re
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode
from zlib import crc32

from broker.model.commands import Renew as RenewLock
from broker.model.commands import Retract, Unlock
from broker.model.destinations import MOST
from broker.model.leases import lease_jid, own_view
from broker.model.names import Jid, bare, is_printable, resource
from broker.model.options import MAX_CREDIT, MAX_LOCK_SECONDS
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import HeldItem
from frontends.rest import fields, negotiation, paths
from frontends.rest.errors import Fault, fault
from frontends.rest.http_types import Request

FORM: Final = "application/x-www-form-urlencoded"

PREFETCH: Final = 10
LEASE_SECONDS: Final = 60
LEASE_LEAST: Final = 2
LEASE_MOST: Final = 86_400
WAIT_MOST: Final = 60
REASON_LONGEST: Final = 200
TOGETHER: Final = 200
"""Messages that are acknowledged together: as many as go to Redis in one call."""

_NUMBERS: Final = frozenset({"delay", "lease", "prefetch", "seconds"})
_DIGITS: Final = 9
_NAME: Final = re.compile(r"[0-9a-f]{16}")
_LOCK: Final = re.compile(r"(([0-9]{1,4})-([0-9]{1,16}))(?:-([0-9a-f]{8}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Lease:
    """A subscription: whose, to what, its made-up name, and how long it lasts from each look at it."""

    owner: Jid
    node: str
    name: str
    seconds: int

    @property
    def jid(self) -> Jid:
        """Who is subscribed in its stead."""
        return lease_jid(self.owner, self.name)

    @property
    def has_view(self) -> bool:
        """Several destinations are a collection of its own, which ends with it."""
        return own_view(self.node, self.jid)

    @property
    def href(self) -> str:
        """Its path."""
        return f"{paths.SUBSCRIPTIONS}/{self}"

    def __str__(self) -> str:
        """Write it as its id: no part has a zero byte."""
        text = "\0".join((self.owner, self.node, self.name, str(self.seconds)))
        return urlsafe_b64encode(text.encode()).decode().rstrip("=")

    def message(self, item: HeldItem) -> tuple[str, str]:
        """Give the path of a message that it holds, and its lock as a query (RX6)."""
        query = "" if item.partition.node == self.node else f"{urlencode({'queue': item.partition.node})}&"
        lock = f"{item.partition.number}-{item.token}"
        return paths.held(str(self), item.item_id), f"?{query}lock={lock}-{self.seal(item.item_id, lock)}"

    def seal(self, item_id: str, lock: str) -> str:
        """Give what tells the address of a message that it was handed from one that somebody has made up.

        It is no secret, and no right goes with it: of a message that is gone it tells whether its lock is over (RX6).
        """
        return f"{crc32(f'{self.name} {item_id} {lock}'.encode()):08x}"


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """What a new subscription is to be."""

    destinations: tuple[str, ...]
    prefetch: int
    seconds: int
    selector: str


@dataclass(frozen=True, slots=True)
class LockRef:
    """What a message's path says of its lock; an address that the subscription was never given may say anything."""

    lease: Lease
    node: str
    item: str
    partition: int
    token: int
    text: str
    was_handed: bool

    def acknowledge(self) -> Retract:
        """Acknowledge the message; the same again is answered as the first time."""
        return Retract(self.node, self.lease.jid, self.item, self.token, f"acknowledge {self.text}", self.partition)

    def renew(self, request: Request) -> RenewLock:
        """Start the time of its lock anew, or give it as many seconds as the body says."""
        said = _fields(request, {"seconds"})
        lock_ms = _whole(said, "seconds", 1, MAX_LOCK_SECONDS, 0) * 1000 if "seconds" in said else None
        return RenewLock(self.node, self.lease.jid, self.item, self.token, self.partition, lock_ms)

    def give_back(self, request: Request, *, dead_letter: bool) -> Unlock:
        """Give the message back, or to the dead letters, as the body says; the same again is answered as the first time."""
        said = _fields(request, {"reason"} if dead_letter else {"delay", "reason"})
        reason = said.get("reason", "")
        if not isinstance(reason, str) or not (is_printable(reason) and len(reason) <= REASON_LONGEST):
            raise MalformedRequest(Problem.BAD_REQUEST, f"reason is a line of at most {REASON_LONGEST} characters")
        repeat_key = f"{'dead-letter' if dead_letter else 'release'} {self.text}"
        delay = _whole(said, "delay", 0, MAX_LOCK_SECONDS, 0) * 1000
        return Unlock(
            self.node, self.lease.jid, self.item, self.token, delay, reason, dead_letter, repeat_key, self.partition
        )


def named(seconds: int) -> str:
    """Make up a name: it ends with how long the lease lasts, so that a list of leases can say where each is."""
    return f"{secrets.randbits(44):011x}{seconds:05x}"


def known(owner: Jid, node: str, jid: Jid) -> Lease:
    """Give a lease that there is, by the JID that is subscribed in its stead."""
    name = resource(jid).removeprefix("lease-")
    return Lease(owner, node, name, min(max(int(name[11:], 16), LEASE_LEAST), LEASE_MOST))


def of(request: Request) -> Lease:
    """Read which subscription is asked for; raises Fault when there cannot be one of this id."""
    lease = _read(request.place.lease)
    if lease is None:
        raise fault(MalformedRequest(Problem.NOT_SUBSCRIBED, "there is no such subscription"))
    return lease


@lru_cache(maxsize=10_000)
def _read(text: str) -> Lease | None:
    """Read an id: it is in every request that a worker makes."""
    try:
        owner, node, name, seconds = urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode().split("\0")
        lasts = _whole({"lease": _number(seconds)}, "lease", LEASE_LEAST, LEASE_MOST, 0)
        lease = Lease(bare(owner), paths.node([node]), name, lasts)
    except (ValueError, MalformedRequest):
        return None
    return lease if owner and _NAME.fullmatch(name) and str(lease) == text else None


def lock_ref(request: Request) -> LockRef:
    """Read which message under which lock is asked for: of the asker's own subscription."""
    lease = of(request)
    if lease.owner != request.sender:
        raise fault(MalformedRequest(Problem.FORBIDDEN, "the subscription is another's"))
    text = request.query.get("lock", "")
    lock = _LOCK.fullmatch(text)
    if not lock:
        raise MalformedRequest(Problem.BAD_REQUEST, "lock: take the message's address from its subscription")
    node = paths.node([request.query["queue"]], "queue") if "queue" in request.query else lease.node
    item = request.place.item
    return LockRef(lease, node, item, int(lock[2]), int(lock[3]), lock[1], lock[4] == lease.seal(item, lock[1]))


def addresses(request: Request) -> list[str]:
    """Read the addresses of messages that are to be acknowledged together."""
    if not negotiation.is_json(request.headers.get("content-type", "")):
        detail = f"the addresses of messages are sent as {negotiation.JSON}"
        raise Fault(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "media-type-unknown", detail, {"Accept-Post": negotiation.JSON})
    said = fields.parsed(request.body)
    if not isinstance(said, list) or not 0 < len(said) <= TOGETHER or not all(isinstance(each, str) for each in said):
        raise MalformedRequest(Problem.BAD_REQUEST, f"the body is an array of 1 to {TOGETHER} addresses of messages")
    return said


def grasped(request: Request, address: str) -> LockRef | Fault:
    """Read the address of one of several messages, all of the subscription that is asked for."""
    try:
        return lock_ref(_request(request, address))
    except MalformedRequest as refusal:
        return fault(refusal)
    except Fault as refusal:
        return refusal


def _request(request: Request, address: str) -> Request:
    path, _, query = address.partition("?")
    place = paths.read(path.encode(errors="replace"))
    if place is None or place.pattern != paths.HELD or place.lease != request.place.lease:
        raise MalformedRequest(Problem.BAD_REQUEST, "this is no address of a message that the subscription has held")
    return replace(request, place=place, query=_form(query.encode(errors="replace")))


def lease_request(request: Request) -> LeaseRequest:
    """Read what a new subscription is to be, from JSON or a form (R12)."""
    said = _fields(request, {"destinations", "prefetch", "lease", "selector"})
    found = said.get("destinations", [])
    destinations = found if isinstance(found, list) else [found]
    if not 0 < len(destinations) <= MOST or not all(isinstance(each, str) for each in destinations):
        raise MalformedRequest(Problem.BAD_REQUEST, f"destinations are 1 to {MOST} queues, or wildcards such as A/*")
    selector = said.get("selector", "")
    if not isinstance(selector, str):
        raise MalformedRequest(Problem.OPTIONS_INVALID, "selector: it is a text")
    return LeaseRequest(
        tuple(dict.fromkeys(paths.node([each], "destinations") for each in destinations)),
        _whole(said, "prefetch", 1, MAX_CREDIT, PREFETCH),
        _whole(said, "lease", LEASE_LEAST, LEASE_MOST, LEASE_SECONDS),
        selector.strip(),
    )


def wait(request: Request) -> int:
    """Read how many seconds somebody waits for a message."""
    return _whole({name: _number(value) for name, value in request.query.items()}, "wait", 0, WAIT_MOST, 0)


def _fields(request: Request, names: set[str]) -> dict[str, Any]:
    """Read the fields of a body; none is no fields."""
    if not request.body:
        return {}
    kind = request.headers.get("content-type", "")
    if negotiation.bare(kind) == FORM:
        said: object = _form(request.body)
    elif negotiation.is_json(kind):
        said = fields.parsed(request.body)
    else:
        detail = f"the body is {negotiation.JSON} or {FORM}"
        raise Fault(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "media-type-unknown",
            detail,
            {"Accept-Post": f"{negotiation.JSON}, {FORM}"},
        )
    if not isinstance(said, dict) or set(said) - names:
        raise MalformedRequest(Problem.BAD_REQUEST, f"the body has {', '.join(sorted(names))} and nothing else")
    return said


def _form(body: bytes) -> dict[str, Any]:
    """Read pairs of names and texts; those that are to be numbers are, if they are written like that."""
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=200)
    except ValueError:
        raise MalformedRequest(Problem.BAD_REQUEST, "this is not NAME=VALUE&… in UTF-8") from None
    said: dict[str, Any] = {}
    for name, value in pairs:
        if name == "destinations":
            said.setdefault(name, []).append(value)
        elif name in said:
            raise MalformedRequest(Problem.BAD_REQUEST, f"{name[:80]} is there twice")
        else:
            said[name] = _number(value) if name in _NUMBERS else value
    return said


def _number(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else text


def _whole(said: Mapping[str, Any], name: str, least: int, most: int, default: int) -> int:
    value = fields.whole(said.get(name, default))
    if value is None or not least <= value <= most:
        raise MalformedRequest(Problem.BAD_REQUEST, f"{name} is a whole number from {least} to {most}")
    return value
