"""IQs and the requests in them, as values. Knows the envelope of a stanza; must not know any payload."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final
from xml.etree.ElementTree import Element

from broker.model.commands import Command, MoveItems
from broker.model.names import Jid
from broker.model.nodes.nodes import NodeRecord
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import Refused
from frontends.xmpp import namespaces as ns

_ERROR_NAMES: Final = (f"{{{ns.COMPONENT}}}error", f"{{{ns.CLIENT}}}error")


@dataclass(frozen=True, slots=True)
class Iq:
    """An IQ request. Sender and service are its addresses as stamped by the XMPP server; a reply swaps them."""

    id: str
    kind: str
    sender: Jid
    service: str
    element: Element


class View(Enum):
    """Which reply to write: different requests describe the same node, publish, or end a lock with or without a notification."""

    CONFIGURATION = auto()
    AFFILIATIONS = auto()
    COMMAND = auto()
    DEFAULT_SUBSCRIPTION = auto()
    INFO = auto()
    NOTHING = auto()
    RESULT_ONLY = auto()


@dataclass(frozen=True, slots=True)
class Question:
    """A request for the core."""

    iq: Iq
    command: Command
    view: View | None = None


@dataclass(frozen=True, slots=True)
class MoveBatch(Question):
    """A request for as many steps of a transfer as fit before its answer, at most `rate` items a second.

    `moved` and `stayed` count the results of earlier batches.
    """

    command: MoveItems
    rate: int = 1
    moved: int = 0
    stayed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedNode(Question):
    """A request for a node's counts when its record is known."""

    record: NodeRecord


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """A request about several items of a node, one in each row; a row that is malformed in itself is refused already."""

    iq: Iq
    node: str
    rows: tuple[tuple[Element, Command | Refused], ...]


@dataclass(frozen=True, slots=True)
class DoorAnswer:
    """A request that the door answers itself, with the content of the result."""

    iq: Iq
    content: bytes = b""


def parse_iq(element: Element) -> Iq | None:
    """Parse the envelope of an IQ; None for a response, and if it cannot be answered.

    Without a sender or an id no answer is possible (RFC 6120 §8.2.3).
    """
    kind = element.get("type", "")
    sender = element.get("from")
    request = element.get("id")
    if kind in {"result", "error"} or not sender or not request:
        return None
    return Iq(request, kind, Jid(sender), element.get("to", ""), element)


def error(element: Element) -> Element | None:
    """Return the error inside a bounced stanza, in whichever namespace the server left it."""
    return next((child for child in element if child.tag in _ERROR_NAMES), None)


def expect(iq: Iq, kind: str) -> None:
    """Refuse a set where a get belongs, and a get where a set does."""
    if iq.kind != kind:
        raise MalformedRequest(Problem.BAD_REQUEST, f"this request is a {kind}")


def drop_foreign(parent: Element, *spaces: str) -> Element:
    """Return an element without children of foreign namespaces, which are ignored (RFC 6120 §8.4)."""
    found = Element(parent.tag, parent.attrib)
    for child in parent:
        if child.tag[1:].rpartition("}")[0] in spaces:
            found.append(child)
    return parent if len(found) == len(parent) else found


def only_child(iq: Iq, pubsub: Element, kind: str) -> Element:
    """Return the only child of a `<pubsub/>` in an IQ of this kind."""
    expect(iq, kind)
    if len(pubsub) > 1:
        raise MalformedRequest(Problem.BAD_REQUEST, "one request at a time")
    return pubsub[0]
