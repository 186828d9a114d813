"""Messages that publish: the node, the payload, and the id."""

from xml.etree import ElementTree as ET

import pytest

from broker import codec
from broker.model.commands import Publish
from broker.model.names import Jid
from broker.model.problems import MalformedRequest, Problem
from frontends.xmpp import namespaces as ns
from frontends.xmpp.messages import publishing

SERVICE = "queue.example.org"
ALICE = Jid("alice@example.org/home")
JOB = "<job xmlns='urn:x'/>"
HINTS = (
    f"<no-store xmlns='{ns.HINTS}'/><request xmlns='urn:xmpp:receipts'/><markable xmlns='urn:xmpp:chat-markers:0'/>"
    "<active xmlns='http://jabber.org/protocol/chatstates'/><origin-id xmlns='urn:xmpp:sid:0' id='1'/>"
    "<delay xmlns='urn:xmpp:delay' stamp='2026-01-01T00:00:00Z'/><private xmlns='urn:xmpp:carbons:2'/>"
    "<nick xmlns='http://jabber.org/protocol/nick'>al</nick><thread>t</thread><subject>s</subject>"
)


def _message(inside: str, attributes: str = "id='m1'") -> ET.Element:
    return ET.fromstring(f"<message xmlns='{ns.COMPONENT}' {attributes}>{inside}</message>")


def _publish(items: str, node: str = "jobs", beside: str = "") -> str:
    named = f" node='{node}'" if node else ""
    return f"<pubsub xmlns='{ns.PUBSUB}'><publish{named}>{items}</publish>{beside}</pubsub>"


@pytest.mark.parametrize(
    ("address", "node"),
    [
        (SERVICE, ""),
        (f"jobs@{SERVICE}", "jobs"),
        (f"jobs@{SERVICE}/desk@home", "jobs"),
        (rf"my\20jobs\5c20\40x@{SERVICE}", r"my jobs\20@x"),
        (rf"a\2Fb\zz@{SERVICE}", r"a\2Fb\zz"),
        (f"@{SERVICE}", None),
        (f"{SERVICE}/", ""),
        (f"{SERVICE}/Jobs of today/@home", "Jobs of today/@home"),
        (rf"{SERVICE}/a\20b", r"a\20b"),
        ("jobs@elsewhere.org", None),
        ("elsewhere.org/jobs", None),
        ("", None),
    ],
)
def test_addresses(address: str, node: str | None) -> None:
    """XEP-0060 §4.6.1: a node's address is the service's with the node as resource, as it is spelled.

    NODE@service is one too, with what a JID cannot hold escaped (XEP-0106); a resource is ignored there.
    """
    assert publishing.node_at(address, SERVICE) == node


def test_payload_among_what_clients_add() -> None:
    """The payload is the one element that is not about the message; hints, receipts, states, ids and the like are."""
    sent = publishing.read(_message(f"{HINTS} {JOB} "), "jobs")
    assert sent is not None
    assert (sent.node, sent.item_id, sent.stem, codec.unpack(sent.envelope).body) == ("jobs", None, "m1", JOB.encode())


@pytest.mark.parametrize(
    ("inside", "problem"),
    [
        (f"<json xmlns='{ns.JSON}'>NaN</json>", Problem.PAYLOAD_INVALID),
        ("", Problem.PAYLOAD_REQUIRED),
        (HINTS, Problem.PAYLOAD_REQUIRED),
        ("<body>a</body><html xmlns='http://jabber.org/protocol/xhtml-im'/>", Problem.PAYLOAD_INVALID),
        (_publish(f"<item>{JOB}</item>", node="other"), Problem.BAD_REQUEST),
        (_publish(f"<item>{JOB}</item>", beside="<publish-options/>"), Problem.BAD_REQUEST),
        (_publish(""), Problem.ITEM_REQUIRED),
        (_publish(f"<item>{JOB}</item>" * 2), Problem.ONE_ITEM_ONLY),
        (_publish("<item/>"), Problem.PAYLOAD_REQUIRED),
        (_publish(f"<item id=''>{JOB}</item>"), Problem.ITEM_ID_INVALID),
    ],
)
def test_what_is_wrong_with_a_message(inside: str, problem: Problem) -> None:
    """A message to a node that cannot be published has its error."""
    with pytest.raises(MalformedRequest) as caught:
        publishing.read(_message(inside), "jobs")
    assert caught.value.problem is problem


