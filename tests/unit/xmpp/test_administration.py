"""Ad-hoc commands of one step: the command of each form, and how its outcome is written."""

from collections.abc import Callable, Mapping
from xml.etree import ElementTree as ET

import pytest

from broker.model.commands import Command, Configure, Disconnect, Frontends, Overview, Release
from broker.model.names import Jid
from broker.model.nodes.nodes import NodeRecord
from broker.model.nodes.options import NodeConfig
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import (
    Counted,
    Disconnected,
    Done,
    FrontendList,
    FrontendStatus,
    Overviewed,
    Released,
    Result,
    Summary,
)
from frontends.xmpp import namespaces as ns
from frontends.xmpp import replies
from frontends.xmpp.adhoc import offered
from frontends.xmpp.errors import wire
from frontends.xmpp.stanzas import DoorAnswer, Question

ADMIN = Jid("admin@example.org/desk")

Read = Callable[..., Question | DoorAnswer]
Fault = Callable[..., MalformedRequest]


def command(node: str, fields: Mapping[str, str | tuple[str, ...]] | None = None, more: str = "") -> str:
    """Write a command, with a form when it has fields."""
    inside = ""
    for name, given in (fields or {}).items():
        values = (given,) if isinstance(given, str) else given
        inside += f"<field var='{name}'>{''.join(f'<value>{value}</value>' for value in values)}</field>"
    form = "" if fields is None else f"<x xmlns='{ns.FORM}' type='submit'>{inside}</x>"
    return f"<command xmlns='{ns.COMMANDS}' node='{node}' {more}>{form}</command>"


def reply(asked: Question | DoorAnswer, outcome: Result | None = None) -> ET.Element:
    """Give the `<command/>` of an answer."""
    if isinstance(asked, DoorAnswer):
        return ET.fromstring(replies.result(asked.iq, asked.content))[0]
    assert outcome is not None
    return ET.fromstring(replies.answer(asked, outcome))[0]


def _note(answered: ET.Element) -> str | None:
    assert answered.get("status") == "completed"
    return answered.findtext(f"{{{ns.COMMANDS}}}note")


@pytest.mark.parametrize(
    "node", [node for node in offered.COMMANDS if node.startswith(ns.STANZAQ) and node != ns.ADMIN_DISCONNECT]
)
def test_a_form_comes_first(read: Read, node: str) -> None:
    """Each begins with a form of its own type, without reading anything."""
    asked = read(command(node), sender=ADMIN)
    assert isinstance(asked, DoorAnswer)
    first = reply(asked)
    form = first.find(f"{{{ns.FORM}}}x")
    assert (first.get("status"), form is not None and form.get("type")) == ("executing", "form")
    assert next(first.iter(f"{{{ns.FORM}}}value")).text == node
    fields = {field.get("var") for field in first.iter(f"{{{ns.FORM}}}field")}
    assert len(fields) > 1 and all(field.get("label") for field in list(first.iter(f"{{{ns.FORM}}}field"))[1:])


@pytest.mark.parametrize(
    ("node", "fields", "meant"),
    [
        (ns.ADMIN_OVERVIEW, {}, Overview(ADMIN, 0, 50)),
        (ns.ADMIN_OVERVIEW, {"first": "50", "limit": "100"}, Overview(ADMIN, 50, 100)),
        (ns.ADMIN_PAUSE, {"node": "jobs"}, Configure("jobs", ADMIN, {"stanzaq#state": ("paused",)})),
        (ns.ADMIN_RESUME, {"node": "jobs"}, Configure("jobs", ADMIN, {"stanzaq#state": ("running",)})),
        (ns.ADMIN_DRAIN, {"node": "jobs"}, Configure("jobs", ADMIN, {"stanzaq#state": ("draining",)})),
        (ns.ADMIN_RELEASE, {"node": "jobs", "items": ("a", "", "b", "a")}, Release("jobs", ADMIN, ("a", "b"))),
        (ns.ADMIN_RELEASE, {"node": "jobs", "holder": "W@X/Desk"}, Release("jobs", ADMIN, (), Jid("w@x/Desk"))),
        (ns.ADMIN_DISCONNECT, {"frontend": "1edc2653"}, Disconnect(ADMIN, "1edc2653")),
    ],
)
def test_meant(read: Read, node: str, fields: Mapping[str, str], meant: Command) -> None:
    """A form is one command for the core, which decides who may."""
    asked = read(command(node, fields), sender=ADMIN)
    assert isinstance(asked, Question) and asked.command == meant


