"""Requests of urn:xmpp:qos: messages with a delivery guarantee, below all other protocols (S1). Pure.

`publishing` parses the inner message as if it had come from the IQ's sender by itself. Must not know the core.
"""

from typing import Final
from xml.etree.ElementTree import Element

from broker.model.commands import Deliver, PrepareMessage
from broker.model.problems import MalformedRequest, Problem
from frontends.xmpp import namespaces as ns
from frontends.xmpp.errors import Unserved
from frontends.xmpp.messages import publishing
from frontends.xmpp.stanzas import Iq, Question, View, drop_foreign, expect
from frontends.xmpp.xml.text import escape

_SPACE: Final = f"{{{ns.QOS}}}"
ANY: Final = f"{_SPACE}*"
"""Finds what is of this protocol."""

_CONTROLS: Final = frozenset(f"{_SPACE}{name}" for name in ("acknowledged", "assured", "deliver", "received"))
_MESSAGES: Final = frozenset(f"{{{space}}}message" for space in (ns.CLIENT, ns.COMPONENT, ns.QOS))

_MSG_ID_CHARACTERS: Final = 256

INVALID: Final = frozenset(
    {
        Problem.BAD_REQUEST,
        Problem.UNSUPPORTED,
        Problem.NOT_TRUSTED,
        Problem.TOO_MUCH_HELD,
        Problem.PAYLOAD_TOO_BIG,
    }
)
"""Problems that indicate misuse of the service, and not a queue that refuses an item (S21)."""


def read(iq: Iq, service: str) -> Question:
    """Translate an IQ of this protocol, to the service or to a node's address; raises MalformedRequest."""
    node = publishing.node_at(iq.service, service)
    if node is None:
        raise Unserved(detail=f"the service is {service}, and a node NODE@{service}")
    expect(iq, "set")
    if len(iq.element) != 1:
        raise MalformedRequest(Problem.BAD_REQUEST, "an IQ request has exactly one child (RFC 6120 8.2.3)")
    child = iq.element[0]
    match child.tag.removeprefix(_SPACE):
        case "acknowledged":
            return Question(iq, _read_sent(child, node).publish_once(iq.sender), View.NOTHING)
        case "assured":
            return Question(iq, _read_held(iq, child, node))
        case "deliver":
            return Question(iq, Deliver(iq.sender, _msg_id(child)))
    raise MalformedRequest(Problem.UNSUPPORTED, "no such request in urn:xmpp:qos")


def write_received(msg_id: str) -> bytes:
    """Write that a message is stored; qualified, which also suits a peer that checks only the local name (SX1)."""
    return f"<received xmlns='{ns.QOS}' msgId='{escape(msg_id)}'/>".encode()


def _read_held(iq: Iq, assured: Element, node: str) -> PrepareMessage:
    msg_id = _msg_id(assured)
    sent = _read_sent(assured, node)
    # Without an id of its own, the item gets one when it is stored: a msgId may be reused for another message.
    publish = sent.publish(iq.sender, sent.item_id)
    return PrepareMessage(iq.sender, msg_id, publish, sent.stem or msg_id[: publishing.STEM_CHARACTERS])


def _msg_id(element: Element) -> str:
    # Examples and peers write it unqualified; the schema, by mistake, qualifies it (SX2).
    msg_id = element.get("msgId") or element.get(f"{_SPACE}msgId") or ""
    if not 0 < len(msg_id) <= _MSG_ID_CHARACTERS:
        raise MalformedRequest(Problem.BAD_REQUEST, f"a msgId has 1 to {_MSG_ID_CHARACTERS} characters")
    return msg_id


def _read_sent(wrapper: Element, node: str) -> publishing.Sent:
    wrapper = drop_foreign(wrapper, ns.CLIENT, ns.COMPONENT, ns.QOS)
    if len(wrapper) != 1 or wrapper[0].tag not in _MESSAGES:
        raise MalformedRequest(Problem.BAD_REQUEST, "the request must contain exactly one message")
    message = wrapper[0]
    if message.get("type") == "error":
        raise MalformedRequest(Problem.BAD_REQUEST, "an error cannot be delivered")
    if any(child.tag in _CONTROLS for child in message):
        raise MalformedRequest(Problem.BAD_REQUEST, "a QoS request must not contain another")
    if message.tag.startswith(_SPACE):
        # The message lacks a namespace declaration of its own; it means the stream's (SX5).
        for element in message.iter():
            if element.tag.startswith(_SPACE):
                element.tag = f"{{{ns.CLIENT}}}{element.tag.removeprefix(_SPACE)}"
    sent = publishing.read(message, node)
    if sent is None:
        raise MalformedRequest(Problem.NODE_REQUIRED, "the message names no node: send it to NODE@service")
    return sent
