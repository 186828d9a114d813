"""Reads the payload of an item to publish: its bytes and its type. Must not know where it goes."""

import mimetypes
import sys
from pathlib import Path
from typing import Final

from broker import payloads

_STDIN: Final = "-"


class Unusable(Exception):  # noqa: N818  (named after the state of the payload)
    """The payload is not what it is called: a sentence."""


def read(text: str | None, file: str | None, kind: str) -> tuple[bytes, str]:
    """Return a payload given as JSON, or in a file (`-`: standard input), with its type; raises Unusable."""
    if (text is None) == (file is None):
        msg = "which payload? Give --payload TEXT or --file FILE, one of them; --file - reads standard input"
        raise Unusable(msg)
    if text is not None:
        return _with_type(text.encode(), kind or payloads.JSON)
    assert file is not None
    try:
        body = sys.stdin.buffer.read() if file == _STDIN else Path(file).read_bytes()
    except OSError as fault:
        msg = f"{file} cannot be read: {fault.strerror}"
        raise Unusable(msg) from None
    return _with_type(body, kind or mimetypes.guess_type(file)[0] or payloads.BYTES)


def _with_type(body: bytes, kind: str) -> tuple[bytes, str]:
    if not payloads.is_type(kind):
        msg = f"{kind} is no type of a payload: write TYPE/SUBTYPE"
        raise Unusable(msg)
    return body, kind
