"""Requests about subscriptions and their options."""

from collections.abc import Callable
from xml.etree import ElementTree as ET

import pytest

from broker.model.commands import Describe, Options, SetSubscriptionOptions, Subscribe, Unsubscribe
from broker.model.items.qos import SENT, Qos
from broker.model.names import Jid
from broker.model.nodes.options import MAX_CREDIT, NodeConfig
from broker.model.nodes.tree import Scope, SubscriptionType
from broker.model.problems import MalformedRequest, Problem
from frontends.xmpp import namespaces as ns
from frontends.xmpp.pubsub import subscriptions
from frontends.xmpp.stanzas import DoorAnswer, Question, View

_FULL = Jid("worker@example.org/desk")
_BARE = Jid("worker@example.org")

Read = Callable[..., Question]
Fault = Callable[..., MalformedRequest]


def _form(*fields: tuple[str, str], kind: str = "submit", form_type: str = ns.PUBSUB_SUBSCRIBE_OPTIONS) -> str:
    inside = "".join(
        f"<field var='{name}'><value>{value}</value></field>" for name, value in (("FORM_TYPE", form_type), *fields)
    )
    return f"<x xmlns='{ns.FORM}' type='{kind}'>{inside}</x>"


def _credit(value: str, name: str = "pubsub#queue_requests") -> str:
    return _form((name, value))


def _subscribe(options: str, about: str = f"jid='{_FULL}' node='jobs'") -> str:
    return f"<pubsub xmlns='{ns.PUBSUB}'><subscribe {about}/>{options}</pubsub>"


def _options(form: str, about: str = "") -> str:
    return f"<options {about}>{form}</options>"


@pytest.mark.parametrize("jid", [_FULL, _BARE, "Worker@EXAMPLE.org", "worker@example.org/phone"])
@pytest.mark.parametrize("name", ["pubsub#queue_requests", "queue_requests"])
def test_subscribe(read: Read, jid: str, name: str) -> None:
    """A worker subscribes its bare or full JID; the field has either of its two names (Q8, Q10, QX10)."""
    asked = read(_subscribe(_options(_credit("5", name)), f"jid='{jid}' node='jobs'"))
    assert asked.command == Subscribe("jobs", _FULL, Jid(jid.replace("Worker@EXAMPLE", "worker@example")), 5)


@pytest.mark.parametrize(
    ("asked", "granted"), [("1", 1), ("1000", 1000), ("1001", MAX_CREDIT), ("1000000", MAX_CREDIT)]
)
def test_credit_is_clamped(read: Read, asked: str, granted: int) -> None:
    """More credit than anyone gets is cut to the most, which the result will say (Q9, Q11)."""
    command = read(_subscribe(_options(_credit(asked)))).command
    assert isinstance(command, Subscribe)
    assert command.credit == granted


@pytest.mark.parametrize(
    "credit", ["0", "-1", "abc", "", "1000000000", "1000001", "5.0", " 5", "\u0665", "9" * 100_000]
)
def test_bad_credit(fault: Fault, credit: str) -> None:
    """What is no positive number within reason is refused, not mended (Q11)."""
    assert fault(_subscribe(_options(_credit(credit)))).problem is Problem.OPTIONS_INVALID


@pytest.mark.parametrize("options", [_options(""), "<options node='jobs'/>"])
def test_options_are_required(fault: Fault, options: str) -> None:
    """Options without their form are answered with the form (Q5, QX9)."""
    assert fault(_subscribe(options)).problem is Problem.OPTIONS_REQUIRED


@pytest.mark.parametrize("options", ["", _options(_form())])
def test_credit_may_be_unsaid(read: Read, options: str) -> None:
    """The node's record decides whether credit is required: a queue refuses (Q5), a log does without."""
    command = read(_subscribe(options)).command
    assert isinstance(command, Subscribe) and command.credit is None


@pytest.mark.parametrize(
    "form",
    [
        _form(("pubsub#queue_requests", "5"), kind="form"),
        _form(("pubsub#queue_requests", "5"), kind="result"),
        _form(("pubsub#queue_requests", "5"), kind="cancel"),
        _form(("pubsub#queue_requests", "5"), form_type=ns.PUBSUB_NODE_CONFIG),
        _form(("pubsub#queue_requests", "5"), ("queue_requests", "6")),
        _form(("pubsub#queue_requests", "5"), ("pubsub#deliver", "0")),
        _form(("pubsub#queue_requests", "5</value><value>6")),
    ],
)
def test_bad_forms(fault: Fault, form: str) -> None:
    """A form of the wrong type, of another kind, or with options that cannot be had is refused (Q11)."""
    assert fault(_subscribe(_options(form))).problem is Problem.OPTIONS_INVALID


