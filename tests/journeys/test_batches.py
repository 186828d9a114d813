"""Batches through ejabberd and two frontends: each row is done or refused as a single request would be."""

import asyncio
from xml.etree.ElementTree import Element

from tests.journeys.client import (
    EVENT,
    MEMBER,
    RETRACTED,
    STANZAQ,
    STANZAS,
    UNLOCKED,
    Answer,
    Client,
    Delivery,
    Ended,
)
from tests.journeys.conftest import Join
from tests.waiting import PATIENCE_SECONDS

JOB = "<job xmlns='urn:x'/>"


async def _publish(client: Client, node: str, *items: str) -> Answer:
    return await client.ask(f"<publish xmlns='{STANZAQ}' node='{node}'>{''.join(items)}</publish>")


async def _settle(client: Client, node: str, *rows: str, request: str = "") -> Answer:
    return await client.ask(f"<settle xmlns='{STANZAQ}' node='{node}'>{''.join(rows)}</settle>", request=request)


def _row(name: str, held: Delivery, more: str = "") -> str:
    return f"<{name} id='{held.item}' token='{held.token}' {more}/>"


def _problems(answer: Answer) -> list[tuple[str, str | None, str]]:
    """Return the rows of a result: their names, ids, and the conditions of their errors."""
    rows: list[Element] = list(answer.element[0]) if len(answer.element) else []
    return [
        (
            row.tag.partition("}")[2],
            row.get("id"),
            " ".join(
                each.tag.partition("}")[2]
                for each in row.iterfind("{jabber:client}error/*")
                if each.tag != f"{{{STANZAS}}}text"
            ),
        )
        for row in rows
    ]


async def test_partitions_and_keys(join: Join) -> None:
    """A batch for several partitions keeps the order of each key (E8), and a settle finds locks in all of them (E14)."""
    publisher, worker = await join(), await join()
    node = await publisher.queue({"stanzaq#partitions": "4"})
    names = [f"i{number}-k{number % 5}" for number in range(40)]
    items = [f"<item id='{name}' key='{name[-2:]}'>{JOB}</item>" for name in names]
    answer = await _publish(publisher, node, *items)
    assert _problems(answer) == [("item", name, "") for name in names]
    assert (await worker.subscribe(node, 200, options=MEMBER)).error == ""
    held = [await worker.next(Delivery) for _ in names]
    for key in range(5):
        assert [each.item for each in held if each.item.endswith(f"k{key}")] == [
            name for name in names if name.endswith(f"k{key}")
        ]
    rows = [_row("ack", each, _where(each) if number % 2 else "") for number, each in enumerate(held)]
    answer = await _settle(worker, node, *rows)
    assert (answer.error, len(answer.element)) == ("", 0)
    assert await publisher.browse(node) == []
    assert worker.left(Ended) == []


def _where(held: Delivery) -> str:
    return f"partition='{held.lock.get('partition')}'"


async def test_one_bad_among_twenty(join: Join) -> None:
    """A bad payload, a repeat and the node's limits are told about their items; all others are stored, in order."""
    client = await join()
    node = await client.queue({"pubsub#max_items": "15", "pubsub#max_payload_size": "100", "stanzaq#dedupe": "ignore"})
    assert (await client.publish(node, "i4")).error == ""
    items = [f"<item id='i{number}'>{JOB}</item>" for number in range(20)]
    items[2] = "<item id='i2'><a/><b/></item>"
    items[3] = f"<item id='i3'><a>{'x' * 101}</a></item>"
    answer = await _publish(client, node, *items)
    assert answer.error == ""
    problems = {2: "bad-request invalid-payload", 3: "not-acceptable payload-too-big"}
    problems |= dict.fromkeys(range(17, 20), "conflict node-full")
    assert _problems(answer) == [("item", f"i{number}", problems.get(number, "")) for number in range(20)]
    repeats = [row.get("id") for row in answer.element[0] if row.get("duplicate") == "true"]
    assert repeats == ["i4"]
    stored = [item.get("id") for item in await client.browse(node)]
    assert stored == ["i4", *(f"i{number}" for number in range(17) if number not in {2, 3, 4})]


