"""Refusals in the log: one line each, in the words of the XMPP door, with the id that the client or its proxy gave the request.

Never a payload and never a credential. That a flood of them does not become one of the log's is seen to where lines are written.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import structlog

from frontends.rest.errors import Fault

_log = structlog.get_logger("stanzaq.rest")

_OURS: Final = frozenset({HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT})
"""What no change to the request would help."""

_CUT: Final = 200


def log(refusal: Fault, about: Mapping[str, str]) -> None:
    """Log that a request is refused; `about` is what was read of it until then."""
    tell = _log.warning if refusal.status in _OURS else _log.info
    told = {name: value[:_CUT] for name, value in (*about.items(), ("detail", refusal.detail)) if value}
    tell("refused", problem=refusal.code, **told)
