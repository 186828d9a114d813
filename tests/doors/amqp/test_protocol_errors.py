"""Errors of the peer by AMQP 1.0, clause by clause, on the wire: each ends its connection by a condition."""

import json
import time
from collections.abc import Iterator

import pytest
from proton import Link, Message, Terminus, symbol
from proton.reactor import LinkOption
from proton.utils import BlockingConnection, LinkDetached

from frontends.amqp.protocol import types
from tests.doors.amqp.conftest import NewLog
from tests.doors.amqp.raw import (
    BEGIN,
    FALSE,
    NULL,
    OPEN,
    TRUE,
    ZERO,
    attach,
    connected,
    frame,
    framed,
    heard,
    opened,
    performative,
    source,
    target,
    transfer,
    uint,
    until,
)
from tests.doors.amqp.served import AmqpFrontend, arrived, bodies, consumer, producer, send
from tests.waiting import PATIENCE_SECONDS

CLOSE, CREDIT, ACCEPTED = b"\x00\x53\x18", uint(1_000), b"\x00\x53\x24"
NO_TEXT = b"\xa1\x02\xff\xfe"
NO_LINK = frame(0x12, types.string("l"), uint(7), FALSE, NULL, NULL, source(), target(), NULL, NULL, ZERO)
ENDS = (source(), target(types.string("log")))


@pytest.fixture(autouse=True, scope="module")
def _nothing_fails(frontend: AmqpFrontend) -> Iterator[None]:
    """In these tests the frontend logs no error of its own and no traceback."""
    yield
    errors = [line for line in map(json.loads, frontend.log.splitlines()) if line["level"] == "error"]
    # Other tests have left unreadable items and results.
    assert {each["event"] for each in errors} <= {"an item cannot be read", "a result cannot be read"}


def closed(said: bytes, condition: str) -> bool:
    """Return whether the connection was closed by the condition."""
    return CLOSE in said and f"amqp:{condition}".encode() in said


def _named(each: str | bytes) -> str:
    return each if isinstance(each, str) else "said"


@pytest.mark.parametrize(
    ("said", "condition"),
    [
        # §2.4.1: a connection begins with one open, on channel 0.
        (BEGIN, "illegal-state"),
        (OPEN + OPEN, "illegal-state"),
        (OPEN + BEGIN + OPEN, "illegal-state"),
        (frame(0x10, types.string("x"), channel=1), "connection:framing-error"),
        # §2.7.1: the container id is required, and every peer accepts frames of 512 bytes.
        (frame(0x10), "invalid-field"),
        (frame(0x10, ZERO), "invalid-field"),
        (frame(0x10, types.string("x"), NULL, uint(511)), "invalid-field"),
        (frame(0x10, types.string("x"), NULL, ZERO), "invalid-field"),
        # §2.4.5: an idle time-out that cannot be kept.
        (frame(0x10, types.string("x"), NULL, NULL, NULL, uint(100)), "invalid-field"),
        # §2.3.1: the data offset, and the frame's size.
        (OPEN + framed(b"", offset=1), "connection:framing-error"),
        (OPEN + framed(b"", offset=3), "connection:framing-error"),
        (OPEN + b"\x00\x00\x00\x07\x02\x00\x00\x00", "connection:framing-error"),
        (OPEN + b"AMQP\x00\x01\x00\x00", "connection:framing-error"),
        # §2.5.6, §2.8.18: transfers before the session has a window.
        (OPEN + BEGIN + attach("l", 0, "log") + transfer(0, 0, b"t"), "session:window-violation"),
        # §2.3.2, part 5 §5.3.1: SASL frames after SASL, and unknown frame types.
        (OPEN + framed(performative(0x41, types.symbol("PLAIN")), kind=1), "connection:framing-error"),
        (OPEN + framed(performative(0x17), kind=7), "connection:framing-error"),
    ],
    ids=_named,
)  # fmt: skip
def test_opens(frontend: AmqpFrontend, said: bytes, condition: str) -> None:
    """Part 2 §2.3 and §2.4: a peer that does not open a connection correctly is told so."""
    line = connected(frontend)
    line.sendall(said)
    assert closed(heard(line), condition)


