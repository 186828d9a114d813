"""Requests about a subscription and its options (XEP-0254 §2.1, XEP-0060 §6.1 to §6.3). Must not know replies.

Options are: credit, QoS level (urn:xmpp:qos), items in one message, partitions to read or own, start in the log, what to
receive of a collection, selector, expiry, and the name of the program. Credit up to MAX_CREDIT is granted; up to a million,
MAX_CREDIT is granted and the result says so (Q9); more is refused as a mistake (Q11).
"""

from collections.abc import Mapping
from typing import Final
from xml.etree.ElementTree import Element

from broker.model import offsets
from broker.model.commands import Describe, Options, SetSubscriptionOptions, Subscribe, Unsubscribe
from broker.model.frozen import frozen
from broker.model.items.qos import MAX_BATCH, SENT, Qos
from broker.model.names import Jid, resource
from broker.model.nodes.options import MAX_CREDIT, STREAM_CREDIT, NodeConfig
from broker.model.nodes.pull_subscriptions import is_pull_subscription
from broker.model.nodes.subscriptions import client_name
from broker.model.nodes.tree import DEPTH, Scope, SubscriptionType
from broker.model.problems import MalformedRequest, Problem
from broker.model.times import read_moment
from frontends.xmpp import namespaces as ns
from frontends.xmpp.pubsub import attributes, log_options, partition_options, selectors
from frontends.xmpp.stanzas import DoorAnswer, Iq, Question, View, expect, only_child
from frontends.xmpp.xml import forms
from frontends.xmpp.xml.text import escape

CREDIT: Final = "pubsub#queue_requests"
QOS: Final = "stanzaq#qos"
BATCH: Final = "stanzaq#batch"
START: Final = "stanzaq#start"
KIND: Final = "pubsub#subscription_type"
DEPTH_FIELD: Final = "pubsub#subscription_depth"
GAP: Final = "stanzaq#gap"
EXPIRE: Final = "pubsub#expire"
CLIENT: Final = "stanzaq#client"
PRESENCE: Final = "presence"
"""The default expiry: a subscription ends when its JID becomes unavailable (P31)."""
_CREDIT_BARE: Final = "queue_requests"
_CREDIT_BELIEVED: Final = 1_000_000
_OPTIONS: Final = f"{{{ns.PUBSUB}}}options"
DELIVER: Final = "pubsub#deliver"
"""Whether anything is delivered: always, since a subscription's credit says how much."""

DELIVERED: Final = forms.Field(DELIVER, ("1",), "boolean")
"""Its only value."""


def subscribe(iq: Iq, pubsub: Element) -> Subscribe:
    """Translate `<subscribe/>`, which on a queue has `<options/>` beside it (Q5, Q8)."""
    expect(iq, "set")
    subscription = pubsub[0]
    node = attributes.node(subscription)
    jid = attributes.read_own_jid(subscription, iq.sender, Problem.JID_MISMATCH)
    if is_pull_subscription(jid):
        # A token's groups would count for it.
        raise MalformedRequest(Problem.JID_MISMATCH, "such a resource is that of a subscription over HTTP or AMQP")
    if attributes.subid(subscription):
        raise MalformedRequest(Problem.BAD_REQUEST, "change an existing subscription by its options")
    if len(pubsub) == 1:
        # Subscribing to a log needs no options. For a queue the core, which reads its record, demands them.
        return Subscribe(node, iq.sender, jid, None)
    chosen = pubsub[1]
    if len(pubsub) > 2 or chosen.tag != _OPTIONS:
        raise MalformedRequest(Problem.BAD_REQUEST, "only options may accompany a subscribe")
    # XEP-0060 §6.3.7 forbids both attributes, but XEP-0254 shows them and its one client sends them (QX8).
    if chosen.get("node", node) != node or attributes.normalize_jid(chosen.get("jid", jid)) != jid:
        raise MalformedRequest(Problem.BAD_REQUEST, "the options are for another subscription than the subscribe")
    wanted = _read_choice(chosen, jid)
    own = wanted.own
    qos = wanted.qos or Qos.UNACKNOWLEDGED
    if own != partition_options.OwnershipRequest() and wanted.until_ms:
        raise MalformedRequest(
            Problem.OPTIONS_INVALID,
            f"{EXPIRE}: ownership is leased for the node's lock time, and renewed by <renew/>",
        )
    until_ms, selector = wanted.until_ms or 0, wanted.selector or ""
    return Subscribe(
        node,
        iq.sender,
        jid,
        wanted.credit,
        qos,
        own.partitions,
        own.group,
        own.epoch,
        wanted.start,
        until_ms,
        wanted.scope,
        selector,
        batch=wanted.batch or 1,
        client=wanted.client,
    )


