"""The flows of XEP-0254 on the wire: real ejabberd, real Redis, and each stanza at one of two frontends by chance."""

import asyncio
from collections import Counter
from xml.etree import ElementTree as ET

import pytest

from tests.journeys.client import (
    DISCO_INFO,
    EVENT,
    FORM,
    PUBSUB,
    QUEUEING,
    RETRACTED,
    STANZAQ,
    UNLOCKED,
    Client,
    Delivery,
    Ended,
    form_values,
)
from tests.journeys.conftest import Join, holding
from tests.journeys.service import DOMAIN

CREDIT = "pubsub#queue_requests"
SHORT_OPTIONS = {"stanzaq__lock_seconds": "1"}


async def test_disco(join: Join) -> None:
    """The service and each of its queues say that they are queues (Q2, Q3), and which kind of pubsub they are (P8)."""
    client = await join()
    node = await client.queue()
    for about, kind in (("", "service"), (f" node='{node}'", "leaf")):
        info = (await client.ask(f"<query xmlns='{DISCO_INFO}'{about}/>", "get")).find(f"{{{DISCO_INFO}}}query")
        features = {feature.get("var") for feature in info.iterfind(f"{{{DISCO_INFO}}}feature")}
        identity = info.find(f"{{{DISCO_INFO}}}identity")
        assert {QUEUEING, PUBSUB, STANZAQ} <= features
        assert identity is not None and (identity.get("category"), identity.get("type")) == ("pubsub", kind)


async def test_subscribe_without_options(join: Join) -> None:
    """Without options a subscribe is an error with the form to fill in (Q5, Q6, Q7), and subscribes nobody (QX9)."""
    client = await join()
    node = await client.queue()
    answer = await client.pubsub(f"<subscribe node='{node}' jid='{client.jid}'/>")
    assert answer.error == "modify not-acceptable configuration-required"
    echo = answer.find(f"{{{PUBSUB}}}pubsub/{{{PUBSUB}}}subscribe")
    options = answer.find(f"{{{PUBSUB}}}pubsub/{{{PUBSUB}}}options")
    assert echo.attrib == options.attrib == {"node": node, "jid": client.jid}
    form = answer.find(f".//{{{FORM}}}x")
    assert form.get("type") == "form"
    assert form_values(form) == {"FORM_TYPE": f"{PUBSUB}#subscribe_options", CREDIT: ""}
    field = form.find(f"{{{FORM}}}field[@var='{CREDIT}']")
    assert field is not None and field.get("type") == "text-single"
    assert field.find(f"{{{FORM}}}required") is not None
    assert (await client.options(node)).error == "cancel unexpected-request not-subscribed"


@pytest.mark.parametrize(("asked", "granted"), [("5", "5"), ("1000", "1000"), ("1000000", "1000")])
async def test_subscribe(join: Join, asked: str, granted: str) -> None:
    """A subscribe with options is answered with the subscription and the credit that is really given (Q8, Q9)."""
    client = await join()
    node = await client.queue()
    answer = await client.subscribe(node, asked)
    subscription = answer.find(f"{{{PUBSUB}}}pubsub/{{{PUBSUB}}}subscription")
    assert subscription.get("subscription") == "subscribed"
    assert subscription.get("jid") == client.jid and subscription.get("node") == node and subscription.get("subid")
    options = answer.find(f"{{{PUBSUB}}}pubsub/{{{PUBSUB}}}options")
    assert options.attrib == {}
    assert options.find(f"{{{FORM}}}x[@type='result']") is not None
    assert form_values(options)[CREDIT] == granted


async def test_bare_jid(join: Join, account: tuple[str, str]) -> None:
    """A bare JID is subscribed from a full one, and any of its resources may end its locks (Q10, P29)."""
    jid, password = account
    desk, phone = await join(f"{jid}/desk", password), await join(f"{jid}/phone", password)
    node = await desk.queue()
    answer = await desk.subscribe(node, 2, jid)
    assert answer.find(f"{{{PUBSUB}}}pubsub/{{{PUBSUB}}}subscription").get("jid") == jid
    desk.send("<presence/>")
    await desk.publish(node, "i1")
    assert (await desk.next(Delivery)).message.get("to", "").startswith(jid)
    assert (await phone.retract(node, "i1")).error == ""


