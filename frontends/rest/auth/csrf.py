"""Detects requests that another site's page makes in a signed-in user's browser (CSRF). Pure.

Browsers send stored Basic credentials with every request, whichever page makes it. They also name that page: by
`Sec-Fetch-Site` (Fetch Metadata), before that by `Origin`. Clients that are not browsers send neither.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from frontends.rest.errors import Fault

_HARMLESS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_OURS: Final = frozenset({"same-origin", "none"})


def judge(method: str, headers: Mapping[str, str]) -> None:
    """Refuse a change requested by another site; raises Fault. Header names are in lower case."""
    if method in _HARMLESS:
        return
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    # Sec-Fetch-Site goes first: a proxy may change Host, but not this field.
    ours = site in _OURS if site is not None else origin is None or _host(origin) == headers.get("host", "-").lower()
    if not ours:
        raise Fault(HTTPStatus.FORBIDDEN, "cross-site", "a page of another site made this request")


def _host(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""
