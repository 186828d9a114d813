"""Logs refusals: one line each, in the words of the XMPP door, with the request id of the client or its proxy.

Never logs payloads or credentials. The log itself limits floods (frontends/logs.py).
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import structlog

from frontends.rest.errors import Fault

_log = structlog.get_logger("stanzaq.rest")

_OURS: Final = frozenset({HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT})
"""Statuses that no change of the request would avoid."""

_CUT: Final = 200


def log(refusal: Fault, about: Mapping[str, str]) -> None:
    """Log a refused request; `about` is what is known of it."""
    tell = _log.warning if refusal.status in _OURS else _log.info
    told = {name: value[:_CUT] for name, value in (*about.items(), ("detail", refusal.detail)) if value}
    tell("refused", problem=refusal.code, **told)