async def test_waits_for_subscribers(join: Join) -> None:
    """Items published while nobody is subscribed wait, in order (Q13)."""
    publisher, worker = await join(), await join()
    node = await publisher.queue()
    for number in range(5):
        assert (await publisher.publish(node, f"i{number}")).error == ""
    await worker.subscribe(node, 5)
    assert [(await worker.next(Delivery)).item for _ in range(5)] == [f"i{number}" for number in range(5)]


async def test_exactly_one(join: Join) -> None:
    """Each item goes to one of the subscribers, with its payload, once (Q14, Q15)."""
    publisher = await join()
    node = await publisher.queue()
    workers = [await join() for _ in range(3)]
    for worker in workers:
        await worker.subscribe(node, 20)
    names = [f"i{number}" for number in range(30)]
    await asyncio.gather(*(publisher.publish(node, name, f"<job xmlns='urn:x'>{name}</job>") for name in names))
    for worker in workers:
        await worker.settle()
    came = [delivery for worker in workers for delivery in worker.left(Delivery)]
    assert Counter(delivery.item for delivery in came) == Counter(names)
    assert all(delivery.payload.text == delivery.item for delivery in came)
    # The least recently served is next, so three equal workers share evenly.
    assert [len(worker.left(Delivery)) for worker in workers] == [10, 10, 10]


async def test_delivery(join: Join) -> None:
    """A delivery comes from the service as XEP-0254 shows it, with the lock beside it (Q16, QX6, QX14, X2, P32)."""
    _, worker, node, delivery = await holding(join)
    message = delivery.message
    assert message.get("from") == DOMAIN and message.get("to") == worker.jid and message.get("id")
    items = message.find(f"{{{EVENT}}}event/{{{EVENT}}}items")
    assert items is not None and items.get("node") == node
    assert [item.get("id") for item in items] == ["i1"]
    lock = message.find(f"{{{STANZAQ}}}lock")
    assert lock is not None
    assert {name: lock.get(name) for name in ("node", "item", "attempt", "of")} == {
        "node": node,
        "item": "i1",
        "attempt": "1",
        "of": "20",
    }
    assert delivery.token > 0 and lock.get("expires", "").endswith("Z")
    assert {child.tag for child in message} >= {"{urn:xmpp:hints}no-store", "{urn:xmpp:hints}no-copy"}


async def test_payload_comes_back(join: Join) -> None:
    """A payload comes back equal in content: namespaces, attributes, mixed text, CDATA, characters of any plane."""
    publisher, worker = await join(), await join()
    node = await publisher.queue()
    await worker.subscribe(node)
    payload = (
        "<a:job xmlns:a='urn:a' xmlns='urn:b' xmlns:c='urn:c' c:at='1 &lt; 2 &amp; &quot;' xml:lang='de' b='&#10;&#9;'>"
        "before <inner>&lt;tag/&gt; <![CDATA[<cd & ata>]]></inner> after 🐝 𐍈 ü <empty xmlns=''/> \u200b end</a:job>"
    )
    await publisher.publish(node, "i1", payload)
    came = ET.tostring((await worker.next(Delivery)).payload, encoding="unicode")
    assert ET.canonicalize(came, rewrite_prefixes=True) == ET.canonicalize(payload, rewrite_prefixes=True)


@pytest.mark.parametrize("kind", ["set", "get"])
async def test_retract(join: Join, kind: str) -> None:
    """The holder's retract, a set or a get (QX1), deletes the item; only the holder is notified, before the result.

    Q19, Q20, Q21, Q26, QX5, QX17.
    """
    owner, worker, node, _ = await holding(join)
    other = await join()
    await other.subscribe(node)
    answer = await worker.pubsub(f"<retract node='{node}' notify='true'><item id='i1'/></retract>", kind)
    assert answer.error == "" and len(answer.element) == 0
    assert await worker.next(Ended) == Ended(node, "i1", RETRACTED)
    notified, answered = worker.heard[-2:]
    assert notified.tag.endswith("message") and answered is answer.element
    assert await owner.browse(node) == []
    for bystander in (owner, other):
        await bystander.settle()
        assert bystander.left(Ended) == []


