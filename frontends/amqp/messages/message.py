"""Translates a message in both directions (part 3, §3.2): sections to an envelope, and an event of the log to sections.

What other doors understand is translated: one data section, a string or bytes as a value, the content type, application
properties as headers, the group key. All else is kept byte for byte in the header `amqp`, so that a consumer gets exactly
the message that its producer sent. Delivery annotations belong to one hop: they are read and replaced. Pure.
"""

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from dataclasses import dataclass, field
from typing import Final

from broker import codec, payloads
from broker.model.frozen import frozen
from broker.model.items import headers
from broker.model.items.dependencies import Dependencies
from broker.model.items.headers import AMQP as CARRIED
from broker.model.items.hints import MOST_PRIORITY, MOST_SECONDS, NO_HINTS, Hints, ms_until
from broker.model.items.items import Envelope
from broker.model.items.outcomes import ItemOutcome, ReplyMode
from broker.model.names import ITEM_ID_BYTES
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import Event
from broker.payloads import BYTES
from frontends.amqp.constants import (
    AFTER,
    AT,
    CONFIRM,
    DELAY,
    GAP,
    KEEP,
    KEY,
    KEYS,
    OFFSET,
    PARTITION,
    PARTITIONS,
    REGARDLESS,
    TIMESTAMP,
)
from frontends.amqp.messages import properties
from frontends.amqp.protocol import types

TEXT: Final = "text/plain;charset=utf-8"
AMQP: Final = "application/vnd.amqp"
"""The content type of a body that is neither one data section nor a string or bytes: its raw sections."""

_KINDS: Final = {"data": BYTES, "string": TEXT, "binary": BYTES, "sections": AMQP}
"""The default content type of each form of a body."""

HEADER, DELIVERY, MESSAGE, PROPERTIES, APPLICATION, DATA, SEQUENCE, VALUE, FOOTER = range(0x70, 0x79)
_NAMES: Final = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY,
    "amqp:message-annotations:map": MESSAGE,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE,
    "amqp:amqp-value:*": VALUE,
    "amqp:footer:map": FOOTER,
}
_BODY: Final = frozenset({DATA, SEQUENCE, VALUE})
_MAPS: Final = frozenset({DELIVERY, MESSAGE, APPLICATION, FOOTER})
_LISTS: Final = frozenset({HEADER, PROPERTIES, SEQUENCE})
_CARRIED: Final = frozenset({HEADER, MESSAGE, PROPERTIES, APPLICATION, FOOTER})
_NOTHING: Final = properties.PropertyHeaders({}, {}, whole=True)
MESSAGE_ID, REPLY_TO, CORRELATION, _CONTENT_TYPE, _EXPIRY = 0, 4, 5, 6, 8
"""Indexes in the list of properties."""

_DATA: Final = b"\x00\x53\x75"


@frozen
class SectionSpan:
    """One section: where it begins, where its value begins, and where it ends."""

    code: int
    start: int
    value: int
    end: int


@dataclass(slots=True)
class Message:
    """A producer's message; `partition` is the text of its partition annotation.

    `hints` come from priority and time to live in the header and from the annotations of delay and time. `reply_to` is the
    address that it names for a reply, and `correlation` the encoded id that the reply has.
    """

    envelope: bytes = b""
    body_bytes: int = 0
    key: str = ""
    partition: str | None = None
    hints: Hints = NO_HINTS
    reply_to: str = ""
    correlation: bytes = b"\x40"


def sections(raw: bytes) -> list[SectionSpan]:
    """Return the sections of a message and check their order; raises Malformed."""
    found: list[SectionSpan] = []
    at, last = 0, HEADER - 1
    while at < len(raw):
        named, value = types.read_descriptor(raw, at)
        code = _NAMES.get(named, 0) if isinstance(named, str) else named
        repeats = code == last and code in {DATA, SEQUENCE}
        mixed = code in _BODY and last in _BODY and code != last
        if not HEADER <= code <= FOOTER or (code <= last and not repeats) or mixed:
            raise types.Malformed(types.MESSAGE, "a section is unknown or out of order")
        end = types.check(raw, value)
        of = raw[value]
        fits = (
            (code not in _MAPS or of in {0xC1, 0xD1})
            and (code not in _LISTS or of in {0x45, 0xC0, 0xD0})
            and (code != DATA or of in {0xA0, 0xB0})
        )
        if not fits:
            raise types.Malformed(types.MESSAGE, "a section has the wrong type")
        found.append(SectionSpan(code, at, value, end))
        at, last = end, code
    if not found:
        raise types.Malformed(types.MESSAGE, "it is empty")
    return found


