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
    submitted,
)
from tests.journeys.conftest import Join
from tests.journeys.service import DOMAIN, PATIENCE_SECONDS, Service

pytestmark = pytest.mark.xdist_group("journeys")

CREDIT = "pubsub#queue_requests"
SHORT_OPTIONS = {"stanzaq__lock_seconds": "1"}
_SWEEP_SECONDS = 1.0
"""By how much a lock may outlive its time (guarantee 4)."""


async def _holding(join: Join, item: str = "i1", **options: str) -> tuple[Client, Client, str, Delivery]:
    """Give an owner, a worker of credit 1 that holds an item, the node and the delivery."""
    owner, worker = await join(), await join()
    node = await owner.queue({name.replace("__", "#"): value for name, value in options.items()})
    assert (await worker.subscribe(node)).error == ""
    assert (await owner.publish(node, item)).error == ""
    return owner, worker, node, await worker.next(Delivery)


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


async def test_subscribe_as_clients_do(join: Join) -> None:
    """`jid` and `node` on the options are borne when they are the subscribe's own (QX8), and so is the short name (QX10)."""
    client = await join()
    node = await client.queue()
    subscribe = f"<subscribe node='{node}' jid='{client.jid}'/>"
    for field in (CREDIT, "queue_requests"):
        form = submitted(f"{PUBSUB}#subscribe_options", {field: "3"})
        good = await client.pubsub(f"{subscribe}<options node='{node}' jid='{client.jid}'>{form}</options>")
        assert form_values(good.element)[CREDIT] == "3"
        bad = await client.pubsub(f"{subscribe}<options node='other' jid='{client.jid}'>{form}</options>")
        assert bad.error == "modify bad-request"


async def test_bare_jid(join: Join, account: tuple[str, str]) -> None:
    """A bare JID is subscribed from a full one, and any of its resources may end its locks (Q10, §1.7)."""
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
    """What is published while nobody is subscribed waits, in order (Q13)."""
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
    """A delivery comes from the service as XEP-0254 shows it, beside it what is known of the lock (Q16, QX6, QX14, X2)."""
    _, worker, node, delivery = await _holding(join)
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
        "before <inner>&lt;tag/&gt; <![CDATA[<cd & ata>]]></inner> after 🐝 𝔘 ü <empty xmlns=''/> \u200b end</a:job>"
    )
    await publisher.publish(node, "i1", payload)
    came = ET.tostring((await worker.next(Delivery)).payload, encoding="unicode")
    assert ET.canonicalize(came, rewrite_prefixes=True) == ET.canonicalize(payload, rewrite_prefixes=True)


async def test_credit(join: Join) -> None:
    """No worker holds more than its credit; a raised credit and an ended lock each let the next item come (Q12)."""
    publisher, worker = await join(), await join()
    node = await publisher.queue()
    await worker.subscribe(node, 2)
    for number in range(6):
        await publisher.publish(node, f"i{number}")
    assert [(await worker.next(Delivery)).item for _ in range(2)] == ["i0", "i1"]
    await worker.settle()
    assert worker.left(Delivery) == []
    await worker.retract(node, "i0")
    assert (await worker.next(Delivery)).item == "i2"
    await worker.settle()
    assert worker.left(Delivery) == []
    form = submitted(f"{PUBSUB}#subscribe_options", {CREDIT: "4"})
    await worker.pubsub(f"<options node='{node}' jid='{worker.jid}'>{form}</options>")
    assert [(await worker.next(Delivery)).item for _ in range(2)] == ["i3", "i4"]
    await worker.settle()
    assert worker.left(Delivery) == []


@pytest.mark.parametrize("kind", ["set", "get"])
async def test_retract(join: Join, kind: str) -> None:
    """The holder's retract, a set or a get (QX1), deletes the item; the holder alone hears of it, then comes the result.

    Q19, Q20, Q21, Q26, QX5, QX17.
    """
    owner, worker, node, _ = await _holding(join)
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
    """The holder's unlock is told to it alone, in the registered namespace, and the item goes to another.

    Q28, Q29, Q30, QX1, QX4.
    """
    _, worker, node, first = await _holding(join)
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
async def test_unknown(join: Join, action: str) -> None:
    """An item or a node that does not exist is not found (Q22, Q31; §1.7 rows 2 and 4)."""
    client = await join()
    node = await client.queue()
    assert await _act(client, action, node, "nothing") == "cancel item-not-found"
    assert await _act(client, action, "no such queue", "nothing") == "cancel item-not-found"