async def test_the_same_item_twice(join: Join) -> None:
    """A second publish of an id is a repeat, or the version that waits; of two rows about a lock the first one counts."""
    publisher, worker = await join(), await join()
    node = await publisher.queue({"stanzaq#dedupe": "ignore"})
    answer = await _publish(publisher, node, *(f"<item id='{name}'>{JOB}</item>" for name in "aab"))
    assert [(row.get("id"), row.get("duplicate")) for row in answer.element[0]] == [
        ("a", None),
        ("a", "true"),
        ("b", None),
    ]
    await worker.subscribe(node, 2)
    a, b = [await worker.next(Delivery) for _ in range(2)]
    answer = await _settle(worker, node, _row("release", a), _row("ack", a), _row("ack", b))
    assert _problems(answer) == [("ack", "a", "bad-request")]
    assert (await worker.next(Delivery)).item == "a"

    node = await publisher.queue()
    versions = [f"<item id='a'><job xmlns='urn:x' number='{number}'/></item>" for number in range(2)]
    assert _problems(await _publish(publisher, node, *versions)) == [("item", "a", "")] * 2
    (left,) = await publisher.browse(node)
    assert left[0].get("number") == "1"


async def test_half_of_a_settle_fails(join: Join) -> None:
    """Each row is judged alone, the result alone tells of them, and the same request again has the same answer (Q27)."""
    publisher, worker, other = await join(), await join(), await join()
    node = await publisher.queue()
    await worker.subscribe(node, 4)
    await _publish(publisher, node, *(f"<item id='i{number}'>{JOB}</item>" for number in range(4)))
    a, b, c, d = [await worker.next(Delivery) for _ in range(4)]
    await other.subscribe(node)
    await publisher.publish(node, "other")
    theirs = await other.next(Delivery)
    rows = (
        _row("renew", a),
        _row("ack", theirs),
        _row("ack", b),
        _row("release", c, "delay='3600' reason='later'"),
        f"<ack id='{d.item}' token='{d.token + 1000}'/>",
        "<renew id='nothing' token='1'/>",
        f"<release id='{d.item}x' token='y'/>",
    )
    wanted = [
        ("ack", "other", "forbidden"),
        ("ack", d.item, "unexpected-request"),
        ("renew", "nothing", "item-not-found"),
        ("release", f"{d.item}x", "bad-request"),
    ]
    # Often enough that both frontends answer.
    for _ in range(6):
        heard = len(worker.heard)
        answer = await _settle(worker, node, *rows, request="settled")
        assert _problems(answer) == wanted and answer.element[0].get("expires", "") > "2026"
        assert not any(map(_ends, worker.heard[heard:]))
    assert [item.get("id") for item in await publisher.browse(node)] == [a.item, c.item, d.item, "other"]
    answer = await _settle(worker, node, _row("ack", a), _row("ack", d))
    assert (answer.error, _problems(answer)) == ("", [])
    # Nothing of another's was touched.
    assert (await other.retract(node, "other", theirs.token)).error == ""


def _ends(message: Element) -> list[Element]:
    return message.findall(f"{{{EVENT}}}event/{{{EVENT}}}items/{RETRACTED}") + message.findall(f".//{UNLOCKED}")


