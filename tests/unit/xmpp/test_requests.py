"""Requests of publishers and workers: understood, or refused by name."""

from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from broker.model.commands import (
    Browse,
    Complete,
    CompleteAndPublish,
    Locks,
    Publish,
    ReadOutcome,
    Renew,
    RenewOwnership,
    Retract,
    RetractBatch,
    Unlock,
)
from broker.model.items.dependencies import Dependencies, Parent
from broker.model.items.durability import Durability
from broker.model.items.hints import NO_HINTS, Hints
from broker.model.items.outcomes import ReplyMode
from broker.model.names import Jid
from broker.model.positions import Position
from broker.model.problems import MalformedRequest, Problem
from frontends.xmpp import errors, requests, stanzas
from frontends.xmpp import namespaces as ns
from frontends.xmpp.stanzas import DoorAnswer, Iq, Question, View

_WORKER = Jid("worker@example.org/desk")

Read = Callable[..., Question]
Fault = Callable[..., MalformedRequest]


def _pubsub(inside: str) -> str:
    return f"<pubsub xmlns='{ns.PUBSUB}'>{inside}</pubsub>"


def _publish(inside: str, about: str = "node='jobs'") -> str:
    return _pubsub(f"<publish {about}>{inside}</publish>")


def _ending(name: str, inside: str, about: str = "node='jobs'") -> str:
    space = f" xmlns='{ns.QUEUEING}'" if name == "unlock" else ""
    return _pubsub(f"<{name}{space} {about}>{inside}</{name}>")


def test_publish_with_and_without_id(read: Read) -> None:
    """A publisher may name its item, or leave that to the service (P14)."""
    named = read(_publish("<item id='j1'><a xmlns='urn:x'/></item>")).command
    unnamed = read(_publish("<item><a xmlns='urn:x'/></item>")).command
    assert isinstance(named, Publish) and isinstance(unnamed, Publish)
    assert (named.node, named.sender, named.item_id) == ("jobs", _WORKER, "j1")
    assert unnamed.item_id is None
    assert named.envelope == unnamed.envelope
    assert named.body_bytes == len(b"<a xmlns='urn:x'/>")


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (_publish("<item><a/></item>", ""), Problem.NODE_REQUIRED),
        (_publish("<item><a/></item>", "node=''"), Problem.NODE_REQUIRED),
        (_publish("<item><a/></item>", f"node='{'n' * 1024}'"), Problem.NODE_NAME_INVALID),
        (_publish("<item><a/></item>", f"node='{'é' * 512}'"), Problem.NODE_NAME_INVALID),
        (_publish(""), Problem.ITEM_REQUIRED),
        (_publish("<thing/>"), Problem.ITEM_REQUIRED),
        (_publish("<item><a/></item><item><a/></item>"), Problem.ONE_ITEM_ONLY),
        (_publish("<item/>"), Problem.PAYLOAD_REQUIRED),
        (_publish("<item><a/><b/></item>"), Problem.PAYLOAD_INVALID),
        (_publish("<item id=''><a/></item>"), Problem.ITEM_ID_INVALID),
        (_publish(f"<item id='{'x' * 1_000_000}'><a/></item>"), Problem.ITEM_ID_INVALID),
        (_publish(f"<item id='{'ü' * 512}'><a/></item>"), Problem.ITEM_ID_INVALID),
        (_publish(f"<item><json xmlns='{ns.JSON}'>{{'a': 1}}</json></item>"), Problem.PAYLOAD_INVALID),
        (_publish(f"<item>{'<a>' * 1000}{'</a>' * 1000}</item>"), Problem.PAYLOAD_INVALID),
        (_pubsub("<publish node='jobs'/><publish node='jobs'/>"), Problem.BAD_REQUEST),
        (_pubsub(""), Problem.BAD_REQUEST),
        (_pubsub("<banana/>"), Problem.UNSUPPORTED),
        ("", Problem.BAD_REQUEST),
        (_publish("<item><a/></item>") * 2, Problem.BAD_REQUEST),
    ],
)
def test_bad_publishes(fault: Fault, payload: str, problem: Problem) -> None:
    """Every way to get a publish wrong has its own name (P14, PX1)."""
    assert fault(payload).problem is problem


