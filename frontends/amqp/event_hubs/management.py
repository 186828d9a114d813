"""Requests and answers of `$cbs` and `$management` as bytes. Pure; must not know links or how requests are handled."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from broker.model.results import Replay
from frontends.amqp.event_hubs import constants, numbers
from frontends.amqp.messages import message
from frontends.amqp.protocol import types

_MESSAGE_ID, _REPLY_TO, _CORRELATION = 0, 4, 5
_NULL: Final = b"\x40"
_NEVER_MS: Final = -62_135_596_800_000
"""The first moment of the year 1: the time of a partition that never had an event."""

_NOTHING: Final = "0" * 40
"""The offset before all others."""


@dataclass(slots=True)
class ManagementRequest:
    """A request: its text properties, its text value, the address of the answer, and the id that the answer names."""

    said: dict[str, str] = field(default_factory=dict)
    value: str = ""
    reply_to: str = ""
    correlation: bytes = _NULL


def request(raw: bytes) -> ManagementRequest:
    """Parse a request; raises Malformed."""
    found = ManagementRequest()
    for section in message.sections(raw):
        if section.code == message.PROPERTIES:
            places = list(types.items(raw, section.value))
            fields = [raw[at : types.end_of_value(raw, at)] for at in places] + [_NULL] * (_CORRELATION + 1)
            found.reply_to = types.text(fields[_REPLY_TO], 0) or ""
            found.correlation = fields[_CORRELATION] if fields[_CORRELATION] != _NULL else fields[_MESSAGE_ID]
        elif section.code == message.APPLICATION:
            texts = [types.text(raw, at) for at in types.items(raw, section.value)]
            found.said = {name: text for name, text in zip(texts[::2], texts[1::2], strict=True) if name and text}
        elif section.code == message.VALUE:
            found.value = types.text(raw, section.value) or ""
    return found


def answer(asked: ManagementRequest, code: int, why: str, value: bytes = _NULL) -> bytes:
    """Write an answer."""
    said = [
        types.string("status-code"),
        struct.pack(">Bi", 0x71, code),
        types.string("status-description"),
        types.string(why),
    ]
    return b"".join(
        (
            types.section(message.PROPERTIES, types.write_list([_NULL] * _CORRELATION + [asked.correlation])),
            types.section(message.APPLICATION, types.write_map(said)),
            types.section(message.VALUE, value),
        )
    )


def hub(name: str, created_ms: int, partitions: int) -> bytes:
    """Write the properties of a hub."""
    names = [str(number).encode() for number in range(partitions)]
    inside = b"\xa1" + b"".join(b"%c%b" % (len(each), each) for each in names)
    return _map(
        {
            "name": types.string(name),
            "type": types.string(constants.HUB),
            "created_at": types.timestamp(created_ms),
            "partition_count": _write_long(partitions),
            "partition_ids": b"\xf0%b%b" % (struct.pack(">II", len(inside) + 4, partitions), inside),
        }
    )


def partition(name: str, found: Replay) -> bytes:
    """Write the properties of a partition."""
    # The newest event may be removed already.
    last = "" if found.latest.startswith(_NOTHING) else found.latest
    first = found.earliest or last
    return _map(
        {
            "name": types.string(name),
            "type": types.string(constants.PARTITION),
            "partition": types.string(str(found.partition)),
            "begin_sequence_number": _write_long(numbers.number(first) if first else 0),
            "last_enqueued_sequence_number": _write_long(numbers.number(last) if last else -1),
            "last_enqueued_offset": types.string(last or "-1"),
            "last_enqueued_time_utc": types.timestamp(int(last[:20]) if last else _NEVER_MS),
            "is_partition_empty": b"\x42" if found.earliest else b"\x41",
        }
    )


def _map(said: Mapping[str, bytes]) -> bytes:
    return types.write_map([part for name, value in said.items() for part in (types.string(name), value)])


def _write_long(number: int) -> bytes:
    return struct.pack(">Bq", 0x81, number)
