"""Collections on the wire (XEP-0248): a tree is created and found, and a worker subscribes to all of it with one credit."""

from xml.etree.ElementTree import Element

from tests.journeys.client import (
    DISCO_INFO,
    DISCO_ITEMS,
    PUBSUB,
    Client,
    Delivery,
    Ended,
    NodeEvent,
    form_values,
    submitted,
)
from tests.journeys.conftest import Join

TYPE, ABOVE = "pubsub#node_type", "pubsub#collection"
COLLECTION = {TYPE: "collection"}
SHIM = "http://jabber.org/protocol/shim"


async def _below(client: Client, node: str) -> list[str | None]:
    about = f" node='{node}'" if node else ""
    # The last page: other tests have created more than fit one reply.
    page = "" if node else "<set xmlns='http://jabber.org/protocol/rsm'><before/></set>"
    answer = await client.ask(f"<query xmlns='{DISCO_ITEMS}'{about}>{page}</query>", "get")
    return [item.get("node") for item in answer.find(f"{{{DISCO_ITEMS}}}query")]


async def _subscribe(client: Client, node: str, **options: str) -> dict[str, str]:
    form = submitted(f"{PUBSUB}#subscribe_options", {f"pubsub#{name}": value for name, value in options.items()})
    answer = await client.pubsub(f"<subscribe node='{node}' jid='{client.jid}'/><options>{form}</options>")
    assert answer.error == ""
    return form_values(answer.element)


def _through(message: Element) -> str | None:
    return message.findtext(f"{{{SHIM}}}headers/{{{SHIM}}}header")


async def test_a_tree_is_made_and_found(join: Join) -> None:
    """H1 to H4: collections are advertised, created, filled from either side, and found by service discovery."""
    owner, other = await join(), await join()
    about = await other.ask(f"<query xmlns='{DISCO_INFO}'/>", "get")
    features = {feature.get("var") for feature in about.element.iter(f"{{{DISCO_INFO}}}feature")}
    assert f"{PUBSUB}#collections" in features and f"{PUBSUB}#multi-collections" not in features
    top = f"top-{owner.bare.partition('@')[0]}"
    assert (await owner.create(top, COLLECTION)).error == ""
    leaf = await owner.queue({ABOVE: top})
    loose = await owner.queue()
    assert await _below(other, top) == [leaf]
    at_root = await _below(other, "")
    assert top in at_root and loose in at_root and leaf not in at_root
    identity = (await other.ask(f"<query xmlns='{DISCO_INFO}' node='{top}'/>", "get")).find(
        f".//{{{DISCO_INFO}}}identity"
    )
    assert (identity.get("category"), identity.get("type")) == ("pubsub", "collection")
    assert (await owner.owner(f"<collection node='{top}'><associate node='{loose}'/></collection>")).error == ""
    assert await _below(other, top) == [leaf, loose]
    shown = form_values((await owner.owner(f"<configure node='{loose}'/>", "get")).element)
    assert (shown[ABOVE], shown[TYPE]) == (top, "leaf")
    again = f"<collection node='{top}'><dissociate node='{loose}'/></collection>"
    assert [(await owner.owner(again)).error for _ in range(2)] == ["", "modify bad-request"]
    stranger = await other.owner(f"<collection node='{top}'><associate node='{loose}'/></collection>")
    assert stranger.error == "auth forbidden"


async def test_refused_to_collections(join: Join) -> None:
    """H2, H8: items, publishes and purges are not for collections, leaves have no children, and nothing changes its type."""
    owner = await join()
    top = f"none-{owner.bare.partition('@')[0]}"
    assert (await owner.create(top, COLLECTION)).error == ""
    leaf = await owner.queue()
    for refused, feature in (
        # XEP-0060 §7.1.3.2, §6.5.9.5, §8.5.3.3, §7.2.3.5.
        (await owner.publish(top), "publish"),
        (await owner.pubsub(f"<items node='{top}'/>", "get"), "retrieve-items"),
        (await owner.owner(f"<purge node='{top}'/>"), "persistent-items"),
        (await owner.pubsub(f"<retract node='{top}'><item id='i1'/></retract>"), "persistent-items"),
    ):
        assert refused.error == "cancel feature-not-implemented unsupported"
        assert refused.find(f".//{{{PUBSUB}#errors}}unsupported").get("feature") == feature
    invalid = "cancel not-allowed invalid-options"
    assert (await owner.configure(top, {TYPE: "leaf"})).error == invalid
    assert (await owner.configure(leaf, COLLECTION)).error == invalid
    assert (await owner.configure(top, {ABOVE: leaf})).error == invalid
    assert (await owner.configure(top, {ABOVE: top})).error == invalid
    assert (await owner.configure(top, {"pubsub#children_max": "0"})).error == ""
    full = await owner.owner(f"<collection node='{top}'><associate node='{leaf}'/></collection>")
    assert full.error == "cancel not-allowed max-nodes-exceeded"


async def test_one_credit_for_all(join: Join) -> None:
    """H5 to H7: a worker of a collection has one credit over its leaves, deliveries and acknowledgements name the leaf."""
    owner, worker, reader = await join(), await join(), await join()
    top = f"work-{owner.bare.partition('@')[0]}"
    assert (await owner.create(top, COLLECTION)).error == ""
    leaves = [await owner.queue({ABOVE: top, "stanzaq#partitions": count}) for count in ("1", "2")]
    assert (await _subscribe(reader, top))["pubsub#subscription_type"] == "nodes"
    granted = await _subscribe(worker, top, queue_requests="1", subscription_type="items", subscription_depth="all")
    assert (granted["pubsub#queue_requests"], granted["pubsub#subscription_depth"]) == ("1", "all")
    for leaf in leaves:
        await owner.publish(leaf, "one")
    first = await worker.next(Delivery)
    assert first.node in leaves and _through(first.message) == top
    await worker.settle()
    assert worker.left(Delivery) == []
    assert (await worker.retract(first.node, first.item, first.token)).error == ""
    second = await worker.next(Delivery)
    assert {first.node, second.node} == set(leaves)
    ended = await worker.next(Ended)
    told = next(heard for heard in worker.heard if heard.find(".//{*}retract") is not None)
    assert (ended.node, _through(told)) == (first.node, top)
    assert (await worker.unlock(second.node, second.item, second.token)).error == ""
    third = await worker.next(Delivery)
    assert (third.node, third.item, third.attempt) == (second.node, second.item, 2)
    assert (await worker.unsubscribe(top)).error == ""
    assert (await worker.retract(third.node, third.item, third.token)).error == ""
    loose = await owner.queue({ABOVE: top})
    news = await reader.next(NodeEvent)
    assert (news.node, news.what) == (top, "collection")
    told = next(heard for heard in reversed(reader.heard) if heard.find(".//{*}associate") is not None)
    assert told.find(".//{*}associate").get("node") == loose  # type: ignore[union-attr]
    assert reader.left(Delivery) == []