@pytest.mark.parametrize("kind", ["get", "set"])
@pytest.mark.parametrize(
    ("item", "token"),
    [
        ("<item id='j1'/>", None),
        ("<item id='j1' token='7'/>", 7),
        (f"<q:item xmlns:q='{ns.PUBSUB}' id='j1' token='7'/>", 7),
        (f"<item id='j1' xmlns:q='{ns.STANZAQ}' q:token='9223372036854775807'/>", 2**63 - 1),
    ],
)
def test_ending_a_lock(read: Read, kind: str, item: str, token: int | None) -> None:
    """Retract and unlock are taken as set and as get, with and without the lock's token (Q19, Q28, QX1, QX14, Q27)."""
    retract = read(_ending("retract", item), kind, request="again")
    unlock = read(_ending("unlock", item), kind, request="again")
    assert retract.command == Retract("jobs", _WORKER, "j1", token, "again")
    assert unlock.command == Unlock("jobs", _WORKER, "j1", token, request="again")
    assert requests.is_get_for_set(retract) is requests.is_get_for_set(unlock) is (kind == "get")


@pytest.mark.parametrize("name", ["retract", "unlock"])
@pytest.mark.parametrize(
    ("inside", "about", "problem"),
    [
        ("<item id='j1'/>", "", Problem.NODE_REQUIRED),
        ("", "node='jobs'", Problem.ITEM_REQUIRED),
        ("<item/>", "node='jobs'", Problem.ITEM_REQUIRED),
        ("<item id=''/>", "node='jobs'", Problem.ITEM_ID_INVALID),
        ("<item id='1'/><item id='1'/>", "node='jobs'", None),
        (f"<item id='{'x' * 1_000_000}'/>", "node='jobs'", Problem.ITEM_ID_INVALID),
        ("<item id='1' token=''/>", "node='jobs'", Problem.BAD_REQUEST),
        ("<item id='1' token='0'/>", "node='jobs'", Problem.BAD_REQUEST),
        ("<item id='1' token='-1'/>", "node='jobs'", Problem.BAD_REQUEST),
        ("<item id='1' token='abc'/>", "node='jobs'", Problem.BAD_REQUEST),
        ("<item id='1' token='٣'/>", "node='jobs'", Problem.BAD_REQUEST),
        (f"<item id='1' token='{2**63}'/>", "node='jobs'", Problem.BAD_REQUEST),
        (f"<item id='1' token='{'9' * 100_000}'/>", "node='jobs'", Problem.BAD_REQUEST),
    ],
)
def test_bad_endings(fault: Fault, name: str, inside: str, about: str, problem: Problem | None) -> None:
    """Row 1 of the decision table, tokens that no delivery ever had, and an item twice."""
    twice = Problem.BAD_REQUEST if name == "retract" else Problem.ONE_ITEM_ONLY
    assert fault(_ending(name, inside, about)).problem is (problem or twice)


@pytest.mark.parametrize(
    ("inside", "problem"),
    [
        ("<item id='a'/><item token='1'/>", Problem.ITEM_REQUIRED),
        ("<item id='a'/><item id='b' token='x'/>", Problem.BAD_REQUEST),
        (f"<item id='a'><result xmlns='{ns.STANZAQ}'/></item><item id='b'/>", Problem.BAD_REQUEST),
        (f"<item id='a'/><item id='b'/><result xmlns='{ns.STANZAQ}'/>", Problem.BAD_REQUEST),
        ("".join(f"<item id='{number}'/>" for number in range(101)), Problem.BAD_REQUEST),
    ],
)
def test_several_are_retracted_or_none(read: Read, fault: Fault, inside: str, problem: Problem) -> None:
    """P20, XEP-0060 §12: several items are one command; one that is malformed, or too many, refuse all."""
    items = "<item id='a' token='7'/><item id='b' partition='2'/>"
    asked = read(_ending("retract", items), "get")
    singles = (Retract("jobs", _WORKER, "a", 7, "r1"), Retract("jobs", _WORKER, "b", None, "r1", 2))
    assert asked.command == RetractBatch("jobs", _WORKER, singles) and requests.is_get_for_set(asked)
    assert fault(_ending("retract", inside)).problem is problem


