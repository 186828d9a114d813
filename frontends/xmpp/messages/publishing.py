"""Messages that publish (XEP-0060's payload in a plain message), at any level of QoS. Pure.

A message is for a node when it is addressed to service/NODE or NODE@service, or contains a pubsub `<publish/>` that names one.
Must not know whether it came as a stanza of its own or inside one of `qos`.
"""

import hashlib
import re
from typing import Final
from xml.etree.ElementTree import Element

from broker import codec
from broker.model.commands import Publish
from broker.model.frozen import frozen
from broker.model.items.hints import NO_HINTS, Hints
from broker.model.names import Jid
from broker.model.problems import MalformedRequest, Problem
from frontends.xmpp import errors
from frontends.xmpp import namespaces as ns
from frontends.xmpp.pubsub import attributes, payloads
from frontends.xmpp.stanzas import drop_foreign
from frontends.xmpp.xml.text import escape

_PUBSUB: Final = f"{{{ns.PUBSUB}}}pubsub"
_PUBLISH: Final = f"{{{ns.PUBSUB}}}publish"
_ITEM: Final = f"{{{ns.PUBSUB}}}item"

_ENVELOPE: Final = (
    *(f"{{{space}}}" for space in ns.ENVELOPE),
    *(f"{{{space}}}{name}" for space in (ns.CLIENT, ns.COMPONENT) for name in ("thread", "subject")),
)
"""The prefixes of elements about a message rather than in it: clients add them unasked."""

_ESCAPE: Final = re.compile(r"\\(20|22|26|27|2f|3a|3c|3e|40|5c)")

STEM_CHARACTERS: Final = 200
"""How much of a sender's own id fits into an item's id: up to four bytes a character, and a digest."""


@frozen
class Sent:
    """A message's publish; `item_id` is that of its `<item/>`, `stem` the message's own id."""

    node: str
    item_id: str | None
    stem: str
    envelope: bytes
    body_bytes: int
    partition: int | None = None
    key: str = ""
    hints: Hints = NO_HINTS

    def publish(self, sender: Jid, item_id: str | None) -> Publish:
        """Return its publish under an item id, or under none."""
        return Publish(
            self.node,
            sender,
            item_id,
            self.envelope,
            self.body_bytes,
            partition=self.partition,
            key=self.key,
            hints=self.hints,
        )

    def publish_once(self, sender: Jid) -> Publish:
        """Return its publish under an id that a copy repeats: same sender, id and payload give the same item."""
        item = self.item_id
        if item is None and self.stem:
            digest = hashlib.sha256(sender.encode() + b"\0" + codec.headless(self.envelope)).hexdigest()[:24]
            item = f"{self.stem}~{digest}"
        return self.publish(sender, item)


def node_at(address: str, service: str) -> str | None:
    """Return the node in an address of our domain, empty for the service itself; None for any other address.

    The node is the resource (XEP-0060 §4.6.1), which keeps capitals, or the local part, for peers that cannot send to a domain.
    """
    head, _, named = address.partition("/")
    if head == service:
        return named
    # A resource means nothing here, but some peers always send IQs to one.
    local, _, domain = head.partition("@")
    if domain != service or not local:
        return None
    # Characters that a local part cannot contain are escaped (XEP-0106).
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), local)


def read(message: Element, node: str) -> Sent | None:
    """Parse what a message publishes to a node, or to the service if `node` is empty; None when it publishes nothing.

    Raises MalformedRequest.
    """
    stem = message.get("id", "")[:STEM_CHARACTERS]
    pubsub = message.find(_PUBSUB)
    if pubsub is not None and pubsub.find(_PUBLISH) is not None:
        return _read_publish(pubsub, node, stem)
    if not node:
        return None
    said = [child for child in message if not child.tag.startswith(_ENVELOPE)]
    if not said:
        raise MalformedRequest(Problem.PAYLOAD_REQUIRED, "a message to a node has one element that is its payload")
    item = Element("item")
    item.extend(said)
    for child in said:
        child.tail = None
    envelope, body_bytes = payloads.read_payload(item)
    return Sent(node, None, stem, envelope, body_bytes)


def write_refused(message: Element, fault: MalformedRequest) -> bytes:
    """Write the error for a message without effect (S13), with swapped addresses."""
    error = errors.write_error(errors.wire(fault), fault.detail, fault.wait_ms)
    name = f" id='{escape(message.get('id', ''))}'" if "id" in message.attrib else ""
    return (
        f"<message type='error'{name} to='{escape(message.get('from', ''))}' from='{escape(message.get('to', ''))}'>"
        f"{error}</message>"
    ).encode()


def _read_publish(pubsub: Element, addressed: str, stem: str) -> Sent:
    pubsub = drop_foreign(pubsub, ns.PUBSUB)
    publish = pubsub[0]
    if len(pubsub) > 1 or publish.tag != _PUBLISH:
        raise MalformedRequest(Problem.BAD_REQUEST, "a message publishes one item and asks for nothing else")
    if addressed and publish.get("node", addressed) != addressed:
        raise MalformedRequest(Problem.BAD_REQUEST, "the message is addressed to another node than it names")
    node = addressed or attributes.node(publish)
    hint = publish.find(attributes.HINT)
    items = publish.findall(_ITEM)
    if not items:
        raise MalformedRequest(Problem.ITEM_REQUIRED, "the message has no item")
    if len(items) > 1:
        raise MalformedRequest(Problem.ONE_ITEM_ONLY, "one item at a time")
    item = items[0]
    name = None if item.get("id") is None else attributes.item_id(item)
    envelope, body_bytes = payloads.read_payload(item, attributes.read_trace(item, hint))
    place = attributes.partition(item, hint)
    key, hints = attributes.group_key(item, hint), attributes.hints(item, hint)
    return Sent(node, name, stem, envelope, body_bytes, place, key, hints)