@ACTIONS
async def test_locked_by_another(join: Join, action: str) -> None:
    """Who once received the item gets conflict, as do owner and publisher; who never did, forbidden (§1.7 rows 7, 8).

    Q23, Q24, Q31, QX3, QX15.
    """
    owner, worker, node, _ = await _holding(join)
    other, stranger = await join(), await join()
    await other.subscribe(node)
    await worker.unlock(node, "i1")
    await other.next(Delivery)
    assert await _act(worker, action, node, "i1") == "cancel conflict"
    assert await _act(owner, action, node, "i1") == "cancel conflict"
    assert await _act(stranger, action, node, "i1") == "auth forbidden"
    assert await _act(other, action, node, "i1") == ""


@ACTIONS
async def test_not_locked(join: Join, action: str) -> None:
    """Who held the item and lost it gets unexpected-request, who never received it forbidden (§1.7 rows 9, 11; Q25)."""
    _, worker, node, _ = await _holding(join)
    stranger = await join()
    await worker.unlock(node, "i1", hint="delay='600'")
    assert await _act(worker, action, node, "i1") == "wait unexpected-request"
    assert await _act(stranger, action, node, "i1") == "auth forbidden"


@ACTIONS
async def test_owner_of_waiting(join: Join, action: str) -> None:
    """An owner, or the item's publisher, deletes what waits, but has no lock to end (§1.7 row 10, QX15)."""
    owner, publisher = await join(), await join()
    node = await owner.queue()
    for client, item in ((owner, "i1"), (publisher, "i2")):
        await publisher.publish(node, item)
        expected = "" if action == "retract" else "wait unexpected-request"
        assert await _act(client, action, node, item) == expected
    left = [item.get("id") for item in await owner.browse(node)]
    assert left == ([] if action == "retract" else ["i1", "i2"])


@ACTIONS
async def test_late_worker_is_fenced(join: Join, action: str) -> None:
    """After redelivery to the same JID the old token is refused, the new one and none at all are good (QX14, row 6)."""
    _, worker, node, first = await _holding(join, **SHORT_OPTIONS)
    second = await worker.next(Delivery)
    assert second.attempt == 2 and second.token > first.token
    assert await _act(worker, action, node, "i1", first.token) == "wait unexpected-request"
    assert await _act(worker, action, node, "i1", second.token) == ""


@ACTIONS
async def test_replay(join: Join, action: str) -> None:
    """A request that is sent again under its id is answered as the first was, whichever frontend it meets (Q27)."""
    owner, worker, node, _ = await _holding(join)
    await worker.unsubscribe(node)
    method = worker.retract if action == "retract" else worker.unlock
    for _ in range(10):
        assert (await method(node, "i1", request="same")).error == ""
    assert (await method(node, "i1", request="other")).error == (
        "cancel item-not-found" if action == "retract" else "wait unexpected-request"
    )
    assert [item.get("id") for item in await owner.browse(node)] == ([] if action == "retract" else ["i1"])


async def test_hints(join: Join) -> None:
    """A released item rests as long as its releaser says (Q32): nobody gets it at once, somebody does in time."""
    _, worker, node, _ = await _holding(join)
    other = await join()
    await other.subscribe(node)
    await worker.unlock(node, "i1", hint="delay='1' reason='not yet'")
    await other.settle()
    assert other.left(Delivery) == []
    assert (await other.next(Delivery, 1 + _SWEEP_SECONDS + 1)).attempt == 2


async def test_dead_letters(join: Join) -> None:
    """After its last attempt an item goes to NODE/dead and tells there why, from whom and how often it was tried."""
    owner, worker, node, _ = await _holding(join, stanzaq__max_deliveries="2")
    assert (await worker.unlock(node, "i1")).error == ""
    assert (await worker.next(Delivery)).attempt == 2
    assert (await worker.unlock(node, "i1", hint="reason='cannot be read'")).error == ""
    told = await _dead_letter(owner, f"{node}/dead")
    assert told == {
        "stanzaq-dead-reason": "cannot be read",
        "stanzaq-dead-holder": worker.jid,
        "stanzaq-dead-attempts": "2",
        "stanzaq-dead-node": node,
        "stanzaq-dead-item": "i1",
        "stanzaq-dead-publisher": owner.bare,
    }
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await owner.browse(node):
            pass


