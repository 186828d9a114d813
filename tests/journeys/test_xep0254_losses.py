"""Other ends of locks than a plain retract or unlock (XEP-0254 §3, §4): late, lost, gone, replaced, tried too often."""

import asyncio
import json

from tests.journeys.client import (
    EVENT,
    STANZAQ,
    UNLOCKED,
    Client,
    Delivery,
    Ended,
    NodeEvent,
)
from tests.journeys.conftest import Join, holding
from tests.journeys.service import Service
from tests.waiting import PATIENCE_SECONDS

SHORT_OPTIONS = {"stanzaq__lock_seconds": "1"}


async def test_dead_letters(join: Join) -> None:
    """After its last attempt an item goes to NODE/dead, with the reason, the holder and the number of attempts."""
    owner, worker, node, _ = await holding(join, stanzaq__max_deliveries="2")
    assert (await worker.unlock(node, "i1")).error == ""
    assert (await worker.next(Delivery)).attempt == 2
    assert (await worker.unlock(node, "i1", hint="reason='cannot be read'")).error == ""
    told = await _dead_letter(owner, f"{node}/dead")
    history = json.loads(told.pop("stanzaq-dead-history"))
    assert [(each["outcome"], each["holder"], each["reason"]) for each in history] == [
        ("released", worker.jid, ""),
        ("released", worker.jid, "cannot be read"),
    ]
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


async def _dead_letter(owner: Client, node: str) -> dict[str, str]:
    """Consume from a node of dead letters, which exists from the first one on, and return its headers."""
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
    """A JID that becomes unavailable loses all its locks, at once, and is unsubscribed (Q33); one that is there is told."""
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
    assert await worker.next(NodeEvent) == NodeEvent(node, "subscription")
    assert [
        message.get("type") for message in worker.heard if message.find(f".//{{{EVENT}}}subscription") is not None
    ] == ["headline"]


async def test_connection_lost(join: Join) -> None:
    """The server reports a worker whose connection breaks as unavailable, if it ever sent presence (Q33, QX16)."""
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
    """A bare JID's locks end when the last of its resources goes, whichever frontends receive each presence (Q33, QX16)."""
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
    """An unsubscribed worker keeps its locks and may still end them; it gets nothing new (Q34)."""
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
    """A lock that is neither ended nor renewed expires: its holder is notified, the next one gets the item (Q35)."""
    _, worker, node, first = await holding(join, **SHORT_OPTIONS)
    other = await join()
    await other.subscribe(node)
    began = asyncio.get_running_loop().time()
    second = await other.next(Delivery)
    # Its time and a second (guarantee 4), and some for a busy machine.
    assert asyncio.get_running_loop().time() - began < 10
    # It is the third attempt if the worker's lock was over before the other one was there.
    assert second.item == "i1" and second.attempt in {2, 3} and second.token > first.token
    assert await worker.next(Ended) == Ended(node, "i1", UNLOCKED)
    await other.retract(node, "i1")


async def test_renew(join: Join) -> None:
    """A renewed lock has its whole time again, and is listed with the others (QX11, QX12)."""
    _, worker, node, delivery = await holding(join)
    held = delivery.message.find(f"{{{STANZAQ}}}lock")
    renewed = await worker.ask(
        f"<renew xmlns='{STANZAQ}' node='{node}'><item id='i1' token='{delivery.token}'/></renew>"
    )
    item = renewed.find(f"{{{STANZAQ}}}renew/{{{STANZAQ}}}item")
    assert item.get("token") == str(delivery.token)
    assert held is not None and item.get("expires", "") > held.get("expires", "")
    listed = await worker.ask(f"<locks xmlns='{STANZAQ}' node='{node}'/>", "get")
    locks = listed.find(f"{{{STANZAQ}}}locks")
    assert [(lock.get("item"), lock.get("token")) for lock in locks] == [("i1", str(delivery.token))]
    assert (await worker.retract(node, "i1", delivery.token)).error == ""
    late = await worker.ask(f"<renew xmlns='{STANZAQ}' node='{node}'><item id='i1'/></renew>")
    assert late.error == "cancel item-not-found"


async def test_republish(join: Join) -> None:
    """A waiting item is replaced in its place; the successor of a locked one comes when the lock ends (X1, P15, QX18)."""
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


async def test_bounce(join: Join) -> None:
    """An item that cannot be delivered to a worker that vanished goes to another at once (Q18, P30)."""
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
    # Its first bounce shows that it is gone: its other items come back with it.
    assert {(await other.next(Delivery)).item for _ in range(5)} == {"held", *names}


async def test_publisher_is_the_services_word(join: Join) -> None:
    """A browse names the publisher that the server vouched for, whatever a publish claims (P16)."""
    owner, publisher = await join(), await join()
    node = await owner.queue()
    await publisher.pubsub(
        f"<publish node='{node}'><item id='i1' publisher='romeo@x'><job xmlns='urn:x'/></item></publish>"
    )
    assert [item.get("publisher") for item in await owner.browse(node)] == [publisher.bare]


async def test_frontends_stand(service: Service, join: Join) -> None:
    """Both frontends have had their share, and are still the same processes."""
    client = await join()
    await client.settle()
    assert service.faults() == []
