"""Deliveries: the stanza of an item, and what its receiver answers. Must not know requests, replies or notices.

A delivery is a message, or an IQ where its receiver confirms (urn:xmpp:qos): an acknowledged item is one IQ, an assured item is
two, and its receiver may start after the second. A message has no `type`: a `headline` to an offline peer would vanish, while
this kind bounces and frees its item (Q18). An answer may reach any frontend (SX13), so the id of the stanza, the only part that
the receiver must repeat, contains everything that is needed.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from xml.etree.ElementTree import Element

from broker.model.commands import Bounce, Confirm
from broker.model.items import Delivery, Lock
from broker.model.names import Jid, Partition
from broker.model.qos import Stage
from frontends.xmpp import namespaces as ns
from frontends.xmpp import stanzas
from frontends.xmpp.pubsub import log_options, payloads
from frontends.xmpp.xml.text import escaped, escaped_name, moment

# A stored or copied delivery would give the work to two workers (X2; XEP-0334 §4.2, §4.3).
ALONE: Final = f"<no-store xmlns='{ns.HINTS}'/><no-copy xmlns='{ns.HINTS}'/></message>"

_ALONE_BYTES: Final = ALONE.encode()

_STREAMED: Final = frozenset({Stage.STREAM, Stage.GAP})
_PLAIN: Final = _STREAMED | {Stage.UNACKNOWLEDGED}

_GONE: Final = f"{{{ns.STANZAS}}}gone"

_CLOSING: Final = {
    Stage.ACKNOWLEDGED: b"</message></acknowledged></iq>",
    Stage.ASSURED: b"</message></assured></iq>",
}
"""The end of an IQ that `_opening` begins."""

_MESSAGE: Final = f"<message xmlns='{ns.CLIENT}'>"
_ITEM_NOT_FOUND: Final = f"{{{ns.STANZAS}}}item-not-found"
_MSG_IDS: Final = ("msgId", f"{{{ns.QOS}}}msgId")

_LETTERS: Final = {
    Stage.UNACKNOWLEDGED: "",
    Stage.ACKNOWLEDGED: "a:",
    Stage.ASSURED: "s:",
    Stage.DELIVER: "d:",
    Stage.STREAM: "r:",
    Stage.GAP: "g:",
}
_STAGES: Final = {letter: stage for stage, letter in _LETTERS.items()}

# The partition is last: a node's name may contain any character.
_ID: Final = re.compile(r"sq:([asdrg]:|)([0-9]{1,19}):([0-9]{1,20}-[0-9]{1,20}):(.{1,2100})", re.ASCII | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Named:
    """The lock of a delivery, and its stage."""

    partition: Partition
    position: str
    token: int
    stage: Stage


def written(service: str, delivery: Delivery) -> bytes:
    """Write an item with its lock (Q16), or a log entry with its position, and its headers.

    Raises CorruptRecord when the envelope cannot be read. The second delivery of an assured item is the notice to start.
    """
    if delivery.stage is Stage.DELIVER:
        return _start(service, delivery)
    if delivery.stage in _PLAIN:
        opening = (
            f"<message from='{escaped_name(service)}' to='{escaped_name(delivery.subscriber)}' id='{_id(delivery)}'>"
        )
        closing = _ALONE_BYTES
    else:
        opening, closing = _opening(service, delivery), _CLOSING[delivery.stage]
    body, headers = payloads.told(delivery.envelope, through(delivery.collection, delivery.subid))
    node, item = escaped_name(delivery.partition.node), escaped(delivery.item_id)
    head = f"{opening}<event xmlns='{ns.PUBSUB_EVENT}'><items node='{node}'><item id='{item}'>"
    where = log_options.position(delivery) if delivery.stage in _STREAMED else lock(delivery.partition.node, delivery)
    tail = f"</item></items></event>{where}".encode()
    return b"%b%b%b%b%b" % (head.encode(), body, tail, headers, closing)


def lock(node: str, held: Lock | Delivery) -> str:
    """Write what a holder may know of its lock (QX14), the item's partition if there are several (E13), and when it came."""
    if isinstance(held, Delivery):
        number, key = held.partition.number if held.partitioned else None, held.key
        published = f" published='{moment(int(held.position.partition('-')[0]))}'"
    else:
        number, key, published = held.partition, "", ""
    place = "" if number is None else f" partition='{number}'"
    group = f" key='{escaped(key)}'" if key else ""
    return (
        f"<lock xmlns='{ns.STANZAQ}' node='{escaped_name(node)}' item='{escaped(held.item_id)}' token='{held.token}'"
        f" attempt='{held.attempt}' of='{held.of}' expires='{moment(held.deadline_ms)}'{published}{place}{group}/>"
    )


