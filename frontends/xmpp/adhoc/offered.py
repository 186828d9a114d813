"""The table of ad-hoc commands that the service offers. Must not know what they do."""

from collections.abc import Mapping
from typing import Final
from xml.etree.ElementTree import Element

from frontends.xmpp.adhoc import admin, commands, moves, pending, schedules
from frontends.xmpp.stanzas import DoorAnswer, Iq, Question

COMMANDS: Final[Mapping[str, commands.Command]] = {
    command.node: command for command in (pending.GET_PENDING, *admin.COMMANDS, *moves.COMMANDS, *schedules.COMMANDS)
}


def read(iq: Iq, asked: Element, context: commands.AdhocContext) -> Question | DoorAnswer:
    """Translate `<command/>`."""
    return commands.read(iq, asked, COMMANDS, context)