@pytest.mark.parametrize("kind", ["set", "get"])
async def test_unlock(join: Join, kind: str) -> None:
    """The holder's unlock notifies it alone, in the registered namespace, and the item goes to another.

    Q28, Q29, Q30, QX1, QX4.
    """
    _, worker, node, first = await holding(join)
    other = await join()
    await other.subscribe(node)
    answer = await worker.pubsub(f"<unlock xmlns='{QUEUEING}' node='{node}'><item id='i1'/></unlock>", kind)
    assert answer.error == "" and len(answer.element) == 0
    assert await worker.next(Ended) == Ended(node, "i1", UNLOCKED)
    second = await other.next(Delivery)
    assert (second.item, second.attempt) == ("i1", 2) and second.token > first.token
    await worker.settle()
    await other.settle()
    assert worker.left(Delivery) == [] and other.left(Ended) == []


ACTIONS = pytest.mark.parametrize("action", ["retract", "unlock"])


async def _act(client: Client, action: str, node: str, item: str, token: int | None = None) -> str:
    method = client.retract if action == "retract" else client.unlock
    answer = await method(node, item, token)
    if answer.error:
        # The error examples of XEP-0254 show the request in them (Q31).
        assert answer.find(f"{{{PUBSUB}}}pubsub")[0].get("node") == node
    return answer.error


@ACTIONS
async def test_locked_by_another(join: Join, action: str) -> None:
    """A former receiver of the item gets conflict, as do owner and publisher; others get forbidden (D7, D8).

    Q23, Q24, Q31, QX3, QX15.
    """
    owner, worker, node, _ = await holding(join)
    other, stranger = await join(), await join()
    await other.subscribe(node)
    await worker.unlock(node, "i1")
    await other.next(Delivery)
    assert await _act(worker, action, node, "i1") == "cancel conflict"
    assert await _act(owner, action, node, "i1") == "cancel conflict"
    assert await _act(stranger, action, node, "i1") == "auth forbidden"
    assert await _act(other, action, node, "i1") == ""


@ACTIONS
async def test_owner_of_waiting(join: Join, action: str) -> None:
    """An owner, or the item's publisher, deletes a waiting item, but has no lock to end (D10, QX15)."""
    owner, publisher = await join(), await join()
    node = await owner.queue()
    for client, item in ((owner, "i1"), (publisher, "i2")):
        await publisher.publish(node, item)
        expected = "" if action == "retract" else "wait unexpected-request"
        assert await _act(client, action, node, item) == expected
    left = [item.get("id") for item in await owner.browse(node)]
    assert left == ([] if action == "retract" else ["i1", "i2"])


async def test_late_worker_is_fenced(join: Join) -> None:
    """After redelivery to the same JID the old token is refused; the new one and none at all are accepted (QX14, row 6)."""
    _, worker, node, first = await holding(join, **SHORT_OPTIONS)
    second = await worker.next(Delivery)
    assert second.attempt == 2 and second.token > first.token
    assert await _act(worker, "retract", node, "i1", first.token) == "wait unexpected-request"
    # A busy machine may take longer than the lock lasts.
    while (error := await _act(worker, "retract", node, "i1", second.token)) == "wait unexpected-request":
        second = await worker.next(Delivery)
    assert error == ""


@ACTIONS
async def test_replay(join: Join, action: str) -> None:
    """A request repeated with its id gets the first answer, at any frontend (Q27)."""
    owner, worker, node, _ = await holding(join)
    await worker.unsubscribe(node)
    method = worker.retract if action == "retract" else worker.unlock
    for _ in range(10):
        assert (await method(node, "i1", request="same")).error == ""
    assert (await method(node, "i1", request="other")).error == (
        "cancel item-not-found" if action == "retract" else "wait unexpected-request"
    )
    assert [item.get("id") for item in await owner.browse(node)] == ([] if action == "retract" else ["i1"])