@pytest.mark.parametrize("inside", ["<item id='j1'>{}</item>", "<item id='j1'/>{}", "{}<item id='j1'/>"])
def test_unlock_hints(read: Read, inside: str) -> None:
    """A release may have a delay, a reason, and say that the item is hopeless; the hint is beside or in the item (Q32)."""
    hint = f"<hint xmlns='{ns.STANZAQ}' delay='30' reason='disk full' dead-letter='true'/>"
    unlock = read(_ending("unlock", inside.format(hint))).command
    assert unlock == Unlock("jobs", _WORKER, "j1", None, 30_000, "disk full", dead_letter=True, request="r1")


@pytest.mark.parametrize(("name", "inside"), [("retract", ""), ("retract", "<item id='j2'/>"), ("unlock", "")])
def test_a_result_without_a_notification(read: Read, fault: Fault, name: str, inside: str) -> None:
    """By default the sender gets both (Q20, Q29); a hint leaves out the notification of its own lock's end."""
    hint = f"{inside}<hint xmlns='{ns.STANZAQ}' notify='{{}}'/>"

    def ending(notify: str) -> str:
        return _ending(name, "<item id='j1'/>" + hint.format(notify))

    assert read(ending("false")).view is read(ending("0")).view is View.RESULT_ONLY
    assert read(ending("true")).view is read(_ending(name, f"<item id='j1'/>{inside}")).view is None
    assert fault(ending("never")).problem is Problem.BAD_REQUEST


@pytest.mark.parametrize(("hint", "delay_ms"), [("delay='0'", 0), ("", None)])
def test_whose_delay(read: Read, hint: str, delay_ms: int | None) -> None:
    """stanzaq#retry_delay: a delay of 0 is one; a hint without a delay leaves it to the node."""
    unlock = read(_ending("unlock", f"<item id='j1'/><hint xmlns='{ns.STANZAQ}' {hint}/>")).command
    assert unlock == Unlock("jobs", _WORKER, "j1", delay_ms=delay_ms, request="r1")


@pytest.mark.parametrize(
    "hint", ["delay='-1'", "delay='abc'", "delay='43201'", "delay=''", f"reason='{'x' * 1025}'", "dead-letter='maybe'"]
)
def test_bad_hints(fault: Fault, hint: str) -> None:
    """An impossible hint is refused, not guessed at."""
    payload = _ending("unlock", f"<item id='j1'/><hint xmlns='{ns.STANZAQ}' {hint}/>")
    assert fault(payload).problem is Problem.BAD_REQUEST


def test_renew_locks_and_outcomes(read: Read) -> None:
    """A worker can prolong a lock and list what it holds (QX11, QX12); a publisher can read how its item ended."""
    renew = read(f"<renew xmlns='{ns.STANZAQ}' node='jobs'><item id='j1' token='3'/></renew>").command
    assert renew == Renew("jobs", _WORKER, "j1", 3)
    # EX16: without an item it is an owner's heartbeat.
    assert read(f"<renew xmlns='{ns.STANZAQ}' node='jobs'/>").command == RenewOwnership("jobs", _WORKER)
    assert read(f"<locks xmlns='{ns.STANZAQ}' node='jobs'/>", "get").command == Locks("jobs", _WORKER)
    ended = read(f"<outcome xmlns='{ns.STANZAQ}' node='jobs'><item id='j1'/></outcome>", "get").command
    assert ended == ReadOutcome("jobs", _WORKER, "j1")


