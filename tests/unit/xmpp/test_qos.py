"""Requests of urn:xmpp:qos: which are valid, and what the message inside may not do."""

from collections.abc import Callable

import pytest

from broker import codec
from broker.model.commands import Deliver, PrepareMessage, Publish
from broker.model.problems import MalformedRequest, Problem
from frontends.xmpp import errors
from frontends.xmpp import namespaces as ns
from frontends.xmpp.messages import qos
from frontends.xmpp.stanzas import Iq, Question
from tests.unit.xmpp.conftest import SERVICE, WORKER

MakeIq = Callable[..., Iq]
NODE = f"jobs@{SERVICE}"
JOB = "<job xmlns='urn:x'/>"


def _read(make_iq: MakeIq, payload: str, to: str = NODE, kind: str = "set") -> Question:
    iq = make_iq(payload, kind)
    return qos.read(Iq(iq.id, iq.kind, iq.sender, to, iq.element), SERVICE)


def _assured(inside: str = f"<message>{JOB}</message>", attributes: str = "msgId='m1'") -> str:
    return f"<assured xmlns='{ns.QOS}' {attributes}>{inside}</assured>".replace(
        "<message", "<message xmlns='jabber:component:accept'"
    )


def _acknowledged(inside: str) -> str:
    return f"<acknowledged xmlns='{ns.QOS}'>{inside}</acknowledged>"


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (_assured(attributes=""), Problem.BAD_REQUEST),
        (_assured(attributes="msgId=''"), Problem.BAD_REQUEST),
        (_assured(attributes=f"msgId='{'m' * 257}'"), Problem.BAD_REQUEST),
        (f"<deliver xmlns='{ns.QOS}'/>", Problem.BAD_REQUEST),
        (_assured(""), Problem.BAD_REQUEST),
        (_assured(f"<message>{JOB}</message>" * 2), Problem.BAD_REQUEST),
        (_assured(f"<message>{JOB}</message><x/>"), Problem.BAD_REQUEST),
        (_assured("<presence xmlns='jabber:client'/>"), Problem.BAD_REQUEST),
        (_assured(f"<message type='error'>{JOB}</message>"), Problem.BAD_REQUEST),
        (_assured(f"<message>{_acknowledged('')}</message>"), Problem.BAD_REQUEST),
        (_acknowledged(_acknowledged(f"<message>{JOB}</message>")), Problem.BAD_REQUEST),
        (_acknowledged(f"<message><deliver/>{JOB}</message>"), Problem.BAD_REQUEST),
        (_assured() * 2, Problem.BAD_REQUEST),
        (f"{_assured()}<x xmlns='urn:x'/>", Problem.BAD_REQUEST),
        (f"<received xmlns='{ns.QOS}' msgId='m1'/>", Problem.UNSUPPORTED),
        (f"<promised xmlns='{ns.QOS}'/>", Problem.UNSUPPORTED),
        (_assured("<message/>"), Problem.PAYLOAD_REQUIRED),
        (_assured(f"<message>{JOB}{JOB}</message>"), Problem.PAYLOAD_INVALID),
        (_assured(f"<message><json xmlns='{ns.JSON}'>NaN</json></message>"), Problem.PAYLOAD_INVALID),
        (_assured(f"<message><job>{'x' * 10_000_000}</job></message>"), Problem.PAYLOAD_TOO_BIG),
    ],
)
def test_bad_requests(make_iq: MakeIq, payload: str, problem: Problem) -> None:
    """Each wrong part has its error, before anything is stored."""
    with pytest.raises(MalformedRequest) as caught:
        _read(make_iq, payload)
    assert caught.value.problem is problem


def test_foreign_elements_are_ignored(make_iq: MakeIq) -> None:
    """RFC 6120 §8.4: an unknown protocol's element does not change the request beside it."""
    plain, extended = (
        _read(make_iq, _assured(f"<message>{JOB}</message>{more}")) for more in ("", "<x xmlns='urn:x'/>")
    )
    assert plain.command == extended.command


def test_a_get_is_none(make_iq: MakeIq) -> None:
    """Requests are sets (S3, S9)."""
    with pytest.raises(MalformedRequest) as caught:
        _read(make_iq, _assured(), kind="get")
    assert caught.value.problem is Problem.BAD_REQUEST


@pytest.mark.parametrize("to", ["", "jobs@elsewhere.example.org", "elsewhere.example.org/jobs"])
def test_other_addresses(make_iq: MakeIq, to: str) -> None:
    """Requests for neither the service nor a node of it are refused."""
    with pytest.raises(MalformedRequest) as caught:
        _read(make_iq, _assured(), to)
    assert errors.wire(caught.value).condition == "service-unavailable"


def test_a_message_for_no_node(make_iq: MakeIq) -> None:
    """At the service itself a message names its node by a publish, and is refused when it names none."""
    with pytest.raises(MalformedRequest) as caught:
        _read(make_iq, _assured(), SERVICE)
    assert caught.value.problem is Problem.NODE_REQUIRED
    publish = f"<pubsub xmlns='{ns.PUBSUB}'><publish node='other'><item id='i1'>{JOB}</item></publish></pubsub>"
    command = _read(make_iq, _assured(f"<message>{publish}</message>"), SERVICE).command
    assert isinstance(command, PrepareMessage)
    assert (command.publish.node, command.publish.item_id) == ("other", "i1")


def test_identity(make_iq: MakeIq) -> None:
    """S8: addresses inside are overwritten with the IQ's: nobody publishes in another's name or elsewhere."""
    inside = f"<message from='king@example.org/throne' to='treasury@{SERVICE}'>{JOB}</message>"
    for payload in (_assured(inside), _acknowledged(inside.replace("<message", "<message xmlns='jabber:client'"))):
        command = _read(make_iq, payload).command
        publish = command.publish if isinstance(command, PrepareMessage) else command
        assert isinstance(publish, Publish)
        assert (publish.node, publish.sender) == ("jobs", WORKER)


@pytest.mark.parametrize("attribute", ["msgId", "q:msgId"])
def test_msg_id_plain_or_qualified(make_iq: MakeIq, attribute: str) -> None:
    """SX2: the schema and the examples differ, and both are taken."""
    payload = f"<deliver xmlns='{ns.QOS}' xmlns:q='{ns.QOS}' {attribute}='m1'/>"
    assert _read(make_iq, payload).command == Deliver(WORKER, "m1")


@pytest.mark.parametrize("space", [ns.CLIENT, ns.COMPONENT, ns.QOS])
def test_namespaces_of_the_message(make_iq: MakeIq, space: str) -> None:
    """SX5: the message inside may be in any of three namespaces; the payload in the stream's is the same."""
    inside = f"<message xmlns='{space}'><body>hello</body><thread>t</thread></message>"
    command = _read(make_iq, _acknowledged(inside)).command
    assert isinstance(command, Publish)
    assert codec.unpack(command.envelope).body == f"<body xmlns='{ns.CLIENT}'>hello</body>".encode()


def test_stem(make_iq: MakeIq) -> None:
    """The item of an assured message has the message's own id, or else the msgId."""
    for inside, stem in ((f"<message id='own'>{JOB}</message>", "own"), (f"<message>{JOB}</message>", "m1")):
        command = _read(make_iq, _assured(inside)).command
        assert isinstance(command, PrepareMessage) and command.stem == stem