@dataclass(slots=True)
class _Parsed:
    """The parts of the sections: for all doors, and for AMQP only."""

    message: Message = field(default_factory=Message)
    kind: str = ""
    told: properties.PropertyHeaders = _NOTHING
    carried: list[bytes] = field(default_factory=list)
    body: list[SectionSpan] = field(default_factory=list)
    properties: SectionSpan | None = None
    simple: bool = True
    priority: int | None = None
    ttl_ms: int | None = None
    expiry_ms: int | None = None
    delay_ms: int | None = None
    at_ms: int | None = None
    after: str = ""
    regardless: bool = False
    keep: bool = False
    confirm: str | None = None

    def carry(self, raw: bytes, section: SectionSpan) -> None:
        """Keep a section's bytes, under the short form of its descriptor."""
        self.carried.append(types.section(section.code, raw[section.value : section.end]))


def parse(raw: bytes) -> Message:
    """Parse a message; raises MalformedRequest."""
    if raw[:3] == _DATA and raw[3:4] in {b"\xa0", b"\xb0"} and len(raw) > 7 and types.span(raw, 3)[1] == len(raw):
        # Fast path for the usual message, which has only a body.
        body = raw[types.span(raw, 3)[0] :]
        return Message(codec.pack(Envelope(body, BYTES)), len(body))
    try:
        found = sections(raw)
    except types.Malformed as wrong:
        raise MalformedRequest(Problem.PAYLOAD_INVALID, f"the message cannot be read: {wrong}") from None
    into = _Parsed()
    for each in found:
        _section(raw, each, into)
    body, form, kind = _read_body(raw, into)
    # Properties with only a content type can be rebuilt from the envelope, unless it repeats the default.
    if into.properties and not (into.simple and (not into.kind or into.kind == kind != _KINDS[form])):
        into.carry(raw, into.properties)
    carried = b"".join(into.carried)
    told = {**into.told.headers, **into.told.trace}
    into.message.body_bytes = len(body) + headers.size(into.told.headers) + len(carried)
    if form != "data" or carried:
        told[CARRIED] = f"{form} {b64encode(carried).decode()}"
    into.message.envelope = codec.pack(payloads.make_envelope(body, kind, told))
    after = Dependencies.parse_names(into.after, regardless=into.regardless)
    reply = ReplyMode.KEPT if into.keep else ReplyMode.NONE
    into.message.hints = Hints.validate(
        into.delay_ms, into.priority, _read_ttl(into), reply, after, at=into.at_ms, confirm=into.confirm
    )
    return into.message


def _section(raw: bytes, each: SectionSpan, into: _Parsed) -> None:
    match each.code:
        case 0x70 if raw[each.value] != 0x45:
            _header(raw, each, into)
            into.carry(raw, each)
        case 0x71:
            into.message.partition = _partition(raw, each)
        case 0x72:
            _annotations(raw, each, into)
        case 0x73:
            _properties(raw, each, into)
        case 0x74:
            into.told = properties.parse(raw, each.value)
            if not into.told.whole:
                into.carry(raw, each)
        case _ if each.code in _BODY:
            into.body.append(each)
        case _ if raw[each.value] != 0x45:
            into.carry(raw, each)


def _read_body(raw: bytes, into: _Parsed) -> tuple[bytes, str, str]:
    if not into.body:
        # A message should have a body, but clients omit an empty one.
        return b"", "sections", AMQP
    first = into.body[0]
    start, end = types.span(raw, first.value) if raw[first.value] else (0, 0)
    if len(into.body) == 1 and first.code == DATA:
        return raw[start:end], "data", into.kind or BYTES
    if first.code == VALUE and raw[first.value] in {0xA1, 0xB1}:
        return raw[start:end], "string", into.kind or TEXT
    if first.code == VALUE and raw[first.value] in {0xA0, 0xB0}:
        return raw[start:end], "binary", into.kind or BYTES
    return raw[first.start : into.body[-1].end], "sections", AMQP


def _header(raw: bytes, section: SectionSpan, into: _Parsed) -> None:
    """Read priority and time to live (§3.2.1): priorities above the maximum are lowered to it, and a time of 0 means none."""
    places: list[int | None] = [*types.items(raw, section.value), None, None, None]
    rank, ttl = (
        _read_whole(raw, places[number], what) for number, what in ((1, "the priority"), (2, "the time to live"))
    )
    into.priority = None if rank is None else min(max(rank, 0), MOST_PRIORITY)
    into.ttl_ms = ttl or None


