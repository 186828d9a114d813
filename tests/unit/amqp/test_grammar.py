"""Frames and performatives: whole frames out of pieces, and fields of the right types or refused."""

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontends.amqp.errors import Fault
from frontends.amqp.protocol import types
from frontends.amqp.protocol.grammar import Code, Frames, performative
from frontends.amqp.protocol.order import Order
from tests.doors.amqp.raw import (
    BEGIN,
    FALSE,
    NULL,
    OPEN,
    TRUE,
    ZERO,
    attach,
    frame,
    framed,
    source,
    target,
    transfer,
    uint,
)

BATCH = 0x80013700


@pytest.mark.parametrize("step", [1, 3, 7, 100])
def test_whole_frames(step: int) -> None:
    """Guarantee 7: frames are found however their bytes come; an empty frame counts."""
    said = [framed(b""), frame(0x17), transfer(1, 0, b"t")]
    found: list[bytes] = []
    data, frames = b"".join(said), Frames(1_000)
    for at in range(0, len(data), step):
        found += frames.complete_frames(data[at : at + step])
    assert found == said


@pytest.mark.parametrize("size", [0, 7, 1_001, 2**32 - 1])
def test_no_frame(size: int) -> None:
    """Part 2 §2.3.1: an invalid frame ends the reading, after the frames before it."""
    found = Frames(1_000).complete_frames(OPEN + struct.pack(">I", size) + b"12345")
    assert next(found) == OPEN
    with pytest.raises(Fault, match="amqp:connection:framing-error"):
        next(found)


def test_fields() -> None:
    """Part 2 §2.7: fields are read in any width that AMQP has, and missing ones are null."""
    wide = b"\x00\x80" + struct.pack(">Q", Code.FLOW) + b"\xd0" + struct.pack(">II", 4 + 14, 5)
    found = performative(framed(wide + NULL + uint(7) + b"\x52\x08" + ZERO + uint(9), channel=5))
    assert found is not None
    assert (found.channel, found.code, found.fields) == (5, Code.FLOW, [None, 7, 8, 0, 9, *[None] * 6])
    found = performative(transfer(1, 2, b"tag", ZERO, b"\x56\x01", FALSE, NULL, NULL, b"\x56\x00"))
    assert found is not None
    assert found.fields == [1, 2, b"tag", 0, True, False, None, None, False, None, None]
    found = performative(frame(0x16, ZERO, TRUE, source()))
    assert found is not None and found.fields == [0, True, source()]
    assert performative(framed(b"")) is None


def test_formats() -> None:
    """E14: the first part of a message has its format, on its own link and channel; another frame has none."""
    order = Order(2)
    second = frame(0x12, types.string("m"), uint(2), FALSE, NULL, NULL, source(), target(), NULL, NULL, ZERO)
    for said in (OPEN, BEGIN, frame(0x11, NULL, ZERO, ZERO, ZERO, channel=1), attach("l", 1, "log"), second):
        order.check(said)

    def format_of(said: bytes) -> int:
        order.check(said)
        return order.format

    begun, batch = (ZERO, FALSE, TRUE), uint(BATCH)
    assert format_of(transfer(1, 0, b"t", batch)) == BATCH
    assert format_of(transfer(1, 1, b"t")) == 0
    assert format_of(transfer(1, 2, b"t", batch, *begun[1:])) == BATCH
    assert format_of(transfer(2, 3, b"t", *begun)) == 0
    assert format_of(frame(0x13, ZERO, ZERO, ZERO, ZERO)) == 0
    assert [format_of(transfer(1, None, None, NULL, *begun[1:])), format_of(transfer(1, None, None))] == [BATCH, BATCH]
    assert format_of(transfer(2, None, None)) == 0
    assert format_of(transfer(1, 4, b"t")) == 0
    # An aborted delivery is over, whatever its `more` says (§2.7.5).
    assert format_of(transfer(1, 5, b"t", batch, FALSE, TRUE, NULL, NULL, FALSE, TRUE)) == BATCH
    assert format_of(transfer(1, 6, b"u")) == 0


def test_an_outcome_after_the_end() -> None:
    """E16, part 2 §2.5.5: an outcome for a transfer that crossed the end of its session has no meaning, and is no fault."""
    order, outcome = Order(2), frame(0x15, TRUE, ZERO, NULL, TRUE)
    assert all(order.check(said) for said in (OPEN, BEGIN, outcome, frame(0x17)))
    assert not order.check(outcome)
    assert all(order.check(said) for said in (BEGIN, outcome, frame(0x17)))
    for other in (frame(0x13, ZERO, ZERO, ZERO, ZERO), frame(0x15, TRUE, ZERO, channel=1)):
        with pytest.raises(Fault):
            order.check(other)


@given(st.binary(max_size=200), st.sampled_from([b"", b"\x00\x53", b"\x00\x53\x12\xc0", b"\x00\x53\x14\xd0\x00\x00"]))
def test_any_bytes(data: bytes, before: bytes) -> None:
    """Guarantee 7: any bytes are accepted or refused by a condition, and nothing else happens."""
    order = Order(2)
    order.check(OPEN)
    with suppress(Fault):
        order.check(framed(before + data))
    with suppress(Fault):
        order.check(struct.pack(">I", 8 + len(data)) + b"\x02\x00\x00\x00" + data)