@pytest.mark.parametrize(
    ("said", "condition"),
    [
        # §2.7: an unknown or incomplete performative.
        (frame(0x1A, NULL), "not-implemented"),
        (frame(0x99, NULL), "not-implemented"),
        (framed(b"\x00" + types.symbol("amqp:no-such:list") + types.write_list([])), "not-implemented"),
        (framed(types.write_list([NULL])), "decode-error"),
        (framed(b"\x00"), "decode-error"),
        (framed(b"\x00\x53\x12"), "decode-error"),
        (framed(b"\x00\x53\x12\xff\xff\xff"), "decode-error"),
        (framed(b"\x00\x53\x12\xc0\x50\x05\xa1"), "decode-error"),
        (framed(b"\x00\x53\x17\xd0\xff\xff\xff\xff\x00\x00\x00\x01\x40"), "decode-error"),
        (framed(performative(0x17) + b"more"), "decode-error"),
        (frame(0x17, NULL, NULL), "decode-error"),
        # §2.7.2, §2.5.1: a session has one channel within the limit.
        (frame(0x11, channel=1), "invalid-field"),
        (BEGIN, "illegal-state"),
        (frame(0x11, NULL, ZERO, ZERO, ZERO, channel=64), "connection:framing-error"),
        (frame(0x11, b"\x60\x00\x05", ZERO, ZERO, ZERO, channel=1), "invalid-field"),
        (frame(0x17, channel=3), "not-allowed"),
        (frame(0x17) + attach("l", 0, "log"), "not-allowed"),
        # §2.7.3: the required fields of an attach, and their types.
        (frame(0x12), "invalid-field"),
        (frame(0x12, types.string("l"), NULL, FALSE), "invalid-field"),
        (frame(0x12, uint(5), ZERO, FALSE), "invalid-field"),
        (frame(0x12, types.string("l"), ZERO, FALSE, b"\x50\x03"), "invalid-field"),
        (frame(0x12, types.string("l"), ZERO, FALSE, NULL, b"\x50\x02"), "invalid-field"),
        (frame(0x12, types.string("l"), ZERO, FALSE, NULL, NULL, *ENDS), "invalid-field"),
        (frame(0x12, types.string("l"), ZERO, FALSE, NULL, NULL, *ENDS, NULL, NULL, ZERO, NULL, NULL, NULL, ZERO),
         "invalid-field"),
        (frame(0x12, NO_TEXT, ZERO, FALSE, NULL, NULL, *ENDS, NULL, NULL, ZERO), "decode-error"),
        # Part 1 §1.6.23: a map has no key twice.
        (
            frame(0x12, types.string("l"), ZERO, TRUE, *[NULL] * 10, types.write_map([types.symbol("a"), ZERO] * 2)),
            "decode-error",
        ),
        # Part 3 §3.5.3, §3.5.4: an address is a text, and the other fields have their types.
        (frame(0x12, types.string("l"), ZERO, FALSE, NULL, NULL, source(), target(NO_TEXT), NULL, NULL, ZERO),
         "decode-error"),
        (frame(0x12, types.string("l"), ZERO, TRUE, NULL, NULL, source(NO_TEXT), target()), "decode-error"),
        (frame(0x12, types.string("l"), ZERO, TRUE, NULL, NULL, source(NULL, *[NULL] * 6, types.string("f")), target()),
         "invalid-field"),
        # §2.7.3: a handle is of one link, also one with another link's name.
        (NO_LINK + NO_LINK.replace(b"\xa1\x01l", b"\xa1\x01m"), "session:handle-in-use"),
        (NO_LINK + frame(0x12, types.string("l"), uint(8), FALSE, NULL, NULL, *ENDS, NULL, NULL, ZERO), "invalid-field"),
        # §2.8.18: a handle of no link.
        (frame(0x13, ZERO, uint(5), ZERO, uint(5), uint(9)), "session:unattached-handle"),
        (transfer(9, 0, b"t"), "session:unattached-handle"),
        (frame(0x16, uint(9)), "session:unattached-handle"),
        (NO_LINK + frame(0x16, uint(7), TRUE) + frame(0x16, uint(7), TRUE), "session:unattached-handle"),
        # §2.7.4: a flow of a link names it, and the session's own numbers are required.
        (frame(0x13, ZERO, uint(5), ZERO, uint(5), NULL, ZERO, uint(5)), "invalid-field"),
        (frame(0x13), "invalid-field"),
        # §2.7.5: a link carries messages one way, and no more than the session's window allows.
        (frame(0x12, types.string("r"), uint(8), TRUE, NULL, NULL, *ENDS) + transfer(8, 0, b"t"), "illegal-state"),
        # §2.7.6 to §2.7.9: required fields of a disposition, a detach and an error.
        (frame(0x15), "invalid-field"),
        (frame(0x15, TRUE, NULL), "invalid-field"),
        (frame(0x15, TRUE, ZERO, NULL, TRUE, ZERO), "invalid-field"),
        (frame(0x15, TRUE, uint(5), uint(2**32 - 1), TRUE), "invalid-field"),
        (frame(0x16), "invalid-field"),
        (frame(0x18, ZERO), "invalid-field"),
        # Part 4 §4.5.8: no transaction can have been declared.
        (frame(0x15, FALSE, ZERO, NULL, TRUE, performative(0x34, types.binary(b"1"))), "not-implemented"),
    ],
    ids=_named,
)  # fmt: skip
def test_performatives(frontend: AmqpFrontend, said: bytes, condition: str) -> None:
    """Part 2 §2.5 to §2.8: unreadable performatives, missing fields, wrong types, and unknown references."""
    line = opened(frontend)
    line.sendall(said)
    assert closed(heard(line), condition)


