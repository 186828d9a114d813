"""Durations as people write them: seconds, or strings such as `10m`. Pure."""

import re
from typing import Final

Duration = float | str
"""Seconds, or a number with a unit: `250ms`, `1s`, `10m`, `2h`, `7d`."""

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_TEXT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)", re.ASCII)


def seconds(duration: Duration) -> float:
    """Return a duration in seconds; raises ValueError if it is malformed."""
    found = _TEXT.fullmatch(duration.strip()) if isinstance(duration, str) else None
    if found:
        return float(found[1]) * _UNITS[found[2]]
    if isinstance(duration, str) or not 0 <= duration < float("inf"):
        msg = f"{duration!r} is no length of time: give seconds, or a text such as '250ms', '1s', '10m', '2h' or '7d'"
        raise ValueError(msg)
    return float(duration)
