"""Messages, and the bytes they are made of: what is read is what was written, and nothing makes the readers fail otherwise."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker import codec
from broker.model.items import XML, Envelope
from broker.model.names import Jid
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import Event
from frontends.amqp import messages, sasl, wire
from frontends.amqp.errors import CONDITION
from frontends.amqp.words import KEY

OFFSET = "0" * 52


def event(envelope: bytes, key: str = "") -> Event:
    """Make an event of the log."""
    return Event(OFFSET, 5, "i", key, Jid("me@x"), envelope)


def test_every_problem_has_a_condition() -> None:
    """No refusal of the core is one that this door cannot word."""
    assert set(CONDITION) == set(Problem)


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    """Whatever is sent is a message, or it is refused as none."""
    for read in (messages.taken, lambda raw: messages.taken(wire.section(0x75, wire.binary(b"x")) + raw)):
        with suppress(MalformedRequest):
            read(data)
    with suppress(wire.Malformed):
        sasl.init(data[: sasl.framed(data)] or bytes(8))


@given(st.binary(max_size=300), st.text(st.characters(codec="utf-8", categories=["L", "N"]), max_size=20))
def test_bodies(body: bytes, key: str) -> None:
    """A data section comes out as it went in, with its key."""
    raw = wire.section(messages.DATA, wire.binary(body))
    if key:
        raw = wire.section(messages.MESSAGE, wire.mapped([wire.symbol(KEY), wire.string(key)])) + raw
    taken = messages.taken(raw)
    assert (taken.key, taken.body_bytes) == (key, len(body))
    written = messages.Writer(3).message(event(taken.envelope, key), gap=False)
    assert written.endswith(raw)
    first = messages.sections(written)[0]
    said = [wire.text(written, at) for at in wire.items(written, first.value)]
    assert said[:4] == ["event-streams-partition", "3", "event-streams-offset", OFFSET]


@pytest.mark.parametrize(("content_type", "stored"), [(XML, f"{XML};"), ("image/png", "image/png")])
def test_content_types(content_type: str, stored: str) -> None:
    """A type is kept; XML that came as bytes is not what other doors put into their documents."""
    properties = wire.section(messages.PROPERTIES, wire.listed([b"\x40"] * 6 + [wire.symbol(content_type)]))
    raw = properties + wire.section(messages.DATA, wire.binary(b"<a/>"))
    taken = messages.taken(raw)
    assert codec.unpack(taken.envelope) == Envelope(b"<a/>", stored)
    assert messages.Writer(0).message(event(taken.envelope), gap=False).endswith(raw)


@pytest.mark.parametrize(
    "envelope", [Envelope(b"<a xmlns='x'/>"), Envelope(b"{}", "application/json", {"h": "v", "amqp": "?"})]
)
def test_of_other_doors(envelope: Envelope) -> None:
    """What other doors have published is a data section with its type, and its headers are application properties."""
    written = messages.Writer(0).message(event(codec.pack(envelope)), gap=True)
    found = {each.code: written[each.start : each.end] for each in messages.sections(written)}
    assert found[messages.DATA] == wire.section(messages.DATA, wire.binary(envelope.body))
    assert envelope.content_type.encode() in found[messages.PROPERTIES]
    assert (messages.APPLICATION in found) is bool(envelope.headers)
    assert b"event-streams-gap" in found[messages.DELIVERY]
