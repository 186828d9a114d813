"""Translates Event Hubs events: an SDK's message to the door's form, the events of a batch, an event of the log to an SDK's form.

The door's translation stays as it is (`frontends.amqp.messages`): here annotations change their names, and the service's
own move to the message annotations. Pure.
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
"""The most events of a batch."""

_OURS: Final = frozenset({NUMBER, OFFSET, TIME})
"""Annotations that the service sets, and no producer."""


def to_amqp(raw: bytes, key: str = "") -> bytes:
    """Rewrite an SDK's message, with the group key of its batch or else its own; raises MalformedRequest."""
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
    return b"".join([*before, *([types.section(messages.MESSAGE, types.write_map(rest))] if rest else []), *after])


def batch(raw: bytes) -> tuple[str, list[bytes]]:
    """Return the key of a batch and its events, each for `to_amqp`; raises MalformedRequest."""
    key, found = "", []
    for section in _sections(raw):
        if section.code == messages.MESSAGE:
            key, _ = _annotations(raw, section.value)
        elif section.code == messages.DATA:
            start, end = types.span(raw, section.value)
            found.append(raw[start:end])
    if not found:
        raise MalformedRequest(Problem.PAYLOAD_INVALID, "the batch is empty")
    if len(found) > EVENTS_MOST:
        raise MalformedRequest(Problem.PAYLOAD_TOO_BIG, f"a batch has at most {EVENTS_MOST} events")
    return key, found


def _sections(raw: bytes) -> list[messages.SectionSpan]:
    try:
        return messages.sections(raw)
    except types.Malformed as wrong:
        raise MalformedRequest(Problem.PAYLOAD_INVALID, f"the message cannot be read: {wrong}") from None


def _annotations(raw: bytes, at: int) -> tuple[str, list[bytes]]:
    """Return the partition key and the other annotations, without those that only the service sets."""
    key, rest = "", []
    places = types.items(raw, at)
    for name, value in zip(places, places, strict=True):
        said = types.text(raw, name)
        if said == KEY:
            key = types.text(raw, value) or ""
            if not key and raw[value] != 0x40:
                raise MalformedRequest(Problem.PAYLOAD_INVALID, f"{KEY} must be a non-empty string")
        elif said not in _OURS:
            rest += [raw[name : types.end_of_value(raw, name)], raw[value : types.end_of_value(raw, value)]]
    return key, rest


class Writer(messages.Writer):
    """Writes events of one partition for SDKs."""

    def message(self, event: Event, *, gap: bool) -> bytes:
        """Write an event as a message. Event Hubs has no annotation for a gap."""
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
        # Bytes of our own writer: sections in order, with short descriptors.
        while raw[at + 2] <= messages.MESSAGE:
            end = types.end_of_value(raw, at)
            if raw[at + 2] == messages.HEADER:
                header = raw[at:end]
            elif raw[at + 2] == messages.MESSAGE:
                told += _own_annotations(raw, at + 3)
            at = end
        return header + types.section(messages.MESSAGE, types.write_map(told)) + raw[at:]


def _own_annotations(raw: bytes, at: int) -> list[bytes]:
    """Return a producer's own annotations without the group key, which has another name here."""
    places = types.items(raw, at)
    pairs = [
        (name, value) for name, value in zip(places, places, strict=True) if types.text(raw, name) != constants.KEY
    ]
    return [raw[place : types.end_of_value(raw, place)] for pair in pairs for place in pair]
