"""What keeps a report from being made, as one line. Must not know who is told."""

import re
from typing import Final


class Unreadable(Exception):  # noqa: N818  (it names what is so, as CorruptRecord does)
    """What was asked for cannot be read: one line that says what is wrong, where, and what to do."""


# A fault of a task or of a plan reaches the driver inside a Java exception, as the last line of a Python traceback.
_TOLD: Final = re.compile(rf"^(?:\w+\.)*{re.escape(Unreadable.__name__)}: (.+)$", re.MULTILINE)


def told(error: BaseException) -> str | None:
    """Find the line of an Unreadable in what Spark made of it; None when that was not the cause."""
    if isinstance(error, Unreadable):
        return str(error)
    found = _TOLD.search(str(error))
    return found and found[1].strip()
