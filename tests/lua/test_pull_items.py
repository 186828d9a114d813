"""pull_items: the items of a pull subscription, and its lease."""

from broker.redis_core.operations.operation import subid
from tests.lua.driver import T0, Queue
from tests.lua.worded import W1


def test_held(queue: Queue) -> None:
    """R15, R17: up to the credit, with body, lock and attempt, the oldest lock first; an end makes room."""
    queue.publish("a", "b", "c", key="k")
    queue.subscribe(W1, 2, "pulled", lease="+9000")
    code, until, found, more, stamp, returned = queue.fetch(W1)
    assert (code, until, more, returned) == ("ok", T0 + 9_000, 0, 0)
    first = T0 * 1000
    assert found == [
        ["a", first, 1, T0 + 60_000, "alice@x", "a at 0", "k", T0, 0, 0],
        ["b", first + 1, 1, T0 + 60_000, "alice@x", "b at 0", "k", T0, 0, 0],
    ]
    assert queue.fetch(W1)[4] == stamp
    queue.retract(W1, "a", first)
    assert queue.fetch(W1)[4] > stamp
    assert [row[0] for row in queue.fetch(W1)[2]] == ["b", "c"]
    assert [row[0] for row in queue.fetch(W1, after=first + 1)[2]] == ["c"]


def test_replaced(queue: Queue) -> None:
    """X1: the locked version is returned, and the later one follows it."""
    queue.publish("a", body="old")
    queue.subscribe(W1, 1, "pulled")
    queue.publish("a", body="new")
    assert [row[5] for row in queue.fetch(W1)[2]] == ["old"]
    queue.retract(W1, "a")
    assert [row[5] for row in queue.fetch(W1)[2]] == ["new"]


def test_bounded(queue: Queue) -> None:
    """X7: cut by count and by bytes, with a word that there are more, and at least one item while there are bytes left."""
    queue.publish(*"abcd")
    queue.subscribe(W1, 4, "pulled")
    assert [len(queue.fetch(W1, limit=limit)[2]) for limit in (1, 3, 4)] == [1, 3, 4]
    assert [queue.fetch(W1, limit=limit)[3] for limit in (1, 3, 4)] == [1, 1, 0]
    assert [len(queue.fetch(W1, max_bytes=most)[2]) for most in (1, 6, 7, 100)] == [1, 1, 2, 4]


def test_one(queue: Queue) -> None:
    """R15: an item that is read alone begins the lock of no other."""
    queue.publish(*"abc")
    queue.subscribe(W1, 3, "pulled")
    (found,) = queue.fetch(W1, after=T0 * 1000, one="1")[2]
    assert found[:2] == ["b", T0 * 1000 + 1]
    assert [row[3] - T0 for row in queue.fetch(W1, comes="")[2]] == [5_000, 60_000, 5_000]
    assert queue.fetch(W1, after=T0 * 1000 + 2, one="1")[2] == []


def test_lease(queue: Queue) -> None:
    """R11: a fetch by its owner renews it; an expired or unknown one is refused."""
    queue.subscribe(W1, 1, "pulled", lease="+1000")
    queue.now += 900
    assert queue.fetch(W1, lease=1_000)[1] == T0 + 1_900
    queue.now += 900
    assert queue.fetch(W1, lease="0")[:2] == ["ok", T0 + 1_900]
    queue.now += 100
    assert queue.fetch(W1, lease="0") == ["lease-over"]
    assert queue.fetch(W1, lease=1_000) == ["lease-over"]
    assert queue.expire().notices == [["lapsed", W1, subid(W1)]]
    queue.unsubscribe(W1, release="1", lapsed="1")
    queue.subscribe(W1, 1)
    assert queue.fetch(W1, lease="0") == ["lease-over"]