async def test_retracted_together(join: Join) -> None:
    """XEP-0060 §12: several items are retracted or none, by one request, with the notifications before the result."""
    publisher, worker = await join(), await join()
    node = await publisher.queue({"stanzaq#partitions": "2"})
    await worker.subscribe(node, 8, options=MEMBER)
    for name in "abcd":
        await _publish(publisher, node, *(f"<item id='{name}{part}' partition='{part}'>{JOB}</item>" for part in "01"))
    held = {each.item: each for each in [await worker.next(Delivery) for _ in range(8)]}

    async def retract(*names: str, where: str = "", request: str = "") -> Answer:
        items = "".join(f"<item id='{name}' token='{held[name].token}' {where}/>" for name in names)
        return await worker.pubsub(f"<retract node='{node}'>{items}</retract>", request=request)

    first = "partition='0'"
    assert (await retract("a0", "b0", "c1", where=first)).error == "cancel item-not-found"
    assert (await retract("a0", where=first)).error == ""
    # Often enough that both frontends answer.
    for _ in range(6):
        heard = len(worker.heard)
        answer = await retract("b0", "c0", where=first, request="together")
        assert answer.error == ""
        (message,) = (each for each in worker.heard[heard : worker.heard.index(answer.element)] if _ends(each))
        assert [(end.tag, end.get("id")) for end in _ends(message)] == [(RETRACTED, "b0"), (RETRACTED, "c0")]
    mixed = "".join(f"<item id='{name}' token='{held[name].token}' partition='{name[1]}'/>" for name in ("d0", "a1"))
    assert (await worker.pubsub(f"<retract node='{node}'>{mixed}</retract>")).error == "modify not-acceptable"
    assert {item.get("id") for item in await publisher.browse(node)} == {"d0", "a1", "b1", "c1", "d1"}


async def test_one_answer_for_its_own_locks(join: Join) -> None:
    """A retract or an unlock whose hint asks for no notification gets the result alone, and does the same (Q20, Q29)."""
    publisher, worker = await join(), await join()
    node = await publisher.queue()
    await worker.subscribe(node, 4)
    await _publish(publisher, node, *(f"<item id='{name}'>{JOB}</item>" for name in "abcd"))
    held = {each.item: each for each in [await worker.next(Delivery) for _ in "abcd"]}
    hint = f"<hint xmlns='{STANZAQ}' notify='false'/>"

    async def end(name: str, *items: str) -> list[tuple[str, str | None]]:
        heard = len(worker.heard)
        inside = "".join(f"<item id='{item}' token='{held[item].token}'/>" for item in items)
        kind = {"retract": "", "unlock": f"xmlns='{UNLOCKED[1:].partition('}')[0]}'"}[name]
        assert (await worker.pubsub(f"<{name} {kind} node='{node}'>{inside}{hint}</{name}>")).error == ""
        return [(end.tag, end.get("id")) for each in worker.heard[heard:] for end in _ends(each)]

    assert await end("retract", "a") == await end("retract", "b", "c") == []
    assert await end("unlock", "d") == []
    assert (await worker.next(Delivery)).item == "d"
    assert [item.get("id") for item in await publisher.browse(node)] == ["d"]


async def test_delivered_together(join: Join) -> None:
    """XEP-0060 §12.18: what is handed out together is one message; its bounce gives all of it to another worker (Q18)."""
    publisher, worker, heir = await join(), await join(), await join()
    node = await publisher.queue()
    names = [f"i{number}" for number in range(6)]
    await _publish(publisher, node, *(f"<item id='{name}'>{JOB}</item>" for name in names))
    assert (await worker.subscribe(node, 6, options={"stanzaq#batch": "4"})).error == ""
    held = [await worker.next(Delivery) for _ in names]
    assert [each.item for each in held] == names
    assert len({id(each.message) for each in held}) == 2
    for each in held[:3]:
        assert (await worker.retract(node, each.item, each.token)).error == ""
    # Without presence the service learns of its end only by the bounce of its next delivery.
    await _publish(publisher, node, f"<item id='first'>{JOB}</item>")
    worker.vanish()
    await publisher.settle()
    await heir.subscribe(node, 9, options={"stanzaq#batch": "9"})
    await _publish(publisher, node, *(f"<item id='after{number}'>{JOB}</item>" for number in range(4)))
    everything = {*names[3:], "first", *(f"after{number}" for number in range(4))}
    again = [await heir.next(Delivery) for _ in everything]
    assert {each.item for each in again} == everything
    for each in again:
        assert (await heir.retract(node, each.item, each.token)).error == ""
    assert await publisher.browse(node) == []


