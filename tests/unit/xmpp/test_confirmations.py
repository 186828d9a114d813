"""Deliveries that need confirmation, and the replies to them."""

from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker import codec
from broker.model.commands import Bounce, Confirm
from broker.model.items.items import Delivery, Envelope
from broker.model.items.qos import Stage
from broker.model.names import Jid, Partition
from frontends.xmpp import namespaces as ns
from frontends.xmpp.messages import deliveries
from frontends.xmpp.messages.deliveries import parse_answer, parse_bounce

_WORKER = Jid("w@x/1")
_DELIVERY = Delivery(
    partition=Partition("j'obs", "8e71964d", 3),
    position="1526919030474-55",
    item_id="j<1>",
    subscriber=_WORKER,
    token=2**63 - 1,
    attempt=2,
    of=20,
    deadline_ms=1_700_000_000_005,
    publisher=Jid("p@x/1"),
    envelope=codec.pack(Envelope(b"<a xmlns='urn:x'>b</a>", headers={"k": "v"})),
    sequence=1,
    stage=Stage.ACKNOWLEDGED,
)
_MSG_ID = f"8e71964d-3-{2**63 - 1}"
_NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"), min_size=1)
_CONFIRMED = (Stage.ACKNOWLEDGED, Stage.ASSURED, Stage.DELIVER)


def _sent(stage: Stage, delivery: Delivery = _DELIVERY) -> ET.Element:
    return ET.fromstring(deliveries.write_delivery("q.x", replace(delivery, stage=stage)))


def _reply(sent: ET.Element, inside: str = "", kind: str = "result") -> ET.Element:
    reply = ET.fromstring(f"<iq xmlns='{ns.COMPONENT}' type='{kind}' from='{_WORKER}' to='q.x'>{inside}</iq>")
    reply.set("id", sent.get("id", ""))
    return reply


def _received(message_id: str = _MSG_ID) -> str:
    return f"<received xmlns='{ns.QOS}' msgId='{message_id}'/>"


@pytest.mark.parametrize("stage", [Stage.ACKNOWLEDGED, Stage.ASSURED])
def test_the_item_is_as_in_a_message(stage: Stage) -> None:
    """S3, S7, S9, S22: an IQ to the full JID around one message without addresses, whose content is a plain delivery's."""
    plain, iq = _sent(Stage.UNACKNOWLEDGED), _sent(stage)
    assert (iq.tag, iq.get("type"), iq.get("from"), iq.get("to")) == ("iq", "set", "q.x", _WORKER)
    (level,) = iq
    assert level.tag == f"{{{ns.QOS}}}{stage.value}"
    assert level.get("msgId") == (_MSG_ID if stage is Stage.ASSURED else None)
    (message,) = level
    assert (message.tag, message.attrib) == (f"{{{ns.CLIENT}}}message", {})
    inside = [ET.tostring(child) for child in message]
    assert inside == [ET.tostring(child) for child in plain if not child.tag.startswith(f"{{{ns.HINTS}}}")]


def test_deliver() -> None:
    """S11: the deliver stanza repeats the msgId under an id of its own, with the lock's deadline."""
    iq = _sent(Stage.DELIVER, replace(_DELIVERY, envelope=b""))
    assert (iq.tag, iq.get("type"), iq.get("to")) == ("iq", "set", _WORKER)
    assert iq.get("id") != _sent(Stage.ASSURED).get("id")
    (deliver,) = iq
    assert deliver.tag == f"{{{ns.QOS}}}deliver"
    assert deliver.attrib == {"msgId": _MSG_ID, f"{{{ns.STANZAQ}}}expires": "2023-11-14T22:13:20.005Z"}


def test_each_lock_has_its_own_message() -> None:
    """S14: another lock, partition or incarnation of the node never has the same msgId."""
    others = [
        replace(_DELIVERY, token=1),
        replace(_DELIVERY, partition=Partition("j'obs", "8e71964d", 2)),
        replace(_DELIVERY, partition=Partition("j'obs", "00000000", 3)),
    ]
    named = [_sent(Stage.ASSURED, delivery)[0].get("msgId") for delivery in (_DELIVERY, *others)]
    assert len(set(named)) == 4


@given(node=_NAMES, token=st.integers(1, 2**63 - 1), number=st.integers(0, 255), stage=st.sampled_from(Stage))
def test_an_id_says_which_delivery(node: str, token: int, number: int, stage: Stage) -> None:
    """SX13: whatever the node is called, the id alone gives the lock and the stage."""
    delivery = replace(_DELIVERY, partition=Partition(node, "i1", number), token=token)
    named = deliveries.read_id(_sent(stage, delivery).get("id", ""))
    assert named == deliveries.Named(delivery.partition, delivery.position, token, stage)


