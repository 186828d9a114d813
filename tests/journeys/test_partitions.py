"""Partitions and group keys on the wire: real ejabberd, real Redis, and each stanza at one of two frontends by chance."""

import asyncio
from collections import Counter, defaultdict
from xml.sax.saxutils import quoteattr

import pytest

from tests.journeys.client import MEMBER, STANZAQ, Answer, Client, Delivery, form_values
from tests.journeys.conftest import Join
from tests.waiting import PATIENCE_SECONDS

PARTITIONS = "stanzaq#partitions"


async def publish(client: Client, node: str, item: str | None = None, *, hint: bool = False, **place: str) -> Answer:
    """Publish with a partition or a key, as attributes of the item or in a hint beside it."""
    marks = "".join(f" {name}={quoteattr(text)}" for name, text in place.items())
    name = "" if item is None else f" id={quoteattr(item)}"
    beside = f"<hint xmlns='{STANZAQ}'{marks}/>" if hint else ""
    inside = f"{beside}<item{name}{'' if hint else marks}><job xmlns='urn:x'/></item>"
    return await client.pubsub(f"<publish node={quoteattr(node)}>{inside}</publish>")


def place(delivery: Delivery) -> tuple[str, str]:
    """Return the partition and the group key of a delivery."""
    lock = delivery.message.find(f"{{{STANZAQ}}}lock")
    assert lock is not None
    return lock.get("partition", ""), lock.get("key", "")


async def taken(client: Client, node: str, count: int) -> list[Delivery]:
    """Take and acknowledge so many items."""
    found = []
    for _ in range(count):
        delivery = await client.next(Delivery)
        assert (await client.retract(node, delivery.item, delivery.token)).error == ""
        found.append(delivery)
    return found


async def test_e6_e8_the_partition_named(join: Join) -> None:
    """E6, E8, E13: an item goes to the partition that its publisher names and to no other, and its delivery names it."""
    client = await join()
    node = await client.queue({PARTITIONS: "5"})
    await client.subscribe(node, 20, options=MEMBER)
    for number in range(5):
        assert (await publish(client, node, f"i{number}", partition=str(number))).error == ""
        assert (await publish(client, node, f"h{number}", hint=True, partition=str(number), key="k")).error == ""
    found = {delivery.item: place(delivery) for delivery in await taken(client, node, 10)}
    assert found == {f"i{n}": (str(n), "") for n in range(5)} | {f"h{n}": (str(n), "k") for n in range(5)}


@pytest.mark.parametrize("partition", ["5", "1024", "-1", "two", "9" * 400])
async def test_e7_no_such_partition(join: Join, partition: str) -> None:
    """E7: an unknown partition is item-not-found, in a publish and in a retract, and nothing is changed."""
    client = await join()
    node = await client.queue({PARTITIONS: "5"})
    assert (await publish(client, node, "i", partition=partition)).error == "cancel item-not-found"
    assert await client.browse(node) == []
    await publish(client, node, "i", partition="1")
    retract = f"<retract node='{node}'><item id='i' partition={quoteattr(partition)}/></retract>"
    assert (await client.pubsub(retract)).error == "cancel item-not-found"
    assert len(await client.browse(node)) == 1


async def test_e14_one_key_one_partition(join: Join) -> None:
    """E14: items of a group key share a partition, whichever frontend accepts them; many keys use all partitions."""
    client = await join()
    node = await client.queue({PARTITIONS: "4"})
    await client.subscribe(node, 100, options=MEMBER)
    asked = [publish(client, node, f"{number}", key=f"key {number % 20}") for number in range(80)]
    assert {answer.error for answer in await asyncio.gather(*asked)} == {""}
    where = defaultdict(set)
    for delivery in await taken(client, node, 80):
        partition, key = place(delivery)
        where[key].add(partition)
    assert len(where) == 20 and all(len(partitions) == 1 for partitions in where.values())
    assert len(set.union(*where.values())) == 4


