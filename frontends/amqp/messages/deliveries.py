"""Writes an item for its consumer: the publisher's message plus its lock. Pure."""

import struct

from broker import codec
from broker.model.results import HeldItem
from frontends.amqp.constants import ITEM, LOCK, LOCKED_UNTIL
from frontends.amqp.messages.message import DELIVERY, HEADER, Writer
from frontends.amqp.protocol import types

_HEADED = 3
"""The number of header fields that belong to the publisher: durable, priority, ttl."""


def message(item: HeldItem) -> bytes:
    """Write an item: failed attempts in the header, the lock in the delivery annotations."""
    parts = Writer.parts(codec.unpack(item.envelope), item.key)
    parts[HEADER] = types.section(HEADER, _header(parts.get(HEADER, b""), item))
    told = [
        types.symbol(ITEM),
        types.string(item.item_id),
        types.symbol(LOCK),
        struct.pack(">Bq", 0x81, item.token),
        types.symbol(LOCKED_UNTIL),
        types.timestamp(item.deadline_ms),
    ]
    parts[DELIVERY] = types.section(DELIVERY, types.write_map(told))
    return b"".join(parts[code] for code in sorted(parts))


def _header(carried: bytes, item: HeldItem) -> bytes:
    """Write the publisher's header with our first-acquirer and delivery-count (§3.2.1)."""
    fields = [carried[at : types.end_of_value(carried, at)] for at in types.items(carried, 3)] if carried else []
    fields = (fields + [b"\x40"] * _HEADED)[:_HEADED]
    first = b"\x41" if item.attempt == 1 and not item.untried else b"\x42"
    return types.write_list([*fields, first, struct.pack(">BI", 0x70, item.attempt - 1)])