BATCHES, RECEIVER_SECOND = b"\x70\x80\x01\x37\x00", b"\x50\x01"


@pytest.mark.parametrize(
    ("said", "condition"),
    [
        # §2.7.5: the first transfer of a delivery has an id and a tag of at most 32 bytes, and the others do not
        # differ.
        (frame(0x14), "invalid-field"),
        (transfer(0, None, b"t"), "invalid-field"),
        (transfer(0, 0, None), "invalid-field"),
        (transfer(0, 0, b"t" * 33), "invalid-field"),
        (transfer(0, 0, b"t", ZERO, FALSE, TRUE) + transfer(0, 1, b"t", ZERO), "invalid-field"),
        (transfer(0, 0, b"t", ZERO, FALSE, TRUE) + transfer(0, 0, b"u", ZERO), "invalid-field"),
        (transfer(0, 0, b"t", ZERO, FALSE, TRUE) + transfer(0, 0, b"t", BATCHES), "invalid-field"),
        (transfer(0, 0, b"t") + transfer(0, 5, b"u"), "invalid-field"),
        # As agreed by the attach: the receiver settles first, and the sender nothing.
        (transfer(0, 0, b"t", ZERO, FALSE, FALSE, RECEIVER_SECOND), "invalid-field"),
        (transfer(0, 0, b"t", ZERO, TRUE), "invalid-field"),
        # An unknown delivery is not resumed, nor part of a transaction.
        (transfer(0, 0, b"t", ZERO, FALSE, FALSE, NULL, NULL, TRUE), "not-implemented"),
        (transfer(0, 0, b"t", ZERO, FALSE, FALSE, NULL, performative(0x34, types.binary(b"1"))), "not-implemented"),
    ],
    ids=_named,
)
def test_transfers(frontend: AmqpFrontend, new_log: NewLog, said: bytes, condition: str) -> None:
    """Part 2 §2.7.5: an invalid transfer is refused."""
    line = opened(frontend)
    line.sendall(attach("l", 0, new_log()))
    until(line, CREDIT)
    line.sendall(said)
    assert closed(heard(line), condition)


