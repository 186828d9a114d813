"""Filters of a source (E22 to E24): from what an attach brings to where a link begins. Pure; must not know links or proton.

`read` is the one place that knows which filters there are. What it does not know it refuses: nobody is to be given what was not
asked for.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from broker.model import offsets
from broker.model.problems import MalformedRequest, Problem
from frontends.amqp.words import ANNOTATIONS_FILTER, OFFSET, SQL_FILTER, TIMESTAMP

_MOST_MS: Final = 10**15


@dataclass(frozen=True, slots=True)
class Filter:
    """One of a filter set: its descriptor, a symbol or a number, and what it describes."""

    descriptor: str | int
    value: Any


def start(found: Mapping[str, Filter]) -> str:
    """Say where the log is read from (EX9): both filters tell the first event, and all after it are delivered.

    Without a filter it begins with what comes after the attach (E3). Raises MalformedRequest.
    """
    begin = offsets.LATEST
    for name, each in found.items():
        if each.descriptor in ANNOTATIONS_FILTER:
            begin = _annotations(each.value)
        elif each.descriptor in SQL_FILTER:
            raise MalformedRequest(Problem.UNSUPPORTED, "SQL filters are not evaluated yet")
        else:
            raise MalformedRequest(Problem.UNSUPPORTED, f"there is no filter {str(each.descriptor or name)[:80]}")
    if len(found) > 1:
        raise MalformedRequest(Problem.UNSUPPORTED, "one filter alone is taken")
    return begin


def _annotations(value: object) -> str:
    if not isinstance(value, dict) or not value:
        raise MalformedRequest(Problem.OFFSET_INVALID, "the filter is a map of an offset, a timestamp, or both")
    said = {str(name): each for name, each in value.items()}
    if wrong := said.keys() - {OFFSET, TIMESTAMP}:
        raise MalformedRequest(Problem.OFFSET_INVALID, f"{min(wrong)[:80]}: only {OFFSET} and {TIMESTAMP} are eligible")
    moment = _moment(said[TIMESTAMP]) if TIMESTAMP in said else None
    if OFFSET not in said:
        return str(moment)
    offset = said[OFFSET]
    if not isinstance(offset, str):
        raise MalformedRequest(Problem.OFFSET_INVALID, f"{OFFSET} is a symbol")
    offset = str(offset)
    reserved = offset in {offsets.EARLIEST, offsets.LATEST}
    if (offsets.named(offset) is None and not reserved) or offset.startswith(">"):
        raise MalformedRequest(Problem.OFFSET_INVALID, f"{OFFSET} is an offset as a delivery had it")
    if moment is None or offset == offsets.LATEST:
        return offset
    # Both have to match, and both are true from one event on: the later of the two decides.
    return str(moment) if offset == offsets.EARLIEST or int(offset[:20]) < moment else offset


def _moment(value: object) -> int:
    # EX8: milliseconds, no guessing.
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MOST_MS:
        raise MalformedRequest(Problem.OFFSET_INVALID, f"{TIMESTAMP} is a timestamp, in ms since 1970")
    return int(value)
