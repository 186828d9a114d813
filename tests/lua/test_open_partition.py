"""open_partition: a partition gets its node's revision and options."""

from tests.lua.driver import Answer, Queue
from tests.lua.worded import W1


def test_makes_and_raises(unopened: Queue) -> None:
    """A partition is created once; a later revision brings its options, an earlier one changes nothing."""
    assert unopened.open(revision=2, lock_ms=1_000).code == "ok"
    unopened.publish("a")
    token = unopened.subscribe(W1, 1).token
    assert unopened.open(revision=1, lock_ms=5_000).code == "newer"
    assert unopened.renew(W1, "a").rows[0][2] == unopened.now + 1_000
    unopened.open(revision=3, lock_ms=9_000)
    assert unopened.renew(W1, "a").rows[0][2] == unopened.now + 9_000
    assert unopened.publish("b", revision="3").token == token
    assert unopened.publish("c", revision="2").code == "stale"


def test_is_idempotent(queue: Queue) -> None:
    """Opening again at the same revision changes nothing: cursor and tokens continue."""
    queue.publish("a", "b")
    queue.subscribe(W1, 1)
    before = queue.client.hgetall(queue.key("meta"))
    queue.open()
    assert queue.client.hgetall(queue.key("meta")) == before


def test_tokens_begin_with_the_time(unopened: Queue) -> None:
    """QX14: tokens of a later incarnation are above those of an earlier one, so an old token fits no new lock."""
    unopened.open()
    unopened.publish("a")
    unopened.now += 5
    assert unopened.subscribe(W1, 1).deliveries[0].token == unopened.now * 1000


def test_newer_than_its_record(queue: Queue) -> None:
    """A partition newer than its record keeps its state, and returns it: a later revision."""
    queue.open(revision=7, partitions=4, lock_ms=1_000)
    before = queue.client.hgetall(queue.key("meta"))
    assert queue.open(revision=5, partitions=4, lock_ms=5_000) == Answer("newer", ["7"])
    assert queue.client.hgetall(queue.key("meta")) == before
    assert queue.open(revision=9, partitions=4).code == "ok"
