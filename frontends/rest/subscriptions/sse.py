"""Writes Server-Sent Events (`text/event-stream` of the HTML standard) of a subscription. Pure."""

from typing import Final

from frontends.rest.errors import Fault, written
from frontends.rest.formats import documents
from frontends.rest.formats.views import Message

NOTHING: Final = b":\n\n"
"""A comment that keeps the stream alive."""


def message(shown: Message) -> bytes:
    """Write the event of a message: JSON in one line."""
    return b"event: message\ndata: %b\n\n" % documents.message(shown)


def end(told: Fault) -> bytes:
    """Write the last event, with the reason of the end."""
    return b"event: end\ndata: %b\n\n" % written(told)
