"""Frames of Event Hubs: whole ones out of pieces, formats of messages, and fields that the SDK must have."""

import struct

import pytest

from frontends.amqp import wire
from frontends.amqp.hubs.frames import Formats, Frames, widened

HEADER = b"AMQP\x00\x01\x00\x00"
UINT = b"\x52"
BATCH = 0x80013700


def frame(body: bytes, channel: int = 0, kind: int = 0) -> bytes:
    """Write a frame."""
    return struct.pack(">IBBH", len(body) + 8, 2, kind, channel) + body


def performative(code: int, *fields: bytes) -> bytes:
    """Write a performative."""
    return wire.section(code, wire.listed(list(fields)))


def transfer(
    handle: int, form: bytes = b"\x40", *, more: bool = False, aborted: bool = False, channel: int = 0
) -> bytes:
    """Write a transfer with a payload that looks like more of it."""
    fields = [
        UINT + bytes([handle]),
        b"\x40",
        b"\xa0\x01t",
        form,
        b"\x42",
        b"\x41" if more else b"\x42",
        *[b"\x40"] * 3,
    ]
    return frame(performative(0x14, *fields, b"\x41" if aborted else b"\x42") + b"\x00\x53\x75\xa0\x01x", channel)


def uint(number: int) -> bytes:
    """Write a number of 32 bits."""
    return struct.pack(">BI", 0x70, number)


@pytest.mark.parametrize("step", [1, 3, 7, 100])
def test_whole_frames(step: int) -> None:
    """Guarantee 7: frames are found however their bytes come; an empty one is one."""
    said = [HEADER, frame(b""), frame(performative(0x17)), transfer(1)]
    found: list[bytes] = []
    data, frames = b"".join(said), Frames(1_000)
    for at in range(0, len(data), step):
        found += frames.whole(data[at : at + step])
    assert found == said


@pytest.mark.parametrize("size", [0, 7, 1_001, 2**32 - 1])
def test_no_frame(size: int) -> None:
    """Guarantee 7: what cannot be a frame is kept for nobody: it is given as it comes, to be refused."""
    frames, data = Frames(1_000), struct.pack(">I", size) + b"12345"
    assert list(frames.whole(data)) == [data]
    assert list(frames.whole(data)) == [data]


def test_formats() -> None:
    """E14: the first part of a message says its format, on its own link and channel, and the last one ends it."""
    formats = Formats()
    assert formats.of(transfer(1, uint(BATCH))) == BATCH
    assert formats.of(transfer(1)) == 0
    assert formats.of(transfer(1, uint(BATCH), more=True)) == BATCH
    assert formats.of(transfer(2, more=True)) == 0
    assert formats.of(transfer(1, channel=1)) == 0
    assert formats.of(frame(performative(0x13, UINT + b"\x01"))) == 0
    assert [formats.of(transfer(1, more=True)), formats.of(transfer(1)), formats.of(transfer(1))] == [BATCH, BATCH, 0]
    assert formats.of(transfer(1, uint(BATCH), more=True)) == formats.of(transfer(1, more=True, aborted=True)) == BATCH
    assert formats.of(transfer(1)) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        HEADER,
        frame(b""),
        frame(b"\x00"),
        frame(b"\x00\x53\x14"),
        frame(b"\x00\x53\x14\x43"),
        frame(b"\x00\x53\x14\xc0\xff\x01"),
        frame(b"\x00\x00\x00\x00"),
        frame(performative(0x14), kind=1),
        b"\x00\x00\x00\x08\xff\x00\x00\x00",
    ],
)
def test_formats_of_no_transfer(wrong: bytes) -> None:
    """Guarantee 7: what is no transfer has no format, whatever it is."""
    assert Formats().of(wrong) == 0


def test_formats_are_bounded() -> None:
    """Guarantee 6: messages that are begun and never ended take no more than so much."""
    formats = Formats()
    for channel in range(1_100):
        formats.of(transfer(1, uint(BATCH), more=True, channel=channel))
    assert len(formats._under_way) == 1_000


def test_widened() -> None:
    """Part 1 §1.4: nulls that were left out at the end of a list are there, in errors too, and what follows is as it was."""
    detach = performative(0x16, UINT + b"\x01", b"\x41", performative(0x1D, wire.symbol("a:b")))
    found = widened(frame(detach, 5))
    assert struct.unpack(">IBBH", found[:8]) == (len(found), 2, 0, 5)
    assert found[8:] == performative(
        0x16, UINT + b"\x01", b"\x41", performative(0x1D, wire.symbol("a:b"), b"\x40", b"\x40")
    )
    assert widened(frame(b"\x00\x53\x18\x45"))[8:] == performative(0x18, b"\x40")
    assert widened(frame(b"\x00\x53\x11\xc0\x02\x01\x40"))[8:] == performative(
        0x11, *[b"\x40"] * 4, b"\x70\xff\xff\xff\xff", *[b"\x40"] * 3
    )
    short = frame(performative(0x14, UINT + b"\x00", UINT + b"\x05") + b"payload")
    assert widened(short)[8:] == performative(0x14, UINT + b"\x00", UINT + b"\x05", *[b"\x40"] * 9) + b"payload"
    long = performative(0x12, wire.string("n" * 300), wire.symbol("x" * 0x1D))
    assert widened(frame(long))[8:] == performative(
        0x12, wire.string("n" * 300), wire.symbol("x" * 0x1D), *[b"\x40"] * 12
    )


@pytest.mark.parametrize("same", [HEADER, frame(b""), frame(performative(0x40), kind=1), transfer(1)[:8] + b"\x01"])
def test_not_widened(same: bytes) -> None:
    """What has no performative stays as it is."""
    assert widened(same) == same
