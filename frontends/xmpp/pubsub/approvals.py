"""Approvals of subscriptions: the form for owners and their answers (XEP-0060 §8.6), and the same as requests of a program.

Must not know what follows from an answer.
"""

from collections.abc import Iterable, Mapping
from typing import Final
from xml.etree.ElementTree import Element

from broker.model.commands import Approve, ListRequests
from broker.model.names import Jid
from broker.model.nodes.subscriptions import Subscription
from broker.model.problems import MalformedRequest, Problem
from frontends.xmpp import namespaces as ns
from frontends.xmpp.pubsub import attributes
from frontends.xmpp.stanzas import Iq, Question, expect
from frontends.xmpp.xml import forms
from frontends.xmpp.xml.text import escape

NODE: Final = "pubsub#node"
SUBSCRIBER: Final = "pubsub#subscriber_jid"
SUBID: Final = "pubsub#subid"
ALLOW: Final = "pubsub#allow"

_FIELD: Final = f"{{{ns.FORM}}}field[@var='FORM_TYPE']/{{{ns.FORM}}}value"
_ANSWERS: Final = {"1": True, "true": True, "0": False, "false": False}


def write_request(subscription: Subscription) -> str:
    """Write the request to an owner: a text for people and a form."""
    text = f"{subscription.jid} asks to subscribe to {subscription.node}."
    form = forms.write_form(
        "form",
        ns.PUBSUB_SUBSCRIBE_AUTHORIZATION,
        (
            forms.Field(SUBID, (subscription.subid,), "hidden"),
            forms.Field(NODE, (subscription.node,), "text-single", "Node"),
            forms.Field(SUBSCRIBER, (subscription.jid,), "jid-single", "Subscriber"),
            forms.Field(ALLOW, ("false",), "boolean", "Allow this JID to subscribe to this node?"),
        ),
        "A subscription waits for your approval",
        "Allow it or not, and send the form. If you cancel, the subscription stays pending.",
    )
    return f"<body>{escape(text)}</body>{form}"


def parse_answer(message: Element, sender: Jid) -> Approve | None:
    """Parse an owner's answer; None for any other message, and for a cancelled form. Raises MalformedRequest."""
    form = message.find(forms.FORM)
    if form is None or form.findtext(_FIELD) != ns.PUBSUB_SUBSCRIBE_AUTHORIZATION:
        return None
    fields = forms.read(form, ns.PUBSUB_SUBSCRIBE_AUTHORIZATION)
    if fields is None:
        return None
    jid = _read_jid(_read_one(fields, SUBSCRIBER), SUBSCRIBER)
    allow = _ANSWERS.get(_read_one(fields, ALLOW))
    if allow is None:
        raise MalformedRequest(Problem.OPTIONS_INVALID, f"{ALLOW} must be true or false")
    subid = _read_one(fields, SUBID) if SUBID in fields else ""
    return Approve(node(fields), sender, jid, subid, allow)


def list_requests(iq: Iq, asked: Element) -> Question:
    """Translate `<requests/>`, which lists who waits."""
    expect(iq, "get")
    return Question(iq, ListRequests(attributes.node(asked), iq.sender))


def decide(iq: Iq, asked: Element) -> Question:
    """Translate `<decide/>`, which does what the form does."""
    expect(iq, "set")
    allow = _ANSWERS.get(asked.get("allow", ""))
    if allow is None:
        raise MalformedRequest(Problem.BAD_REQUEST, "allow must be true or false")
    return Question(iq, Approve(attributes.node(asked), iq.sender, _read_jid(asked.get("jid", ""), "jid"), "", allow))


def write_requests(node: str, waiting: Iterable[Subscription]) -> bytes:
    """Write who waits."""
    inside = "".join(f"<request jid='{escape(each.jid)}'/>" for each in waiting)
    return f"<requests xmlns='{ns.STANZAQ}' node='{escape(node)}'>{inside}</requests>".encode()


def node(fields: Mapping[str, tuple[str, ...]]) -> str:
    """Read the node in a form; raises MalformedRequest."""
    return attributes.node_name(_read_one(fields, NODE))


def _read_jid(text: str, where: str) -> Jid:
    jid = attributes.normalize_jid(text)
    if not jid:
        raise MalformedRequest(Problem.JID_REQUIRED, f"{where} must be the subscriber's JID")
    return jid


def _read_one(fields: Mapping[str, tuple[str, ...]], name: str) -> str:
    values = fields.get(name, ())
    if len(values) != 1:
        raise MalformedRequest(Problem.OPTIONS_INVALID, f"{name} must have one value")
    return values[0]
