"""An item's payload in both directions. Knows the envelope; must not know nodes, locks or stanzas."""

from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final
from xml.etree.ElementTree import Element

from broker import codec, payloads
from broker.model.items import headers
from broker.model.items.items import Envelope
from broker.model.nodes.options import MAX_PAYLOAD_BYTES
from broker.model.problems import MalformedRequest, Problem
from frontends.xmpp import namespaces as ns
from frontends.xmpp.xml.text import FORBIDDEN, escape, serialise

_HEADERS: Final = f"{{{ns.SHIM}}}headers"
_HEADER: Final = f"{{{ns.SHIM}}}header"
_JSON: Final = f"{{{ns.JSON}}}json"
_DATA: Final = f"{{{ns.STANZAQ}}}data"
NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
"""No headers."""


def read_payload(item: Element, said: Mapping[str, str] = NOTHING) -> tuple[bytes, int]:
    """Read the payload element of `<item/>` and its headers, plus `said`; returns the envelope as bytes, and their size."""
    if not len(item):
        raise MalformedRequest(Problem.PAYLOAD_REQUIRED, "an item of a queue must have a payload")
    payload, *beside = item
    told = beside[0] if beside and beside[0].tag == _HEADERS else None
    around = (item.text or "") + (payload.tail or "") + ("" if told is None else told.tail or "")
    if len(beside) > (told is not None) or around.strip():
        raise MalformedRequest(
            Problem.PAYLOAD_INVALID, "a payload must be exactly one element, optionally with headers"
        )
    named = {} if told is None else headers.validate_headers(_pairs(told))
    envelope = _envelope(payload, {**named, **said})
    size = len(envelope.body) + (headers.size(named) if named else 0)
    # No node allows more, so the core need not see it; the core checks the limits of each node.
    if size > MAX_PAYLOAD_BYTES:
        raise MalformedRequest(Problem.PAYLOAD_TOO_BIG, f"the payload has {size} bytes of at most {MAX_PAYLOAD_BYTES}")
    return codec.pack(envelope), size


def _envelope(payload: Element, named: Mapping[str, str]) -> Envelope:
    """Unpack JSON (XEP-0335) and our own `<data/>`, as other doors' publishers send it; other elements stay XML."""
    if payload.tag == _JSON:
        text = "" if len(payload) else payload.text or ""
        envelope = payloads.make_envelope(text.encode(), payloads.JSON, named)
        # Attributes say more than JSON can, but for declarations that the reader of XML has added.
        more = [name for name in payload.attrib if not name.startswith("xmlns:")]
        return Envelope(serialise(payload), headers=named) if more else envelope
    if payload.tag != _DATA:
        return Envelope(serialise(payload), headers=named)
    kind = payload.get("type", "")
    try:
        body = b64decode("".join((payload.text or "").split()), validate=True)
    except ValueError:
        body = None
    if body is None or len(payload) or (kind and not payloads.is_type(kind)):
        raise MalformedRequest(Problem.PAYLOAD_INVALID, "<data/> must be base64, optionally with a media type")
    return payloads.make_envelope(body, kind, named)


def _pairs(told: Element) -> Iterator[tuple[str, str]]:
    """Read a publisher's headers (XEP-0131)."""
    for header in told:
        if header.tag != _HEADER or len(header):
            raise MalformedRequest(Problem.PAYLOAD_INVALID, "each header must have its own name, and a text")
        yield header.get("name", ""), header.text or ""


def read_element(record: bytes) -> bytes:
    """Return the element of an envelope's payload; raises CorruptRecord."""
    return _element(codec.unpack(record))


def listed_element(record: bytes) -> bytes:
    """Return the element of a payload in a list; an envelope that cannot be read is shown as its bytes, and hides no others."""
    return _element(codec.unpack_any(record))


def payload_and_headers(record: bytes, more: Mapping[str, str]) -> tuple[bytes, bytes]:
    """Return the payload element, and a headers element of the envelope's headers and `more`; raises CorruptRecord."""
    envelope = codec.unpack(record)
    if not (envelope.headers or more):
        return _element(envelope), b""
    said = {**payloads.shown_headers(envelope), **more}
    return _element(envelope), write_headers(said) if said else b""


def _element(envelope: Envelope) -> bytes:
    found = payloads.element(envelope)
    if found is not None:
        return found
    # JSON has an element of its own (XEP-0335), unless it has characters that XML forbids.
    if payloads.is_json(envelope):
        try:
            text = envelope.body.decode()
        except UnicodeDecodeError:
            text = "\x00"
        if not FORBIDDEN.search(text):
            return f"<json xmlns='{ns.JSON}'>{escape(text)}</json>".encode()
    kind = escape(payloads.kind(envelope))
    return f"<data xmlns='{ns.STANZAQ}' type='{kind}'>{b64encode(envelope.body).decode()}</data>".encode()


def write_headers(said: Mapping[str, str]) -> bytes:
    """Write headers (XEP-0131)."""
    inside = "".join(f"<header name='{escape(name)}'>{escape(value)}</header>" for name, value in said.items())
    return f"<headers xmlns='{ns.SHIM}'>{inside}</headers>".encode()
