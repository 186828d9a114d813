"""Other ends of locks than a plain retract or unlock (XEP-0254 §3, §4): late, lost, gone, replaced, tried too often."""

import asyncio
import json
from datetime import UTC, datetime, timedelta

from tests.journeys.client import (
    EVENT,
    PUBSUB,
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


async def test_hints(join: Join) -> None:
    """A released item is delayed as long as its releaser says (Q32): nobody gets it at once, somebody does in time."""
    _, worker, node, _ = await holding(join)
    other = await join()
    await other.subscribe(node)
    clock = asyncio.get_running_loop().time
    began = clock()
    await worker.unlock(node, "i1", hint="delay='1' reason='not yet'")
    assert (await other.next(Delivery)).attempt == 2 and clock() - began >= 1


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


async def test_dead_letter_by_hint(join: Join) -> None:
    """A worker sends a hopeless item to the dead letters with one hint (Q32)."""
    owner, worker, node, _ = await holding(join)
    await worker.unlock(node, "i1", hint="dead-letter='true' reason='poison'")
    told = await _dead_letter(owner, f"{node}/dead")
    assert (told["stanzaq-dead-reason"], told["stanzaq-dead-attempts"]) == ("poison", "1")


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
    """A renewed lock lasts its whole time again, is listed with the others, and holds off the next (QX11, QX12)."""
    _, worker, node, delivery = await holding(join, stanzaq__lock_seconds="3")
    for _ in range(4):
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


async def test_republish_ignored(join: Join) -> None:
    """Where repeats are ignored, one is a success that says `duplicate`, also after the item is done (X1)."""
    owner, worker, node, delivery = await holding(join, stanzaq__dedupe="ignore")
    await worker.retract(node, "i1", delivery.token)
    answer = await owner.publish(node, "i1")
    assert answer.find(f".//{{{PUBSUB}}}item").get(f"{{{STANZAQ}}}duplicate") == "true"
    await worker.settle()
    assert worker.left(Delivery) == []


async def test_node_full(join: Join) -> None:
    """A full queue refuses instead of dropping a job, and accepts the next when one is done (PX4, P17)."""
    owner, worker = await join(), await join()
    node = await owner.queue({"pubsub#max_items": "2"})
    await worker.subscribe(node)
    for item in ("i1", "i2"):
        assert (await owner.publish(node, item)).error == ""
    assert (await owner.publish(node, "i3")).error == "wait conflict node-full"
    await worker.next(Delivery)
    await worker.retract(node, "i1")
    assert (await owner.publish(node, "i3")).error == ""


async def test_publish_rate(join: Join) -> None:
    """stanzaq#publish_rate: who publishes too fast is told when to go on; others may publish."""
    owner, other = await join(), await join()
    node = await owner.queue({"stanzaq#publish_rate": "1/h", "pubsub#publish_model": "open"})
    assert (await owner.publish(node, "i1")).error == ""
    refused = await owner.publish(node, "i2")
    assert refused.error == "wait policy-violation too-fast"
    told = refused.element.find(f".//{{{STANZAQ}}}too-fast")
    assert told is not None and 3_000 < float(told.get("retry-after", "")) <= 3_600
    assert (await other.publish(node, "i2")).error == ""


async def test_retry_delay(join: Join) -> None:
    """stanzaq#retry_delay: an item that came back rests, twice as long after the second attempt, though its worker is free."""
    owner, worker = await join(), await join()
    node = await owner.queue({"stanzaq#retry_delay": "0.3", "stanzaq#retry_backoff": "2", "stanzaq#retry_jitter": "0"})
    await worker.subscribe(node)
    await owner.publish(node, "i1")
    clock = asyncio.get_running_loop().time
    held = await worker.next(Delivery)
    for least in (0.3, 0.6):
        began = clock()
        assert (await worker.unlock(node, "i1", held.token, "reason='busy'")).error == ""
        held = await worker.next(Delivery)
        assert clock() - began >= least and held.item == "i1"
    assert (await owner.configure(node, {"stanzaq#retry_backoff": "0.5"})).error.startswith("modify not-acceptable")


async def test_a_time(join: Join) -> None:
    """Issue 25: an item that names a time goes out then and not before; one that is past goes out at once."""
    owner, worker = await join(), await join()
    node = await owner.queue()
    await worker.subscribe(node, 3)
    soon = datetime.now(UTC) + timedelta(seconds=3)
    for item, at in (("later", soon), ("past", datetime(2020, 1, 1, tzinfo=UTC))):
        said = f"<item id='{item}' xmlns:q='{STANZAQ}' q:at='{at.isoformat()}'><job xmlns='urn:x'/></item>"
        assert (await owner.pubsub(f"<publish node='{node}'>{said}</publish>")).error == ""
    assert [(await worker.next(Delivery)).item for _ in range(2)] == ["past", "later"]
    assert datetime.now(UTC) >= soon
    for wrong in ("tomorrow", "2026-12-01T09:00:00", "2999-01-01T00:00:00Z"):
        said = f"<item xmlns:q='{STANZAQ}' q:at='{wrong}'><job xmlns='urn:x'/></item>"
        assert (await owner.pubsub(f"<publish node='{node}'>{said}</publish>")).error.startswith("modify bad-request")


async def test_rates_and_bounds(join: Join) -> None:
    """stanzaq#max_in_flight and stanzaq#rate: a worker gets what the node hands out, not its credit; bad values fail."""
    owner, worker = await join(), await join()
    node = await owner.queue({"stanzaq#max_in_flight": "2", "stanzaq#rate": "3/h", "stanzaq#rate_burst": "3"})
    await worker.subscribe(node, 9)
    for number in range(5):
        await owner.publish(node, f"i{number}")
    first, second = await worker.next(Delivery), await worker.next(Delivery)
    await worker.settle()
    assert worker.left(Delivery) == []
    await worker.retract(node, first.item)
    assert (await worker.next(Delivery)).item == "i2"
    await worker.retract(node, second.item)
    await worker.settle()
    assert worker.left(Delivery) == []
    for name in ("rate", "publish_rate", "rate_by_key"):
        for bad in ("0/s", "abc", "1000000000000/s"):
            assert (await owner.configure(node, {f"stanzaq#{name}": bad})).error.startswith("modify not-acceptable")


async def test_turns(join: Join) -> None:
    """stanzaq#fair: one publisher's item goes out before the many of another; an unknown value and bad weights fail."""
    noisy, quiet, worker = await join(), await join(), await join()
    node = await noisy.queue({"stanzaq#fair": "publisher", "stanzaq#fair_weights": "nobody@x=3"})
    for number in range(6):
        await noisy.publish(node, f"i{number}")
    await quiet.publish(node, "other")
    await worker.subscribe(node, 2)
    assert {(await worker.next(Delivery)).item for _ in range(2)} == {"i0", "other"}
    for name, bad in (("fair", "items"), ("fair_weights", "a=0"), ("fair_weights", "a=-1"), ("fair_weights", "a=b")):
        assert (await noisy.configure(node, {f"stanzaq#{name}": bad})).error.startswith("modify not-acceptable")


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
