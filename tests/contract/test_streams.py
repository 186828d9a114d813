"""The log as a stream over a real server: several partitions, several frontends, and crashes."""

from typing import Any

import pytest

from broker import codec
from broker.model import offsets
from broker.model.commands import (
    Commit,
    Configure,
    Declare,
    Delete,
    Options,
    Partitions,
    Presence,
    Publish,
    Purge,
    Read,
    Retract,
    SetSubscriptionOptions,
    Stats,
    Subscribe,
    Unsubscribe,
)
from broker.model.items.items import Envelope
from broker.model.items.qos import Qos, Stage
from broker.model.names import Jid
from broker.model.problems import Problem
from broker.model.results import (
    Counted,
    Declared,
    Done,
    Extents,
    Published,
    Refused,
    Replay,
    Result,
    Retracted,
    Subscribed,
    Unsubscribed,
)
from broker.redis_core.core import RedisCore
from broker.redis_core.registry.partitioner import choose_by_hash
from tests.contract.conftest import Door, MakeCore

ALICE, BOB = Jid("alice@x/home"), Jid("bob@x/desk")
W1, W2 = Jid("w1@x/a"), Jid("w2@x/b")


async def declared(core: RedisCore, node: str, **options: str) -> None:
    """Create a log, or with `queueing` another node; options are named without `stanzaq#`."""
    fields = {"pubsub#queueing": (options.pop("queueing", "0"),)}
    fields |= {f"stanzaq#{name}": (value,) for name, value in options.items()}
    assert await core.ask(Declare(node, ALICE, fields)) == Declared(node)


async def published(core: RedisCore, node: str, *items: str, partition: int | None = None, key: str = "") -> None:
    """Publish items one after another."""
    for item in items:
        envelope = codec.pack(Envelope(b"<x/>"))
        result = await core.ask(Publish(node, ALICE, item, envelope, 4, partition=partition, key=key))
        assert isinstance(result, Published)


def stream(node: str, jid: Jid, start: str = "", *partitions: int, credit: int | None = None) -> Subscribe:
    """Subscribe a stream."""
    return Subscribe(node, jid, jid, credit, partitions=partitions, start=start)


def problem(result: Result) -> Problem:
    """Give why a result is a refusal."""
    assert isinstance(result, Refused), result
    return result.problem


def given(door: Door) -> list[tuple[int, str, Stage]]:
    """Return the deliveries: partition, item, and stage."""
    return [(one.partition.number, one.item_id, one.stage) for one in door.deliveries]


async def read(core: RedisCore, node: str, start: str = "@earliest", partition: int = 0, limit: int = 50) -> Replay:
    """Read a log."""
    result = await core.ask(Read(node, BOB, partition, start, limit))
    assert isinstance(result, Replay), result
    return result


async def test_a_log(core: RedisCore, door: Door, node: str) -> None:
    """E3, E16: a subscribe to a log is a stream of new entries; options are not needed, and a consumer's are refused."""
    await declared(core, node)
    await published(core, node, "before")
    granted = await core.ask(stream(node, W1))
    assert isinstance(granted, Subscribed) and (granted.credit, granted.reads) == (100, True)
    await published(core, node, "a", "b")
    assert given(door) == [(0, "a", Stage.STREAM), (0, "b", Stage.STREAM)]
    assert problem(await core.ask(Subscribe(node, W1, W1, 5, Qos.ASSURED))) is Problem.OPTIONS_INVALID
    counted = await core.ask(Stats(node, BOB))
    assert isinstance(counted, Counted) and (counted.waiting, counted.kept, counted.kept_bytes > 0) == (0, 3, True)
    assert isinstance(await core.ask(Retract(node, ALICE, "a")), Retracted)
    assert [event.item_id for event in (await read(core, node)).events] == ["before", "b"]


async def test_a_queue_stays_a_queue(core: RedisCore, node: str) -> None:
    """A queue cannot become a log, nor a log a queue; its other options change as any node's."""
    for queueing, other in (("0", "1"), ("1", "0")):
        await declared(core, f"{node}{queueing}", queueing=queueing)
        change = {"pubsub#queueing": (other,)}
        assert problem(await core.ask(Configure(f"{node}{queueing}", ALICE, change))) is Problem.NOT_ACCEPTABLE
        same = {"pubsub#queueing": (queueing,), "stanzaq#retention_items": ("7",)}
        assert await core.ask(Configure(f"{node}{queueing}", ALICE, same)) == Done()
    assert problem(await core.ask(Subscribe(f"{node}1", W1, W1, None))) is Problem.OPTIONS_REQUIRED


