"""Parses and validates attributes that many requests share. Knows names and limits; must not know requests."""

import re
from collections.abc import Mapping
from typing import Final
from xml.etree.ElementTree import Element

from broker.model.items import trace
from broker.model.items.dependencies import Dependencies
from broker.model.items.hints import NO_HINTS, Hints
from broker.model.items.outcomes import ReplyMode
from broker.model.names import ITEM_ID_BYTES, NODE_NAME_BYTES, Jid, bare_jid, is_jid, prepare_jid
from broker.model.nodes.options import MAX_LOCK_SECONDS, MAX_PARTITIONS
from broker.model.problems import MalformedRequest, Problem
from frontends.xmpp import namespaces as ns

_TOKEN: Final = f"{{{ns.STANZAQ}}}token"
HINT: Final = f"{{{ns.STANZAQ}}}hint"
"""Our element inside a request, for libraries that drop unknown attributes."""

_HINTS: Final = frozenset(
    prefix + name
    for name in ("after", "at", "confirm", "delay", "keep", "priority", "regardless", "reply", "ttl")
    for prefix in ("", f"{{{ns.STANZAQ}}}")
)
"""The attributes of delivery hints."""

_MOST_TOKEN: Final = 2**63 - 1
_JID_BYTES: Final = 3071
"""The longest JID: three parts of 1023 bytes and their separators (RFC 7622 §3.1)."""
_REASON_BYTES: Final = 1024
_URI: Final = re.compile(r"(?=.{3,2048}$)[A-Za-z][A-Za-z0-9+.-]*:[^\s<>\"]+")


def node(element: Element) -> str:
    """Read the node that a request names."""
    return node_name(element.get("node", ""))


def node_name(name: str) -> str:
    """Validate the name of a node."""
    if not name:
        raise MalformedRequest(Problem.NODE_REQUIRED, "the request names no node")
    if _is_longer(name, NODE_NAME_BYTES):
        raise MalformedRequest(Problem.NODE_NAME_INVALID, f"a node's name has at most {NODE_NAME_BYTES} bytes")
    return name


def item_id(item: Element) -> str:
    """Read the required id of an item."""
    name = item.get("id")
    if name is None:
        raise MalformedRequest(Problem.ITEM_REQUIRED, "the request names no item")
    if not name or _is_longer(name, ITEM_ID_BYTES):
        raise MalformedRequest(Problem.ITEM_ID_INVALID, f"an item's id has 1 to {ITEM_ID_BYTES} bytes")
    return name


def token(item: Element) -> int | None:
    """Read the lock's token, unqualified or in our namespace; None for a peer with plain XEP-0254 (QX14)."""
    text = item.get("token", item.get(_TOKEN))
    if text is None:
        return None
    number = number_of(text)
    if number is None or not 0 < number <= _MOST_TOKEN:
        raise MalformedRequest(Problem.BAD_REQUEST, "a token must be the whole number from the delivery")
    return number


def partition(item: Element, hint: Element | None = None) -> int | None:
    """Read the partition of an item, from the item or from the hint beside it."""
    text = _read_ours(item, hint, "partition")
    return None if text is None else partition_number(text)


def partition_number(text: str) -> int:
    """Parse the number of a partition; raises PARTITION_NOT_FOUND for one that no node can have (E7)."""
    number = number_of(text)
    if number is None or number >= MAX_PARTITIONS:
        raise MalformedRequest(
            Problem.PARTITION_NOT_FOUND, f"partitions are numbered from 0 to at most {MAX_PARTITIONS - 1}"
        )
    return number


def group_key(item: Element, hint: Element | None = None) -> str:
    """Read the group key of an item; empty if absent."""
    text = _read_ours(item, hint, "key") or ""
    if _is_longer(text, ITEM_ID_BYTES):
        raise MalformedRequest(Problem.BAD_REQUEST, f"a group key has at most {ITEM_ID_BYTES} bytes")
    return text


def hints(item: Element, hint: Element | None = None) -> Hints:
    """Read the delivery hints of an item: delay and time to live, in seconds on the wire, a time, priority, and so on."""
    if hint is None and _HINTS.isdisjoint(item.attrib):
        return NO_HINTS
    delay, priority, ttl = (_count(item, hint, name) for name in ("delay", "priority", "ttl"))
    delay_ms, at = None if delay is None else delay * 1000, _read_ours(item, hint, "at")
    told, keep, regardless = (
        flag(_read_ours(item, hint, name) or "false", name) for name in ("reply", "keep", "regardless")
    )
    reply = ReplyMode.TOLD if told else ReplyMode.KEPT if keep else ReplyMode.NONE
    after = Dependencies.parse_names(_read_ours(item, hint, "after") or "", regardless=regardless)
    confirm = _read_ours(item, hint, "confirm")
    if delay_ms is priority is ttl is None and at is None and confirm is None and not (reply or after):
        return NO_HINTS
    ttl_ms = None if ttl is None else ttl * 1000
    return Hints.validate(delay_ms, priority, ttl_ms, reply, after, at=at, confirm=confirm)


