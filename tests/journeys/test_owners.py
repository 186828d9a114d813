"""Ownership of partitions on the wire: real ejabberd, real Redis, and each stanza at one of two frontends by chance."""

import asyncio
from xml.etree.ElementTree import Element
from xml.sax.saxutils import quoteattr

import pytest

from tests.journeys.client import EVENT, FORM, PUBSUB, RETRACTED, STANZAQ, Answer, Client, Delivery, Ended
from tests.journeys.conftest import Join
from tests.waiting import PATIENCE_SECONDS

PARTITION, GROUP, EPOCH, FENCE = "stanzaq#partition", "stanzaq#group", "stanzaq#epoch", "stanzaq#fence"


async def own(client: Client, node: str, credit: int = 10, **wanted: str) -> Answer:
    """Subscribe as an owner; several values have blanks between."""
    fields = {"pubsub#queue_requests": str(credit)} | {f"stanzaq#{name}": text for name, text in wanted.items()}
    inside = "".join(
        f"<field var='{name}'>{''.join(f'<value>{value}</value>' for value in text.split(' '))}</field>"
        for name, text in fields.items()
    )
    form = f"<x xmlns='{FORM}' type='submit'>{inside}</x>"
    about = f"node={quoteattr(node)} jid={quoteattr(client.jid)}"
    return await client.pubsub(f"<subscribe {about}/><options>{form}</options>")


def values(answer: Answer, name: str) -> list[str]:
    """Return all values of an option in the answer to a subscribe."""
    field = answer.find(f".//{{{FORM}}}field[@var='{name}']")
    return [value.text or "" for value in field.iterfind(f"{{{FORM}}}value")]


async def kept(client: Client, node: str) -> dict[int, dict[str, str]]:
    """Send the heartbeat; return what is owned, by its partition."""
    answer = await client.ask(f"<renew xmlns='{STANZAQ}' node='{node}'/>")
    assert answer.error == ""
    return {int(each.get("partition", "")): dict(each.attrib) for each in answer.find(f"{{{STANZAQ}}}renew")}


async def told(client: Client, tag: str, count: int = 1) -> list[Element]:
    """Wait until the client has got so many notices of gained or lost partitions."""
    path = f"{{{EVENT}}}event/{{{STANZAQ}}}{tag}"
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(found := [news for heard in client.heard for news in heard.iterfind(path)]) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return found


async def published(client: Client, node: str, count: int) -> None:
    """Publish items named i0, i1, and so on, whose names choose their partitions."""
    answers = await asyncio.gather(*(client.publish(node, f"i{number}") for number in range(count)))
    assert {answer.error for answer in answers} == {""}


async def test_e11_e27_what_is_owned(join: Join) -> None:
    """E11, E27, EX11: the answer has the partitions, and the epoch and the fence of each; the heartbeat's also a time."""
    client = await join()
    node = await client.queue({"stanzaq#partitions": "4"})
    answer = await own(client, node, partition="3 1", group="g", epoch="7")
    assert (values(answer, PARTITION), values(answer, GROUP), values(answer, EPOCH)) == (["1", "3"], ["g"], ["7", "7"])
    found = await kept(client, node)
    assert sorted(found) == [1, 3]
    assert [found[number]["fence"] for number in (1, 3)] == values(answer, FENCE)
    assert {each["epoch"] for each in found.values()} == {"7"} and all(each["expires"] for each in found.values())


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        ({"partition": "4"}, "cancel item-not-found"),
        ({"partition": "one"}, "cancel item-not-found"),
        ({"partition": "0", "epoch": "-1"}, "modify bad-request invalid-options"),
        ({"partition": "1 0", "epoch": "5", "group": "g"}, "cancel conflict"),
    ],
    ids=str,
)
async def test_bad_input(join: Join, wanted: dict[str, str], error: str) -> None:
    """E7, E10, E26, EX12, EX13, EX14: unknown, not a number, or not greater is refused, and nothing is changed."""
    owner, client = await join(), await join()
    node = await owner.queue({"stanzaq#partitions": "4", "stanzaq#groups": "g h $default"})
    await own(owner, node, partition="0", group="g", epoch="5")
    before = await kept(owner, node)
    assert (await own(client, node, 10, **wanted)).error == error
    assert await kept(client, node) == {}
    assert {number: each["fence"] for number, each in (await kept(owner, node)).items()} == {0: before[0]["fence"]}
    await published(owner, node, 8)
    assert client.left(Delivery) == []