@pytest.mark.parametrize(
    ("payload", "kind", "problem"),
    [
        (f"<renew xmlns='{ns.STANZAQ}' node='jobs'><item id='j1'/></renew>", "get", Problem.BAD_REQUEST),
        (f"<renew xmlns='{ns.STANZAQ}'><item id='j1'/></renew>", "set", Problem.NODE_REQUIRED),
        (f"<renew xmlns='{ns.STANZAQ}' node='jobs'><job/></renew>", "set", Problem.ITEM_REQUIRED),
        (f"<renew xmlns='{ns.STANZAQ}'/>", "set", Problem.NODE_REQUIRED),
        (f"<renew xmlns='{ns.STANZAQ}' node='jobs'/>", "get", Problem.BAD_REQUEST),
        (f"<locks xmlns='{ns.STANZAQ}' node='jobs'/>", "set", Problem.BAD_REQUEST),
        (f"<outcome xmlns='{ns.STANZAQ}' node='jobs'><item id='j1'/></outcome>", "set", Problem.BAD_REQUEST),
        (f"<locks xmlns='{ns.STANZAQ}'/>", "get", Problem.NODE_REQUIRED),
        (_publish("<item><a/></item>"), "get", Problem.BAD_REQUEST),
        (_pubsub("<items node='jobs'/>"), "set", Problem.BAD_REQUEST),
        (_publish("<item><a/></item>"), "banana", Problem.BAD_REQUEST),
    ],
)
def test_the_wrong_kind_or_half_a_request(fault: Fault, payload: str, kind: str, problem: Problem) -> None:
    """A get where a set belongs, the reverse, and a request without its object are refused."""
    assert fault(payload, kind).problem is problem


@pytest.mark.parametrize(
    ("inside", "about", "asked"),
    [
        ("", "", Browse("jobs", _WORKER, (), 50)),
        ("", "max_items='7'", Browse("jobs", _WORKER, (), 7, backwards=True)),
        ("", "max_items='100000'", Browse("jobs", _WORKER, (), 500, backwards=True)),
        ("<item id='a'/><item id='b'/>", "max_items='9'", Browse("jobs", _WORKER, ("a", "b"), 9)),
        ("<item id='a'/>" * 500, "", Browse("jobs", _WORKER, ("a",) * 500, 50)),
        ("", f"max_items='{10**9}'", Browse("jobs", _WORKER, (), 500, backwards=True)),
    ],
)
def test_browse(read: Read, inside: str, about: str, asked: Browse) -> None:
    """P21, XEP-0060 §6.5.7: items can be looked at by id, from the front, or the most recent ones, so many at a time."""
    assert read(_pubsub(f"<items node='jobs' {about}>{inside}</items>"), "get").command == replace(asked, subid="")


@pytest.mark.parametrize(
    ("wanted", "page"),
    [
        ("<max>5</max>", {"limit": 5}),
        ("<max>5</max><after/>", {"limit": 5}),
        ("<max>0</max>", {"limit": 0}),
        ("<after>0-17-3</after>", {"limit": 50, "after": Position(17, 3, 0)}),
        ("<max>900</max><before>2-17-3</before>", {"limit": 50, "before": Position(17, 3, 2), "backwards": True}),
        ("<before/>", {"limit": 50, "backwards": True}),
    ],
)
def test_pages(read: Read, wanted: str, page: dict[str, Any]) -> None:
    """A browse goes page by page, forwards and backwards (P21, XEP-0059)."""
    command = read(_pubsub(f"<items node='jobs'/><set xmlns='{ns.RSM}'>{wanted}</set>"), "get").command
    assert command == Browse("jobs", _WORKER, (), subid="", **page)


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        ("<max>many</max>", Problem.BAD_REQUEST),
        ("<max>-1</max>", Problem.BAD_REQUEST),
        ("<index>-1</index>", Problem.BAD_REQUEST),
        ("<after>0-1-1</after><before/>", Problem.BAD_REQUEST),
        ("<index>3</index>", Problem.UNSUPPORTED),
        ("<after>peterpan@neverland.lit</after>", Problem.ITEM_NOT_FOUND),
        ("<before>0-1</before>", Problem.ITEM_NOT_FOUND),
        (f"<after>0-{'9' * 19}-1</after>", Problem.ITEM_NOT_FOUND),
    ],
)
def test_bad_pages(fault: Fault, wanted: str, problem: Problem) -> None:
    """An impossible page is refused; an unknown item is not found (XEP-0059 §2.4, §2.6)."""
    assert fault(_pubsub(f"<items node='jobs'/><set xmlns='{ns.RSM}'>{wanted}</set>"), "get").problem is problem


