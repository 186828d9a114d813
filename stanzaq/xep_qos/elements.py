"""The elements of `urn:xmpp:qos`, as a sender writes and reads them. Must not know when they are sent."""

from copy import deepcopy
from dataclasses import dataclass
from typing import Final
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element
from xml.sax.saxutils import quoteattr

from stanzaq.xep_qos.outbox import Outstanding, Step

QOS: Final = "urn:xmpp:qos"
_STANZAS: Final = "{urn:ietf:params:xml:ns:xmpp-stanzas}"


@dataclass(frozen=True, slots=True)
class Result:
    """The receiver has done what was requested; `received` is the msgId that it echoes, if any."""

    received: str = ""


@dataclass(frozen=True, slots=True)
class Error:
    """A stanza error from the receiver or from a server on the way."""

    kind: str
    condition: str
    text: str = ""


def embedded(content: Element, namespace: str, msg_id: str) -> str:
    """Return the message to embed: `content` is a message in the stream's namespace, or its payload.

    The IQ names sender and receiver (§Security). The message gets an id, by which a receiver recognises it.
    """
    tag = f"{{{namespace}}}message"
    message = deepcopy(content)
    message.tail = None
    if content.tag != tag:
        payload, message = message, Element(tag)
        message.append(payload)
    for name in ("to", "from"):
        message.attrib.pop(name, None)
    message.attrib.setdefault("id", msg_id)
    return ET.tostring(message, "unicode")


def request(sent: Outstanding) -> str:
    """Return the payload of the IQ for a message's step, as XML."""
    name = "" if sent.step is Step.ACKNOWLEDGED else f" msgId={quoteattr(sent.msg_id)}"
    message = "" if sent.step is Step.DELIVER else sent.message
    return f"<{sent.step} xmlns='{QOS}'{name}>{message}</{sent.step}>"


def answer(iq: Element) -> Result | Error:
    """Parse an IQ of type result or error.

    The document shows <received/> without a namespace, but its schema has one and puts msgId into it: only local names count.
    """
    if iq.get("type") == "result":
        received = next((child for child in iq if _local(child.tag) == "received"), None)
        if received is None:
            return Result()
        return Result(next((value for name, value in received.items() if _local(name) == "msgId"), ""))
    error = next((child for child in iq if _local(child.tag) == "error"), Element("error"))
    conditions = [child for child in error if child.tag.startswith(_STANZAS)]
    named = next((child for child in conditions if _local(child.tag) != "text"), Element("undefined-condition"))
    return Error(error.get("type", ""), _local(named.tag), error.findtext(f"{_STANZAS}text", ""))


def _local(name: str) -> str:
    return name.rpartition("}")[2]
