"""Replies: one for each request, to whom it came from, from whom it went to."""

from collections.abc import Callable
from typing import Any, get_args
from xml.etree import ElementTree as ET

import pytest

from broker import codec
from broker.model import commands
from broker.model.commands import Browse, Command, Describe, Nodes, Options, Publish, Renew, Retract
from broker.model.items.items import Envelope, Listed, Lock
from broker.model.items.outcomes import End, ItemOutcome
from broker.model.items.qos import Qos
from broker.model.names import Jid
from broker.model.nodes.nodes import Affiliation, NodeRecord
from broker.model.nodes.options import NodeConfig
from broker.model.nodes.schedules import Schedule, ScheduleState, ScheduleStatus
from broker.model.nodes.subscriptions import State, Subscription
from broker.model.nodes.tree import Scope, SubscriptionType
from broker.model.positions import Position
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import (
    AffiliationList,
    Browsed,
    Counted,
    Declared,
    Described,
    Done,
    Ended,
    Extents,
    HeldLocks,
    Listing,
    Managed,
    OwnershipsRenewed,
    Published,
    Purged,
    Refused,
    Renewed,
    Replay,
    Result,
    Retracted,
    RetractedBatch,
    Scheduled,
    ScheduleList,
    Subscribed,
    SubscriptionList,
    Unaffiliated,
    Unlocked,
    Unsubscribed,
)
from broker.model.results.log import LogStart
from frontends.xmpp import namespaces as ns
from frontends.xmpp import replies, requests
from frontends.xmpp.pubsub import paging
from frontends.xmpp.stanzas import DescribedNode, Iq, Question, View
from frontends.xmpp.xml.text import serialise

_ME = Jid("worker@example.org/desk")
_RECORD = NodeRecord("jobs", "1", 1, NodeConfig(), {Jid("o@x"): Affiliation.OWNER, Jid("n@x"): Affiliation.NONE})

MakeIq = Callable[..., Iq]

_DAILY = Schedule("s", "0 9 * * *")
_STATUS = ScheduleStatus(_DAILY, _ME, ScheduleState.ACTIVE, 5, None, "", 0, 0, None, 0)
_OUTCOME = ItemOutcome("1", End.DEAD, "no <disk>", b"", _ME)

