"""Escapes text for hand-written XML, and formats times. Knows which characters XML forbids; must not know any element."""

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

FORBIDDEN: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""Characters that no XML document can contain, not even as a reference (XML 1.0 §2.2)."""

_SPECIAL: Final = re.compile("[&<>'\"\x00-\x1f\ud800-\udfff\ufffe\uffff]")
_REFERENCES: Final = {
    # First, because the others contain it.
    "&": "&amp;",
    "<": "&lt;",
    ">": "&gt;",
    "'": "&apos;",
    '"': "&quot;",
    # Unescaped, they would return as spaces from an attribute, or as line feeds from a text (XML 1.0 §3.3.3, §2.11).
    "\t": "&#9;",
    "\n": "&#10;",
    "\r": "&#13;",
}


def escaped(text: str) -> str:
    """Escape a text for an attribute or content; forbidden characters become U+FFFD."""
    if not _SPECIAL.search(text):
        return text
    # Replacing by a function for each match would take four times as long for a stanza full of quotes.
    for plain, reference in _REFERENCES.items():
        text = text.replace(plain, reference)
    # Names of nodes and items may come from other doors, which forbid less than XML.
    return FORBIDDEN.sub("\ufffd", text)


escaped_name = lru_cache(maxsize=1_024)(escaped)
"""Escape a name that recurs often: of a node, a JID, a namespace."""


_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII)


def since_1970_ms(text: str) -> int | None:
    """Parse a time (XEP-0082 §3.2); None for anything else. Raises ValueError for a time that does not exist."""
    if len(text) > 40 or not _MOMENT.fullmatch(text):
        return None
    try:
        return max(int(datetime.fromisoformat(text).timestamp() * 1000), 0)
    except OverflowError:
        msg = "beyond the calendar"
        raise ValueError(msg) from None


@lru_cache(maxsize=64)
def _second(since_1970: int) -> str:
    return datetime.fromtimestamp(since_1970, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def moment(since_1970_ms: int) -> str:
    """Write a time (XEP-0082 §3.2): UTC, with milliseconds."""
    second, ms = divmod(since_1970_ms, 1000)
    return f"{_second(second)}.{ms:03d}Z"
