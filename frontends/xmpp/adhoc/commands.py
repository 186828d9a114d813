"""Ad-hoc commands (XEP-0050): a form and its answer, or several. Must not know any one command.

Nothing is kept between two steps: the form that comes back says all, so any frontend takes it, and a session's id is
no more than a name, signed so that every frontend knows it again as one that was given to this asker.
"""

import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from xml.etree.ElementTree import Element

from broker.model.names import Jid, bare
from broker.model.options import NodeConfig
from broker.model.problems import MalformedRequest, Problem
from frontends.xmpp import namespaces as ns
from frontends.xmpp.errors import BadCommand
from frontends.xmpp.stanzas import Answer, Iq, Question, expect
from frontends.xmpp.xml import forms
from frontends.xmpp.xml.text import escaped

_NAME_CHARACTERS: Final = 64
_SIGNATURE_CHARACTERS: Final = 16


@dataclass(frozen=True, slots=True)
class AdhocContext:
    """Who administrates the service, the key that sessions are signed with, and what a node is whose maker does not say.

    All three are the same at every frontend.
    """

    admins: frozenset[Jid] = frozenset()
    key: bytes = b""
    node: NodeConfig = field(default_factory=NodeConfig)

    def open_to(self, command: "Command", sender: Jid) -> bool:
        """Tell whether somebody may execute a command, as far as that can be told without the core."""
        return not command.for_admins or bare(sender) in self.admins


NOBODY: Final = AdhocContext()
"""That of a service without administrators."""


@dataclass(frozen=True, slots=True)
class Command:
    """One that is offered: its name on the wire and for people, what it begins with, and what its form ends in.

    One that is `for_admins` concerns the whole service; of the others the core knows who may.
    """

    node: str
    name: str
    form_type: str
    begin: Callable[[Iq], Question | Answer]
    submit: Callable[[Iq, Mapping[str, tuple[str, ...]]], Question | Answer]
    for_admins: bool = False


def read(iq: Iq, asked: Element, offered: Mapping[str, Command], context: AdhocContext) -> Question | Answer:
    """Translate `<command/>`; raises MalformedRequest."""
    expect(iq, "set")
    command = offered.get(asked.get("node", ""))
    if command is None:
        raise MalformedRequest(Problem.ITEM_NOT_FOUND, "there is no such command")
    if not context.open_to(command, iq.sender):
        raise MalformedRequest(Problem.FORBIDDEN, "this command is for administrators")
    session = asked.get("sessionid")
    if session is None:
        # In the request itself, where each answer to it finds it.
        asked.set("sessionid", _signed(iq, command, context, iq.id[:_NAME_CHARACTERS]))
    elif not hmac.compare_digest(_signed(iq, command, context, session.rpartition(".")[0]).encode(), session.encode()):
        raise BadCommand(condition="bad-sessionid", detail="there is no such session of yours with this command")
    action = asked.get("action", "execute")
    if action == "cancel":
        return Answer(iq, _written(iq, command.node, "canceled"))
    if action == "prev":
        raise BadCommand(condition="bad-action", detail="there is nothing to go back to")
    if action not in {"execute", "next", "complete"}:
        raise BadCommand(condition="malformed-action", detail="the action is execute, next, complete or cancel")
    form = asked.find(forms.FORM)
    if form is None:
        return command.begin(iq)
    try:
        fields = forms.read(form, command.form_type)
    except MalformedRequest as fault:
        raise BadCommand(condition="bad-payload", detail=fault.detail) from None
    return Answer(iq, _written(iq, command.node, "canceled")) if fields is None else command.submit(iq, fields)


def executing(iq: Iq, node: str, form: str) -> bytes:
    """Write the form that a command goes on with, and ends with."""
    return _written(iq, node, "executing", f"<actions execute='complete'><complete/></actions>{form}")


def going_on(iq: Iq, node: str, form: str, note: str) -> bytes:
    """Write how far a command has come, and the form that lets it go on."""
    return _written(iq, node, "executing", f"<actions execute='next'><next/></actions>{form}{_note(note)}")


def completed(iq: Iq, node: str, note: str = "", form: str = "") -> bytes:
    """Write that a command is done, with a word for the person who asked, or what the person asked for."""
    return _written(iq, node, "completed", form + (_note(note) if note else ""))


def info(command: Command) -> bytes:
    """Write what a command is (XEP-0050 §2.3)."""
    features = "".join(f"<feature var='{name}'/>" for name in (ns.COMMANDS, ns.FORM, ns.DISCO_INFO))
    return (
        f"<query xmlns='{ns.DISCO_INFO}' node='{escaped(command.node)}'>"
        f"<identity category='automation' type='command-node' name='{escaped(command.name)}'/>{features}</query>"
    ).encode()


def items(iq: Iq, offered: Mapping[str, Command], context: AdhocContext) -> bytes:
    """Write the list of commands that are open to the asker (XEP-0050 §2.2)."""
    inside = "".join(
        f"<item jid='{escaped(iq.service)}' node='{escaped(each.node)}' name='{escaped(each.name)}'/>"
        for each in offered.values()
        if context.open_to(each, iq.sender)
    )
    return f"<query xmlns='{ns.DISCO_ITEMS}' node='{ns.COMMANDS}'>{inside}</query>".encode()


def list_info() -> bytes:
    """Write what the list of commands is."""
    return (
        f"<query xmlns='{ns.DISCO_INFO}' node='{ns.COMMANDS}'><identity category='automation' type='command-list'/>"
        f"<feature var='{ns.DISCO_INFO}'/><feature var='{ns.DISCO_ITEMS}'/></query>"
    ).encode()


def _signed(iq: Iq, command: Command, context: AdhocContext, name: str) -> str:
    """Give the id of a session by its name: no one else has it, and no other command."""
    about = f"{iq.sender}\0{command.node}\0{name}".encode()
    return f"{name}.{hmac.new(context.key, about, hashlib.sha256).hexdigest()[:_SIGNATURE_CHARACTERS]}"


def _note(text: str) -> str:
    return f"<note type='info'>{escaped(text)}</note>"


def _written(iq: Iq, node: str, status: str, inside: str = "") -> bytes:
    asked = iq.element.find(f"{{{ns.COMMANDS}}}command")
    session = "" if asked is None else asked.get("sessionid", "")
    return (
        f"<command xmlns='{ns.COMMANDS}' node='{escaped(node)}' sessionid='{escaped(session)}'"
        f" status='{status}'>{inside}</command>"
    ).encode()