@pytest.mark.parametrize("beside", [f"<set xmlns='{ns.RSM}'/>", "<items node='other'/>"])
def test_named_items_stand_alone(fault: Fault, beside: str) -> None:
    """Items that are named have no pages, and one request is made at a time."""
    problem = fault(_pubsub(f"<items node='jobs'><item id='a'/></items>{beside}"), "get").problem
    assert problem is Problem.BAD_REQUEST


@pytest.mark.parametrize(
    ("inside", "about"), [("", "max_items='0'"), ("", "max_items='many'"), ("<item id='x'/>" * 501, "")]
)
def test_bad_browses(fault: Fault, inside: str, about: str) -> None:
    """Nonsense in a browse is refused."""
    assert fault(_pubsub(f"<items node='jobs' {about}>{inside}</items>"), "get").problem is Problem.BAD_REQUEST


def _options(inside: str, form_type: str = ns.PUBSUB_PUBLISH_OPTIONS, kind: str = "submit") -> str:
    form = f"<x xmlns='{ns.FORM}' type='{kind}'><field var='FORM_TYPE'><value>{form_type}</value></field>{inside}</x>"
    return _pubsub(
        f"<publish node='jobs'><item id='i'><a xmlns='urn:x'/></item></publish><publish-options>{form}</publish-options>"
    )


def test_publish_options(read: Read) -> None:
    """A publish may name the required configuration of the node (P18)."""
    plain = read(_publish("<item id='i'><a xmlns='urn:x'/></item>")).command
    assert isinstance(plain, Publish)
    field = "<field var='pubsub#access_model'><value>open</value></field>"
    assert read(_options(field)).command == replace(plain, options={"pubsub#access_model": ("open",)})
    empty = _pubsub("<publish node='jobs'><item id='i'><a xmlns='urn:x'/></item></publish><publish-options/>")
    for nothing in (_options(""), _options(field, kind="cancel"), empty):
        assert read(nothing).command == plain


@pytest.mark.parametrize(
    ("payload", "kind", "problem"),
    [
        (_options("<field/>"), "set", Problem.OPTIONS_INVALID),
        (_options("", ns.PUBSUB_NODE_CONFIG), "set", Problem.OPTIONS_INVALID),
        (_options(""), "get", Problem.BAD_REQUEST),
        (_pubsub("<publish node='jobs'><item><a/></item></publish><configure/>"), "set", Problem.BAD_REQUEST),
    ],
)
def test_bad_publish_options(fault: Fault, payload: str, kind: str, problem: Problem) -> None:
    """Options without meaning for the node are refused, as is anything else beside a publish."""
    assert fault(payload, kind).problem is problem


def test_other_protocols_are_not_served(fault: Fault) -> None:
    """An IQ in a namespace that is none of ours gets service-unavailable (RFC 6120 §8.4)."""
    assert errors.wire(fault("<query xmlns='jabber:iq:last'/>", "get")).condition == "service-unavailable"


def test_a_monstrous_request_id_is_not_kept(read: Read) -> None:
    """Ids are remembered for replay (Q27), so one that is far too long names no request."""
    command = read(_ending("retract", "<item id='j1'/>"), request="x" * 1000).command
    assert isinstance(command, Retract)
    assert command.request == ""


@pytest.mark.parametrize("missing", ["id", "from"])
def test_no_answer_without_address(make_iq: Callable[..., Iq], missing: str) -> None:
    """Without an id or a sender there is nobody to answer, and nothing is tried (RFC 6120 §8.2.3)."""
    element = make_iq(_pubsub("")).element
    del element.attrib[missing]
    assert stanzas.parse_iq(element) is None


_PLACES = (
    ("<item id='i' partition='3' key='k'><a/></item>", 3, "k"),
    (f"<item id='i' xmlns:q='{ns.STANZAQ}' q:partition='1023' q:key='k k'><a/></item>", 1023, "k k"),
    (f"<hint xmlns='{ns.STANZAQ}' partition='0' key='k'/><item id='i'><a/></item>", 0, "k"),
    # Of the item itself before that of the hint.
    (f"<item id='i' partition='2'><a/></item><hint xmlns='{ns.STANZAQ}' partition='5'/>", 2, ""),
    ("<item id='i'><a/></item>", None, ""),
)


