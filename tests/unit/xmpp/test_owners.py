"""Requests that create and manage nodes."""

from collections.abc import Callable
from xml.etree import ElementTree as ET

import pytest

from broker.model.commands import Affiliate, Associate, Configure, Declare, Delete, Describe, Dissociate, Purge
from broker.model.names import Jid
from broker.model.nodes.nodes import NodeRecord, change_config
from broker.model.nodes.options import FORCED, OPTIONS, NodeConfig
from broker.model.nodes.tree import Association, NodeType, TreeRequest, tree_request
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import Described
from frontends.xmpp import namespaces as ns
from frontends.xmpp import requests
from frontends.xmpp.adhoc import commands
from frontends.xmpp.pubsub import node_config
from frontends.xmpp.stanzas import DoorAnswer, Iq, Question, View
from frontends.xmpp.xml import forms

_ME = Jid("worker@example.org/desk")

_AFFILIATIONS = (
    "<affiliations node='jobs'><affiliation jid='{}' affiliation='{}'/><affiliation jid='{}' affiliation='{}'/>"
    "</affiliations>"
)

_REDIRECTED = Delete("jobs", _ME, "xmpp:q.x?;node=a&b")

Read = Callable[..., Question]
Fault = Callable[..., MalformedRequest]


def _form(inside: str = "<field var='pubsub#title'><value>Jobs</value></field>", kind: str = "submit") -> str:
    return (
        f"<x xmlns='{ns.FORM}' type='{kind}'><field var='FORM_TYPE'><value>{ns.PUBSUB_NODE_CONFIG}</value></field>"
        f"{inside}</x>"
    )


def _pubsub(inside: str) -> str:
    return f"<pubsub xmlns='{ns.PUBSUB}'>{inside}</pubsub>"


def _owner(inside: str) -> str:
    return f"<pubsub xmlns='{ns.PUBSUB_OWNER}'>{inside}</pubsub>"


@pytest.mark.parametrize(
    ("inside", "node", "options"),
    [
        ("<create node='jobs'/>", "jobs", {}),
        ("<create/>", None, {}),
        ("<create node='jobs' type='leaf'/><configure/>", "jobs", {"pubsub#node_type": ("leaf",)}),
        ("<create node='all' type='collection'/>", "all", {"pubsub#node_type": ("collection",)}),
        (f"<create node='jobs'/><configure>{_form()}</configure>", "jobs", {"pubsub#title": ("Jobs",)}),
        (f"<create node='jobs'/><configure>{_form(kind='cancel')}</configure>", "jobs", {}),
    ],
)
def test_create(read: Read, inside: str, node: str | None, options: dict[str, tuple[str, ...]]) -> None:
    """A node is made with a name or without, configured at once or not (P22)."""
    assert read(_pubsub(inside)).command == Declare(node, _ME, options)


@pytest.mark.parametrize(
    ("inside", "problem"),
    [
        ("<create node='jobs'/><configure node='jobs'/>", Problem.BAD_REQUEST),
        ("<configure/><create node='jobs'/>", Problem.BAD_REQUEST),
        ("<create node='jobs'/><banana/>", Problem.BAD_REQUEST),
        ("<create node='jobs'/><configure/><configure/>", Problem.BAD_REQUEST),
        ("<create node=''/>", Problem.NODE_REQUIRED),
        (f"<create node='{'x' * 1024}'/>", Problem.NODE_NAME_INVALID),
        (f"<create node='jobs'/><configure>{_form(kind='form')}</configure>", Problem.OPTIONS_INVALID),
    ],
)
def test_bad_creates(fault: Fault, inside: str, problem: Problem) -> None:
    """A configure that has a node, stands elsewhere or holds no submission is refused (P22)."""
    assert fault(_pubsub(inside)).problem is problem


