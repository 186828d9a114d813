"""The security layer of AMQP (part 5 §5.3) as bytes: offer, init, outcome. Must not know identities."""

import struct
from typing import Final

from broker.model.frozen import frozen
from frontends.amqp.protocol import types

SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
FRAME_MOST: Final = 16_384
"""The longest frame: a peer may send 512 bytes before it knows more (§5.3.1), passwords are short, and tokens have kilobytes."""

OK, REFUSED, LATER = 0, 1, 4
"""Outcomes: success; wrong credentials; temporary failure."""

_MECHANISMS, _INIT, _OUTCOME = 0x40, 0x41, 0x44


@frozen
class Init:
    """A client's mechanism and response."""

    mechanism: str
    response: bytes


def mechanisms(names: list[str]) -> bytes:
    """Write the offer."""
    inside = b"".join(b"%c%b" % (len(name), name.encode()) for name in names)
    array = b"\xe0%c%c\xa3%b" % (len(inside) + 2, len(names), inside)
    return _frame(types.section(_MECHANISMS, types.write_list([array])))


def outcome(code: int) -> bytes:
    """Write the outcome."""
    return _frame(types.section(_OUTCOME, types.write_list([b"\x50%c" % code])))


def frame_length(data: bytes) -> int:
    """Return the length of the first frame, 0 while it is incomplete; raises Malformed for an impossible length."""
    if len(data) < 4:
        return 0
    size = int(struct.unpack_from(">I", data)[0])
    if not 8 <= size <= FRAME_MOST:
        raise types.Malformed(types.SASL, "the size of a SASL frame is invalid")
    return size if len(data) >= size else 0


def init(frame: bytes) -> Init:
    """Parse a client's init; raises Malformed."""
    offset, kind = frame[4] * 4, frame[5]
    code, at = types.read_descriptor(frame, offset) if kind == 1 and 8 <= offset < len(frame) else (0, 0)
    if code not in {_INIT, "amqp:sasl-init:list"} or types.check(frame, at) != len(frame):
        raise types.Malformed(types.SASL, "the frame is not a SASL init")
    if frame[at] not in {0xC0, 0xD0}:
        raise types.Malformed(types.SASL, "the SASL init is not a list")
    fields = list(types.items(frame, at))
    mechanism = types.text(frame, fields[0]) if fields else None
    if mechanism is None:
        raise types.Malformed(types.SASL, "the SASL init names no mechanism")
    response = b""
    if len(fields) > 1 and frame[fields[1]] in {0xA0, 0xB0}:
        start, end = types.span(frame, fields[1])
        response = frame[start:end]
    return Init(mechanism, response)


def parse_plain(response: bytes) -> tuple[str, str, str]:
    """Parse a PLAIN response (RFC 4616): identity to act as, user, password; raises Malformed."""
    parts = response.split(b"\x00")
    if len(parts) != 3:
        raise types.Malformed(types.SASL, "a PLAIN response must have three parts")
    try:
        return parts[0].decode(), parts[1].decode(), parts[2].decode()
    except UnicodeDecodeError:
        raise types.Malformed(types.SASL, "a PLAIN response must be UTF-8") from None


def _frame(body: bytes) -> bytes:
    return struct.pack(">IBBH", len(body) + 8, 2, 1, 0) + body