@pytest.mark.parametrize(
    ("text", "until_ms"),
    [
        ("1970-01-01T00:00:05Z", 5_000),
        ("2026-11-22T12:00:00.5+02:00", 1_795_341_600_500),
        ("1970-01-01T00:00:00Z", 1),
        ("1066-10-14T09:00:00Z", 1),
        ("presence", 0),
    ],
)
def test_leases(read: Read, text: str, until_ms: int) -> None:
    """A subscription ends at a moment, or with the presence of what is subscribed as all do (P31)."""
    form = _form(("pubsub#queue_requests", "5"), ("pubsub#expire", text))
    assert read(_subscribe(_options(form))).command == Subscribe("jobs", _FULL, _FULL, 5, until_ms=until_ms)
    adjust = f"<pubsub xmlns='{ns.PUBSUB}'><options node='jobs' jid='{_FULL}'>{{}}</options></pubsub>"
    assert read(adjust.format(form)).command == SetSubscriptionOptions("jobs", _FULL, _FULL, "", 5, None, until_ms)
    assert read(adjust.format(_credit("5"))).command == SetSubscriptionOptions("jobs", _FULL, _FULL, "", 5, None, None)


def test_programs(read: Read) -> None:
    """The worker's program is what it says, printable and cut."""
    form = _form(("pubsub#queue_requests", "5"), ("stanzaq#client", f"stanzaq/1.2.3\n(worker){'x' * 200}"))
    told = f"stanzaq/1.2.3(worker){'x' * 107}"
    assert read(_subscribe(_options(form))).command == Subscribe("jobs", _FULL, _FULL, 5, client=told)


@pytest.mark.parametrize(
    "text", ["", "soon", "5", "2026-11-22", "2026-13-22T10:00:00Z", "2026-11-22T10:00:00", "1" * 100_000, "P1D"]
)
def test_bad_leases(fault: Fault, text: str) -> None:
    """What is no moment is refused, with the name of the option."""
    found = fault(_subscribe(_options(_form(("pubsub#queue_requests", "5"), ("pubsub#expire", text)))))
    assert found.problem is Problem.OPTIONS_INVALID and "pubsub#expire" in found.detail


def test_selectors(read: Read) -> None:
    """Issue 9: a selector is taken as it is said; an empty one is none, and silence changes nothing."""
    form = _form(("pubsub#queue_requests", "5"), ("stanzaq#selector", " color = 'red' "))
    assert read(_subscribe(_options(form))).command == Subscribe("jobs", _FULL, _FULL, 5, selector="color = 'red'")
    adjust = f"<pubsub xmlns='{ns.PUBSUB}'><options node='jobs' jid='{_FULL}'>{{}}</options></pubsub>"
    assert read(adjust.format(form)).command == SetSubscriptionOptions(
        "jobs", _FULL, _FULL, "", 5, selector="color = 'red'"
    )
    gone = _form(("pubsub#queue_requests", "5"), ("stanzaq#selector", ""))
    assert read(adjust.format(gone)).command == SetSubscriptionOptions("jobs", _FULL, _FULL, "", 5, selector="")
    assert read(adjust.format(_credit("5"))).command == SetSubscriptionOptions(
        "jobs", _FULL, _FULL, "", 5, selector=None
    )


def test_what_is_owned_has_another_lease(fault: Fault) -> None:
    """An owner's lease is that of its partitions (EX16)."""
    fields = (("pubsub#queue_requests", "5"), ("stanzaq#group", "g"), ("pubsub#expire", "2026-11-22T12:00:00Z"))
    found = fault(_subscribe(_options(_form(*fields))))
    assert found.problem is Problem.OPTIONS_INVALID and "pubsub#expire" in found.detail


@pytest.mark.parametrize("about", ["", f"jid='{_FULL}' node='jobs'", "node='jobs'", f"jid='{_FULL.upper()}'"])
def test_options_may_repeat_the_subscribe(read: Read, fault: Fault, about: str) -> None:
    """`jid` and `node` on the options are taken when they say the same, and refused when they differ (QX8)."""
    if about.endswith("DESK'"):
        assert fault(_subscribe(_options(_credit("5"), about))).problem is Problem.BAD_REQUEST
    else:
        assert isinstance(read(_subscribe(_options(_credit("5"), about))).command, Subscribe)