@pytest.mark.parametrize(
    ("inside", "kind", "command", "view"),
    [
        ("<configure node='jobs'/>", "get", Describe("jobs", _ME, as_owner=True), View.CONFIGURATION),
        (
            f"<configure node='jobs'>{_form()}</configure>",
            "set",
            Configure("jobs", _ME, {"pubsub#title": ("Jobs",)}),
            None,
        ),
        ("<delete node='jobs'/>", "set", Delete("jobs", _ME), None),
        ("<delete node='jobs'><redirect uri='xmpp:q.x?;node=a&amp;b'/></delete>", "set", _REDIRECTED, None),
        ("<purge node='jobs'/>", "set", Purge("jobs", _ME), None),
        ("<affiliations node='jobs'/>", "get", Describe("jobs", _ME, as_owner=True), View.AFFILIATIONS),
        (
            _AFFILIATIONS.format("Bob@example.org/x", "outcast", "eve@example.org", "none"),
            "set",
            Affiliate("jobs", _ME, {Jid("bob@example.org"): "outcast", Jid("eve@example.org"): "none"}),
            None,
        ),
        (
            _AFFILIATIONS.format("group:/Team", "owner", "group:", "member"),
            "set",
            Affiliate("jobs", _ME, {Jid("group:/Team"): "owner", Jid("group:"): "member"}),
            None,
        ),
    ],
)
def test_an_owner_s_requests(read: Read, inside: str, kind: str, command: object, view: View | None) -> None:
    """Configuration, affiliations, purge and deletion are understood (P2, P23 to P26)."""
    question = read(_owner(inside), kind)
    assert (question.command, question.view) == (command, view)


@pytest.mark.parametrize(
    ("inside", "kind", "problem"),
    [
        ("", "get", Problem.BAD_REQUEST),
        ("<banana/>", "get", Problem.UNSUPPORTED),
        ("<configure/>", "get", Problem.NODE_REQUIRED),
        ("<configure node='jobs'/>", "set", Problem.OPTIONS_INVALID),
        ("<delete node='jobs'/>", "get", Problem.BAD_REQUEST),
        ("<delete node='jobs'><redirect/></delete>", "set", Problem.BAD_REQUEST),
        ("<delete node='jobs'><redirect uri='jobs-2'/></delete>", "set", Problem.BAD_REQUEST),
        ("<delete node='jobs'><redirect uri='xmpp:a b'/></delete>", "set", Problem.BAD_REQUEST),
        (f"<delete node='jobs'><redirect uri='xmpp:{'x' * 2048}'/></delete>", "set", Problem.BAD_REQUEST),
        ("<delete/>", "set", Problem.NODE_REQUIRED),
        ("<purge/>", "set", Problem.NODE_REQUIRED),
        ("<purge node='a'/><purge node='b'/>", "set", Problem.BAD_REQUEST),
        ("<affiliations node='jobs'/>", "set", Problem.BAD_REQUEST),
        (
            "<affiliations node='jobs'><affiliation affiliation='owner'/></affiliations>",
            "set",
            Problem.JID_REQUIRED,
        ),
        (
            "<affiliations node='jobs'><affiliation jid='a@b' affiliation='king'/></affiliations>",
            "set",
            Problem.BAD_REQUEST,
        ),
        ("<affiliations node='jobs'><affiliation jid='a@b'/></affiliations>", "set", Problem.BAD_REQUEST),
        (
            _AFFILIATIONS.format("a@b", "owner", "A@b/c", "none"),
            "set",
            Problem.BAD_REQUEST,
        ),
    ],
)
def test_an_owner_s_mistakes(fault: Fault, inside: str, kind: str, problem: Problem) -> None:
    """Each half request is refused by name."""
    assert fault(_owner(inside), kind).problem is problem


def test_cancel_keeps_the_configuration(read: Callable[..., DoorAnswer]) -> None:
    """A cancelled form is answered with a result and changes nothing (P23)."""
    answer = read(_owner(f"<configure node='jobs'>{_form(kind='cancel')}</configure>"))
    assert isinstance(answer, DoorAnswer)
    assert answer.content == b""


