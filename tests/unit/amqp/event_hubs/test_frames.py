"""Frames of Event Hubs: fields that the SDK needs."""

import struct

import pytest

from frontends.amqp.event_hubs.frames import add_missing_fields
from frontends.amqp.protocol import types

UINT = b"\x52"


def frame(body: bytes, channel: int = 0, kind: int = 0) -> bytes:
    """Write a frame."""
    return struct.pack(">IBBH", len(body) + 8, 2, kind, channel) + body


def performative(code: int, *fields: bytes) -> bytes:
    """Write a performative."""
    return types.section(code, types.write_list(list(fields)))


def test_widened() -> None:
    """Part 1 §1.4: nulls omitted at the end of a list are added, in errors too, and the rest stays as it was."""
    detach = performative(0x16, UINT + b"\x01", b"\x41", performative(0x1D, types.symbol("a:b")))
    found = add_missing_fields(frame(detach, 5))
    assert struct.unpack(">IBBH", found[:8]) == (len(found), 2, 0, 5)
    assert found[8:] == performative(
        0x16, UINT + b"\x01", b"\x41", performative(0x1D, types.symbol("a:b"), b"\x40", b"\x40")
    )
    assert add_missing_fields(frame(b"\x00\x53\x18\x45"))[8:] == performative(0x18, b"\x40")
    assert add_missing_fields(frame(b"\x00\x53\x11\xc0\x02\x01\x40"))[8:] == performative(
        0x11, *[b"\x40"] * 4, b"\x70\xff\xff\xff\xff", *[b"\x40"] * 3
    )
    short = frame(performative(0x14, UINT + b"\x00", UINT + b"\x05") + b"payload")
    assert (
        add_missing_fields(short)[8:] == performative(0x14, UINT + b"\x00", UINT + b"\x05", *[b"\x40"] * 9) + b"payload"
    )
    long = performative(0x12, types.string("n" * 300), types.symbol("x" * 0x1D))
    assert add_missing_fields(frame(long))[8:] == performative(
        0x12, types.string("n" * 300), types.symbol("x" * 0x1D), *[b"\x40"] * 12
    )


@pytest.mark.parametrize("same", [frame(b""), frame(b"\x40"), frame(b"\x00\x53\x40\x45")])
def test_not_widened(same: bytes) -> None:
    """Bytes without a performative stay as they are."""
    assert add_missing_fields(same) == same
