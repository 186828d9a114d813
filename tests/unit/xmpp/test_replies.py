"""Replies: one for each request, to whom it came from, from whom it went to."""

from collections.abc import Callable
from typing import get_args
from xml.etree import ElementTree as ET

import pytest

from broker import codec
from broker.model import commands
from broker.model.commands import Browse, Command, Describe, Nodes, Options, Publish, Renew, Retract
from broker.model.items import Envelope, Listed, Lock
from broker.model.names import Jid
from broker.model.nodes import Affiliation, NodeRecord
from broker.model.options import NodeConfig
from broker.model.problems import MalformedRequest, Problem
from broker.model.qos import Qos
from broker.model.results import (
    Browsed,
    Counted,
    Declared,
    Described,
    Done,
    Extents,
    Held,
    Kept,
    Listing,
    Published,
    Purged,
    Refused,
    Renewed,
    Replay,
    Result,
    Retracted,
    Subscribed,
    Unlocked,
    Unsubscribed,
)
from frontends.xmpp import elements, replies, requests
from frontends.xmpp import namespaces as ns
from frontends.xmpp.stanzas import Iq, Question, View

_ME = Jid("worker@example.org/desk")
_RECORD = NodeRecord("jobs", "1", 1, NodeConfig(), {Jid("o@x"): Affiliation.OWNER, Jid("n@x"): Affiliation.NONE})

MakeIq = Callable[..., Iq]

# Every command that an IQ can be, with the result of its success.
_SUCCESSES: list[tuple[Command, View | None, Result]] = [
    (Publish("jobs", _ME, None, b"", 0), None, Published("1")),
    (Publish("jobs", _ME, None, b"", 0), View.NOTHING, Published("1")),
    (commands.Hold(_ME, "m1", Publish("jobs", _ME, None, b"", 0), "m1"), None, Done()),
    (commands.Deliver(_ME, "m1"), None, Done()),
    (Retract("jobs", _ME, "1"), None, Retracted(None)),
    (commands.Unlock("jobs", _ME, "1"), None, Unlocked(_ME)),
    (Renew("jobs", _ME, "1"), None, Renewed(1, 2)),
    (commands.Locks("jobs", _ME), None, Held(())),
    (commands.Keep("jobs", _ME), None, Kept(())),
    (commands.Subscribe("jobs", _ME, _ME, 1), None, Subscribed(_ME, "s", 1)),
    (commands.Commit("jobs", _ME, 0, ""), None, Done()),
    (commands.Read("jobs", _ME, 0, "@earliest", 5), None, Replay(0, (), "", "0", "0", gap=False, more=False)),
    (commands.Partitions("jobs", _ME), None, Extents(())),
    (commands.Adjust("jobs", _ME, _ME, "s", 1), None, Subscribed(_ME, "s", 1)),
    (Options("jobs", _ME, _ME, "s"), None, Subscribed(_ME, "s", 1)),
    (commands.Unsubscribe("jobs", _ME, _ME, "s"), None, Unsubscribed(_ME, "s")),
    (Browse("jobs", _ME, (), 1), None, Browsed((), more=False)),
    (commands.Declare(None, _ME, {}), None, Declared("x")),
    (commands.Configure("jobs", _ME, {}), None, Done()),
    (Describe("jobs", _ME, as_owner=True), View.CONFIGURATION, Described(_RECORD)),
    (Describe("jobs", _ME, as_owner=True), View.AFFILIATIONS, Described(_RECORD)),
    (Describe("jobs", _ME, as_owner=False), View.ITEMS, Described(_RECORD)),
    (commands.Affiliate("jobs", _ME, {}), None, Done()),
    (commands.Purge("jobs", _ME), None, Purged(3)),
    (commands.Delete("jobs", _ME), None, Done()),
    (Nodes(_ME), None, Listing(("a",))),
]
# Presence, bounces and confirmations are no requests; a node's counts are part of another answer.
_ELSEWHERE = {commands.Presence, commands.Bounce, commands.Confirm, commands.Stats}


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


