"""The parts of XEP-0060 that users of a queue need: nodes and their owners, and reading items without taking them."""

import pytest

from tests.journeys.client import (
    DISCO_INFO,
    DISCO_ITEMS,
    FORM,
    OWNER,
    PUBSUB,
    Client,
    Delivery,
    NodeEvent,
    form_values,
    submitted,
)
from tests.journeys.conftest import Join
from tests.journeys.service import DOMAIN, comes_to

JOB = "<job xmlns='urn:x'/>"
CREDIT = "pubsub#queue_requests"


async def _nodes(client: Client) -> dict[str | None, str | None]:
    # The last page: other tests have created more nodes than fit one reply.
    page = "<set xmlns='http://jabber.org/protocol/rsm'><before/></set>"
    answer = await client.ask(f"<query xmlns='{DISCO_ITEMS}'>{page}</query>", "get")
    return {item.get("node"): item.get("jid") for item in answer.find(f"{{{DISCO_ITEMS}}}query") if item.get("node")}


async def _configuration(client: Client, node: str) -> dict[str, str]:
    return form_values((await client.owner(f"<configure node='{node}'/>", "get")).element)


async def test_create(join: Join) -> None:
    """A node exists from its creation on, is listed, and cannot be created again (P9, P22)."""
    owner, other = await join(), await join()
    node = await owner.queue()
    assert (await _nodes(other))[node] == DOMAIN
    assert (await other.create(node, {})).error == "cancel conflict"
    about = await other.ask(f"<query xmlns='{DISCO_ITEMS}' node='{node}'/>", "get")
    assert len(about.find(f"{{{DISCO_ITEMS}}}query")) == 0


async def test_create_instant(join: Join) -> None:
    """A node created without a name has one in the result, and its creator owns it (P22)."""
    owner = await join()
    answer = await owner.pubsub("<create/>")
    node = answer.find(f"{{{PUBSUB}}}pubsub/{{{PUBSUB}}}create").get("node")
    assert node
    assert (await owner.publish(node)).error == ""


async def test_configure(join: Join) -> None:
    """An owner reads the configuration in force and changes it field by field; cancel changes nothing (P23)."""
    owner = await join()
    node = await owner.queue({"stanzaq#lock_seconds": "7"})
    shown = await _configuration(owner, node)
    assert (shown["stanzaq#lock_seconds"], shown["stanzaq#max_deliveries"]) == ("7", "20")
    assert shown["stanzaq#dead_letter_node"] == f"{node}/dead"
    assert (await owner.configure(node, {"stanzaq#max_deliveries": "3"})).error == ""
    assert await _configuration(owner, node) == {**shown, "stanzaq#max_deliveries": "3"}
    cancel = f"<x xmlns='{FORM}' type='cancel'/>"
    assert (await owner.owner(f"<configure node='{node}'>{cancel}</configure>")).error == ""
    assert (await owner.configure(node, {"stanzaq#max_deliveries": "x"})).error == "modify not-acceptable"
    # The form as it came, sent back, changes nothing.
    assert (await owner.configure(node, await _configuration(owner, node))).error == ""
    assert await _configuration(owner, node) == {**shown, "stanzaq#max_deliveries": "3"}


async def test_default_configuration(join: Join) -> None:
    """The service shows the default configuration (P23)."""
    client = await join()
    form = form_values((await client.owner("<default/>", "get")).element)
    assert (form["stanzaq#lock_seconds"], form["pubsub#publish_node_full"]) == ("60", "reject")


async def test_owners_only(join: Join) -> None:
    """Only owners may configure, purge, delete or appoint, and a node keeps an owner (P2, P23 to P26)."""
    owner, other = await join(), await join()
    node = await owner.queue()
    asked = (
        await other.owner(f"<configure node='{node}'/>", "get"),
        await other.configure(node, {}),
        await other.owner(f"<purge node='{node}'/>"),
        await other.owner(f"<delete node='{node}'/>"),
        await other.owner(f"<affiliations node='{node}'/>", "get"),
        await other.affiliate(node, other.bare, "owner"),
    )
    assert [answer.error for answer in asked] == ["auth forbidden"] * len(asked)
    assert (await owner.affiliate(node, owner.bare, "none")).error == "modify not-acceptable"
    assert (await owner.affiliate(node, other.bare, "owner")).error == ""
    listed = (await other.owner(f"<affiliations node='{node}'/>", "get")).find(
        f"{{{OWNER}}}pubsub/{{{OWNER}}}affiliations"
    )
    assert {entry.get("jid"): entry.get("affiliation") for entry in listed} == {
        owner.bare: "owner",
        other.bare: "owner",
    }


