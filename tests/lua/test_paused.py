"""A paused partition, and callers that cannot send: nothing is handed out, all else works."""

from tests.lua.driver import Queue
from tests.lua.worded import W1, W2


def test_hands_nothing_out(queue: Queue) -> None:
    """Publishes are accepted and locks may be ended in every way, but nothing is handed out."""
    queue.publish("a", "b", "c")
    queue.subscribe(W1, 2)
    queue.open(revision=2, paused="1")
    assert queue.publish("d").words == ["ok"]
    assert queue.retract(W1, "a").words == ["ok"] and queue.unlock(W1, "b").words == ["ok"]
    assert queue.subscribe(W2, 5).deliveries == []
    answer = queue.expire()
    assert (answer.deliveries, answer.more, answer.due) == ([], 0, 0)
    assert queue.browse() == {"b": "waiting", "c": "waiting", "d": "waiting"}
    queue.open(revision=3, paused="0")
    assert [item for _, item in queue.expire().given] == ["b", "c", "d"]


def test_delays_end_and_locks_expire(queue: Queue) -> None:
    """A sweep of a paused partition ends delays and locks once, and requests no other sweep."""
    queue.publish("a", "b")
    queue.subscribe(W1, 2)
    queue.unlock(W1, "a", delay_ms=5_000)
    queue.open(revision=2, paused="1")
    queue.now += 60_000
    answer = queue.expire()
    assert (len(answer.notices), answer.deliveries, answer.due) == (1, [], 0)
    assert queue.stats()["eligible"] == 2 and queue.stats()["in_flight"] == 0


def test_readers_wait(unopened: Queue) -> None:
    """Readers of a paused log get nothing, and afterwards everything in order."""
    unopened.open(queueing="0", keep_items=100)
    unopened.follow(W1, 10)
    unopened.open(revision=2, queueing="0", keep_items=100, paused="1")
    assert unopened.publish("a", "b").deliveries == []
    unopened.open(revision=3, queueing="0", keep_items=100)
    assert [item for _, item in unopened.expire().given] == ["a", "b"]


def test_without_a_name(queue: Queue) -> None:
    """A caller without a frontend's name hands nothing out, and a sweep is due at once."""
    queue.subscribe(W1, 2)
    queue.frontend = ""
    answer = queue.publish("a")
    assert (answer.deliveries, answer.due) == ([], queue.now)
    assert queue.expire().deliveries == []
    queue.frontend = "f1"
    assert queue.expire().given == [(W1, "a")]