async def test_resume(core: RedisCore, door: Door, node: str) -> None:
    """EX4, E19: from an offset on, or after it: entries that a reader has are not sent again."""
    await declared(core, node)
    await published(core, node, "a", "b", "c")
    events = (await read(core, node)).events
    await core.ask(stream(node, W1, events[1].offset))
    assert [item for _, item, _ in given(door)] == ["b", "c"]
    door.deliveries.clear()
    await core.ask(stream(node, W1, f">{events[1].offset}"))
    assert [item for _, item, _ in given(door)] == ["c"]
    assert [offsets.write_offset(one.partition, one.position) for one in door.deliveries] == [events[2].offset]


async def test_partitions(core: RedisCore, door: Door, node: str) -> None:
    """E7, E8, E10, E11: a stream reads the partitions that it names, or one by its JID, and the answer names them."""
    await declared(core, node, partitions="4")
    for number in range(4):
        await published(core, node, f"p{number}", partition=number)
    granted = await core.ask(stream(node, W1, "@earliest"))
    mine = choose_by_hash(W1, 4)
    assert isinstance(granted, Subscribed) and [one.partition for one in granted.streams] == [mine]
    assert given(door) == [(mine, f"p{mine}", Stage.STREAM)]
    door.deliveries.clear()
    granted = await core.ask(stream(node, W2, "@earliest", 1, 3))
    assert isinstance(granted, Subscribed) and [one.partition for one in granted.streams] == [1, 3]
    assert sorted(given(door)) == [(1, "p1", Stage.STREAM), (3, "p3", Stage.STREAM)]
    assert problem(await core.ask(stream(node, W2, "@earliest", 4))) is Problem.PARTITION_NOT_FOUND
    # The refusal has changed nothing: it reads on where it did.
    door.deliveries.clear()
    await published(core, node, "more", partition=3)
    assert given(door) == [(3, "more", Stage.STREAM)]
    offset = (await read(core, node, partition=2)).events[0].offset
    door.deliveries.clear()
    granted = await core.ask(stream(node, W2, offset))
    assert isinstance(granted, Subscribed) and [one.partition for one in granted.streams] == [2]
    assert given(door) == [(2, "p2", Stage.STREAM)]
    door.deliveries.clear()
    await published(core, node, "other", partition=3)
    assert given(door) == []
    assert problem(await core.ask(stream(node, W2, offset, 1))) is Problem.OFFSET_NOT_FOUND
    assert problem(await core.ask(stream(node, W2, offset, 1, 2))) is Problem.OPTIONS_INVALID


async def test_options_anywhere(core: RedisCore, door: Door, node: str) -> None:
    """A stream's options are read and changed whichever partition it reads, and it unsubscribes from all of them."""
    await declared(core, node, partitions="3")
    await core.ask(stream(node, W1, "@latest", 2, credit=1))
    await published(core, node, "a", "b", "c", partition=2)
    assert [item for _, item, _ in given(door)] == ["a"]
    found = await core.ask(Options(node, W1, W1, ""))
    assert isinstance(found, Subscribed) and (found.credit, found.reads) == (1, True)
    assert isinstance(await core.ask(SetSubscriptionOptions(node, W1, W1, "", 2)), Subscribed)
    assert [item for _, item, _ in given(door)] == ["a", "b"]
    assert problem(await core.ask(SetSubscriptionOptions(node, W1, W1, "", 2, Qos.ASSURED))) is Problem.OPTIONS_INVALID
    assert isinstance(await core.ask(Unsubscribe(node, W1, W1, "")), Unsubscribed)
    assert problem(await core.ask(Options(node, W1, W1, ""))) is Problem.NOT_SUBSCRIBED
    assert problem(await core.ask(Commit(node, W1, 2, (await read(core, node, partition=2)).latest))) is (
        Problem.NOT_SUBSCRIBED
    )


