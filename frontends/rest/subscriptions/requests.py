"""Parses subscriptions over HTTP: their ids, requests about them, and the addresses of their messages. Pure.

A subscription's id contains all that this door must know, so that any process can serve it and Redis keeps nothing beside the
subscription. The id is no secret: the sender must be the owner.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode
from zlib import crc32

from broker import codec, payloads
from broker.model.commands import Complete, Retract, Unlock
from broker.model.commands import Renew as RenewLock
from broker.model.frozen import frozen
from broker.model.items.progress import Progress
from broker.model.names import Jid, bare_jid, is_printable, resource
from broker.model.nodes.destinations import MOST
from broker.model.nodes.options import MAX_CREDIT, MAX_LOCK_SECONDS
from broker.model.nodes.pull_subscriptions import Next, lease_seconds, pull_jid
from broker.model.nodes.subscriptions import Subscription
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import HeldItem
from frontends.rest import paths
from frontends.rest.errors import Fault, fault
from frontends.rest.http import fields, negotiation
from frontends.rest.http.values import ApiRequest

FORM: Final = "application/x-www-form-urlencoded"

PREFETCH: Final = 10
LEASE_SECONDS: Final = 60
LEASE_LEAST: Final = 2
LEASE_MOST: Final = 86_400
WAIT_MOST: Final = 60
REASON_LONGEST: Final = 200
TOGETHER: Final = 200
"""The most messages to acknowledge together, and to receive with that: as many as one call takes."""

_NUMBERS: Final = frozenset({"delay", "lease", "prefetch", "seconds"})
_DIGITS: Final = 9
_NAME: Final = re.compile(r"[0-9a-f]{16}")
_LOCK: Final = re.compile(r"(([0-9]{1,4})-([0-9]{1,16}))(?:-([0-9a-f]{8}))?", re.ASCII)


@frozen
class PullSubscription:
    """A pull subscription: its owner, its node, its generated name, and the seconds that each fetch extends it by."""

    owner: Jid
    node: str
    name: str
    seconds: int

    @property
    def jid(self) -> Jid:
        """The JID that is subscribed on the owner's behalf."""
        return pull_jid(self.owner, self.name)

    @property
    def href(self) -> str:
        """Its path."""
        return f"{paths.SUBSCRIPTIONS}/{self}"

    def __str__(self) -> str:
        """Write its id: no part contains a zero byte."""
        text = "\0".join((self.owner, self.node, self.name, str(self.seconds)))
        return urlsafe_b64encode(text.encode()).decode().rstrip("=")

    def message(self, item: HeldItem) -> tuple[str, str]:
        """Return the path of a held message, and its lock as a query (RX6)."""
        query = "" if item.partition.node == self.node else f"{urlencode({'queue': item.partition.node})}&"
        lock = f"{item.partition.number}-{item.token}"
        return paths.held_message(str(self), item.item_id), f"?{query}lock={lock}-{self.seal(item.item_id, lock)}"

    def seal(self, item_id: str, lock: str) -> str:
        """Return a checksum that tells a handed-out message address from an invented one.

        It is no secret and grants nothing: for a message that is gone it tells whether the lock has expired (RX6).
        """
        return f"{crc32(f'{self.name} {item_id} {lock}'.encode()):08x}"


@frozen
class SubscriptionRequest:
    """The options of a new subscription."""

    destinations: tuple[str, ...]
    prefetch: int
    seconds: int
    selector: str


