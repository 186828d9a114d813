"""The files of the page for people, with the headers that restrict it in the browser. Must not know what they show."""

from collections.abc import Mapping
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from broker.model.core import Core
from broker.model.frozen import frozen
from frontends.rest import replies
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

# Nothing from elsewhere, nothing inline, no frames, and no text that becomes markup.
_POLICY: Final = (
    "default-src 'self'; base-uri 'none'; object-src 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_GUARDED: Final = {
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


async def show_sign_on(_core: Core, request: ApiRequest) -> Response:
    """Serve what the page needs to sign people in at a provider; empty without one."""
    where = request.sign_on
    return replies.json({"issuer": where.issuer, "client": where.client, "scope": where.scope} if where.issuer else {})


async def show_page(_core: Core, request: ApiRequest) -> Response:
    """Serve the page."""
    return _answer_file(_FIRST, request)


async def show_file(_core: Core, request: ApiRequest) -> Response:
    """Serve one of its files; `/ui/` leads to the page, whose links are relative to `/ui`."""
    if not request.path.item:
        return Response(HTTPStatus.PERMANENT_REDIRECT, headers={"Location": "../ui"})
    return _answer_file(request.path.item, request)


def _answer_file(name: str, request: ApiRequest) -> Response:
    """Return a file as an answer."""
    found = _files().get(name)
    if found is None:
        raise Fault(HTTPStatus.NOT_FOUND, "not-found", "the page has no such file")
    headers = {**_GUARDED, "Content-Security-Policy": _POLICY}
    if request.sign_on.issuer:
        issuer = urlsplit(request.sign_on.issuer)
        # The page asks the provider too, and nobody else.
        headers["Content-Security-Policy"] += f"; connect-src 'self' {issuer.scheme}://{issuer.netloc}"
    return Response(HTTPStatus.OK, found.body, found.kind, headers)


@cache
def _files() -> Mapping[str, _File]:
    """Read all files, once."""
    found = {}
    for path in _DIRECTORY.iterdir():
        if path.suffix in _KINDS:
            found[path.name] = _File(path.read_bytes(), _KINDS[path.suffix])
    return found
