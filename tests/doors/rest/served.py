"""An HTTP frontend as a child process, and clients of it. Knows how they start; must not know what a test asks."""

import base64
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
from starlette.types import ASGIApp, Receive, Scope, Send

from frontends.rest.http.connection import CONNECTION
from tests.doors.frontend import ALICE, PASSWORD, DoorFrontend
from tests.waiting import PATIENCE_SECONDS

NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""One for all clients: httpx would create one for each, which takes a fifth of a second."""

_KEEP_ALL = httpx.Limits(max_keepalive_connections=None, keepalive_expiry=None)
"""A pool that closes idle connections may close one that another thread has begun to use, whose request then never gets an
answer (httpcore 1.0.9). A pool that keeps all of them has nothing to close."""


class RestFrontend(DoorFrontend):
    """One `stanzaq serve rest`."""

    door, prefix = "rest", "HTTP"

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"


class Placed:
    """An application on a connection that has a place for everybody, where there is no server."""

    address = "127.0.0.1"

    def __init__(self, app: ASGIApp) -> None:
        """Serve an application."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        await self._app({**scope, "state": {CONNECTION: self}}, receive, send)

    def claim(self, _account: str, _address: str) -> str:
        """Have a place."""
        return ""


def basic_words(jid: str = ALICE) -> str:
    """Give somebody's credentials."""
    return f"Basic {base64.b64encode(f'{jid}:{PASSWORD}'.encode()).decode()}"


@contextmanager
def client(frontend: RestFrontend, jid: str = ALICE, **headers: str) -> Iterator[httpx.Client]:
    """Give a client of one user."""
    with httpx.Client(
        base_url=frontend.url,
        headers={"Authorization": basic_words(jid), **headers},
        verify=NO_TLS,
        timeout=PATIENCE_SECONDS,
        limits=_KEEP_ALL,
    ) as opened:
        yield opened


def problem(answer: httpx.Response) -> tuple[int, str]:
    """Return status and code of a refusal, and check its form."""
    assert answer.headers["Content-Type"] == "application/problem+json"
    said = answer.json()
    assert (
        set(said) == {"type", "title", "status", "detail"} and said["status"] == answer.status_code and said["detail"]
    )
    return answer.status_code, said["type"].removeprefix("urn:stanzaq:0:problem:")
