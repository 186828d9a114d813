"""Reasons why a report cannot be made, each one line for its reader. Must not know who shows the line."""

import re
from typing import Final


class Unreadable(Exception):  # noqa: N818  (named after the state, as CorruptRecord is)
    """Something that was asked for cannot be read. The message is one line: what is wrong, where, and what to do."""


class Unreachable(Unreadable):
    """Something that cannot be reached now, and perhaps a moment later."""


# A fault in a task or a plan reaches the driver inside a Java exception, as the last line of a Python traceback.
_UNREADABLE: Final = re.compile(rf"^(?:\w+\.)*(?:{Unreadable.__name__}|{Unreachable.__name__}): (.+)$", re.MULTILINE)

# What Java says of another machine that does not answer: of HDFS, or of a store such as S3.
_AWAY: Final = re.compile(
    r"(?:java\.net\.(?:Connect|UnknownHost|NoRouteToHost|SocketTimeout)Exception"
    r"|org\.apache\.hadoop\.net\.ConnectTimeoutException|[\w.]+\.SdkClientException): ([^;\n]+)"
)


def unreadable(error: BaseException) -> str | None:
    """Return the message of the Unreadable that Spark wrapped in `error`, or of a file system that is away; else None."""
    if isinstance(error, Unreadable):
        return str(error)
    if found := _UNREADABLE.search(str(error)):
        return found[1].strip()
    away = _AWAY.search(str(error))
    line = "a file system that Spark uses cannot be reached (%.200s): start it, or name a folder elsewhere"
    return away and line % away[1].strip()


def is_late_start(error: BaseException) -> bool:
    """Tell whether Spark gave up on a stream's Python process while that started; it always waits for ten seconds."""
    return "Python worker failed to connect back" in str(error)
