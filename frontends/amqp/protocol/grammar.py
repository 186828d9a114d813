"""Parses frames of AMQP (part 2 §2.3) and their performatives (§2.7). Pure.

Each field is checked against its specified type, so that later code need not guess. Must not know when a frame is allowed.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from frontends.amqp.errors import DECODE, FRAMING, INVALID_FIELD, NOT_IMPLEMENTED, Fault
from frontends.amqp.protocol import types as wire

HEADER_BYTES: Final = 8
"""The size of a frame's header, and of the AMQP header."""


class Code(IntEnum):
    """Descriptors of performatives, and of the nested lists that are parsed."""

    OPEN = 0x10
    BEGIN = 0x11
    ATTACH = 0x12
    FLOW = 0x13
    TRANSFER = 0x14
    DISPOSITION = 0x15
    DETACH = 0x16
    END = 0x17
    CLOSE = 0x18
    SOURCE = 0x28
    TARGET = 0x29


_NULL: Final = 0x40
_BOOL: Final = frozenset({0x41, 0x42, 0x56})
_UBYTE: Final = frozenset({0x50})
_USHORT: Final = frozenset({0x60})
_UINT: Final = frozenset({0x43, 0x52, 0x70})
_ULONG: Final = frozenset({0x44, 0x53, 0x80})
_BINARY: Final = frozenset({0xA0, 0xB0})
_STRING: Final = frozenset({0xA1, 0xB1})
_SYMBOL: Final = frozenset({0xA3, 0xB3})
_SYMBOLS: Final = _SYMBOL | {0xE0, 0xF0, 0x45, 0xC0, 0xD0}
"""One symbol or several: an array, or a list, which clients write against the specification."""

_MAP: Final = frozenset({0xC1, 0xD1})
_DESCRIBED: Final = frozenset({0x00})
_ANY: Final = frozenset(range(256))

_CAPABILITIES: Final = (_SYMBOLS, _SYMBOLS, _MAP)
_TERMINUS: Final = (_ANY, _UINT, _SYMBOL, _UINT, _BOOL, _MAP)
_FIELDS: Final = {
    Code.OPEN: (_STRING, _STRING, _UINT, _USHORT, _UINT, _SYMBOLS, _SYMBOLS, *_CAPABILITIES),
    Code.BEGIN: (_USHORT, _UINT, _UINT, _UINT, _UINT, *_CAPABILITIES),
    Code.ATTACH: (
        *(_STRING, _UINT, _BOOL, _UBYTE, _UBYTE, _DESCRIBED, _DESCRIBED, _MAP, _BOOL, _UINT, _ULONG),
        *_CAPABILITIES,
    ),
    Code.FLOW: (_UINT, _UINT, _UINT, _UINT, _UINT, _UINT, _UINT, _UINT, _BOOL, _BOOL, _MAP),
    Code.TRANSFER: (_UINT, _UINT, _BINARY, _UINT, _BOOL, _BOOL, _UBYTE, _DESCRIBED, _BOOL, _BOOL, _BOOL),
    Code.DISPOSITION: (_BOOL, _UINT, _UINT, _BOOL, _DESCRIBED, _BOOL),
    Code.DETACH: (_UINT, _BOOL, _DESCRIBED),
    Code.END: (_DESCRIBED,),
    Code.CLOSE: (_DESCRIBED,),
    Code.SOURCE: (*_TERMINUS, _SYMBOL, _MAP, _DESCRIBED, _SYMBOLS, _SYMBOLS),
    Code.TARGET: (*_TERMINUS, _SYMBOLS),
}
"""The type codes allowed in each field of each list; null is allowed too, except in these:"""

_MANDATORY: Final = {
    Code.OPEN: (0,),
    Code.BEGIN: (1, 2, 3),
    Code.ATTACH: (0, 1, 2),
    Code.FLOW: (1, 2, 3),
    Code.TRANSFER: (0,),
    Code.DISPOSITION: (0, 1),
    Code.DETACH: (0,),
}
SIZES: Final = {int(code): len(fields) for code, fields in _FIELDS.items()}
"""The number of fields of each list."""

_PERFORMATIVES: Final[dict[int | str, Code]] = {int(code): code for code in Code if code <= Code.CLOSE}
_SOURCE, _TARGET = 5, 6
_CONSTANTS: Final = {0x40: None, 0x41: True, 0x42: False, 0x43: 0, 0x44: 0}
_OF_ONE_BYTE: Final = frozenset({0x50, 0x52, 0x53})
_UINT_WHOLE: Final = 0x70
_BINARY_SHORT: Final = 0xA0


