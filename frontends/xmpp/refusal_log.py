"""Logs refusals: one line each with node, item, subscriber and stanza if known, never a payload.

Faults of a client are `info`; what the service cannot do now is `warning`. The log itself limits floods (frontends/logs.py).
"""

from typing import Final
from xml.etree.ElementTree import Element

import structlog

from broker.model.commands import Command, PrepareMessage
from broker.model.problems import Problem

_log = structlog.get_logger("stanzaq.xmpp")

_CUT: Final = 200


def log(stanza: Element, problem: Problem, detail: str, command: Command | None = None) -> None:
    """Log a refused stanza; `command` is what was parsed from it."""
    tell = _log.warning if problem.is_ours else _log.info
    about = {name: value[:_CUT] for name, value in (*_of_command(command).items(), ("detail", detail)) if value}
    tell("refused", problem=problem.value, **of_stanza(stanza), **about)


def of_stanza(stanza: Element) -> dict[str, str]:
    """Return the sender and the id of a stanza."""
    return {"subscriber": stanza.get("from", "")[:_CUT], "stanza": stanza.get("id", "")[:_CUT]}


def _of_command(command: Command | None) -> dict[str, str]:
    if command is None:
        return {}
    about = command.publish if isinstance(command, PrepareMessage) else command
    named = {name: getattr(about, field, None) for name, field in (("node", "node"), ("item", "item_id"))}
    return {"command": type(command).__name__, **{name: value for name, value in named.items() if value}}
