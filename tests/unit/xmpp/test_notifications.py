"""Messages to subscribers and their bounces."""

from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker import codec
from broker.model.commands import Bounce, Retract, Unlock
from broker.model.items.items import (
    Delivery,
    Envelope,
    LockEnded,
    NodeConfigured,
    NodeEvent,
    SubscriptionChanged,
    TreeEvent,
)
from broker.model.names import Jid, Partition
from broker.model.nodes.nodes import NodeRecord
from broker.model.nodes.options import NodeConfig
from broker.model.nodes.subscriptions import State, Subscription
from broker.model.problems import CorruptRecord
from broker.model.results import Retracted, Unlocked
from frontends.xmpp import namespaces as ns
from frontends.xmpp.messages.deliveries import parse_bounce, write_delivery
from frontends.xmpp.messages.notifications import Events

_WORKER = Jid("w@x/1")
_DELIVERY = Delivery(
    partition=Partition("jobs", "i1", 3),
    position="1526919030474-55",
    item_id="j<1>",
    subscriber=_WORKER,
    token=2**63 - 1,
    attempt=2,
    of=20,
    deadline_ms=1_700_000_000_005,
    publisher=Jid("p@x/1"),
    envelope=codec.pack(Envelope("<a xmlns='urn:x'>\U0001f41d</a>".encode())),
    sequence=1,
)
_NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"), min_size=1)


def _events() -> Events:
    return Events("q.x", "run", legacy_unlock_ns=False)


def _returned(message: ET.Element, inside: str) -> ET.Element:
    """Give the message as a server sends it back (RFC 6120 §8.3.1)."""
    error = ET.fromstring(f"<message xmlns='{ns.COMPONENT}' type='error' from='{_WORKER}' to='q.x'>{inside}</message>")
    error.set("id", message.get("id", ""))
    return error


def test_a_delivery_says_what_its_holder_may_know() -> None:
    """Beside the event are the lock's token, attempt and deadline (QX14), and hints to store and copy nothing (X2)."""
    message = ET.fromstring(write_delivery("q.x", _DELIVERY))
    event, lock, *hints = message
    assert (message.get("from"), message.get("to"), message.get("type")) == ("q.x", _WORKER, None)
    assert event[0].get("node") == "jobs"
    assert event[0][0].get("id") == "j<1>"
    assert ET.tostring(event[0][0][0]) == ET.tostring(ET.fromstring("<a xmlns='urn:x'>\U0001f41d</a>"))
    assert lock.attrib == {
        "node": "jobs",
        "item": "j<1>",
        "token": str(2**63 - 1),
        "attempt": "2",
        "of": "20",
        "expires": "2023-11-14T22:13:20.005Z",
        "published": "2018-05-21T16:10:30.474Z",
    }
    assert [hint.tag for hint in hints] == [f"{{{ns.HINTS}}}no-store", f"{{{ns.HINTS}}}no-copy"]


@given(node=_NAMES, token=st.integers(1, 2**63 - 1), number=st.integers(0, 255))
def test_a_bounce_names_its_delivery(node: str, token: int, number: int) -> None:
    """Whatever the node is called, a bounced delivery names its lock (Q18, P30)."""
    delivery = replace(_DELIVERY, partition=Partition(node, "i1", number), token=token)
    error = _returned(ET.fromstring(write_delivery("q.x", delivery)), "<error type='wait'/>")
    assert parse_bounce(error) == Bounce(_WORKER, delivery.partition, delivery.position, token, gone=False)


@pytest.mark.parametrize(
    ("inside", "gone"),
    [
        ("<error type='cancel'/>", True),
        (f"<error type='modify'><gone xmlns='{ns.STANZAS}'/></error>", True),
        (f"<error xmlns='{ns.CLIENT}' type='cancel'/>", True),
        ("<error type='wait'/>", False),
        ("<error type='auth'/>", False),
        ("<body>cancel</body>", False),
        ("", False),
    ],
)
def test_only_some_bounces_are_final(inside: str, gone: bool) -> None:  # noqa: FBT001
    """`cancel` and `gone` end a subscription, other errors count (P30)."""
    bounce = parse_bounce(_returned(ET.fromstring(write_delivery("q.x", _DELIVERY)), inside))
    assert bounce is not None
    assert bounce.gone is gone