@pytest.mark.parametrize("about", ["node='other'", f"jid='{_BARE}'", "jid='other@example.org'"])
def test_options_of_another_subscription(fault: Fault, about: str) -> None:
    """Options for another node or JID are a contradiction (QX8)."""
    assert fault(_subscribe(_options(_credit("5"), about))).problem is Problem.BAD_REQUEST


@pytest.mark.parametrize(
    ("about", "problem"),
    [
        (f"jid='{_FULL}'", Problem.NODE_REQUIRED),
        ("node='jobs'", Problem.JID_REQUIRED),
        ("node='jobs' jid=''", Problem.JID_REQUIRED),
        ("node='jobs' jid='other@example.org'", Problem.JID_MISMATCH),
        ("node='jobs' jid='worker@example.org.evil.org'", Problem.JID_MISMATCH),
        ("node='jobs' jid='worker@example.org/'", Problem.JID_MISMATCH),
        (f"node='jobs' jid='worker@example.org/{'x' * 1_000_000}'", Problem.JID_MISMATCH),
    ],
)
def test_whose_and_where(fault: Fault, about: str, problem: Problem) -> None:
    """A subscription is for a node, and for the sender's own JID (P11).

    To end or to read another's is forbidden (XEP-0060 §6.2.3.3, §6.3.4.1).
    """
    assert fault(_subscribe(_options(_credit("5")), about)).problem is problem
    anothers = "jid='other" in about or "evil" in about
    for asked, kind in (
        (f"<unsubscribe {about}/>", "set"),
        (f"<options {about}/>", "get"),
        (_options(_credit("5"), about), "set"),
    ):
        refused = fault(f"<pubsub xmlns='{ns.PUBSUB}'>{asked}</pubsub>", kind)
        assert refused.problem is (Problem.FORBIDDEN if anothers else problem)


def test_names_of_leases(fault: Fault) -> None:
    """Nobody subscribes here under the name of a subscription over HTTP or AMQP, for which the groups of tokens count."""
    about = "node='jobs' jid='worker@example.org/lease-0123456789abcdef'"
    assert fault(_subscribe(_options(_credit("5")), about)).problem is Problem.JID_MISMATCH


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        (_subscribe(_options(_credit("5"))), "get"),
        (_subscribe("<banana/>"), "set"),
        (_subscribe(_options(_credit("5")) * 2), "set"),
        (f"<pubsub xmlns='{ns.PUBSUB}'><unsubscribe node='jobs' jid='{_FULL}'/></pubsub>", "get"),
        (f"<pubsub xmlns='{ns.PUBSUB}'><unsubscribe node='jobs' jid='{_FULL}'/><options/></pubsub>", "set"),
    ],
)
def test_bad_shapes(fault: Fault, payload: str, kind: str) -> None:
    """A get where a set belongs, and company that means nothing, are refused."""
    assert fault(payload, kind).problem is Problem.BAD_REQUEST


def test_a_new_one_has_no_subid_yet(fault: Fault) -> None:
    """P12: a subscribe that names a subid would change what it does not make."""
    wrong = fault(_subscribe(_options(_credit("5")), f"jid='{_FULL}' node='jobs' subid='7'"))
    assert wrong.problem is Problem.BAD_REQUEST


def test_unsubscribe(read: Read) -> None:
    """A worker leaves by its JID, and by the subscription's id if it gives one (P12)."""
    leave = f"<pubsub xmlns='{ns.PUBSUB}'><unsubscribe node='jobs' jid='{_BARE}' subid='s1'/></pubsub>"
    assert read(leave).command == Unsubscribe("jobs", _FULL, _BARE, "s1")


def test_options_of_a_subscription(read: Read, fault: Fault) -> None:
    """The credit can be read and changed later (P13, Q12)."""
    about = f"<options node='jobs' jid='{_FULL}'>"
    shown = f"<pubsub xmlns='{ns.PUBSUB}'>{about}</options></pubsub>"
    changed = f"<pubsub xmlns='{ns.PUBSUB}'>{about}{_credit('9')}</options></pubsub>"
    assert read(shown, "get").command == Options("jobs", _FULL, _FULL, "")
    assert read(changed).command == SetSubscriptionOptions("jobs", _FULL, _FULL, "", 9)
    assert fault(f"<pubsub xmlns='{ns.PUBSUB}'><options node='jobs'/></pubsub>", "get").problem is Problem.JID_REQUIRED