# Every command that an IQ can be, with the result of its success.
_SUCCESSES: list[tuple[Command, View | None, Result]] = [
    (Publish("jobs", _ME, None, b"", 0), None, Published("1")),
    (Publish("jobs", _ME, None, b"", 0), View.NOTHING, Published("1")),
    (commands.PrepareMessage(_ME, "m1", Publish("jobs", _ME, None, b"", 0), "m1"), None, Done()),
    (commands.Deliver(_ME, "m1"), None, Done()),
    (Retract("jobs", _ME, "1"), None, Retracted(None)),
    (commands.Complete("jobs", _ME, "1"), None, Retracted(None)),
    (commands.CompleteAndPublish("jobs", _ME, "1"), None, Retracted(None)),
    (commands.ReadOutcome("jobs", _ME, "1"), None, Ended(_OUTCOME)),
    (commands.RetractBatch("jobs", _ME, ()), None, RetractedBatch(())),
    (commands.Unlock("jobs", _ME, "1"), None, Unlocked(_ME)),
    (Renew("jobs", _ME, "1"), None, Renewed(1, 2)),
    (commands.Locks("jobs", _ME), None, HeldLocks(())),
    (commands.RenewOwnership("jobs", _ME), None, OwnershipsRenewed(())),
    (commands.Subscribe("jobs", _ME, _ME, 1), None, Subscribed(_ME, "s", 1)),
    (commands.Commit("jobs", _ME, 0, ""), None, Done()),
    (commands.Read("jobs", _ME, 0, "@earliest", 5), None, Replay(0, (), "", "0", "0", gap=False, more=False)),
    (commands.Partitions("jobs", _ME), None, Extents(())),
    (commands.SetSubscriptionOptions("jobs", _ME, _ME, "s", 1), None, Subscribed(_ME, "s", 1)),
    (Options("jobs", _ME, _ME, "s"), None, Subscribed(_ME, "s", 1)),
    (commands.Unsubscribe("jobs", _ME, _ME, "s"), None, Unsubscribed(_ME, "s")),
    (Browse("jobs", _ME, (), 1), None, Browsed((), more=False)),
    (commands.Declare(None, _ME, {}), None, Declared("x")),
    (commands.Configure("jobs", _ME, {}), None, Done()),
    (Describe("jobs", _ME, as_owner=True), View.CONFIGURATION, Described(_RECORD)),
    (Describe("jobs", _ME, as_owner=True), View.AFFILIATIONS, Described(_RECORD)),
    (commands.Children("jobs", _ME), None, Listing(())),
    (commands.Associate("all", _ME, "jobs"), None, Done()),
    (commands.Dissociate("all", _ME, "jobs"), None, Done()),
    (commands.Affiliate("jobs", _ME, {}), None, Done()),
    (commands.Purge("jobs", _ME), None, Purged(3)),
    (commands.Delete("jobs", _ME), None, Done()),
    (Nodes(_ME), None, Listing(("a",))),
    (Describe("jobs", _ME, as_owner=False), View.DEFAULT_SUBSCRIPTION, Described(_RECORD)),
    (commands.Subscriptions(_ME, None), None, SubscriptionList(())),
    (commands.Affiliations(_ME, None), None, AffiliationList(())),
    (commands.ListSubscribers("jobs", _ME), None, SubscriptionList(())),
    (commands.ManageSubscribers("jobs", _ME, ()), None, Managed(())),
    (commands.ListPending(_ME), None, Listing(())),
    (commands.SendPending("jobs", _ME), None, Done()),
    (commands.PutSchedule("jobs", _ME, _DAILY, b"", 0), None, Scheduled(_STATUS)),
    (commands.PauseSchedule("jobs", _ME, "s", paused=True), None, Scheduled(_STATUS)),
    (commands.ListSchedules("jobs", _ME, 10), None, ScheduleList((_STATUS,))),
    (commands.RemoveSchedule("jobs", _ME, "s"), None, Done()),
]
# Presence, bounces, confirmations and approvals are no requests; a node's counts and a cancel are part of another answer.
_ELSEWHERE = {commands.Presence, commands.Bounce, commands.Confirm, commands.Stats, commands.Approve}
_ELSEWHERE |= {commands.Receive, commands.Bind, commands.Unbind}
_ELSEWHERE |= {commands.Reserve, commands.Redeem, commands.ListRequests, commands.Erase, commands.NoteErasure}
_ELSEWHERE |= {commands.InspectItems, commands.MoveItems, commands.Release, commands.Overview, commands.ShowHistory}
_ELSEWHERE |= {commands.Frontends, commands.Disconnect, commands.Cancel, commands.ListQuotas, commands.SetQuota}
_ELSEWHERE |= {commands.ImportItem, commands.ListEnds, commands.RestoreNode}


def _content(iq: Iq, command: Command, outcome: Result, view: View | None = None) -> ET.Element:
    reply = ET.fromstring(replies.answer(Question(iq, command, view), outcome))
    assert reply.get("type") == "result"
    return reply[0]


def test_every_command_has_its_success() -> None:
    """The list below leaves no command out."""
    assert {type(command) for command, _, _ in _SUCCESSES} == set(get_args(Command)) - _ELSEWHERE


@pytest.mark.parametrize(("command", "view", "outcome"), _SUCCESSES)
def test_every_question_has_one_reply(make_iq: MakeIq, command: Command, view: View | None, outcome: Result) -> None:
    """Each success and each refusal is one IQ with the request's id and its addresses swapped (Q26, QX6, X9)."""
    question = Question(make_iq("", request="<1>"), command, view)
    for result, kind in ((outcome, "result"), (Refused(Problem.TIMED_OUT, "too <late>"), "error")):
        reply = ET.fromstring(replies.answer(question, result))
        assert reply.attrib == {"type": kind, "id": "<1>", "to": _ME, "from": "queue.example.org"}