@frozen
class LockRef:
    """The lock in a message's path; an invented address may contain anything."""

    subscription: PullSubscription
    node: str
    item: str
    partition: int
    token: int
    text: str
    was_handed: bool

    def acknowledge(self, more: Next | None = None) -> Retract:
        """Acknowledge the message; a repeat gets the first answer. Ask for `more` messages with that."""
        return Retract(
            *(self.node, self.subscription.jid, self.item, self.token, f"acknowledge {self.text}", self.partition),
            next=more,
        )

    def complete(self, request: ApiRequest, more: Next | None) -> Complete:
        """Acknowledge the message with the body of the request as its result; a repeat gets the first answer."""
        kind = request.headers.get("content-type", "").strip()
        if kind and not payloads.is_type(kind):
            detail = "Content-Type is not TYPE/SUBTYPE with parameters"
            raise Fault(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "media-type-invalid", detail)
        envelope, size = codec.pack(payloads.make_envelope(request.body, kind, {})), len(request.body)
        about = self.node, self.subscription.jid, self.item, self.token, f"acknowledge {self.text}", self.partition
        return Complete(*about, envelope=envelope, body_bytes=size, next=more)

    def renew(self, request: ApiRequest) -> RenewLock:
        """Renew its lock, for the seconds in the body if given, and tell that the worker has begun, and how far it is."""
        said = _fields(request, {"seconds", "progress", "note", "begun"})
        lock_ms = _read_whole(said, "seconds", 1, MAX_LOCK_SECONDS, 0) * 1000 if "seconds" in said else None
        told = _progress(said), _read_flag(said, "begun")
        return RenewLock(self.node, self.subscription.jid, self.item, self.token, self.partition, lock_ms, *told)

    def give_back(self, request: ApiRequest, *, dead_letter: bool) -> Unlock:
        """Return the message to its queue, or send it to the dead letters; a repeat gets the first answer."""
        said = _fields(request, {"reason"} if dead_letter else {"delay", "reason", "untried"})
        reason = said.get("reason", "")
        if not isinstance(reason, str) or not (is_printable(reason) and len(reason) <= REASON_LONGEST):
            raise MalformedRequest(Problem.BAD_REQUEST, f"reason must be a line of at most {REASON_LONGEST} characters")
        repeat_key = f"{'dead-letter' if dead_letter else 'release'} {self.text}"
        delay = _read_whole(said, "delay", 0, MAX_LOCK_SECONDS, 0) * 1000 if "delay" in said else None
        return Unlock(
            self.node,
            self.subscription.jid,
            self.item,
            self.token,
            delay,
            reason,
            dead_letter,
            repeat_key,
            self.partition,
            _read_flag(said, "untried"),
        )


def _progress(said: Mapping[str, Any]) -> Progress | None:
    share, note = said.get("progress"), said.get("note", "")
    # JSON allows half a surrogate pair, which is no text.
    if isinstance(share, bool) or not isinstance(share, int | float | str | None) or not isinstance(note, str):
        raise MalformedRequest(Problem.BAD_REQUEST, "progress must be a number, and note a line of text")
    return Progress.validate(None if share is None else str(share), note)


def _read_flag(said: Mapping[str, Any], name: str) -> bool:
    """Read a boolean of a body, which a form has as text."""
    value = said.get(name, False)
    if value not in {"true", "false"} and not isinstance(value, bool):
        raise MalformedRequest(Problem.BAD_REQUEST, f"{name} must be true or false")
    return value in {True, "true"}


def keep_known(owner: Jid, found: Iterable[Subscription]) -> list[PullSubscription]:
    """Return those of an owner's subscriptions that were made over HTTP."""
    return [
        PullSubscription(owner, each.node, resource(each.jid).removeprefix("lease-"), min(seconds, LEASE_MOST))
        for each in found
        if (seconds := lease_seconds(each.jid)) >= LEASE_LEAST
    ]


def of(request: ApiRequest) -> PullSubscription:
    """Return the subscription in the path; raises Fault for an impossible id."""
    subscription = _read(request.path.subscription)
    if subscription is None:
        raise fault(MalformedRequest(Problem.NOT_SUBSCRIBED, "there is no such subscription"))
    return subscription


@lru_cache(maxsize=10_000)
def _read(text: str) -> PullSubscription | None:
    """Parse an id, which every request of a worker contains."""
    try:
        owner, node, name, seconds = urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode().split("\0")
        lasts = _read_whole({"lease": _number(seconds)}, "lease", LEASE_LEAST, LEASE_MOST, 0)
        subscription = PullSubscription(bare_jid(owner), paths.node([node]), name, lasts)
    except (ValueError, MalformedRequest):
        return None
    return subscription if owner and _NAME.fullmatch(name) and str(subscription) == text else None


def lock_ref(request: ApiRequest) -> LockRef:
    """Parse the message and lock of a request on the sender's own subscription."""
    subscription = of(request)
    if subscription.owner != request.sender:
        raise fault(MalformedRequest(Problem.FORBIDDEN, "the subscription belongs to another JID"))
    text = request.query.get("lock", "")
    lock = _LOCK.fullmatch(text)
    if not lock:
        raise MalformedRequest(Problem.BAD_REQUEST, "lock: take the message's address from its subscription")
    node = paths.node([request.query["queue"]], "queue") if "queue" in request.query else subscription.node
    item = request.path.item
    return LockRef(
        subscription, node, item, int(lock[2]), int(lock[3]), lock[1], lock[4] == subscription.seal(item, lock[1])
    )


