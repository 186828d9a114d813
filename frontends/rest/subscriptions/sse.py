"""Server-Sent Events (the HTML standard's `text/event-stream`), for what a subscription holds. Pure."""

from typing import Final

from frontends.rest.errors import Fault, written
from frontends.rest.formats import documents
from frontends.rest.formats.views import Message

NOTHING: Final = b":\n\n"
"""A comment: says that the stream is alive."""


def message(shown: Message) -> bytes:
    """Write an event of a message: JSON in one line."""
    return b"event: message\ndata: %b\n\n" % documents.message(shown)


def end(told: Fault) -> bytes:
    """Write the last event: why there are no more."""
    return b"event: end\ndata: %b\n\n" % written(told)