async def test_ordered(join: Join) -> None:
    """stanzaq#ordered: one item of a group is in flight at a time, in order, with many workers and partitions."""
    owner = await join()
    workers = [await join() for _ in range(3)]
    node = await owner.queue({PARTITIONS: "3", "stanzaq#ordered": "1"})
    for worker in workers:
        await worker.subscribe(node, 4, options=MEMBER)
    for number in range(30):
        assert (await publish(owner, node, f"{number:02d}", key=f"k{number % 4}")).error == ""
    done: dict[str, list[str]] = defaultdict(list)
    out: Counter[str] = Counter()

    async def work(worker: Client) -> None:
        while sum(map(len, done.values())) < 30:
            try:
                delivery = await worker.next(Delivery, 0.2)
            except TimeoutError:
                continue
            _, key = place(delivery)
            out[key] += 1
            assert out[key] == 1, "two of one group at once"
            done[key].append(delivery.item)
            await asyncio.sleep(0.005)
            out[key] -= 1
            assert (await worker.retract(node, delivery.item, delivery.token)).error == ""

    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.gather(*map(work, workers))
    assert all(items == sorted(items) for items in done.values()) and len(done) == 4


async def test_not_shared(join: Join) -> None:
    """Several partitions are not shared: who names neither a group nor partitions is refused, and is no subscriber."""
    client = await join()
    node = await client.queue({PARTITIONS: "8"})
    refused = await client.subscribe(node, 2)
    assert refused.error == "modify not-acceptable"
    assert "name a group or partitions" in "".join(refused.element.itertext())
    assert (await client.options(node)).error == "cancel unexpected-request not-subscribed"
    assert (await client.subscribe(node, 8, options=MEMBER)).error == ""


async def test_found_where_it_is(join: Join) -> None:
    """XEP-0254's plain client names an item by its id alone, wherever its key has put it: retract, unlock, renew and locks."""
    client = await join()
    node = await client.queue({PARTITIONS: "6"})
    await client.subscribe(node, 60, options=MEMBER)
    for number in range(6):
        await publish(client, node, f"i{number}", key=f"k{number}")
    found = {delivery.item: delivery for delivery in [await client.next(Delivery) for _ in range(6)]}
    locks = (await client.ask(f"<locks xmlns='{STANZAQ}' node='{node}'/>", "get")).find(f"{{{STANZAQ}}}locks")
    assert {lock.get("item"): lock.get("partition") for lock in locks} == {
        item: place(delivery)[0] for item, delivery in found.items()
    }
    renewed = await client.ask(f"<renew xmlns='{STANZAQ}' node='{node}'><item id='i0'/></renew>")
    assert renewed.error == ""
    assert (await client.unlock(node, "i1")).error == ""
    assert (await client.next(Delivery)).item == "i1"
    for number in range(6):
        assert (await client.retract(node, f"i{number}")).error == ""
    assert await client.browse(node) == []


@pytest.mark.parametrize("count", ["0", "2000", "-1", "3", "four", ""])
async def test_partition_counts(join: Join, count: str) -> None:
    """E14: 1 to 1,024 partitions, as many as there are: not-acceptable, and nothing is changed."""
    client = await join()
    node = await client.queue({PARTITIONS: "4"})
    assert (await client.configure(node, {PARTITIONS: count})).error == "modify not-acceptable"
    shown = await client.owner(f"<configure node='{node}'/>", "get")
    assert form_values(shown.element)[PARTITIONS] == "4"
    if count != "3":
        assert (await client.create(f"{node}-2", {PARTITIONS: count})).error == "modify not-acceptable"


async def test_when_an_item_goes_out(join: Join) -> None:
    """Q32: higher priority comes first, nothing before its time or after its expiry; wrong values are refused."""
    client = await join()
    node = await client.queue()
    assert (await publish(client, node, "usual")).error == ""
    assert (await publish(client, node, "late", delay="2", ttl="60")).error == ""
    assert (await publish(client, node, "over", ttl="1")).error == ""
    assert (await publish(client, node, "urgent", hint=True, priority="9")).error == ""
    for wrong in ({"priority": "10"}, {"delay": "soon"}, {"delay": "5", "ttl": "5"}):
        assert (await publish(client, node, "wrong", hint=True, **wrong)).error == "modify bad-request"
    await asyncio.sleep(1.1)
    await client.subscribe(node, 5)
    assert [delivery.item for delivery in await taken(client, node, 3)] == ["urgent", "usual", "late"]
