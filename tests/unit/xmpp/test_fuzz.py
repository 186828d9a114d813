"""Hostile elements: every translator gives a value or a MalformedRequest, and every fault has a reply."""

from xml.etree import ElementTree as ET

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.model.names import Jid
from broker.model.problems import MalformedRequest
from frontends.xmpp import namespaces as ns
from frontends.xmpp import replies, requests, stanzas
from frontends.xmpp.messages import deliveries, presence, publishing, qos

_SPACES = (
    *(ns.PUBSUB, ns.PUBSUB_OWNER, ns.QUEUEING, ns.STANZAQ, ns.FORM, ns.DISCO_INFO, ns.DISCO_ITEMS, ns.QOS, ns.CLIENT),
    *(ns.COMPONENT, ns.HINTS, "urn:other", ""),
)
_NAMES = (
    *(
        "pubsub",
        "query",
        "renew",
        "locks",
        "publish",
        "settle",
        "ack",
        "release",
        "publish-options",
        "retract",
        "unlock",
        "subscribe",
        "unsubscribe",
    ),
    *("options", "items", "item", "create", "configure", "default", "delete", "purge", "affiliations", "affiliation"),
    *("subscriptions", "x", "field", "value", "hint", "error", "a"),
    *("message", "acknowledged", "assured", "deliver", "received"),
)
_KEYS = (
    *(
        "node",
        "id",
        "jid",
        "subid",
        "token",
        "max_items",
        "type",
        "var",
        "affiliation",
        "delay",
        "reason",
        "dead-letter",
    ),
    f"{{{ns.STANZAQ}}}token",
    "msgId",
    f"{{{ns.QOS}}}msgId",
)
_TEXTS = (
    *("", "0", "1", "-1", "5", "abc", "1000000000", "submit", "cancel", "form", "get", "set", "owner", "true", "leaf"),
    *("a@b/c", "A@B/", "x" * 2000, "é" * 600, "pubsub#queue_requests", "FORM_TYPE", ns.PUBSUB_NODE_CONFIG),
)
_ANY = st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff")
_texts = st.sampled_from(_TEXTS) | st.text(_ANY, max_size=10)


def _tag(space: str, name: str) -> str:
    return f"{{{space}}}{name}" if space else name


@st.composite
def _elements(draw: st.DrawFn, depth: int = 0) -> ET.Element:
    element = ET.Element(
        _tag(draw(st.sampled_from(_SPACES)), draw(st.sampled_from(_NAMES))),
        draw(st.dictionaries(st.sampled_from(_KEYS), _texts, max_size=4)),
    )
    element.text = draw(st.none() | _texts)
    element.extend(draw(_elements(depth + 1)) for _ in range(draw(st.integers(0, 3)) if depth < 4 else 0))
    return element


_HINT = f"<hint xmlns='{ns.STANZAQ}' delay='3' reason='r' dead-letter='1'/>"
_CREDIT = f"<x xmlns='{ns.FORM}' type='submit'><field var='pubsub#queue_requests'><value>5</value></field></x>"
_OWNER = "<affiliation jid='a@b' affiliation='owner'/>"
_SOUND = [
    f"<pubsub xmlns='{ns.PUBSUB}'><publish node='n'><item id='i'><a xmlns='urn:x'/></item></publish></pubsub>",
    f"<pubsub xmlns='{ns.PUBSUB}'><retract node='n'><item id='i' token='5'/></retract></pubsub>",
    f"<pubsub xmlns='{ns.PUBSUB}'><unlock xmlns='{ns.QUEUEING}' node='n'><item id='i'/>{_HINT}</unlock></pubsub>",
    f"<pubsub xmlns='{ns.PUBSUB}'><subscribe node='n' jid='a@b'/><options>{_CREDIT}</options></pubsub>",
    f"<pubsub xmlns='{ns.PUBSUB}'><create node='n'/><configure><x xmlns='{ns.FORM}' type='submit'/></configure></pubsub>",
    f"<pubsub xmlns='{ns.PUBSUB_OWNER}'><affiliations node='n'>{_OWNER}</affiliations></pubsub>",
    f"<renew xmlns='{ns.STANZAQ}' node='n'><item id='i' token='5'/></renew>",
    f"<publish xmlns='{ns.STANZAQ}' node='n'><item id='i'><a xmlns='urn:x'/></item><item><a/></item>{_HINT}</publish>",
    f"<settle xmlns='{ns.STANZAQ}' node='n'><ack id='i' token='5'/><renew id='j' token='6'/><release id='k'/></settle>",
    *(
        _PROMISES := [
            f"<acknowledged xmlns='{ns.QOS}'><message id='m'><body>b</body></message></acknowledged>",
            f"<assured xmlns='{ns.QOS}' msgId='1'><message xmlns='{ns.CLIENT}'><a xmlns='urn:x'/></message></assured>",
            f"<deliver xmlns='{ns.QOS}' msgId='1'/>",
        ]
    ),
]


