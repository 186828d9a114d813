"""A node's configuration as a form. Knows the table of options; must not know who asks."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from broker.model.nodes.nodes import NodeRecord, form_values
from broker.model.nodes.options import BY_NAME, FORCED, OPTIONS, NodeConfig
from broker.model.nodes.tree import CHILDREN, COLLECTION, NodeType
from broker.model.results import Described
from frontends.xmpp import namespaces as ns
from frontends.xmpp.xml import forms
from frontends.xmpp.xml.text import escape

_DEAD_LETTER_NODE: Final = "stanzaq#dead_letter_node"

_UNHEARD: Final = frozenset({"pubsub#notification_type"})
"""Shown but not read: clients request `headline` by habit, but deliveries do not depend on it."""

_UNDERSTOOD: Final = frozenset({*BY_NAME, *FORCED, COLLECTION, CHILDREN}) - _UNHEARD


def keep_known(fields: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return the known fields of a submitted form; the others are ignored (XEP-0004 §3.1)."""
    return {name: values for name, values in fields.items() if name in _UNDERSTOOD}


def current(described: Described) -> bytes:
    """Write the form with the current configuration (XEP-0060 §8.2.2) and the place in the tree (XEP-0248 §6.2)."""
    record = described.record
    fields = _fields(form_values(record.name, record.config), record.config.node_type)
    # The root has no name, and appears as an empty value (XEP-0248 §7.1).
    fields.append(forms.Field(COLLECTION, (record.parent,), "text-multi", "The collection that the node is a child of"))
    if record.config.collects:
        fields.append(forms.Field(CHILDREN, described.children, "text-multi", "The children of the collection"))
    form = forms.write_form("form", ns.PUBSUB_NODE_CONFIG, fields)
    return (
        f"<pubsub xmlns='{ns.PUBSUB_OWNER}'><configure node='{escape(record.name)}'>{form}</configure></pubsub>"
    ).encode()


def write_changed(record: NodeRecord) -> str:
    """Write the notification of a changed configuration (XEP-0060 §8.2.5.3)."""
    fields = _fields(form_values(record.name, record.config), record.config.node_type)
    fields = [forms.Field(field.name, field.values) for field in fields]
    form = forms.write_form("result", ns.PUBSUB_NODE_CONFIG, fields)
    return f"<configuration node='{escape(record.name)}'>{form}</configuration>"


def default(config: NodeConfig, kind: NodeType) -> bytes:
    """Write the default configuration of a node type (XEP-0060 §8.3.1, §8.3.2)."""
    values = form_values("", replace(config, node_type=kind))
    # The default depends on the node's name; an empty field, sent back, would disable dead letters.
    del values[_DEAD_LETTER_NODE]
    form = forms.write_form("form", ns.PUBSUB_NODE_CONFIG, _fields(values, kind))
    return f"<pubsub xmlns='{ns.PUBSUB_OWNER}'><default>{form}</default></pubsub>".encode()


def _fields(values: dict[str, str], kind: NodeType) -> list[forms.Field]:
    found = [
        forms.Field(
            option.name,
            tuple(values[option.name].split("\n")) if option.many else (values[option.name],),
            option.kind,
            option.label,
            option.choices,
        )
        for option in OPTIONS
        if option.name in values and option.on in {None, kind}
    ]
    if kind is NodeType.LEAF:
        found += map(_forced_field, FORCED)
    return found


def _forced_field(name: str) -> forms.Field:
    """Return a field whose value is the same for every queue."""
    value = FORCED[name]
    if value == "1":
        return forms.Field(name, (value,), "boolean")
    return forms.Field(name, (value,), "list-single", choices=(value,))
