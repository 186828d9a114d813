"""The stanzas of a queue's client (XEP-0060, XEP-0254). Pure text and elements; must not know connections."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from xml.etree.ElementTree import Element
from xml.sax.saxutils import quoteattr

from frontends.xmpp import namespaces as ns

_ITEM: Final = f"{{{ns.PUBSUB_EVENT}}}item"
_LOCK: Final = f"{{{ns.STANZAQ}}}lock"
_LISTED: Final = f"{{{ns.PUBSUB}}}item"
_FIELD: Final = f"{{{ns.FORM}}}field"
_VALUE: Final = f"{{{ns.FORM}}}value"
_ERROR: Final = f"{{{ns.CLIENT}}}error"
_STANZAS: Final = f"{{{ns.STANZAS}}}"


@dataclass(frozen=True, slots=True)
class Delivered:
    """An item that a worker holds, and the token of its lock."""

    item_id: str
    token: int


def create(node: str, options: Mapping[str, str]) -> str:
    """Return the request that creates a node with these options."""
    form = _form(ns.PUBSUB_NODE_CONFIG, options)
    return f"<pubsub xmlns='{ns.PUBSUB}'><create node={quoteattr(node)}/><configure>{form}</configure></pubsub>"


def admit(node: str, jid: str, affiliation: str) -> str:
    """Return the owner's request that gives a JID an affiliation."""
    return (
        f"<pubsub xmlns='{ns.PUBSUB_OWNER}'><affiliations node={quoteattr(node)}>"
        f"<affiliation jid={quoteattr(jid)} affiliation='{affiliation}'/></affiliations></pubsub>"
    )


def publish(node: str, item_id: str, payload: str) -> str:
    """Return the publish of an item; its id makes a repeat harmless."""
    return (
        f"<pubsub xmlns='{ns.PUBSUB}'><publish node={quoteattr(node)}>"
        f"<item id={quoteattr(item_id)}>{payload}</item></publish></pubsub>"
    )


def subscribe(node: str, jid: str, credit: int, batch: int = 1, group: str = "") -> str:
    """Return a subscription with credit for this many items, of which a message may bring a batch, or of a group's member."""
    options = {"pubsub#queue_requests": str(credit), **({"stanzaq#batch": str(batch)} if batch > 1 else {})}
    options |= {"stanzaq#group": group} if group else {}
    form = _form(ns.PUBSUB_SUBSCRIBE_OPTIONS, options)
    return (
        f"<pubsub xmlns='{ns.PUBSUB}'><subscribe node={quoteattr(node)} jid={quoteattr(jid)}/>"
        f"<options>{form}</options></pubsub>"
    )


def retract(node: str, item: Delivered) -> str:
    """Return the acknowledgement of an item."""
    return (
        f"<pubsub xmlns='{ns.PUBSUB}'><retract node={quoteattr(node)}>"
        f"<item id={quoteattr(item.item_id)} token='{item.token}'/></retract></pubsub>"
    )


def browse(node: str, item_ids: Iterable[str]) -> str:
    """Return the request for these items."""
    items = "".join(f"<item id={quoteattr(item_id)}/>" for item_id in item_ids)
    return f"<pubsub xmlns='{ns.PUBSUB}'><items node={quoteattr(node)}>{items}</items></pubsub>"


def info(node: str) -> str:
    """Return the request for a node's disco information."""
    return f"<query xmlns='{ns.DISCO_INFO}' node={quoteattr(node)}/>"


def parse_delivery(message: Element) -> Delivered | None:
    """Parse a delivery; None for any other message."""
    item, lock = message.find(f".//{_ITEM}"), message.find(_LOCK)
    return None if item is None or lock is None else Delivered(item.get("id", ""), int(lock.get("token", "0")))


def parse_browsed(reply: Element) -> set[str]:
    """Parse the ids of the items in an answer to `browse`."""
    return {item.get("id", "") for item in reply.iter(_LISTED)}


def counts(reply: Element) -> dict[str, int]:
    """Parse the numbers of a node's meta-data by name, such as `stanzaq#waiting` (XEP-0060 §5.4)."""
    found = {field.get("var", ""): field.findtext(_VALUE, "") for field in reply.iter(_FIELD)}
    return {name: int(value) for name, value in found.items() if value.isdecimal()}


def condition(reply: Element) -> str:
    """Parse the condition of an error; empty for a result."""
    error = reply.find(_ERROR)
    if error is None:
        return ""
    return next((child.tag.removeprefix(_STANZAS) for child in error if child.tag.startswith(_STANZAS)), "undefined")


def may_pass(reply: Element) -> bool:
    """Tell whether the same request may succeed later (RFC 6120 §8.3.2).

    A lost lock is also of type `wait` (Q25), but repeating with its token is useless: the item returns with another.
    """
    error = reply.find(_ERROR)
    return error is not None and error.get("type") == "wait" and condition(reply) != "unexpected-request"


def _form(kind: str, values: Mapping[str, str]) -> str:
    fields = "".join(f"<field var={quoteattr(name)}><value>{value}</value></field>" for name, value in values.items())
    return (
        f"<x xmlns='{ns.FORM}' type='submit'>"
        f"<field var='FORM_TYPE' type='hidden'><value>{kind}</value></field>{fields}</x>"
    )
