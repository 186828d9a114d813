"""Requests that create and manage nodes (XEP-0060 §8). Must not know replies or the meaning of configuration fields."""

from collections.abc import Callable, Mapping
from typing import Final
from xml.etree.ElementTree import Element

from broker.model.commands import Affiliate, Associate, Configure, Declare, Delete, Describe, Dissociate, Purge
from broker.model.names import Jid, bare_jid, is_group
from broker.model.nodes.fields import values
from broker.model.nodes.nodes import Affiliation
from broker.model.nodes.options import NodeConfig
from broker.model.nodes.tree import NodeType
from broker.model.problems import MalformedRequest, Problem
from frontends.xmpp import namespaces as ns
from frontends.xmpp.pubsub import attributes, node_config, subscription_lists
from frontends.xmpp.stanzas import DoorAnswer, Iq, Question, View, drop_foreign, expect, only_child
from frontends.xmpp.xml import forms

_CONFIGURE: Final = f"{{{ns.PUBSUB}}}configure"
_DEFAULT: Final = f"{{{ns.PUBSUB_OWNER}}}default"
_REDIRECT: Final = f"{{{ns.PUBSUB_OWNER}}}redirect"
_AFFILIATION: Final = f"{{{ns.PUBSUB_OWNER}}}affiliation"
_NODE_TYPE: Final = "pubsub#node_type"
_ASSOCIATIONS: Final[Mapping[str, type[Associate | Dissociate]]] = {
    f"{{{ns.PUBSUB_OWNER}}}associate": Associate,
    f"{{{ns.PUBSUB_OWNER}}}dissociate": Dissociate,
}
_AFFILIATIONS: Final = frozenset(str(member.value) for member in Affiliation)


def create(iq: Iq, pubsub: Element) -> Declare:
    """Translate `<create/>` with an optional `<configure/>`; without a name the core generates one (P22)."""
    expect(iq, "set")
    wanted = pubsub[0]
    # Earlier versions of XEP-0060 used this attribute instead of the form's field.
    said = {} if wanted.get("type") is None else {_NODE_TYPE: (wanted.get("type", ""),)}
    node = None if wanted.get("node") is None else attributes.node(wanted)
    if len(pubsub) == 1:
        return Declare(node, iq.sender, said)
    configure = pubsub[1]
    if len(pubsub) > 2 or configure.tag != _CONFIGURE or configure.get("node") is not None:
        raise MalformedRequest(Problem.BAD_REQUEST, "a create is followed by a configure without node, or by nothing")
    form = configure.find(forms.FORM)
    # Without a form, and after `cancel`, the defaults apply (XEP-0060 §8.1.3).
    fields = None if form is None else forms.read(form, ns.PUBSUB_NODE_CONFIG)
    return Declare(node, iq.sender, {**said, **node_config.keep_known(fields or {})})


def read(iq: Iq, pubsub: Element, default: NodeConfig) -> Question | DoorAnswer:
    """Translate a request in the owner's namespace; `default` is the default configuration of a node."""
    pubsub = drop_foreign(pubsub, ns.PUBSUB_OWNER, ns.RSM)
    if not len(pubsub):
        raise MalformedRequest(Problem.BAD_REQUEST, "the request is empty")
    tag = pubsub[0].tag
    if tag == _DEFAULT:
        return _default(iq, pubsub, default)
    if reader := _ACTIONS.get(tag):
        return reader(iq, pubsub)
    raise MalformedRequest(Problem.UNSUPPORTED, "no such request in XEP-0060")


def _configure(iq: Iq, pubsub: Element) -> Question | DoorAnswer:
    configure = only_child(iq, pubsub, iq.kind)
    node = attributes.node(configure)
    form = configure.find(forms.FORM)
    if iq.kind == "get":
        forms.refuse(form)
        return Question(iq, Describe(node, iq.sender, as_owner=True), View.CONFIGURATION)
    if form is None:
        raise MalformedRequest(Problem.OPTIONS_INVALID, "the new configuration is missing")
    fields = forms.read(form, ns.PUBSUB_NODE_CONFIG)
    if fields is None:
        return DoorAnswer(iq)
    return Question(iq, Configure(node, iq.sender, node_config.keep_known(fields)))


def _default(iq: Iq, pubsub: Element, config: NodeConfig) -> DoorAnswer:
    asked = only_child(iq, pubsub, "get")
    try:
        return DoorAnswer(iq, node_config.default(config, NodeType(asked.get("type", NodeType.LEAF.value))))
    except ValueError:
        known = ", ".join(values(NodeType))
        raise MalformedRequest(Problem.BAD_REQUEST, f"the type of a node is one of {known}") from None


def _delete(iq: Iq, pubsub: Element) -> Question:
    delete = only_child(iq, pubsub, "set")
    redirect = delete.find(_REDIRECT)
    return Question(
        iq, Delete(attributes.node(delete), iq.sender, "" if redirect is None else attributes.uri(redirect))
    )


def _purge(iq: Iq, pubsub: Element) -> Question:
    return Question(iq, Purge(attributes.node(only_child(iq, pubsub, "set")), iq.sender))


def _affiliations(iq: Iq, pubsub: Element) -> Question:
    affiliations = only_child(iq, pubsub, iq.kind)
    node = attributes.node(affiliations)
    if iq.kind == "get":
        return Question(iq, Describe(node, iq.sender, as_owner=True), View.AFFILIATIONS)
    changes: dict[Jid, str] = {}
    for entry in affiliations.iterfind(_AFFILIATION):
        # Affiliations belong to bare JIDs (P2), and to groups of tokens.
        named = entry.get("jid", "")
        jid = Jid(named) if is_group(named) else bare_jid(attributes.normalize_jid(named))
        if not jid:
            raise MalformedRequest(Problem.JID_REQUIRED, "each affiliation names a JID")
        # Without an affiliation it stays unchanged (XEP-0060 §8.9.2.1).
        affiliation = entry.get("affiliation")
        if affiliation is None:
            continue
        if affiliation not in _AFFILIATIONS or jid in changes:
            raise MalformedRequest(
                Problem.BAD_REQUEST, f"each JID gets one affiliation of {', '.join(sorted(_AFFILIATIONS))}"
            )
        changes[jid] = affiliation
    if not changes:
        raise MalformedRequest(Problem.BAD_REQUEST, "the request changes no affiliation")
    return Question(iq, Affiliate(node, iq.sender, changes))


def _collection(iq: Iq, pubsub: Element) -> Question:
    """Translate an association or a dissociation of one child (XEP-0248 §6.4, §6.5)."""
    collection = only_child(iq, pubsub, "set")
    node = attributes.node(collection)
    collection = drop_foreign(collection, ns.PUBSUB_OWNER)
    if len(collection) != 1 or collection[0].tag not in _ASSOCIATIONS:
        raise MalformedRequest(Problem.BAD_REQUEST, "a collection has one associate, or one dissociate")
    return Question(iq, _ASSOCIATIONS[collection[0].tag](node, iq.sender, attributes.node(collection[0])))


_ACTIONS: Final[Mapping[str, Callable[[Iq, Element], Question | DoorAnswer]]] = {
    f"{{{ns.PUBSUB_OWNER}}}configure": _configure,
    f"{{{ns.PUBSUB_OWNER}}}delete": _delete,
    f"{{{ns.PUBSUB_OWNER}}}purge": _purge,
    f"{{{ns.PUBSUB_OWNER}}}affiliations": _affiliations,
    f"{{{ns.PUBSUB_OWNER}}}collection": _collection,
    f"{{{ns.PUBSUB_OWNER}}}subscriptions": subscription_lists.translate_subscriptions,
}
