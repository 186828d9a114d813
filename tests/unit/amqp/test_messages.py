"""Messages and their bytes: what was written is read back, and readers fail only in the defined way."""

import struct
from contextlib import suppress
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker import codec, payloads
from broker.model.items.dependencies import Dependencies, Parent
from broker.model.items.durability import Durability
from broker.model.items.hints import NO_HINTS, Hints
from broker.model.items.items import XML, Envelope
from broker.model.items.outcomes import ReplyMode
from broker.model.names import Jid
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import Event
from frontends.amqp.constants import CONFIRM, DELAY, KEY, PARTITION
from frontends.amqp.messages import message as messages
from frontends.amqp.protocol import sasl, types
from frontends.errors import ERRORS

OFFSET = "0" * 52


def event(envelope: bytes, key: str = "") -> Event:
    """Make an event of the log."""
    return Event(OFFSET, 5, "i", key, Jid("me@x"), envelope)


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    """Any bytes are a message, or are refused."""
    for read in (messages.parse, lambda raw: messages.parse(types.section(0x75, types.binary(b"x")) + raw)):
        with suppress(MalformedRequest):
            read(data)
    with suppress(types.Malformed):
        sasl.init(data[: sasl.frame_length(data)] or bytes(8))


@given(st.binary(max_size=300), st.text(st.characters(codec="utf-8", categories=["L", "N"]), max_size=20))
def test_bodies(body: bytes, key: str) -> None:
    """A data section comes out as it went in, with its key."""
    raw = types.section(messages.DATA, types.binary(body))
    if key:
        raw = types.section(messages.MESSAGE, types.write_map([types.symbol(KEY), types.string(key)])) + raw
    taken = messages.parse(raw)
    assert (taken.key, taken.body_bytes) == (key, len(body))
    written = messages.Writer(3).message(event(taken.envelope, key), gap=False)
    assert written.endswith(raw)
    first = messages.sections(written)[0]
    said = [types.text(written, at) for at in types.items(written, first.value)]
    assert said[:4] == ["event-streams-partition", "3", "event-streams-offset", OFFSET]


def _sent(content_type: str, body: bytes, *properties: bytes) -> bytes:
    """Write a message with a type and application properties."""
    parts = [types.section(messages.PROPERTIES, types.write_list([b"\x40"] * 6 + [types.symbol(content_type)]))]
    if properties:
        parts.append(types.section(messages.APPLICATION, types.write_map(list(properties))))
    return b"".join([*parts, types.section(messages.DATA, types.binary(body))])


@pytest.mark.parametrize(
    ("content_type", "body", "shown"),
    [
        (XML, b"<a xmlns='x'/>", b"<a xmlns='x'/>"),
        ("text/xml", b"<?xml version='1.0'?>\n<a/>\n", b"<a xmlns=''/>"),
        (XML, b"<a", None),
        ("image/png", b"<a/>", None),
        ("no type", b"<a/>", None),
    ],
)
def test_content_types(content_type: str, body: bytes, shown: bytes | None) -> None:
    """Issue 10: a message comes out as it went in; XML is an element at other doors, and an invalid type is bytes there."""
    raw = _sent(content_type, body)
    taken = messages.parse(raw)
    kept = codec.unpack(taken.envelope)
    assert (kept.body, payloads.element(kept), dict(payloads.shown_headers(kept))) == (body, shown, {})
    assert payloads.kind(kept) == (payloads.BYTES if content_type == "no type" else content_type)
    assert messages.Writer(0).message(event(taken.envelope), gap=False).endswith(raw)


@pytest.mark.parametrize("size", [0, 2, 300])
@pytest.mark.parametrize("content_type", ["application/json", "image/png", ""])
def test_a_value_of_bytes(content_type: str, size: int) -> None:
    """Part 3 §3.2.8: bytes as a value are the payload by its content type, and come out as a value."""
    body = b"[" + b"1," * size + b"1]"
    raw = types.section(messages.VALUE, types.binary(body))
    if content_type:
        raw = types.section(messages.PROPERTIES, types.write_list([b"\x40"] * 6 + [types.symbol(content_type)])) + raw
    taken = messages.parse(raw)
    kept = codec.unpack(taken.envelope)
    assert (kept.body, payloads.kind(kept)) == (body, content_type or payloads.BYTES)
    assert messages.Writer(0).message(event(taken.envelope), gap=False).endswith(raw)


