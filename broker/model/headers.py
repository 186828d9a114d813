"""What a publisher says of its item: named texts that travel with it. Must not know how a door writes them."""

from collections.abc import Iterable, Mapping
from typing import Final

from broker.model.problems import MalformedRequest, Problem

MOST: Final = 32

AMQP: Final = "amqp"
"""What of a message AMQP alone understands, as its door writes and reads it."""

ELEMENT: Final = "stanzaq-element"
"""Where in a payload the element is that it is, as `broker.payloads` writes and reads it."""

INNER: Final = frozenset({AMQP, ELEMENT})
"""Notes that the service makes for itself and tells nobody."""

_OURS: Final = frozenset({AMQP, "collection", "subid", "traceparent", "tracestate"})
_BEGIN: Final = ("stanzaq-", "pubsub#")
"""The names that the service itself gives, and how the others of them begin."""


def named(said: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Give headers by their names; raises MalformedRequest for a name that is none, comes twice or is the service's to give."""
    found: dict[str, str] = {}
    for name, text in said:
        if not name or name in found:
            raise MalformedRequest(Problem.PAYLOAD_INVALID, "each header has a name of its own, and a text")
        if name.lower() in _OURS or name.lower().startswith(_BEGIN):
            raise MalformedRequest(Problem.PAYLOAD_INVALID, f"the header {name[:80]} is the service's to give")
        found[name] = text
    if len(found) > MOST:
        raise MalformedRequest(Problem.PAYLOAD_INVALID, f"an item has at most {MOST} headers")
    return found


def size(found: Mapping[str, str]) -> int:
    """Give their bytes, which count as the payload's do."""
    return sum(len(text.encode()) for pair in found.items() for text in pair)
