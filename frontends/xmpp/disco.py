"""Service discovery (XEP-0030): what the service and its nodes say of themselves. Must not know how they are stored."""

from typing import Final
from xml.etree.ElementTree import Element

from broker.model.commands import Describe, Nodes
from broker.model.nodes import Affiliation, NodeRecord
from broker.model.results import Counted
from frontends.xmpp import attributes, forms
from frontends.xmpp import namespaces as ns
from frontends.xmpp.markup import escaped
from frontends.xmpp.stanzas import Answer, Iq, Question, View, expect

# Exactly what works: a client may rely on each of these (P8).
_FEATURES: Final = (
    ns.DISCO_INFO,
    ns.DISCO_ITEMS,
    ns.QUEUEING,
    ns.QOS,
    ns.STANZAQ,
    ns.STREAMS,
    ns.SHIM,
    ns.PUBSUB,
    *(
        f"{ns.PUBSUB}#{name}"
        for name in (
            "access-open",
            "access-whitelist",
            "config-node",
            "create-and-configure",
            "create-nodes",
            "delete-items",
            "delete-nodes",
            "instant-nodes",
            "item-ids",
            "member-affiliation",
            "meta-data",
            "modify-affiliations",
            "outcast-affiliation",
            "persistent-items",
            "publish",
            "publish-only-affiliation",
            "publisher-affiliation",
            "purge-nodes",
            "retrieve-default",
            "retrieve-items",
            "subscribe",
            "subscription-options",
        )
    ),
)
_NODE_FEATURES: Final = (ns.DISCO_INFO, ns.DISCO_ITEMS, ns.QUEUEING, ns.STANZAQ, ns.STREAMS, ns.PUBSUB)


def read_info(iq: Iq, query: Element) -> Question | Answer:
    """Translate disco#info about the service or a node."""
    expect(iq, "get")
    if not query.get("node"):
        return Answer(iq, _info("", "service", "stanzaq", _FEATURES, ""))
    return Question(iq, Describe(attributes.node(query), iq.sender, as_owner=False), View.INFO)


def read_address(iq: Iq) -> Answer | None:
    """Translate disco#info about NODE@service, where messages are taken; None when it is asked for something else."""
    if iq.kind != "get" or [child.tag for child in iq.element] != [f"{{{ns.DISCO_INFO}}}query"]:
        return None
    return Answer(iq, _info("", "leaf", "", (ns.DISCO_INFO, ns.QOS), ""))


def read_items(iq: Iq, query: Element) -> Question | Answer:
    """Translate disco#items about the service or a node."""
    expect(iq, "get")
    if not query.get("node"):
        return Question(iq, Nodes(iq.sender))
    return Question(iq, Describe(attributes.node(query), iq.sender, as_owner=False), View.ITEMS)


def node_info(record: NodeRecord, counted: Counted) -> bytes:
    """Write a node's identity, its features (Q3) and what it holds (P8)."""
    owners = tuple(sorted(jid for jid, standing in record.affiliations.items() if standing is Affiliation.OWNER))
    title = record.config.title
    form = forms.written(
        "result",
        ns.PUBSUB_META_DATA,
        (
            forms.Field("pubsub#title", (title,), "text-single"),
            forms.Field("pubsub#owner", owners, "jid-multi"),
            forms.Field("pubsub#num_subscribers", (str(counted.subscribers),), "text-single"),
            forms.Field("stanzaq#waiting", (str(counted.waiting),), "text-single"),
            forms.Field("stanzaq#eligible", (str(counted.eligible),), "text-single"),
            forms.Field("stanzaq#delayed", (str(counted.delayed),), "text-single"),
            forms.Field("stanzaq#in_flight", (str(counted.in_flight),), "text-single"),
            forms.Field("stanzaq#dying", (str(counted.dying),), "text-single"),
            forms.Field("stanzaq#oldest_ms", (str(counted.oldest_ms),), "text-single"),
            forms.Field("stanzaq#credit_free", (str(counted.credit_free),), "text-single"),
            forms.Field("stanzaq#kept", (str(counted.kept),), "text-single"),
            forms.Field("stanzaq#kept_bytes", (str(counted.kept_bytes),), "text-single"),
        ),
    )
    # Whether a node is a queue is to be seen by this feature (Q3).
    features = tuple(name for name in _NODE_FEATURES if record.config.queueing or name != ns.QUEUEING)
    return _info(record.name, "leaf", title, features, form)


def node_items(record: NodeRecord) -> bytes:
    """Write a node's list of items, which on a queue is empty: its items are browsed, not listed (P9)."""
    return f"<query xmlns='{ns.DISCO_ITEMS}' node='{escaped(record.name)}'/>".encode()


def service_items(service: str, nodes: tuple[str, ...]) -> bytes:
    """Write the list of nodes."""
    items = "".join(f"<item jid='{escaped(service)}' node='{escaped(node)}'/>" for node in nodes)
    return f"<query xmlns='{ns.DISCO_ITEMS}'>{items}</query>".encode()


def _info(node: str, kind: str, name: str, features: tuple[str, ...], form: str) -> bytes:
    about = f" node='{escaped(node)}'" if node else ""
    named = f" name='{escaped(name)}'" if name else ""
    listed = "".join(f"<feature var='{feature}'/>" for feature in features)
    return (
        f"<query xmlns='{ns.DISCO_INFO}'{about}><identity category='pubsub' type='{kind}'{named}/>"
        f"{listed}{form}</query>"
    ).encode()
