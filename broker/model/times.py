"""Writes and reads times as in RFC 3339, and lengths of time such as `30s`. Pure."""

import re
from datetime import UTC, datetime
from typing import Final

MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII)


_UNITS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000}
_DURATION: Final = re.compile(r"(\d{1,9})([smhd]?)", re.ASCII)


def moment(ms: int, timespec: str = "milliseconds") -> str:
    """Format a time of Redis's clock."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec=timespec).replace("+00:00", "Z")


def read_moment(text: str) -> int:
    """Read a time with its offset, in ms since 1970; raises ValueError."""
    if not MOMENT.fullmatch(text):
        msg = "a time is written as in RFC 3339, such as 2026-12-01T09:00:00Z"
        raise ValueError(msg)
    # Digits beyond microseconds are dropped: `fromisoformat` takes any number of them.
    return int(datetime.fromisoformat(text.upper()).timestamp() * 1000)


def duration(ms: int) -> str:
    """Write a length of time in whole seconds, by its largest unit."""
    unit = next((unit for unit, size in _UNITS.items() if ms % size == 0), "s")
    return f"{ms // _UNITS[unit]}{unit}"


def duration_ms(text: str) -> int | None:
    """Read a length of time, whole seconds or a number with a unit; None for anything else."""
    found = _DURATION.fullmatch(text)
    return int(found[1]) * _UNITS[found[2] or "s"] if found else None
