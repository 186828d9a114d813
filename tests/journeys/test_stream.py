"""The log as a stream on the wire: real ejabberd, real Redis, and each stanza at one of two frontends by chance."""

import asyncio
from dataclasses import dataclass
from xml.etree.ElementTree import Element
from xml.sax.saxutils import quoteattr

from tests.journeys.client import DISCO_INFO, EVENT, PUBSUB, QUEUEING, STANZAQ, Answer, Client, form_values, submitted
from tests.journeys.conftest import Join
from tests.waiting import PATIENCE_SECONDS

START, PARTITION, GAP, CREDIT = "stanzaq#start", "stanzaq#partition", "stanzaq#gap", "pubsub#queue_requests"


@dataclass(frozen=True, slots=True)
class Entry:
    """A received entry of a stream."""

    item: str
    partition: str
    offset: str
    timestamp: str
    gap: bool


def entries(client: Client) -> list[Entry]:
    """Return the entries that a client was sent, in order."""
    found = []
    for message in client.heard:
        position = message.find(f"{{{STANZAQ}}}position")
        item = message.find(f"{{{EVENT}}}event/{{{EVENT}}}items/{{{EVENT}}}item")
        if position is not None and item is not None:
            assert message.find(f"{{{STANZAQ}}}lock") is None
            partition, offset, timestamp = (position.get(name, "") for name in ("partition", "offset", "timestamp"))
            found.append(Entry(item.get("id", ""), partition, offset, timestamp, gap=position.get("gap") == "true"))
    return found