def _submitted(content: bytes) -> dict[str, tuple[str, ...]]:
    form = next(ET.fromstring(content).iter(forms.FORM))
    form.set("type", "submit")
    fields = forms.read(form, ns.PUBSUB_NODE_CONFIG)
    assert fields is not None
    return dict(fields)


def test_the_default_form_says_the_defaults(read: Callable[..., DoorAnswer]) -> None:
    """The form of a new node, sent back as it is, makes a node with the defaults (P23)."""
    answer = read(_owner("<default/>"), "get")
    assert change_config(NodeConfig(), _submitted(answer.content)) == NodeConfig()


def test_the_form_of_a_node_says_what_is_in_force() -> None:
    """An owner's form shows every field; sent back as it is, it changes nothing that a worker would notice."""
    config = NodeConfig(title="<Jobs & more>", lock_seconds=5, max_items=7)
    fields = _submitted(node_config.current(Described(NodeRecord("jobs", "1", 1, config, parent="all"))))
    leaf = {option.name for option in OPTIONS if option.on in {None, NodeType.LEAF}}
    assert set(fields) == leaf | {"pubsub#collection", *FORCED}
    assert {name: fields[name] for name in FORCED} == {name: (value,) for name, value in FORCED.items()}
    options, tree = tree_request(fields)
    assert tree == TreeRequest("all")
    again = change_config(config, options)
    assert again.dead_letters_of("jobs") == config.dead_letters_of("jobs") == "jobs/dead"
    assert (again.title, again.lock_seconds, again.max_items) == (config.title, 5, 7)


def test_the_form_of_a_collection_says_where_it_stands() -> None:
    """XEP-0248 §6.2: a collection's form has its parent, its children and its own fields; sent back it changes nothing."""
    config = NodeConfig(
        node_type=NodeType.COLLECTION, association=Association.WHITELIST, association_whitelist="a@x\nb@x"
    )
    record = NodeRecord("all", "1", 1, config)
    fields = _submitted(node_config.current(Described(record, ("jobs", "mail"))))
    assert fields["pubsub#children_association_whitelist"] == ("a@x", "b@x")
    assert "stanzaq#partitions" not in fields
    options, tree = tree_request(fields)
    assert tree == TreeRequest("", ("jobs", "mail"))
    assert change_config(config, options) == config


@pytest.mark.parametrize(("what", "kind"), [("associate", Associate), ("dissociate", Dissociate)])
def test_association(read: Read, fault: Fault, what: str, kind: type[Associate | Dissociate]) -> None:
    """XEP-0248 §6.4, §6.5: one node joins a collection or leaves it."""
    asked = f"<collection node='all'><{what} node='jobs'/></collection>"
    assert read(_owner(asked)).command == kind("all", _ME, "jobs")
    assert fault(_owner(f"<collection node='all'><{what}/></collection>")).problem is Problem.NODE_REQUIRED
    assert fault(_owner("<collection node='all'/>")).problem is Problem.BAD_REQUEST


_EXAMPLE = """
<field var='pubsub#title'><value>Princely Musings (Atom)</value></field>
<field var='pubsub#deliver_notifications'><value>1</value></field>
<field var='pubsub#deliver_payloads'><value>1</value></field>
<field var='pubsub#persist_items'><value>1</value></field>
<field var='pubsub#max_items'><value>10</value></field>
<field var='pubsub#item_expire'><value>604800</value></field>
<field var='pubsub#access_model'><value>open</value></field>
<field var='pubsub#publish_model'><value>publishers</value></field>
<field var='pubsub#purge_offline'><value>0</value></field>
<field var='pubsub#send_last_published_item'><value>never</value></field>
<field var='pubsub#presence_based_delivery'><value>false</value></field>
<field var='pubsub#notification_type'><value>headline</value></field>
<field var='pubsub#notify_config'><value>0</value></field>
<field var='pubsub#notify_delete'><value>0</value></field>
<field var='pubsub#notify_retract'><value>0</value></field>
<field var='pubsub#notify_sub'><value>0</value></field>
<field var='pubsub#max_payload_size'><value>1028</value></field>
<field var='pubsub#type'><value>urn:example:e2ee:bundle</value></field>
<field var='pubsub#body_xslt'><value>http://jabxslt.jabberstudio.org/atom_body.xslt</value></field>
"""
"""The fields of XEP-0060 §8.1.3."""