def test_a_refusal_says_what_and_for_how_long(make_iq: MakeIq) -> None:
    """A refusal has its text, and the time to wait if that is known; an end that is not kept is not found."""
    publish = Question(make_iq(""), Publish("jobs", _ME, None, b"", 0))
    (error,) = ET.fromstring(replies.answer(publish, Refused(Problem.QUOTA_EXCEEDED, "too <much>", 1_500)))
    assert error.findtext(f"{{{ns.STANZAS}}}text") == "too <much>"
    assert [each.attrib for each in error if each.tag.startswith(f"{{{ns.STANZAQ}}}")] == [{"retry-after": "1.5"}]
    reply = ET.fromstring(replies.answer(Question(make_iq(""), commands.ReadOutcome("jobs", _ME, "1")), Ended(None)))
    assert (reply.get("to"), reply[0].find(f"{{{ns.STANZAS}}}item-not-found") is not None) == (_ME, True)


def test_an_outcome_of_something_else_is_our_fault(make_iq: MakeIq) -> None:
    """A result that does not answer the command is a defect, and is never sent as an answer."""
    for outcome in (Renewed(1, 2), Counted(0, 0, 0, 0, 0, 0, 0, 0)):
        with pytest.raises(TypeError):
            replies.answer(Question(make_iq(""), Publish("jobs", _ME, None, b"", 0)), outcome)
    with pytest.raises(TypeError):
        replies.answer(Question(make_iq(""), Describe("jobs", _ME, as_owner=False), View.NOTHING), Described(_RECORD))


def test_published(make_iq: MakeIq) -> None:
    """A publisher learns the id (P14), and that an ignored repeat was one (X1)."""
    publish = Publish("jobs", _ME, None, b"", 0)
    item = _content(make_iq(""), publish, Published("j'1"))[0][0]
    assert item.attrib == {"id": "j'1"}
    repeat = _content(make_iq(""), publish, Published("j1", duplicate=True))[0][0]
    assert repeat.get(f"{{{ns.STANZAQ}}}duplicate") == "true"


def test_renewed_and_held(make_iq: MakeIq) -> None:
    """A worker learns until when it holds an item, and what it holds (QX11, QX12)."""
    renewed = _content(make_iq(""), Renew("jobs", _ME, "j1"), Renewed(7, 5))
    assert (renewed.tag, renewed.get("node")) == (f"{{{ns.STANZAQ}}}renew", "jobs")
    assert renewed[0].attrib == {"id": "j1", "token": "7", "expires": "1970-01-01T00:00:00.005Z"}
    held = _content(
        make_iq(""), commands.Locks("jobs", _ME), HeldLocks((Lock("j1", 7, 1, 20, 5), Lock("j2", 8, 2, 20, 6)))
    )
    assert [(lock.tag, lock.get("item"), lock.get("token")) for lock in held] == [
        (f"{{{ns.STANZAQ}}}lock", "j1", "7"),
        (f"{{{ns.STANZAQ}}}lock", "j2", "8"),
    ]


def test_options(make_iq: MakeIq) -> None:
    """The form of a subscription's options says what is granted now, and what else there is to choose (P13)."""
    options = _content(make_iq(""), Options("jobs", _ME, _ME, "s"), Subscribed(_ME, "s", 9, Qos.ASSURED))[0]
    assert options.attrib == {"node": "jobs", "jid": _ME, "subid": "s"}
    fields = {field.get("var"): field for field in options.iter(f"{{{ns.FORM}}}field")}
    assert fields["pubsub#queue_requests"].findtext(f"{{{ns.FORM}}}value") == "9"
    assert fields["stanzaq#qos"].findtext(f"{{{ns.FORM}}}value") == "assured"
    choices = [option[0].text for option in fields["stanzaq#qos"].iter(f"{{{ns.FORM}}}option")]
    assert choices == ["unacknowledged", "acknowledged", "assured"]


_KINDS = ("items", "nodes", "all")