@st.composite
def _mutated(draw: st.DrawFn, sound: list[str] = _SOUND) -> ET.Element:
    """Give a sound request with one to three things changed."""
    request = ET.fromstring(draw(st.sampled_from(sound)))
    for _ in range(draw(st.integers(1, 3))):
        victim = draw(st.sampled_from(list(request.iter())))
        match draw(st.integers(0, 5)):
            case 0:
                victim.attrib.clear()
            case 1:
                victim.set(draw(st.sampled_from(_KEYS)), draw(_texts))
            case 2:
                victim.text = draw(_texts)
            case 3:
                victim.tag = _tag(draw(st.sampled_from(_SPACES)), draw(st.sampled_from(_NAMES)))
            case 4:
                victim.append(draw(_elements(3)))
            case _:
                del victim[:]
    return request


@given(
    child=_elements() | _mutated(),
    kind=st.sampled_from(["get", "set", "banana", ""]),
    sender=_texts,
    request=_texts,
)
def test_every_iq_is_read_or_refused(child: ET.Element, kind: str, sender: str, request: str) -> None:
    """Whatever an IQ holds, it is a question, an answer, or a fault with exactly one well-formed reply."""
    element = ET.Element(
        f"{{{ns.COMPONENT}}}iq", {"type": kind, "from": sender, "id": request, "to": "queue.example.org"}
    )
    element.append(child)
    iq = stanzas.parse_iq(element)
    if iq is None:
        assert not sender or not request
        return
    try:
        requests.read(iq)
    except MalformedRequest as fault:
        reply = ET.fromstring(replies.write_refused(iq, fault))
        assert (reply.get("type"), reply.get("id"), reply.get("to")) == ("error", request, sender)


@given(
    child=_mutated(_PROMISES),
    to=st.sampled_from(["n@queue.example.org", "queue.example.org", "queue.example.org/x", ""]),
)
def test_every_promise_is_read_or_refused(child: ET.Element, to: str) -> None:
    """Whatever is wrong with a request of QoS, it is a question, somebody else's, or a fault."""
    element = ET.Element(f"{{{ns.COMPONENT}}}iq", {"type": "set", "from": "a@b/c", "id": "1", "to": to})
    element.append(child)
    iq = stanzas.parse_iq(element)
    assert iq is not None
    assert (iq.element.find(qos.ANY) is not None) == child.tag.startswith(f"{{{ns.QOS}}}")
    try:
        question = qos.read(iq, "queue.example.org")
    except MalformedRequest as fault:
        ET.fromstring(replies.write_refused(iq, fault))
    else:
        assert question.command.sender == "a@b/c"


@settings(max_examples=30)
@given(_elements(), st.sampled_from(["", "n"]))
def test_every_message_is_read_or_refused(message: ET.Element, node: str) -> None:
    """Whatever a message holds, it publishes one item, nothing, or is refused with an error that can be sent."""
    try:
        sent = publishing.read(message, node)
    except MalformedRequest as fault:
        ET.fromstring(publishing.write_refused(message, fault))
    else:
        assert sent is None or sent.publish_once(Jid("a@b/c")).node


@settings(max_examples=30)
@given(_elements(), st.dictionaries(st.sampled_from(["from", "type", "id", "to"]), _texts, max_size=4))
def test_messages_and_presences_raise_nothing(element: ET.Element, attributes: dict[str, str]) -> None:
    """Any other stanza is understood or ignored."""
    element.attrib.update(attributes)
    deliveries.parse_bounce(element)
    presence.parse_presence(element)
    presence.reply(element)
