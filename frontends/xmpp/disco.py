"""Service discovery (XEP-0030) of the service and its nodes. Must not know how they are stored."""

from typing import Final
from xml.etree.ElementTree import Element

from broker.model.commands import Children, Describe, Nodes
from broker.model.names import is_group
from broker.model.nodes.nodes import Affiliation, NodeRecord, form_values
from broker.model.results import Counted, Listing
from frontends.xmpp import namespaces as ns
from frontends.xmpp.adhoc import commands, offered
from frontends.xmpp.pubsub import attributes, batches, paging
from frontends.xmpp.stanzas import DoorAnswer, Iq, Question, View, expect
from frontends.xmpp.xml import forms
from frontends.xmpp.xml.text import escape, moment

# Exactly the working features: a client may rely on each of them (P8).
_FEATURES: Final = (
    ns.DISCO_INFO,
    ns.DISCO_ITEMS,
    ns.QUEUEING,
    ns.QOS,
    ns.STANZAQ,
    ns.STREAMS,
    ns.BATCH,
    ns.RSM,
    ns.SHIM,
    ns.COMMANDS,
    ns.PING,
    ns.VERSION,
    ns.PUBSUB,
    *(
        f"{ns.PUBSUB}#{name}"
        for name in (
            "collections",
            "config-node",
            "create-and-configure",
            "create-nodes",
            "delete-items",
            "delete-nodes",
            "get-pending",
            "instant-nodes",
            "item-ids",
            "leased-subscription",
            "manage-subscriptions",
            "member-affiliation",
            "meta-data",
            "modify-affiliations",
            "multi-subscribe",
            "outcast-affiliation",
            "persistent-items",
            "publish",
            "publish-only-affiliation",
            "publish-options",
            "publisher-affiliation",
            "purge-nodes",
            "retrieve-affiliations",
            "retrieve-default",
            "retrieve-default-sub",
            "retrieve-items",
            "rsm",
            "retrieve-subscriptions",
            "subscribe",
            "subscription-notifications",
            "subscription-options",
        )
    ),
)
NODES_MOST: Final = 500
"""The most nodes in a reply: with the longest names it reaches the size limit of a reply."""

_META_DATA: Final = ("title", "description", "type", "access_model", "publish_model", "max_items")

_BATCH_BOUNDS: Final = (
    forms.Field("stanzaq#batch_max", (str(batches.MOST),), "text-single"),
    forms.Field("stanzaq#batch_bytes", (str(batches.BYTES),), "text-single"),
)
_COLLECTION_FEATURES: Final = (ns.DISCO_INFO, ns.DISCO_ITEMS, ns.PUBSUB)
_NODE_FEATURES: Final = (
    ns.DISCO_INFO,
    ns.DISCO_ITEMS,
    ns.QUEUEING,
    ns.QOS,
    ns.STANZAQ,
    ns.STREAMS,
    ns.BATCH,
    ns.PUBSUB,
)


def read_info(iq: Iq, query: Element, context: commands.AdhocContext) -> Question | DoorAnswer:
    """Translate disco#info about the service or a node."""
    expect(iq, "get")
    node = query.get("node", "")
    if not node:
        default = f"{ns.PUBSUB}#access-{context.node.access_model.value}"
        return DoorAnswer(iq, _info("", "service", "stanzaq", (*_FEATURES, default), ""))
    if node == ns.COMMANDS:
        return DoorAnswer(iq, commands.list_info())
    if command := offered.COMMANDS.get(node):
        return DoorAnswer(iq, commands.info(command))
    return Question(iq, Describe(attributes.node(query), iq.sender, as_owner=False), View.INFO)


def read_address(iq: Iq, node: str) -> Question | None:
    """Translate service discovery of a node at its address, as if the service were asked; None for other requests."""
    query = iq.element[0] if iq.kind == "get" and len(iq.element) == 1 else None
    if query is None or query.get("node", node) != node:
        return None
    if query.tag == f"{{{ns.DISCO_INFO}}}query":
        return Question(iq, Describe(attributes.node_name(node), iq.sender, as_owner=False), View.INFO)
    if query.tag == f"{{{ns.DISCO_ITEMS}}}query":
        return Question(iq, Children(attributes.node_name(node), iq.sender))
    return None


def read_items(iq: Iq, query: Element, context: commands.AdhocContext) -> Question | DoorAnswer:
    """Translate disco#items about the service or a node."""
    expect(iq, "get")
    if not query.get("node"):
        page = paging.read(query, NODES_MOST)
        backwards, index = page.before is not None, page.index or 0
        return Question(iq, Nodes(iq.sender, page.most, page.after or "", page.before or "", backwards, index))
    if query.get("node") == ns.COMMANDS:
        return DoorAnswer(iq, commands.items(iq, offered.COMMANDS, context))
    return Question(iq, Children(attributes.node(query), iq.sender))


