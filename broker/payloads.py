"""What a payload is taken for, whichever door it came through: the one rule by which doors keep it and tell what it is. Pure.

A payload is kept byte for byte, with the type that its publisher gave it. An XML document in UTF-8 is an element to XMPP and
Atom, which put it into documents of their own, so whether it can stand there is judged once, when it comes. Must not know doors.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final
from xml.parsers import expat

from broker.model.headers import ELEMENT, INNER
from broker.model.items import XML, Envelope

BYTES: Final = "application/octet-stream"
JSON: Final = "application/json"

_NAME: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_MEDIA: Final = re.compile(rf"{_NAME}/{_NAME}(?:[ \t]*;[ -~]*)?")
_TYPE_BYTES: Final = 255
_CHARSET: Final = re.compile(r";[ \t]*charset=\"?([^\";, \t]*)", re.IGNORECASE)
_UTF_8: Final = frozenset({"utf-8", "utf8", "us-ascii", "ascii"})

_APART: Final = f"{XML};"
"""The plain type with an empty parameter (RFC 9110 §5.6.6): by the plain one doors know what is an element from end to end."""

_DEPTH: Final = 250
_ELEMENTS: Final = 20_000
_ROOT: Final = re.compile(rb"<[^\s/>]+")


def is_type(text: str) -> bool:
    """Tell whether a text is a media type."""
    return len(text) <= _TYPE_BYTES and _MEDIA.fullmatch(text) is not None


def kept(body: bytes, content_type: str, headers: Mapping[str, str]) -> Envelope:
    """Make the envelope of a payload; `content_type` is one, or empty."""
    if not _is_xml(content_type):
        return Envelope(body, content_type or BYTES, headers)
    place = _element(body)
    plain = content_type.lower() == XML
    if plain and place == f"0 {len(body)}":
        return Envelope(body, XML, headers)
    kind = _APART if plain else content_type
    return Envelope(body, kind, {**headers, ELEMENT: place} if place else headers)


def kind(envelope: Envelope) -> str:
    """Give the type that its publisher gave it."""
    return XML if envelope.content_type == _APART else envelope.content_type


def said(envelope: Envelope) -> Mapping[str, str]:
    """Give the headers that are told; the others are the service's own notes."""
    headers = envelope.headers
    return {name: text for name, text in headers.items() if name not in INNER} if headers else headers


def is_json(envelope: Envelope) -> bool:
    """Tell whether it is said to be JSON."""
    return envelope.content_type.partition(";")[0].strip().lower() == JSON


def element(envelope: Envelope) -> bytes | None:
    """Give the element that may be put into another document as it is; None when it is none."""
    body = envelope.body
    if envelope.content_type == XML:
        return body
    start, end, *name = map(int, envelope.headers.get(ELEMENT, "0 0").split(" "))
    if not name:
        return body[start:end] or None
    # In a document of its own it is in no namespace, elsewhere in the one around it.
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
    """Find the one element that a document in UTF-8 is, with nothing in it that a stanza may not have: where it begins and ends.

    A third place is where the name of its root ends: there elements in no namespace have to be kept so. Empty when it is none.
    """
    parser = expat.ParserCreate("UTF-8", namespace_separator=" ")
    start = -1
    depth = elements = 0
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

    def begins(_version: str, encoding: str | None, _standalone: int) -> None:
        if encoding and encoding.lower() not in _UTF_8:
            raise ValueError

    def refuse(*_: object) -> None:
        raise ValueError

    parser.StartNamespaceDeclHandler, parser.XmlDeclHandler = declares, begins
    parser.StartElementHandler, parser.EndElementHandler = begin, end
    # RFC 6120 §11.1: none of these in a stream.
    parser.StartDoctypeDeclHandler = parser.CommentHandler = parser.ProcessingInstructionHandler = refuse
    try:
        parser.Parse(body, True)  # noqa: FBT003  (expat's: all of it)
    except (expat.ExpatError, ValueError):
        return ""
    place = f"{start} {len(body.rstrip())}"
    root = _ROOT.match(body, start)
    return f"{place} {root.end()}" if root and bare and not declared else place
