"""A request as translators see it, and an answer as they give it. Values only; must not know a framework."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

from broker.model.names import Jid
from frontends.rest.errors import Fault
from frontends.rest.paths import Place


@dataclass(frozen=True, slots=True)
class Request:
    """A request of somebody who is known; names of headers are in lower case, `wants` is a media type.

    Who only `looks` changes nothing by it, not even how long a lease lasts.
    """

    place: Place
    sender: Jid
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    wants: str = ""
    looks: bool = False
    most_leases: int = 1


@dataclass(frozen=True, slots=True)
class Response:
    """What goes back: a body, or events as they come; `refusals` are those of parts of the request that it tells of."""

    status: HTTPStatus
    body: bytes = b""
    media: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    refusals: tuple[Fault, ...] = ()
    events: AsyncGenerator[bytes, None] | None = None
