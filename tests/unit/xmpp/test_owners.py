"""Requests that make nodes and manage them."""

from collections.abc import Callable
from xml.etree import ElementTree as ET

import pytest

from broker.model.commands import Affiliate, Configure, Declare, Delete, Describe, Purge
from broker.model.names import Jid
from broker.model.nodes import NodeRecord, configured
from broker.model.options import OPTIONS, NodeConfig
from broker.model.problems import MalformedRequest, Problem
from frontends.xmpp import configuration, forms
from frontends.xmpp import namespaces as ns
from frontends.xmpp.stanzas import Answer, Question, View

_ME = Jid("worker@example.org/desk")

_AFFILIATIONS = (
    "<affiliations node='jobs'><affiliation jid='{}' affiliation='{}'/><affiliation jid='{}' affiliation='{}'/>"
    "</affiliations>"
)

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
        ("<create node='jobs' type='leaf'/><configure/>", "jobs", {}),
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
        ("<create node='jobs' type='collection'/>", Problem.UNSUPPORTED),
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
        ("<purge node='jobs'/>", "set", Purge("jobs", _ME), None),
        ("<affiliations node='jobs'/>", "get", Describe("jobs", _ME, as_owner=True), View.AFFILIATIONS),
        (
            _AFFILIATIONS.format("Bob@example.org/x", "outcast", "eve@example.org", "none"),
            "set",
            Affiliate("jobs", _ME, {Jid("bob@example.org"): "outcast", Jid("eve@example.org"): "none"}),
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


def test_cancel_keeps_the_configuration(read: Callable[..., Answer]) -> None:
    """A cancelled form is answered with a result and changes nothing (P23)."""
    answer = read(_owner(f"<configure node='jobs'>{_form(kind='cancel')}</configure>"))
    assert isinstance(answer, Answer)
    assert answer.content == b""


def _submitted(content: bytes) -> dict[str, tuple[str, ...]]:
    form = next(ET.fromstring(content).iter(forms.FORM))
    form.set("type", "submit")
    fields = forms.read(form, ns.PUBSUB_NODE_CONFIG)
    assert fields is not None
    return dict(fields)


def test_the_default_form_says_the_defaults(read: Callable[..., Answer]) -> None:
    """The form of a new node, sent back as it is, makes a node with the defaults (P23)."""
    answer = read(_owner("<default/>"), "get")
    assert configured(NodeConfig(), _submitted(answer.content)) == NodeConfig()


def test_the_form_of_a_node_says_what_is_in_force() -> None:
    """An owner's form shows every field; sent back as it is, it changes nothing that a worker would notice."""
    config = NodeConfig(title="<Jobs & more>", lock_seconds=5, max_items=7)
    fields = _submitted(configuration.current(NodeRecord("jobs", "1", 1, config)))
    assert set(fields) == {option.name for option in OPTIONS}
    again = configured(config, fields)
    assert again.dead_letters_of("jobs") == config.dead_letters_of("jobs") == "jobs/dead"
    assert (again.title, again.lock_seconds, again.max_items) == (config.title, 5, 7)