@pytest.mark.parametrize(("inside", "partition", "key"), _PLACES)
def test_places(read: Read, inside: str, partition: int | None, key: str) -> None:
    """E6, E15: a partition and a group key are at the item, or in a hint where a library drops such attributes."""
    published = read(_publish(inside)).command
    assert isinstance(published, Publish) and (published.partition, published.key) == (partition, key)
    for name, kind in (("retract", Retract), ("unlock", Unlock)):
        asked = read(_ending(name, inside)).command
        assert isinstance(asked, kind) and asked.partition == partition
    renewed = read(f"<renew xmlns='{ns.STANZAQ}' node='jobs'>{inside}</renew>").command
    assert isinstance(renewed, Renew) and renewed.partition == partition


@pytest.mark.parametrize(
    ("inside", "hints"),
    [
        ("<item delay='5' priority='9' ttl='60'><a/></item>", Hints(5_000, 9, 60_000)),
        (f"<item xmlns:q='{ns.STANZAQ}' q:priority='0'><a/></item>", Hints(priority=0)),
        (f"<item priority='5'><a/></item><hint xmlns='{ns.STANZAQ}' priority='1' ttl='1'/>", Hints(0, 5, 1_000)),
        ("<item reply='1'><a/></item>", Hints(reply=ReplyMode.TOLD)),
        ("<item keep='1'><a/></item>", Hints(reply=ReplyMode.KEPT)),
        (f"<item xmlns:q='{ns.STANZAQ}' q:keep='true' q:reply='false'><a/></item>", Hints(reply=ReplyMode.KEPT)),
        (f"<item reply='1'><a/></item><hint xmlns='{ns.STANZAQ}' keep='1'/>", Hints(reply=ReplyMode.TOLD)),
        ("<item keep='0'><a/></item>", NO_HINTS),
        ("<item><a/></item>", NO_HINTS),
    ],
)
def test_hints(read: Read, inside: str, hints: Hints) -> None:
    """Q32: a delay and a time to live in seconds, a priority, and what becomes of its end, wherever a group key may be."""
    published = read(_publish(inside)).command
    assert isinstance(published, Publish) and published.hints == hints


@pytest.mark.parametrize(
    "inside",
    [
        "<item confirm='synced'><a/></item>",
        f"<item xmlns:q='{ns.STANZAQ}' q:confirm='synced'><a/></item>",
        f"<item><a/></item><hint xmlns='{ns.STANZAQ}' confirm='synced'/>",
    ],
)
def test_durability(read: Read, inside: str) -> None:
    """A publish may ask how durable its item is to be, wherever a delay may be."""
    published = read(_publish(inside)).command
    assert isinstance(published, Publish) and published.hints.confirm is Durability.SYNCED


@pytest.mark.parametrize(
    ("at", "delay_ms"),
    [
        ("2026-12-01T09:00:00Z", 3_600_000),
        ("2026-12-01t10:00:00.25+01:00", 3_600_250),
        ("2027-12-02T08:00:00Z", 366 * 86_400_000),
        ("2026-12-01T08:00:00-00:00", 0),
        ("1970-01-01T00:00:00Z", 0),
    ],
)
@pytest.mark.parametrize("before", ["", "q:"])
def test_a_time(read: Read, monkeypatch: pytest.MonkeyPatch, at: str, delay_ms: int, before: str) -> None:
    """A time is another way to say a delay, alone and in a batch; one in the past is none."""
    monkeypatch.setattr("time.time", lambda: 1_796_112_000.0)
    item = f"<item xmlns:q='{ns.STANZAQ}' {before}at='{at}'><a/></item>"
    asked = read(_publish(item))
    assert isinstance(asked.command, Publish) and asked.command.hints == Hints(delay_ms)
    hint = f"<item><a/></item><hint xmlns='{ns.STANZAQ}' at='{at}'/>"
    asked = read(_publish(hint))
    assert isinstance(asked.command, Publish) and asked.command.hints.delay_ms == delay_ms


