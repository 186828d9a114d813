"""Quantities written for people. Pure."""

from typing import Final

UNKNOWN: Final = "–"  # noqa: RUF001  (a dash, as in any table)

_MAGNITUDES: Final = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def duration(seconds: float | None) -> str:
    """Write a duration in a fitting unit."""
    if seconds is None:
        return UNKNOWN
    if seconds < 1:
        return f"{_three(seconds * 1000)} ms"
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{_three(seconds / size)} {unit}"
    return f"{_three(seconds)} s"


def milliseconds(value: float | None) -> str:
    """Write a duration given in ms."""
    return duration(None if value is None else value / 1000)


def number(value: float | None) -> str:
    """Write a number with three significant digits, an integer in full."""
    if value is None:
        return UNKNOWN
    return f"{value:,}" if isinstance(value, int) else _three(value)


def rate(value: float | None) -> str:
    """Write a rate in a fitting unit."""
    if value is None:
        return UNKNOWN
    for seconds, unit in ((1, "s"), (60, "min"), (3600, "h")):
        if abs(value * seconds) >= 0.1:
            return f"{_three(value * seconds)}/{unit}"
    return f"{_three(value * 86_400)}/d" if abs(value * 86_400) >= 0.01 else "0/s"


def size(value: float | None) -> str:
    """Write a number of bytes."""
    if value is None:
        return UNKNOWN
    for magnitude, letter in _MAGNITUDES:
        if value >= magnitude:
            return f"{_three(value / magnitude)} {letter}B"
    return f"{_three(value)} B"


def share(value: float | None) -> str:
    """Write a fraction in percent."""
    return UNKNOWN if value is None else f"{_three(value * 100)} %"


def write_count(many: int, what: str) -> str:
    """Write a count with its noun."""
    return f"{many:,} {what}" if many == 1 else f"{many:,} {what}s"


def _three(value: float) -> str:
    digits = 0 if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    text = f"{value:,.{digits}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text