def _count(item: Element, hint: Element | None, name: str) -> int | None:
    text = _read_ours(item, hint, name)
    number = None if text is None else number_of(text)
    if text is not None and number is None:
        raise MalformedRequest(Problem.BAD_REQUEST, f"{name} must be a whole number")
    return number


def read_trace(item: Element, hint: Element | None = None) -> Mapping[str, str]:
    """Read the trace headers of an item; empty if they are no valid trace."""
    parent = _read_ours(item, hint, trace.PARENT)
    return trace.headers(parent, _read_ours(item, hint, trace.STATE)) if parent else {}


def _read_ours(item: Element, hint: Element | None, name: str) -> str | None:
    text = item.get(name, item.get(f"{{{ns.STANZAQ}}}{name}"))
    return hint.get(name) if text is None and hint is not None else text


def read_own_jid(element: Element, sender: Jid, otherwise: Problem) -> Jid:
    """Read the JID of a subscription: the sender's own, bare or full (P11); for another's raises the problem `otherwise`."""
    text = element.get("jid")
    if not text:
        raise MalformedRequest(Problem.JID_REQUIRED, "the request names no JID")
    jid = normalize_jid(text)
    if not is_jid(jid):
        raise MalformedRequest(Problem.JID_MISMATCH, "that is not a JID")
    if bare_jid(jid) != bare_jid(sender):
        raise MalformedRequest(otherwise, "the JID is not the sender's")
    return jid


def normalize_jid(text: str) -> Jid:
    """Normalize what a client typed as a JID, valid or not."""
    if _is_longer(text, _JID_BYTES):
        raise MalformedRequest(Problem.JID_MISMATCH, f"a JID has at most {_JID_BYTES} bytes")
    return prepare_jid(text.strip())


def subid(element: Element) -> str:
    """Read the subscription's id; empty if absent."""
    return element.get("subid", "")


def uri(element: Element) -> str:
    """Read the URI of a redirect (XEP-0060 §8.4.1); its length is limited because all subscribers get it."""
    text = element.get("uri", "")
    if not _URI.fullmatch(text):
        raise MalformedRequest(Problem.BAD_REQUEST, "the uri of a redirect must be a URI of at most 2048 characters")
    return text


def delay_ms(hint: Element) -> int | None:
    """Read the delay of a released item, in seconds on the wire; None for that of its node."""
    if "delay" not in hint.attrib:
        return None
    seconds = number_of(hint.get("delay", ""))
    if seconds is None or seconds > MAX_LOCK_SECONDS:
        raise MalformedRequest(Problem.BAD_REQUEST, f"a delay must be 0 to {MAX_LOCK_SECONDS} seconds")
    return seconds * 1000


def reason(hint: Element) -> str:
    """Read why an item was released."""
    text = hint.get("reason", "")
    if _is_longer(text, _REASON_BYTES):
        raise MalformedRequest(Problem.BAD_REQUEST, f"a reason has at most {_REASON_BYTES} bytes")
    return text


def dead_letter(hint: Element) -> bool:
    """Read whether a released item becomes a dead letter at once."""
    return flag(hint.get("dead-letter", "false"), "dead-letter")


def untried(hint: Element) -> bool:
    """Read whether nobody has begun to work on a released item, so that it does not count as an attempt."""
    said = flag(hint.get("untried", "false"), "untried")
    if said and dead_letter(hint):
        raise MalformedRequest(
            Problem.BAD_REQUEST, "a dead letter counts as an attempt: leave out either untried or dead-letter"
        )
    return said


def begun(renew: Element) -> bool:
    """Read whether work on an item has begun."""
    return flag(renew.get("begun", "false"), "begun")


def notify(hint: Element) -> bool:
    """Read whether the sender is to be notified when its own lock ends, beside the result; XEP-0254 wants both (Q20, Q29)."""
    return flag(hint.get("notify", "true"), "notify")


def flag(text: str, name: str) -> bool:
    """Parse a boolean (XML Schema)."""
    if text not in {"0", "1", "true", "false"}:
        raise MalformedRequest(Problem.BAD_REQUEST, f"{name} must be true or false")
    return text in {"1", "true"}


def parse_whole(text: str, most: int, problem: Problem, name: str) -> int:
    """Parse a positive number up to `most`."""
    number = number_of(text)
    if number is None or not 0 < number <= most:
        raise MalformedRequest(problem, f"{name} must be a whole number from 1 to {most}")
    return number


def number_of(text: str) -> int | None:
    """Parse a whole number of up to 19 digits; None for anything else."""
    # Bounded before int(), which accepts digits of any script and takes time quadratic in their number.
    return int(text) if len(text) <= 19 and text.isascii() and text.isdigit() else None


def _is_longer(text: str, limit: int) -> bool:
    """Compare the length in UTF-8; a character has one to four bytes, so most texts need not be encoded."""
    return len(text) * 4 > limit and (len(text) > limit or len(text.encode()) > limit)
