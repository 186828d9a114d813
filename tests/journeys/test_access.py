"""Permission to subscribe: approvals by owners, lists of subscriptions and affiliations, and owners who manage them."""

import asyncio
import secrets
from typing import Final
from xml.etree.ElementTree import Element

from tests.journeys.client import (
    COMMANDS,
    DISCO_INFO,
    DISCO_ITEMS,
    EVENT,
    FORM,
    OWNER,
    PUBSUB,
    Answer,
    Client,
    Delivery,
    form_values,
    submitted,
)
from tests.journeys.conftest import Join
from tests.journeys.service import DOMAIN, Service
from tests.waiting import PATIENCE_SECONDS

RSM: Final = "http://jabber.org/protocol/rsm"

AUTHORIZATION = f"{PUBSUB}#subscribe_authorization"
GET_PENDING = f"{PUBSUB}#get-pending"
WAITS = {"pubsub#access_model": "authorize"}


async def heard(client: Client, path: str, count: int = 1) -> list[Element]:
    """Wait until a client has received so many messages with such an element; return those elements."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            found = [each for message in client.heard for each in message.findall(path)]
            if len(found) >= count:
                return found
            client._changed.clear()
            await client._changed.wait()


async def waiting_node(owner: Client) -> str:
    """Create a node whose subscriptions need an approval, for an owner that messages to its bare JID reach."""
    owner.send("<presence/>")
    return await owner.queue(WAITS)


async def forms(client: Client, count: int = 1) -> list[dict[str, str]]:
    """Wait for so many questions to an owner."""
    return [form_values(form) for form in await heard(client, f"{{{FORM}}}x", count)]


async def told(client: Client, count: int = 1) -> list[str | None]:
    """Wait until a subscriber was notified of so many states."""
    found = await heard(client, f"{{{EVENT}}}event/{{{EVENT}}}subscription", count)
    assert all(each.get("jid") == client.jid and each.get("subid") for each in found)
    return [each.get("subscription") for each in found]


def send(client: Client, form: dict[str, str], allow: str, name: str = "f") -> None:
    """Send a form back."""
    fields = submitted(AUTHORIZATION, {**form, "pubsub#allow": allow})
    client.send(f"<message id='{name}' to='{DOMAIN}'>{fields}</message>")


async def command(client: Client, inside: str = "", about: str = "action='execute'") -> Answer:
    """Execute the command that asks for pending subscriptions."""
    return await client.ask(f"<command xmlns='{COMMANDS}' node='{GET_PENDING}' {about}>{inside}</command>")


async def own(client: Client, name: str = "subscriptions", node: str = "") -> list[dict[str, str]]:
    """Request one's own subscriptions or affiliations."""
    about = f" node='{node}'" if node else ""
    answer = await client.pubsub(f"<{name}{about}/>", "get")
    return [dict(entry.attrib) for entry in answer.find(f"{{{PUBSUB}}}pubsub/{{{PUBSUB}}}{name}")]


async def test_approval(join: Join) -> None:
    """P5, P27: a subscription waits, its owner is asked by a form and allows it, and items come."""
    owner, worker, other = await join(), await join(), await join()
    node = await waiting_node(owner)
    await owner.publish(node, "i1")
    answer = await worker.subscribe(node, 2)
    subscription = answer.find(f"{{{PUBSUB}}}pubsub/{{{PUBSUB}}}subscription")
    assert (subscription.get("subscription"), len(answer.element[0])) == ("pending", 1)
    assert (await worker.subscribe(node)).error == "auth not-authorized pending-subscription"
    assert [entry["subscription"] for entry in await own(worker)] == ["pending"]
    assert (await worker.pubsub(f"<items node='{node}'/>", "get")).error == "auth not-authorized not-subscribed"
    (form,) = await forms(owner)
    assert (form["pubsub#node"], form["pubsub#subscriber_jid"], form["pubsub#allow"]) == (node, worker.jid, "false")
    # A JID that is not an owner learns that its answer does not count.
    send(other, form, "1", "forged")
    error = await heard(other, "{jabber:client}error")
    assert [child.tag.partition("}")[2] for child in error[0]][:1] == ["forbidden"]
    await worker.settle()
    assert worker.left(Delivery) == []
    send(owner, form, "true")
    assert await told(worker) == ["subscribed"]
    assert (await worker.next(Delivery)).item == "i1"
    # The same answer again, and the contrary one, come too late.
    send(owner, form, "true")
    send(owner, form, "false")
    await owner.settle()
    await worker.settle()
    assert await told(worker) == ["subscribed"]
    assert [(entry["node"], entry["jid"], entry["subscription"]) for entry in await own(worker)] == [
        (node, worker.jid, "subscribed")
    ]