def partition_of(delivery: Delivery) -> int:
    """Return the partition of a delivery, from its id."""
    return int(delivery.message.get("id", "").rpartition("/")[2])


async def test_e28_the_loser_is_told(join: Join) -> None:
    """E28, EX11: a higher epoch takes partition and items; the loser gets a notice, and its late acknowledgement is refused."""
    loser, winner = await join(), await join()
    node = await loser.queue({"stanzaq#partitions": "2"})
    first = await own(loser, node, partition="0 1", epoch="1")
    await published(loser, node, 6)
    held = [await loser.next(Delivery) for _ in range(6)]
    second = await own(winner, node, partition="0 1", epoch="2")
    assert second.error == ""
    lost = await told(loser, "lost", 2)
    assert {(news.get("partition"), news.get("epoch"), news.get("reason")) for news in lost} == {
        ("0", "1", "stolen"),
        ("1", "1", "stolen"),
    }
    assert {news.get("fence") for news in lost} == set(values(first, FENCE))
    again = [await winner.next(Delivery) for _ in range(6)]
    assert {each.item for each in again} == {each.item for each in held}
    errors = {(await loser.retract(node, each.item, each.token)).error for each in held}
    errors |= {(await loser.unlock(node, each.item, each.token)).error for each in held}
    assert errors == {"cancel conflict"}
    for each in again:
        assert (await winner.retract(node, each.item, each.token)).error == ""
    assert {(await winner.next(Ended)).how for _ in again} == {RETRACTED}


async def test_e29_and_ex11_ends(join: Join) -> None:
    """E29, EX11, EX15: an orderly end resets the epoch; after a lost connection it is kept, and the slot is free at once."""
    first, second, third = await join(), await join(), await join()
    node = await first.queue()
    for client in (first, second, third):
        client.present()
    await first.settle()
    one = await own(first, node, partition="0", epoch="9")
    await first.unsubscribe(node)
    two = await own(second, node, partition="0", epoch="0")
    assert values(two, EPOCH) == ["0"] and int(values(two, FENCE)[0]) > int(values(one, FENCE)[0])
    await own(second, node, partition="0", epoch="4")
    second.vanish()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (answer := await own(third, node, partition="0")).error:
            assert answer.error == "cancel conflict"
    assert values(answer, EPOCH) == ["5"]


async def test_e10_ex19_members(join: Join) -> None:
    """E10, EX19: members of a group share partitions, get notices of gains and losses, and wait when there are too many."""
    first, second, third = await join(), await join(), await join()
    node = await first.queue({"stanzaq#partitions": "2"})
    assert values(await own(first, node, 100, group="g"), PARTITION) == ["0", "1"]
    assert len(values(await own(second, node, 100, group="g"), PARTITION)) == 1
    (moved,) = await told(first, "lost")
    assert moved.get("reason") == "moved"
    assert values(await own(third, node, 100, group="g"), PARTITION) == []
    await first.unsubscribe(node)
    (gained,) = await told(third, "owned")
    assert gained.get("group") == "g" and int(gained.get("fence", "0")) > 0
    await published(first, node, 10)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(second.left(Delivery)) + len(third.left(Delivery)) < 10:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert first.left(Delivery) == []
    assert {partition_of(each) for each in third.left(Delivery)} <= {int(gained.get("partition", "-1"))}


async def test_options_do_not_change_ownership(join: Join) -> None:
    """P13: a subscription's ownership is chosen with it; a change of options that names it is refused."""
    client = await join()
    node = await client.queue()
    await client.subscribe(node, 1)
    form = (
        f"<x xmlns='{FORM}' type='submit'><field var='pubsub#queue_requests'><value>5</value></field>"
        f"<field var='{EPOCH}'><value>3</value></field><field var='{PARTITION}'><value>0</value></field></x>"
    )
    answer = await client.ask(
        f"<pubsub xmlns='{PUBSUB}'><options node='{node}' jid='{client.jid}'>{form}</options></pubsub>"
    )
    assert answer.error == "modify bad-request invalid-options"
    assert await kept(client, node) == {}
