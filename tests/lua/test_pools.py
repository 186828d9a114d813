"""Pools: subscribers through a collection, in one partition of a leaf."""

from typing import Any

import pytest

from broker.redis_core.operations.operation import subid, to_leaf_subid
from tests.lua.driver import Answer, Queue

W1, W2 = "w1@x/a", "w2@x/b"
POOL, OTHER = "7:all@i1", "9:more%20of%20it@i2"


def pools(queue: Queue) -> str:
    """Return the pools with subscribers here, and how many."""
    found: Any = queue.client.hget(queue.key("meta"), "pools")
    return found.decode() if found else ""


def subscribed(queue: Queue, jid: str, pool: str = POOL, registration: int = 5) -> None:
    """Register a subscriber."""
    assert queue.register(jid, registration, pool=pool)[0] == "ok"


def test_beside_a_direct_subscription(queue: Queue) -> None:
    """H7: directly and through two collections a JID has three credits; each delivery names its collection (H6)."""
    queue.subscribe(W1, 1)
    subscribed(queue, W1)
    subscribed(queue, W1, OTHER)
    assert pools(queue) == f"{POOL} 1 {OTHER} 1" or pools(queue) == f"{OTHER} 1 {POOL} 1"
    given = queue.publish(*"abcd").deliveries
    for pool in (POOL, OTHER):
        given += queue.hand_out(W1, 9, 1, pool=pool).deliveries
    assert sorted((delivery.jid, delivery.pool) for delivery in given) == [(W1, ""), (W1, POOL), (W1, OTHER)]
    assert {lock[0] for lock in queue.locks(W1)} == set("abc")


def test_whoever_held_it_is_known(queue: Queue) -> None:
    """§1.7: a former holder through a collection is recognised, as if it had come directly."""
    subscribed(queue, W1)
    subscribed(queue, W2, OTHER)
    queue.publish("a")
    queue.hand_out(W1, 9, 1, pool=POOL)
    (lock,) = queue.locks(W1)
    queue.unlock(W1, "a", delay_ms=1000)
    assert queue.retract(W1, "a", lock[1]).words == ["lock-lost"]
    assert queue.retract(W2, "a").words == ["forbidden"]


def test_whoever_held_it_through_what_was_left_is_known(queue: Queue) -> None:
    """Q25, §1.7 row 9: so is one of a pool that has no subscribers here any more."""
    subscribed(queue, W1)
    subscribed(queue, W2, OTHER)
    queue.publish("a")
    queue.hand_out(W1, 9, 1, pool=POOL)
    (lock,) = queue.locks(W1)
    queue.unsubscribe(W1, pool=POOL)
    assert queue.locks(W1) == [lock], "QX11: what it holds is listed"
    queue.unlock(W1, "a", delay_ms=1000)
    assert queue.retract(W1, "a", lock[1]).words == queue.unlock(W1, "a").words == ["lock-lost"]
    assert queue.retract(W2, "a").words == ["forbidden"]
    # Pools left long ago are forgotten, one by one.
    for number in range(20, 28):
        subscribed(queue, W2, f"{number}:c{number}@i")
        queue.unsubscribe(W2, pool=f"{number}:c{number}@i")
    assert queue.retract(W1, "a").words == ["forbidden"]


@pytest.mark.parametrize("told", ["1", ""])
def test_told_of_what_ends(queue: Queue, told: str) -> None:
    """Q35: a subscriber removed by others gets a notice of each lock; one that unsubscribed itself does not."""
    subscribed(queue, W1)
    queue.publish("a")
    queue.hand_out(W1, 9, 1, pool=POOL)
    ((item, token, *_),) = queue.locks(W1)
    ended = queue.unsubscribe(W1, release="1", pool=POOL, told=told)
    said = [notice for notice in ended.notices if notice[0] == "ended"]
    assert said == ([["ended", W1, item, token, POOL]] if told else [])


def test_reports_need(queue: Queue) -> None:
    """H7: with subscribers of a pool, a partition reports its demand, even as the only one of its node; else it does not."""
    assert queue.publish("a").report is None
    subscribed(queue, W1)
    report = queue.expire().report
    assert report is not None and (report.wanted, report.pools) == (1, f"{POOL} 1")
    queue.unsubscribe(W1, pool=POOL)
    assert pools(queue) == "" and queue.publish("b").report is None


def test_direct_credit_first(queue: Queue) -> None:
    """H7: the collection's credit is not requested for what direct subscribers can take."""
    queue.subscribe(W2, 1)
    subscribed(queue, W1)
    first, second = queue.publish("a"), queue.publish("b")
    assert first.given == [(W2, "a")] and first.report is not None and first.report.wanted == 0
    assert second.report is not None and second.report.wanted == 1


def test_says_through_which_it_was(queue: Queue) -> None:
    """H7: holdings are reported to the collection of their subscription, also when the subscription ends with them."""
    subscribed(queue, W1)
    queue.publish("a")
    whose = to_leaf_subid(POOL, subid(W1))

    def told(answer: Answer) -> list[tuple[str, int, str]]:
        assert answer.report is not None
        return [(row[0], row[1], row[3]) for row in answer.report.holdings]

    assert told(queue.hand_out(W1, 9, 1, pool=POOL)) == [(whose, 1, POOL)]
    assert told(queue.unsubscribe(W1, release="1", pool=POOL)) == [(whose, 0, POOL)]


def test_fenced_out(queue: Queue) -> None:
    """Guarantee 3: removed as of a registration, a subscriber holds nothing here, and no earlier one brings it back."""
    subscribed(queue, W1)
    queue.publish("a")
    queue.hand_out(W1, 6, 1, pool=POOL)
    assert queue.unsubscribe(W1, release="1", born="4", pool=POOL).words == ["superseded"]
    assert queue.unsubscribe(W1, release="1", born="9", pool=POOL).rows == [
        ["ok", 0, 0, [to_leaf_subid(POOL, subid(W1))]]
    ]
    assert queue.locks(W1) == []
    assert queue.register(W1, 8, pool=POOL) == ["superseded"]
    assert queue.hand_out(W1, 10, 1, pool=POOL).words == ["not-subscribed"]
    assert queue.register(W1, 10, pool=POOL)[:2] == ["ok", 0]
