"""The types of AMQP 1.0 as bytes (part 1): enough to walk through a message and to insert annotations.

Knows encodings; must not know what a section or annotation means. The bytes come from strangers: `check` validates all of
them, bounded in depth and number, before anything else reads them.
"""

import struct
from collections.abc import Iterator
from math import isfinite
from typing import Final
from uuid import UUID

_WIDTHS: Final = {4: 0, 5: 1, 6: 2, 7: 4, 8: 8, 9: 16}
"""The bytes after a code, by its upper half; other codes are followed by a length."""

_CODES: Final = frozenset(
    bytes.fromhex("40414243444550515253545556606170717273748081828384 9498a0a1a3b0b1b3c0c1d0d1e0f0")
)
_INTEGERS: Final = {
    0x43: "",
    0x44: "",
    0x50: ">B",
    0x52: ">B",
    0x53: ">B",
    0x54: ">b",
    0x55: ">b",
    0x60: ">H",
    0x61: ">h",
    0x70: ">I",
    0x71: ">i",
    0x80: ">Q",
    0x81: ">q",
}
VALUE: Final = "a value"
MESSAGE: Final = "a message"
SASL: Final = "SASL"

_DEPTH: Final = 32
_MOST: Final = 10_000
"""The most values within one value; a hundred times as many would delay other connections."""


class Malformed(ValueError):  # noqa: N818  (named after the state of bytes)
    """Bytes that are not AMQP, or too much of it."""

    def __init__(self, what: str, why: str) -> None:
        """Say what was expected, and what is wrong."""
        super().__init__(f"{what}: {why}")


def check(data: bytes, at: int) -> int:
    """Validate one value and return where it ends; raises Malformed."""
    try:
        return _check(data, at, 0, [_MOST])
    except (IndexError, struct.error, UnicodeDecodeError):
        raise Malformed(VALUE, "a value is cut off or has invalid text") from None


def read_descriptor(data: bytes, at: int) -> tuple[int | str, int]:
    """Return the descriptor of a value, a number or a name, and where the described value begins; raises Malformed."""
    if data[at : at + 2] == b"\x00\x53" and len(data) > at + 2:
        return data[at + 2], at + 3
    if data[at]:
        raise Malformed(VALUE, "it has no descriptor")
    end = check(data, at + 1)
    number = integer(data, at + 1)
    return (text(data, at + 1) or "") if number is None else number, end


def _check(data: bytes, at: int, depth: int, left: list[int]) -> int:
    left[0] -= 1
    if depth > _DEPTH or left[0] < 0:
        raise Malformed(VALUE, "it has too many values, or too deep ones")
    code = data[at]
    if code == 0:
        return _check(data, _check(data, at + 1, depth + 1, left), depth + 1, left)
    if code not in _CODES:
        raise Malformed(VALUE, f"unknown type {code:#04x}")
    start, end = span(data, at)
    if end > len(data):
        raise Malformed(VALUE, "a value is cut off")
    kind = code >> 4
    if kind in {0xC, 0xD}:
        inside = _compound_end(data, code, start, depth, left)
        if inside != end:
            raise Malformed(VALUE, "the size of a list is wrong")
    elif kind in {0xE, 0xF}:
        _array(data, code, start, end)
    elif code in {0xA1, 0xB1}:
        str(data[start:end], "utf-8")
    elif code in {0xA3, 0xB3}:
        str(data[start:end], "ascii")
    return end


def _compound_end(data: bytes, code: int, start: int, depth: int, left: list[int]) -> int:
    count, inside = _read_count(data, code, start)
    if code & 1 and count % 2:
        raise Malformed(VALUE, "a map has a key without a value")
    keys = set()
    for place in range(count):
        begin, inside = inside, _check(data, inside, depth + 1, left)
        if code & 1 and not place % 2:
            keys.add(bytes(data[begin:inside]))
    if code & 1 and len(keys) < count // 2:
        # Part 1 §1.6.23.
        raise Malformed(VALUE, "a map has a key twice")
    return inside


def _array(data: bytes, code: int, start: int, end: int) -> None:
    """Check an array of plain values; other element types are not supported."""
    count, inside = _read_count(data, code, start)
    of = data[inside]
    width = _WIDTHS.get(of >> 4)
    inside += 1
    if of not in _CODES or of >> 4 > 0xB or count > _MOST:
        raise Malformed(VALUE, "the array has an unsupported element type")
    if width is not None:
        inside += count * width
    else:
        size = 1 if of >> 4 == 0xA else 4
        for _ in range(count):
            inside += size + int.from_bytes(data[inside : inside + size])
    if inside != end:
        raise Malformed(VALUE, "the size of an array is wrong")


