"""subscribe_log: readers of the log and their starts."""

from collections import Counter

import pytest

from broker.redis_core.operations.operation import subid
from tests.lua.driver import T0, Queue
from tests.lua.worded import W1, W2


@pytest.fixture
def log(unopened: Queue) -> Queue:
    """Return a log that keeps a hundred entries."""
    unopened.open(queueing="0", keep_items=100)
    return unopened


def test_from_now_on(log: Queue) -> None:
    """E3: without a start a stream has the entries after its beginning, in order, and nothing else."""
    log.publish("a")
    assert log.follow(W1, 5).deliveries == []
    given = log.publish("b", "c").deliveries
    assert [(one.jid, one.item, one.body, one.stage, one.token) for one in given] == [
        (W1, "b", "b at 0", "stream", 0), (W1, "c", "c at 0", "stream", 0)
    ]  # fmt: skip
    assert [one.position for one in given] == [f"{T0}-1", f"{T0}-2"]


def test_to_all(log: Queue) -> None:
    """Each entry goes to every reader with room, under sequences of their own."""
    log.follow(W1, 5)
    log.follow(W2, 5)
    given = log.publish("a", "b").deliveries
    assert sorted((one.jid, one.item) for one in given) == [(W1, "a"), (W1, "b"), (W2, "a"), (W2, "b")]
    assert len({one.sequence for one in given}) == 4


def test_many_readers_in_a_long_millisecond(log: Queue) -> None:
    """While the clock is behind the log, as after a step back, every reader gets each entry, and then nobody is asked again."""
    for _hundred in range(11):
        log.publish(*map(str, range(100)))
    readers = {f"r{number}@x/a" for number in range(250)}
    for jid in readers:
        log.follow(jid, 5)
    assert log.expire().more == 0
    answer = log.publish("a")
    given = answer.given
    while answer.more:
        answer = log.expire()
        given += answer.given
    assert sorted(given) == sorted((jid, "a") for jid in readers)


@pytest.mark.parametrize(
    ("start", "items"),
    [
        ("@earliest", "abcde"),
        ("@latest", ""),
        (f"={T0}-1", "bcde"),
        (f">{T0}-1", "cde"),
        (f"={T0 + 10}-0", "de"),
        (f">{T0 + 10}-1", ""),
        ("=0-0", "abcde"),
        (f"t{T0}", "abcde"),
        (f"t{T0 + 1}", "de"),
        (f"t{T0 + 10}", "de"),
        (f"t{T0 + 11}", ""),
        ("t0", "abcde"),
    ],
)
def test_starts(log: Queue, start: str, items: str) -> None:
    """E2, E20, E22, EX4, EX9: an offset with itself or after itself, both words, and the first entry of a time."""
    log.publish("a", "b", "c")
    log.now += 10
    log.publish("d", "e")
    log.now += 10
    assert [one.item for one in log.follow(W1, 9, start).deliveries] == list(items)
    assert [one.item for one in log.publish("f").deliveries] == ["f"]


@pytest.mark.parametrize("start", [f"={T0}-1", f">{T0}-1", f"={T0 + 1}-0", f"t{T0 + 1}", f"={2**64 - 1}-{2**64 - 1}"])
def test_the_future(log: Queue, start: str) -> None:
    """A start in the future is refused, and nothing changes."""
    log.publish("a")
    before = log.kept()
    assert log.follow(W1, 9, start).words == ["offset-not-found"]
    assert log.kept() == before


def test_words_are_resolved_once(log: Queue) -> None:
    """EX5: `@latest` is a position when the stream begins; a reader without room misses nothing later."""
    log.follow(W1, 1)
    assert log.publish("a").given == [(W1, "a")]
    log.publish("b", "c")
    assert log.commit(W1, f"{T0}-0").given == [(W1, "b")]


def test_gap(unopened: Queue) -> None:
    """EX7: a start before the trimmed entries begins with the earliest there is, and both replies say so."""
    unopened.open(queueing="0", keep_items=2)
    unopened.publish("a", "b", "c", "d")
    answer = unopened.follow(W1, 9, f">{T0}-0")
    assert answer.rows == [["ok", 1, f"{T0}-0", 0]]
    assert [(one.item, one.stage) for one in answer.deliveries] == [("c", "gap"), ("d", "stream")]
    # The trimmed entries were before this start: nothing that it asks for is missing.
    answer = unopened.follow(W2, 9, f">{T0}-1")
    assert answer.rows == [["ok", 0, f"{T0}-1", 0]]
    assert [(one.item, one.stage) for one in answer.deliveries] == [("c", "stream"), ("d", "stream")]


def test_a_reader_that_the_retention_overtakes(unopened: Queue) -> None:
    """EX7: a reader that trimming overtakes learns of the gap with the first entry after it."""
    unopened.open(queueing="0", keep_items=2)
    unopened.follow(W1, 1)
    unopened.publish("a")
    unopened.publish("b", "c", "d")
    assert [(one.item, one.stage) for one in unopened.commit(W1, f"{T0}-0").deliveries] == [("c", "gap")]


def test_credit(log: Queue) -> None:
    """A reader gets no more than its credit before it commits; one with less credit blocks nobody."""
    log.follow(W1, 2)
    log.follow(W2, 3)
    given = log.publish("a", "b", "c", "d").given
    assert sorted(given) == [(W1, "a"), (W1, "b"), (W2, "a"), (W2, "b"), (W2, "c")]
    assert log.publish("e").given == []


