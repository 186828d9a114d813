"""The table of ad-hoc commands that the service offers. Must not know what any of them does."""

from collections.abc import Mapping
from typing import Final
from xml.etree.ElementTree import Element

from frontends.xmpp import adhoc, administration, authorization, redrives
from frontends.xmpp.stanzas import Answer, Iq, Question

COMMANDS: Final[Mapping[str, adhoc.Command]] = {
    command.node: command for command in (authorization.GET_PENDING, *administration.COMMANDS, *redrives.COMMANDS)
}


def read(iq: Iq, asked: Element, desk: adhoc.Desk) -> Question | Answer:
    """Translate `<command/>`."""
    return adhoc.read(iq, asked, COMMANDS, desk)
