"""Requests about a subscription and its options (XEP-0254 §2.1, XEP-0060 §6.1 to §6.3). Must not know replies.

The options are the credit, how many items at once, how surely each arrives (urn:xmpp:qos), which partitions they come from or
are to be owned, and where in the log a stream starts. Up to MAX_CREDIT credit is granted as asked; up to a million the most is
granted and the result says so (Q9); beyond that it is a mistake and refused (Q11).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from xml.etree.ElementTree import Element

from broker.model.commands import Adjust, Options, Subscribe, Unsubscribe
from broker.model.names import Jid, resource
from broker.model.options import MAX_CREDIT
from broker.model.problems import MalformedRequest, Problem
from broker.model.qos import Qos
from frontends.xmpp import attributes, forms, ownership, streams
from frontends.xmpp import namespaces as ns
from frontends.xmpp.stanzas import Iq, expect, only

CREDIT: Final = "pubsub#queue_requests"
QOS: Final = "stanzaq#qos"
START: Final = "stanzaq#start"
GAP: Final = "stanzaq#gap"
_CREDIT_BARE: Final = "queue_requests"
_CREDIT_BELIEVED: Final = 1_000_000
_OPTIONS: Final = f"{{{ns.PUBSUB}}}options"


def subscribe(iq: Iq, pubsub: Element) -> Subscribe:
    """Translate `<subscribe/>`, which on a queue has its `<options/>` beside it (Q5, Q8)."""
    expect(iq, "set")
    subscription = pubsub[0]
    node = attributes.node(subscription)
    jid = attributes.own_jid(subscription, iq.sender)
    if len(pubsub) == 1:
        # The stream of a log needs no options; a queue, whose record the core reads, asks for them.
        return Subscribe(node, iq.sender, jid, None)
    chosen = pubsub[1]
    if len(pubsub) > 2 or chosen.tag != _OPTIONS:
        raise MalformedRequest(Problem.BAD_REQUEST, "beside a subscribe stand its options and nothing else")
    # XEP-0060 §6.3.7 forbids both attributes, XEP-0254 shows them and its one client sends them (QX8).
    if chosen.get("node", node) != node or attributes.any_jid(chosen.get("jid", jid)) != jid:
        raise MalformedRequest(Problem.BAD_REQUEST, "the options are for another subscription than the subscribe")
    wish = _chosen(chosen, jid)
    own = wish.own
    qos = wish.qos or Qos.UNACKNOWLEDGED
    return Subscribe(node, iq.sender, jid, wish.credit, qos, own.partitions, own.group, own.epoch, wish.start)


def unsubscribe(iq: Iq, pubsub: Element) -> Unsubscribe:
    """Translate `<unsubscribe/>`."""
    leave = only(iq, pubsub, "set")
    return Unsubscribe(attributes.node(leave), iq.sender, attributes.own_jid(leave, iq.sender), attributes.subid(leave))


def options(iq: Iq, pubsub: Element) -> Options | Adjust:
    """Translate `<options/>`: a get reads them, a set changes them (P13)."""
    chosen = only(iq, pubsub, iq.kind)
    node = attributes.node(chosen)
    jid = attributes.own_jid(chosen, iq.sender)
    subid = attributes.subid(chosen)
    if iq.kind == "get":
        return Options(node, iq.sender, jid, subid)
    wish = _chosen(chosen, jid)
    if wish.credit is None:
        raise MalformedRequest(Problem.OPTIONS_REQUIRED)
    if wish.own != ownership.Wish() or wish.start:
        raise MalformedRequest(
            Problem.OPTIONS_INVALID, "partitions, and where a stream starts, are chosen by subscribing anew"
        )
    return Adjust(node, iq.sender, jid, subid, wish.credit, wish.qos)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """What the form says; nothing where it is silent."""

    credit: int | None
    qos: Qos | None
    own: ownership.Wish
    start: str


def _chosen(chosen: Element, jid: Jid) -> _Chosen:
    form = chosen.find(forms.FORM)
    if form is None:
        raise MalformedRequest(Problem.OPTIONS_REQUIRED)
    fields = forms.read(form, ns.PUBSUB_SUBSCRIBE_OPTIONS)
    if fields is None:
        raise MalformedRequest(Problem.OPTIONS_INVALID, "there are no options to cancel")
    # What is not honoured must not look granted, so an unknown option is refused (XEP-0060 §6.3.5).
    for name in fields:
        if name not in {CREDIT, _CREDIT_BARE, QOS, START} | ownership.FIELDS:
            raise MalformedRequest(Problem.OPTIONS_INVALID, f"{name[:80]} is no option of a queue")
    return _Chosen(
        _credit(fields),
        _qos(fields[QOS], jid) if QOS in fields else None,
        ownership.wish(fields),
        _start(fields[START]) if START in fields else "",
    )


def _credit(fields: Mapping[str, tuple[str, ...]]) -> int | None:
    # XEP-0254's prose and its examples spell the name differently (QX10).
    values = {fields[name] for name in (CREDIT, _CREDIT_BARE) if name in fields}
    if not values:
        return None
    if len(values) > 1 or len(first := values.pop()) != 1:
        raise MalformedRequest(Problem.OPTIONS_INVALID, f"{CREDIT} has one value")
    return min(attributes.whole(first[0], _CREDIT_BELIEVED, Problem.OPTIONS_INVALID, CREDIT), MAX_CREDIT)


def _start(values: tuple[str, ...]) -> str:
    if len(values) != 1:
        raise MalformedRequest(Problem.OPTIONS_INVALID, f"{START} has one value")
    return streams.start(values[0])


def _qos(values: tuple[str, ...], jid: Jid) -> Qos:
    try:
        (value,) = values
        qos = Qos(value)
    except ValueError:
        known = ", ".join(member.value for member in Qos)
        raise MalformedRequest(Problem.OPTIONS_INVALID, f"{QOS} is one of {known}") from None
    if qos is not Qos.UNACKNOWLEDGED and not resource(jid):
        raise MalformedRequest(
            Problem.OPTIONS_INVALID, f"{qos.value} deliveries are IQs, which need a full JID to go to: subscribe one"
        )
    return qos