@pytest.mark.parametrize("before", ["", "q:"])
def test_parents(read: Read, before: str) -> None:
    """An item names those that it waits for, of its node or another; blanks, `#` and `%` in a name are encoded."""
    parents = (Parent("a"), Parent("b c#%ü", "n#1 2"), Parent("ü"))
    assert " ".join(map(str, parents)) == "a n%231%202#b%20c%23%25ü ü"
    item = f"<item xmlns:q='{ns.STANZAQ}' {before}after='a n%231%202#b%20c%23%25ü %C3%BC' {before}regardless='1'><a/></item>"
    asked = read(_publish(item))
    assert isinstance(asked.command, Publish)
    assert asked.command.hints == Hints(after=Dependencies(parents, regardless=True))
    assert Hints.parse(str(asked.command.hints)) == asked.command.hints


@pytest.mark.parametrize(
    "marks",
    ["delay=''", "priority=''", "ttl=''",
     "delay='-1'", "delay='1.5'", "delay='31622401'", "priority='10'", "priority='high'", "ttl='0'", "ttl='31622401'",
     "delay='9' ttl='9'", f"ttl='{'9' * 100_000}'", "at=''", "at='tomorrow'", "at='2026-12-01'", "at='2026-12-01T09:00:00'",
     "at='2026-13-01T09:00:00Z'", "at='9999-12-31T23:59:59-23:59'", "at='2020-01-01T00:00:00Z' delay='0'",
     "at='2020-01-01T00:00:00+99:00'", "after='a a'", "after='#a'", "after='n#'", "after='a%2'", "after='%ff'", "regardless='1'",
     "after='a' regardless='maybe'", "keep='maybe'", "confirm=''", "confirm='Synced'",
     f"after='{' '.join(map(str, range(101)))}'", f"after='{'x' * 1024}'",
     f"after='{' '.join(str(number) * 80 for number in range(100, 200))}'"],
)  # fmt: skip
def test_no_such_hints(fault: Fault, marks: str) -> None:
    """Guarantee 7: an impossible value is named, and so is a time to live shorter than the delay."""
    wrong = fault(_publish(f"<item {marks}><a/></item>"))
    assert wrong.problem is Problem.BAD_REQUEST and wrong.detail


@pytest.mark.parametrize(
    ("marks", "problem"),
    [
        ("partition=''", Problem.PARTITION_NOT_FOUND),
        ("partition='1024'", Problem.PARTITION_NOT_FOUND),
        ("partition='-1'", Problem.PARTITION_NOT_FOUND),
        ("partition='x'", Problem.PARTITION_NOT_FOUND),
        (f"partition='{'9' * 100_000}'", Problem.PARTITION_NOT_FOUND),
        (f"key='{'é' * 512}'", Problem.BAD_REQUEST),
    ],
)
def test_no_such_places(fault: Fault, marks: str, problem: Problem) -> None:
    """E7: an impossible partition is refused here already, and a key has the bound of an id."""
    assert fault(_publish(f"<item {marks}><a/></item>")).problem is problem


def test_a_ping(read: Callable[..., DoorAnswer], fault: Fault) -> None:
    """XEP-0199 §4.2: whoever asks whether the service is there is told so."""
    assert read("<ping xmlns='urn:xmpp:ping'/>", "get").content == b""
    assert fault("<ping xmlns='urn:xmpp:ping'/>", "set").problem is Problem.BAD_REQUEST


def test_the_version(read: Callable[..., DoorAnswer]) -> None:
    """XEP-0092 §3: the software has a name and a version, and says nothing of what it runs on (§5)."""
    query = ET.fromstring(read("<query xmlns='jabber:iq:version'/>", "get").content)
    told = {child.tag.rpartition("}")[2]: child.text for child in query}
    assert told == {"name": "stanzaq", "version": version("stanzaq")}


