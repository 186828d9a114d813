"""Frames of AMQP as bytes (part 2 §2.3), on their way in and out. Pure; must not know links.

Two things that proton keeps to itself are needed of them: the format of a message, by which a batch is told from an event whose
body looks like one; and fields at the end of a performative that are null, which proton leaves out, as it may, and which the
Python SDK must have.
"""

import struct
from collections.abc import Iterator
from typing import Final

from frontends.amqp import wire

_PREFIX: Final = b"AMQP"
_LEAST: Final = 8
_TRANSFER: Final = 0x14
_HANDLE, _FORMAT, _MORE, _ABORTED = 0, 3, 5, 9
_UNDER_WAY_MOST: Final = 1_000

_NULL: Final = b"\x40"
_FIELDS: Final = {
    0x10: 10,
    0x11: 8,
    0x12: 14,
    0x13: 11,
    0x14: 11,
    0x15: 6,
    0x16: 3,
    0x17: 1,
    0x18: 1,
    # Errors, and outcomes that have one.
    0x1D: 3,
    0x25: 1,
}
"""How many fields there are in the lists that the SDK reads by place, by their descriptors."""

_HANDLES_MOST: Final = b"\x70\xff\xff\xff\xff"
_BEGIN, _HANDLE_MAX = 0x11, 4
"""The SDK counts with the highest handle of a session, which by default is any (part 2 §2.7.2)."""


class Frames:
    """Whole frames of one direction, out of the pieces in which bytes come."""

    def __init__(self, most: int) -> None:
        """Begin with the header of AMQP; what is longer than `most` bytes is no frame, and is given as it comes."""
        self._most = most
        self._rest = b""

    def whole(self, data: bytes) -> Iterator[bytes]:
        """Give the frames that are all there now; the header of AMQP goes for one."""
        data, at = self._rest + data, 0
        while len(data) - at >= _LEAST:
            size = _LEAST if data.startswith(_PREFIX, at) else int(struct.unpack_from(">I", data, at)[0])
            if not _LEAST <= size <= self._most:
                size = len(data) - at
            if len(data) - at < size:
                break
            yield data[at : at + size]
            at += size
        self._rest = data[at:]


class Formats:
    """The formats of messages that come in parts: the first part says it."""

    def __init__(self) -> None:
        """Begin with none."""
        self._under_way: dict[tuple[bytes, int | None], int] = {}

    def of(self, frame: bytes) -> int:
        """Give the format of the message of which a frame carries a part; 0 for frames that carry none."""
        try:
            fields = _transfer(frame)
        except (wire.Malformed, IndexError):
            # proton will say so.
            return 0
        if not fields:
            return 0
        at = (frame[6:8], wire.integer(fields[_HANDLE], 0))
        said = wire.integer(fields[_FORMAT], 0)
        found = self._under_way.pop(at, 0) if said is None else said
        goes_on = _true(fields[_MORE]) and not _true(fields[_ABORTED])
        if not goes_on:
            self._under_way.pop(at, None)
        elif len(self._under_way) < _UNDER_WAY_MOST:
            self._under_way[at] = found
        return found


def _transfer(frame: bytes) -> list[bytes]:
    """Give the fields of a transfer, as many as there may be; none for another frame."""
    at = _performative(frame)
    if not at:
        return []
    described = wire.check(frame, at + 1)
    if wire.integer(frame, at + 1) != _TRANSFER or frame[described] not in {0xC0, 0xD0}:
        return []
    wire.check(frame, described)
    fields = [frame[place : wire.after(frame, place)] for place in wire.items(frame, described)]
    return fields + [_NULL] * (_FIELDS[_TRANSFER] - len(fields))


def _true(field: bytes) -> bool:
    return field in {b"\x41", b"\x56\x01"}


def widened(frame: bytes) -> bytes:
    """Write a frame of ours with all fields that its performative may have."""
    at = _performative(frame)
    if not at:
        return frame
    body = _wide(frame, at) + frame[wire.after(frame, at) :]
    return struct.pack(">I", at + len(body)) + frame[4:at] + body


def _wide(data: bytes, at: int) -> bytes:
    code = data[at + 2] if data[at : at + 2] == b"\x00\x53" else 0
    if code not in _FIELDS or data[at + 3] not in {0x45, 0xC0, 0xD0}:
        return data[at : wire.after(data, at)]
    values = [_wide(data, each) for each in wire.items(data, at + 3)]
    values += [_NULL] * (_FIELDS[code] - len(values))
    if code == _BEGIN and values[_HANDLE_MAX] == _NULL:
        values[_HANDLE_MAX] = _HANDLES_MOST
    return wire.section(code, wire.listed(values))


def _performative(frame: bytes) -> int:
    """Give where the performative begins; 0 in a frame that has none, or is not of AMQP."""
    at = frame[4] * 4
    return at if not frame.startswith(_PREFIX) and frame[5] == 0 and 8 <= at < len(frame) and frame[at] == 0 else 0
