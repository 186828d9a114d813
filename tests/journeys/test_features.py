"""Every advertised feature is tried (P8): a table from its name to a test that demonstrates it."""

from collections.abc import Callable
from typing import Any, Final

from tests.journeys import (
    test_access,
    test_adhoc,
    test_batches,
    test_collections,
    test_qos,
    test_stream,
    test_xep0060,
    test_xep0254,
    test_xep0254_losses,
)
from tests.journeys.client import COMMANDS, DISCO_INFO, DISCO_ITEMS, PUBSUB, QUEUEING, STANZAQ, Delivery, form_values
from tests.journeys.conftest import Join
from tests.journeys.test_access import own

RSM: Final = "http://jabber.org/protocol/rsm"
SHIM: Final = "http://jabber.org/protocol/shim"


async def test_ping_and_version(join: Join) -> None:
    """XEP-0199, XEP-0092: the service answers a ping, and says what it is."""
    client = await join()
    assert (await client.ask("<ping xmlns='urn:xmpp:ping'/>", "get")).error == ""
    answer = await client.ask("<query xmlns='jabber:iq:version'/>", "get")
    assert answer.find("{jabber:iq:version}query/{jabber:iq:version}name").text == "stanzaq"


async def test_commands(join: Join) -> None:
    """XEP-0050 §2.2: each command that is listed says that it is one."""
    client = await join()
    answer = await client.ask(f"<query xmlns='{DISCO_ITEMS}' node='{COMMANDS}'/>", "get")
    for item in answer.find(f"{{{DISCO_ITEMS}}}query"):
        about = await client.ask(f"<query xmlns='{DISCO_INFO}' node='{item.get('node')}'/>", "get")
        assert about.find(f".//{{{DISCO_INFO}}}identity").get("type") == "command-node"


async def test_default_subscription(join: Join) -> None:
    """XEP-0060 §6.4: the default options of the service and of a node."""
    client = await join()
    node = await client.queue()
    for about in ("", f" node='{node}'"):
        answer = await client.pubsub(f"<default{about}/>", "get")
        assert "pubsub#queue_requests" in form_values(answer.element)


async def test_several(join: Join) -> None:
    """P10, P12: several subscriptions of a JID are named by their subids, in deliveries, requests and lists."""
    owner, other = await join(), await join()
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


async def test_pages(join: Join) -> None:
    """XEP-0059 §2.1: items come page by page."""
    owner = await join()
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


OF_PUBSUB: Final[dict[str, Callable[..., Any]]] = {
    "access-open": test_xep0254.test_subscribe,
    "collections": test_collections.test_one_credit_for_all,
    "config-node": test_xep0060.test_configure,
    "create-and-configure": test_xep0060.test_configure,
    "create-nodes": test_xep0060.test_create,
    "delete-items": test_xep0254.test_owner_of_waiting,
    "delete-nodes": test_xep0060.test_delete,
    "get-pending": test_access.test_get_pending,
    "instant-nodes": test_xep0060.test_create_instant,
    "item-ids": test_xep0254.test_delivery,
    "leased-subscription": test_xep0060.test_options_that_are_cut_down,
    "manage-subscriptions": test_access.test_managed,
    "member-affiliation": test_xep0060.test_whitelist,
    "meta-data": test_xep0060.test_meta_data,
    "modify-affiliations": test_xep0060.test_owners_only,
    "multi-subscribe": test_several,
    "outcast-affiliation": test_xep0060.test_outcast,
    "persistent-items": test_xep0254.test_waits_for_subscribers,
    "publish": test_xep0254.test_delivery,
    "publish-only-affiliation": test_xep0060.test_whitelist,
    "publish-options": test_xep0060.test_preconditions,
    "publisher-affiliation": test_xep0060.test_publish_models,
    "purge-nodes": test_xep0060.test_purge,
    "retrieve-affiliations": test_access.test_own_affiliations,
    "retrieve-default": test_xep0060.test_default_configuration,
    "retrieve-default-sub": test_default_subscription,
    "retrieve-items": test_xep0060.test_browse,
    "retrieve-subscriptions": test_several,
    "rsm": test_pages,
    "subscribe": test_xep0254.test_subscribe,
    "subscription-notifications": test_access.test_managed,
    "subscription-options": test_xep0060.test_subscription_options,
}

DEMONSTRATIONS: Final[dict[str, Callable[..., Any]]] = {
    DISCO_INFO: test_xep0254.test_disco,
    DISCO_ITEMS: test_xep0060.test_create,
    QUEUEING: test_xep0254.test_unlock,
    "urn:xmpp:qos": test_qos.test_the_three_levels,
    STANZAQ: test_xep0254_losses.test_renew,
    f"{STANZAQ}#streams": test_stream.test_e20_replay,
    f"{STANZAQ}#batch": test_batches.test_partitions_and_keys,
    SHIM: test_xep0254_losses.test_dead_letters,
    COMMANDS: test_adhoc.test_states_and_locks,
    "urn:xmpp:ping": test_ping_and_version,
    "jabber:iq:version": test_ping_and_version,
    RSM: test_pages,
    PUBSUB: test_xep0254.test_retract,
    **{f"{PUBSUB}#{name}": shown for name, shown in OF_PUBSUB.items()},
}


async def test_all_are_tried(join: Join) -> None:
    """What is advertised is in the table, and what is in the table is advertised."""
    client = await join()
    answer = await client.ask(f"<query xmlns='{DISCO_INFO}'/>", "get")
    advertised = [feature.get("var") for feature in answer.find(f"{{{DISCO_INFO}}}query") if feature.get("var")]
    assert sorted(advertised, key=str) == sorted(DEMONSTRATIONS)
