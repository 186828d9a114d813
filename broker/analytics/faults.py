"""Reasons why a report cannot be made, each one line for its reader. Must not know who shows the line."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
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

# What Java says of files; the last of several is the cause.
_STORE: Final = re.compile(
    r"(?:java\.io\.(?:IO|FileNotFound)|java\.nio\.file\.\w+|java\.net\.\w+|org\.apache\.hadoop\.[\w.$]+)(?:Exception|Error): (.+)"
    r"|\[(?:PATH_NOT_FOUND|FAILED_READ_FILE)\S*\] (.+)"
)


def unreadable(error: BaseException) -> str | None:
    """Return the line about what Spark wrapped in `error`: an Unreadable, or a fault of the files; None for others."""
    if isinstance(error, Unreadable):
        return str(error)
    if found := _UNREADABLE.search(str(error)):
        return found[1].strip()
    if away := _AWAY.search(str(error)):
        said = away[1].strip()[:200]
        return f"a file system that Spark uses cannot be reached ({said}): start it, or name a folder elsewhere"
    if said := _STORE.findall(str(error)):
        what = max(said[-1])[:200].strip()
        return f"files cannot be written or read ({what}): see that their store can be reached, has room and lets this user in"
    return None


@contextmanager
def translate_faults() -> Iterator[None]:
    """Raise as Unreadable what Spark has wrapped, if there is a line about it."""
    try:
        yield
    except Exception as error:
        line = unreadable(error)
        if line is None:
            raise
        raise Unreadable(line) from error