async def came(client: Client, count: int) -> list[Entry]:
    """Wait for so many entries, and check that no more come."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(entries(client)) < count:  # noqa: ASYNC110  (what comes is kept as it came)
            await asyncio.sleep(0.02)
    await client.settle()
    assert len(entries(client)) == count
    return entries(client)


async def a_log(client: Client, **options: str) -> str:
    """Create a node without queueing."""
    return await client.queue({f"{{{QUEUEING}}}enabled": "0", **{f"stanzaq#{k}": v for k, v in options.items()}})


async def follow(client: Client, node: str, **options: str) -> Answer:
    """Subscribe with options by their short names, or without any."""
    about = f"<subscribe node='{node}' jid={quoteattr(client.jid)}/>"
    names = {"start": START, "partition": PARTITION, "credit": CREDIT, "qos": "stanzaq#qos"}
    form = submitted(
        f"{PUBSUB}#subscribe_options", {names[name]: text.replace(">", "&gt;") for name, text in options.items()}
    )
    return await client.pubsub(about + (f"<options>{form}</options>" if options else ""))


async def replay(client: Client, node: str, **asked: str) -> Answer:
    """Read a log."""
    attributes = "".join(f" {name}={quoteattr(value)}" for name, value in asked.items())
    return await client.ask(f"<replay xmlns='{STANZAQ}' node='{node}'{attributes}/>", "get")


def shown(answer: Answer) -> tuple[Element, list[Element]]:
    """Return a replay and its events."""
    assert answer.error == ""
    found = answer.find(f"{{{STANZAQ}}}replay")
    return found, list(found)


async def commit(client: Client, node: str, offset: str, partition: str = "0") -> str:
    """Commit a position; return the error."""
    answer = await client.ask(
        f"<commit xmlns='{STANZAQ}' node='{node}' partition={quoteattr(partition)} offset={quoteattr(offset)}/>"
    )
    return answer.error


async def test_e3_from_now_on(join: Join) -> None:
    """E3, E4: without an offset a subscriber of a log gets all later entries, each with its position (E16)."""
    owner, first, second = await join(), await join(), await join()
    node = await a_log(owner)
    await owner.publish(node, "before", "<x xmlns='urn:x'/>")
    for reader in (first, second):
        answer = await follow(reader, node)
        assert answer.error == "" and form_values(answer.element)[PARTITION] == "0"
    for number in range(5):
        assert (await owner.publish(node, f"i{number}")).error == ""
    for reader in (first, second):
        found = await came(reader, 5)
        assert [one.item for one in found] == [f"i{number}" for number in range(5)]
        # E18: the texts sort as the log does.
        assert sorted(one.offset for one in found) == [one.offset for one in found]
        assert all(one.partition == "0" and one.timestamp.endswith("Z") for one in found)
    info = await first.ask(f"<query xmlns='{DISCO_INFO}' node='{node}'/>", "get")
    features = {feature.get("var") for feature in info.element.iter(f"{{{DISCO_INFO}}}feature")}
    assert QUEUEING not in features and f"{STANZAQ}#streams" in features
    assert form_values(info.element)["stanzaq#kept"] == "6"


async def test_e20_replay(join: Join) -> None:
    """E20, E22, E19: a replay is one request; it continues where it ended, and returns the extent of the log."""
    owner = await join()
    node = await a_log(owner)
    names = [f"i{number}" for number in range(7)]
    for name in names:
        await owner.publish(node, name, f"<job xmlns='urn:x' n='{name}'/>")
    found, start = [], "@earliest"
    while True:
        page, events = shown(await replay(owner, node, **{"from": start, "max": "3"}))
        assert len(events) <= 3 and page.get("gap") == "false"
        found += events
        start = page.get("next", "")
        if page.get("more") == "false":
            break
    assert [event.get("item") for event in found] == names
    assert [event[0].get("n") for event in found] == names and found[0].get("publisher") == owner.bare
    assert (page.get("earliest"), page.get("latest")) == (found[0].get("offset"), found[-1].get("offset"))
    assert shown(await replay(owner, node, **{"from": start}))[1] == []
    extents = (await owner.ask(f"<partitions xmlns='{STANZAQ}' node='{node}'/>", "get")).find(
        f"{{{STANZAQ}}}partitions"
    )
    assert [dict(each.attrib) for each in extents] == [
        {"partition": "0", "earliest": found[0].get("offset"), "latest": found[-1].get("offset")}
    ]


async def test_credit_and_commit(join: Join) -> None:
    """No more is sent than the credit allows before the reader commits; after a break it resumes where it was (EX4, E1)."""
    owner, reader = await join(), await join()
    node = await a_log(owner)
    await follow(reader, node, credit="2")
    for number in range(6):
        await owner.publish(node, f"i{number}")
    first = await came(reader, 2)
    assert await commit(reader, node, first[1].offset) == ""
    assert await commit(reader, node, first[0].offset) == "", "an earlier one changes nothing"
    found = await came(reader, 4)
    _, events = shown(await replay(reader, node, **{"from": f">{found[3].offset}"}))
    assert await commit(reader, node, events[0].get("offset", "")) == "cancel item-not-found"
    await reader.unsubscribe(node)
    assert await commit(reader, node, found[3].offset) == "cancel unexpected-request not-subscribed"
    await follow(reader, node, start=f">{first[1].offset}", credit="9")
    assert [one.item for one in await came(reader, 8)][4:] == ["i2", "i3", "i4", "i5"]


async def test_ex7_gap(join: Join) -> None:
    """EX7: a start in the trimmed part begins with the earliest entry, and every reader is told."""
    owner, reader = await join(), await join()
    node = await a_log(owner, retention_items="2")
    for name in "ab":
        await owner.publish(node, name)
    offset = shown(await replay(owner, node))[1][0].get("offset", "")
    for name in "cd":
        await owner.publish(node, name)
    page, events = shown(await replay(owner, node, **{"from": offset}))
    assert (page.get("gap"), [event.get("item") for event in events]) == ("true", ["c", "d"])
    answer = await follow(reader, node, start=offset)
    assert form_values(answer.element)[GAP] == "1"
    assert [(one.item, one.gap) for one in await came(reader, 2)] == [("c", True), ("d", False)]


async def test_ex6_partitions(join: Join) -> None:
    """E7, E8, E10, E11, EX6: of several partitions one is chosen or named, the answer names it, and offsets belong to one."""
    owner, reader = await join(), await join()
    node = await a_log(owner, partitions="3")
    answer = await follow(reader, node)
    assert form_values(answer.element)[PARTITION] in {"0", "1", "2"}
    answer = await follow(reader, node, start="@earliest", partition="2")
    assert form_values(answer.element)[PARTITION] == "2"
    for number in range(3):
        inside = f"<publish node='{node}'><item id='p{number}' partition='{number}'><x xmlns='urn:x'/></item></publish>"
        assert (await owner.pubsub(inside)).error == ""
    assert [(one.item, one.partition) for one in await came(reader, 1)] == [("p2", "2")]
    offset = entries(reader)[0].offset
    assert (await replay(owner, node, **{"from": offset, "partition": "1"})).error == "cancel item-not-found"
    assert (await follow(reader, node, start=offset, partition="1")).error == "cancel item-not-found"
    assert (await follow(reader, node, partition="3")).error == "cancel item-not-found"
    assert (await follow(reader, node, partition="-1")).error == "cancel item-not-found"
    assert await commit(reader, node, offset, "2") == ""
    extents = (await owner.ask(f"<partitions xmlns='{STANZAQ}' node='{node}'/>", "get")).find(
        f"{{{STANZAQ}}}partitions"
    )
    assert [each.get("partition") for each in extents] == ["0", "1", "2"]
