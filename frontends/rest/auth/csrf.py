"""Whether a request was made by another site's page in the browser of somebody who is signed in here. Pure.

Browsers send what they remember of Basic credentials with every request, whoever's page it was that asked. They also say whose
it was: `Sec-Fetch-Site` (Fetch Metadata), and before that `Origin`. Clients that are no browsers say neither.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from frontends.rest.errors import Fault

_HARMLESS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_OURS: Final = frozenset({"same-origin", "none"})


def judge(method: str, headers: Mapping[str, str]) -> None:
    """Refuse a change that another site asks for; raises Fault. Names of headers are in lower case."""
    if method in _HARMLESS:
        return
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    # The browser's own word goes first: a proxy may change Host, and never this.
    ours = site in _OURS if site is not None else origin is None or _host(origin) == headers.get("host", "-").lower()
    if not ours:
        raise Fault(HTTPStatus.FORBIDDEN, "cross-site", "the browser says that another site's page asks for this")


def _host(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""
