"""Partitions and group keys on the wire: real ejabberd, real Redis, and each stanza at one of two frontends by chance."""

from xml.sax.saxutils import quoteattr

import pytest

from tests.journeys.client import MEMBER, STANZAQ, Answer, Client, Delivery
from tests.journeys.conftest import Join

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


@pytest.mark.parametrize("partition", ["5", "two"])
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
