"""Runtime information of a node (EX17): a request to its address, and the message that answers it. Pure."""

from dataclasses import dataclass
from typing import Final

from broker.model.results import Extents
from frontends.amqp import messages, wire

_MESSAGE_ID, _REPLY_TO, _CORRELATION = 0, 4, 5
_NOTHING: Final = "0" * 40
"""The offset before all others: the end of a log that never had anything."""


@dataclass(frozen=True, slots=True)
class Request:
    """Where the answer goes, and the id, as it is on the wire, that it names."""

    reply_to: str
    correlation: bytes


def request(raw: bytes) -> Request:
    """Read a request; raises Malformed."""
    for section in messages.sections(raw):
        if section.code == messages.PROPERTIES:
            places = list(wire.items(raw, section.value))
            fields = [raw[at : wire.after(raw, at)] for at in places] + [b"\x40"] * _CORRELATION
            reply_to = wire.text(fields[_REPLY_TO], 0)
            if reply_to is None:
                break
            correlation = fields[_CORRELATION] if fields[_CORRELATION] != b"\x40" else fields[_MESSAGE_ID]
            return Request(reply_to, correlation)
    raise wire.Malformed(wire.MESSAGE, "a request says where its answer goes: reply-to")


def answer(found: Extents, correlation: bytes) -> bytes:
    """Write how far the log of each partition reaches; an offset that there is not is null."""
    partitions = [
        wire.mapped(
            [
                wire.symbol("partition"),
                wire.symbol(str(each.partition)),
                wire.symbol("earliest-offset"),
                _offset(each.earliest),
                wire.symbol("latest-offset"),
                _offset(each.latest),
            ]
        )
        for each in found.partitions
    ]
    body = wire.mapped([wire.symbol("partitions"), wire.listed(partitions)])
    properties = wire.listed([b"\x40"] * _CORRELATION + [correlation])
    return wire.section(messages.PROPERTIES, properties) + wire.section(messages.VALUE, body)


def _offset(offset: str) -> bytes:
    return wire.symbol(offset) if offset and not offset.startswith(_NOTHING) else b"\x40"
