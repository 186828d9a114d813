"""Schedules over XMPP: requests and ad-hoc forms become commands, and results become replies."""

from collections.abc import Callable, Mapping
from xml.etree import ElementTree as ET

import pytest

from broker import codec
from broker.model.commands import Command, ListSchedules, PauseSchedule, PutSchedule, RemoveSchedule
from broker.model.items.hints import Hints
from broker.model.items.items import Envelope
from broker.model.names import Jid
from broker.model.nodes.schedules import Schedule, ScheduledItem, ScheduleState, ScheduleStatus
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import Done, Result, Scheduled, ScheduleList
from frontends.xmpp import namespaces as ns
from frontends.xmpp import replies
from frontends.xmpp.stanzas import DoorAnswer, Question
from tests.unit.xmpp.test_administration import command

ME = Jid("worker@example.org/desk")
NOON = 1_796_126_400_000

Read = Callable[..., Question]
Fault = Callable[..., MalformedRequest]

DAILY = Schedule("report", "0 9 * * 1-5", "Europe/Berlin", jitter_ms=5_000)


def asked(name: str, more: str, inside: str = "") -> str:
    """Write a request."""
    return f"<{name} xmlns='{ns.STANZAQ}' node='jobs' {more}>{inside}</{name}>"


def put(more: str, item: str = "<item><a xmlns='urn:x'/></item>") -> str:
    """Write a request for a schedule."""
    return asked("schedule", f"id='report' {more}", item)


def status(item: ScheduledItem | None = None, name: str = "report") -> ScheduleStatus:
    """Return a schedule as owners see it."""
    made = Schedule(name, DAILY.cron, DAILY.zone, jitter_ms=5_000)
    return ScheduleStatus(made, Jid("a@x"), ScheduleState.ACTIVE, NOON, NOON - 1000, "report@1", 3, 2, NOON, 1, item)


def replied(question: Question, outcome: Result) -> ET.Element:
    """Return the content of a reply."""
    return ET.fromstring(replies.answer(question, outcome))[0]


def test_made(read: Read) -> None:
    """Issue 25: the attributes say when, and the item what: with a key and options, without a trace."""
    item = "<item key='k' priority='7' ttl='60'><a xmlns='urn:x'/></item>"
    words = "cron='0 9 * * 1-5' zone='Europe/Berlin' jitter='5s' overlap='queue' catchup='last'"
    made = read(put(words, item)).command
    envelope = codec.pack(Envelope(b"<a xmlns='urn:x'/>"))
    assert isinstance(made, PutSchedule)
    assert made == PutSchedule("jobs", ME, DAILY, envelope, made.body_bytes, "k", Hints(0, 7, 60_000))
    traced = f"<item traceparent='00-{'1' * 32}-{'2' * 16}-01'><a xmlns='urn:x'/></item>"
    made = read(put("every='5m'", traced)).command
    assert isinstance(made, PutSchedule) and made.schedule.every_ms == 300_000 and made.envelope == envelope


@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        (put("every='0'"), Problem.BAD_REQUEST),
        (put("every='5m' start='2026-12-02T00:00:00Z' end='2026-12-01T00:00:00Z'"), Problem.BAD_REQUEST),
        (put("every='5m'", ""), Problem.ITEM_REQUIRED),
        (put("every='5m'", "<item/>"), Problem.PAYLOAD_REQUIRED),
        (put("every='5m'", f"<item><json xmlns='{ns.JSON}'>NaN</json></item>"), Problem.PAYLOAD_INVALID),
        (put("every='5m'", "<item><a/></item><item><a/></item>"), Problem.ITEM_REQUIRED),
        (put("every='5m'", "<item id='a'><a/></item>"), Problem.BAD_REQUEST),
        (put("every='5m'", "<item at='2026-12-02T00:00:00Z'><a/></item>"), Problem.BAD_REQUEST),
        (put("every='5m'", "<item partition='0'><a/></item>"), Problem.BAD_REQUEST),
        (asked("pause-schedule", ""), Problem.BAD_REQUEST),
        (asked("unschedule", "id=''"), Problem.BAD_REQUEST),
        (f"<unschedule xmlns='{ns.STANZAQ}' id='a'/>", Problem.NODE_REQUIRED),
    ],
)
def test_refused(fault: Fault, request_: str, problem: Problem) -> None:
    """Guarantee 7: what cannot be is named."""
    wrong = fault(request_)
    assert wrong.problem is problem and wrong.detail


@pytest.mark.parametrize("name", ["schedule", "pause-schedule", "resume-schedule", "unschedule"])
def test_changes_are_sets(fault: Fault, name: str) -> None:
    """RFC 6120 §8.2.3: a get changes nothing, and a list is one."""
    assert fault(asked(name, "id='a' every='1s'", "<item><a/></item>"), "get").problem is Problem.BAD_REQUEST
    assert fault(asked("schedules", ""), "set").problem is Problem.BAD_REQUEST