@pytest.mark.parametrize("qos", SENT)
def test_quality_of_service(read: Read, qos: Qos) -> None:
    """A full JID may request a quality of service for its deliveries, at once or later."""
    form = _form(("pubsub#queue_requests", "5"), ("stanzaq#qos", qos.value))
    assert read(_subscribe(_options(form))).command == Subscribe("jobs", _FULL, _FULL, 5, qos)
    changed = f"<pubsub xmlns='{ns.PUBSUB}'><options node='jobs' jid='{_FULL}'>{form}</options></pubsub>"
    assert read(changed).command == SetSubscriptionOptions("jobs", _FULL, _FULL, "", 5, qos)


@pytest.mark.parametrize(
    "value", ["", "Assured", "pulled", "assured ", "deliver", "2", "assured</value><value>assured"]
)
def test_bad_quality_of_service(fault: Fault, value: str) -> None:
    """An unknown level is refused, and the error names the known ones."""
    wrong = fault(_subscribe(_options(_form(("pubsub#queue_requests", "5"), ("stanzaq#qos", value)))))
    assert wrong.problem is Problem.OPTIONS_INVALID and "unacknowledged, acknowledged, assured" in wrong.detail


def test_batch(read: Read, fault: Fault) -> None:
    """How many items may share a message is chosen at once or later, and is one unless it is chosen."""
    form = _form(("pubsub#queue_requests", "5"), ("stanzaq#batch", "100"))
    assert read(_subscribe(_options(form))).command == Subscribe("jobs", _FULL, _FULL, 5, batch=100)
    changed = f"<pubsub xmlns='{ns.PUBSUB}'><options node='jobs' jid='{_FULL}'>{form}</options></pubsub>"
    assert read(changed).command == SetSubscriptionOptions("jobs", _FULL, _FULL, "", 5, batch=100)
    for value in ("", "0", "101", "-1", "1.5", "1</value><value>2"):
        wrong = fault(_subscribe(_options(_form(("pubsub#queue_requests", "5"), ("stanzaq#batch", value)))))
        assert wrong.problem is Problem.OPTIONS_INVALID and "from 1 to 100" in wrong.detail, value


@pytest.mark.parametrize("qos", [Qos.ACKNOWLEDGED, Qos.ASSURED])
def test_iqs_need_a_full_jid(read: Read, fault: Fault, qos: Qos) -> None:
    """Deliveries that need confirmation go to one resource: a bare JID is told to subscribe a full one."""
    form = _form(("pubsub#queue_requests", "5"), ("stanzaq#qos", qos.value))
    refused = fault(_subscribe(_options(form), f"jid='{_BARE}' node='jobs'"))
    assert refused.problem is Problem.OPTIONS_INVALID and "full JID" in refused.detail
    plain = _form(("pubsub#queue_requests", "5"), ("stanzaq#qos", "unacknowledged"))
    assert isinstance(read(_subscribe(_options(plain), f"jid='{_BARE}' node='jobs'")).command, Subscribe)


def _default(content: bytes) -> dict[str | None, str | None]:
    form = ET.fromstring(content)[0][0]
    assert form.get("type") == "result"
    return {field.get("var"): field.findtext(f"{{{ns.FORM}}}value") for field in form.iterfind(f"{{{ns.FORM}}}field")}


def test_defaults(read: Callable[..., Question | DoorAnswer], fault: Fault) -> None:
    """XEP-0060 §6.4: anyone reads the default options of a subscription, and the required ones (Q5)."""
    answer = read(f"<pubsub xmlns='{ns.PUBSUB}'><default/></pubsub>", "get")
    assert isinstance(answer, DoorAnswer)
    assert _default(answer.content) == {
        "FORM_TYPE": ns.PUBSUB_SUBSCRIBE_OPTIONS,
        "pubsub#queue_requests": None,
        "stanzaq#qos": "unacknowledged",
        "stanzaq#batch": "1",
        "pubsub#deliver": "1",
    }
    asked = read(f"<pubsub xmlns='{ns.PUBSUB}'><default node='jobs'/></pubsub>", "get")
    assert isinstance(asked, Question)
    assert (asked.command, asked.view) == (Describe("jobs", _FULL, as_owner=False), View.DEFAULT_SUBSCRIPTION)
    of_log = _default(subscriptions.defaults("log", NodeConfig(queueing=False)))
    assert (of_log["pubsub#queue_requests"], of_log["stanzaq#start"]) == ("100", "@latest")
    assert fault(f"<pubsub xmlns='{ns.PUBSUB}'><default/></pubsub>", "set").problem is Problem.BAD_REQUEST