def test_on_a_queue(queue: Queue) -> None:
    """A queue's log is read beside its workers, without consuming anything; retracted items are gone."""
    queue.publish("a", "b")
    queue.subscribe(W1, 1)
    assert [one.item for one in queue.follow(W2, 9, "@earliest").deliveries] == ["a", "b"]
    assert queue.browse() == {"a": "locked", "b": "waiting"}
    queue.retract(W1, "a")
    assert queue.follow(W2, 9, "@earliest").given == [(W2, "b")]


def test_worker_becomes_reader_and_back(queue: Queue) -> None:
    """A JID has one subscription: the last request counts, and earlier locks stay until they end."""
    queue.subscribe(W1, 1)
    queue.publish("a", "b")
    assert queue.follow(W1, 5, "@earliest").given == [(W1, "a"), (W1, "b")]
    assert queue.retract(W1, "a").given == []
    assert queue.subscribe(W1, 1).given == [(W1, "b")]
    assert queue.publish("c").given == []
    assert not queue.client.exists(queue.key("readers"), queue.key("readers_ready"), queue.key("uncommitted"))


def test_known_and_reads_elsewhere(queue: Queue) -> None:
    """Without a start it is subscribed here and gets nothing; as a worker it does."""
    assert queue.follow(W1, 5, "").words == ["ok"]
    assert queue.publish("a").given == []
    assert queue.run("get_subscription", {"subid": subid(W1), "named": ""}).rows == [["ok", 5, "stream", 0, subid(W1)]]
    assert queue.subscribe(W1, 1).given == [(W1, "a")]


def test_adjusted(log: Queue) -> None:
    """A reader that changes its credit reads on from where it is."""
    log.follow(W1, 1)
    log.publish("a", "b", "c")
    assert log.subscribe(W1, 3, must="1").given == [(W1, "b"), (W1, "c")]


def test_too_many(log: Queue) -> None:
    """The bound of subscribers counts workers and readers together."""
    log.follow(W1, 1)
    row = {"subid": subid(W2), "jid": W2, "credit": 1, "start": "@latest", "lease": 0}
    assert log.run("subscribe_log", row, max_subscribers=1).words == ["too-many-subscriptions"]


@pytest.mark.parametrize("release", ["", "1"])
def test_leaves_nothing(log: Queue, release: str) -> None:
    """E1: the state of a stream is its subscription's and goes with it."""
    log.follow(W1, 5)
    log.publish("a")
    assert log.unsubscribe(W1, release=release).rows == [["ok", 0, 0, [subid(W1)]]]
    assert not {"readers", "readers_ready", "uncommitted", "subscribers"} & log.kept()
    assert log.publish("b").given == []


def test_bounded(unopened: Queue) -> None:
    """A script delivers 200 entries at most and says that there are more; all lagging readers have an equal share."""
    unopened.open(queueing="0", keep_items=1000)
    for _ in range(3):
        unopened.publish(*[""] * 100)
    first = unopened.follow(W1, 1000, "@earliest")
    assert (len(first.deliveries), first.more) == (200, 1)
    second = unopened.follow(W2, 1000, "@earliest")
    assert (Counter(one.jid for one in second.deliveries), second.more) == ({W1: 100, W2: 100}, 1)
    third = unopened.expire()
    assert (Counter(one.jid for one in third.deliveries), third.more) == ({W2: 200}, 0)
    assert unopened.expire().deliveries == []


def test_bounded_by_bytes(unopened: Queue) -> None:
    """A megabyte of payload is enough for one script."""
    unopened.open(queueing="0", keep_items=1000)
    for _ in range(8):
        unopened.publish("", body="x" * 262_144)
    answer = unopened.follow(W1, 100, "@earliest")
    assert (len(answer.deliveries), answer.more) == (4, 1)
    answer = unopened.expire()
    assert (len(answer.deliveries), answer.more) == (4, 0)


@pytest.mark.parametrize("way", ["aged", "purged"])
def test_all_it_has_not_read_is_gone(unopened: Queue, way: str) -> None:
    """EX7: a reader that finds nothing left where it was too slow learns of its loss with the next entry, and once."""
    unopened.open(queueing="0", keep_ms=1_000)
    unopened.follow(W1, 1)
    (first, *_) = unopened.publish("a", "b").deliveries
    if way == "aged":
        unopened.now += 10_000
        unopened.expire()
    else:
        unopened.run("purge")
    assert unopened.read() == []
    assert (unopened.commit(W1, first.position).more, unopened.expire().more) == (0, 0)
    (told,) = unopened.publish("c").deliveries
    assert (told.item, told.stage) == ("c", "gap")
    unopened.commit(W1, told.position)
    assert [each.stage for each in unopened.publish("d").deliveries] == ["stream"]


@pytest.mark.parametrize("way", ["trimmed", "purged"])
def test_a_gap_before_a_deleted_entry(unopened: Queue, way: str) -> None:
    """EX7: a later entry that its publisher has deleted hides no gap before it, and is one of its own."""
    unopened.open(queueing="0", keep_items=4)
    unopened.follow(W1, 1)
    (first,) = unopened.publish(*"ab").deliveries
    if way == "purged":
        unopened.run("purge")
    unopened.publish(*"cdef")
    assert unopened.read() == list("cdef")
    assert unopened.retract("alice@x/1", "e").words == ["ok"]
    found, position = [], first.position
    for _ in range(3):
        (told,) = unopened.commit(W1, position).deliveries
        found.append((told.item, told.stage))
        position = told.position
    assert found == [("c", "gap"), ("d", "stream"), ("f", "gap")]