def test_the_example_of_create_and_configure(read: Read) -> None:
    """XEP-0060 §8.1.3, XEP-0004 §3.1: the example is taken; what means nothing here is ignored, and not shown as granted."""
    made = read(_pubsub(f"<create node='jobs'/><configure>{_form(_EXAMPLE)}</configure>")).command
    changed = read(_owner(f"<configure node='jobs'>{_form(_EXAMPLE)}</configure>")).command
    assert isinstance(made, Declare) and isinstance(changed, Configure)
    assert made.options == changed.options
    config = change_config(NodeConfig(), made.options)
    assert (config.title, config.max_items, config.max_payload_bytes) == ("Princely Musings (Atom)", 10, 1028)
    shown = _submitted(node_config.current(Described(NodeRecord("jobs", "1", 1, config))))
    assert shown["pubsub#notification_type"] == ("normal",)
    assert not {"pubsub#item_expire", "pubsub#presence_based_delivery", "pubsub#body_xslt"} & set(shown)


def test_what_means_something_is_not_ignored(read: Read) -> None:
    """Q15, PX5: an understood field with an impossible value is left for the core to refuse."""
    asked = _form("<field var='pubsub#deliver_payloads'><value>0</value></field>")
    command = read(_owner(f"<configure node='jobs'>{asked}</configure>")).command
    assert isinstance(command, Configure)
    with pytest.raises(MalformedRequest) as refused:
        change_config(NodeConfig(), command.options)
    assert refused.value.problem is Problem.NOT_ACCEPTABLE


def test_a_form_in_a_get(fault: Fault) -> None:
    """RFC 6120 §8.2.3: a get changes nothing, so a form that is submitted with one is refused."""
    assert fault(_owner(f"<configure node='jobs'>{_form()}</configure>"), "get").problem is Problem.BAD_REQUEST


def test_the_default_of_each_type(read: Callable[..., DoorAnswer], fault: Fault) -> None:
    """XEP-0060 §8.3.1: the form of a collection is asked for by its type, that of a leaf by default."""
    leaf, same, collection = (
        _submitted(read(_owner(f"<default{about}/>"), "get").content)
        for about in ("", " type='leaf'", " type='collection'")
    )
    assert leaf == same and leaf["pubsub#node_type"] == ("leaf",)
    assert collection["pubsub#node_type"] == ("collection",)
    assert "pubsub#children_max" in collection and "stanzaq#partitions" not in collection
    assert fault(_owner("<default type='banana'/>"), "get").problem is Problem.BAD_REQUEST


def test_the_default_is_the_service_s(make_iq: Callable[..., Iq]) -> None:
    """XEP-0060 §8.3.2, §6.4.2: where nodes are logs unless their makers say otherwise, the default forms say so."""
    context = commands.AdhocContext(node=NodeConfig(queueing=False))
    node = requests.read(make_iq(_owner("<default/>"), "get"), context)
    subscription = requests.read(make_iq(_pubsub("<default/>"), "get"), context)
    assert isinstance(node, DoorAnswer) and isinstance(subscription, DoorAnswer)
    assert _submitted(node.content)["{urn:xmpp:pubsub:queueing:0}enabled"] == ("0",)
    assert b"stanzaq#start" in subscription.content
