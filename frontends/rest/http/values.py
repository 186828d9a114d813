"""Requests and answers as translators see them. Values only; must not know a framework."""

import math
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import field
from http import HTTPStatus

from broker.model.frozen import frozen
from broker.model.names import Jid
from frontends.rest.errors import Fault
from frontends.rest.paths import ResourcePath


@frozen
class SignOn:
    """Where the page signs people in: the issuer of tokens, and what the page asks it for; nowhere without an issuer."""

    issuer: str = ""
    client: str = ""
    scope: str = ""


@frozen
class ApiRequest:
    """An authenticated request; header names are in lower case, `wants` is a media type.

    A request that only `looks` changes nothing, not even the expiry of a subscription. At the time that `ends` tells the
    sender's credentials end; it may change.
    """

    path: ResourcePath
    sender: Jid
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    wants: str = ""
    looks: bool = False
    most_subscriptions: int = 1
    ends: Callable[[], float] = lambda: math.inf
    sign_on: SignOn = SignOn()


@frozen
class Response:
    """An answer: a body, or a stream of events; `refusals` are those of parts of the request, for the log."""

    status: HTTPStatus
    body: bytes = b""
    media: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    refusals: tuple[Fault, ...] = ()
    events: AsyncGenerator[bytes, None] | None = None