_FOREIGN = "<extra xmlns='urn:x'><deep/></extra>"


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        (_publish("<item id='j1'><a xmlns='urn:x'/></item>%s"), "set"),
        (_pubsub("%s<publish node='jobs'><item id='j1'><a xmlns='urn:x'/></item></publish>%s"), "set"),
        (_ending("retract", "%s<item id='j1'/>%s"), "set"),
        (_ending("unlock", "<item id='j1'/>%s"), "set"),
        (_pubsub("<items node='jobs'/>%s"), "get"),
        (_pubsub("<create node='jobs'/>%s<configure/>"), "set"),
        (_pubsub(f"<subscribe node='jobs' jid='{_WORKER}'/>%s"), "set"),
        (_pubsub(f"<unsubscribe node='jobs' jid='{_WORKER}'/>%s"), "set"),
        (_pubsub("<subscriptions/>%s"), "get"),
        (f"<pubsub xmlns='{ns.PUBSUB_OWNER}'>%s<delete node='jobs'/>%s</pubsub>", "set"),
        (
            f"<pubsub xmlns='{ns.PUBSUB_OWNER}'><collection node='a'>%s<associate node='b'/></collection></pubsub>",
            "set",
        ),
    ],
)
def test_foreign_elements_are_ignored(read: Read, payload: str, kind: str) -> None:
    """RFC 6120 §8.4: an unknown protocol's element does not change the request beside it."""
    plain, extended = (read(payload.replace("%s", each), kind).command for each in ("", _FOREIGN))
    assert plain == extended


def test_foreign_elements_alone(fault: Fault) -> None:
    """RFC 6120 §8.4: a request with nothing else is none."""
    assert fault(_pubsub(_FOREIGN)).problem is Problem.BAD_REQUEST


@pytest.mark.parametrize("item", ["token=''", f"xmlns:q='{ns.STANZAQ}' q:token=''"])
@pytest.mark.parametrize("name", ["retract", "unlock"])
def test_an_empty_token_fences_nothing(fault: Fault, name: str, item: str) -> None:
    """QX14: whoever gives a token means one lock; an empty one is not the same as none."""
    assert fault(_ending(name, f"<item id='j1' {item}/>")).problem is Problem.BAD_REQUEST


@pytest.mark.parametrize(
    "inside",
    [
        "<item id='a' token='7'>{}</item>",
        "<item id='a' token='7'/>{}",
        "<item id='a' token='7'><x xmlns='urn:other'/></item>{}",
        "<item id='a' token='7'>{}<x xmlns='urn:other'/></item><y xmlns='urn:other'/>",
    ],
)
def test_a_result(read: Read, inside: str) -> None:
    """A worker's result is in the item or beside it, whatever else is there (RFC 6120 §8.4)."""
    result = f"<result xmlns='{ns.STANZAQ}'><done xmlns='urn:x'/></result>"
    asked = read(_ending("retract", inside.format(result))).command
    assert isinstance(asked, Complete)
    assert (asked.item_id, asked.token, asked.body_bytes) == ("a", 7, len("<done xmlns='urn:x'/>"))


@pytest.mark.parametrize(
    "inside", ["<item id='a' token='7'>{}</item>", "<item id='a' token='7'/>{}", "<item id='a' token='7'>{}</item>{}"]
)
def test_what_is_published_then(read: Read, fault: Fault, inside: str) -> None:
    """Items that are published with a retract are in its item or beside it; several retracted items have none."""
    then = f"<then xmlns='{ns.STANZAQ}' node='next'><item id='n'><done xmlns='urn:x'/></item></then>"
    asked = read(_ending("retract", inside.format(then, then))).command
    assert isinstance(asked, CompleteAndPublish)
    assert (asked.item_id, asked.token, asked.envelope) == ("a", 7, b"")
    assert [(each.node, each.item_id) for each in asked.publishes] == [("next", "n")] * inside.count("{}")
    refused = fault(_ending("retract", f"{inside.format(then, then)}<item id='b'/>"))
    assert refused.problem is Problem.BAD_REQUEST


@pytest.mark.parametrize(
    "content", ["", "text", "<a xmlns='urn:x'/><b xmlns='urn:x'/>", f"<json xmlns='{ns.JSON}'>NaN</json>"]
)
def test_what_is_no_result(fault: Fault, content: str) -> None:
    """A result is one element, as a payload is."""
    result = f"<result xmlns='{ns.STANZAQ}'>{content}</result>"
    refused = fault(_ending("retract", f"<item id='a'/>{result}"))
    assert refused.problem in {Problem.PAYLOAD_REQUIRED, Problem.PAYLOAD_INVALID}