async def test_items_of_two_nodes(join: Join) -> None:
    """A row about an item of another node is refused as a single request would be, and touches nothing there."""
    publisher, worker = await join(), await join()
    node, other = await publisher.queue(), await publisher.queue()
    held = {}
    for each in (node, other):
        await worker.subscribe(each, 1)
        await publisher.publish(each, f"of {each}")
        held[each] = await worker.next(Delivery)
    rows = [_row("ack", held[node]), _row("ack", held[other]), _row("release", held[other], f"node='{other}'")]
    problems = _problems(await _settle(worker, node, *rows))
    assert [(name, item) for name, item, _ in problems] == [(name, held[other].item) for name in ("ack", "release")]
    assert problems[0][2] == "item-not-found" and "bad-request" in problems[1][2]
    assert [item.get("id") for item in await publisher.browse(other)] == [held[other].item]
    assert (await worker.retract(other, held[other].item, held[other].token)).error == ""


async def test_too_fast_in_a_batch(join: Join) -> None:
    """Rows above a node's rate are refused, with when to come again; those before them are stored (stanzaq#publish_rate)."""
    publisher = await join()
    node = await publisher.queue({"stanzaq#publish_rate": "2/s"})
    answer = await _publish(publisher, node, *(f"<item id='i{number}'>{JOB}</item>" for number in range(5)))
    assert [problem for _, _, problem in _problems(answer)] == ["", "", "", *["policy-violation too-fast"] * 2]
    waits = [float(each.get("retry-after", "")) for each in answer.element.iter(f"{{{STANZAQ}}}too-fast")]
    assert len(waits) == 2 and all(0 < wait <= 1 for wait in waits)
    assert [item.get("id") for item in await publisher.browse(node)] == ["i0", "i1", "i2"]


async def test_a_worker_settles_half_and_dies(join: Join) -> None:
    """What was settled stays settled; the rest is returned when the worker is gone, and the next one gets just that."""
    publisher, worker, heir = await join(), await join(), await join()
    node = await publisher.queue()
    worker.present()
    names = [f"i{number}" for number in range(6)]
    await _publish(publisher, node, *(f"<item id='{name}'>{JOB}</item>" for name in names))
    await worker.subscribe(node, 6)
    held = [await worker.next(Delivery) for _ in names]
    settled, left = held[::2], held[1::2]
    # The answer may be lost with the worker.
    dying = asyncio.create_task(_settle(worker, node, *(_row("ack", each) for each in settled)))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while {item.get("id") for item in await publisher.browse(node)} != {each.item for each in left}:
            pass
    worker.vanish()
    dying.cancel()
    await heir.subscribe(node, 6)
    again = [await heir.next(Delivery) for _ in left]
    assert {each.item for each in again} == {each.item for each in left}
    # It told nothing, so the oldest that it held counts, in each partition.
    assert {each.attempt for each in again} == {1, 2}
    answer = await _settle(heir, node, *(_row("ack", each) for each in again))
    assert (answer.error, len(answer.element)) == ("", 0)
    await heir.settle()
    assert heir.left(Delivery) == [] and await publisher.browse(node) == []