async def test_dead_letter_by_hint(join: Join) -> None:
    """A worker that knows that an item is hopeless sends it to the dead letters with one word (Q32)."""
    owner, worker, node, _ = await _holding(join)
    await worker.unlock(node, "i1", hint="dead-letter='true' reason='poison'")
    told = await _dead_letter(owner, f"{node}/dead")
    assert (told["stanzaq-dead-reason"], told["stanzaq-dead-attempts"]) == ("poison", "1")


async def _dead_letter(owner: Client, node: str) -> dict[str, str]:
    """Work on a node of dead letters, which comes into being with its first one, and give the headers of that."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await owner.subscribe(node)).error:
            pass
    letter = await owner.next(Delivery)
    assert letter.payload.tag == "{urn:x}job"
    assert (await owner.retract(node, letter.item, letter.token)).error == ""
    shim = "http://jabber.org/protocol/shim"
    headers = letter.message.iterfind(f"{{{shim}}}headers/{{{shim}}}header")
    return {header.get("name", ""): header.text or "" for header in headers}


async def test_unavailable(join: Join) -> None:
    """Who becomes unavailable gives back all that it holds, at once, and is unsubscribed (Q33)."""
    owner, worker = await join(), await join()
    node = await owner.queue()
    worker.present()
    await worker.subscribe(node, 3)
    for number in range(3):
        await owner.publish(node, f"i{number}")
        await worker.next(Delivery)
    other = await join()
    await other.subscribe(node, 3)
    worker.present("unavailable")
    assert {(await other.next(Delivery)).item for _ in range(3)} == {"i0", "i1", "i2"}
    assert (await worker.options(node)).error == "cancel unexpected-request not-subscribed"


async def test_connection_lost(join: Join) -> None:
    """A worker whose connection breaks is unavailable by its server's word, if it ever sent presence (Q33, QX16)."""
    owner, worker, other = await join(), await join(), await join()
    node = await owner.queue()
    worker.present()
    await worker.settle()
    await worker.subscribe(node)
    await owner.publish(node, "i1")
    await worker.next(Delivery)
    await other.subscribe(node)
    worker.vanish()
    assert (await other.next(Delivery)).item == "i1"


async def test_last_resource_leaves(join: Join, account: tuple[str, str]) -> None:
    """A bare JID's locks end when the last of its resources goes, whichever frontends hear of each (Q33, QX16)."""
    jid, password = account
    owner, other = await join(), await join()
    desk, phone = await join(f"{jid}/desk", password), await join(f"{jid}/phone", password)
    node = await owner.queue()
    for resource in (desk, phone):
        resource.send("<presence/>")
        resource.present()
        await resource.settle()
    await desk.subscribe(node, 1, jid)
    await owner.publish(node, "i1")
    await asyncio.wait(
        [asyncio.create_task(resource.next(Delivery)) for resource in (desk, phone)],
        return_when=asyncio.FIRST_COMPLETED,
    )
    await other.subscribe(node)
    desk.present("unavailable")
    await desk.settle()
    await other.settle()
    assert other.left(Delivery) == []
    assert (await phone.options(node, jid)).error == ""
    phone.present("unavailable")
    assert (await other.next(Delivery)).item == "i1"
    assert (await phone.options(node, jid)).error == "cancel unexpected-request not-subscribed"


async def test_unsubscribe_keeps_locks(join: Join) -> None:
    """Who leaves keeps what it holds and may still end it; nothing new comes (Q34)."""
    owner, worker = await join(), await join()
    node = await owner.queue()
    await worker.subscribe(node, 2)
    for item in ("i1", "i2"):
        await owner.publish(node, item)
        await worker.next(Delivery)
    assert (await worker.unsubscribe(node)).error == ""
    assert (await worker.unsubscribe(node)).error == "cancel unexpected-request not-subscribed"
    await owner.publish(node, "i3")
    assert (await worker.unlock(node, "i1")).error == ""
    assert (await worker.retract(node, "i2")).error == ""
    await worker.settle()
    assert worker.left(Delivery) == []
    assert [item.get("id") for item in await owner.browse(node)] == ["i1", "i3"]


async def test_expiry(join: Join) -> None:
    """A lock that is neither ended nor renewed in time is: its holder is told, the next one gets the item (Q35)."""
    _, worker, node, first = await _holding(join, **SHORT_OPTIONS)
    other = await join()
    await other.subscribe(node)
    began = asyncio.get_running_loop().time()
    second = await other.next(Delivery)
    assert asyncio.get_running_loop().time() - began < 1 + _SWEEP_SECONDS
    assert (second.item, second.attempt) == ("i1", 2) and second.token > first.token
    assert await worker.next(Ended) == Ended(node, "i1", UNLOCKED)
    await other.retract(node, "i1")