def unsubscribe(iq: Iq, pubsub: Element) -> Unsubscribe:
    """Translate `<unsubscribe/>`."""
    leave = only_child(iq, pubsub, "set")
    jid = attributes.read_own_jid(leave, iq.sender, Problem.FORBIDDEN)
    return Unsubscribe(attributes.node(leave), iq.sender, jid, attributes.subid(leave))


def options(iq: Iq, pubsub: Element) -> Options | SetSubscriptionOptions:
    """Translate `<options/>`: a get reads them, a set changes them (P13)."""
    chosen = only_child(iq, pubsub, iq.kind)
    node = attributes.node(chosen)
    jid = attributes.read_own_jid(chosen, iq.sender, Problem.FORBIDDEN)
    subid = attributes.subid(chosen)
    if iq.kind == "get":
        forms.refuse(chosen.find(forms.FORM))
        return Options(node, iq.sender, jid, subid)
    wanted = _read_choice(chosen, jid)
    if wanted.half_scope:
        raise MalformedRequest(Problem.OPTIONS_INVALID, f"name both {KIND} and {DEPTH_FIELD}, or neither")
    if wanted.credit is None and (wanted.scope is None or wanted.scope.works):
        raise MalformedRequest(Problem.OPTIONS_REQUIRED)
    if wanted.own != partition_options.OwnershipRequest() or wanted.start:
        raise MalformedRequest(Problem.OPTIONS_INVALID, "partitions and start can only be chosen by subscribing again")
    return SetSubscriptionOptions(
        *(node, iq.sender, jid, subid, wanted.credit or 0, wanted.qos),
        *(wanted.until_ms, wanted.scope, wanted.selector, wanted.batch),
    )


def default(iq: Iq, pubsub: Element, config: NodeConfig) -> Question | DoorAnswer:
    """Translate `<default/>`: default subscription options (XEP-0060 §6.4), for a node or for this configuration."""
    asked = only_child(iq, pubsub, "get")
    if asked.get("node") is None:
        return DoorAnswer(iq, defaults(None, config))
    return Question(iq, Describe(attributes.node(asked), iq.sender, as_owner=False), View.DEFAULT_SUBSCRIPTION)


def defaults(node: str | None, config: NodeConfig) -> bytes:
    """Write the default options; a queue has no default credit (Q5)."""
    if config.queueing:
        credit = forms.Field(CREDIT, (), "text-single", "Items that are held at once", required=True)
        qos = forms.Field(QOS, (Qos.UNACKNOWLEDGED.value,), "list-single", choices=tuple(each.value for each in SENT))
        own: tuple[forms.Field, ...] = (
            credit,
            qos,
            forms.Field(BATCH, ("1",), "text-single", "Most items in one message"),
        )
    else:
        credit = forms.Field(CREDIT, (str(STREAM_CREDIT),), "text-single", "Entries that are not committed at once")
        own = (credit, forms.Field(START, (offsets.LATEST,), "text-single", "Where the stream starts"))
    form = forms.write_form("result", ns.PUBSUB_SUBSCRIBE_OPTIONS, (*own, DELIVERED))
    about = "" if node is None else f" node='{escape(node)}'"
    return f"<pubsub xmlns='{ns.PUBSUB}'><default{about}>{form}</default></pubsub>".encode()


@frozen
class _Chosen:
    """The options in a form; None or empty where it says nothing."""

    credit: int | None
    qos: Qos | None
    own: partition_options.OwnershipRequest
    start: str
    until_ms: int | None
    scope: Scope | None
    half_scope: bool
    selector: str | None
    batch: int | None
    client: str


