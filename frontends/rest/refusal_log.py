"""Logs refusals: one line each, in the words of the XMPP door, with the request id of the client or its proxy.

Never logs payloads or credentials. The log itself limits floods (frontends/logs.py).
"""

from collections.abc import Mapping
from typing import Final

import structlog

from broker.model.problems import Problem
from frontends.rest.errors import Fault

_log = structlog.get_logger("stanzaq.rest")

_OURS: Final = frozenset(problem.value for problem in Problem if problem.is_ours)

_CUT: Final = 200


def log(refusal: Fault, about: Mapping[str, str]) -> None:
    """Log a refused request; `about` is what is known of it."""
    tell = _log.warning if refusal.code in _OURS else _log.info
    told = {name: value[:_CUT] for name, value in (*about.items(), ("detail", refusal.detail)) if value}
    tell("refused", problem=refusal.code, **told)
