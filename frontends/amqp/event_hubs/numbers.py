"""Sequence numbers of Event Hubs, computed from offsets, which are texts (EX6). Pure.

A number combines the milliseconds since 2020 with the position among the events of one millisecond. It grows along a
partition and stays within JavaScript's integers until 2054; it has gaps, so it is no count. From the 8,192nd event of a
millisecond on, events share the last number: a reader that resumes there gets some of them twice and loses none.
"""

from typing import Final

_SINCE_MS: Final = 1_577_836_800_000
_PLACES: Final = 8_192


def number(offset: str) -> int:
    """Return the number of the event at an offset."""
    return (int(offset[:20]) - _SINCE_MS) * _PLACES + min(int(offset[20:40]), _PLACES - 1)


def is_shared(number: int) -> bool:
    """Return whether several events may have this number."""
    return number % _PLACES == _PLACES - 1


def moment_ms(number: int) -> int:
    """Return the time in ms since 1970 before which no event has this or a greater number."""
    return number // _PLACES + _SINCE_MS