async def test_get_pending(join: Join) -> None:
    """P27: an owner who lost the forms asks for them: for the nodes first, then for those of one."""
    owner, worker = await join(), await join()
    node = await waiting_node(owner)
    await worker.subscribe(node)
    await forms(owner)
    listed = await owner.ask(f"<query xmlns='{DISCO_ITEMS}' node='{COMMANDS}'/>", "get")
    assert GET_PENDING in [item.get("node") for item in listed.find(f"{{{DISCO_ITEMS}}}query")]
    first = (await command(owner)).find(f"{{{COMMANDS}}}command")
    assert first.get("status") == "executing"
    assert [option.text for option in first.iterfind(f".//{{{FORM}}}option/{{{FORM}}}value")] == [node]
    session = f"sessionid='{first.get('sessionid')}' action='complete'"
    chosen = submitted(AUTHORIZATION, {"pubsub#node": node})
    last = await command(owner, chosen, session)
    assert last.find(f"{{{COMMANDS}}}command").get("status") == "completed"
    *_, form = await forms(owner, 2)
    assert (await command(worker, chosen)).error == "auth forbidden"
    assert (await command(owner, submitted(AUTHORIZATION, {"pubsub#node": "?"}))).error == "cancel item-not-found"
    send(owner, form, "1")
    assert await told(worker) == ["subscribed"]
    assert (await command(owner)).find(f"{{{COMMANDS}}}command").get("status") == "completed"


async def test_managed(join: Join) -> None:
    """P26: an owner sees its subscribers, removes one, whose items go to another, and the answer lists what it could not do."""
    owner, worker, other = await join(), await join(), await join()
    node = await owner.queue()
    await worker.subscribe(node)
    await owner.publish(node, "i1")
    await worker.next(Delivery)
    await other.subscribe(node)

    async def manage(*entries: tuple[str, str]) -> Answer:
        inside = "".join(f"<subscription jid='{jid}' subscription='{state}'/>" for jid, state in entries)
        return await owner.owner(f"<subscriptions node='{node}'>{inside}</subscriptions>")

    listed = await owner.owner(f"<subscriptions node='{node}'/>", "get")
    entries = listed.find(f"{{{OWNER}}}pubsub/{{{OWNER}}}subscriptions")
    assert {entry.get("jid") for entry in entries} == {worker.jid, other.jid}
    # In pages (XEP-0059), each of which continues the one before.
    paged, last = [], ""
    for _ in range(2):
        wanted = f"<set xmlns='{RSM}'><max>1</max><after>{last}</after></set>"
        part = (await owner.owner(f"<subscriptions node='{node}'/>{wanted}", "get")).find(f"{{{OWNER}}}pubsub")
        paged += [entry.get("jid") for entry in part[0]]
        last = part.findtext(f"{{{RSM}}}set/{{{RSM}}}last") or ""
        assert part.findtext(f"{{{RSM}}}set/{{{RSM}}}count") == "2"
    assert paged == sorted((worker.jid, other.jid))
    answer = await manage((worker.jid, "none"), ("nobody@example.org", "subscribed"))
    assert answer.error == "modify not-acceptable"
    failed = answer.find(f"{{{OWNER}}}pubsub/{{{OWNER}}}subscriptions")
    assert [(entry.get("jid"), entry.get("subscription")) for entry in failed] == [("nobody@example.org", "none")]
    assert await told(worker) == ["none"]
    assert (await other.next(Delivery)).item == "i1"
    assert (await worker.retract(node, "i1")).error == "cancel conflict"
    assert (await manage((other.jid, "subscribed"))).error == ""
    assert (await worker.owner(f"<subscriptions node='{node}'/>", "get")).error == "auth forbidden"
    assert (await manage((other.jid, "none"))).error == ""
    assert await own(other, node=node) == []


async def test_forms_of_one_name(join: Join, service: Service) -> None:
    """RFC 7622: an outcast stays one, however its owner writes its name and however it signs in, which ejabberd passes on."""
    name = f"strasse-{secrets.token_hex(4)}"
    forms = (
        name,
        name.upper(),
        name.replace("ss", "\u00df"),
        name.replace("s", "\uff33"),
        name.replace("-", "\u00ad-"),
    )
    jid = service.ejabberd.register(name, "secret")
    owner, worker = await join(), await join(jid, "secret", forms[1])
    outcast, open_node = await owner.queue(), await owner.queue()
    assert (await owner.affiliate(outcast, f"{forms[2].upper()}@LOCALHOST.", "outcast")).error == ""
    # What it is sent reaches it.
    assert (await worker.subscribe(open_node)).error == (await owner.publish(open_node, "i1")).error == ""
    delivery = await worker.next(Delivery)
    assert (await worker.retract(open_node, "i1", delivery.token)).error == ""
    for form in forms:
        client = await join(jid, "secret", form)
        assert (await client.publish(outcast)).error == "auth forbidden", form
        asked = await client.ask(f"<query xmlns='{DISCO_INFO}'/>", "get", to=DOMAIN.upper())
        assert asked.error == "" and asked.element.get("from") == DOMAIN


async def test_own_affiliations(join: Join) -> None:
    """P10: everybody reads its affiliations, with its own nodes and others; without any the list is empty."""
    owner, worker = await join(), await join()
    assert await own(worker, "affiliations") == await own(worker) == []
    node = await owner.queue()
    await owner.affiliate(node, worker.bare, "publish-only")
    assert await own(owner, "affiliations") == [{"node": node, "affiliation": "owner"}]
    for about in ("", node):
        assert await own(worker, "affiliations", about) == [{"node": node, "affiliation": "publish-only"}]
    await owner.owner(f"<delete node='{node}'/>")
    assert await own(worker, "affiliations") == []
    assert (await worker.pubsub(f"<affiliations node='{node}'/>", "get")).error == "cancel item-not-found"