def addresses(request: ApiRequest) -> list[str]:
    """Read the addresses of messages to acknowledge together."""
    if not negotiation.is_json(request.headers.get("content-type", "")):
        detail = f"the addresses of messages must be {negotiation.JSON}"
        raise Fault(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "media-type-unknown", detail, {"Accept-Post": negotiation.JSON})
    said = fields.parse_json(request.body)
    if not isinstance(said, list) or not 0 < len(said) <= TOGETHER or not all(isinstance(each, str) for each in said):
        raise MalformedRequest(
            Problem.BAD_REQUEST, f"the body must be an array of 1 to {TOGETHER} addresses of messages"
        )
    return said


def lock_ref_at(request: ApiRequest, address: str) -> LockRef | Fault:
    """Parse one of several addresses, all of the subscription in the path."""
    try:
        return lock_ref(_request(request, address))
    except MalformedRequest as refusal:
        return fault(refusal)
    except Fault as refusal:
        return refusal


def _request(request: ApiRequest, address: str) -> ApiRequest:
    raw, _, query = address.partition("?")
    path = paths.read(raw.encode(errors="replace"))
    if path is None or path.pattern != paths.HELD or path.subscription != request.path.subscription:
        raise MalformedRequest(Problem.BAD_REQUEST, "this is not the address of a message of the subscription")
    return replace(request, path=path, query=_form(query.encode(errors="replace")))


def subscription_request(request: ApiRequest) -> SubscriptionRequest:
    """Read the options of a new subscription, from JSON or a form (R12)."""
    said = _fields(request, {"destinations", "prefetch", "lease", "selector"})
    found = said.get("destinations", [])
    destinations = found if isinstance(found, list) else [found]
    if not 0 < len(destinations) <= MOST or not all(isinstance(each, str) for each in destinations):
        raise MalformedRequest(Problem.BAD_REQUEST, f"destinations are 1 to {MOST} queues, or wildcards such as A/*")
    selector = said.get("selector", "")
    if not isinstance(selector, str):
        raise MalformedRequest(Problem.OPTIONS_INVALID, "selector: it must be a string")
    return SubscriptionRequest(
        tuple(dict.fromkeys(paths.node([each], "destinations") for each in destinations)),
        _read_whole(said, "prefetch", 1, MAX_CREDIT, PREFETCH),
        _read_whole(said, "lease", LEASE_LEAST, LEASE_MOST, LEASE_SECONDS),
        selector.strip(),
    )


def wait(request: ApiRequest) -> int:
    """Read how many seconds to wait for a message."""
    return _read_whole({name: _number(value) for name, value in request.query.items()}, "wait", 0, WAIT_MOST, 0)


def read_next(request: ApiRequest) -> Next | None:
    """Read how many more messages are wanted with an acknowledgement; None if that is not said. It renews the lease."""
    if "next" not in request.query:
        return None
    most = _read_whole({"next": _number(request.query["next"])}, "next", 0, TOGETHER, 0)
    subscription = of(request)
    return Next(subscription.node, most, subscription.seconds * 1000)


def read_keep(request: ApiRequest) -> bool:
    """Read whether the messages of a subscription that ends stay under their locks."""
    said = request.query.get("keep", "false")
    if said not in {"true", "false"}:
        raise MalformedRequest(Problem.BAD_REQUEST, "keep must be true or false")
    return said == "true"


def _fields(request: ApiRequest, names: set[str]) -> dict[str, Any]:
    """Read the fields of a body; none without a body."""
    if not request.body:
        return {}
    kind = request.headers.get("content-type", "")
    if negotiation.drop_parameters(kind) == FORM:
        said: object = _form(request.body)
    elif negotiation.is_json(kind):
        said = fields.parse_json(request.body)
    else:
        detail = f"the body must be {negotiation.JSON} or {FORM}"
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
    """Parse name-value pairs of a form, and convert numeric fields."""
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=200)
    except ValueError:
        raise MalformedRequest(Problem.BAD_REQUEST, "this is not NAME=VALUE&… in UTF-8") from None
    said: dict[str, Any] = {}
    for name, value in pairs:
        if name == "destinations":
            said.setdefault(name, []).append(value)
        elif name in said:
            raise MalformedRequest(Problem.BAD_REQUEST, f"{name[:80]} is repeated")
        else:
            said[name] = _number(value) if name in _NUMBERS else value
    return said


def _number(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else text


def _read_whole(said: Mapping[str, Any], name: str, least: int, most: int, default: int) -> int:
    value = fields.read_whole(said.get(name, default))
    if value is None or not least <= value <= most:
        raise MalformedRequest(Problem.BAD_REQUEST, f"{name} must be a whole number from {least} to {most}")
    return value