@pytest.mark.parametrize(
    ("scope", "shown"),
    [
        (None, []),
        *[
            (
                Scope(SubscriptionType.ALL, depth),
                [
                    ("pubsub#subscription_type", "list-single", ("all",), _KINDS, False),
                    ("pubsub#subscription_depth", "text-single", (words,), (), False),
                ],
            )
            for depth, words in ((None, "all"), (3, "3"))
        ],
    ],
)
def test_the_form_of_options(make_iq: MakeIq, scope: Scope | None, shown: list[tuple[Any, ...]]) -> None:
    """P13, H5: each field of the form has its kind and its choices; of a collection also what it is for and how deep it goes."""
    pubsub = _content(make_iq(""), Options("jobs", _ME, _ME, "s"), Subscribed(_ME, "s", 9, scope=scope))
    (form,) = pubsub.iter(f"{{{ns.FORM}}}x")
    fields = [
        (
            field.get("var"),
            field.get("type"),
            tuple(value.text for value in field.iterfind(f"{{{ns.FORM}}}value")),
            tuple(option[0].text for option in field.iterfind(f"{{{ns.FORM}}}option")),
            field.find(f"{{{ns.FORM}}}required") is not None,
        )
        for field in form
    ]
    assert form.get("type") == "form"
    assert fields[:4] == [
        ("FORM_TYPE", "hidden", (ns.PUBSUB_SUBSCRIBE_OPTIONS,), (), False),
        ("pubsub#queue_requests", "text-single", ("9",), (), True),
        ("stanzaq#qos", "list-single", ("unacknowledged",), ("unacknowledged", "acknowledged", "assured"), False),
        ("pubsub#expire", "text-single", ("presence",), (), False),
    ]
    assert fields[4] == ("stanzaq#batch", "text-single", ("1",), (), False)
    assert [field for field in fields if str(field[0]).startswith("pubsub#subscription_")] == shown


def test_streams(make_iq: MakeIq) -> None:
    """E11, EX7: a log's reader gets its partitions, the offset after which it reads, and any gap."""
    granted = Subscribed(_ME, "s", 9, reads=True, streams=(LogStart(0, "o1", gap=False), LogStart(3, "o2", gap=True)))
    pubsub = _content(make_iq(""), commands.Subscribe("jobs", _ME, _ME, 9), granted)
    values = {field.get("var"): [value.text for value in field] for field in pubsub.iter(f"{{{ns.FORM}}}field")}
    assert values["stanzaq#partition"] == ["0", "3"]
    assert values["stanzaq#start"] == [">o1", ">o2"] and values["stanzaq#gap"] == ["0", "1"]


def test_an_error_with_the_form(make_iq: MakeIq) -> None:
    """Q5: a request with neither node nor JID gets the required form, too."""
    iq = make_iq(f"<pubsub xmlns='{ns.PUBSUB}'><subscribe/></pubsub>")
    error = ET.fromstring(replies.write_refused(iq, MalformedRequest(Problem.OPTIONS_REQUIRED)))
    assert [child.attrib for child in error[0]] == [{"jid": "", "node": ""}] * 2


@pytest.mark.parametrize(("qos", "shown"), [(Qos.UNACKNOWLEDGED, None), (Qos.ASSURED, "assured")])
def test_subscribed_at_a_level(make_iq: MakeIq, qos: Qos, shown: str | None) -> None:
    """A requested quality of service is in the answer; without a request the answer is as XEP-0254 shows it."""
    command = commands.Subscribe("jobs", _ME, _ME, 1, qos)
    pubsub = _content(make_iq(""), command, Subscribed(_ME, "s", 1, qos))
    values = {field.get("var"): field[0].text for field in pubsub.iter(f"{{{ns.FORM}}}field")}
    assert values.get("stanzaq#qos") == shown and values["pubsub#queue_requests"] == "1"


@pytest.mark.parametrize(("batch", "shown"), [(1, None), (2, "2")])
def test_subscribed_with_batches(make_iq: MakeIq, batch: int, shown: str | None) -> None:
    """The answer says of how many items a delivery may be, if of several (urn:stanzaq:0#batch)."""
    pubsub = _content(make_iq(""), commands.Subscribe("jobs", _ME, _ME, 1), Subscribed(_ME, "s", 1, batch=batch))
    values = {field.get("var"): field[0].text for field in pubsub.iter(f"{{{ns.FORM}}}field")}
    assert values.get("stanzaq#batch") == shown


