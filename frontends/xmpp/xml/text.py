"""Writes XML: texts with their characters escaped, times, and parsed elements that stand alone. Must not know what they mean.

An element is written with its names, namespaces, attributes and text. CDATA marks, prefixes of names and the order of
declarations are lost: ElementTree does not keep them. A document type or an undeclared entity has ended the stream before.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final
from xml.etree.ElementTree import Element

from broker.model.nodes.options import MAX_PAYLOAD_BYTES
from broker.model.problems import MalformedRequest, Problem
from frontends.xmpp import namespaces as ns

FORBIDDEN: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""Characters that no XML document can contain, not even as a reference (XML 1.0 §2.2)."""

_SPECIAL: Final = re.compile("[&<>'\"\x00-\x1f\ud800-\udfff\ufffe\uffff]")
_REFERENCES: Final = {
    # First, because the others contain it.
    "&": "&amp;",
    "<": "&lt;",
    ">": "&gt;",
    "'": "&apos;",
    '"': "&quot;",
    # Unescaped, they would return as spaces from an attribute, or as line feeds from a text (XML 1.0 §3.3.3, §2.11).
    "\t": "&#9;",
    "\n": "&#10;",
    "\r": "&#13;",
}


def escape(text: str) -> str:
    """Escape a text for an attribute or content; forbidden characters become U+FFFD."""
    if not _SPECIAL.search(text):
        return text
    # Replacing by a function for each match would take four times as long for a stanza full of quotes.
    for plain, reference in _REFERENCES.items():
        text = text.replace(plain, reference)
    # Names of nodes and items may come from other doors, which forbid less than XML.
    return FORBIDDEN.sub("\ufffd", text)


escaped_name = lru_cache(maxsize=1_024)(escape)
"""Escape a name that recurs often: of a node, a JID, a namespace."""


@lru_cache(maxsize=64)
def _second(since_1970: int) -> str:
    return datetime.fromtimestamp(since_1970, UTC).strftime("%Y-%m-%dT%H:%M:%S")


@lru_cache(maxsize=64)
def moment(since_1970_ms: int) -> str:
    """Write a time (XEP-0082 §3.2): UTC, with milliseconds. The items of a batch often came at one time, and expire at one."""
    second, ms = divmod(since_1970_ms, 1000)
    return f"{_second(second)}.{ms:03d}Z"


DEPTH: Final = 256
"""The deepest nesting that is written: real documents stay far below, and the interpreter's stack holds four times as much."""

RESERVED: Final = (ns.XML, ns.XMLNS)
"""Neither can be declared (Namespaces in XML §3), and neither defines elements."""


def serialise(element: Element) -> bytes:
    """Serialise an element without its tail; raises MalformedRequest when it is nested too deeply or too long for a payload."""
    pieces: list[str] = []
    _write(element, None, DEPTH, pieces.append, [MAX_PAYLOAD_BYTES])
    return "".join(pieces).encode()


def _split(tag: str) -> tuple[str, str]:
    """Split `{namespace}name`; only the name is known to contain no brace."""
    if tag[0] != "{":
        return "", tag
    namespace, _, name = tag[1:].rpartition("}")
    # A component's stream has a default namespace of its own; elsewhere such elements are a client's (XEP-0114 §4).
    return (ns.CLIENT if namespace == ns.COMPONENT else namespace), name


def _write(element: Element, inherited: str | None, room: int, put: Callable[[str], None], left: list[int]) -> None:
    """Write an element. Of namespaces and attributes so many bytes are left: one declaration may be written again for each."""
    if not room:
        raise MalformedRequest(Problem.PAYLOAD_INVALID, f"nested more than {DEPTH} levels deep")
    namespace, name = _split(element.tag)
    if namespace == inherited:
        put(f"<{name}")
    elif namespace in RESERVED:
        raise MalformedRequest(Problem.PAYLOAD_INVALID, "an element in a namespace of XML itself")
    else:
        left[0] -= len(namespace)
        put(f"<{name} xmlns='{escaped_name(namespace)}'")
    if element.attrib:
        _write_attributes(element.attrib, put, left)
    if left[0] < 0:
        raise MalformedRequest(Problem.PAYLOAD_TOO_BIG, f"a payload has at most {MAX_PAYLOAD_BYTES} bytes")
    if not len(element) and not element.text:
        put("/>")
        return
    put(">")
    if element.text:
        put(_content(element.text))
    for child in element:
        _write(child, namespace, room - 1, put, left)
        if child.tail:
            put(_content(child.tail))
    put(f"</{name}>")


def _write_attributes(attributes: dict[str, str], put: Callable[[str], None], left: list[int]) -> None:
    for number, (key, value) in enumerate(attributes.items()):
        namespace, name = _split(key)
        left[0] -= len(namespace) + len(value)
        if not namespace:
            put(f" {name}='{escape(value)}'")
        elif namespace == ns.XML:
            put(f" xml:{name}='{escape(value)}'")
        elif namespace == ns.XMLNS:
            raise MalformedRequest(Problem.PAYLOAD_INVALID, "an attribute in a namespace of XML itself")
        else:
            prefix = f"n{number}"
            while f"xmlns:{prefix}" in attributes:
                prefix += "_"
            put(f" xmlns:{prefix}='{escape(namespace)}' {prefix}:{name}='{escape(value)}'")


def _content(text: str) -> str:
    """Escape a parsed text, which has no forbidden characters; four searches take a tenth of a regular expression's time."""
    if "&" in text:
        text = text.replace("&", "&amp;")
    if "<" in text:
        text = text.replace("<", "&lt;")
    if ">" in text:
        text = text.replace(">", "&gt;")
    return text.replace("\r", "&#13;") if "\r" in text else text