@pytest.mark.parametrize("stage", _CONFIRMED)
def test_a_result_confirms(stage: Stage) -> None:
    """S4, S9, S11: an empty result, or for an assured item `received`, confirms what was sent."""
    reply = _reply(_sent(stage), _received() if stage is Stage.ASSURED else "")
    lock = (_WORKER, _DELIVERY.partition, _DELIVERY.position, _DELIVERY.token)
    assert parse_answer(reply) == Confirm(*lock, stage)


@pytest.mark.parametrize(
    "inside",
    [
        _received(),
        f"<received msgId='{_MSG_ID}'/>",
        f"<received xmlns='{ns.CLIENT}' msgId='{_MSG_ID}'/>",
        f"<received xmlns='urn:x' msgId='{_MSG_ID}'/>",
        f"<q:received xmlns:q='{ns.QOS}' q:msgId='{_MSG_ID}'/>",
    ],
)
def test_received_in_any_namespace(inside: str) -> None:
    """SX1, SX2: peers write it without its namespace, or qualify its attribute."""
    assert isinstance(parse_answer(_reply(_sent(Stage.ASSURED), inside)), Confirm)


@pytest.mark.parametrize(
    "inside", ["", "<received/>", _received(""), _received("other"), f"<banana msgId='{_MSG_ID}'/>", "<received/>" * 99]
)
def test_received_of_something_else(inside: str) -> None:
    """A result without `received` confirms nothing: the item is sent again."""
    assert parse_answer(_reply(_sent(Stage.ASSURED), inside)) is None


@pytest.mark.parametrize("stage", _CONFIRMED)
@pytest.mark.parametrize(
    ("inside", "gone"),
    [
        (f"<error type='cancel'><service-unavailable xmlns='{ns.STANZAS}'/></error>", True),
        (f"<error type='cancel'><feature-not-implemented xmlns='{ns.STANZAS}'/></error>", True),
        (f"<error xmlns='{ns.CLIENT}' type='cancel'/>", True),
        (f"<error type='cancel'><item-not-found xmlns='{ns.STANZAS}'/></error>", False),
        (f"<error type='wait'><resource-constraint xmlns='{ns.STANZAS}'/></error>", False),
        ("<error type='modify'/>", False),
        ("", False),
    ],
)
def test_an_error_bounces(stage: Stage, inside: str, gone: bool) -> None:  # noqa: FBT001
    """Q18, P30: an error gives the item back; one that says that nobody there will ever accept it ends the subscription.

    A receiver that has lost an assured message is there, and may get it again (SX8).
    """
    lock = (_WORKER, _DELIVERY.partition, _DELIVERY.position, _DELIVERY.token)
    assert parse_answer(_reply(_sent(stage), inside, "error")) == Bounce(*lock, gone=gone, stage=stage)


@pytest.mark.parametrize(
    "name",
    ["", "r1", "sq:", "sq:a:", "sq:a:1:1-1:jobs", "sq:b:1:1-1:jobs@i1/0", "sq:1:1-1:jobs@i1/0", "sq:A:1:1-1:jobs@i1/0"],
)
@pytest.mark.parametrize("kind", ["result", "error"])
def test_other_answers_are_none(name: str, kind: str) -> None:
    """Bad input: a reply whose id we never made, or one of a message, confirms nothing and raises nothing."""
    assert parse_answer(ET.fromstring(f"<iq xmlns='{ns.COMPONENT}' type='{kind}' from='a@b' id='{name}'/>")) is None


def test_without_a_sender() -> None:
    """A reply without a sender is ignored."""
    reply = _reply(_sent(Stage.ACKNOWLEDGED))
    del reply.attrib["from"]
    assert parse_answer(reply) is None


@pytest.mark.parametrize("stage", _CONFIRMED)
def test_no_message_stands_for_an_iq(stage: Stage) -> None:
    """An error message with the id of an IQ is no bounce of ours."""
    message = ET.Element(
        f"{{{ns.COMPONENT}}}message", {"type": "error", "from": _WORKER, "id": _sent(stage).get("id", "")}
    )
    assert parse_bounce(message) is None


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_no_id_raises_anything(name: str) -> None:
    """Any id is read or ignored."""
    element = ET.Element(f"{{{ns.COMPONENT}}}iq", {"type": "result", "from": "a@b", "id": f"sq:d:1:1-1:{name}"})
    assert isinstance(parse_answer(element), Confirm | None)
