"""The files of the page for people, with the headers that restrict it in the browser. Must not know what they show."""

from collections.abc import Mapping
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Final

from broker.model.core import Core
from broker.model.frozen import frozen
from frontends.rest.errors import Fault
from frontends.rest.http.values import ApiRequest, Response

_DIRECTORY: Final = Path(__file__).with_name("ui")
_FIRST: Final = "index.html"
_KINDS: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

GUARDED: Final = {
    # Nothing from elsewhere, nothing inline, no frames, and no text that becomes markup.
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; object-src 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    # Revalidate each time: the page of an earlier version would not fit the API.
    "Cache-Control": "no-cache",
}


@frozen
class _File:
    body: bytes
    kind: str


async def show_page(_core: Core, _request: ApiRequest) -> Response:
    """Serve the page."""
    return _answer_file(_FIRST)


async def show_file(_core: Core, request: ApiRequest) -> Response:
    """Serve one of its files; `/ui/` leads to the page, whose links are relative to `/ui`."""
    if not request.path.item:
        return Response(HTTPStatus.PERMANENT_REDIRECT, headers={"Location": "../ui"})
    return _answer_file(request.path.item)


def _answer_file(name: str) -> Response:
    """Return a file as an answer."""
    found = _files().get(name)
    if found is None:
        raise Fault(HTTPStatus.NOT_FOUND, "not-found", "the page has no such file")
    return Response(HTTPStatus.OK, found.body, found.kind, GUARDED)


@cache
def _files() -> Mapping[str, _File]:
    """Read all files, once."""
    found = {}
    for path in _DIRECTORY.iterdir():
        if path.suffix in _KINDS:
            found[path.name] = _File(path.read_bytes(), _KINDS[path.suffix])
    return found