async def test_workers_and_readers(core: RedisCore, door: Door, node: str) -> None:
    """Beside workers: readers see every entry, each item goes to one worker, and a JID may switch between the two."""
    await declared(core, node, queueing="1", partitions="2", retention_items="100")
    await core.ask(stream(node, W1, "@latest", 0, 1))
    await core.ask(Subscribe(node, W2, W2, 4, group="g"))
    await published(core, node, "a", partition=0)
    await published(core, node, "b", partition=1)
    await door.until(lambda: len(door.deliveries) == 4)
    assert sorted((one.subscriber, one.item_id) for one in door.deliveries) == [
        (W1, "a"), (W1, "b"), (W2, "a"), (W2, "b")
    ]  # fmt: skip
    for item in "ab":
        assert isinstance(await core.ask(Retract(node, W2, item)), Retracted)
    door.deliveries.clear()
    assert isinstance(await core.ask(Subscribe(node, W1, W1, 4, group="g")), Subscribed)
    await core.ask(stream(node, W2, "@earliest", 0, 1))
    await published(core, node, "c", partition=1)
    await door.until(lambda: len(door.deliveries) == 4)
    assert sorted((one.subscriber, one.item_id, one.stage) for one in door.deliveries if one.subscriber == W1) == [
        (W1, "c", Stage.UNACKNOWLEDGED)
    ]
    assert sorted(one.item_id for one in door.deliveries if one.subscriber == W2) == ["a", "b", "c"]


async def test_bad_offsets(core: RedisCore, door: Door, node: str) -> None:
    """E17: an offset of another node or incarnation, made up, in the future, or garbage is refused and changes nothing."""
    await declared(core, node)
    await published(core, node, "a")
    await declared(core, f"{node}-other")
    await published(core, f"{node}-other", "a")
    other = (await read(core, f"{node}-other")).latest
    mine = (await read(core, node)).latest
    await core.ask(Delete(node, ALICE))
    await declared(core, node)
    await core.ask(stream(node, W1, credit=5))
    await published(core, node, "b")
    before = await core.ask(Partitions(node, BOB))
    assert isinstance(before, Extents)
    partition = door.deliveries[0].partition
    future = offsets.write_offset(partition, "99999999999999-0")
    made_up = before.partitions[0].latest[:-8] + "00000000"
    for offset in (other, mine, future, made_up):
        assert problem(await core.ask(Commit(node, W1, 0, offset))) is Problem.OFFSET_NOT_FOUND
        for start in (offset, f">{offset}"):
            assert problem(await core.ask(stream(node, W1, start))) is Problem.OFFSET_NOT_FOUND
            assert problem(await core.ask(Read(node, BOB, 0, start, 5))) is Problem.OFFSET_NOT_FOUND
    for garbage in ("", "@now", "-5", "1-0", "0" * 10_000_000):
        assert problem(await core.ask(Commit(node, W1, 0, garbage))) is Problem.OFFSET_INVALID
        assert problem(await core.ask(Read(node, BOB, 0, garbage, 5))) is Problem.OFFSET_INVALID
    assert problem(await core.ask(Commit(node, W1, 7, future))) is Problem.PARTITION_NOT_FOUND
    assert problem(await core.ask(Read(node, BOB, 7, "@earliest", 5))) is Problem.PARTITION_NOT_FOUND
    assert await core.ask(Partitions(node, BOB)) == before
    door.deliveries.clear()
    await published(core, node, "c")
    assert [one.item_id for one in door.deliveries] == ["c"]


async def test_extents(core: RedisCore, node: str) -> None:
    """EX17, E19: each partition has its earliest and latest offset; an empty one has no earliest."""
    await declared(core, node, partitions="2", retention_items="2")
    await published(core, node, "a", "b", "c", partition=1)
    found = await core.ask(Partitions(node, BOB))
    assert isinstance(found, Extents)
    first, second = found.partitions
    assert (first.partition, first.earliest, second.partition) == (0, "", 1)
    events = (await read(core, node, partition=1)).events
    assert [event.item_id for event in events] == ["b", "c"]
    assert (second.earliest, second.latest) == (events[0].offset, events[1].offset)
    await core.ask(Purge(node, ALICE))
    assert (await read(core, node, partition=1)).events == ()


async def test_presence_ends_it(core: RedisCore, door: Door, node: str) -> None:
    """E1, Q33: an offline reader is sent nothing more; it begins anew at the start that it names."""
    await declared(core, node, partitions="2")
    await core.ask(stream(node, W1, "@latest", 1))
    await core.ask(Presence(W1, available=False))
    await published(core, node, "a", partition=1)
    assert given(door) == []
    await core.ask(stream(node, W1, "@earliest", 1))
    assert given(door) == [(1, "a", Stage.STREAM)]