PARENT = f"00-{'1' * 32}-{'2' * 16}-01"


@pytest.mark.parametrize(
    ("header", "delay", "found"),
    [
        ([], None, NO_HINTS),
        ([b"\x41"], None, NO_HINTS),
        ([b"\x40", b"\x50\x09"], None, Hints(priority=9)),
        ([b"\x40", b"\x50\xff"], None, Hints(priority=9)),
        ([b"\x40", b"\x40", b"\x70\0\0\x10\0"], None, Hints(ttl_ms=4096)),
        ([b"\x40", b"\x40", b"\x43"], None, NO_HINTS),
        ([], 5000, Hints(delay_ms=5000)),
        ([b"\x40", b"\x50\0", b"\x70\0\0\x20\0"], 5000, Hints(5000, 0, 8192)),
    ],
)
def test_hints(header: list[bytes], delay: int | None, found: Hints) -> None:
    """Part 3 §3.2.1: priority and time to live of a header, and a delay, are options of the item.

    They are forwarded all the same.
    """
    raw = types.section(0x70, types.write_list(header)) if header else b""
    if delay is not None:
        raw += types.section(0x72, types.write_map([types.symbol(DELAY), struct.pack(">BI", 0x70, delay)]))
    raw += types.section(0x75, types.binary(b"x"))
    taken = messages.parse(raw)
    assert taken.hints == found
    assert (
        messages.Writer(0).message(event(taken.envelope), gap=False).endswith(types.section(0x75, types.binary(b"x")))
    )


def test_durability() -> None:
    """A message may ask how durable it is to be before it is accepted."""

    def message(value: bytes) -> bytes:
        raw = types.section(0x72, types.write_map([types.symbol(CONFIRM), value]))
        return raw + types.section(0x75, types.binary(b"x"))

    assert messages.parse(message(types.string("replicated"))).hints.confirm is Durability.REPLICATED
    for wrong in (types.string("often"), types.string(""), b"\x41"):
        with pytest.raises(MalformedRequest, match="confirm is one of stored, synced, replicated"):
            messages.parse(message(wrong))


@pytest.mark.parametrize(("ttl", "delay"), [(1, 1), (1000, 2**40), (0, -1)])
def test_no_hints(ttl: int, delay: int) -> None:
    """A time to live shorter than the delay, and a delay out of range, are refused."""
    raw = types.section(0x70, types.write_list([b"\x40", b"\x40", struct.pack(">BI", 0x70, ttl)]))
    raw += types.section(0x72, types.write_map([types.symbol(DELAY), struct.pack(">Bq", 0x81, delay)]))
    with pytest.raises(MalformedRequest):
        messages.parse(raw + types.section(0x75, types.binary(b"x")))


def test_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The annotation of Azure Service Bus is a timestamp, and another way to say a delay."""
    monkeypatch.setattr("time.time", lambda: 1_000.0)

    def message(*pairs: bytes) -> bytes:
        return types.section(0x72, types.write_map(list(pairs))) + types.section(0x75, types.binary(b"x"))

    name = types.symbol("x-opt-scheduled-enqueue-time")
    assert messages.parse(message(name, types.timestamp(1_002_500))).hints == Hints(2_500)
    assert messages.parse(message(name, types.timestamp(-1))).hints == NO_HINTS
    delay = types.symbol(DELAY), struct.pack(">BI", 0x70, 5)
    for wrong in (
        message(name, b"\x43"),
        message(name, types.timestamp(2**62)),
        message(name, types.timestamp(0), *delay),
    ):
        with pytest.raises(MalformedRequest):
            messages.parse(wrong)


def test_an_expiry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Part 3 §3.2.4: an absolute expiry is a time to live; of two the shorter one holds, and a time that is past ends at once."""
    monkeypatch.setattr("time.time", lambda: 1_000.0)

    def parse(value: bytes, ttl: int = 0) -> Hints:
        raw = types.section(0x70, types.write_list([b"\x40", b"\x40", struct.pack(">BI", 0x70, ttl)]))
        raw += types.section(0x73, types.write_list([b"\x40"] * 8 + [value]))
        return messages.parse(raw + types.section(0x75, types.binary(b"x"))).hints

    assert parse(types.timestamp(1_002_500)) == parse(types.timestamp(1_002_500), 9_000) == Hints(ttl_ms=2_500)
    assert parse(types.timestamp(1_002_500), 2_000) == Hints(ttl_ms=2_000)
    assert parse(types.timestamp(5)) == parse(types.timestamp(-5)) == Hints(ttl_ms=1)
    for none in (b"\x40", types.timestamp(0), types.timestamp(2**53)):
        assert parse(none) == NO_HINTS
    for wrong in (b"\x43", types.string("tomorrow"), struct.pack(">Bq", 0x81, 1_002_500)):
        with pytest.raises(MalformedRequest, match="absolute-expiry-time is not a timestamp"):
            parse(wrong)