async def test_delete(join: Join) -> None:
    """With a node go its items, its locks and its subscriptions; every subscriber is notified once (P24)."""
    owner, holder, other = await join(), await join(), await join()
    node = await owner.queue()
    await holder.subscribe(node)
    await owner.publish(node, "i1")
    held = await holder.next(Delivery)
    await other.subscribe(node)
    assert (await owner.owner(f"<delete node='{node}'/>")).error == ""
    for worker in (holder, other):
        assert await worker.next(NodeEvent) == NodeEvent(node, "delete")
        await worker.settle()
        assert worker.left(NodeEvent) == []
    assert (await holder.retract(node, "i1", held.token)).error == "cancel item-not-found"
    assert (await owner.publish(node, "i2")).error == "cancel item-not-found"
    assert (await owner.owner(f"<delete node='{node}'/>")).error == "cancel item-not-found"
    # A new node of that name is another one, without the old one's items.
    assert (await owner.create(node, {})).error == ""
    assert await owner.browse(node) == []
    assert (await holder.retract(node, "i1", held.token)).error == "cancel item-not-found"


async def test_purge(join: Join) -> None:
    """A purge drops waiting items, is one event for each subscriber, and leaves locked items to their holders (P25)."""
    owner, worker = await join(), await join()
    node = await owner.queue()
    await worker.subscribe(node)
    for number in range(4):
        await owner.publish(node, f"i{number}")
    await worker.next(Delivery)
    assert (await owner.owner(f"<purge node='{node}'/>")).error == ""
    assert await worker.next(NodeEvent) == NodeEvent(node, "purge")
    assert [item.get("id") for item in await owner.browse(node)] == ["i0"]
    assert (await worker.retract(node, "i0")).error == ""
    await worker.settle()
    assert worker.left(NodeEvent) == [] and worker.left(Delivery) == []


async def test_preconditions(join: Join) -> None:
    """A publish names the required configuration of the node, and is refused where it differs (P18)."""
    owner = await join()
    node = await owner.queue()

    async def publish(name: str, value: str) -> str:
        form = submitted(f"{PUBSUB}#publish-options", {name: value})
        item = f"<publish node='{node}'><item>{JOB}</item></publish>"
        return (await owner.pubsub(f"{item}<publish-options>{form}</publish-options>")).error

    assert await publish("pubsub#access_model", "open") == ""
    assert await publish("pubsub#access_model", "whitelist") == "cancel conflict precondition-not-met"
    assert await publish("pubsub#of-the-future", "1") == "modify not-acceptable"
    assert len(await owner.browse(node)) == 1


async def test_meta_data(join: Join) -> None:
    """A node shows its type, its creator, and its creation time (P8)."""
    owner = await join()
    node = await owner.queue({"pubsub#description": "what for", "pubsub#type": "urn:x"})
    about = form_values((await owner.ask(f"<query xmlns='{DISCO_INFO}' node='{node}'/>", "get")).element)
    assert about["FORM_TYPE"] == f"{PUBSUB}#meta-data"
    assert (about["pubsub#description"], about["pubsub#type"], about["pubsub#creator"]) == (
        "what for",
        "urn:x",
        owner.bare,
    )
    assert about["pubsub#creation_date"].startswith("20") and about["pubsub#creation_date"].endswith("Z")
    assert (about["pubsub#access_model"], about["pubsub#max_items"]) == ("open", "1000000")


async def test_browse(join: Join) -> None:
    """Listing items changes nothing, and an unknown item is no error (P21)."""
    owner, worker = await join(), await join()
    node = await owner.queue()
    await worker.subscribe(node)
    for number in range(3):
        await owner.publish(node, f"i{number}", f"<job xmlns='urn:x'>{number}</job>")
    held = await worker.next(Delivery)
    for _ in range(3):
        shown = await owner.browse(node)
        assert [(item.get("id"), item[0].text) for item in shown] == [("i0", "0"), ("i1", "1"), ("i2", "2")]
    assert [item.get("id") for item in await owner.browse(node, "i2", "nothing", "i0")] == ["i2", "i0"]
    assert await owner.browse(node, "nothing") == []
    # XEP-0060 §6.5.7: the most recent ones.
    two = await owner.pubsub(f"<items node='{node}' max_items='2'/>", "get")
    assert [item.get("id") for item in two.find(f"{{{PUBSUB}}}pubsub/{{{PUBSUB}}}items")] == ["i1", "i2"]
    assert (await worker.retract(node, "i0", held.token)).error == ""
    assert (await worker.next(Delivery)).attempt == 1