@pytest.mark.parametrize(("until_ms", "shown"), [(0, None), (5_000, "1970-01-01T00:00:05.000Z")])
def test_leases(make_iq: MakeIq, until_ms: int, shown: str | None) -> None:
    """A subscription with an expiry gets the granted one (P31); its form says `presence` when there is none."""
    granted = Subscribed(_ME, "s", 1, until_ms=until_ms)
    pubsub = _content(make_iq(""), commands.Subscribe("jobs", _ME, _ME, 1), granted)
    values = {field.get("var"): field[0].text for field in pubsub.iter(f"{{{ns.FORM}}}field")}
    assert (pubsub[0].get("expiry"), values.get("pubsub#expire")) == (shown, shown)
    options = _content(make_iq(""), Options("jobs", _ME, _ME, "s"), granted)
    values = {field.get("var"): field[0].text for field in options.iter(f"{{{ns.FORM}}}field")}
    assert values["pubsub#expire"] == (shown or "presence")


def test_selectors(make_iq: MakeIq) -> None:
    """Issue 9: a selector is shown as requested, and can be filled in where there is none; streams and owners have none."""

    def shown(command: commands.Command, granted: Subscribed) -> str | None:
        form = _content(make_iq(""), command, granted).iter(f"{{{ns.FORM}}}field")
        return {field.get("var"): field[0].text or "" for field in form}.get("stanzaq#selector")

    ask, form = commands.Subscribe("jobs", _ME, _ME, 1), Options("jobs", _ME, _ME, "s")
    chosen, plain = Subscribed(_ME, "s", 1, selector="a < '1'"), Subscribed(_ME, "s", 1)
    assert (shown(ask, chosen), shown(form, chosen)) == ("a < '1'", "a < '1'")
    assert (shown(ask, plain), shown(form, plain)) == (None, "")
    assert shown(form, Subscribed(_ME, "s", 1, reads=True)) is None


def test_browsed(make_iq: MakeIq) -> None:
    """A browse shows payloads with their publishers (P21); none found is an empty list, no error."""
    record = codec.pack(Envelope(b"<a xmlns='urn:x'/>"))
    browse = Browse("jobs", _ME, (), 9)
    items = _content(make_iq(""), browse, Browsed((_listed("j1", record),), more=False))[0]
    assert (items.get("node"), items[0].attrib, items[0][0].tag) == (
        "jobs",
        {"id": "j1", "publisher": "p@x"},
        "{urn:x}a",
    )
    assert len(_content(make_iq(""), browse, Browsed((), more=False))[0]) == 0


def test_unreadable(make_iq: MakeIq) -> None:
    """A browse shows an item that another version wrote as its stored bytes, between the others."""
    good = codec.pack(Envelope(b"<a xmlns='urn:x'/>"))
    found = tuple(_listed(item, record) for item, record in (("a", good), ("bad", b"\xc1"), ("b", good)))
    items = _content(make_iq(""), Browse("jobs", _ME, (), 9), Browsed(found, more=False))[0]
    assert [item.get("id") for item in items] == ["a", "bad", "b"]
    assert (items[1][0].get("type"), items[1][0].text) == ("application/octet-stream", "wQ==")


def test_a_browse_fits_a_stanza(make_iq: MakeIq) -> None:
    """However large the items are, a browse stops at what servers let through; one is always shown."""
    large = codec.pack(Envelope(b"<a xmlns=''>%b</a>" % (b"x" * 600_000)))
    found = tuple(_listed(str(n), large) for n in range(3))
    for backwards, shown in ((False, "0"), (True, "2")):
        browse = Browse("jobs", _ME, (), 9, backwards=backwards)
        items, page = _content(make_iq(""), browse, Browsed(found, more=False))
        assert [item.get("id") for item in items] == [shown]
        assert {page[0].text, page[1].text} == {f"0-1-{shown}"}


