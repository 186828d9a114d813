"""Frames on their way to an SDK. Pure; must not know links.

Fields at the end of a performative that are null proton leaves out, as it may, and the Python SDK must have them.
"""

import struct
from typing import Final

from frontends.amqp.protocol import types
from frontends.amqp.protocol.grammar import HEADER_BYTES, SIZES, Code

_NULL: Final = b"\x40"
_ERROR, _REJECTED = 0x1D, 0x25
_FIELDS: Final = {code: size for code, size in SIZES.items() if code <= Code.CLOSE} | {_ERROR: 3, _REJECTED: 1}
"""How many fields there are in the lists that the SDK reads by place, by their descriptors."""

_HANDLES_MOST: Final = b"\x70\xff\xff\xff\xff"
_BEGIN, _HANDLE_MAX = 0x11, 4
"""The SDK counts with the highest handle of a session, which by default is any (part 2 §2.7.2)."""


def widened(frame: bytes) -> bytes:
    """Write a frame of ours with all fields that its performative may have."""
    at = _performative(frame)
    if not at:
        return frame
    body = _wide(frame, at) + frame[types.after(frame, at) :]
    return struct.pack(">I", at + len(body)) + frame[4:at] + body


def _wide(data: bytes, at: int) -> bytes:
    code = data[at + 2] if data[at : at + 2] == b"\x00\x53" else 0
    if code not in _FIELDS or data[at + 3] not in {0x45, 0xC0, 0xD0}:
        return data[at : types.after(data, at)]
    values = [_wide(data, each) for each in types.items(data, at + 3)]
    values += [_NULL] * (_FIELDS[code] - len(values))
    if code == _BEGIN and values[_HANDLE_MAX] == _NULL:
        values[_HANDLE_MAX] = _HANDLES_MOST
    return types.section(code, types.listed(values))


def _performative(frame: bytes) -> int:
    """Give where the performative begins; 0 in a frame that has none."""
    at = frame[4] * 4
    return at if HEADER_BYTES <= at < len(frame) and frame[at] == 0 else 0