def _read_count(data: bytes, code: int, start: int) -> tuple[int, int]:
    """Return the number of elements of a compound value, and where the first begins."""
    if code == 0x45:
        return 0, start
    if code & 0x10:
        return int(struct.unpack_from(">I", data, start)[0]), start + 4
    return data[start], start + 1


def span(data: bytes, at: int) -> tuple[int, int]:
    """Return where the content of an undescribed value begins and ends."""
    kind = data[at] >> 4
    width = _WIDTHS.get(kind)
    if width is not None:
        return at + 1, at + 1 + width
    if kind & 1:
        return at + 5, at + 5 + int(struct.unpack_from(">I", data, at + 1)[0])
    return at + 2, at + 2 + data[at + 1]


def read_list_start(data: bytes, at: int) -> tuple[int, int, int]:
    """Return how many values a list has, where the first begins, and where the list ends; raises Malformed for no list."""
    if data[at] not in {0x45, 0xC0, 0xD0}:
        raise Malformed(VALUE, "it is not a list")
    try:
        start, end = span(data, at)
        return *_read_count(data, data[at], start), end
    except struct.error:
        raise Malformed(VALUE, "a list is cut off") from None


def items(data: bytes, at: int) -> Iterator[int]:
    """Yield where each element of a checked list or map begins."""
    code = data[at]
    count, inside = _read_count(data, code, span(data, at)[0])
    for _ in range(count):
        yield inside
        inside = end_of_value(data, inside)


def pairs(data: bytes, at: int) -> Iterator[tuple[int, int]]:
    """Yield where each key of a checked map and its value begin."""
    places = items(data, at)
    return zip(places, places, strict=True)


def end_of_value(data: bytes, at: int) -> int:
    """Return where a checked value ends."""
    while data[at] == 0:
        at = end_of_value(data, at + 1)
    return span(data, at)[1]


def text(data: bytes, at: int) -> str | None:
    """Read a checked string or symbol; None for another type."""
    if data[at] not in {0xA1, 0xB1, 0xA3, 0xB3}:
        return None
    start, end = span(data, at)
    return data[start:end].decode()


def integer(data: bytes, at: int) -> int | None:
    """Read a checked integer of any width; None for another type."""
    form = _INTEGERS.get(data[at])
    if form is None:
        return None
    return int(struct.unpack_from(form, data, at + 1)[0]) if form else 0


def moment(data: bytes, at: int) -> int | None:
    """Read a checked timestamp, in ms since 1970; None for another type."""
    return int(struct.unpack_from(">q", data, at + 1)[0]) if data[at] == 0x83 else None


def read_text(data: bytes, at: int) -> str | None:
    """Read a checked plain value as a text; None if it has no text form."""
    code, found = data[at], integer(data, at)
    match code:
        case 0x41 | 0x42 | 0x56:
            return "true" if code == 0x41 or (code == 0x56 and data[at + 1]) else "false"
        case 0x72 | 0x82:
            value = struct.unpack_from(">f" if code == 0x72 else ">d", data, at + 1)[0]
            return repr(value) if isfinite(value) else None
        case 0x83:
            found = moment(data, at)
        case 0x98:
            return str(UUID(bytes=data[at + 1 : at + 17]))
    return text(data, at) if found is None else str(found)


def symbol(value: str) -> bytes:
    """Write a symbol."""
    return _variable(0xA3, value.encode("ascii"))


def string(value: str) -> bytes:
    """Write a string."""
    return _variable(0xA1, value.encode())


def binary(value: bytes) -> bytes:
    """Write a binary."""
    return _variable(0xA0, value)


def timestamp(ms: int) -> bytes:
    """Write a time in ms since 1970."""
    return struct.pack(">Bq", 0x83, ms)


def write_map(pairs: list[bytes]) -> bytes:
    """Write a map from alternating keys and values."""
    return _compound(0xC1, pairs)


def write_list(values: list[bytes]) -> bytes:
    """Write a list."""
    return _compound(0xC0, values)


def section(code: int, value: bytes) -> bytes:
    """Write a described value with a small numeric descriptor, as of sections and performatives."""
    return b"\x00\x53%c%b" % (code, value)


def _variable(code: int, value: bytes) -> bytes:
    if len(value) < 256:
        return b"%c%c%b" % (code, len(value), value)
    return b"%c%b%b" % (code | 0x10, struct.pack(">I", len(value)), value)


def _compound(code: int, values: list[bytes]) -> bytes:
    inside = b"".join(values)
    if len(inside) < 255 and len(values) < 256:
        return b"%c%c%c%b" % (code, len(inside) + 1, len(values), inside)
    return b"%c%b%b" % (code | 0x10, struct.pack(">II", len(inside) + 4, len(values)), inside)