def test_as_it_should_be(frontend: AmqpFrontend, alice: BlockingConnection, new_log: NewLog) -> None:
    """Part 2: correct frames are accepted, in parts and with any width of numbers; a handle may be used again.

    An outcome after the end of its session is no error: rhea sends it for a transfer that crosses the end.
    """
    log = new_log()
    out = consumer(alice, log)
    line = opened(frontend)
    line.sendall(framed(b"") + frame(0x11, NULL, ZERO, uint(9), uint(9), channel=63) + frame(0x17, channel=63))
    line.sendall(frame(0x15, TRUE, ZERO, NULL, TRUE, channel=63))
    line.sendall(attach("l", 0, log))
    until(line, CREDIT)
    line.sendall(transfer(0, 0, b"t" * 32, ZERO, FALSE, TRUE) + frame(0x14, ZERO, payload=b"") + transfer(0, 1, b"u"))
    until(line, ACCEPTED)
    line.sendall(frame(0x16, ZERO, TRUE))
    until(line, b"\x00\x53\x16")
    line.sendall(attach("m", 0, log))
    until(line, CREDIT)
    # An aborted delivery does not exist (§2.7.5).
    line.sendall(
        transfer(0, 2, b"v", ZERO, FALSE, TRUE) + transfer(0, 2, b"v", ZERO, FALSE, FALSE, NULL, NULL, NULL, TRUE)
    )
    line.sendall(transfer(0, 3, b"t", b"\x43", FALSE, FALSE, b"\x50\x00", NULL, FALSE, FALSE, TRUE))
    until(line, ACCEPTED)
    line.sendall(frame(0x18))
    assert CLOSE in heard(line)
    assert bodies(out, 3) == ["x"] * 3


def test_more_than_credit(frontend: AmqpFrontend, new_log: NewLog) -> None:
    """Part 2 §2.6.7, §2.8.19: a link that receives more than its credit is ended; its connection continues."""
    line = opened(frontend)
    line.sendall(attach("l", 0, f"{new_log()}/$info"))
    until(line, b"\x52\x0a")
    line.sendall(b"".join(transfer(0, number, b"%d" % number) for number in range(40)))
    until(line, b"amqp:link:transfer-limit-exceeded")
    line.sendall(frame(0x18))
    assert CLOSE in heard(line)


def test_links_never_detached(frontend: AmqpFrontend) -> None:
    """Guarantee 6: refused links that their peer never detaches are bounded."""
    line = opened(frontend)
    line.sendall(b"".join(attach(f"l{number}", number, "nowhere") for number in range(1_001)))
    assert closed(heard(line), "resource-limit-exceeded")


def test_what_is_not_granted(alice: BlockingConnection, new_log: NewLog) -> None:
    """Part 3 §3.5.3: the answer to an attach has the actual values: nothing is durable or outlives its link, a log is copied."""

    class LinkOptions(LinkOption):
        def apply(self, link: Link) -> None:
            link.source.durability, link.source.expiry_policy = Terminus.DELIVERIES, Terminus.EXPIRE_NEVER
            link.source.timeout, link.source.distribution_mode = 600, Terminus.DIST_MODE_MOVE
            link.source.capabilities.put_object(symbol("x-no-such-capability"))

    link = consumer(alice, new_log(), LinkOptions()).link
    said = link.remote_source
    assert (said.durability, said.expiry_policy, said.timeout) == (Terminus.NONDURABLE, Terminus.EXPIRE_WITH_LINK, 0)
    assert said.distribution_mode == Terminus.DIST_MODE_COPY
    said.capabilities.rewind()
    assert said.capabilities.next() is None