class Frames:
    """Splits the bytes of one direction, without the AMQP header, into whole frames."""

    def __init__(self, most: int) -> None:
        """Start without bytes; a frame has at most `most`."""
        self._most = most
        self._rest = b""

    def complete_frames(self, data: bytes) -> Iterator[bytes]:
        """Yield the complete frames; raises Fault for an impossible frame size."""
        data, at = self._rest + data, 0
        self._rest = b""
        while len(data) - at >= HEADER_BYTES:
            size = int(struct.unpack_from(">I", data, at)[0])
            if not HEADER_BYTES <= size <= self._most:
                raise Fault(FRAMING, f"a frame has {HEADER_BYTES} to {self._most} bytes")
            if len(data) - at < size:
                break
            yield data[at : at + size]
            at += size
        self._rest = data[at:]


@dataclass(slots=True)
class Performative:
    """A parsed frame: its channel, its performative, and the fields in order (None for null).

    Numbers, booleans and binaries are decoded; other fields are raw bytes.
    """

    channel: int
    code: Code
    fields: list[Any]


def performative(frame: bytes) -> Performative | None:
    """Parse a frame; None for an empty one. Raises Fault."""
    at = frame[4] * 4
    if at < HEADER_BYTES or at > len(frame):
        raise Fault(FRAMING, "the data offset of a frame is invalid")
    if frame[5]:
        raise Fault(FRAMING, f"frames of type {frame[5]} are not supported")
    if at == len(frame):
        return None
    try:
        number, at = wire.read_descriptor(frame, at)
        code = _PERFORMATIVES.get(number)
        if code is None:
            raise Fault(NOT_IMPLEMENTED, f"unknown performative {number}")
        fields, end = _read(frame, at, code)
        if end != len(frame) and code is not Code.TRANSFER:
            raise Fault(DECODE, f"unexpected bytes follow the {code.name.lower()}")
        if code is Code.ATTACH:
            _terminus(fields[_SOURCE], Code.SOURCE)
            _terminus(fields[_TARGET], Code.TARGET)
    except wire.Malformed as wrong:
        raise Fault(DECODE, str(wrong)) from None
    except IndexError:
        raise Fault(DECODE, "a performative is cut off") from None
    return Performative(frame[6] << 8 | frame[7], code, fields)


def _terminus(said: bytes | None, code: Code) -> None:
    """Check a terminus as well, so that an invalid request in it is not ignored."""
    if said is not None:
        number, at = wire.read_descriptor(said, 0)
        if number == code:
            _read(said, at, code)


def _read(frame: bytes, at: int, code: Code) -> tuple[list[Any], int]:
    """Parse the list at a position and return its fields and its end; raises Fault and Malformed."""
    types = _FIELDS[code]
    count, place, end = wire.read_list_start(frame, at)
    if count > len(types) or end > len(frame):
        raise wire.Malformed(wire.VALUE, f"a {code.name.lower()} has too many fields, or is cut off")
    fields: list[Any] = []
    for of in types[:count]:
        form = frame[place]
        if form not in of and form != _NULL:
            raise Fault(INVALID_FIELD, f"field {len(fields) + 1} of the {code.name.lower()} has the wrong type")
        if form in _CONSTANTS:
            fields.append(_CONSTANTS[form])
            place += 1
        elif form in _OF_ONE_BYTE:
            fields.append(frame[place + 1])
            place += 2
        elif form == _UINT_WHOLE:
            fields.append(int.from_bytes(frame[place + 1 : place + 5]))
            place += 5
        elif form == _BINARY_SHORT:
            after = place + 2 + frame[place + 1]
            fields.append(frame[place + 2 : after])
            place = after
        else:
            after = wire.check(frame, place)
            fields.append(_value(frame, place, after))
            place = after
    if place != end:
        raise wire.Malformed(wire.VALUE, "the size of a list is wrong")
    return _check_fields(fields + [None] * (len(types) - count), code), end


def _check_fields(fields: list[Any], code: Code) -> list[Any]:
    for number in _MANDATORY.get(code, ()):
        if fields[number] is None:
            raise Fault(INVALID_FIELD, f"field {number + 1} of the {code.name.lower()} is missing")
    return fields


def _value(frame: bytes, at: int, after: int) -> Any:  # noqa: ANN401  (typed by the field)
    form = frame[at]
    if form in _BINARY:
        return frame[wire.span(frame, at)[0] : after]
    if form in _BOOL:
        return bool(frame[at + 1])
    number = wire.integer(frame, at)
    return frame[at:after] if number is None else number
