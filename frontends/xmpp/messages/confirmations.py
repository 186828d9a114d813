"""Deliveries that are confirmed (urn:xmpp:qos): their IQs, and the receivers' answers. Must not know the payload.

An acknowledged item is one IQ. An assured item is two, and its receiver may start after the second.
"""

from typing import Final
from xml.etree.ElementTree import Element

from broker.model.commands import Bounce, Confirm
from broker.model.items import Delivery
from broker.model.names import Jid, Partition
from broker.model.qos import Stage
from frontends.xmpp import namespaces as ns
from frontends.xmpp import stanzas
from frontends.xmpp.messages import delivery_ids
from frontends.xmpp.xml.text import escaped, moment

CLOSING: Final = {
    Stage.ACKNOWLEDGED: b"</message></acknowledged></iq>",
    Stage.ASSURED: b"</message></assured></iq>",
}
"""The end of an IQ that `opening` begins."""

_MESSAGE: Final = f"<message xmlns='{ns.CLIENT}'>"
_ITEM_NOT_FOUND: Final = f"{{{ns.STANZAS}}}item-not-found"
_MSG_IDS: Final = ("msgId", f"{{{ns.QOS}}}msgId")


def opening(service: str, delivery: Delivery) -> str:
    """Write the IQ up to the content of its message, which has no addresses of its own (S7)."""
    if delivery.stage is Stage.ASSURED:
        named = _message_id(delivery.partition, delivery.token)
        return f"{_head(service, delivery)}<assured xmlns='{ns.QOS}' msgId='{named}'>{_MESSAGE}"
    return f"{_head(service, delivery)}<acknowledged xmlns='{ns.QOS}'>{_MESSAGE}"


def deliver(service: str, delivery: Delivery) -> bytes:
    """Write the IQ that lets the receiver of an assured item start; it contains the lock's expiry."""
    named = _message_id(delivery.partition, delivery.token)
    expires = f"xmlns:q='{ns.STANZAQ}' q:expires='{moment(delivery.deadline_ms)}'"
    return f"{_head(service, delivery)}<deliver xmlns='{ns.QOS}' {expires} msgId='{named}'/></iq>".encode()


def answered(iq: Element) -> Confirm | Bounce | None:
    """Parse the answer to such an IQ; None for any other, and for an incomplete result."""
    sender = iq.get("from")
    named = delivery_ids.read(iq.get("id", ""))
    if not sender or named is None or named.stage is Stage.UNACKNOWLEDGED:
        return None
    lock = (Jid(sender), named.partition, named.position, named.token)
    if iq.get("type") == "error":
        return Bounce(*lock, gone=_gone(iq), stage=named.stage)
    if named.stage is Stage.ASSURED and not _received(iq, _message_id(named.partition, named.token)):
        return None
    return Confirm(*lock, named.stage)


def _head(service: str, delivery: Delivery) -> str:
    return (
        f"<iq type='set' from='{escaped(service)}' to='{escaped(delivery.subscriber)}'"
        f" id='{delivery_ids.written(delivery)}'>"
    )


def _message_id(partition: Partition, token: int) -> str:
    """Return the msgId of a lock, unique in the service and across incarnations of a node (S14)."""
    return f"{partition.incarnation}-{partition.number}-{token}"


def _received(iq: Element, message_id: str) -> bool:
    # Peers write `received` without its namespace, as in the examples, or qualify its attribute, as in the schema.
    return any(child.tag.rpartition("}")[2] == "received" and message_id in map(child.get, _MSG_IDS) for child in iq)


def _gone(iq: Element) -> bool:
    error = stanzas.error(iq)
    # A receiver that has lost an assured message answers item-not-found: it is available, and gets the message again.
    return error is not None and error.get("type") == "cancel" and error.find(_ITEM_NOT_FOUND) is None
