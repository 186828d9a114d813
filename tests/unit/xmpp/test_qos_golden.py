"""The examples of the QoS document, one test each, through the pure translators.

`tests/golden/qos` holds them made well-formed (SX3): a `</buy>` that closes `<log>`, a `>` too many before `to=`. The
examples' `counter@example.org/938089023` is, for a service called example.org, its node `counter`.
"""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from broker import codec
from broker.model.commands import Deliver, PrepareMessage, Publish, Stats
from broker.model.items.items import Envelope
from broker.model.names import Jid
from broker.model.nodes.nodes import NodeRecord
from broker.model.nodes.options import NodeConfig
from broker.model.results import Counted, Done, Published
from frontends.xmpp import namespaces as ns
from frontends.xmpp import replies, requests, stanzas
from frontends.xmpp.messages import publishing, qos
from frontends.xmpp.stanzas import DescribedNode, DoorAnswer, Question

_GOLDEN = Path(__file__).parents[2] / "golden" / "qos"
_SERVICE = "example.org"


def _example(name: str) -> ET.Element:
    return ET.parse(_GOLDEN / f"{name}.xml").getroot()


def _asked(name: str) -> Question:
    iq = stanzas.parse_iq(_example(name))
    assert iq is not None
    return qos.read(iq, _SERVICE)


def _same(ours: bytes, example: ET.Element) -> bool:
    # Our replies leave the stream's own namespace undeclared, as all stanzas do.
    written = ours.replace(b"<iq ", f"<iq xmlns='{ns.COMPONENT}' ".encode(), 1)
    both = [ET.canonicalize(text, strip_text=True) for text in (written, ET.tostring(example))]
    assert both[0].replace("ns0:", "") == both[1].replace("ns0:", "").replace(":ns0", "")
    return True


def _payload(envelope: bytes) -> ET.Element:
    opened = codec.unpack(envelope)
    assert opened == Envelope(opened.body)
    return ET.fromstring(opened.body)


def test_01_unacknowledged() -> None:
    """Unacknowledged service is a plain message: its payload is published to the node that it is addressed to (S2)."""
    message = _example("01_unacknowledged")
    sent = publishing.read(message, publishing.node_at(message.get("to", ""), _SERVICE) or "")
    assert sent is not None
    assert (sent.node, sent.item_id) == ("user", None)
    assert _payload(sent.envelope).tag == "{urn:xmpp:iot:sensordata}fields"


def test_02_acknowledged() -> None:
    """Acknowledged service is a publish of the message inside, in the name of the IQ's sender (S3, S8)."""
    question = _asked("02_acknowledged")
    command = question.command
    assert isinstance(command, Publish)
    assert (command.node, command.sender) == ("lightswitch", Jid("controller@example.org/34892374"))
    assert _payload(command.envelope)[0].attrib == {"name": "Light", "value": "80"}
    assert _same(replies.answer(question, Published("1")), _example("03_acknowledged_result"))


@pytest.mark.parametrize(("who", "first", "msg_id"), [("entrance", 4, "984232334"), ("exit", 8, "4645623466")])
def test_assured(who: str, first: int, msg_id: str) -> None:
    """Assured service is held, told received with its msgId, and delivered when that is asked for (S9, S11)."""
    sender = Jid(f"{who}@example.org/34892374")
    question = _asked(f"{first:02}_assured_{who}")
    command = question.command
    assert isinstance(command, PrepareMessage)
    assert (command.sender, command.msg_id, command.stem) == (sender, msg_id, msg_id)
    assert (command.publish.node, command.publish.sender, command.publish.item_id) == ("counter", sender, None)
    assert _payload(command.publish.envelope).tag == f"{{{ns.EVENT_LOG}}}log"
    # Ours is qualified, as the schema has it; the example's is in no namespace but the stream's (SX1).
    expected = _example(f"{first + 1:02}_received_{who}")
    expected[0].tag = f"{{{ns.QOS}}}received"
    reply = ET.fromstring(replies.answer(question, Done()))
    assert (reply.attrib, reply[0].tag, reply[0].attrib) == (expected.attrib, expected[0].tag, expected[0].attrib)
    deliver = _asked(f"{first + 2:02}_deliver_{who}")
    assert deliver.command == Deliver(sender, msg_id)
    assert _same(replies.answer(deliver, Done()), _example(f"{first + 3:02}_delivered_{who}"))


def test_12_disco_info() -> None:
    """The feature is told where messages are sent to, and by the service (S15)."""
    iq = stanzas.parse_iq(_example("12_disco_info"))
    assert iq is not None
    asked = requests.translate_at_node(iq, _SERVICE).iq
    counts = DescribedNode(asked, Stats("device", asked.sender), record=NodeRecord("device", "1", 1, NodeConfig()))
    at_node = ET.fromstring(replies.answer(counts, Counted(0, 0, 0, 0, 0, 0, 0, 0)))
    iq.element.set("to", _SERVICE)
    of_service = requests.read(iq)
    assert isinstance(of_service, DoorAnswer)
    for answer in (at_node, ET.fromstring(of_service.content)):
        features = {feature.get("var") for feature in answer.iter() if feature.get("var")}
        assert {ns.QOS, ns.DISCO_INFO} <= features