async def test_cancelled(join: Join) -> None:
    """A publisher cancels what waits and what is held, in any partition: the holder is told at once, strangers are refused."""
    publisher, worker, stranger = await join(), await join(), await join()
    node = await publisher.queue({"stanzaq#partitions": "3"})
    await worker.subscribe(node, 3, options=MEMBER)
    await _publish(publisher, node, *(f"<item id='{name}' key='k' priority='7'>{JOB}</item>" for name in "abc"))
    held = await worker.next(Delivery)
    rows = "".join(f"<item id='{name}'/>" for name in ("a", "b", "none"))
    refused = await stranger.ask(f"<cancel xmlns='{STANZAQ}' node='{node}'>{rows}</cancel>")
    assert _problems(refused) == [
        ("item", "a", "forbidden"),
        ("item", "b", "forbidden"),
        ("item", "none", "item-not-found"),
    ]
    for _ in range(2):
        answer = await publisher.ask(f"<cancel xmlns='{STANZAQ}' node='{node}'>{rows}</cancel>")
        assert _problems(answer) == [("item", "none", "item-not-found")]
    ended = await worker.next(Ended)
    assert (ended.item, ended.how) == (held.item, UNLOCKED)
    following = await worker.next(Delivery)
    assert (held.item, following.item) == ("a", "c")
    assert (await worker.retract(node, held.item, held.token)).error == "cancel item-not-found"
    assert (await worker.retract(node, "c", following.token)).error == ""
    assert await publisher.browse(node) == []


def _outcomes(client: Client) -> list[tuple[str | None, str | None, str | None, list[str]]]:
    """Return what a client was told of the ends of items: their ids, states, reasons, and results."""
    told = [each.find(f"{{{STANZAQ}}}outcome") for each in client.heard if each.tag.endswith("}message")]
    return sorted(
        (each.get("item"), each.get("state"), each.get("reason"), [child.tag for child in each])
        for each in told
        if each is not None
    )


async def test_replies(join: Join) -> None:
    """A publisher that asks is told of each end, with the worker's result; one that is gone harms nobody."""
    publisher, gone, worker = await join(), await join(), await join()
    node = await publisher.queue({"stanzaq#partitions": "2", "pubsub#publish_model": "open"})
    await worker.subscribe(node, 20, options=MEMBER)
    items = [f"<item id='{name}' reply='1'>{JOB}</item>" for name in "abcde"]
    assert _problems(await _publish(publisher, node, *items, f"<item id='quiet'>{JOB}</item>"))[0] == ("item", "a", "")
    assert _problems(await _publish(gone, node, f"<item id='left' reply='1'>{JOB}</item>")) == [("item", "left", "")]
    await gone.close()
    held = {each.item: each for each in [await worker.next(Delivery) for _ in range(7)]}
    big = f"<result xmlns='{STANZAQ}'><a xmlns='urn:x'>{'x' * 65_536}</a></result>"
    small = f"<result xmlns='{STANZAQ}'>{JOB}</result>"
    rows = [_row("ack", held["a"])[:-2] + f">{big}</ack>", _row("ack", held["b"])[:-2] + f">{small}</ack>"]
    answer = await _settle(worker, node, *rows, _row("ack", held["quiet"]), _row("ack", held["left"]))
    assert _problems(answer) == [("ack", "a", "not-acceptable payload-too-big")]
    inside = f"<retract node='{node}'><item id='a' token='{held['a'].token}'>{small}</item></retract>"
    assert (await worker.ask(f"<pubsub xmlns='http://jabber.org/protocol/pubsub'>{inside}</pubsub>")).error == ""
    assert (await worker.retract(node, "c", held["c"].token)).error == ""
    answer = await _settle(worker, node, _row("release", held["d"], "dead-letter='1' reason='torn'"))
    assert _problems(answer) == []
    await publisher.ask(f"<cancel xmlns='{STANZAQ}' node='{node}'><item id='e'/></cancel>")
    wanted = [
        ("a", "acknowledged", None, ["{urn:x}job"]),
        ("b", "acknowledged", None, ["{urn:x}job"]),
        ("c", "acknowledged", None, []),
        ("d", "dead", "torn", []),
        ("e", "cancelled", None, []),
    ]
    async with asyncio.timeout(PATIENCE_SECONDS):
        while _outcomes(publisher) != wanted:  # noqa: ASYNC110  (nobody is told of messages that are no events)
            await asyncio.sleep(0.05)
    assert _outcomes(worker) == []
    unknown = f"<outcome xmlns='{STANZAQ}' node='{node}'><item id='unknown'/></outcome>"
    assert (await publisher.ask(unknown, "get")).error == "cancel item-not-found"