async def test_subscription_options(join: Join) -> None:
    """A subscriber reads its credit and changes it; nobody else has options to read (P13)."""
    client = await join()
    node = await client.queue()
    await client.subscribe(node, 3)
    assert form_values((await client.options(node)).element)[CREDIT] == "3"
    for value, error in (
        ("7", ""),
        ("0", "modify bad-request invalid-options"),
        ("x", "modify bad-request invalid-options"),
    ):
        form = submitted(f"{PUBSUB}#subscribe_options", {CREDIT: value})
        changed = await client.pubsub(f"<options node='{node}' jid='{client.jid}'>{form}</options>")
        assert changed.error == error
    assert form_values((await client.options(node)).element)[CREDIT] == "7"
    stranger = await join()
    assert (await stranger.options(node)).error == "cancel unexpected-request not-subscribed"
    assert (await client.pubsub(f"<options node='{node}'/>", "get")).error == "modify bad-request jid-required"
    await client.unsubscribe(node)
    assert (await client.options(node)).error == "cancel unexpected-request not-subscribed"


async def test_options_that_are_cut_down(join: Join) -> None:
    """Q9, P31, XEP-0060 §6.3.6: options, and a lease, that are granted only in part are answered with those in force."""
    client = await join()
    node = await client.queue()
    await client.subscribe(node, 3)
    wanted = {CREDIT: "1001", "pubsub#expire": "2999-01-01T00:00:00Z", "pubsub#deliver": "1", "pubsub#digest": "1"}
    form = submitted(f"{PUBSUB}#subscribe_options", wanted)
    changed = await client.pubsub(f"<options node='{node}' jid='{client.jid}'>{form}</options>")
    shown = form_values(changed.element)
    assert (shown[CREDIT], shown["pubsub#deliver"]) == ("1000", "1") and "pubsub#digest" not in shown
    assert (
        shown["pubsub#expire"] < "2999" and shown.items() <= form_values((await client.options(node)).element).items()
    )


async def test_a_node_s_address(join: Join) -> None:
    """XEP-0060 §4.6.1: a node is the service's resource, capitals and all; an unknown address is item-not-found."""
    owner, other = await join(), await join()
    node = f"Jobs of {owner.bare}"
    assert (await owner.create(node, {"pubsub#publish_model": "open"})).error == ""
    sent = f"<acknowledged xmlns='urn:xmpp:qos'><message xmlns='jabber:client'>{JOB}</message></acknowledged>"
    assert (await other.ask(sent, to=f"{DOMAIN}/{node}")).error == ""
    other.send(f"<message to='{DOMAIN}/{node}' id='plain'>{JOB}</message>")

    async def count() -> int:
        return len(await owner.browse(node))

    await comes_to(count, 2)
    about = f"<query xmlns='{DISCO_INFO}'/>"
    found = await other.ask(about, "get", to=f"{DOMAIN}/{node}")
    assert "urn:xmpp:qos" in [feature.get("var") for feature in found.element.iter(f"{{{DISCO_INFO}}}feature")]
    for address in (f"{DOMAIN}/{node.lower()}", f"nothing-here@{DOMAIN}"):
        assert (await other.ask(about, "get", to=address)).error == "cancel item-not-found"


async def test_steps_of_an_affiliation(join: Join) -> None:
    """XEP-0060 §4.1, as docs/protocol.md says: a publisher becomes a member in one step, and keeps its locks."""
    owner, worker = await join(), await join()
    node = await owner.queue({"pubsub#access_model": "whitelist"})
    await owner.affiliate(node, worker.bare, "publisher")
    await worker.subscribe(node)
    await owner.publish(node, "i1")
    held = await worker.next(Delivery)
    assert (await owner.affiliate(node, worker.bare, "member")).error == ""
    assert (await worker.retract(node, "i1", held.token)).error == ""


async def test_subscribe_again(join: Join) -> None:
    """A second subscribe of the same JID is the same subscription, with the new credit (P11)."""
    client = await join()
    node = await client.queue()
    subids = []
    for credit in (2, 5):
        answer = await client.subscribe(node, credit)
        subids.append(answer.find(f"{{{PUBSUB}}}pubsub/{{{PUBSUB}}}subscription").get("subid"))
        assert form_values(answer.element)[CREDIT] == str(credit)
    assert subids[0] == subids[1]


async def test_jid_mismatch(join: Join) -> None:
    """Nobody subscribes, reads or unsubscribes for another JID (P11, XEP-0060 §6.2.3.3, §6.3.4.1)."""
    client, other = await join(), await join()
    node = await client.queue()
    await other.subscribe(node)
    asked = (
        await client.subscribe(node, 1, other.jid),
        await client.subscribe(node, 1, other.bare),
        await client.options(node, other.jid),
        await client.unsubscribe(node, other.jid),
    )
    assert [answer.error for answer in asked] == ["modify bad-request invalid-jid"] * 2 + ["auth forbidden"] * 2
    assert (await other.options(node)).error == ""


