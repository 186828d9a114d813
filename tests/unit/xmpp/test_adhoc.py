"""Ad-hoc commands of one step, or of a form and its answer."""

from collections.abc import Callable
from xml.etree import ElementTree as ET

import pytest

from broker.model.commands import ListPending, SendPending
from broker.model.names import Jid
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import Done, Listing
from frontends.xmpp import errors, replies
from frontends.xmpp import namespaces as ns
from frontends.xmpp.adhoc import offered
from frontends.xmpp.errors import wire
from frontends.xmpp.stanzas import DoorAnswer, Question

_ME = Jid("worker@example.org/desk")

Read = Callable[..., Question | DoorAnswer]
Fault = Callable[..., MalformedRequest]


def _command(inside: str = "", node: str = ns.PUBSUB_GET_PENDING, more: str = "") -> str:
    return f"<command xmlns='{ns.COMMANDS}' node='{node}' {more}>{inside}</command>"


def _form(kind: str = "submit", inside: str = "<field var='pubsub#node'><value>jobs</value></field>") -> str:
    return f"<x xmlns='{ns.FORM}' type='{kind}'>{inside}</x>"


def _reply(asked: Question | DoorAnswer, outcome: Listing | Done | None = None) -> ET.Element:
    if isinstance(asked, DoorAnswer):
        return ET.fromstring(replies.result(asked.iq, asked.content))[0]
    assert outcome is not None
    return ET.fromstring(replies.answer(asked, outcome))[0]


def test_two_steps(read: Read) -> None:
    """P27: an owner executes, gets the form with the nodes that have pending requests, sends it back, and is done."""
    asked = read(_command(more="action='execute'"))
    assert isinstance(asked, Question) and asked.command == ListPending(_ME)
    first = _reply(asked, Listing(("a<b", "jobs")))
    assert (first.get("status"), first.get("node")) == ("executing", ns.PUBSUB_GET_PENDING)
    assert [child.tag for child in first[0]] == [f"{{{ns.COMMANDS}}}complete"]
    assert [option[0].text for option in first.iter(f"{{{ns.FORM}}}option")] == ["a<b", "jobs"]
    session = f"sessionid='{first.get('sessionid')}'"
    for action in ("", "action='execute'", "action='complete'", "action='next'"):
        asked = read(_command(_form(), more=f"{session} {action}"))
        assert isinstance(asked, Question) and asked.command == SendPending("jobs", _ME)
        last = _reply(asked, Done())
        assert (last.get("status"), last.get("sessionid"), len(last)) == ("completed", first.get("sessionid"), 0)


def test_nothing_waits(read: Read) -> None:
    """P27: without pending requests there is nothing to choose."""
    last = _reply(read(_command()), Listing(()))
    assert (last.get("status"), last[0].get("type")) == ("completed", "info")


@pytest.mark.parametrize("asked", [_command(more="action='cancel'"), _command(_form("cancel"))])
def test_cancelled(read: Read, asked: str) -> None:
    """XEP-0050 §4.4: a session that is cancelled, by action or by form, is canceled."""
    assert _reply(read(asked)).get("status") == "canceled"


@pytest.mark.parametrize(
    ("asked", "kind", "condition"),
    [
        (_command(node="no such"), "set", "item-not-found"),
        (_command(node=""), "set", "item-not-found"),
        (_command(), "get", "bad-request"),
        (_command(more="action='prev'"), "set", "bad-request bad-action"),
        (_command(more="action='dance'"), "set", "bad-request malformed-action"),
        (_command(more=f"sessionid='{'s' * 300}'"), "set", "bad-request bad-sessionid"),
        (_command(more="sessionid='r1.0123456789abcdef'"), "set", "bad-request bad-sessionid"),
        (_command(more="sessionid=''"), "set", "bad-request bad-sessionid"),
        (_command(more="sessionid='&#252;'"), "set", "bad-request bad-sessionid"),
        (_command(_form("form")), "set", "bad-request bad-payload"),
        (_command(_form(inside="")), "set", "bad-request invalid-options"),
        (_command(_form(inside="<field var='pubsub#node'><value/></field>")), "set", "bad-request nodeid-required"),
    ],
)
def test_mistakes(fault: Fault, asked: str, kind: str, condition: str) -> None:
    """XEP-0050 §4.4: each kind of wrong request has its own condition."""
    error = ET.fromstring(errors.write_error(errors.wire(fault(asked, kind)), "")).iter()
    assert " ".join(child.tag.partition("}")[2] for child in error if child.tag != "error") == condition


def test_discovered(read: Read) -> None:
    """XEP-0050 §2: commands are listed at their own node, and each says what it is."""
    for sender, left_out in (("admin@example.org/desk", set()), (_ME, {ns.ADMIN_OVERVIEW, ns.ADMIN_DISCONNECT})):
        answer = read(f"<query xmlns='{ns.DISCO_ITEMS}' node='{ns.COMMANDS}'/>", "get", sender=sender)
        listed = [(item.get("jid"), item.get("node")) for item in _reply(answer)]
        assert listed == [("queue.example.org", node) for node in offered.COMMANDS if node not in left_out]
    for node, kind in ((ns.COMMANDS, "command-list"), *((node, "command-node") for node in offered.COMMANDS)):
        info = _reply(read(f"<query xmlns='{ns.DISCO_INFO}' node='{node}'/>", "get"))
        assert (info.get("node"), info[0].get("category"), info[0].get("type")) == (node, "automation", kind)


def test_a_session_is_of_one(read: Read, fault: Fault) -> None:
    """XEP-0050 §4.4: a session is valid at every frontend, for its JID and its command only."""
    session = f"sessionid='{_reply(read(_command(), sender='a@x/1'), Listing(('jobs',))).get('sessionid')}'"
    assert isinstance(read(_command(_form(), more=session), sender="a@x/1"), Question)
    for asked, sender in ((_command(more=session), "a@x/2"), (_command(node=ns.ADMIN_PAUSE, more=session), "a@x/1")):
        assert wire(fault(asked, sender=sender)).command == "bad-sessionid"


def test_a_command_s_problem_is_no_other(fault: Fault) -> None:
    """A refusal of a command is counted like any other bad request."""
    assert fault(_command(more="action='prev'")).problem is Problem.BAD_REQUEST
