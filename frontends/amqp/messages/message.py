"""A message on its way in and out (part 3, §3.2): its sections as bytes to an envelope, and an event of the log to sections.

What other doors understand is translated: one data section or a string, the content type, application properties as headers,
the group key. All else is carried along as it came, byte for byte, in the header `amqp`, so that a consumer has the very
message that its producer sent. Delivery annotations are of one hop: they are read, and others are put in their place. Pure.
"""

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from dataclasses import dataclass, field
from typing import Final

from broker import codec, payloads
from broker.model import headers
from broker.model.headers import AMQP as CARRIED
from broker.model.hints import MOST_PRIORITY, NO_HINTS, Hints
from broker.model.items import Envelope
from broker.model.names import ITEM_ID_BYTES
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import Event
from broker.payloads import BYTES
from frontends.amqp.constants import DELAY, GAP, KEY, KEYS, OFFSET, PARTITION, PARTITIONS, TIMESTAMP
from frontends.amqp.messages import properties
from frontends.amqp.protocol import types

TEXT: Final = "text/plain;charset=utf-8"
AMQP: Final = "application/vnd.amqp"
"""Content type of a body that is neither one data section nor a string: its sections as they came."""

_KINDS: Final = {"data": BYTES, "string": TEXT, "sections": AMQP}
"""Content type of each form of a body that has none."""

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
_NOTHING: Final = properties.Told({}, {}, whole=True)
_CONTENT_TYPE: Final = 6
"""Place of the content type in the list of properties."""

_DATA: Final = b"\x00\x53\x75"


@dataclass(frozen=True, slots=True)
class Section:
    """One section: where it begins, where its value does, and where it ends."""

    code: int
    start: int
    value: int
    end: int


@dataclass(slots=True)
class Message:
    """What a producer sent; `partition` is the one that its annotation asks for, as it is written there.

    What its header says of priority and time to live, and an annotation of a delay, are the `hints`.
    """

    envelope: bytes = b""
    body_bytes: int = 0
    key: str = ""
    partition: str | None = None
    hints: Hints = NO_HINTS


def sections(raw: bytes) -> list[Section]:
    """Find the sections of a message, in the order that they must have; raises Malformed."""
    found: list[Section] = []
    at, last = 0, HEADER - 1
    while at < len(raw):
        named, value = types.described(raw, at)
        code = _NAMES.get(named, 0) if isinstance(named, str) else named
        repeats = code == last and code in {DATA, SEQUENCE}
        mixed = code in _BODY and last in _BODY and code != last
        if not HEADER <= code <= FOOTER or (code <= last and not repeats) or mixed:
            raise types.Malformed(types.MESSAGE, "the sections are not those of a message, or not in their order")
        end = types.check(raw, value)
        of = raw[value]
        fits = (
            (code not in _MAPS or of in {0xC1, 0xD1})
            and (code not in _LISTS or of in {0x45, 0xC0, 0xD0})
            and (code != DATA or of in {0xA0, 0xB0})
        )
        if not fits:
            raise types.Malformed(types.MESSAGE, "a section holds what it must not")
        found.append(Section(code, at, value, end))
        at, last = end, code
    if not found:
        raise types.Malformed(types.MESSAGE, "there is nothing in it")
    return found


@dataclass(slots=True)
class _Taken:
    """What is taken out of the sections: for all doors, and for AMQP alone."""

    message: Message = field(default_factory=Message)
    kind: str = ""
    told: properties.Told = _NOTHING
    carried: list[bytes] = field(default_factory=list)
    body: list[Section] = field(default_factory=list)
    properties: Section | None = None
    simple: bool = True
    priority: int | None = None
    ttl_ms: int | None = None
    delay_ms: int | None = None

    def carry(self, raw: bytes, section: Section) -> None:
        """Keep a section as it is, under the short form of its name."""
        self.carried.append(types.section(section.code, raw[section.value : section.end]))


