"""Logs refusals: one line each, with the peer and the address if known, never a message.

Faults of a client are `info`; what the service cannot do now is `warning`. The log itself limits floods (frontends/logs.py).
"""

from typing import Final

import structlog

from broker.model.names import Jid
from frontends.amqp.errors import Fault

_log = structlog.get_logger("stanzaq.amqp")

_CUT: Final = 200


def log(refusal: Fault, subscriber: Jid | None, address: str | None) -> None:
    """Log that a link of a peer, or a message that it sent, was refused."""
    tell = _log.warning if refusal.is_ours else _log.info
    about = {"subscriber": subscriber, "node": address, "detail": refusal.detail}
    tell("refused", problem=refusal.code, **{name: value[:_CUT] for name, value in about.items() if value})