def node_info(record: NodeRecord, counted: Counted, *, named: bool = True) -> bytes:
    """Write a node's identity, features (Q3) and counts (P8); its name only if the request had it."""
    # A group is no JID.
    owners = tuple(
        sorted(jid for jid, has in record.affiliations.items() if has is Affiliation.OWNER and not is_group(jid))
    )
    form = forms.write_form(
        "result",
        ns.PUBSUB_META_DATA,
        (
            *(forms.Field(name, (value,), "text-single") for name, value in _write_meta_data(record).items() if value),
            forms.Field("pubsub#owner", owners, "jid-multi"),
            forms.Field("pubsub#num_subscribers", (str(counted.subscribers),), "text-single"),
            *_bounds(record),
            forms.Field("stanzaq#waiting", (str(counted.waiting),), "text-single"),
            forms.Field("stanzaq#eligible", (str(counted.eligible),), "text-single"),
            forms.Field("stanzaq#delayed", (str(counted.delayed),), "text-single"),
            forms.Field("stanzaq#dependent", (str(counted.dependent),), "text-single"),
            forms.Field("stanzaq#in_flight", (str(counted.in_flight),), "text-single"),
            forms.Field("stanzaq#dying", (str(counted.dying),), "text-single"),
            forms.Field("stanzaq#oldest_ms", (str(counted.oldest_ms),), "text-single"),
            forms.Field("stanzaq#credit_free", (str(counted.credit_free),), "text-single"),
            forms.Field("stanzaq#kept", (str(counted.kept),), "text-single"),
            forms.Field("stanzaq#kept_bytes", (str(counted.kept_bytes),), "text-single"),
        ),
    )
    return _node_info(record, form, named=named)


def closed_node_info(record: NodeRecord, *, named: bool) -> bytes:
    """Write what a node tells those that may not read it, and may publish or ask for a subscription."""
    return _node_info(record, forms.write_form("result", ns.PUBSUB_META_DATA, _bounds(record)), named=named)


def _bounds(record: NodeRecord) -> tuple[forms.Field, ...]:
    # A worker renews its locks in time whatever its own clock says.
    lock = forms.Field("stanzaq#lock_seconds", (str(record.config.lock_seconds),), "text-single")
    return (lock,) if record.config.collects else (*_BATCH_BOUNDS, lock)


def _node_info(record: NodeRecord, form: str, *, named: bool) -> bytes:
    title, about = record.config.title, record.name if named else ""
    if record.config.collects:
        return _info(about, "collection", title, _COLLECTION_FEATURES, form)
    # This feature shows whether a node is a queue (Q3).
    features = tuple(name for name in _NODE_FEATURES if record.config.queueing or name != ns.QUEUEING)
    return _info(about, "leaf", title, features, form)


def _write_meta_data(record: NodeRecord) -> dict[str, str]:
    """Return the meta-data that XEP-0060 registers (§16.4.3), as far as the node has it."""
    values = form_values(record.name, record.config)
    told = {f"pubsub#{name}": values[f"pubsub#{name}"] for name in _META_DATA}
    created = moment(record.created_ms) if record.created_ms else ""
    return told | {"pubsub#creator": record.creator or "", "pubsub#creation_date": created}


def node_items(service: str, node: str, below: tuple[str, ...]) -> bytes:
    """Write a collection's children (H3); nothing for a leaf, whose items are browsed, not listed (P9)."""
    items = "".join(f"<item jid='{escape(service)}' node='{escape(name)}'/>" for name in below)
    about = f" node='{escape(node)}'" if node else ""
    return f"<query xmlns='{ns.DISCO_ITEMS}'{about}>{items}</query>".encode()


def service_items(iq: Iq, listing: Listing) -> bytes:
    """Write a list of nodes, with its place in the whole list unless it is complete (XEP-0059 §2.2)."""
    nodes = listing.nodes
    items = "".join(f"<item jid='{escape(iq.service)}' node='{escape(node)}'/>" for node in nodes)
    ends = (nodes[0], nodes[-1]) if nodes else None
    page = (
        paging.write_page(ends, listing.count, listing.index)
        if listing.more or paging.asks_for_page(iq.element)
        else ""
    )
    return f"<query xmlns='{ns.DISCO_ITEMS}'>{items}{page}</query>".encode()


def _info(node: str, kind: str, name: str, features: tuple[str, ...], form: str) -> bytes:
    about = f" node='{escape(node)}'" if node else ""
    named = f" name='{escape(name)}'" if name else ""
    listed = "".join(f"<feature var='{feature}'/>" for feature in features)
    return (
        f"<query xmlns='{ns.DISCO_INFO}'{about}><identity category='pubsub' type='{kind}'{named}/>"
        f"{listed}{form}</query>"
    ).encode()
