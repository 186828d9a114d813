"""Rewrites outgoing frames for SDKs. Pure; must not know links.

proton omits null fields at the end of a performative, as it may, but the Python SDK needs them.
"""

import struct
from typing import Final

from frontends.amqp.protocol import types
from frontends.amqp.protocol.grammar import HEADER_BYTES, SIZES, Code

_NULL: Final = b"\x40"
_ERROR, _REJECTED = 0x1D, 0x25
_FIELDS: Final = {code: size for code, size in SIZES.items() if code <= Code.CLOSE} | {_ERROR: 3, _REJECTED: 1}
"""The number of fields, by descriptor, of the lists that the SDK reads by position."""

_HANDLES_MOST: Final = b"\x70\xff\xff\xff\xff"
_BEGIN, _HANDLE_MAX = 0x11, 4
"""The SDK needs the highest handle of a session, whose default is the maximum (part 2 §2.7.2)."""


def add_missing_fields(frame: bytes) -> bytes:
    """Rewrite a frame with all fields of its performative."""
    at = _performative(frame)
    if not at:
        return frame
    body = _widen(frame, at) + frame[types.end_of_value(frame, at) :]
    return struct.pack(">I", at + len(body)) + frame[4:at] + body


def _widen(data: bytes, at: int) -> bytes:
    code = data[at + 2] if data[at : at + 2] == b"\x00\x53" else 0
    if code not in _FIELDS or data[at + 3] not in {0x45, 0xC0, 0xD0}:
        return data[at : types.end_of_value(data, at)]
    values = [_widen(data, each) for each in types.items(data, at + 3)]
    values += [_NULL] * (_FIELDS[code] - len(values))
    if code == _BEGIN and values[_HANDLE_MAX] == _NULL:
        values[_HANDLE_MAX] = _HANDLES_MOST
    return types.section(code, types.write_list(values))


def _performative(frame: bytes) -> int:
    """Return where the performative begins; 0 in a frame without one."""
    at = frame[4] * 4
    return at if HEADER_BYTES <= at < len(frame) and frame[at] == 0 else 0
