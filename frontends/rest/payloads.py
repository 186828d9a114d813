"""What a message says on its way in and out: a content type and bytes, which stay as they are. Must not know queues.

XML needs care: what is stored as `application/xml` the XMPP door puts into a stanza as it is, so that has to be an element that
stands alone. Other XML is stored under the same type with an empty parameter (RFC 9110 §5.6.6), as bytes like any other.
"""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final
from xml.parsers import expat

from broker import codec
from broker.model.items import XML, Envelope
from broker.model.options import MAX_PAYLOAD_BYTES
from broker.model.problems import MalformedRequest, Problem
from frontends.rest.errors import Fault

BYTES: Final = "application/octet-stream"

_NAME: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_MEDIA: Final = re.compile(rf"{_NAME}/{_NAME}(?:[ \t]*;[ -~]*)?")
_TYPE_BYTES: Final = 255
_DEPTH: Final = 250
_ELEMENTS: Final = 20_000
_APART: Final = f"{XML};"


def packed(body: bytes, content_type: str, headers: Mapping[str, str]) -> bytes:
    """Make the envelope of a message; raises MalformedRequest when it is too big for any queue, Fault for a type that is none."""
    if len(body) > MAX_PAYLOAD_BYTES:
        raise MalformedRequest(
            Problem.PAYLOAD_TOO_BIG, f"the body has {len(body)} bytes, a message at most {MAX_PAYLOAD_BYTES}"
        )
    return codec.pack(Envelope(body, _kind(body, content_type.strip() or BYTES), headers))


def opened(record: bytes) -> Envelope:
    """Read an envelope, with the type as its publisher gave it; raises CorruptRecord."""
    envelope = codec.unpack(record)
    return Envelope(envelope.body, XML, envelope.headers) if envelope.content_type == _APART else envelope


def stands_alone(record: bytes) -> bool:
    """Tell whether an envelope holds an element that may be put into another document."""
    return codec.unpack(record).content_type == XML


def _kind(body: bytes, content_type: str) -> str:
    if len(content_type) > _TYPE_BYTES or not _MEDIA.fullmatch(content_type):
        raise Fault(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "media-type-invalid", "Content-Type is not TYPE/SUBTYPE with parameters"
        )
    if content_type.lower() == XML:
        return XML if _is_element(body) else _APART
    return content_type


def _is_element(body: bytes) -> bool:
    """Tell whether this is one element in UTF-8 whose namespaces are all its own, with nothing that a stanza may not have."""
    if not body.startswith(b"<") or body.startswith(b"<?") or not body.endswith(b">"):
        return False
    parser = expat.ParserCreate("UTF-8", namespace_separator=" ")
    depth = elements = 0

    def start(name: str, _attributes: dict[str, str]) -> None:
        nonlocal depth, elements
        depth += 1
        elements += 1
        if " " not in name or depth > _DEPTH or elements > _ELEMENTS:
            raise ValueError

    def end(_name: str) -> None:
        nonlocal depth
        depth -= 1

    def refuse(*_: object) -> None:
        raise ValueError

    parser.StartElementHandler, parser.EndElementHandler = start, end
    # RFC 6120 §11.1: none of these in a stream.
    parser.StartDoctypeDeclHandler = parser.CommentHandler = parser.ProcessingInstructionHandler = refuse
    try:
        parser.Parse(body, True)  # noqa: FBT003  (expat's: all of it)
    except (expat.ExpatError, ValueError):
        return False
    return True