@pytest.mark.parametrize(("sizes", "shown"), [([], 0), ([262_144, 262_144, 1], 2), ([262_144, 262_145, 1], 1)])
def test_as_many_as_fit(make_iq: MakeIq, sizes: list[int], shown: int) -> None:
    """P21: a browse shows items whole, and as many of them as half a MiB has room for."""
    empty = b"<a xmlns=''></a>"
    bodies = [empty.replace(b"><", b">%b<" % (b"x" * (size - len(empty)))) for size in sizes]
    found = tuple(_listed(str(n), codec.pack(Envelope(body))) for n, body in enumerate(bodies))
    reply = replies.answer(Question(make_iq(""), Browse("jobs", _ME, (), 9)), Browsed(found, more=False))
    items = "".join(f"<item id='{n}' publisher='p@x'>{body.decode()}</item>" for n, body in enumerate(bodies[:shown]))
    before, _, after = reply.decode().partition(items or "</items>")
    assert before.endswith(f"<pubsub xmlns='{ns.PUBSUB}'><items node='jobs'>")
    assert after.startswith("</items><set " if sizes else "</pubsub></iq>")


def test_pages_of_items(make_iq: MakeIq) -> None:
    """A client that asks for a page, or gets only a part, learns its first, its last, and the count (P21)."""
    found = tuple(_listed(str(number), codec.pack(Envelope(b"<a xmlns='urn:x'/>"))) for number in range(3))
    browse = Browse("jobs", _ME, (), 3)
    asked = f"<pubsub xmlns='{ns.PUBSUB}'><items node='jobs'/><set xmlns='{ns.RSM}'/></pubsub>"
    for inside, more in ((asked, False), ("", True)):
        first, last, count = _content(make_iq(inside), browse, Browsed(found, more, 9))[1]
        assert (first.text, first.get("index"), last.text, count.text) == ("0-1-0", "0", "0-1-2", "9")
    assert len(_content(make_iq(""), browse, Browsed(found, more=False, count=3))) == 1
    later = Browse("jobs", _ME, (), 3, after=Position(0, 0, 0))
    assert _content(make_iq(asked), later, Browsed(found, more=True, count=9))[1][0].get("index") is None
    (count,) = _content(make_iq(asked), later, Browsed((), more=False, count=9))[1]
    assert count.text == "9"


def _listed(item_id: str, record: bytes) -> Listed:
    place = Position(1, int(item_id) if item_id.isdigit() else 0, 0)
    return Listed(place, item_id, "waiting", Jid("p@x"), 1, record)


def test_affiliations(make_iq: MakeIq) -> None:
    """An owner sees who has which affiliation; `none` is no entry (P2)."""
    describe = Describe("jobs", _ME, as_owner=True)
    shown = _content(make_iq(""), describe, Described(_RECORD), View.AFFILIATIONS)[0]
    assert [entry.attrib for entry in shown] == [{"jid": "o@x", "affiliation": "owner"}]


def test_pending(make_iq: MakeIq) -> None:
    """A subscription that waits for approval is answered so, and without options yet (P5)."""
    command = commands.Subscribe("jobs", _ME, _ME, 1)
    pubsub = _content(make_iq(""), command, Subscribed(_ME, "s", 1, state=State.PENDING))
    assert [child.attrib for child in pubsub] == [{"node": "jobs", "jid": _ME, "subid": "s", "subscription": "pending"}]


def test_what_could_not_be_managed(make_iq: MakeIq) -> None:
    """P26: entries that failed come back as they are, in the error, and those alone."""
    failed = (Subscription("jobs", Jid("w@x/<1>"), "7", State.NONE),)
    question = Question(make_iq(""), commands.ManageSubscribers("jobs", _ME, ()))
    reply = ET.fromstring(replies.answer(question, Managed(failed)))
    listed, error = reply[0][0], reply[1]
    assert (reply.get("type"), listed.tag, listed.get("node")) == (
        "error",
        f"{{{ns.PUBSUB_OWNER}}}subscriptions",
        "jobs",
    )
    assert [entry.attrib for entry in listed] == [{"jid": "w@x/<1>", "subid": "7", "subscription": "none"}]
    assert (error.get("type"), error[0].tag) == ("modify", f"{{{ns.STANZAS}}}not-acceptable")


def test_affiliations_that_stay(make_iq: MakeIq) -> None:
    """P2, P26: an owner whose request is refused reads the present affiliations of those named."""
    question = Question(make_iq(""), commands.Affiliate("jobs", _ME, {}))
    reply = ET.fromstring(replies.answer(question, Unaffiliated("why", ((Jid("o@x"), Affiliation.OWNER),))))
    assert (reply.get("type"), reply[1][0].tag) == ("error", f"{{{ns.STANZAS}}}not-acceptable")
    assert [entry.attrib for entry in reply[0][0]] == [{"jid": "o@x", "affiliation": "owner"}]


