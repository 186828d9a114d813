"""Service discovery advertises what works, and nothing else."""

from collections.abc import Callable
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from broker.model.commands import Children, Command, Describe, Nodes, Stats
from broker.model.names import Jid
from broker.model.nodes.nodes import Affiliation, NodeRecord
from broker.model.nodes.options import AccessModel, NodeConfig
from broker.model.nodes.tree import NodeType
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import Counted, Described, Listing, Refused
from frontends.xmpp import disco, replies, requests
from frontends.xmpp import namespaces as ns
from frontends.xmpp.adhoc.commands import AdhocContext
from frontends.xmpp.errors import Unserved
from frontends.xmpp.stanzas import DescribedNode, DoorAnswer, Iq, Question, View

_ME = Jid("worker@example.org/desk")
_RECORD = NodeRecord(
    *("a'b", "1", 1, NodeConfig(title="T")),
    {Jid("o@x"): Affiliation.OWNER, Jid("m@x"): Affiliation.MEMBER, Jid("group:t"): Affiliation.OWNER},
)

MakeIq = Callable[..., Iq]
Read = Callable[..., Question | DoorAnswer]


def _features(query: ET.Element) -> set[str | None]:
    return {feature.get("var") for feature in query.iter(f"{{{ns.DISCO_INFO}}}feature")}


def test_the_service_tells_what_it_can_do(read: Read) -> None:
    """The service is a pubsub service with queueing (Q2, P8), and claims no feature that it lacks (PX1, PX3, P18)."""
    answer = read(f"<query xmlns='{ns.DISCO_INFO}'/>", "get")
    assert isinstance(answer, DoorAnswer)
    query = ET.fromstring(answer.content)
    features = _features(query)
    assert (query[0].get("category"), query[0].get("type")) == ("pubsub", "service")
    assert {
        ns.QUEUEING,
        ns.PUBSUB,
        ns.STANZAQ,
        f"{ns.PUBSUB}#publish",
        f"{ns.PUBSUB}#instant-nodes",
        ns.RSM,
    } <= features
    lacking = (
        "multi-collections",
        "last-published",
        "batch",
        "auto-create",
    )
    assert not {f"{ns.PUBSUB}#{name}" for name in lacking} & features


def test_a_node_tells_what_it_is_and_holds() -> None:
    """A queue node is a leaf with queueing (Q3), and shows its depth in its meta-data (P8)."""
    query = ET.fromstring(disco.node_info(_RECORD, Counted(1, 2, 3, 4, 5, 6, 7, 8)))
    values = {field.get("var"): [value.text for value in field] for field in query.iter(f"{{{ns.FORM}}}field")}
    assert (query.get("node"), query[0].get("type"), query[0].get("name")) == ("a'b", "leaf", "T")
    assert ns.QUEUEING in _features(query)
    assert values["FORM_TYPE"] == [ns.PUBSUB_META_DATA]
    assert values["pubsub#owner"] == ["o@x"]
    assert values["stanzaq#waiting"] == ["1"]
    assert values["stanzaq#in_flight"] == ["4"]
    assert values["pubsub#num_subscribers"] == ["7"]


def test_a_collection_tells_what_it_is() -> None:
    """A collection has an identity of its own and is no queue (H2, P8)."""
    record = replace(_RECORD, config=NodeConfig(node_type=NodeType.COLLECTION, title="All"))
    query = ET.fromstring(disco.node_info(record, Counted(0, 0, 0, 0, 0, 0, 7, 8)))
    assert (query[0].get("type"), query[0].get("name")) == ("collection", "All")
    assert ns.QUEUEING not in _features(query)


@pytest.mark.parametrize(
    ("space", "view", "command"),
    [
        (ns.DISCO_INFO, View.INFO, Describe("jobs", _ME, as_owner=False)),
        (ns.DISCO_ITEMS, None, Children("jobs", _ME)),
    ],
)
def test_about_a_node_the_core_is_asked(read: Read, space: str, view: View | None, command: Command) -> None:
    """The core decides whether the asker may know of a node."""
    question = read(f"<query xmlns='{space}' node='jobs'/>", "get")
    assert isinstance(question, Question)
    assert (question.command, question.view) == (command, view)


def test_the_service_lists_its_nodes(read: Read) -> None:
    """The nodes are listed by the service's JID and their names, escaped (P9)."""
    question = read(f"<query xmlns='{ns.DISCO_ITEMS}'/>", "get")
    assert isinstance(question, Question)
    assert question.command == Nodes(_ME, 500)
    query = ET.fromstring(disco.service_items(question.iq, Listing(("a<b", "c"))))
    assert [(item.get("jid"), item.get("node")) for item in query] == [
        ("queue.example.org", "a<b"),
        ("queue.example.org", "c"),
    ]


@pytest.mark.parametrize(
    ("wanted", "command"),
    [
        ("<max>7</max>", Nodes(_ME, 7)),
        ("<max>7</max><after>a</after>", Nodes(_ME, 7, after="a")),
        ("<before>c</before>", Nodes(_ME, 500, before="c", backwards=True)),
        ("<max>9000</max><before/>", Nodes(_ME, 500, backwards=True)),
        ("<max>0</max>", Nodes(_ME, 0)),
        ("<index>40</index>", Nodes(_ME, 500, index=40)),
    ],
)
def test_pages_of_nodes(read: Read, wanted: str, command: Nodes) -> None:
    """Nodes come in pages as long as a reply may be, and no longer than the client asks for (P9, XEP-0059)."""
    question = read(f"<query xmlns='{ns.DISCO_ITEMS}'><set xmlns='{ns.RSM}'>{wanted}</set></query>", "get")
    assert isinstance(question, Question) and question.command == command
    query = ET.fromstring(disco.service_items(question.iq, Listing(("a<b", "c"), 40, 77)))
    first, last, count = query[2]
    assert (first.text, first.get("index"), last.text, count.text) == ("a<b", "40", "c", "77")
    empty = ET.fromstring(disco.service_items(question.iq, Listing((), 0, 77)))
    assert [child.tag for child in empty[0]] == [f"{{{ns.RSM}}}count"]


