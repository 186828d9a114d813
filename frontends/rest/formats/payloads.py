"""What a message says on its way in and out: a content type and bytes, which stay as they are. Must not know queues."""

from collections.abc import Mapping
from http import HTTPStatus

from broker import codec, payloads
from broker.model.options import MAX_PAYLOAD_BYTES
from broker.model.problems import MalformedRequest, Problem
from frontends.rest.errors import Fault


def packed(body: bytes, content_type: str, headers: Mapping[str, str]) -> bytes:
    """Make the envelope of a message; raises MalformedRequest when it is too big for any queue, Fault for a type that is none."""
    if len(body) > MAX_PAYLOAD_BYTES:
        raise MalformedRequest(
            Problem.PAYLOAD_TOO_BIG, f"the body has {len(body)} bytes, a message at most {MAX_PAYLOAD_BYTES}"
        )
    kind = content_type.strip()
    if kind and not payloads.is_type(kind):
        raise Fault(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "media-type-invalid", "Content-Type is not TYPE/SUBTYPE with parameters"
        )
    return codec.pack(payloads.kept(body, kind, headers))