def test_counted(make_iq: MakeIq) -> None:
    """A node's info needs its counts; without them its asker gets the error."""
    question = DescribedNode(make_iq(""), commands.Stats("jobs", _ME), record=_RECORD)
    good = ET.fromstring(replies.answer(question, Counted(0, 0, 0, 0, 0, 0, 0, 0)))
    bad = ET.fromstring(replies.answer(question, Refused(Problem.UNAVAILABLE)))
    assert (good.get("type"), bad.get("type")) == ("result", "error")
    with pytest.raises(TypeError):
        replies.answer(question, Done())


@pytest.mark.parametrize(
    ("payload", "echoed"),
    [
        (f"<pubsub xmlns='{ns.PUBSUB}'><retract><item id='1'/></retract></pubsub>", True),
        (f"<pubsub xmlns='{ns.PUBSUB}'><unlock xmlns='{ns.QUEUEING}'/></pubsub>", True),
        (f"<pubsub xmlns='{ns.PUBSUB}'><subscribe jid='a' node='b'/><options/></pubsub>", True),
        (f"<pubsub xmlns='{ns.PUBSUB}'><publish><item><secret/></item></publish></pubsub>", False),
        (f"<pubsub xmlns='{ns.PUBSUB}'><retract node='{'x' * 10_000}'/></pubsub>", False),
        (f"<pubsub xmlns='{ns.PUBSUB}'><retract>{'<a>' * 1000}{'</a>' * 1000}</retract></pubsub>", False),
        (f"<pubsub xmlns='{ns.PUBSUB}'/>", False),
        ("", False),
    ],
)
def test_errors_echo_what_is_small(make_iq: MakeIq, payload: str, echoed: bool) -> None:  # noqa: FBT001
    """Requests are echoed as in XEP-0254's examples; payloads, monsters and nothing are not (Q31)."""
    iq = make_iq(payload)
    with pytest.raises(MalformedRequest) as caught:
        requests.read(iq)
    error = ET.fromstring(replies.write_refused(iq, caught.value))
    assert [child.tag for child in error][-1] == "error"
    assert (len(error) == 2) is echoed
    if echoed:
        texts = (ET.tostring(error[0]), serialise(iq.element[0]))
        assert len({ET.canonicalize(text.decode(), rewrite_prefixes=True) for text in texts}) == 1


_ASKED = f"""<pubsub xmlns='{ns.PUBSUB}'><options><x xmlns='{ns.FORM}' type='submit'>
<field var='pubsub#queue_requests'><value>1001</value></field>%s</x></options></pubsub>"""


@pytest.mark.parametrize(
    "command", [commands.Subscribe("jobs", _ME, _ME, 1000), commands.SetSubscriptionOptions("jobs", _ME, _ME, "", 1000)]
)
@pytest.mark.parametrize("deliver", ["", "<field var='pubsub#deliver'><value>1</value></field>"])
def test_options_in_force(make_iq: MakeIq, command: Command, deliver: str) -> None:
    """Q9, XEP-0060 §6.3.7: the result has the options in force, which may be less than requested, and no others."""
    granted = Subscribed(_ME, "s", 1000, until_ms=5_000)
    pubsub = _content(make_iq(_ASKED % deliver), command, granted)
    (form,) = pubsub.iter(f"{{{ns.FORM}}}x")
    values = {field.get("var"): field[0].text for field in form.iter(f"{{{ns.FORM}}}field")}
    assert (form.get("type"), values["pubsub#queue_requests"]) == ("result", "1000")
    assert values["pubsub#expire"] == "1970-01-01T00:00:05.000Z"
    assert ("pubsub#deliver" in values) is bool(deliver)


def test_a_count_has_no_attributes() -> None:
    """XEP-0059 §6: the schema's `<count/>` is a number and nothing else; strict libraries refuse more."""
    count = ET.fromstring(paging.write_page(("a", "b"), 7, 0)).find(f"{{{ns.RSM}}}count")
    assert count is not None and (count.text, count.attrib) == ("7", {})