def test_parents() -> None:
    """Our own annotations say what an item waits for, in the words of all doors, perhaps regardless, and that its end is kept."""

    def message(*pairs: bytes) -> bytes:
        return types.section(0x72, types.write_map(list(pairs))) + types.section(0x75, types.binary(b"x"))

    after, regardless = types.symbol("x-opt-stanzaq-after"), types.symbol("x-opt-stanzaq-regardless")
    parsed = messages.parse(message(after, types.string("a n#b%20c"), regardless, b"\x41"))
    assert parsed.hints == Hints(after=Dependencies((Parent("a"), Parent("b c", "n")), regardless=True))
    assert messages.parse(message(after, types.string("a"), regardless, b"\x42")).hints.after == Dependencies(
        (Parent("a"),)
    )
    keep = types.symbol("x-opt-stanzaq-keep")
    assert messages.parse(message(keep, b"\x41")).hints == Hints(reply=ReplyMode.KEPT)
    assert messages.parse(message(keep, b"\x42")).hints == NO_HINTS
    for wrong in (
        (keep, types.string("x")),
        (keep, b"\x43"),
        (after, b"\x43"),
        (after, types.string("a a")),
        (regardless, b"\x41"),
        (regardless, types.string("x")),
    ):
        with pytest.raises(MalformedRequest):
            messages.parse(message(*wrong))


@pytest.mark.parametrize(
    "wrong", [b"\x41", b"\x45", types.string("5"), types.symbol("5"), b"\x82" + b"\0" * 8, b"\x83" + b"\0" * 8]
)
@pytest.mark.parametrize("field", ["delay", "priority", "ttl"])
def test_hints_that_are_no_numbers(wrong: bytes, field: str) -> None:
    """Part 3 §3.2.1: an option is a whole number, or refused by its name; null is none."""

    def message(value: bytes) -> bytes:
        fields = {"priority": [b"\x40", value], "ttl": [b"\x40", b"\x40", value]}.get(field, [])
        raw = types.section(0x70, types.write_list(fields)) if fields else b""
        if field == "delay":
            raw += types.section(0x72, types.write_map([types.symbol(DELAY), value]))
        return raw + types.section(0x75, types.binary(b"x"))

    with pytest.raises(MalformedRequest, match="not a whole number"):
        messages.parse(message(wrong))
    assert messages.parse(message(b"\x40")).hints == NO_HINTS


@pytest.mark.parametrize(
    ("section", "pairs", "said"),
    [
        (0x71, [types.symbol(PARTITION), b"\x43"], "is not a symbol"),
        (0x72, [types.symbol(KEY), b"\x43"], KEY),
        (0x72, [types.symbol(KEY), types.string("")], KEY),
        (0x72, [types.symbol(KEY), types.string("a\nb")], KEY),
        (0x72, [types.symbol(KEY), types.string("k" * 2_000)], KEY),
        (0x72, [types.symbol("a"), b"\x43"] * 2, "a key twice"),
        (0x74, [types.string("a"), b"\x43", types.string("b"), b"\x43", types.string("a"), b"\x44"], "a key twice"),
        (0x77, [types.string("a"), b"\x43"] * 2, "a key twice"),
    ],
)
def test_bad_maps(section: int, pairs: list[bytes], said: str) -> None:
    """§2.1.2, §2.1.3 of the draft, part 1 §1.6.23: an invalid partition or key is refused, and so is a key twice."""
    body = b"" if section == 0x77 else types.section(0x75, types.binary(b"x"))
    with pytest.raises(MalformedRequest, match=said):
        messages.parse(types.section(section, types.write_map(pairs)) + body)