def _read_choice(chosen: Element, jid: Jid) -> _Chosen:
    form = chosen.find(forms.FORM)
    if form is None:
        raise MalformedRequest(Problem.OPTIONS_REQUIRED)
    fields = forms.read(form, ns.PUBSUB_SUBSCRIBE_OPTIONS)
    if fields is None:
        raise MalformedRequest(Problem.OPTIONS_INVALID, "there are no options to cancel")
    # Unknown fields are ignored (XEP-0004 §3.1); known ones that cannot be granted must not seem so.
    if fields.get(DELIVER, ("1",)) not in {("1",), ("true",)}:
        raise MalformedRequest(Problem.OPTIONS_INVALID, f"{DELIVER} is always 1: unsubscribe to stop deliveries")
    credit = _credit(fields)
    return _Chosen(
        credit,
        _qos(fields[QOS], jid) if QOS in fields else None,
        partition_options.parse_partitions(fields),
        _start(fields[START]) if START in fields else "",
        _read_until(fields[EXPIRE]) if EXPIRE in fields else None,
        _scope(fields, credit),
        (KIND in fields) != (DEPTH_FIELD in fields),
        selectors.read_selector(fields[selectors.SELECTOR]) if selectors.SELECTOR in fields else None,
        _batch(fields[BATCH]) if BATCH in fields else None,
        client_name(" ".join(fields.get(CLIENT, ()))),
    )


def _scope(fields: Mapping[str, tuple[str, ...]], credit: int | None) -> Scope | None:
    """Read what to receive of a collection: news of its nodes, or items if there is credit; by default one level deep (H5)."""
    if KIND not in fields and DEPTH_FIELD not in fields:
        return None
    kinds = fields.get(KIND, (SubscriptionType.NODES.value if credit is None else SubscriptionType.ITEMS.value,))
    depths = fields.get(DEPTH_FIELD, ("1",))
    try:
        (kind,), (depth,) = kinds, depths
        wanted = SubscriptionType(kind)
    except ValueError:
        known = ", ".join(member.value for member in SubscriptionType)
        raise MalformedRequest(Problem.OPTIONS_INVALID, f"{KIND} is one of {known}, {DEPTH_FIELD} one value") from None
    if depth == "all":
        return Scope(wanted, None)
    return Scope(wanted, attributes.parse_whole(depth, DEPTH, Problem.OPTIONS_INVALID, DEPTH_FIELD))


def _credit(fields: Mapping[str, tuple[str, ...]]) -> int | None:
    # XEP-0254's prose and its examples spell the name differently (QX10).
    values = {fields[name] for name in (CREDIT, _CREDIT_BARE) if name in fields}
    if not values:
        return None
    if len(values) > 1 or len(first := values.pop()) != 1:
        raise MalformedRequest(Problem.OPTIONS_INVALID, f"{CREDIT} must have one value")
    if first == ("0",) and fields.get(KIND) == (SubscriptionType.NODES.value,):
        # What the form of such a subscription shows: news need no credit.
        return None
    return min(attributes.parse_whole(first[0], _CREDIT_BELIEVED, Problem.OPTIONS_INVALID, CREDIT), MAX_CREDIT)


def _start(values: tuple[str, ...]) -> str:
    if len(values) != 1:
        raise MalformedRequest(Problem.OPTIONS_INVALID, f"{START} must have one value")
    return log_options.start(values[0])


def _read_until(values: tuple[str, ...]) -> int:
    text = values[0] if len(values) == 1 else ""
    try:
        # A time before 1970 has passed, but 0 would mean no expiry.
        return 0 if text == PRESENCE else max(read_moment(text), 1)
    except ValueError:
        raise MalformedRequest(
            Problem.OPTIONS_INVALID, f"{EXPIRE} is a time (XEP-0082) at which the subscription ends, or {PRESENCE}"
        ) from None


def _batch(values: tuple[str, ...]) -> int:
    return attributes.parse_whole(values[0] if len(values) == 1 else "", MAX_BATCH, Problem.OPTIONS_INVALID, BATCH)


def _qos(values: tuple[str, ...], jid: Jid) -> Qos:
    try:
        (value,) = values
        qos = SENT[SENT.index(Qos(value))]
    except ValueError:
        known = ", ".join(member.value for member in SENT)
        raise MalformedRequest(Problem.OPTIONS_INVALID, f"{QOS} is one of {known}") from None
    if qos is not Qos.UNACKNOWLEDGED and not resource(jid):
        raise MalformedRequest(
            Problem.OPTIONS_INVALID, f"{qos.value} deliveries are IQs, which need a full JID to go to: subscribe one"
        )
    return qos
