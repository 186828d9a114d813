"""Headers that link the handling of an item to one trace (W3C Trace Context). Must not know who makes spans of them."""

import re
from collections.abc import Mapping
from typing import Final

PARENT: Final = "traceparent"
STATE: Final = "tracestate"

_PARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_STATE: Final = re.compile(r"[ -~]{1,512}")


def headers(parent: str | None, state: str | None) -> Mapping[str, str]:
    """Return the trace headers of an item; none for invalid ones, which are never refused (§3.2)."""
    if not parent or not _PARENT.fullmatch(parent):
        return {}
    return {PARENT: parent, STATE: state} if state and _STATE.fullmatch(state) else {PARENT: parent}
