"""Reasons why a report cannot be made, each one line for its reader. Must not know who shows the line."""

import re
from typing import Final


class Unreadable(Exception):  # noqa: N818  (named after the state, as CorruptRecord is)
    """Something that was asked for cannot be read. The message is one line: what is wrong, where, and what to do."""


# A fault in a task or a plan reaches the driver inside a Java exception, as the last line of a Python traceback.
_UNREADABLE: Final = re.compile(rf"^(?:\w+\.)*{re.escape(Unreadable.__name__)}: (.+)$", re.MULTILINE)


def unreadable(error: BaseException) -> str | None:
    """Return the message of the Unreadable that Spark wrapped in `error`; None when that was not the cause."""
    if isinstance(error, Unreadable):
        return str(error)
    found = _UNREADABLE.search(str(error))
    return found and found[1].strip()


def is_late_start(error: BaseException) -> bool:
    """Tell whether Spark gave up on a stream's Python process while that started; it always waits for ten seconds."""
    return "Python worker failed to connect back" in str(error)
