"""Every advertised feature is tried (P8): a table from its name to a demonstration."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import pytest

from tests.journeys.client import (
    COMMANDS,
    DISCO_INFO,
    DISCO_ITEMS,
    FORM,
    OWNER,
    PUBSUB,
    QUEUEING,
    STANZAQ,
    Client,
    Delivery,
    Ended,
    form_values,
    submitted,
)
from tests.journeys.conftest import Join
from tests.journeys.service import DOMAIN
from tests.journeys.test_access import command, own, told, waiting_node
from tests.waiting import PATIENCE_SECONDS

Exercise = Callable[[Client, Client], Awaitable[None]]

JOB: Final = "<job xmlns='urn:x'/>"
RSM: Final = "http://jabber.org/protocol/rsm"
SHIM: Final = "http://jabber.org/protocol/shim"


async def _info(owner: Client, _other: Client) -> None:
    node = await owner.queue()
    answer = await owner.ask(f"<query xmlns='{DISCO_INFO}' node='{node}'/>", "get")
    identity = answer.find(f"{{{DISCO_INFO}}}query/{{{DISCO_INFO}}}identity")
    assert (identity.get("category"), identity.get("type")) == ("pubsub", "leaf")


async def _items(owner: Client, _other: Client) -> None:
    node = await owner.queue()
    # The last page: other tests have created more nodes than fit one reply.
    answer = await owner.ask(f"<query xmlns='{DISCO_ITEMS}'><set xmlns='{RSM}'><before/></set></query>", "get")
    assert node in [item.get("node") for item in answer.find(f"{{{DISCO_ITEMS}}}query")]


async def _queueing(owner: Client, other: Client) -> None:
    node = await owner.queue()
    await other.subscribe(node)
    await owner.publish(node, "i1")
    first = await other.next(Delivery)
    assert (await other.unlock(node, "i1")).error == ""
    again = await other.next(Delivery)
    assert (first.item, again.item, again.attempt) == ("i1", "i1", 2)


async def _qos(owner: Client, other: Client) -> None:
    node = await owner.queue()
    sent = f"<acknowledged xmlns='urn:xmpp:qos'><message xmlns='jabber:client' id='m1'>{JOB}</message></acknowledged>"
    assert (await other.ask(sent, to=f"{node}@{DOMAIN}")).error == ""
    assert len(await owner.browse(node)) == 1


async def _ping(owner: Client, _other: Client) -> None:
    assert (await owner.ask("<ping xmlns='urn:xmpp:ping'/>", "get")).error == ""


async def _version(owner: Client, _other: Client) -> None:
    answer = await owner.ask("<query xmlns='jabber:iq:version'/>", "get")
    assert answer.find("{jabber:iq:version}query/{jabber:iq:version}name").text == "stanzaq"


async def _stanzaq(owner: Client, other: Client) -> None:
    node = await owner.queue()
    await other.subscribe(node)
    await owner.publish(node, "i1")
    await other.next(Delivery)
    locks = await other.ask(f"<locks xmlns='{STANZAQ}' node='{node}'/>", "get")
    assert [lock.get("item") for lock in locks.find(f"{{{STANZAQ}}}locks")] == ["i1"]


async def _streams(owner: Client, other: Client) -> None:
    node = await owner.queue()
    await owner.publish(node, "i1")
    replay = await other.ask(f"<replay xmlns='{STANZAQ}' node='{node}'/>", "get")
    assert [event.get("item") for event in replay.find(f"{{{STANZAQ}}}replay")] == ["i1"]


async def _headers(owner: Client, other: Client) -> None:
    node = await owner.queue({"stanzaq#max_deliveries": "1"})
    await other.subscribe(node)
    await owner.publish(node, "i1")
    await other.next(Delivery)
    await other.unlock(node, "i1")
    async with asyncio.timeout(PATIENCE_SECONDS):
        # The node for dead letters comes with the first of them.
        while (await owner.subscribe(f"{node}/dead")).error:  # noqa: ASYNC110  (nobody tells of it)
            await asyncio.sleep(0.02)
    dead = await owner.next(Delivery)
    headers = dead.message.find(f"{{{SHIM}}}headers")
    assert headers is not None and "stanzaq-dead-node" in [header.get("name") for header in headers]


async def _commands(owner: Client, _other: Client) -> None:
    answer = await owner.ask(f"<query xmlns='{DISCO_ITEMS}' node='{COMMANDS}'/>", "get")
    for item in answer.find(f"{{{DISCO_ITEMS}}}query"):
        about = await owner.ask(f"<query xmlns='{DISCO_INFO}' node='{item.get('node')}'/>", "get")
        assert about.find(f".//{{{DISCO_INFO}}}identity").get("type") == "command-node"


async def _publish(owner: Client, _other: Client) -> None:
    node = await owner.queue()
    assert (await owner.publish(node, "mine")).error == ""
    assert [item.get("id") for item in await owner.browse(node, "mine")] == ["mine"]


async def _create(owner: Client, _other: Client) -> None:
    answer = await owner.pubsub("<create/>")
    node = answer.find(f"{{{PUBSUB}}}pubsub/{{{PUBSUB}}}create").get("node")
    assert node and (await owner.publish(node)).error == ""


async def _configure(owner: Client, _other: Client) -> None:
    node = await owner.queue({"pubsub#title": "before"})
    assert (await owner.configure(node, {"pubsub#title": "after"})).error == ""
    shown = await owner.owner(f"<configure node='{node}'/>", "get")
    assert form_values(shown.element)["pubsub#title"] == "after"


async def _default(owner: Client, _other: Client) -> None:
    answer = await owner.owner("<default/>", "get")
    assert form_values(answer.element)["pubsub#access_model"] == "open"


async def _delete_items(owner: Client, _other: Client) -> None:
    node = await owner.queue()
    await owner.publish(node, "i1")
    assert (await owner.retract(node, "i1")).error == ""
    assert await owner.browse(node) == []


async def _delete_nodes(owner: Client, _other: Client) -> None:
    node = await owner.queue()
    assert (await owner.owner(f"<delete node='{node}'/>")).error == ""
    assert (await owner.publish(node)).error == "cancel item-not-found"


async def _purge(owner: Client, _other: Client) -> None:
    node = await owner.queue()
    await owner.publish(node)
    assert (await owner.owner(f"<purge node='{node}'/>")).error == ""
    assert await owner.browse(node) == []


async def _meta_data(owner: Client, _other: Client) -> None:
    node = await owner.queue({"pubsub#title": "T"})
    answer = await owner.ask(f"<query xmlns='{DISCO_INFO}' node='{node}'/>", "get")
    shown = form_values(answer.find(f".//{{{FORM}}}x"))
    assert (shown["FORM_TYPE"], shown["pubsub#title"]) == (f"{PUBSUB}#meta-data", "T")


async def _open(owner: Client, other: Client) -> None:
    assert (await other.subscribe(await owner.queue({"pubsub#access_model": "open"}))).error == ""


async def _get_pending(owner: Client, other: Client) -> None:
    node = await waiting_node(owner)
    await other.subscribe(node)
    answer = await command(owner)
    assert node in [option.text for option in answer.element.iterfind(f".//{{{FORM}}}option/{{{FORM}}}value")]


async def _affiliations(owner: Client, other: Client) -> None:
    node = await owner.queue({"pubsub#access_model": "whitelist", "pubsub#publish_model": "publishers"})
    for affiliation, publish, subscribe in (
        ("publisher", "", ""),
        ("publish-only", "", "auth forbidden"),
        ("member", "auth forbidden", ""),
        ("outcast", "auth forbidden", "auth forbidden"),
        ("none", "auth forbidden", "cancel not-allowed closed-node"),
    ):
        assert (await owner.affiliate(node, other.bare, affiliation)).error == ""
        asked = (await other.publish(node)).error, (await other.subscribe(node)).error
        assert asked == (publish, subscribe), affiliation
    listed = await owner.owner(f"<affiliations node='{node}'/>", "get")
    assert len(listed.find(f"{{{OWNER}}}pubsub/{{{OWNER}}}affiliations")) == 1


async def _persistent(owner: Client, other: Client) -> None:
    node = await owner.queue()
    await owner.publish(node, "i1")
    await other.subscribe(node)
    assert (await other.next(Delivery)).item == "i1"


async def _retrieve_items(owner: Client, _other: Client) -> None:
    node = await owner.queue()
    await owner.publish(node, "i1")
    assert [item.get("id") for item in await owner.browse(node)] == ["i1"]


async def _retrieve_affiliations(owner: Client, _other: Client) -> None:
    node = await owner.queue()
    assert {"node": node, "affiliation": "owner"} in await own(owner, "affiliations")


async def _retrieve_subscriptions(owner: Client, other: Client) -> None:
    node = await owner.queue()
    await other.subscribe(node)
    assert [entry["jid"] for entry in await own(other, node=node)] == [other.jid]


async def _retrieve_default_sub(owner: Client, other: Client) -> None:
    node = await owner.queue()
    for about in ("", f" node='{node}'"):
        answer = await other.pubsub(f"<default{about}/>", "get")
        assert "pubsub#queue_requests" in form_values(answer.element)


async def _subscribe(owner: Client, other: Client) -> None:
    node = await owner.queue()
    assert (await other.subscribe(node)).error == (await other.unsubscribe(node)).error == ""


async def _options(owner: Client, other: Client) -> None:
    node = await owner.queue()
    await other.subscribe(node, 3)
    assert form_values((await other.options(node)).element)["pubsub#queue_requests"] == "3"


async def _several(owner: Client, other: Client) -> None:
    node = await owner.queue({"stanzaq#multi_subscribe": "1"})
    answers = [await other.subscribe(node, 1) for _ in range(2)]
    first, second = (answer.find(f".//{{{PUBSUB}}}subscription").get("subid") for answer in answers)
    await owner.publish(node, "i1")
    await owner.publish(node, "i2")
    held = [await other.next(Delivery) for _ in range(2)]
    headers = [each.message.find(f"{{{SHIM}}}headers/{{{SHIM}}}header[@name='SubID']") for each in held]
    assert {header.text for header in headers if header is not None} == {first, second}
    leave = f"<unsubscribe node='{node}' jid='{other.jid}'"
    assert (await other.pubsub(f"{leave}/>")).error == "modify bad-request subid-required"
    assert (await other.pubsub(f"{leave} subid='x'/>")).error == "modify not-acceptable invalid-subid"
    assert (await other.pubsub(f"<items node='{node}'/>", "get")).error == "modify bad-request subid-required"
    # XEP-0060 §6.3.4.4, §6.3.4.5.
    asked = f"<options node='{node}' jid='{other.jid}'"
    assert (await other.pubsub(f"{asked}/>", "get")).error == "modify bad-request subid-required"
    assert (await other.pubsub(f"{asked} subid='x'/>", "get")).error == "modify not-acceptable invalid-subid"
    assert (await other.pubsub(f"{leave} subid='{first}'/>")).error == ""
    assert [each.get("subid") for each in await own(other, node=node)] == [second]


async def _lease(owner: Client, other: Client) -> None:
    node = await owner.queue()
    form = submitted(
        f"{PUBSUB}#subscribe_options", {"pubsub#queue_requests": "1", "pubsub#expire": "2999-01-01T00:00:00Z"}
    )
    answer = await other.pubsub(f"<subscribe node='{node}' jid='{other.jid}'/><options>{form}</options>")
    assert answer.find(f".//{{{PUBSUB}}}subscription").get("expiry", "").endswith("Z")


async def _preconditions(owner: Client, _other: Client) -> None:
    node = await owner.queue()
    form = submitted(f"{PUBSUB}#publish-options", {"pubsub#access_model": "whitelist"})
    item = f"<publish node='{node}'><item>{JOB}</item></publish>"
    answer = await owner.pubsub(f"{item}<publish-options>{form}</publish-options>")
    assert answer.error == "cancel conflict precondition-not-met"


async def _pages(owner: Client, _other: Client) -> None:
    node = await owner.queue()
    for name in ("i1", "i2", "i3"):
        await owner.publish(node, name)
    answer = await owner.pubsub(f"<items node='{node}'/><set xmlns='{RSM}'><max>2</max></set>", "get")
    after = answer.find(f".//{{{RSM}}}set").findtext(f"{{{RSM}}}last")
    rest = await owner.pubsub(
        f"<items node='{node}'/><set xmlns='{RSM}'><max>2</max><after>{after}</after></set>", "get"
    )
    found = [[item.get("id") for item in page.element.iter(f"{{{PUBSUB}}}item")] for page in (answer, rest)]
    assert found == [["i1", "i2"], ["i3"]]


async def _collections(owner: Client, other: Client) -> None:
    top = f"tree-{owner.bare.partition('@')[0]}"
    assert (await owner.create(top, {"pubsub#node_type": "collection"})).error == ""
    leaf = await owner.queue({"pubsub#collection": top})
    options = {"pubsub#queue_requests": "1", "pubsub#subscription_type": "items", "pubsub#subscription_depth": "all"}
    form = submitted(f"{PUBSUB}#subscribe_options", options)
    asked = f"<subscribe node='{top}' jid='{other.jid}'/><options>{form}</options>"
    assert (await other.pubsub(asked)).error == ""
    await owner.publish(leaf, "i1")
    assert (await other.next(Delivery)).node == leaf


async def _manage(owner: Client, other: Client) -> None:
    node = await owner.queue()
    await other.subscribe(node)
    entry = f"<subscription jid='{other.jid}' subscription='none'/>"
    assert (await owner.owner(f"<subscriptions node='{node}'>{entry}</subscriptions>")).error == ""
    assert (await told(other))[-1] == "none"
    assert await own(other, node=node) == []


async def _retract_told(owner: Client, other: Client) -> None:
    node = await owner.queue()
    await other.subscribe(node)
    await owner.publish(node, "i1")
    await other.next(Delivery)
    await other.retract(node, "i1")
    assert (await other.next(Ended)).item == "i1"


async def _batches(owner: Client, other: Client) -> None:
    node = await owner.queue()
    await other.subscribe(node, 2)
    items = "".join(f"<item id='{name}'>{JOB}</item>" for name in ("i1", "i2"))
    answer = await owner.ask(f"<publish xmlns='{STANZAQ}' node='{node}'>{items}</publish>")
    assert [item.get("id") for item in answer.find(f"{{{STANZAQ}}}publish")] == ["i1", "i2"]
    held = [await other.next(Delivery) for _ in range(2)]
    rows = "".join(f"<ack id='{each.item}' token='{each.token}'/>" for each in held)
    answer = await other.ask(f"<settle xmlns='{STANZAQ}' node='{node}'>{rows}</settle>")
    assert answer.error == "" and len(answer.element) == 0 and await owner.browse(node) == []


EXERCISES: Final[dict[str, Exercise]] = {
    DISCO_INFO: _info,
    DISCO_ITEMS: _items,
    QUEUEING: _queueing,
    "urn:xmpp:qos": _qos,
    STANZAQ: _stanzaq,
    f"{STANZAQ}#streams": _streams,
    f"{STANZAQ}#batch": _batches,
    SHIM: _headers,
    COMMANDS: _commands,
    "urn:xmpp:ping": _ping,
    "jabber:iq:version": _version,
    RSM: _pages,
    PUBSUB: _retract_told,
    **{
        f"{PUBSUB}#{name}": exercise
        for name, exercise in {
            "access-open": _open,
            "collections": _collections,
            "config-node": _configure,
            "create-and-configure": _configure,
            "create-nodes": _create,
            "delete-items": _delete_items,
            "delete-nodes": _delete_nodes,
            "get-pending": _get_pending,
            "instant-nodes": _create,
            "item-ids": _publish,
            "leased-subscription": _lease,
            "manage-subscriptions": _manage,
            "member-affiliation": _affiliations,
            "meta-data": _meta_data,
            "modify-affiliations": _affiliations,
            "multi-subscribe": _several,
            "outcast-affiliation": _affiliations,
            "persistent-items": _persistent,
            "publish": _publish,
            "publish-only-affiliation": _affiliations,
            "publish-options": _preconditions,
            "publisher-affiliation": _affiliations,
            "purge-nodes": _purge,
            "retrieve-affiliations": _retrieve_affiliations,
            "retrieve-default": _default,
            "retrieve-default-sub": _retrieve_default_sub,
            "retrieve-items": _retrieve_items,
            "retrieve-subscriptions": _retrieve_subscriptions,
            "rsm": _pages,
            "subscribe": _subscribe,
            "subscription-notifications": _manage,
            "subscription-options": _options,
        }.items()
    },
}


async def test_all_are_tried(join: Join) -> None:
    """What is advertised is in the table, and what is in the table is advertised."""
    client = await join()
    answer = await client.ask(f"<query xmlns='{DISCO_INFO}'/>", "get")
    advertised = [feature.get("var") for feature in answer.find(f"{{{DISCO_INFO}}}query") if feature.get("var")]
    assert sorted(advertised, key=str) == sorted(EXERCISES)


@pytest.mark.parametrize("exercise", dict.fromkeys(EXERCISES.values()))
async def test_works(join: Join, exercise: Exercise) -> None:
    """Each works as XEP-0060, XEP-0254 and docs/protocol.md say."""
    await exercise(await join(), await join())