def taken(raw: bytes) -> Message:
    """Read a message; raises MalformedRequest."""
    if raw[:3] == _DATA and raw[3:4] in {b"\xa0", b"\xb0"} and len(raw) > 7 and types.span(raw, 3)[1] == len(raw):
        # Nothing but a body: as most are that are many.
        body = raw[types.span(raw, 3)[0] :]
        return Message(codec.pack(Envelope(body, BYTES)), len(body))
    try:
        found = sections(raw)
    except types.Malformed as wrong:
        raise MalformedRequest(Problem.PAYLOAD_INVALID, f"the message cannot be read: {wrong}") from None
    into = _Taken()
    for each in found:
        _section(raw, each, into)
    body, form, kind = _bodied(raw, into)
    # A type alone is written again from the envelope, unless it says what is meant without it.
    if into.properties and not (into.simple and (not into.kind or into.kind == kind != _KINDS[form])):
        into.carry(raw, into.properties)
    carried = b"".join(into.carried)
    told = {**into.told.headers, **into.told.trace}
    into.message.body_bytes = len(body) + headers.size(into.told.headers) + len(carried)
    if form != "data" or carried:
        told[CARRIED] = f"{form} {b64encode(carried).decode()}"
    into.message.envelope = codec.pack(payloads.kept(body, kind, told))
    into.message.hints = Hints.judged(into.delay_ms, into.priority, into.ttl_ms)
    return into.message


def _section(raw: bytes, each: Section, into: _Taken) -> None:
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
            into.told = properties.told(raw, each.value)
            if not into.told.whole:
                into.carry(raw, each)
        case _ if each.code in _BODY:
            into.body.append(each)
        case _ if raw[each.value] != 0x45:
            into.carry(raw, each)


def _bodied(raw: bytes, into: _Taken) -> tuple[bytes, str, str]:
    if not into.body:
        # It should have one, and clients leave out an empty one.
        return b"", "sections", AMQP
    first = into.body[0]
    start, end = types.span(raw, first.value) if raw[first.value] else (0, 0)
    if len(into.body) == 1 and first.code == DATA:
        return raw[start:end], "data", into.kind or BYTES
    if first.code == VALUE and raw[first.value] in {0xA1, 0xB1}:
        return raw[start:end], "string", into.kind or TEXT
    return raw[first.start : into.body[-1].end], "sections", AMQP


def _header(raw: bytes, section: Section, into: _Taken) -> None:
    """Read priority and time to live (§3.2.1): of 256 priorities ten are told apart, and a time of 0 is none."""
    places: list[int | None] = [*types.items(raw, section.value), None, None, None]
    rank, ttl = (_whole(raw, places[number], what) for number, what in ((1, "the priority"), (2, "the time to live")))
    into.priority = None if rank is None else min(max(rank, 0), MOST_PRIORITY)
    into.ttl_ms = ttl or None


def _whole(raw: bytes, at: int | None, what: str) -> int | None:
    """Read a whole number that asks for something; None where there is none, or null."""
    found = None if at is None else types.integer(raw, at)
    if found is None and at is not None and raw[at] != 0x40:
        raise MalformedRequest(Problem.PAYLOAD_INVALID, f"{what} is no whole number")
    return found


def _partition(raw: bytes, annotations: Section) -> str | None:
    for key, value in types.pairs(raw, annotations.value):
        if types.text(raw, key) in PARTITIONS and raw[value] != 0x40:
            said = types.text(raw, value)
            if said is None:
                raise MalformedRequest(Problem.PAYLOAD_INVALID, "the annotation of the partition is no symbol")
            return said
    return None


def _annotations(raw: bytes, annotations: Section, into: _Taken) -> None:
    rest: list[bytes] = []
    for key, value in types.pairs(raw, annotations.value):
        name = types.text(raw, key)
        if name in KEYS:
            said = types.text(raw, value) or ""
            if not said.isprintable() or not 0 < len(said.encode()) <= ITEM_ID_BYTES:
                raise MalformedRequest(
                    Problem.PAYLOAD_INVALID, f"{KEY} is a string of at most {ITEM_ID_BYTES} printable bytes"
                )
            into.message.key = said
        elif name not in PARTITIONS:
            if name == DELAY:
                into.delay_ms = _whole(raw, value, DELAY)
            rest += [raw[key : types.after(raw, key)], raw[value : types.after(raw, value)]]
    if rest:
        into.carried.append(types.section(MESSAGE, types.mapped(rest)))


