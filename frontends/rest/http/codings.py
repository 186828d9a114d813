"""Compresses and decompresses bodies with gzip (RFC 9110 §8.4, §12.5.3). Pure; must not know what they contain."""

import gzip
import zlib
from http import HTTPStatus
from typing import Final

from broker.model.problems import MalformedRequest, Problem
from frontends.rest.errors import Fault
from frontends.rest.http import negotiation

GZIP: Final = "gzip"
LEAST_BYTES: Final = 1_000
"""Shorter bodies hardly shrink."""

_NAMES: Final = frozenset({GZIP, "x-gzip"})
_NONE: Final = frozenset({"", "identity"})
_LEVEL: Final = 1
"""The fastest level, because the door serves other requests on the same processor."""
_WINDOW: Final = 31
"""zlib's largest window, with gzip's header and checksum."""
_TEXTUAL: Final = frozenset({negotiation.JSON, "application/xml", "image/svg+xml"})


def decompress(body: bytes, coding: str, most_bytes: int) -> bytes | None:
    """Decode a body; None when it exceeds the limit. Raises Fault or MalformedRequest."""
    name = coding.strip().lower()
    if name in _NONE:
        return body
    if name not in _NAMES:
        detail = "Content-Encoding: only gzip and identity are supported"
        headers = {"Accept-Encoding": f"{GZIP}, identity"}
        raise Fault(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "content-encoding-unknown", detail, headers)
    inflating = zlib.decompressobj(_WINDOW)
    try:
        plain = inflating.decompress(body, most_bytes + 1)
    except zlib.error:
        plain = b""
    if len(plain) > most_bytes:
        return None
    if not inflating.eof or inflating.unused_data:
        raise MalformedRequest(Problem.BAD_REQUEST, "Content-Encoding: the body is not valid gzip")
    return plain


def wants_gzip(accept: str, content_type: str, size: int) -> bool:
    """Tell whether a client prefers gzip, and whether it is worth it."""
    if size < LEAST_BYTES or not negotiation.prefers(accept, GZIP):
        return False
    kind = negotiation.drop_parameters(content_type)
    return kind in _TEXTUAL or kind.startswith("text/") or kind.endswith(("+json", "+xml"))


def compress(body: bytes) -> bytes:
    """Compress a body, deterministically."""
    return gzip.compress(body, _LEVEL, mtime=0)
