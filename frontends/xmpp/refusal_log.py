"""Refusals in the log: one line each with node, item, subscriber and stanza as far as they are known, never a payload.

What a client has done wrong is `info`, what the service cannot do now is `warning`. That a flood of them does not become
one of the log's is seen to where lines are written.
"""

from typing import Final
from xml.etree.ElementTree import Element

import structlog

from broker.model.commands import Command, Hold
from broker.model.problems import Problem

_log = structlog.get_logger("stanzaq.xmpp")

_OURS: Final = frozenset({Problem.UNAVAILABLE, Problem.TIMED_OUT, Problem.OUT_OF_MEMORY})
"""What no change to the request would help."""

_CUT: Final = 200


def log(stanza: Element, problem: Problem, detail: str, command: Command | None = None) -> None:
    """Log that what a stanza asks for is refused; `command` is what was read in it."""
    tell = _log.warning if problem in _OURS else _log.info
    about = {name: value[:_CUT] for name, value in (*_of_command(command).items(), ("detail", detail)) if value}
    tell("refused", problem=problem.value, **of_stanza(stanza), **about)


def of_stanza(stanza: Element) -> dict[str, str]:
    """Give who sent a stanza, and its id."""
    return {"subscriber": stanza.get("from", "")[:_CUT], "stanza": stanza.get("id", "")[:_CUT]}


def _of_command(command: Command | None) -> dict[str, str]:
    if command is None:
        return {}
    about = command.publish if isinstance(command, Hold) else command
    named = {name: getattr(about, field, None) for name, field in (("node", "node"), ("item", "item_id"))}
    return {"command": type(command).__name__, **{name: value for name, value in named.items() if value}}
