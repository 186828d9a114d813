"""Headers of an item: texts by name that its publisher gives. Must not know how a door writes them."""

from collections.abc import Iterable, Mapping
from typing import Final

from broker.model.problems import MalformedRequest, Problem

MOST: Final = 32

AMQP: Final = "amqp"
"""The header with the parts of a message that only AMQP knows; the AMQP door writes and reads it."""

ELEMENT: Final = "stanzaq-element"
"""The header that says where in a payload its XML element is; `broker.payloads` writes and reads it."""

INNER: Final = frozenset({AMQP, ELEMENT})
"""Headers for the service's own use, shown to nobody."""

_OURS: Final = frozenset({AMQP, "collection", "subid", "traceparent", "tracestate"})
_BEGIN: Final = ("stanzaq-", "pubsub#")
"""Reserved names, and how the other reserved names begin."""


def validate_headers(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return headers by name; raises MalformedRequest for a name that is empty, repeated or reserved."""
    found: dict[str, str] = {}
    for name, text in pairs:
        if not name or name in found:
            raise MalformedRequest(Problem.PAYLOAD_INVALID, "each header must have its own name, and a text")
        if name.lower() in _OURS or name.lower().startswith(_BEGIN):
            raise MalformedRequest(Problem.PAYLOAD_INVALID, f"the header {name[:80]} is reserved for the service")
        found[name] = text
    if len(found) > MOST:
        raise MalformedRequest(Problem.PAYLOAD_INVALID, f"an item has at most {MOST} headers")
    return found


def size(headers: Mapping[str, str]) -> int:
    """Return their size in bytes, which counts towards the payload's."""
    return sum(len(text.encode()) for pair in headers.items() for text in pair)