def through(collection: str, subid: str) -> dict[str, str]:
    """Return headers that name the subscription of a notification: its collection (H6), or which of several (P12)."""
    said = {"Collection": collection} if collection else {}
    return said | {"SubID": subid} if subid else said


def _id(delivery: Delivery) -> str:
    """Write the id of a delivery's stanza, escaped for an attribute."""
    return f"sq:{_LETTERS[delivery.stage]}{delivery.token}:{delivery.position}:{_partition(delivery.partition)}"


@lru_cache(maxsize=1_024)
def _partition(partition: Partition) -> str:
    return escaped(str(partition))


def read_id(text: str) -> Named | None:
    """Parse what `_id` wrote; None for any other id.

    The core detects forged ids: the token must be that of a lock which the sender holds.
    """
    found = _ID.fullmatch(text)
    if found is None:
        return None
    try:
        partition = Partition.parse(found[4])
    except ValueError:
        return None
    return Named(partition, found[3], int(found[2]), _STAGES[found[1]])


def _opening(service: str, delivery: Delivery) -> str:
    """Write the IQ up to the content of its message, which has no addresses of its own (S7)."""
    if delivery.stage is Stage.ASSURED:
        named = _message_id(delivery.partition, delivery.token)
        return f"{_request(service, delivery)}<assured xmlns='{ns.QOS}' msgId='{named}'>{_MESSAGE}"
    return f"{_request(service, delivery)}<acknowledged xmlns='{ns.QOS}'>{_MESSAGE}"


def _start(service: str, delivery: Delivery) -> bytes:
    """Write the IQ that lets the receiver of an assured item start; it contains the lock's expiry."""
    named = _message_id(delivery.partition, delivery.token)
    expires = f"xmlns:q='{ns.STANZAQ}' q:expires='{moment(delivery.deadline_ms)}'"
    return f"{_request(service, delivery)}<deliver xmlns='{ns.QOS}' {expires} msgId='{named}'/></iq>".encode()


def answered(iq: Element) -> Confirm | Bounce | None:
    """Parse the answer to a delivery in an IQ; None for any other IQ, and for an incomplete result."""
    sender = iq.get("from")
    named = read_id(iq.get("id", ""))
    if not sender or named is None or named.stage is Stage.UNACKNOWLEDGED:
        return None
    held = (Jid(sender), named.partition, named.position, named.token)
    if iq.get("type") == "error":
        return Bounce(*held, gone=_is_gone(iq), stage=named.stage)
    if named.stage is Stage.ASSURED and not _received(iq, _message_id(named.partition, named.token)):
        return None
    return Confirm(*held, named.stage)


def _request(service: str, delivery: Delivery) -> str:
    return f"<iq type='set' from='{escaped(service)}' to='{escaped(delivery.subscriber)}' id='{_id(delivery)}'>"


def _message_id(partition: Partition, token: int) -> str:
    """Return the msgId of a lock, unique in the service and across incarnations of a node (S14)."""
    return f"{partition.incarnation}-{partition.number}-{token}"


def _received(iq: Element, message_id: str) -> bool:
    # Peers write `received` without its namespace, as in the examples, or qualify its attribute, as in the schema.
    return any(child.tag.rpartition("}")[2] == "received" and message_id in map(child.get, _MSG_IDS) for child in iq)


def _is_gone(iq: Element) -> bool:
    error = stanzas.error(iq)
    # A receiver that has lost an assured message answers item-not-found: it is available, and gets the message again.
    return error is not None and error.get("type") == "cancel" and error.find(_ITEM_NOT_FOUND) is None


def bounced(message: Element) -> Bounce | None:
    """Parse the bounce of a delivery; None for any other message."""
    sender = message.get("from")
    if message.get("type") != "error" or not sender:
        return None
    named = read_id(message.get("id", ""))
    if named is None or named.stage not in _PLAIN:
        return None
    error = stanzas.error(message)
    gone = error is not None and (error.get("type") == "cancel" or error.find(_GONE) is not None)
    return Bounce(Jid(sender), named.partition, named.position, named.token, gone, named.stage)