def test_properties() -> None:
    """Issue 10: properties of any plain type are headers at other doors, and unchanged for AMQP.

    It gets the service's headers.
    """
    identity = UUID(int=7)
    plain = [
        types.string("s"),
        types.string("t"),
        types.string("i"),
        b"\x54\xfb",
        types.string("b"),
        b"\x41",
        types.string("f"),
        b"\x42",
    ]
    plain += [types.string("d"), b"\x82" + struct.pack(">d", 2.5), types.string("when"), types.timestamp(7)]
    plain += [types.string("u"), b"\x98" + identity.bytes, types.string("y"), types.symbol("z")]
    odd = [
        types.string("null"),
        b"\x40",
        types.string("bin"),
        types.binary(b"x"),
        types.string("bell"),
        types.string("\a"),
    ]
    raw = _sent("image/png", b"x", *plain, *odd)
    taken = messages.parse(raw)
    told = {"s": "t", "i": "-5", "b": "true", "f": "false", "d": "2.5", "when": "7", "u": str(identity), "y": "z"}
    kept = codec.unpack(taken.envelope)
    assert dict(payloads.shown_headers(kept)) == told
    assert messages.Writer(0).message(event(taken.envelope), gap=False).endswith(raw)
    assert taken.body_bytes > len(raw) - 20
    dead = codec.pack(replace(kept, headers={**kept.headers, "stanzaq-dead-reason": "expired"}))
    more = _sent("image/png", b"x", *plain, *odd, types.string("stanzaq-dead-reason"), types.string("expired"))
    assert messages.Writer(0).message(event(dead), gap=False).endswith(more)


def test_traced() -> None:
    """Issue 8: `traceparent` among the properties is the same at every door; an invalid trace is left to AMQP."""
    for parent, kept in ((PARENT, {"traceparent": PARENT}), ("x", {})):
        raw = _sent("a/b", b"x", types.string("traceparent"), types.string(parent))
        taken = messages.parse(raw)
        assert payloads.shown_headers(codec.unpack(taken.envelope)) == kept
        assert messages.Writer(0).message(event(taken.envelope), gap=False).endswith(raw)
    raw = _sent("a/b", b"x", types.string("n"), b"\x54\x01", types.string("traceparent"), types.string(PARENT))
    before = codec.unpack(messages.parse(raw).envelope)
    later = replace(before, headers={**before.headers, "traceparent": PARENT.replace("2", "3")})
    written = messages.Writer(0).message(event(codec.pack(later)), gap=False)
    assert PARENT.encode() not in written and PARENT.replace("2", "3").encode() in written, "the next step's"


@pytest.mark.parametrize(
    "names", [["stanzaq-dead-reason"], ["Collection"], ["amqp"], [f"h{number}" for number in range(33)]]
)
def test_headers_of_the_service(names: list[str]) -> None:
    """The service's own headers, and more than an item may have, are refused here as at every door."""
    with pytest.raises(MalformedRequest) as refused:
        messages.parse(_sent("a/b", b"x", *(types.string(each) for name in names for each in (name, "v"))))
    assert refused.value.problem is Problem.PAYLOAD_INVALID


@pytest.mark.parametrize("content_type", ["application/json", "application/json; charset=utf-8"])
@pytest.mark.parametrize("body", [b"", b"NaN", b'"\xff"', b"{} x"])
def test_what_is_no_json(content_type: str, body: bytes) -> None:
    """Issue 48.8: a body that is called JSON and is none is amqp:decode-error, as bytes and as a string."""
    data = _sent(content_type, body)
    string = data[: -len(types.section(messages.DATA, types.binary(body)))]
    string += types.section(messages.VALUE, b"\xa1" + bytes([len(body)]) + body)
    for raw in (data, string):
        with pytest.raises(MalformedRequest, match=r"the payload is not JSON|invalid text") as refused:
            messages.parse(raw)
        assert ERRORS[refused.value.problem].amqp == "amqp:decode-error"


@pytest.mark.parametrize(
    "envelope", [Envelope(b"<a xmlns='x'/>"), Envelope(b"{}", "application/json", {"h": "v", "amqp": "?"})]
)
def test_of_other_doors(envelope: Envelope) -> None:
    """Items of other doors are a data section with its type, and their headers are application properties."""
    written = messages.Writer(0).message(event(codec.pack(envelope)), gap=True)
    found = {each.code: written[each.start : each.end] for each in messages.sections(written)}
    assert found[messages.DATA] == types.section(messages.DATA, types.binary(envelope.body))
    assert envelope.content_type.encode() in found[messages.PROPERTIES]
    assert (messages.APPLICATION in found) is bool(envelope.headers)
    assert b"event-streams-gap" in found[messages.DELIVERY]