_TYPE, _DEPTH, _REQUESTS = "pubsub#subscription_type", "pubsub#subscription_depth", "pubsub#queue_requests"


@pytest.mark.parametrize(
    ("fields", "credit", "scope"),
    [
        ([(_TYPE, "items"), (_DEPTH, "all"), (_REQUESTS, "3")], 3, Scope(SubscriptionType.ITEMS, None)),
        ([(_TYPE, "nodes")], None, Scope(SubscriptionType.NODES, 1)),
        ([(_DEPTH, "2")], None, Scope(SubscriptionType.NODES, 2)),
        ([(_DEPTH, "8"), (_REQUESTS, "3")], 3, Scope(SubscriptionType.ITEMS, 8)),
        ([(_TYPE, "all"), (_REQUESTS, "3")], 3, Scope(SubscriptionType.ALL, 1)),
        ([(_REQUESTS, "3")], 3, None),
    ],
)
def test_scope(read: Read, fields: list[tuple[str, str]], credit: int | None, scope: Scope | None) -> None:
    """H5: the scope of a subscription to a collection, and its depth: one level unless more is requested."""
    command = read(_subscribe(_options(_form(*fields)))).command
    assert isinstance(command, Subscribe)
    assert (command.credit, command.scope) == (credit, scope)


def test_scope_of_a_subscription_that_exists(read: Read, fault: Fault) -> None:
    """P13, H5: options that name half a scope are refused, as the other half has no default; news need no credit."""

    def options(*fields: tuple[str, str]) -> str:
        return f"<pubsub xmlns='{ns.PUBSUB}'><options node='jobs' jid='{_FULL}'>{_form(*fields)}</options></pubsub>"

    for half in ((_TYPE, "all"), (_DEPTH, "all")):
        refused = fault(options((_REQUESTS, "5"), half))
        assert refused.problem is Problem.OPTIONS_INVALID and _TYPE in refused.detail and _DEPTH in refused.detail
    news = SetSubscriptionOptions("jobs", _FULL, _FULL, "", 0, scope=Scope(SubscriptionType.NODES, None))
    for credit in ([], [(_REQUESTS, "0")]):
        assert read(options(*credit, (_TYPE, "nodes"), (_DEPTH, "all"))).command == news
    assert fault(options((_TYPE, "items"), (_DEPTH, "all"))).problem is Problem.OPTIONS_REQUIRED
    assert fault(options((_REQUESTS, "0"), (_TYPE, "items"), (_DEPTH, "1"))).problem is Problem.OPTIONS_INVALID


@pytest.mark.parametrize("field", [(_TYPE, "leaves"), (_TYPE, ""), (_DEPTH, "0"), (_DEPTH, "9"), (_DEPTH, "deep")])
def test_bad_scope(fault: Fault, field: tuple[str, str]) -> None:
    """H5: an unknown type, and an impossible depth, are refused with the field's name."""
    refused = fault(_subscribe(_options(_form(field, (_REQUESTS, "1")))))
    assert refused.problem is Problem.OPTIONS_INVALID and field[0] in refused.detail


_EXAMPLE = (
    (_REQUESTS, "5"),
    ("pubsub#deliver", "1"),
    ("pubsub#digest", "0"),
    ("pubsub#include_body", "false"),
    ("pubsub#show-values", "chat</value><value>online</value><value>away"),
)
"""The options of XEP-0060 §6.3.7, and the credit that a queue asks for (Q5)."""


def test_the_example_of_subscribe_and_configure(read: Read) -> None:
    """XEP-0060 §6.3.5, §6.3.7, XEP-0004 §3.1: the example is taken, and options that mean nothing here are ignored."""
    assert read(_subscribe(_options(_form(*_EXAMPLE)))).command == Subscribe("jobs", _FULL, _FULL, 5)
    changed = f"<pubsub xmlns='{ns.PUBSUB}'><options node='jobs' jid='{_FULL}'>{_form(*_EXAMPLE)}</options></pubsub>"
    assert read(changed).command == SetSubscriptionOptions("jobs", _FULL, _FULL, "", 5)


def test_a_form_in_a_get(fault: Fault) -> None:
    """RFC 6120 §8.2.3: options that are submitted with a get are refused."""
    asked = f"<pubsub xmlns='{ns.PUBSUB}'><options node='jobs' jid='{_FULL}'>{_credit('9')}</options></pubsub>"
    assert fault(asked, "get").problem is Problem.BAD_REQUEST
