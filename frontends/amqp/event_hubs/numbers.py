"""Sequence numbers of Event Hubs, made of offsets, which are texts (EX6). Pure.

A number is made of the milliseconds since 2020 and the place among the events of one millisecond. It grows along a partition and
is no more than JavaScript can count to until 2054; it has gaps, and so is no count. Of more than 8,192 events of one millisecond
the later ones share the last number: then who goes on after that has some of them twice, and loses none.
"""

from typing import Final

_SINCE_MS: Final = 1_577_836_800_000
_PLACES: Final = 8_192


def number(offset: str) -> int:
    """Give the number of the event at an offset."""
    return (int(offset[:20]) - _SINCE_MS) * _PLACES + min(int(offset[20:40]), _PLACES - 1)


def moment_ms(number: int) -> int:
    """Give the time before which no event has the number, nor a greater one: in ms since 1970."""
    return number // _PLACES + _SINCE_MS
