"""Attributes that many requests share, read and judged once. Knows names and limits; must not know requests."""

import re
from collections.abc import Mapping
from typing import Final
from xml.etree.ElementTree import Element

from broker.model import trace
from broker.model.hints import NO_HINTS, Hints
from broker.model.names import ITEM_ID_BYTES, NODE_NAME_BYTES, Jid, bare, is_jid, prepared
from broker.model.options import MAX_LOCK_SECONDS, MAX_PARTITIONS
from broker.model.problems import MalformedRequest, Problem
from frontends.xmpp import namespaces as ns

_TOKEN: Final = f"{{{ns.STANZAQ}}}token"
HINT: Final = f"{{{ns.STANZAQ}}}hint"
"""An element of ours inside a request: where a library drops attributes that it does not know, it stands in for them."""

_MOST_TOKEN: Final = 2**63 - 1
_JID_BYTES: Final = 3071
"""Longest JID: three parts of 1023 bytes and their separators (RFC 7622 §3.1)."""
_REASON_BYTES: Final = 1024
_URI: Final = re.compile(r"(?=.{3,2048}$)[A-Za-z][A-Za-z0-9+.-]*:[^\s<>\"]+")


def node(element: Element) -> str:
    """Read the node that a request names."""
    return node_name(element.get("node", ""))


def node_name(name: str) -> str:
    """Read the name of a node."""
    if not name:
        raise MalformedRequest(Problem.NODE_REQUIRED, "the request names no node")
    if _longer(name, NODE_NAME_BYTES):
        raise MalformedRequest(Problem.NODE_NAME_INVALID, f"a node's name has at most {NODE_NAME_BYTES} bytes")
    return name


def item_id(item: Element) -> str:
    """Read the id that a request must name."""
    name = item.get("id")
    if name is None:
        raise MalformedRequest(Problem.ITEM_REQUIRED, "the request names no item")
    if not name or _longer(name, ITEM_ID_BYTES):
        raise MalformedRequest(Problem.ITEM_ID_INVALID, f"an item's id has 1 to {ITEM_ID_BYTES} bytes")
    return name


def token(item: Element) -> int | None:
    """Read the lock's token, plain or in our namespace; None when the peer speaks plain XEP-0254 (QX14)."""
    text = item.get("token", item.get(_TOKEN))
    if text is None:
        return None
    number = number_of(text)
    if number is None or not 0 < number <= _MOST_TOKEN:
        raise MalformedRequest(Problem.BAD_REQUEST, "a token is a whole number, as the delivery gave it")
    return number


def partition(item: Element, hint: Element | None = None) -> int | None:
    """Read the partition that an item is for, or in: of the item itself, or of the hint beside it."""
    text = _ours(item, hint, "partition")
    return None if text is None else partition_number(text)


def partition_number(text: str) -> int:
    """Read the number of a partition: what cannot be one is not found, as one that the node has not (E7)."""
    number = number_of(text)
    if number is None or number >= MAX_PARTITIONS:
        raise MalformedRequest(
            Problem.PARTITION_NOT_FOUND, f"partitions are numbered from 0 to at most {MAX_PARTITIONS - 1}"
        )
    return number


def group_key(item: Element, hint: Element | None = None) -> str:
    """Read the group key of an item; empty when it has none."""
    text = _ours(item, hint, "key") or ""
    if _longer(text, ITEM_ID_BYTES):
        raise MalformedRequest(Problem.BAD_REQUEST, f"a group key has at most {ITEM_ID_BYTES} bytes")
    return text


def hints(item: Element, hint: Element | None = None) -> Hints:
    """Read what a publisher asks for its item: a delay and a time to live, in seconds on the wire, and a priority."""
    delay, priority, ttl = (_count(item, hint, name) for name in ("delay", "priority", "ttl"))
    if delay is priority is ttl is None:
        return NO_HINTS
    return Hints.judged(delay and delay * 1000, priority, None if ttl is None else ttl * 1000)


