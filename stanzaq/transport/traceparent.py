"""Headers that link an item to a trace (W3C Trace Context): which they are, and those of the running span.

OpenTelemetry is used only if the program has imported it. Must not know transports.
"""

import sys
from collections.abc import Mapping
from typing import Final

_NAMES: Final = frozenset({"traceparent", "tracestate"})


def current() -> dict[str, str]:
    """Return the headers of the running span; none without one."""
    found: dict[str, str] = {}
    if "opentelemetry.trace" in sys.modules:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

        TraceContextTextMapPropagator().inject(found)
    return found


def split(headers: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return a trace's headers, which have a place of their own on every wire, and all others.

    Those that no header of HTTP can hold name no trace, and are left out (W3C Trace Context §4.3).
    """
    traced = {name: text for name, text in headers.items() if name in _NAMES and text.isascii() and text.isprintable()}
    return traced, {name: text for name, text in headers.items() if name not in _NAMES}
