"""stats: counts."""

from tests.lua.driver import Queue
from tests.lua.test_browse import everything
from tests.lua.worded import W1, W2

EMPTY = {
    "waiting": 0, "eligible": 0, "delayed": 0, "in_flight": 0, "dying": 0, "oldest_ms": 0, "subscribers": 0,
    "credit_free": 0,
}  # fmt: skip


def test_empty(queue: Queue) -> None:
    """An empty queue counts nothing."""
    assert queue.stats() == EMPTY


def test_each_state(queue: Queue) -> None:
    """Waiting includes delayed ones, versions are not items, and the oldest is the oldest that may go out."""
    everything(queue)
    queue.now += 500
    queue.subscribe(W2, 0)
    assert queue.stats() == {
        "waiting": 3, "eligible": 2, "delayed": 1, "in_flight": 1, "dying": 1, "oldest_ms": 500, "subscribers": 2,
        "credit_free": 0,
    }  # fmt: skip


def test_oldest_came_back(queue: Queue) -> None:
    """The oldest may be one that came back."""
    queue.publish("a")
    queue.subscribe(W1, 1)
    queue.now += 300
    queue.publish("b")
    queue.unsubscribe(W1, release="1")
    assert queue.stats()["oldest_ms"] == 300


def test_a_version_behind_a_lock_does_not_wait(queue: Queue) -> None:
    """X1: a parked version has no age: nothing waits here."""
    queue.publish("a")
    queue.subscribe(W1, 1)
    queue.publish("a")
    queue.now += 1_000
    assert queue.stats()["oldest_ms"] == 0
    queue.publish("b")
    queue.now += 10
    assert queue.stats()["oldest_ms"] == 10


def test_free_credit(queue: Queue) -> None:
    """Free credit is what subscribers could take now."""
    queue.subscribe(W1, 3)
    queue.subscribe(W2, 4)
    queue.publish(*"abc")
    assert queue.stats() | {"oldest_ms": 0} == {**EMPTY, "in_flight": 3, "subscribers": 2, "credit_free": 4}


def test_what_ever_was(queue: Queue) -> None:
    """R5, X7: totals of published, finished and tried items only grow, so two reads make a rate."""
    assert queue.ever() == (0, 0, 0)
    queue.publish(*"abc")
    assert queue.ever() == (3, 0, 0)
    queue.subscribe(W1, 1)
    queue.retract(W1, "a")
    assert queue.ever() == (3, 1, 1)
    queue.unlock(W1, "b")
    assert queue.ever() == (3, 1, 2)
    queue.run("purge")
    assert queue.ever()[0] == 3 and queue.ever()[1] >= 2