def test_the_service_itself() -> None:
    """At the bare service a publish names its node; all other messages there are ignored."""
    assert publishing.read(_message("<body>hello</body>"), "") is None
    assert publishing.read(_message("<received xmlns='urn:xmpp:receipts' id='1'/>"), "") is None
    sent = publishing.read(_message(_publish(f"<item id='i1'>{JOB}</item>")), "")
    assert sent is not None and (sent.node, sent.item_id) == ("jobs", "i1")
    with pytest.raises(MalformedRequest) as caught:
        publishing.read(_message(_publish(f"<item>{JOB}</item>", node="")), "")
    assert caught.value.problem is Problem.NODE_REQUIRED


def test_ids() -> None:
    """SX10: a copy of a message is the same item; another sender's, or one with another payload, is not."""

    def item(inside: str = JOB, attributes: str = "id='m1'", sender: str = ALICE) -> str | None:
        sent = publishing.read(_message(inside, attributes), "jobs")
        assert sent is not None
        return sent.publish_once(Jid(sender)).item_id

    first = item()
    assert first is not None and first.startswith("m1~") and item() == first
    others = {item(sender="alice@example.org/work"), item("<job xmlns='urn:y'/>"), item(attributes="id='m2'")}
    assert len(others | {first}) == 4
    assert item(attributes="") is None
    long = item(attributes=f"id='{'🐇' * 2000}'")
    assert long is not None and len(long.encode()) <= 1023
    assert item(_publish(f"<item id='own'>{JOB}</item>")) == "own"


def test_an_error_goes_back() -> None:
    """S13: the sender of a message without effect is told, with its id and from the address that it wrote to."""
    message = _message(JOB, f"id='&lt;1&gt;' from='{ALICE}' to='jobs@{SERVICE}'")
    error = ET.fromstring(publishing.write_refused(message, MalformedRequest(Problem.FORBIDDEN, "no")))
    assert error.attrib == {"type": "error", "id": "<1>", "to": ALICE, "from": f"jobs@{SERVICE}"}
    assert error[0].tag == "error" and error[0][0].tag == f"{{{ns.STANZAS}}}forbidden"
    assert (
        "id"
        not in ET.fromstring(publishing.write_refused(_message(JOB, ""), MalformedRequest(Problem.FORBIDDEN))).attrib
    )


@pytest.mark.parametrize(
    "items",
    [
        f"<item id='i' partition='3' key='k'>{JOB}</item>",
        f"<hint xmlns='{ns.STANZAQ}' partition='3' key='k'/><item id='i'>{JOB}</item>",
    ],
)
def test_places(items: str) -> None:
    """E6, E15: a message may name its partition and key as a request does, and its publish has them."""
    sent = publishing.read(_message(_publish(items)), "")
    assert sent is not None
    published = sent.publish_once(ALICE)
    assert (published.item_id, published.partition, published.key) == ("i", 3, "k")


@pytest.mark.parametrize("where", ["item", "hint"])
def test_traces(where: str) -> None:
    """Issue 8: an item belongs to its publisher's trace; a copy in a later step of it is the same item."""

    def sent(parent: str) -> Publish:
        named = {"item": "", "hint": ""} | {where: f"traceparent='{parent}' tracestate='a=1'"}
        items = f"<item {named['item']}>{JOB}</item><hint xmlns='{ns.STANZAQ}' {named['hint']}/>"
        found = publishing.read(_message(_publish(items)), "")
        assert found is not None
        return found.publish_once(ALICE)

    first, copy, none = (sent(f"00-{'1' * 32}-{last}-01") for last in ("2" * 16, "3" * 16, "0" * 16))
    assert codec.unpack(first.envelope).headers == {"traceparent": f"00-{'1' * 32}-{'2' * 16}-01", "tracestate": "a=1"}
    assert codec.unpack(none.envelope).headers == {}
    assert first.item_id == copy.item_id == none.item_id and first.body_bytes == none.body_bytes
