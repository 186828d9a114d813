"""Turns a source filter of an Event Hubs SDK into the link's start position. Pure; must not know links."""

import re
from collections.abc import Mapping
from typing import Final

from broker.model import offsets
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import Event
from frontends.amqp.event_hubs import numbers
from frontends.amqp.event_hubs.constants import NUMBER, OFFSET, SELECTOR_FILTER, TIME
from frontends.amqp.links.filters import Start
from frontends.amqp.protocol.filters import Filter

_SELECTOR: Final = re.compile(r"\s*amqp\.annotation\.([a-z-]{1,40})\s*(>=?)\s*'([^']{0,80})'\s*")
_WHOLE: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_BEGINNING: Final = "-1"
_MOST_MS: Final = 10**15


def start(found: Mapping[str, Filter]) -> Start:
    """Return where a link begins; without a filter, after the newest event. Raises MalformedRequest."""
    begin = Start(offsets.LATEST)
    for name, each in found.items():
        if each.descriptor not in SELECTOR_FILTER:
            raise MalformedRequest(Problem.UNSUPPORTED, f"unknown filter {str(each.descriptor or name)[:80]}")
        begin = _parse_start(each.value)
    if len(found) > 1:
        raise MalformedRequest(Problem.UNSUPPORTED, "only one filter is supported")
    return begin


def _parse_start(said: object) -> Start:
    parts = _SELECTOR.fullmatch(said) if isinstance(said, str) else None
    if parts is None:
        raise MalformedRequest(
            Problem.OFFSET_INVALID, "a selector must be amqp.annotation.NAME > 'VALUE' or >= 'VALUE'"
        )
    name, after, value = parts[1], parts[2] == ">", parts[3]
    match name:
        case "x-opt-offset":
            return _start_at_offset(value, after=after)
        case "x-opt-sequence-number":
            return _start_at_number(_parse_whole(value, name), after=after)
        case "x-opt-enqueued-time":
            return _start_at_time(_parse_whole(value, name) + after)
    raise MalformedRequest(Problem.UNSUPPORTED, f"{name}: a selector may name {OFFSET}, {NUMBER} or {TIME}")


def _start_at_offset(value: str, *, after: bool) -> Start:
    if value in {_BEGINNING, offsets.EARLIEST}:
        return Start(offsets.EARLIEST)
    if value == offsets.LATEST:
        return Start(offsets.LATEST)
    begin = f">{value}" if after else value
    if value.startswith(">") or offsets.read_partition(begin) is None:
        raise MalformedRequest(Problem.OFFSET_INVALID, f"{OFFSET} must be the offset of an event")
    return Start(begin)


def _start_at_number(number: int, *, after: bool) -> Start:
    # After a number that several events share, those that the reader has not seen come with those that it has.
    least = number + 1 if after and not numbers.is_shared(number) else number

    def first(_newest: str, event: Event) -> bool:
        return numbers.number(event.offset) >= least

    return Start(_start_at_time(numbers.moment_ms(number)).begin, first)


def _start_at_time(moment_ms: int) -> Start:
    if moment_ms >= _MOST_MS:
        raise MalformedRequest(Problem.OFFSET_INVALID, "the log does not reach that far")
    return Start(str(moment_ms) if moment_ms > 0 else offsets.EARLIEST)


def _parse_whole(value: str, name: str) -> int:
    if not _WHOLE.fullmatch(value):
        raise MalformedRequest(Problem.OFFSET_INVALID, f"{name} must be compared with a whole number")
    return int(value)