def _count(item: Element, hint: Element | None, name: str) -> int | None:
    text = _ours(item, hint, name)
    number = None if text is None else number_of(text)
    if text is not None and number is None:
        raise MalformedRequest(Problem.BAD_REQUEST, f"{name} is a whole number")
    return number


def traced(item: Element, hint: Element | None = None) -> Mapping[str, str]:
    """Read the headers by which an item belongs to a trace of its publisher's; what is no trace is none."""
    parent = _ours(item, hint, trace.PARENT)
    return trace.headers(parent, _ours(item, hint, trace.STATE)) if parent else {}


def _ours(item: Element, hint: Element | None, name: str) -> str | None:
    text = item.get(name, item.get(f"{{{ns.STANZAQ}}}{name}"))
    return hint.get(name) if text is None and hint is not None else text


def own_jid(element: Element, sender: Jid, otherwise: Problem) -> Jid:
    """Read the JID that a subscription is for: the sender's own, bare or full (P11); another's is the problem that is given."""
    text = element.get("jid")
    if not text:
        raise MalformedRequest(Problem.JID_REQUIRED, "the request names no JID")
    jid = any_jid(text)
    if not is_jid(jid):
        raise MalformedRequest(Problem.JID_MISMATCH, "that is no JID")
    if bare(jid) != bare(sender):
        raise MalformedRequest(otherwise, "the JID is not the sender's")
    return jid


def any_jid(text: str) -> Jid:
    """Read what a client typed as a JID, whether it is one or not."""
    if _longer(text, _JID_BYTES):
        raise MalformedRequest(Problem.JID_MISMATCH, f"a JID has at most {_JID_BYTES} bytes")
    return prepared(text)


def subid(element: Element) -> str:
    """Read the subscription's id; empty when there is none."""
    return element.get("subid", "")


def uri(element: Element) -> str:
    """Read where to go instead (XEP-0060 §8.4.1): all subscribers are sent it, so it is no longer than a link is."""
    text = element.get("uri", "")
    if not _URI.fullmatch(text):
        raise MalformedRequest(Problem.BAD_REQUEST, "the uri of a redirect is a URI of at most 2048 characters")
    return text


def delay_ms(hint: Element) -> int:
    """Read for how long a released item rests; in seconds on the wire."""
    seconds = number_of(hint.get("delay", "0"))
    if seconds is None or seconds > MAX_LOCK_SECONDS:
        raise MalformedRequest(Problem.BAD_REQUEST, f"a delay is 0 to {MAX_LOCK_SECONDS} seconds")
    return seconds * 1000


def reason(hint: Element) -> str:
    """Read why an item was released."""
    text = hint.get("reason", "")
    if _longer(text, _REASON_BYTES):
        raise MalformedRequest(Problem.BAD_REQUEST, f"a reason has at most {_REASON_BYTES} bytes")
    return text


def dead_letter(hint: Element) -> bool:
    """Read whether a released item goes straight to the dead letters."""
    text = hint.get("dead-letter", "false")
    if text not in {"0", "1", "true", "false"}:
        raise MalformedRequest(Problem.BAD_REQUEST, "dead-letter is true or false")
    return text in {"1", "true"}


def whole(text: str, most: int, problem: Problem, name: str) -> int:
    """Read a positive number up to `most`."""
    number = number_of(text)
    if number is None or not 0 < number <= most:
        raise MalformedRequest(problem, f"{name} is a whole number from 1 to {most}")
    return number


def number_of(text: str) -> int | None:
    """Read a whole number of up to 19 digits; None for anything else."""
    # Bounded before int(): it takes digits of any script, and its time grows with the square of their count.
    return int(text) if len(text) <= 19 and text.isascii() and text.isdigit() else None


def _longer(text: str, limit: int) -> bool:
    """Compare the length in UTF-8; a character takes one to four bytes, so most texts need no encoding for it."""
    return len(text) * 4 > limit and (len(text) > limit or len(text.encode()) > limit)