def test_no_longer_than_the_receiver_takes(alice: BlockingConnection, new_log: NewLog) -> None:
    """Part 2 §2.7.3: nothing above a receiver's max-message-size is sent: a log's link ends, an item goes to others."""

    class Small(LinkOption):
        def apply(self, link: Link) -> None:
            link.max_message_size = 1_000

    queue, log = new_log(queueing=True), new_log()
    worker = consumer(alice, queue, Small())
    send(producer(alice, queue), "short", "x" * 2_000)
    assert bodies(worker, 1) == ["short"]
    assert bodies(consumer(alice, queue), 1) == ["x" * 2_000]
    assert arrived(worker) == 0
    reader, sender = consumer(alice, log, Small()), producer(alice, log)
    send(sender, "short")
    assert bodies(reader, 1) == ["short"]
    sender.link.send(Message(body=b"x" * 2_000, inferred=True))
    with pytest.raises(LinkDetached, match="amqp:link:message-size-exceeded"):
        alice.wait(lambda: False, timeout=PATIENCE_SECONDS)


@pytest.mark.parametrize(
    "entry",
    [
        # Arrays of symbols without ASCII, and of strings without UTF-8.
        types.symbol("a") + b"\xe0\x05\x01\xa3\x02\xc3\xa9",
        types.symbol("a") + b"\xe0\x05\x01\xa1\x02\xff\xfe",
        # A character beyond Unicode, keys that are a list, a map or described, and binaries of which proton makes no key.
        types.symbol("a") + b"\x73\x00\x11\x00\x00",
        b"\x45\x40",
        types.write_map([]) + b"\x40",
        types.section(1, b"\x40") + b"\x40",
        types.binary(b"a") + b"\x40",
    ],
    ids=bytes.hex,
)
def test_properties_and_filters_that_cannot_be_read(frontend: AmqpFrontend, new_log: NewLog, entry: bytes) -> None:
    """Part 2 §2.8.14: a link whose properties or filters are of no text, or have impossible keys, is refused as malformed."""
    line, log = opened(frontend), types.string(new_log())
    # It counts keys and values.
    fields = types.write_map([b"", entry])
    filtered = source(log, *[NULL] * 6, fields)
    line.sendall(
        frame(
            0x12,
            types.string("in"),
            ZERO,
            FALSE,
            NULL,
            NULL,
            source(),
            target(log),
            *[NULL] * 2,
            ZERO,
            *[NULL] * 3,
            fields,
        )
    )
    until(line, b"amqp:decode-error")
    line.sendall(
        frame(0x12, types.string("out"), uint(1), TRUE, NULL, NULL, source(log), target(), *[NULL] * 6, fields)
    )
    until(line, b"amqp:decode-error")
    line.sendall(frame(0x12, types.string("filtered"), uint(2), TRUE, NULL, NULL, filtered, target()))
    until(line, b"amqp:decode-error")
    line.sendall(frame(0x18))
    assert CLOSE in heard(line)


def test_transactions(frontend: AmqpFrontend) -> None:
    """Part 4 §4.1: declaring a transaction is refused; the connection continues."""
    line = opened(frontend)
    ends = source(), performative(0x30, types.symbol("amqp:local-transactions"))
    line.sendall(frame(0x12, types.string("l"), ZERO, FALSE, NULL, NULL, *ends, NULL, NULL, ZERO))
    until(line, b"amqp:not-implemented")
    line.sendall(frame(0x18))
    assert CLOSE in heard(line)


@pytest.mark.parametrize("ms", [500, 1_000])
def test_idle(frontend: AmqpFrontend, ms: int) -> None:
    """Part 2 §2.4.5: a peer with an idle time-out gets a frame that often, though there is nothing to send."""
    line = connected(frontend)
    line.sendall(frame(0x10, types.string("x"), NULL, NULL, NULL, uint(ms)))
    until(line, b"stanzaq")
    began, empty, count = time.monotonic(), b"\x00\x00\x00\x08\x02\x00\x00\x00", 4_000 // ms
    for _ in range(count):
        assert line.recv(len(empty)) == empty
    line.close()
    assert time.monotonic() - began < 4.0
