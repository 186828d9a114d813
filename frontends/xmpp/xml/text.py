"""Text that goes into hand-written XML. Knows which characters XML forbids; must not know any element."""

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

FORBIDDEN: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""Characters that no XML document can hold, not even as a reference (XML 1.0 §2.2)."""

_SPECIAL: Final = re.compile("[&<>'\"\x00-\x1f\ud800-\udfff\ufffe\uffff]")
_REFERENCES: Final = {
    # The first, for the others begin with it.
    "&": "&amp;",
    "<": "&lt;",
    ">": "&gt;",
    "'": "&apos;",
    '"': "&quot;",
    # Plain ones would come back from an attribute as spaces, or as line feeds from a text (XML 1.0 §3.3.3, §2.11).
    "\t": "&#9;",
    "\n": "&#10;",
    "\r": "&#13;",
}


def escaped(text: str) -> str:
    """Write a text as an attribute's value or an element's content; what XML forbids becomes U+FFFD."""
    if not _SPECIAL.search(text):
        return text
    # Not by a function of each match: a stanza full of quotes would keep the loop four times as long.
    for plain, reference in _REFERENCES.items():
        text = text.replace(plain, reference)
    # Names of nodes and items may come through other doors, which forbid less than XML does.
    return FORBIDDEN.sub("\ufffd", text)


escaped_name = lru_cache(maxsize=1_024)(escaped)
"""Write a name that comes again and again: of a node, a JID, a namespace."""


_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII)


def since_1970_ms(text: str) -> int | None:
    """Read a time as XEP-0082 §3.2 has it; None for anything else. Raises ValueError when there is no such moment."""
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
    """Write a time as XEP-0082 §3.2 has it: UTC, with milliseconds."""
    second, ms = divmod(since_1970_ms, 1000)
    return f"{_second(second)}.{ms:03d}Z"