def _properties(raw: bytes, section: Section, into: _Taken) -> None:
    only = True
    for place, at in enumerate(types.items(raw, section.value)):
        if raw[at] == 0x40:
            continue
        said = types.text(raw, at) or ""
        if place == _CONTENT_TYPE and payloads.is_type(said):
            into.kind = said
        else:
            only = False
    into.properties, into.simple = section, only


def annotated(record: bytes) -> dict[str, str]:
    """Give the message annotations of an event, but its group key, as texts where they have such a form; raises CorruptRecord."""
    carried = _parted(_carried(codec.unpack(record))[1]).get(MESSAGE, types.section(MESSAGE, types.mapped([])))
    found = {types.text(carried, key): types.shown(carried, value) for key, value in types.pairs(carried, 3)}
    return {name: text for name, text in found.items() if name is not None and text is not None}


def _carried(envelope: Envelope) -> tuple[str, str]:
    """Give the form of the body, and what is carried."""
    form, _, carried = envelope.headers.get(CARRIED, "data ").partition(" ")
    return form, carried


class Writer:
    """Writes events of one partition: what is the same for all is written once."""

    def __init__(self, partition: int) -> None:
        """Begin with what is always told."""
        self._head = types.symbol(PARTITION) + types.symbol(str(partition)) + types.symbol(OFFSET)
        self._middle = types.symbol(TIMESTAMP)
        self._gap = types.symbol(GAP) + b"\x41"

    def message(self, event: Event, *, gap: bool) -> bytes:
        """Write an event as the message that it is (E13, E16); `gap`: what lay before it went with the retention (EX7)."""
        told = self._head + types.symbol(event.offset) + self._middle + types.timestamp(event.timestamp_ms)
        pairs = [told, b"", b"", b"", b"", b""]
        if gap:
            pairs += [self._gap, b""]
        delivery = types.section(DELIVERY, types.mapped(pairs))
        envelope = codec.unpack(event.envelope)
        if not envelope.headers and envelope.content_type == BYTES:
            return b"%b%b%b" % (delivery, _keyed(event.key), types.section(DATA, types.binary(envelope.body)))
        parts = self.parts(envelope, event.key)
        parts[DELIVERY] = delivery
        return b"".join(parts[code] for code in sorted(parts))

    @staticmethod
    def parts(envelope: Envelope, key: str) -> dict[int, bytes]:
        """Write the sections of what was sent, by their codes."""
        form, carried = _carried(envelope)
        parts = _parted(carried)
        if key:
            parts[MESSAGE] = _keyed(key, parts.get(MESSAGE, b""))
        if said := payloads.said(envelope):
            parts[APPLICATION] = types.section(APPLICATION, properties.written(said, parts.get(APPLICATION, b""), 3))
        kind = payloads.kind(envelope)
        if PROPERTIES not in parts and kind != _KINDS.get(form, BYTES):
            parts[PROPERTIES] = _content_type(kind)
        parts[DATA] = _body(form, envelope.body)
        return parts


def _parted(carried: str) -> dict[int, bytes]:
    """Part what `carry` has kept; a header of this name that another door's publisher made is no such thing."""
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


def _keyed(key: str, carried: bytes = b"") -> bytes:
    """Write the message annotations: the group key, and what the producer's own were."""
    if not key:
        return carried
    pairs = [types.symbol(KEY), types.string(key)]
    if carried:
        pairs += [carried[at : types.after(carried, at)] for at in types.items(carried, 3)]
    return types.section(MESSAGE, types.mapped(pairs))


def _content_type(kind: str) -> bytes:
    return types.section(PROPERTIES, types.listed([b"\x40"] * _CONTENT_TYPE + [types.symbol(_ascii(kind))]))


def _ascii(text: str) -> str:
    return text.encode("ascii", "replace").decode()


def _body(form: str, body: bytes) -> bytes:
    if form == "sections":
        return body
    if form == "string":
        return types.section(VALUE, types.string(body.decode("utf-8", "replace")))
    return types.section(DATA, types.binary(body))