@pytest.mark.parametrize(
    ("node", "fields", "named"),
    [
        (ns.ADMIN_OVERVIEW, {"first": "-1"}, "first"),
        (ns.ADMIN_OVERVIEW, {"limit": "0"}, "limit"),
        (ns.ADMIN_OVERVIEW, {"limit": "101"}, "limit"),
        (ns.ADMIN_OVERVIEW, {"limit": "\u0663"}, "limit"),
        (ns.ADMIN_OVERVIEW, {"first": "9" * 100_000}, "first"),
        (ns.ADMIN_OVERVIEW, {"first": ("1", "2")}, "first"),
        (ns.ADMIN_OVERVIEW, {"max": "1"}, "max"),
        (ns.ADMIN_PAUSE, {}, "node"),
        (ns.ADMIN_PAUSE, {"node": ""}, "node"),
        (ns.ADMIN_PAUSE, {"node": ("a", "b")}, "node"),
        (ns.ADMIN_DRAIN, {"node": "n" * 1024}, "node"),
        (ns.ADMIN_RESUME, {"node": "jobs", "x" * 1000: "1"}, "x" * 100),
        (ns.ADMIN_RELEASE, {"node": "jobs"}, "items"),
        (ns.ADMIN_RELEASE, {"node": "jobs", "items": "a", "holder": "w@x"}, "items"),
        (ns.ADMIN_RELEASE, {"node": "jobs", "items": "i" * 1024}, "items"),
        (ns.ADMIN_RELEASE, {"node": "jobs", "items": tuple(map(str, range(201)))}, "items"),
        (ns.ADMIN_RELEASE, {"node": "jobs", "holder": f"{'w' * 4000}@x"}, "holder"),
        (ns.ADMIN_DISCONNECT, {}, "frontend"),
        (ns.ADMIN_DISCONNECT, {"frontend": "f" * 65}, "frontend"),
        (ns.ADMIN_DISCONNECT, {"frontend": "f", "node": "jobs"}, "node"),
    ],
)
def test_bad_fields(fault: Fault, node: str, fields: Mapping[str, str | tuple[str, ...]], named: str) -> None:
    """A field out of range is named in a bad-payload (XEP-0050 §4.4)."""
    found = fault(command(node, fields), sender=ADMIN)
    assert wire(found).command == "bad-payload" and found.detail.startswith(f"{named}: ")


@pytest.mark.parametrize(
    "asked",
    [
        command(ns.ADMIN_OVERVIEW),
        command(ns.ADMIN_OVERVIEW, {"limit": "bad"}),
        command(ns.ADMIN_OVERVIEW, more="sessionid='?' action='dance'"),
        command(ns.ADMIN_DISCONNECT),
    ],
)
@pytest.mark.parametrize("sender", ["worker@example.org/desk", "example.org", "admin@example.org.evil/desk"])
def test_forbidden_before_anything_is_read(fault: Fault, asked: str, sender: str) -> None:
    """Administrators' commands are forbidden to others, before even the form is read."""
    assert fault(asked, sender=sender).problem is Problem.FORBIDDEN


def test_what_the_core_forbids(read: Read) -> None:
    """The form that disconnects a frontend is judged by the core, whose audit has the refusal."""
    asked = read(command(ns.ADMIN_DISCONNECT, {"frontend": "1edc2653"}), sender="worker@example.org/desk")
    assert isinstance(asked, Question) and asked.command == Disconnect(Jid("worker@example.org/desk"), "1edc2653")


def test_frontends_to_choose_from(read: Read) -> None:
    """Issue 8: the form lists the frontends that there are, with what is known of each."""
    asked = read(command(ns.ADMIN_DISCONNECT), sender=ADMIN)
    assert isinstance(asked, Question) and asked.command == Frontends(ADMIN)
    # At other doors there are no deliveries to take over.
    boss = FrontendStatus("f1", 9_000, "boss@x")
    told = reply(asked, FrontendList((boss, FrontendStatus("f2", 12, ""), FrontendStatus("h1", 12, "", "rest"))))
    assert told.get("status") == "executing"
    options = [each.findtext(f"{{{ns.FORM}}}value") for each in told.iter(f"{{{ns.FORM}}}option")]
    assert options == ["f1", "f2"]
    said = told.findtext(f"{{{ns.FORM}}}x/{{{ns.FORM}}}instructions") or ""
    assert "f1: disconnected by boss@x 9000 ms ago; f2: heard of 12 ms ago" in said


def test_overview(read: Read) -> None:
    """Nodes are a table with a column for each value, and a page names the start of the next one."""
    counted = Counted(1, 2, 3, 4, 5, 6, 7, 8)
    asked = read(command(ns.ADMIN_OVERVIEW, {"first": "10", "limit": "2"}), sender=ADMIN)
    nodes = tuple(Summary(NodeRecord(name, "1", 1, NodeConfig()), counted) for name in ("a<b", "jobs"))
    told = reply(asked, Overviewed(nodes, 13))
    assert _note(told) == "13 nodes: the next page begins with first 12"
    columns = [field.get("var") for field in told.iterfind(f"{{{ns.FORM}}}x/{{{ns.FORM}}}reported/{{{ns.FORM}}}field")]
    rows = [
        {field.get("var"): field.findtext(f"{{{ns.FORM}}}value") for field in item}
        for item in told.iter(f"{{{ns.FORM}}}item")
    ]
    assert [list(row) for row in rows] == [columns, columns]
    assert (rows[0]["node"], rows[1]["waiting"], rows[1]["oldest_ms"], rows[1]["state"]) == ("a<b", "1", "6", "running")
    assert _note(reply(asked, Overviewed(nodes, 12))) == "12 nodes"


@pytest.mark.parametrize(
    ("node", "fields", "outcome", "note"),
    [
        (ns.ADMIN_PAUSE, {"node": "a&lt;b"}, Done(), "a<b is paused"),
        (ns.ADMIN_RESUME, {"node": "jobs"}, Done(), "jobs is running"),
        (ns.ADMIN_DRAIN, {"node": "jobs"}, Done(), "jobs is draining"),
        (ns.ADMIN_RELEASE, {"node": "jobs", "items": "a"}, Released(1), "released 1"),
        (ns.ADMIN_DISCONNECT, {"frontend": "1edc2653"}, Disconnected(listed=True), "disconnected"),
    ],
)
def test_done(read: Read, node: str, fields: Mapping[str, str], outcome: Result, note: str) -> None:
    """The result is in a note, under its command."""
    told = reply(read(command(node, fields), sender=ADMIN), outcome)
    assert (told.get("node"), _note(told)) == (node, note)
