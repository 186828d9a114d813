"""A node's configuration as a form. Knows the table of options; must not know who asks for it."""

from typing import Final

from broker.model.nodes import NodeRecord, shown
from broker.model.options import OPTIONS, NodeConfig
from frontends.xmpp import forms
from frontends.xmpp import namespaces as ns
from frontends.xmpp.markup import escaped

_DEAD_LETTER_NODE: Final = "stanzaq#dead_letter_node"


def current(record: NodeRecord) -> bytes:
    """Write the form in which an owner finds what is in force (XEP-0060 §8.2.2)."""
    form = forms.written("form", ns.PUBSUB_NODE_CONFIG, _fields(shown(record.name, record.config)))
    return (
        f"<pubsub xmlns='{ns.PUBSUB_OWNER}'><configure node='{escaped(record.name)}'>{form}</configure></pubsub>"
    ).encode()


def default() -> bytes:
    """Write the form of a node that does not exist yet (XEP-0060 §8.3.2)."""
    values = shown("", NodeConfig())
    # The default depends on the node's name; an empty field, sent back, would mean that there are no dead letters.
    del values[_DEAD_LETTER_NODE]
    form = forms.written("form", ns.PUBSUB_NODE_CONFIG, _fields(values))
    return f"<pubsub xmlns='{ns.PUBSUB_OWNER}'><default>{form}</default></pubsub>".encode()


def _fields(values: dict[str, str]) -> list[forms.Field]:
    return [
        forms.Field(option.name, (values[option.name],), option.kind, option.label, option.choices)
        for option in OPTIONS
        if option.name in values
    ]