def _read_ttl(into: _Parsed) -> int | None:
    """Return the shorter one of the time to live and of what is left until the absolute expiry (§3.2.4), unless that is far."""
    left = max(1, ms_until(into.expiry_ms)) if into.expiry_ms else None
    if left is None or left > MOST_SECONDS * 1000:
        return into.ttl_ms
    return min(left, into.ttl_ms or left)


def _read_whole(raw: bytes, at: int | None, what: str) -> int | None:
    """Read an integer field that requests something; None if absent or null."""
    found = None if at is None else types.integer(raw, at)
    if found is None and at is not None and raw[at] != 0x40:
        raise MalformedRequest(Problem.PAYLOAD_INVALID, f"{what} is not a whole number")
    return found


def _read_moment(raw: bytes, at: int, what: str) -> int:
    """Read a field that is a time, in ms since 1970."""
    found = types.moment(raw, at)
    if found is None:
        raise MalformedRequest(Problem.PAYLOAD_INVALID, f"{what} is not a timestamp")
    return found


def _partition(raw: bytes, annotations: SectionSpan) -> str | None:
    for key, value in types.pairs(raw, annotations.value):
        if types.text(raw, key) in PARTITIONS and raw[value] != 0x40:
            said = types.text(raw, value)
            if said is None:
                raise MalformedRequest(Problem.PAYLOAD_INVALID, "the annotation of the partition is not a symbol")
            return said
    return None


def _annotations(raw: bytes, annotations: SectionSpan, into: _Parsed) -> None:
    rest: list[bytes] = []
    for key, value in types.pairs(raw, annotations.value):
        name = types.text(raw, key)
        if name in KEYS:
            said = types.text(raw, value) or ""
            if not said.isprintable() or not 0 < len(said.encode()) <= ITEM_ID_BYTES:
                raise MalformedRequest(
                    Problem.PAYLOAD_INVALID, f"{KEY} must be a string of at most {ITEM_ID_BYTES} printable bytes"
                )
            into.message.key = said
        elif name not in PARTITIONS:
            if name == DELAY:
                into.delay_ms = _read_whole(raw, value, DELAY)
            elif name == AT:
                into.at_ms = _read_moment(raw, value, AT)
            elif name == CONFIRM:
                into.confirm = types.text(raw, value) or ""
            elif name in {AFTER, REGARDLESS, KEEP}:
                _dependencies(raw, name, value, into)
            rest += [raw[key : types.end_of_value(raw, key)], raw[value : types.end_of_value(raw, value)]]
    if rest:
        into.carried.append(types.section(MESSAGE, types.write_map(rest)))


def _dependencies(raw: bytes, name: str, value: int, into: _Parsed) -> None:
    said = types.text(raw, value) if name == AFTER else types.read_text(raw, value)
    if said is None or (name != AFTER and said not in {"true", "false"}):
        kind = "a string" if name == AFTER else "a boolean"
        raise MalformedRequest(Problem.PAYLOAD_INVALID, f"{name} is not {kind}")
    if name == AFTER:
        into.after = said
    elif name == KEEP:
        into.keep = said == "true"
    else:
        into.regardless = said == "true"


def _properties(raw: bytes, section: SectionSpan, into: _Parsed) -> None:
    only, message = True, into.message
    for place, at in enumerate(types.items(raw, section.value)):
        if raw[at] == 0x40:
            continue
        said = types.text(raw, at) or ""
        if place in {MESSAGE_ID, CORRELATION}:
            message.correlation = raw[at : types.end_of_value(raw, at)]
        elif place == REPLY_TO:
            message.reply_to = said
        elif place == _EXPIRY:
            into.expiry_ms = _read_moment(raw, at, "absolute-expiry-time")
        if place == _CONTENT_TYPE and payloads.is_type(said):
            into.kind = said
        else:
            only = False
    into.properties, into.simple = section, only


def shown_annotations(record: bytes) -> dict[str, str]:
    """Return the text forms of an event's message annotations without the group key; raises CorruptRecord."""
    carried = _split_carried(_carry_sections(codec.unpack(record))[1]).get(
        MESSAGE, types.section(MESSAGE, types.write_map([]))
    )
    found = {types.text(carried, key): types.read_text(carried, value) for key, value in types.pairs(carried, 3)}
    return {name: text for name, text in found.items() if name is not None and text is not None}