def test_others(read: Read) -> None:
    """A schedule is paused, resumed and deleted by its id; a list is of all in pages, or of one."""
    assert read(asked("pause-schedule", "id='a'")).command == PauseSchedule("jobs", ME, "a", paused=True)
    assert read(asked("resume-schedule", "id='a'")).command == PauseSchedule("jobs", ME, "a", paused=False)
    assert read(asked("unschedule", "id='a'")).command == RemoveSchedule("jobs", ME, "a")
    assert read(asked("schedules", ""), "get").command == ListSchedules("jobs", ME, 100)
    assert read(asked("schedules", "id='a'"), "get").command == ListSchedules("jobs", ME, 100, id="a")
    page = f"<set xmlns='{ns.RSM}'><max>10</max><after>a</after></set>"
    assert read(asked("schedules", "", page), "get").command == ListSchedules("jobs", ME, 10, "a")


def test_replies(read: Read) -> None:
    """A schedule is told in the words of its request, with what it has done; a page says where it ends."""
    told = replied(read(put("every='5m'")), Scheduled(status()))
    assert told.attrib == {
        "node": "jobs", "id": "report", "cron": "0 9 * * 1-5", "zone": "Europe/Berlin", "jitter": "5s", "overlap": "queue",
        "catchup": "last", "state": "active", "by": "a@x", "next": "2026-12-01T12:00:00Z", "last": "2026-12-01T11:59:59Z",
        "last-item": "report@1", "published": "3", "missed": "2", "missed-at": "2026-12-01T12:00:00Z", "skipped": "1",
    }  # fmt: skip
    listed = read(asked("schedules", ""), "get")
    page = replied(listed, ScheduleList((status(name="a"), status(name="b")), "b"))
    assert [each.get("id") for each in page[:2]] == ["a", "b"] and page.find(
        f"{{{ns.RSM}}}set/{{{ns.RSM}}}last"
    ) is not None
    assert len(replied(listed, ScheduleList(()))) == 0
    item = ScheduledItem(codec.pack(Envelope(b"<a xmlns='urn:x'/>", headers={"h": "1"})), "k", Hints(5_000, 7, 60_000))
    one = replied(read(asked("schedules", "id='a'"), "get"), ScheduleList((status(item),)))[0][0]
    assert one.attrib == {"key": "k", "delay": "5", "priority": "7", "ttl": "60"}
    assert [each.tag for each in one] == ["{urn:x}a", f"{{{ns.SHIM}}}headers"]


FORM: Mapping[str, str | tuple[str, ...]] = {"node": "jobs", "id": "report"}


@pytest.mark.parametrize(
    ("name", "fields", "meant"),
    [
        ("schedules", {"node": "jobs", "after": "a"}, ListSchedules("jobs", ME, 100, "a")),
        ("pause-schedule", FORM, PauseSchedule("jobs", ME, "report", paused=True)),
        ("resume-schedule", FORM, PauseSchedule("jobs", ME, "report", paused=False)),
        ("unschedule", FORM, RemoveSchedule("jobs", ME, "report")),
    ],
)
def test_forms(read: Read, name: str, fields: Mapping[str, str], meant: Command) -> None:
    """XEP-0050: each form is one command, and its answer says what was done."""
    submitted = read(command(f"{ns.STANZAQ}#{name}", fields))
    assert submitted.command == meant
    outcome: Result = Done() if name == "unschedule" else Scheduled(status())
    if name == "schedules":
        outcome = ScheduleList((status(), status(name="z")), "z")
    answer = replied(submitted, outcome)
    assert answer.get("status") == "completed" and answer.get("node") == f"{ns.STANZAQ}#{name}"
    assert answer.findtext(f"{{{ns.COMMANDS}}}note")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (('{"a":', "1}"), "application/json"),
        (("hello",), "text/plain; charset=utf-8"),
        (("NaN",), "text/plain; charset=utf-8"),
    ],
)
def test_a_form_that_makes_one(read: Read, text: tuple[str, ...], kind: str) -> None:
    """The form of a schedule has the words of a request; its payload is JSON, or a text."""
    form = {**FORM, "cron": DAILY.cron, "zone": DAILY.zone, "jitter": "5s", "key": "k", "every": "", "payload": text}
    submitted = read(command(f"{ns.STANZAQ}#schedule", form))
    made = submitted.command
    assert isinstance(made, PutSchedule) and (made.schedule, made.key) == (DAILY, "k")
    assert codec.unpack(made.envelope) == Envelope("\n".join(text).encode(), kind)
    note = replied(submitted, Scheduled(status())).findtext(f"{{{ns.COMMANDS}}}note")
    assert note == "report is active, next at 2026-12-01T12:00:00Z"


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"every": "0"},
        {"every": "1s"},
        {"every": "1s", "payload": "1", "x": "1"},
        {"every": "1s", "payload": "1", "id": ""},
        {"every": "", "cron": " ", "payload": "1"},
    ],
)
def test_wrong_forms(fault: Fault, fields: Mapping[str, str]) -> None:
    """XEP-0050 §4.1: a wrong field is a bad payload."""
    assert fault(command(f"{ns.STANZAQ}#schedule", {**FORM, **fields})).detail
    assert fault(command(f"{ns.STANZAQ}#unschedule", {"node": "jobs", "id": "a\nb" * len(fields)})).detail


def test_first_steps(read: Callable[..., DoorAnswer]) -> None:
    """Each command begins with its form."""
    for name in ("schedules", "schedule", "pause-schedule", "resume-schedule", "unschedule"):
        answer = read(command(f"{ns.STANZAQ}#{name}"))
        assert b"<x xmlns='jabber:x:data' type='form'" in answer.content