@pytest.mark.parametrize("writes", [True, False])
async def test_a_frontend_dies(make_core: MakeCore, node: str, *, writes: bool) -> None:
    """X8: another frontend sends what a dead one had not sent, from the commit on; sent entries stay sent."""
    dying, door = await make_core()
    other, saved = await make_core()
    await declared(dying, node)
    await dying.ask(stream(node, W1, credit=10))
    await published(dying, node, "a")
    await dying.ask(Commit(node, W1, 0, (await read(dying, node)).latest))
    door.writes = writes
    await published(dying, node, "b", "c")
    assert [one.item_id for one in door.deliveries] == ["a", "b", "c"]
    if writes:
        await dying.drain(5)
    else:
        dying._heartbeat.beating = False
        for task in dying._running:
            task.cancel()
        await saved.until(lambda: len(saved.deliveries) == 2)
    assert [one.item_id for one in saved.deliveries] == ([] if writes else ["b", "c"])
    saved.deliveries.clear()
    await published(other, node, "d")
    assert [one.item_id for one in saved.deliveries] == ["d"]


async def test_a_log_becomes_a_queue(make_core: MakeCore, node: str) -> None:
    """Who subscribes where a log was, as a frontend still thinks, subscribes to the queue that is there now."""
    here, there = (await make_core())[0], (await make_core())[0]
    await declared(here, node)
    await published(there, node, "a")
    assert await here.ask(Delete(node, ALICE)) == Done()
    await declared(here, node, queueing="1")
    granted = await there.ask(Subscribe(node, W1, W1, 1, selector="color = 'red'"))
    assert isinstance(granted, Subscribed) and granted.selector and not granted.reads


async def test_e10_a_log_is_read_where_it_is_named(core: RedisCore, door: Door, node: str) -> None:
    """E2, E3, E10: on a log a partition that is named without a start is read from now on; nothing is owned."""
    await declared(core, node, partitions="4")
    await published(core, node, "before", partition=1)
    read_from = await core.ask(stream(node, W1, "", 1))
    assert isinstance(read_from, Subscribed) and [each.partition for each in read_from.streams] == [1]
    await published(core, node, "after", partition=1)
    await door.until(lambda: bool(door.deliveries))
    assert given(door) == [(1, "after", Stage.STREAM)]
    for wanted in ({"group": "g"}, {"partitions": (1,), "epoch": 3}):
        assert problem(await core.ask(Subscribe(node, W1, W1, 5, **wanted))) is Problem.OPTIONS_INVALID


@pytest.mark.parametrize("wanted", [{"group": "g"}, {"group": "stranger"}, {"partitions": (1,), "epoch": 3}])
async def test_e26_a_stream_owns_nothing(core: RedisCore, node: str, wanted: dict[str, Any]) -> None:
    """E26: a stream that asks for a group or an epoch is refused: an ignored option must not look granted."""
    await declared(core, node, queueing="1", partitions="4", groups="g")
    asked = Subscribe(node, W1, W1, 5, start="@earliest", **wanted)
    assert problem(await core.ask(asked)) is Problem.OPTIONS_INVALID


async def test_e7_refused_streams_change_nothing(core: RedisCore, door: Door, node: str) -> None:
    """E7: a refused stream reads no partition at all, and the earlier grants of its JID stay and end with it."""
    await declared(core, node, queueing="1", partitions="4")
    for asked in (stream(node, W1, "@earliest", 0, 9), stream(node, W1, "@earliest", 9)):
        assert problem(await core.ask(asked)) is Problem.PARTITION_NOT_FOUND
    await published(core, node, "waits", partition=0)
    assert isinstance(await core.ask(Subscribe(node, W1, W1, 5, group="g")), Subscribed)
    await door.until(lambda: bool(door.deliveries))
    for asked in (stream(node, W1, "@earliest", 0, 9), stream(node, W1, str(10**14), 0)):
        assert isinstance(await core.ask(asked), Refused)
    assert [stage for _, _, stage in given(door)] == [Stage.UNACKNOWLEDGED]
    assert await core.ask(Presence(W1, available=False)) == Done()
    counted = await core.ask(Stats(node, ALICE))
    assert isinstance(counted, Counted) and (counted.subscribers, counted.in_flight) == (0, 0)