def _carry_sections(envelope: Envelope) -> tuple[str, str]:
    """Return the form of the body, and the kept sections in base64."""
    form, _, carried = envelope.headers.get(CARRIED, "data ").partition(" ")
    return form, carried


class Writer:
    """Writes events of one partition; encodes the constant parts once."""

    def __init__(self, partition: int) -> None:
        """Encode the constant parts."""
        self._head = types.symbol(PARTITION) + types.symbol(str(partition)) + types.symbol(OFFSET)
        self._middle = types.symbol(TIMESTAMP)
        self._gap = types.symbol(GAP) + b"\x41"

    def message(self, event: Event, *, gap: bool) -> bytes:
        """Write an event as a message (E13, E16); `gap`: the retention removed older events (EX7)."""
        told = self._head + types.symbol(event.offset) + self._middle + types.timestamp(event.timestamp_ms)
        pairs = [told, b"", b"", b"", b"", b""]
        if gap:
            pairs += [self._gap, b""]
        delivery = types.section(DELIVERY, types.write_map(pairs))
        envelope = codec.unpack(event.envelope)
        if not envelope.headers and envelope.content_type == BYTES:
            return b"%b%b%b" % (
                delivery,
                _write_annotations(event.key),
                types.section(DATA, types.binary(envelope.body)),
            )
        parts = self.parts(envelope, event.key)
        parts[DELIVERY] = delivery
        return b"".join(parts[code] for code in sorted(parts))

    @staticmethod
    def parts(envelope: Envelope, key: str) -> dict[int, bytes]:
        """Write the sections of what was sent, by code."""
        form, carried = _carry_sections(envelope)
        parts = _split_carried(carried)
        if key:
            parts[MESSAGE] = _write_annotations(key, parts.get(MESSAGE, b""))
        if said := payloads.shown_headers(envelope):
            parts[APPLICATION] = types.section(APPLICATION, properties.write(said, parts.get(APPLICATION, b""), 3))
        kind = payloads.kind(envelope)
        if PROPERTIES not in parts and kind != _KINDS.get(form, BYTES):
            parts[PROPERTIES] = _content_type(kind)
        parts[DATA] = _body(form, envelope.body)
        return parts


def _split_carried(carried: str) -> dict[int, bytes]:
    """Split what `carry` has kept; empty for a header of this name that came from another door's publisher."""
    try:
        raw = b64decode(carried, validate=True)
        found, at = {}, 0
        while at < len(raw):
            end = types.check(raw, at + 3)
            found[raw[at + 2]] = raw[at:end]
            at = end
    except (NotBase64, ValueError, IndexError):
        return {}
    return found if found.keys() <= _CARRIED else {}


def _write_annotations(key: str, carried: bytes = b"") -> bytes:
    """Write the message annotations: the group key and the producer's own."""
    if not key:
        return carried
    pairs = [types.symbol(KEY), types.string(key)]
    if carried:
        pairs += [carried[at : types.end_of_value(carried, at)] for at in types.items(carried, 3)]
    return types.section(MESSAGE, types.write_map(pairs))


def _content_type(kind: str) -> bytes:
    return types.section(PROPERTIES, types.write_list([b"\x40"] * _CONTENT_TYPE + [types.symbol(_ascii(kind))]))


def reply(end: ItemOutcome, correlation: bytes) -> bytes:
    """Write the end of an item as a message: the worker's result, and the end as application properties.

    Raises CorruptRecord.
    """
    result = codec.unpack(end.envelope) if end.envelope else Envelope(b"", BYTES)
    form, _sections = _carry_sections(result)
    told = {**payloads.shown_headers(result), "item": end.item_id, "state": end.state.value, "reason": end.reason}
    fields = [b"\x40"] * CORRELATION + [correlation, types.symbol(_ascii(payloads.kind(result)))]
    return b"".join(
        (
            types.section(PROPERTIES, types.write_list(fields)),
            types.section(APPLICATION, properties.write(told, b"", 0)),
            _body(form, result.body),
        )
    )


def _ascii(text: str) -> str:
    return text.encode("ascii", "replace").decode()


def _body(form: str, body: bytes) -> bytes:
    if form == "sections":
        return body
    if form == "string":
        return types.section(VALUE, types.string(body.decode("utf-8", "replace")))
    return types.section(VALUE if form == "binary" else DATA, types.binary(body))