@pytest.mark.parametrize(
    "name",
    [
        "",
        "sq:",
        "run-1",
        "sq:1:1-1:jobs",
        "sq:1:1-1:jobs@i1/x",
        "sq:1:1-1:@/0",
        "sq:x:1-1:jobs@i1/0",
        "sq:1:banana:jobs@i1/0",
        "sq:1:1-1:jobs@i1/" + "9" * 5000,
        "sq:" + "9" * 20 + ":1-1:jobs@i1/0",
        "sq:٣:1-1:jobs@i1/0",
    ],
)
def test_garbage_is_no_bounce(name: str) -> None:
    """A message id that is not of a delivery names none, and raises nothing."""
    assert parse_bounce(ET.fromstring(f"<message xmlns='{ns.COMPONENT}' type='error' from='a@b' id='{name}'/>")) is None


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_no_id_raises_anything(name: str) -> None:
    """Any id is read or passed over."""
    element = ET.Element(f"{{{ns.COMPONENT}}}message", {"type": "error", "from": "a@b", "id": f"sq:1:1-1:{name}"})
    assert isinstance(parse_bounce(element), Bounce | None)


@pytest.mark.parametrize("kind", ["normal", "chat", "headline", "groupchat"])
def test_only_errors_bounce(kind: str) -> None:
    """A message that merely has a delivery's id, and one without sender, are none."""
    message = ET.fromstring(write_delivery("q.x", _DELIVERY))
    message.set("type", kind)
    assert parse_bounce(message) is None
    message.set("type", "error")
    del message.attrib["from"]
    assert parse_bounce(message) is None


def test_notices_have_ids_of_their_own() -> None:
    """No two notices of the service share an id (P28)."""
    events = _events()
    notice = NodeEvent("jobs", _WORKER, "purge")
    names = [ET.fromstring(events.notice(notice)).get("id") for _ in range(3)]
    names.append(ET.fromstring(Events("q.x", "other", legacy_unlock_ns=False).notice(notice)).get("id"))
    assert len(set(names)) == 4


def test_the_end_of_a_lock_says_which() -> None:
    """With the token a worker tells the end of an old lock from that of a new one (Q35, X10)."""
    message = ET.fromstring(_events().notice(LockEnded("jobs", _WORKER, "j1", 7)))
    unlock = message[0][0][0]
    assert (unlock.tag, unlock.get("id")) == (f"{{{ns.QUEUEING}}}unlock", "j1")
    assert unlock.get(f"{{{ns.STANZAQ}}}token") == "7"
    asked = ET.fromstring(_events().write_ended((Unlock("jobs", _WORKER, "j1", 7), Unlocked(_WORKER))))
    assert ET.tostring(asked[0]) == ET.tostring(message[0])


def test_a_cancelled_item_is_gone() -> None:
    """The notice of a lock that ended with its item says so: the worker need not wait for the item."""
    plain, said = (
        ET.fromstring(_events().notice(LockEnded("jobs", _WORKER, "j1", 7, cancelled=cancelled)))[0][0][0]
        for cancelled in (False, True)
    )
    assert said.attrib == {**plain.attrib, f"{{{ns.STANZAQ}}}cancelled": "true"}


@pytest.mark.parametrize("what", ["delete", "purge"])
def test_events_of_the_node_itself(what: str) -> None:
    """Deletion and purge are one event each (P24, P25)."""
    event = ET.fromstring(_events().notice(NodeEvent("j'obs", _WORKER, what)))[0]
    assert [(child.tag, child.get("node")) for child in event] == [(f"{{{ns.PUBSUB_EVENT}}}{what}", "j'obs")]


def test_the_end_of_a_subscription() -> None:
    """A subscriber whose subscription has expired is told which (P31)."""
    event = ET.fromstring(_events().notice(SubscriptionChanged(Subscription("j'obs", _WORKER, "7", State.NONE))))[0]
    assert [(child.tag, child.attrib) for child in event] == [
        (
            f"{{{ns.PUBSUB_EVENT}}}subscription",
            {"node": "j'obs", "jid": _WORKER, "subid": "7", "subscription": "none"},
        )
    ]


def test_where_to_go_instead() -> None:
    """A deletion names what has taken the node's place (P24)."""
    event = ET.fromstring(_events().notice(NodeEvent("jobs", _WORKER, "delete", "xmpp:q.x?;node='a&b'")))[0]
    assert [(child.tag, child.attrib) for child in event[0]] == [
        (f"{{{ns.PUBSUB_EVENT}}}redirect", {"uri": "xmpp:q.x?;node='a&b'"})
    ]