async def test_outcast(join: Join) -> None:
    """A new outcast loses subscription and locks at once, and all its requests are forbidden (P3, P6)."""
    owner, worker, other = await join(), await join(), await join()
    node = await owner.queue()
    await worker.subscribe(node)
    await owner.publish(node, "i1")
    await worker.next(Delivery)
    await other.subscribe(node)
    assert (await owner.affiliate(node, worker.bare, "outcast")).error == ""
    assert (await other.next(Delivery)).item == "i1"
    asked = (
        await worker.subscribe(node),
        await worker.options(node),
        await worker.unsubscribe(node),
        await worker.publish(node),
        await worker.retract(node, "i1"),
        await worker.retract(node, "nothing"),
        await worker.unlock(node, "i1"),
        await worker.pubsub(f"<items node='{node}'/>", "get"),
        await worker.ask(f"<locks xmlns='urn:stanzaq:0' node='{node}'/>", "get"),
        await worker.ask(f"<renew xmlns='urn:stanzaq:0' node='{node}'><item id='i1'/></renew>"),
        await worker.owner(f"<configure node='{node}'/>", "get"),
        await worker.ask(f"<query xmlns='http://jabber.org/protocol/disco#info' node='{node}'/>", "get"),
    )
    assert [answer.error for answer in asked] == ["auth forbidden"] * len(asked)
    assert (await owner.affiliate(node, worker.bare, "none")).error == ""
    assert (await worker.subscribe(node)).error == ""


@pytest.mark.parametrize(
    ("model", "stranger", "subscriber", "publisher"),
    [
        ("open", "", "", ""),
        ("subscribers", "auth forbidden", "", ""),
        ("publishers", "auth forbidden", "auth forbidden", ""),
    ],
)
async def test_publish_models(join: Join, model: str, stranger: str, subscriber: str, publisher: str) -> None:
    """The node's publish model decides who may publish (P7)."""
    owner = await join()
    node = await owner.queue({"pubsub#publish_model": model})
    clients = [await join() for _ in range(3)]
    await clients[1].subscribe(node)
    await owner.affiliate(node, clients[2].bare, "publisher")
    assert [(await client.publish(node)).error for client in clients] == [stranger, subscriber, publisher]
    assert (await owner.publish(node)).error == ""


async def test_whitelist(join: Join) -> None:
    """A whitelist admits its members, its publishers and its owners, and nobody else, to consume or to read (P6)."""
    owner, member, stranger, writer = await join(), await join(), await join(), await join()
    node = await owner.queue({"pubsub#access_model": "whitelist"})
    await owner.affiliate(node, member.bare, "member")
    await owner.affiliate(node, writer.bare, "publish-only")
    assert (await member.subscribe(node)).error == ""
    assert (await owner.subscribe(node)).error == ""
    assert (await stranger.subscribe(node)).error == "cancel not-allowed closed-node"
    assert (await stranger.pubsub(f"<items node='{node}'/>", "get")).error == "cancel not-allowed closed-node"
    assert (await writer.subscribe(node)).error == "auth forbidden"
    assert (await writer.publish(node)).error == ""


async def test_selectors(join: Join) -> None:
    """Issue 9: a subscriber gets the items that it selects with their headers.

    Others wait, and a wrong selector names its error.
    """
    owner, worker = await join(), await join()
    node = await owner.queue()

    async def subscribe(selector: str) -> str:
        form = submitted(f"{PUBSUB}#subscribe_options", {CREDIT: "5", "stanzaq#selector": selector})
        asked = f"<subscribe node='{node}' jid='{worker.jid}'/><options>{form}</options>"
        return (await worker.pubsub(asked)).error

    assert await subscribe("size >") == "modify bad-request invalid-options"
    assert await subscribe("size >= 10") == ""
    for item, size in (("small", "9"), ("large", "10")):
        headers = f"<headers xmlns='http://jabber.org/protocol/shim'><header name='size'>{size}</header></headers>"
        assert (await owner.publish(node, item, f"{JOB}{headers}")).error == ""
    delivery = await worker.next(Delivery)
    assert delivery.item == "large"
    assert form_values((await worker.options(node)).element)["stanzaq#selector"] == "size >= 10"
    assert await subscribe("size BETWEEN 0 AND 9.5") == ""
    assert (await worker.next(Delivery)).item == "small"


async def test_publish_without_id(join: Join) -> None:
    """The service makes an id and returns it; by that id the item is delivered and acknowledged (P14)."""
    client = await join()
    node = await client.queue()
    item = (await client.publish(node)).find(f".//{{{PUBSUB}}}item").get("id")
    await client.subscribe(node)
    assert (await client.next(Delivery)).item == item
    assert item and (await client.retract(node, item)).error == ""
