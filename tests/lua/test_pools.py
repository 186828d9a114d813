"""Pools: subscribers who come through a collection, as one partition of a leaf has them."""

from typing import Any

from broker.redis_core.calls.call import below, subid
from tests.lua.driver import Queue

W1, W2 = "w1@x/a", "w2@x/b"
POOL, OTHER = "7:all@i1", "9:more%20of%20it@i2"


def pools(queue: Queue) -> str:
    """Read which pools have subscribers here, and how many."""
    found: Any = queue.client.hget(queue.key("meta"), "pools")
    return found.decode() if found else ""


def seated(queue: Queue, jid: str, credit: int, pool: str = POOL, born: str = "5") -> None:
    """Seat a subscriber with so much credit."""
    assert queue.sit(jid, born, pool=pool)[0] == "ok"
    queue.deposit(jid, born, credit, pool=pool)


def test_beside_a_direct_subscription(queue: Queue) -> None:
    """H7: directly and through two collections a JID has three credits; each delivery says through which it came (H6)."""
    queue.subscribe(W1, 1)
    seated(queue, W1, 1)
    seated(queue, W1, 1, OTHER)
    assert pools(queue) == f"{POOL} 1 {OTHER} 1" or pools(queue) == f"{OTHER} 1 {POOL} 1"
    given = queue.publish(*"abcd").deliveries
    assert sorted((delivery.jid, delivery.pool) for delivery in given) == [(W1, ""), (W1, POOL), (W1, OTHER)]
    assert {lock[0] for lock in queue.locks(W1)} == set("abc")


def test_whoever_held_it_is_known(queue: Queue) -> None:
    """§1.7: who had an item through a collection and lost it is told so, as if it had come directly."""
    seated(queue, W1, 1)
    seated(queue, W2, 0, OTHER)
    queue.publish("a")
    (lock,) = queue.locks(W1)
    queue.unlock(W1, "a", delay_ms=1000)
    assert queue.retract(W1, "a", lock[1]).words == ["lock-lost"]
    assert queue.retract(W2, "a").words == ["forbidden"]


def test_credit_of_one_pool(queue: Queue) -> None:
    """H7: credit of a pool is lent within it alone, and what is held through it is counted there alone."""
    queue.subscribe(W2, 3)
    seated(queue, W1, 2)
    assert [gift[2] for gift in queue.withdraw(5, pool=OTHER)] == []
    assert [gift[2] for gift in queue.withdraw(5, pool=POOL)] == [2]
    assert [gift[2] for gift in queue.withdraw(5)] == [3]


def test_reports_need(queue: Queue) -> None:
    """H7: with subscribers of a pool, a partition says what it wants, though it is its node's only one; else it says nothing."""
    assert queue.publish("a").lending == []
    queue.sit(W1, "5", pool=POOL)
    wanted, spare, locked, *_, named = queue.run("expire").lending
    assert (wanted, spare, locked, named) == (1, 0, 0, f"{POOL} 1")
    queue.unsubscribe(W1, pool=POOL)
    assert pools(queue) == "" and queue.publish("b").lending == []


def test_yields_to_its_pool(queue: Queue) -> None:
    """H7: what is freed goes to a partition of the pool that has less, under the name that the pool has for it."""
    seated(queue, W1, 1)
    queue.publish("a", "b")
    answer = queue.run("retract", queue.asked(W1, "a"), wants=f"4 0 {POOL}")
    assert [(to, amount, pool) for to, _, _, amount, pool in answer.lending[3]] == [("4", 1, POOL)]
    assert answer.given == []


def test_fenced_out(queue: Queue) -> None:
    """Guarantee 3: put out as part of a count, a subscriber holds nothing here, and no earlier count brings it back."""
    seated(queue, W1, 1)
    queue.publish("a")
    assert queue.unsubscribe(W1, release="1", born="4", pool=POOL).words == ["superseded"]
    assert queue.unsubscribe(W1, release="1", born="9", pool=POOL).rows == [["ok", 0, 0, [below(POOL, subid(W1))]]]
    assert queue.locks(W1) == []
    assert queue.sit(W1, "8", pool=POOL) == ["superseded"]
    assert queue.deposit(W1, "5", 1, pool=POOL).words == ["not-subscribed"]
    assert queue.sit(W1, "10", pool=POOL) == ["ok", 0, 0]
