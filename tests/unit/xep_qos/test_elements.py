"""The elements of `urn:xmpp:qos`, as a sender writes and reads them."""

from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element

import pytest

from stanzaq.xep_qos import elements
from stanzaq.xep_qos.elements import Error, Result
from stanzaq.xep_qos.outbox import Outstanding, Step

_QOS = "{urn:xmpp:qos}"
_CLIENT = "{jabber:client}"


def _sent(
    step: Step, content: str = "<set xmlns='urn:xmpp:iot:control'><int name='Light' value='80'/></set>"
) -> Element:
    message = elements.embedded(ET.fromstring(content), "jabber:client", "m1")
    return ET.fromstring(elements.request(Outstanding("m1", "a@example.org/1", "b@example.org", message, step, 0)))


def test_acknowledged() -> None:
    """<acknowledged/> holds one message of jabber:client with the payload, and no msgId (S3)."""
    element = _sent(Step.ACKNOWLEDGED)
    assert (element.tag, element.attrib) == (f"{_QOS}acknowledged", {})
    assert [child.tag for child in element] == [f"{_CLIENT}message"]
    assert [child.tag for child in element[0]] == ["{urn:xmpp:iot:control}set"]


def test_assured() -> None:
    """<assured/> says the msgId and holds the message (S9)."""
    element = _sent(Step.ASSURED)
    assert (element.tag, element.attrib) == (f"{_QOS}assured", {"msgId": "m1"})
    assert [child.tag for child in element] == [f"{_CLIENT}message"]


def test_deliver() -> None:
    """<deliver/> says the msgId alone (S11)."""
    element = _sent(Step.DELIVER)
    assert (element.tag, element.attrib, len(element)) == (f"{_QOS}deliver", {"msgId": "m1"}, 0)


def test_message_is_kept_without_addresses() -> None:
    """A message is embedded as it is, but for its `to` and `from` (S7); those deeper inside are its content."""
    (message,) = _sent(
        Step.ASSURED,
        "<message xmlns='jabber:client' to='x@example.org' from='y@example.org' id='own' type='chat'>"
        "<body to='kept'>tea &amp; cake</body></message>",
    )
    assert message.attrib == {"id": "own", "type": "chat"}
    assert (message[0].tag, message[0].get("to"), message[0].text) == (f"{_CLIENT}body", "kept", "tea & cake")


def test_message_gets_an_id() -> None:
    """A message without an id gets the msgId, so that its repeats are recognised."""
    (message,) = _sent(Step.ACKNOWLEDGED, "<message xmlns='jabber:client'><body>hi</body></message>")
    assert message.get("id") == "m1"


def test_given_content_is_not_changed() -> None:
    """What the caller gave stays as it was."""
    content = ET.fromstring("<message xmlns='jabber:client' to='x@example.org'/>")
    elements.embedded(content, "jabber:client", "m1")
    assert content.attrib == {"to": "x@example.org"}


@pytest.mark.parametrize(
    "inside",
    [
        "<received xmlns='urn:xmpp:qos' msgId='m1'/>",
        "<received msgId='m1'/>",
        "<received xmlns='' msgId='m1'/>",
        "<q:received xmlns:q='urn:xmpp:qos' q:msgId='m1'/>",
    ],
)
def test_received_in_any_namespace(inside: str) -> None:
    """<received/> counts by its local name, and so does msgId (SX1, SX2)."""
    assert elements.answer(ET.fromstring(f"<iq xmlns='jabber:client' type='result'>{inside}</iq>")) == Result("m1")


@pytest.mark.parametrize("inside", ["", "<other xmlns='urn:x'/>", "<received/>"])
def test_result_without_msg_id(inside: str) -> None:
    """A result that echoes nothing is still a result."""
    assert elements.answer(ET.fromstring(f"<iq xmlns='jabber:client' type='result'>{inside}</iq>")) == Result("")


def test_error() -> None:
    """An error is its type, its condition, and its text; conditions of applications do not stand in for it."""
    stanzas = "urn:ietf:params:xml:ns:xmpp-stanzas"
    inside = (
        f"<error type='wait'><odd xmlns='urn:x'/><text xmlns='{stanzas}'>too many</text>"
        f"<resource-constraint xmlns='{stanzas}'/></error>"
    )
    answer = elements.answer(ET.fromstring(f"<iq xmlns='jabber:client' type='error'>{inside}</iq>"))
    assert answer == Error("wait", "resource-constraint", "too many")


@pytest.mark.parametrize("inside", ["", "<error/>", "<error type='cancel'><odd xmlns='urn:x'/></error>"])
def test_error_that_names_nothing(inside: str) -> None:
    """An error without a condition is an undefined one."""
    answer = elements.answer(ET.fromstring(f"<iq xmlns='jabber:client' type='error'>{inside}</iq>"))
    assert isinstance(answer, Error) and answer.condition == "undefined-condition"