def test_more_nodes_than_fit(read: Read) -> None:
    """A client that asked for no page is told that there are more (XEP-0059 §2.2)."""
    question = read(f"<query xmlns='{ns.DISCO_ITEMS}'/>", "get")
    assert isinstance(question, Question)
    query = ET.fromstring(disco.service_items(question.iq, Listing(("a", "b"), 0, 900, more=True)))
    assert [child.text for child in query[2]] == ["a", "b", "900"]


def test_what_is_below_a_node() -> None:
    """A collection lists its children (H3); the items of a queue are not listed (P9)."""
    query = ET.fromstring(disco.node_items("queue.example.org", "a'b", ("c",)))
    assert (query.get("node"), [item.get("node") for item in query]) == ("a'b", ["c"])
    assert len(ET.fromstring(disco.node_items("queue.example.org", "a'b", ()))) == 0


@pytest.mark.parametrize("space", [ns.DISCO_INFO, ns.DISCO_ITEMS])
def test_discovery_changes_nothing(fault: Callable[..., MalformedRequest], space: str) -> None:
    """A set in service discovery is refused."""
    assert fault(f"<query xmlns='{space}'/>", "set").problem is Problem.BAD_REQUEST


@pytest.mark.parametrize("model", AccessModel)
def test_the_default_access_model(make_iq: MakeIq, model: AccessModel) -> None:
    """XEP-0060 §10: `access-…` is the default model of nodes, so there is one."""
    iq = make_iq(f"<query xmlns='{ns.DISCO_INFO}'/>", "get")
    answer = requests.read(iq, AdhocContext(node=NodeConfig(access_model=model)))
    assert isinstance(answer, DoorAnswer)
    told = {name for name in _features(ET.fromstring(answer.content)) if name and "#access-" in name}
    assert told == {f"{ns.PUBSUB}#access-{model.value}"}


@pytest.mark.parametrize("kind", NodeType)
def test_a_node_that_the_asker_may_not_read(make_iq: MakeIq, kind: NodeType) -> None:
    """It tells identity, features, the bounds of batches and how long locks last; neither owners nor creator nor counts."""
    record = replace(_RECORD, config=replace(_RECORD.config, node_type=kind))
    asked = Question(make_iq(""), Describe("jobs", _ME, as_owner=False), View.INFO)
    query = ET.fromstring(replies.answer(asked, Described(record, reads=False)))[0]
    fields = {field.get("var") for field in query.iter(f"{{{ns.FORM}}}field")} - {"FORM_TYPE"}
    bounds = set() if record.config.collects else {"stanzaq#batch_max", "stanzaq#batch_bytes"}
    assert fields == bounds | {"stanzaq#lock_seconds"}
    assert (query[0].get("type"), query[0].get("name")) == (kind.value, "T") and ns.PUBSUB in _features(query)


def test_the_address_of_a_node(make_iq: MakeIq) -> None:
    """XEP-0060 §4.6.1: a node has an address, which tells the same as the service of that node, and takes messages (S15)."""
    iq = make_iq(f"<query xmlns='{ns.DISCO_INFO}'/>", "get")
    counted = Counted(1, 2, 3, 4, 5, 6, 7, 8)
    for address in ("queue.example.org/a'b", r"a\27b@queue.example.org"):
        asked = requests.translate_at_node(replace(iq, service=address), "queue.example.org")
        assert (asked.command, asked.view) == (Describe("a'b", _ME, as_owner=False), View.INFO)
        counts = DescribedNode(asked.iq, Stats("a'b", _ME), record=_RECORD)
        query = ET.fromstring(replies.answer(counts, counted))[0]
        # XEP-0030 §3.2: an answer names the node that was asked for.
        assert query.get("node") is None and ns.QOS in _features(query)
        query.set("node", "a'b")
        assert ET.tostring(query) == ET.tostring(ET.fromstring(disco.node_info(_RECORD, counted)))
        gone = ET.fromstring(replies.answer(asked, Refused(Problem.NODE_NOT_FOUND)))
        assert gone.find(f".//{{{ns.STANZAS}}}item-not-found") is not None


def test_below_the_address_of_a_node(make_iq: MakeIq) -> None:
    """The address of a collection lists its children, which are nodes of the service."""
    iq = make_iq(f"<query xmlns='{ns.DISCO_ITEMS}'/>", "get")
    for address in ("queue.example.org/all", "all@queue.example.org"):
        asked = requests.translate_at_node(replace(iq, service=address), "queue.example.org")
        assert asked.command == Children("all", _ME)
        query = ET.fromstring(replies.answer(asked, Listing(("c",))))[0]
        assert query.get("node") is None
        assert [(item.get("jid"), item.get("node")) for item in query] == [("queue.example.org", "c")]


@pytest.mark.parametrize(
    ("inside", "kind"),
    [
        (f"<query xmlns='{ns.DISCO_INFO}' node='other'/>", "get"),
        (f"<query xmlns='{ns.DISCO_INFO}'/>", "set"),
        (f"<ping xmlns='{ns.PING}'/>", "get"),
    ],
)
def test_nothing_else_at_an_address(make_iq: MakeIq, inside: str, kind: str) -> None:
    """The address of a node answers for that node alone; the service is one JID (QX6)."""
    with pytest.raises(Unserved):
        requests.translate_at_node(
            replace(make_iq(inside, kind), service="queue.example.org/jobs"), "queue.example.org"
        )
