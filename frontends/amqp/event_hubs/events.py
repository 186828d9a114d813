"""Events of Event Hubs: a message of an SDK as the door's own, the events of a batch, and an event of the log as SDKs read it.

The door's translation is used as it is (`frontends.amqp.messages`): here annotations change their names, and what the
service says of an event stands among the message annotations. Pure.
"""

import struct
from typing import Final

from broker.model.problems import MalformedRequest, Problem
from broker.model.results import Event
from frontends.amqp import constants
from frontends.amqp.event_hubs import numbers
from frontends.amqp.event_hubs.constants import KEY, NUMBER, OFFSET, TIME
from frontends.amqp.messages import message as messages
from frontends.amqp.protocol import types

EVENTS_MOST: Final = 10_000
"""Events of one batch."""

_OURS: Final = frozenset({NUMBER, OFFSET, TIME})
"""What the service says of an event, and no producer."""


def inward(raw: bytes, key: str = "") -> bytes:
    """Write a message of an SDK as a producer's, with the group key of its batch or else its own; raises MalformedRequest."""
    before: list[bytes] = []
    after: list[bytes] = []
    rest: list[bytes] = []
    for section in _sections(raw):
        if section.code == messages.MESSAGE:
            own, rest = _annotations(raw, section.value)
            key = key or own
        else:
            (before if section.code < messages.MESSAGE else after).append(raw[section.start : section.end])
    if key:
        rest += [types.symbol(constants.KEY), types.string(key)]
    return b"".join([*before, *([types.section(messages.MESSAGE, types.mapped(rest))] if rest else []), *after])


def batch(raw: bytes) -> tuple[str, list[bytes]]:
    """Give the key of a batch, and its events, each still to be read with that (`inward`); raises MalformedRequest."""
    key, found = "", []
    for section in _sections(raw):
        if section.code == messages.MESSAGE:
            key, _ = _annotations(raw, section.value)
        elif section.code == messages.DATA:
            start, end = types.span(raw, section.value)
            found.append(raw[start:end])
    if not found:
        raise MalformedRequest(Problem.PAYLOAD_INVALID, "there is nothing in the batch")
    if len(found) > EVENTS_MOST:
        raise MalformedRequest(Problem.PAYLOAD_TOO_BIG, f"a batch has at most {EVENTS_MOST} events")
    return key, found


def _sections(raw: bytes) -> list[messages.Section]:
    try:
        return messages.sections(raw)
    except types.Malformed as wrong:
        raise MalformedRequest(Problem.PAYLOAD_INVALID, f"the message cannot be read: {wrong}") from None


def _annotations(raw: bytes, at: int) -> tuple[str, list[bytes]]:
    """Take the partition key out of message annotations, and drop what is no producer's."""
    key, rest = "", []
    places = types.items(raw, at)
    for name, value in zip(places, places, strict=True):
        said = types.text(raw, name)
        if said == KEY:
            key = types.text(raw, value) or ""
            if not key and raw[value] != 0x40:
                raise MalformedRequest(Problem.PAYLOAD_INVALID, f"{KEY} is a string that is not empty")
        elif said not in _OURS:
            rest += [raw[name : types.after(raw, name)], raw[value : types.after(raw, value)]]
    return key, rest


class Writer(messages.Writer):
    """Writes events of one partition for SDKs."""

    def message(self, event: Event, *, gap: bool) -> bytes:
        """Write an event as the message that it is; of a gap Event Hubs says nothing."""
        raw = super().message(event, gap=gap)
        told = [
            types.symbol(NUMBER),
            struct.pack(">Bq", 0x81, numbers.number(event.offset)),
            types.symbol(OFFSET),
            types.string(event.offset),
            types.symbol(TIME),
            types.timestamp(event.timestamp_ms),
        ]
        if event.key:
            told += [types.symbol(KEY), types.string(event.key)]
        header, at = b"", 0
        # Our own bytes: sections in their order, with the short form of their names.
        while raw[at + 2] <= messages.MESSAGE:
            end = types.after(raw, at)
            if raw[at + 2] == messages.HEADER:
                header = raw[at:end]
            elif raw[at + 2] == messages.MESSAGE:
                told += _carried(raw, at + 3)
            at = end
        return header + types.section(messages.MESSAGE, types.mapped(told)) + raw[at:]


def _carried(raw: bytes, at: int) -> list[bytes]:
    """Give what a producer has annotated a message with, but for the group key, which has another name here."""
    places = types.items(raw, at)
    pairs = [
        (name, value) for name, value in zip(places, places, strict=True) if types.text(raw, name) != constants.KEY
    ]
    return [raw[place : types.after(raw, place)] for pair in pairs for place in pair]
