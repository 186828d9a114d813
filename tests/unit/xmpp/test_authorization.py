"""The form that owners get about a subscription, and their answers."""

from xml.etree import ElementTree as ET

import pytest

from broker.model.commands import Approve
from broker.model.items.items import ApprovalAsked, SubscriptionChanged
from broker.model.names import Jid
from broker.model.nodes.subscriptions import State, Subscription
from broker.model.problems import MalformedRequest, Problem
from frontends.xmpp import namespaces as ns
from frontends.xmpp.messages.notifications import Events
from frontends.xmpp.pubsub import approvals
from frontends.xmpp.stanzas import Iq

_OWNER = Jid("o@x/1")
_ASKED = Subscription("a<b", Jid("w@x/my 'desk'"), "7", State.PENDING)


def _sent(notice: ApprovalAsked | SubscriptionChanged) -> ET.Element:
    return ET.fromstring(Events("q.x", "run", legacy_unlock_ns=False).notice(notice))


def _answered(**fields: str) -> Approve | None:
    inside = "".join(
        f"<field var='{'pubsub#' if name != 'FORM_TYPE' else ''}{name}'><value>{value}</value></field>"
        for name, value in {"FORM_TYPE": ns.PUBSUB_SUBSCRIBE_AUTHORIZATION, **fields}.items()
    )
    return approvals.parse_answer(
        ET.fromstring(f"<message><x xmlns='{ns.FORM}' type='submit'>{inside}</x></message>"), _OWNER
    )


@pytest.mark.parametrize(("text", "allow"), [("true", True), ("1", True), ("false", False), ("0", False)])
def test_the_form_comes_back(text: str, allow: bool) -> None:  # noqa: FBT001
    """P27: the form says who asks for what; sent back with an answer it is understood."""
    message = _sent(ApprovalAsked(Jid("o@x"), _ASKED))
    assert (message.get("from"), message.get("to")) == ("q.x", "o@x")
    # An owner who is away finds it later.
    assert message.find(f"{{{ns.HINTS}}}no-store") is None
    assert "w@x/my 'desk'" in message.findtext("body", "")
    form = message.find(f"{{{ns.FORM}}}x")
    assert form is not None and form.get("type") == "form"
    form.set("type", "submit")
    for field in form.iterfind(f"{{{ns.FORM}}}field"):
        if field.get("var") == "pubsub#allow":
            assert field.get("type") == "boolean" and field[0].text == "false"
            field[0].text = text
    assert approvals.parse_answer(message, _OWNER) == Approve("a<b", _OWNER, _ASKED.jid, "7", allow)
    form.set("type", "cancel")
    assert approvals.parse_answer(message, _OWNER) is None


def test_a_client_that_drops_what_is_hidden() -> None:
    """XEP-0060's own example has no subid: the JID is enough."""
    assert _answered(node="jobs", subscriber_jid="W@x/A", allow="1") == Approve(
        "jobs", _OWNER, Jid("w@x/A"), "", allow=True
    )


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"node": "jobs", "subscriber_jid": "w@x"}, Problem.OPTIONS_INVALID),
        ({"node": "jobs", "subscriber_jid": "w@x", "allow": "perhaps"}, Problem.OPTIONS_INVALID),
        ({"node": "jobs", "allow": "1"}, Problem.OPTIONS_INVALID),
        ({"node": "jobs", "subscriber_jid": "", "allow": "1"}, Problem.JID_REQUIRED),
        ({"subscriber_jid": "w@x", "allow": "1"}, Problem.OPTIONS_INVALID),
        ({"node": "", "subscriber_jid": "w@x", "allow": "1"}, Problem.NODE_REQUIRED),
    ],
)
def test_half_answers(fields: dict[str, str], problem: Problem) -> None:
    """What an answer lacks is named."""
    with pytest.raises(MalformedRequest) as caught:
        _answered(**fields)
    assert caught.value.problem is problem and caught.value.detail


@pytest.mark.parametrize(
    "inside",
    [
        "",
        f"<x xmlns='{ns.FORM}' type='submit'/>",
        f"<x xmlns='{ns.FORM}' type='form'><field var='FORM_TYPE'><value>other</value></field></x>",
    ],
)
def test_other_messages(inside: str) -> None:
    """Messages without such a form are nobody's answer."""
    assert approvals.parse_answer(ET.fromstring(f"<message>{inside}</message>"), _OWNER) is None


def _decided(attributes: str) -> object:
    asked = ET.fromstring(f"<decide xmlns='{ns.STANZAQ}' {attributes}/>")
    return approvals.decide(Iq("1", "set", _OWNER, "q.x", asked), asked).command


def test_a_program_decides() -> None:
    """P27: a program decides as a form does, and what its request lacks is named."""
    assert _decided("node='jobs' jid='W@x/A' allow='1'") == Approve("jobs", _OWNER, Jid("w@x/A"), "", allow=True)
    wrong = {"node='jobs' jid='w@x'": Problem.BAD_REQUEST, "node='jobs' allow='0'": Problem.JID_REQUIRED}
    for attributes, problem in {**wrong, "jid='w@x' allow='0'": Problem.NODE_REQUIRED}.items():
        with pytest.raises(MalformedRequest) as caught:
            _decided(attributes)
        assert caught.value.problem is problem and caught.value.detail
    listed = ET.fromstring(approvals.write_requests("a<b", (_ASKED,)))
    assert (listed.get("node"), [each.attrib for each in listed]) == ("a<b", [{"jid": _ASKED.jid}])


@pytest.mark.parametrize("state", list(State))
def test_the_subscriber_is_told(state: State) -> None:
    """XEP-0060 §8.6: a subscriber whose subscription is in another state gets an event, also when it comes back later."""
    message = _sent(SubscriptionChanged(Subscription("a<b", Jid("w@x"), "7", state)))
    event = message[0]
    assert (message.get("to"), event.tag, len(message)) == ("w@x", f"{{{ns.PUBSUB_EVENT}}}event", 1)
    assert event[0].attrib == {"node": "a<b", "jid": "w@x", "subid": "7", "subscription": state.value}
