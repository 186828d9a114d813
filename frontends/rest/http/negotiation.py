"""Content negotiation (RFC 9110 §12.5.1). Pure; must not know what is represented."""

from functools import lru_cache
from http import HTTPStatus
from typing import Final

from frontends.rest.errors import Fault

ATOM: Final = "application/atom+xml"
JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
KINDS: Final = (ATOM, JSON)
"""The media types of feeds and entries; the first is the default, as the RESTful Queue demands."""

_RANGES_MOST: Final = 50


@lru_cache(maxsize=1_000)
def choose_kind(accept: str, kinds: tuple[str, ...] = KINDS) -> str:
    """Choose one of the kinds by an Accept header; raises Fault when none is acceptable."""
    ranges = [_range(text) for text in accept.split(",")[:_RANGES_MOST] if text.strip()] or [("*/*", 1.0)]
    best, most = "", 0.0
    for kind in kinds:
        quality = _quality(kind, ranges)
        if quality > most:
            best, most = kind, quality
    if not best:
        raise Fault(HTTPStatus.NOT_ACCEPTABLE, "not-acceptable", f"Accept: only {', '.join(kinds)} can be served")
    return best


@lru_cache(maxsize=1_000)
def prefers(accept: str, coding: str) -> bool:
    """Tell whether a client wants a coding at least as much as none (RFC 9110 §12.5.3)."""
    ranges = dict(_range(text) for text in accept.split(",")[:_RANGES_MOST] if text.strip())
    quality = ranges.get(coding, ranges.get("*", 0.0))
    return quality > 0 and quality >= ranges.get("identity", 0.0)


def is_json(content_type: str) -> bool:
    """Tell whether a content type is JSON."""
    return drop_parameters(content_type) in {JSON, "application/merge-patch+json"}


def drop_parameters(content_type: str) -> str:
    """Return a media type without its parameters."""
    return content_type.partition(";")[0].strip().lower()


def parameter(content_type: str, name: str) -> str:
    """Return a parameter of a media type; empty if absent."""
    for part in content_type.split(";")[1:]:
        key, _, value = part.partition("=")
        if key.strip().lower() == name:
            return value.strip().strip('"')
    return ""


def _range(text: str) -> tuple[str, float]:
    quality = parameter(text, "q")
    try:
        return drop_parameters(text), min(1.0, float(quality)) if quality else 1.0
    except ValueError:
        return drop_parameters(text), 0.0


def _quality(kind: str, ranges: list[tuple[str, float]]) -> float:
    """Return the quality of a media type; the most specific range decides."""
    for form in (kind, f"{kind.partition('/')[0]}/*", "*/*"):
        found = [quality for name, quality in ranges if name == form]
        if found:
            return max(found)
    return 0.0
