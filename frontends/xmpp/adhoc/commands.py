"""Ad-hoc commands (XEP-0050) in one or several steps. Must not know any one command.

No state is kept between two steps: the submitted form contains all, so any frontend can process it. A session's id is only a
name, signed so that every frontend recognises it as given to this sender.
"""

import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Final
from xml.etree.ElementTree import Element

from broker.model.frozen import frozen
from broker.model.names import Jid, bare_jid
from broker.model.nodes.options import NodeConfig
from broker.model.problems import MalformedRequest, Problem
from broker.model.roles import Role
from frontends.xmpp import namespaces as ns
from frontends.xmpp.errors import BadCommand
from frontends.xmpp.stanzas import DoorAnswer, Iq, Question, expect
from frontends.xmpp.xml import forms
from frontends.xmpp.xml.text import escape

_NAME_CHARACTERS: Final = 64
_SIGNATURE_CHARACTERS: Final = 16


@frozen
class AdhocContext:
    """What tells an account's role, the key that signs session ids, and the default configuration of a node.

    All three are the same at every frontend.
    """

    role_of: Callable[[Jid], Role | None] = lambda _jid: None
    key: bytes = b""
    node: NodeConfig = field(default_factory=NodeConfig)

    def open_to(self, command: "Command", sender: Jid) -> bool:
        """Tell whether the sender may execute a command, as far as that is known without the core."""
        return command.role is None or (self.role_of(bare_jid(sender)) or 0) >= command.role


NOBODY: Final = AdhocContext()
"""The context of a service without administrators."""


@frozen
class Command:
    """An offered command: its names on the wire and for people, its first step, and the processing of its form.

    A command with a `role` concerns the whole service, and is shown to accounts with that one; the core checks permissions.
    """

    node: str
    name: str
    form_type: str
    begin: Callable[[Iq], Question | DoorAnswer]
    submit: Callable[[Iq, Mapping[str, tuple[str, ...]]], Question | DoorAnswer]
    role: Role | None = None
    audited: bool = False
    """Its form is judged by the core, whose audit has refusals."""


def read(iq: Iq, asked: Element, offered: Mapping[str, Command], context: AdhocContext) -> Question | DoorAnswer:
    """Translate `<command/>`; raises MalformedRequest."""
    expect(iq, "set")
    command = offered.get(asked.get("node", ""))
    if command is None:
        raise MalformedRequest(Problem.ITEM_NOT_FOUND, "there is no such command")
    form = asked.find(forms.FORM)
    if not (context.open_to(command, iq.sender) or (command.audited and form is not None)):
        raise MalformedRequest(Problem.FORBIDDEN, "this command is for administrators")
    session = asked.get("sessionid")
    if session is None:
        # Stored in the request, where each reply to it finds it.
        asked.set("sessionid", _sign(iq, command, context, iq.id[:_NAME_CHARACTERS]))
    elif not hmac.compare_digest(_sign(iq, command, context, session.rpartition(".")[0]).encode(), session.encode()):
        raise BadCommand(condition="bad-sessionid", detail="you have no such session with this command")
    action = asked.get("action", "execute")
    if action == "cancel":
        return DoorAnswer(iq, _write(iq, command.node, "canceled"))
    if action == "prev":
        raise BadCommand(condition="bad-action", detail="this command has no previous step")
    if action not in {"execute", "next", "complete"}:
        raise BadCommand(condition="malformed-action", detail="the action must be execute, next, complete or cancel")
    if form is None:
        return command.begin(iq)
    try:
        fields = forms.read(form, command.form_type)
    except MalformedRequest as fault:
        raise BadCommand(condition="bad-payload", detail=fault.detail) from None
    return DoorAnswer(iq, _write(iq, command.node, "canceled")) if fields is None else command.submit(iq, fields)


def write_executing(iq: Iq, node: str, form: str) -> bytes:
    """Write the form of a command's last step."""
    return _write(iq, node, "executing", f"<actions execute='complete'><complete/></actions>{form}")


def write_progress(iq: Iq, node: str, form: str, note: str) -> bytes:
    """Write the progress of a command, and the form to continue."""
    return _write(iq, node, "executing", f"<actions execute='next'><next/></actions>{form}{_note(note)}")


def write_completed(iq: Iq, node: str, note: str = "", form: str = "") -> bytes:
    """Write that a command is done, with a note or a result."""
    return _write(iq, node, "completed", form + (_note(note) if note else ""))


def info(command: Command) -> bytes:
    """Write the disco information of a command (XEP-0050 §2.3)."""
    features = "".join(f"<feature var='{name}'/>" for name in (ns.COMMANDS, ns.FORM, ns.DISCO_INFO))
    return (
        f"<query xmlns='{ns.DISCO_INFO}' node='{escape(command.node)}'>"
        f"<identity category='automation' type='command-node' name='{escape(command.name)}'/>{features}</query>"
    ).encode()


def items(iq: Iq, offered: Mapping[str, Command], context: AdhocContext) -> bytes:
    """Write the list of commands that the sender may execute (XEP-0050 §2.2)."""
    inside = "".join(
        f"<item jid='{escape(iq.service)}' node='{escape(each.node)}' name='{escape(each.name)}'/>"
        for each in offered.values()
        if context.open_to(each, iq.sender)
    )
    return f"<query xmlns='{ns.DISCO_ITEMS}' node='{ns.COMMANDS}'>{inside}</query>".encode()


def list_info() -> bytes:
    """Write the disco information of the list."""
    return (
        f"<query xmlns='{ns.DISCO_INFO}' node='{ns.COMMANDS}'><identity category='automation' type='command-list'/>"
        f"<feature var='{ns.DISCO_INFO}'/><feature var='{ns.DISCO_ITEMS}'/></query>"
    ).encode()


def _sign(iq: Iq, command: Command, context: AdhocContext, name: str) -> str:
    """Return the signed id of a session: it is valid only for this sender and this command."""
    about = f"{iq.sender}\0{command.node}\0{name}".encode()
    return f"{name}.{hmac.new(context.key, about, hashlib.sha256).hexdigest()[:_SIGNATURE_CHARACTERS]}"


def _note(text: str) -> str:
    return f"<note type='info'>{escape(text)}</note>"


def _write(iq: Iq, node: str, status: str, inside: str = "") -> bytes:
    asked = iq.element.find(f"{{{ns.COMMANDS}}}command")
    session = "" if asked is None else asked.get("sessionid", "")
    return (
        f"<command xmlns='{ns.COMMANDS}' node='{escape(node)}' sessionid='{escape(session)}'"
        f" status='{status}'>{inside}</command>"
    ).encode()