def test_a_configuration_is_told() -> None:
    """The event of a configuration has all of it, and each node's is its own (P23)."""
    events = _events()
    for seconds in (5, 5, 6):
        record = NodeRecord("j'obs", "i", 1, NodeConfig(lock_seconds=seconds))
        (configuration,) = ET.fromstring(events.notice(NodeConfigured(_WORKER, record)))[0]
        assert (configuration.tag, configuration.get("node")) == (f"{{{ns.PUBSUB_EVENT}}}configuration", "j'obs")
        fields = {field.get("var"): field[0].text for field in configuration[0]}
        assert configuration[0].get("type") == "result" and fields["stanzaq#lock_seconds"] == str(seconds)


def test_nobody_held_it() -> None:
    """An item that nobody held is deleted without a notification (Q20, row 10 of the decision table)."""
    assert _events().write_ended((Retract("jobs", _WORKER, "j1"), Retracted(None))) == b""


def test_a_corrupt_item_is_not_sent() -> None:
    """An envelope that cannot be read never becomes half a stanza."""
    with pytest.raises(CorruptRecord):
        write_delivery("q.x", replace(_DELIVERY, envelope=b"?"))


def test_through_a_collection() -> None:
    """H6: a delivery through a collection names the leaf, and the collection in one header beside those of the item."""
    envelope = codec.pack(Envelope(b"<a xmlns='urn:x'/>", headers={"stanzaq-dead-reason": "late"}))
    message = ET.fromstring(write_delivery("q.x", replace(_DELIVERY, envelope=envelope, collection="all & more")))
    (headers,) = message.iterfind(f"{{{ns.SHIM}}}headers")
    assert {each.get("name"): each.text for each in headers} == {
        "stanzaq-dead-reason": "late",
        "Collection": "all & more",
    }
    assert message[0][0].get("node") == "jobs"
    assert ET.fromstring(write_delivery("q.x", _DELIVERY)).find(f"{{{ns.SHIM}}}headers") is None


def test_which_of_several() -> None:
    """P12, XEP-0060 §6.1.6: where a JID may have several, deliveries and the ends of locks name theirs in a header."""
    events, header = _events(), f"{{{ns.SHIM}}}headers/{{{ns.SHIM}}}header"
    retract, unlock = Retract("jobs", _WORKER, "a"), Unlock("jobs", _WORKER, "a")
    for message in (
        write_delivery("q.x", replace(_DELIVERY, subid="7")),
        events.write_ended((retract, Retracted(_WORKER, subid="7"))),
        events.write_ended((unlock, Unlocked(_WORKER, subid="7"))),
        events.notice(LockEnded("jobs", _WORKER, "a", 5, subid="7")),
    ):
        (said,) = ET.fromstring(message).iterfind(header)
        assert (said.get("name"), said.text) == ("SubID", "7")


@pytest.mark.parametrize(("came", "what"), [(True, "associate"), (False, "dissociate")])
def test_news_of_the_tree(came: bool, what: str) -> None:  # noqa: FBT001  (one of two)
    """XEP-0248 §4.3.2: a subscriber to nodes learns which were added to a collection, or removed."""
    message = ET.fromstring(_events().notice(TreeEvent("all", _WORKER, "sub", "jobs", came=came)))
    collection = message[0][0]
    assert (collection.tag, collection.get("node")) == (f"{{{ns.PUBSUB_EVENT}}}collection", "sub")
    assert [(child.tag, child.get("node")) for child in collection] == [(f"{{{ns.PUBSUB_EVENT}}}{what}", "jobs")]
    assert message.findtext(f"{{{ns.SHIM}}}headers/{{{ns.SHIM}}}header") == "all"


def test_the_end_of_a_lock_through_a_collection() -> None:
    """H6: a notice about a lock through a collection names that beside the leaf, whoever ended the lock."""
    events = _events()
    ends = [
        events.write_ended((Retract("jobs", _WORKER, "j1"), Retracted(_WORKER, collection="all"))),
        events.write_ended((Unlock("jobs", _WORKER, "j1"), Unlocked(_WORKER, collection="all"))),
        events.notice(LockEnded("jobs", _WORKER, "j1", 7, "all")),
    ]
    for end in map(ET.fromstring, ends):
        assert end[0][0].get("node") == "jobs"
        assert end.findtext(f"{{{ns.SHIM}}}headers/{{{ns.SHIM}}}header") == "all"


@pytest.mark.parametrize(("offline", "kind"), [(False, None), (True, "headline")])
def test_only_who_is_back_is_told(*, offline: bool, kind: str | None) -> None:
    """RFC 6121 §8.5.3.2.1: what only matters to a JID that is back is not stored for it, nor returned."""
    ended = SubscriptionChanged(Subscription("jobs", _WORKER, "7", State.NONE), offline)
    assert ET.fromstring(_events().notice(ended)).get("type") == kind