def test_an_outcome_of_something_else_is_our_fault(make_iq: MakeIq) -> None:
    """A result that does not answer the command is a defect, never sent as if it were an answer."""
    for outcome in (Renewed(1, 2), Counted(0, 0, 0, 0, 0, 0, 0, 0)):
        with pytest.raises(TypeError):
            replies.answer(Question(make_iq(""), Publish("jobs", _ME, None, b"", 0)), outcome)
    with pytest.raises(TypeError):
        replies.answer(Question(make_iq(""), Describe("jobs", _ME, as_owner=False), View.INFO), Described(_RECORD))


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
    held = _content(make_iq(""), commands.Locks("jobs", _ME), Held((Lock("j1", 7, 1, 20, 5), Lock("j2", 8, 2, 20, 6))))
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


@pytest.mark.parametrize(("qos", "shown"), [(Qos.UNACKNOWLEDGED, None), (Qos.ASSURED, "assured")])
def test_subscribed_at_a_level(make_iq: MakeIq, qos: Qos, shown: str | None) -> None:
    """Who asked for a quality of service reads that it is granted; who did not is answered as XEP-0254 shows it."""
    command = commands.Subscribe("jobs", _ME, _ME, 1, qos)
    pubsub = _content(make_iq(""), command, Subscribed(_ME, "s", 1, qos))
    values = {field.get("var"): field[0].text for field in pubsub.iter(f"{{{ns.FORM}}}field")}
    assert values.get("stanzaq#qos") == shown and values["pubsub#queue_requests"] == "1"


def test_browsed(make_iq: MakeIq) -> None:
    """A browse shows payloads with their publishers (P21); none found is an empty list, no error."""
    record = codec.pack(Envelope(b"<a xmlns='urn:x'/>"))
    browse = Browse("jobs", _ME, (), 9)
    items = _content(make_iq(""), browse, Browsed((Listed("j1", "waiting", Jid("p@x"), 1, record),), more=False))[0]
    assert (items.get("node"), items[0].attrib, items[0][0].tag) == (
        "jobs",
        {"id": "j1", "publisher": "p@x"},
        "{urn:x}a",
    )
    assert len(_content(make_iq(""), browse, Browsed((), more=False))[0]) == 0


def test_a_browse_fits_a_stanza(make_iq: MakeIq) -> None:
    """However large the items are, a browse stops at what servers let through; one is always shown."""
    large = codec.pack(Envelope(b"<a xmlns=''>%b</a>" % (b"x" * 600_000)))
    found = tuple(Listed(str(n), "waiting", Jid("p@x"), 1, large) for n in range(3))
    assert len(_content(make_iq(""), Browse("jobs", _ME, (), 9), Browsed(found, more=False))[0]) == 1


def test_affiliations(make_iq: MakeIq) -> None:
    """An owner sees who has which affiliation; `none` is no entry (P2)."""
    describe = Describe("jobs", _ME, as_owner=True)
    shown = _content(make_iq(""), describe, Described(_RECORD), View.AFFILIATIONS)[0]
    assert [entry.attrib for entry in shown] == [{"jid": "o@x", "affiliation": "owner"}]


def test_counted(make_iq: MakeIq) -> None:
    """A node's info needs its counts; without them its asker gets the error."""
    good = ET.fromstring(replies.counted(make_iq(""), _RECORD, Counted(0, 0, 0, 0, 0, 0, 0, 0)))
    bad = ET.fromstring(replies.counted(make_iq(""), _RECORD, Refused(Problem.UNAVAILABLE)))
    assert (good.get("type"), bad.get("type")) == ("result", "error")
    with pytest.raises(TypeError):
        replies.counted(make_iq(""), _RECORD, Done())


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
    error = ET.fromstring(replies.refused(iq, caught.value))
    assert [child.tag for child in error][-1] == "error"
    assert (len(error) == 2) is echoed
    if echoed:
        texts = (ET.tostring(error[0]), elements.serialise(iq.element[0]))
        assert len({ET.canonicalize(text.decode(), rewrite_prefixes=True) for text in texts}) == 1
