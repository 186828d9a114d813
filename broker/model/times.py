"""Writes and reads times as in RFC 3339. Pure."""

import re
from datetime import UTC, datetime
from typing import Final

_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII)


def moment(ms: int) -> str:
    """Format a time of Redis's clock."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def read_moment(text: str) -> int:
    """Read a time with its offset, in ms since 1970; raises ValueError."""
    if not _MOMENT.fullmatch(text):
        msg = "a time is written as in RFC 3339, such as 2026-12-01T09:00:00Z"
        raise ValueError(msg)
    # Digits beyond microseconds are dropped: `fromisoformat` takes any number of them.
    return int(datetime.fromisoformat(text.upper()).timestamp() * 1000)