async def test_renew(join: Join) -> None:
    """A renewed lock lasts its time anew, is listed with the others, and holds off the next (QX11, QX12)."""
    _, worker, node, delivery = await _holding(join, stanzaq__lock_seconds="2")
    for _ in range(3):
        await asyncio.sleep(1)
        renewed = await worker.ask(
            f"<renew xmlns='{STANZAQ}' node='{node}'><item id='i1' token='{delivery.token}'/></renew>"
        )
        item = renewed.find(f"{{{STANZAQ}}}renew/{{{STANZAQ}}}item")
        assert item.get("token") == str(delivery.token) and item.get("expires")
    listed = await worker.ask(f"<locks xmlns='{STANZAQ}' node='{node}'/>", "get")
    locks = listed.find(f"{{{STANZAQ}}}locks")
    assert [(lock.get("item"), lock.get("token")) for lock in locks] == [("i1", str(delivery.token))]
    assert worker.left(Ended) == []
    assert (await worker.retract(node, "i1", delivery.token)).error == ""
    late = await worker.ask(f"<renew xmlns='{STANZAQ}' node='{node}'><item id='i1'/></renew>")
    assert late.error == "cancel item-not-found"


async def test_republish(join: Join) -> None:
    """A waiting item is replaced in its place; what replaces a locked one comes when the lock ends (X1, P15, QX18)."""
    owner, worker = await join(), await join()
    node = await owner.queue()
    for item, text in (("i1", "old"), ("i2", "other"), ("i1", "new")):
        assert (await owner.publish(node, item, f"<job xmlns='urn:x'>{text}</job>")).error == ""
    await worker.subscribe(node)
    first = await worker.next(Delivery)
    assert (first.item, first.payload.text) == ("i1", "new")
    assert (await owner.publish(node, "i1", "<job xmlns='urn:x'>newer</job>")).error == ""
    assert (await worker.retract(node, "i1", first.token)).error == ""
    came = {(await worker.next(Delivery)).item}
    await worker.retract(node, came.copy().pop())
    came.add((await worker.next(Delivery)).item)
    assert came == {"i1", "i2"}


async def test_republish_ignored(join: Join) -> None:
    """Where repeats are ignored, one is a success that says `duplicate`, also after the item is done (X1)."""
    owner, worker, node, delivery = await _holding(join, stanzaq__dedupe="ignore")
    await worker.retract(node, "i1", delivery.token)
    answer = await owner.publish(node, "i1")
    assert answer.find(f".//{{{PUBSUB}}}item").get(f"{{{STANZAQ}}}duplicate") == "true"
    await worker.settle()
    assert worker.left(Delivery) == []


async def test_node_full(join: Join) -> None:
    """A full queue refuses rather than drop a job, and takes the next when one is done (PX4, P17)."""
    owner, worker = await join(), await join()
    node = await owner.queue({"pubsub#max_items": "2"})
    await worker.subscribe(node)
    for item in ("i1", "i2"):
        assert (await owner.publish(node, item)).error == ""
    assert (await owner.publish(node, "i3")).error == "wait conflict node-full"
    await worker.next(Delivery)
    await worker.retract(node, "i1")
    assert (await owner.publish(node, "i3")).error == ""


async def test_bounce(join: Join) -> None:
    """What cannot be delivered to a worker that went without a word goes to another at once (Q18, P30)."""
    owner, gone, other = await join(), await join(), await join()
    node = await owner.queue()
    await gone.subscribe(node, 3)
    await owner.publish(node, "held")
    await gone.next(Delivery)
    gone.vanish()
    await other.subscribe(node, 5)
    names = [f"i{number}" for number in range(4)]
    for name in names:
        await owner.publish(node, name)
    # Its first bounce shows that it is gone: with it comes back what it held.
    assert {(await other.next(Delivery)).item for _ in range(5)} == {"held", *names}


async def test_publisher_is_the_services_word(join: Join) -> None:
    """A browse names the publisher that the server vouched for, whatever a publish claims (P16)."""
    owner, publisher = await join(), await join()
    node = await owner.queue()
    await publisher.pubsub(f"<publish node='{node}'><item id='i1' publisher='romeo@x'><job xmlns='urn:x'/></item></publish>")
    assert [item.get("publisher") for item in await owner.browse(node)] == [publisher.bare]


async def test_frontends_stand(service: Service, join: Join) -> None:
    """Both frontends have had their share, and are what they were."""
    client = await join()
    await client.settle()
    assert service.faults() == []
