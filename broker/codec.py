"""The envelope as bytes: the only serialisation of the project. Knows msgpack; must not know what a body means.

A record is a msgpack array `[version, type, body]` or `[version, type, body, headers]`. The type is a text, or a small
number for the type of nearly every item, so that an envelope adds five bytes to a body of 200.
"""

from dataclasses import replace
from typing import Final

import msgpack  # type: ignore[import-untyped]  # msgpack ships no types

from broker.model.items.items import XML, Envelope
from broker.model.problems import CorruptRecord

_VERSION: Final = 1
_XML: Final = 0


def pack(envelope: Envelope) -> bytes:
    """Encode an envelope."""
    kind = _XML if envelope.content_type == XML else envelope.content_type
    if envelope.headers:
        return bytes(msgpack.packb((_VERSION, kind, envelope.body, dict(envelope.headers))))
    return bytes(msgpack.packb((_VERSION, kind, envelope.body)))


def headless(record: bytes) -> bytes:
    """Return a record without its headers: copies of one message may differ in them."""
    try:
        return pack(replace(unpack(record), headers={}))
    except CorruptRecord:
        return record


def unpack_any(record: bytes) -> Envelope:
    """Decode an envelope; a corrupt one becomes a payload of its raw bytes, so that it does not hide other items."""
    try:
        return unpack(record)
    except CorruptRecord:
        return Envelope(record, "application/octet-stream")


def unpack(record: bytes) -> Envelope:
    """Decode what `pack` wrote; raises CorruptRecord on anything else."""
    try:
        # msgpack refuses a length beyond the record, and extension types are never written.
        version, kind, body, *rest = msgpack.unpackb(record, use_list=False, max_ext_len=0)
    except (ValueError, TypeError, msgpack.UnpackException) as fault:
        msg = f"not an envelope: {fault}"
        raise CorruptRecord(msg) from fault
    if type(version) is int and version > _VERSION:
        msg = f"an envelope of version {version}, newer than this program"
        raise CorruptRecord(msg)
    headers = rest[0] if rest else {}
    # Exact types: True equals 1, and msgpack has both.
    if (
        (type(version), version) == (int, _VERSION)
        and ((type(kind), kind) == (int, _XML) or (type(kind) is str and kind))
        and type(body) is bytes
        and len(rest) <= 1
        and type(headers) is dict
        and (not headers or all(type(text) is str for pair in headers.items() for text in pair))
    ):
        return Envelope(body, kind or XML, headers)
    msg = "not an envelope: its fields are of other types"
    raise CorruptRecord(msg)
