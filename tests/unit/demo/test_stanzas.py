"""The demo's clients and the door understand each other, for names that need escaping too."""

from xml.etree import ElementTree as ET

import pytest

from broker import codec
from broker.model.commands import Browse, Command, Declare, Describe, Publish, Retract, Subscribe
from broker.model.items.items import Delivery, Envelope
from broker.model.names import Jid, Partition
from frontends.tools.demo import stanzas
from frontends.tools.demo.stanzas import Delivered
from frontends.xmpp import namespaces as ns
from frontends.xmpp import requests
from frontends.xmpp.messages import deliveries
from frontends.xmpp.stanzas import Iq, Question

_NODE = "a<'\"&b"
_SENDER = Jid("worker@localhost/x")
_PAYLOAD = "<job xmlns='urn:example:job'>1</job>"


def _read(kind: str, content: str) -> Command:
    element = ET.fromstring(f"<iq xmlns='jabber:client' id='q1' type='{kind}'>{content}</iq>")
    question = requests.read(Iq("q1", kind, _SENDER, "queue.localhost", element))
    assert isinstance(question, Question)
    return question.command


def _error(kind: str, condition: str) -> ET.Element:
    inside = f"<error type='{kind}'><{condition} xmlns='{ns.STANZAS}'/><text xmlns='{ns.STANZAS}'>why</text></error>"
    return ET.fromstring(f"<iq xmlns='jabber:client' type='error'>{inside}</iq>")


@pytest.mark.parametrize(
    ("kind", "content", "command"),
    [
        (
            "set",
            stanzas.create(_NODE, {"stanzaq#dedupe": "ignore"}),
            Declare(_NODE, _SENDER, {"stanzaq#dedupe": ("ignore",)}),
        ),
        ("set", stanzas.subscribe(_NODE, _SENDER, 5), Subscribe(_NODE, _SENDER, _SENDER, 5)),
        ("set", stanzas.retract(_NODE, Delivered(_NODE, 7)), Retract(_NODE, _SENDER, _NODE, 7, "q1")),
        ("get", stanzas.browse(_NODE, ["x", "y"]), Browse(_NODE, _SENDER, ("x", "y"), 50, subid="")),
        ("get", stanzas.info(_NODE), Describe(_NODE, _SENDER, as_owner=False)),
    ],
)
def test_requests(kind: str, content: str, command: Command) -> None:
    """The door reads what the client means."""
    assert _read(kind, content) == command


def test_publish() -> None:
    """The payload arrives as it was written."""
    command = _read("set", stanzas.publish(_NODE, "x", _PAYLOAD))
    assert isinstance(command, Publish)
    assert (command.node, command.item_id) == (_NODE, "x")
    assert codec.unpack(command.envelope).body.decode() == _PAYLOAD


def test_delivered() -> None:
    """The client finds item and token in a delivery, and nothing in other messages."""
    envelope = codec.pack(Envelope(_PAYLOAD.encode()))
    partition = Partition(_NODE, "1")
    delivery = Delivery(partition, "1-1", _NODE, _SENDER, 7, 1, 20, 0, _SENDER, envelope, 7)
    written = deliveries.write_delivery("queue.localhost", delivery).decode()
    assert stanzas.parse_delivery(ET.fromstring(written)) == Delivered(_NODE, 7)
    assert stanzas.parse_delivery(ET.fromstring("<message><body>hello</body></message>")) is None


def test_replies() -> None:
    """Ids come out of a browse, and numbers out of a form; what is no number is passed over."""
    browsed = f"<iq><pubsub xmlns='{ns.PUBSUB}'><items><item id='x'/><item id='y'/></items></pubsub></iq>"
    assert stanzas.parse_browsed(ET.fromstring(browsed)) == {"x", "y"}
    fields = {"stanzaq#waiting": "12", "pubsub#title": "jobs"}
    shown = "".join(f"<field var='{name}'><value>{value}</value></field>" for name, value in fields.items())
    assert stanzas.counts(ET.fromstring(f"<iq><x xmlns='{ns.FORM}'>{shown}</x></iq>")) == {"stanzaq#waiting": 12}


@pytest.mark.parametrize(
    ("kind", "condition", "may_pass"),
    [
        ("wait", "internal-server-error", True),
        ("wait", "unexpected-request", False),
        ("cancel", "item-not-found", False),
    ],
)
def test_errors(kind: str, condition: str, *, may_pass: bool) -> None:
    """An error of type wait is worth another try, but not for a lost lock (Q25); a result is no error."""
    assert stanzas.condition(_error(kind, condition)) == condition
    assert stanzas.may_pass(_error(kind, condition)) == may_pass
    assert stanzas.condition(ET.fromstring("<iq type='result'/>")) == ""
