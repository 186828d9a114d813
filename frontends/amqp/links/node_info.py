"""Runtime information of a node (EX17): parses a request and writes the answer. Pure."""

from typing import Final

from broker.model.frozen import frozen
from broker.model.results import Extents
from frontends.amqp.messages import message
from frontends.amqp.protocol import types

_MESSAGE_ID, _REPLY_TO, _CORRELATION = 0, 4, 5
_NOTHING: Final = "0" * 40
"""The offset before all others: the end of a log that never had an event."""


@frozen
class NodeInfoRequest:
    """The address of the answer, and the encoded id that it names."""

    reply_to: str
    correlation: bytes


def request(raw: bytes) -> NodeInfoRequest:
    """Parse a request; raises Malformed."""
    for section in message.sections(raw):
        if section.code == message.PROPERTIES:
            places = list(types.items(raw, section.value))
            fields = [raw[at : types.end_of_value(raw, at)] for at in places] + [b"\x40"] * _CORRELATION
            reply_to = types.text(fields[_REPLY_TO], 0)
            if reply_to is None:
                break
            correlation = fields[_CORRELATION] if fields[_CORRELATION] != b"\x40" else fields[_MESSAGE_ID]
            return NodeInfoRequest(reply_to, correlation)
    raise types.Malformed(types.MESSAGE, "a request needs reply-to")


def answer(found: Extents, correlation: bytes) -> bytes:
    """Write the first and last offset of each partition; null where there is none."""
    partitions = [
        types.write_map(
            [
                types.symbol("partition"),
                types.symbol(str(each.partition)),
                types.symbol("earliest-offset"),
                _offset(each.earliest),
                types.symbol("latest-offset"),
                _offset(each.latest),
            ]
        )
        for each in found.partitions
    ]
    body = types.write_map([types.symbol("partitions"), types.write_list(partitions)])
    properties = types.write_list([b"\x40"] * _CORRELATION + [correlation])
    return types.section(message.PROPERTIES, properties) + types.section(message.VALUE, body)


def _offset(offset: str) -> bytes:
    return types.symbol(offset) if offset and not offset.startswith(_NOTHING) else b"\x40"
