"""unsubscribe: with or without release of the locks."""

from broker.redis_core.operations.operation import subid
from tests.lua.driver import Queue
from tests.lua.worded import W1, W2


def test_keeps_locks(queue: Queue) -> None:
    """Q34: leaving alone releases nothing; the locks still expire."""
    queue.publish("a")
    queue.subscribe(W1, 1)
    assert queue.unsubscribe(W1).rows == [["ok", 1, 0, [subid(W1)]]]
    assert queue.subscribe(W2, 1).given == []
    assert queue.unlock(W1, "a").given == [(W2, "a")]


def test_releases_all(queue: Queue) -> None:
    """Q33: the subscription of an offline JID ends and all its items go to others at once."""
    queue.publish(*"abc")
    queue.subscribe(W1, 2)
    queue.subscribe(W2, 5)
    answer = queue.unsubscribe(W1, release="1")
    assert answer.rows == [["ok", 0, 0, [subid(W1)]]]
    assert answer.given == [(W2, "a"), (W2, "b")]
    assert [(r["type"], r["reason"]) for r in queue.journal()] == [("released", "unavailable")] * 2


def test_nobody(queue: Queue) -> None:
    """P12: an unknown subscription is reported, and a former subscriber's locks can still be given back."""
    queue.publish("a")
    queue.subscribe(W1, 1)
    queue.unsubscribe(W1)
    assert queue.unsubscribe(W1).rows == [["not-subscribed", 1, 0, []]]
    assert queue.unsubscribe(W1, release="1").rows == [["not-subscribed", 0, 0, []]]
    assert queue.browse() == {"a": "waiting"}


def test_tells_an_owner(queue: Queue) -> None:
    """EX16: with a reason, the owner of the partition gets a notice; its slot is free."""
    fence = queue.attach(W1, 3).rows[0][2]
    assert queue.unsubscribe(W1, release="1", reason="lapsed").notices == [["lost", W1, "g", "3", fence, "lapsed"]]
    assert queue.attach(W2, 0).notices == []


def test_in_bounded_parts(queue: Queue) -> None:
    """X7: more than 300 locks are given back in several calls, and each returns how many are left."""
    for first in (0, 200):
        queue.publish(*(f"i{n}" for n in range(first, first + 200)))
    queue.subscribe(W1, 1000)
    queue.expire()
    assert queue.unsubscribe(W1, release="1").rows == [["ok", 100, 0, [subid(W1)]]]
    assert queue.unsubscribe(W1, release="1").rows == [["not-subscribed", 0, 0, []]]
    assert queue.stats()["waiting"] == 400


def test_caller_dies(queue: Queue) -> None:
    """A9: giving back does not depend on the caller that began it: sweeps continue."""
    queue.subscribe(W1, 700)
    for first in range(0, 700, 100):
        queue.publish(*(f"i{number}" for number in range(first, first + 100)))
    answer = queue.unsubscribe(W1, release="1")
    assert answer.rows[0][1] > 0 and answer.more == 1
    while queue.expire().more:
        pass
    assert queue.stats()["in_flight"] == 0
