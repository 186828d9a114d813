"""Parses single fields of a request; an error names its field. Pure; must not know queues."""

import json
import math
from collections.abc import Mapping
from typing import Any, Final

from broker.model.problems import MalformedRequest, Problem
from frontends.rest.http.values import ApiRequest

PAGE: Final = 50
PAGE_MOST: Final = 500
PREVIEW_MOST: Final = 200

_FIRST_DIGITS: Final = 9


def text(fields: Mapping[str, str], name: str) -> str:
    """Read a text field in UTF-8; empty if absent."""
    try:
        return fields.get(name, "").encode("latin-1").decode()
    except UnicodeError:
        raise MalformedRequest(Problem.BAD_REQUEST, f"{name[:80]} must be UTF-8") from None


def page(request: ApiRequest) -> int:
    """Read the size of a page."""
    return _bounded(request, "limit", PAGE, 1, PAGE_MOST)


def preview(request: ApiRequest) -> int:
    """Read how many bytes of each payload to show."""
    return _bounded(request, "preview", 0, 0, PREVIEW_MOST)


def _bounded(request: ApiRequest, name: str, default: int, least: int, most: int) -> int:
    text = request.query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and least <= int(text) <= most):
        raise MalformedRequest(Problem.BAD_REQUEST, f"{name} must be a whole number from {least} to {most}")
    return int(text)


def first(request: ApiRequest) -> int:
    """Read the number of a page's first element."""
    text = request.query.get("first", "0")
    if not (text.isascii() and text.isdigit() and len(text) <= _FIRST_DIGITS):
        raise MalformedRequest(Problem.BAD_REQUEST, "first must be a whole number of at least 0")
    return int(text)


def parse_json(body: bytes) -> Any:  # noqa: ANN401  (any JSON)
    """Parse JSON; refuses names that come twice, and half a surrogate pair, which is no character and in no encoding."""
    try:
        found = json.loads(body.decode(), parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_unique)
        if b"\\u" in body:
            json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise MalformedRequest(Problem.BAD_REQUEST, "the body is not JSON in UTF-8, or has a name twice") from None
    return found


def _refuse(_: str) -> None:
    raise ValueError


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object; of a name that comes twice one value would be lost."""
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError
    return found


def _finite(text: str) -> float:
    """Read a number; beyond the largest one it would become a word that JSON has not."""
    if math.isinf(found := float(text)):
        raise ValueError
    return found


def read_whole(value: object) -> int | None:
    """Return an integer from JSON, which has one kind of numbers; None for anything else."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
