"""How doors store payloads and tell what they are: the one rule for all of them. Pure; must not know doors.

A payload is stored byte for byte, with its publisher's type. XMPP and Atom put an XML document in UTF-8 into documents of their
own as an element; whether that is possible is decided once, at the publish. What is called JSON is checked there too.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final
from xml.parsers import expat

import msgspec

from broker.model.items.headers import ELEMENT, INNER
from broker.model.items.items import XML, Envelope
from broker.model.problems import MalformedRequest, Problem

BYTES: Final = "application/octet-stream"
JSON: Final = "application/json"

_NAME: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_MEDIA: Final = re.compile(rf"{_NAME}/{_NAME}(?:[ \t]*;[ -~]*)?")
_TYPE_BYTES: Final = 255
_CHARSET: Final = re.compile(r";[ \t]*charset=\"?([^\";, \t]*)", re.IGNORECASE)
_UTF_8: Final = frozenset({"utf-8", "utf8", "us-ascii", "ascii"})

_APART: Final = f"{XML};"
"""The plain XML type with an empty parameter (RFC 9110 §5.6.6); the plain type alone means: all of the payload is an element."""

_DEPTH: Final = 250
_ELEMENTS: Final = 20_000
_ROOT: Final = re.compile(rb"<[^\s/>]+")

_read_raw: Final = msgspec.json.Decoder(msgspec.Raw).decode
"""Reads the grammar of JSON and makes no values: numbers may be long."""


def is_type(text: str) -> bool:
    """Return whether a text is a media type."""
    return len(text) <= _TYPE_BYTES and _MEDIA.fullmatch(text) is not None


def make_envelope(body: bytes, content_type: str, headers: Mapping[str, str]) -> Envelope:
    """Make the envelope of a payload to publish; `content_type` may be empty. Raises MalformedRequest for JSON that is none."""
    if _is_json(content_type):
        try:
            check_json(body)
        except ValueError as wrong:
            raise MalformedRequest(Problem.PAYLOAD_INVALID, f"the payload is not JSON: {wrong}") from None
    if not _is_xml(content_type):
        return Envelope(body, content_type or BYTES, headers)
    place = _element(body)
    plain = content_type.lower() == XML
    if plain and place == f"0 {len(body)}":
        return Envelope(body, XML, headers)
    kind = _APART if plain else content_type
    return Envelope(body, kind, {**headers, ELEMENT: place} if place else headers)


def kind(envelope: Envelope) -> str:
    """Return the publisher's content type."""
    return XML if envelope.content_type == _APART else envelope.content_type


def shown_headers(envelope: Envelope) -> Mapping[str, str]:
    """Return the headers to show, without the service's own."""
    return {name: text for name, text in envelope.headers.items() if name not in INNER}


def is_json(envelope: Envelope) -> bool:
    """Return whether its type is JSON."""
    return _is_json(envelope.content_type)


def check_json(body: bytes) -> None:
    """Check that bytes are one JSON text in UTF-8 (RFC 8259); a ValueError says what is wrong."""
    try:
        _read_raw(body)
        if not body.isascii():
            # The grammar alone lets any bytes pass in a string.
            body.decode()
    except RecursionError:
        msg = "it is nested too deeply"
        raise ValueError(msg) from None
    except msgspec.DecodeError as wrong:
        raise ValueError(str(wrong).removeprefix("JSON is malformed: ")) from None


@lru_cache(maxsize=256)
def _is_json(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == JSON


def element(envelope: Envelope) -> bytes | None:
    """Return the element that can be put into another document; None when there is none."""
    body = envelope.body
    if envelope.content_type == XML:
        return body
    start, end, *name = map(int, envelope.headers.get(ELEMENT, "0 0").split(" "))
    if not name:
        return body[start:end] or None
    # In its own document the root is in no namespace; elsewhere it would take the surrounding one.
    return b"%b xmlns=''%b" % (body[start : name[0]], body[name[0] : end])


@lru_cache(maxsize=256)
def _is_xml(content_type: str) -> bool:
    bare, _, parameters = content_type.partition(";")
    bare = bare.strip().lower()
    if not (bare in {XML, "text/xml"} or bare.endswith("+xml")):
        return False
    charset = _CHARSET.search(f";{parameters}")
    return charset is None or charset[1].lower() in _UTF_8


def _element(body: bytes) -> str:
    """Return where the one element of a UTF-8 document begins and ends, if it has nothing that a stanza forbids; else empty.

    A third number is where the name of its root ends, if elements without a namespace need `xmlns=''` there.
    """
    parser = expat.ParserCreate(namespace_separator=" ")
    start = depth = elements = 0
    bare = declared = False

    def declares(prefix: str | None, _uri: str | None) -> None:
        nonlocal declared
        declared |= not elements and prefix is None

    def begin(name: str, _attributes: dict[str, str]) -> None:
        nonlocal start, depth, elements, bare
        if not elements:
            start = parser.CurrentByteIndex
        depth += 1
        elements += 1
        bare |= " " not in name
        if depth > _DEPTH or elements > _ELEMENTS:
            raise ValueError

    def end(_name: str) -> None:
        nonlocal depth
        depth -= 1

    def check_encoding(_version: str, encoding: str | None, _standalone: int) -> None:
        if encoding and encoding.lower() not in _UTF_8:
            raise ValueError

    def refuse(*_: object) -> None:
        raise ValueError

    parser.StartNamespaceDeclHandler, parser.XmlDeclHandler = declares, check_encoding
    parser.StartElementHandler, parser.EndElementHandler = begin, end
    # RFC 6120 §11.1 forbids these in a stream.
    parser.StartDoctypeDeclHandler = parser.CommentHandler = parser.ProcessingInstructionHandler = refuse
    try:
        # As text: in bytes expat would follow the mark of another encoding.
        parser.Parse(body.decode(), True)  # noqa: FBT003  (expat's: all of it)
    except (expat.ExpatError, ValueError):
        return ""
    finally:
        # It refers to the parser: both would stay, with the text, until Python collects garbage.
        parser.StartElementHandler = None
    place = f"{start} {len(body.rstrip())}"
    root = _ROOT.match(body, start)
    return f"{place} {root.end()}" if root and bare and not declared else place
