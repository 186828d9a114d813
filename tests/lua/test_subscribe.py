"""subscribe: begin a subscription, or change its options."""

from broker.redis_core.operations.operation import subid
from tests.lua.driver import Queue
from tests.lua.worded import W1, W2


def test_gets_what_waits(queue: Queue) -> None:
    """Q13, Q9: a new subscriber gets waiting items, in order, up to its credit, and the credit is returned."""
    queue.publish(*"abc")
    answer = queue.subscribe(W1, 2)
    assert answer.rows == [["ok", 2, "unacknowledged", W1, 0, subid(W1)]]
    assert answer.given == [(W1, "a"), (W1, "b")]


def test_paused(queue: Queue) -> None:
    """Q11: a credit of 0 is a pause."""
    queue.publish("a")
    assert queue.subscribe(W1, 0).given == []
    assert queue.subscribe(W1, 1).given == [(W1, "a")]


def test_raising(queue: Queue) -> None:
    """Q12: more credit takes effect in the same script."""
    queue.publish(*"abc")
    queue.subscribe(W1, 1)
    assert queue.subscribe(W1, 3, must="1").given == [(W1, "b"), (W1, "c")]


def test_lowering(queue: Queue) -> None:
    """Q12: credit below what is in flight takes nothing away and stops new deliveries until it is met."""
    queue.publish(*"abcde")
    queue.subscribe(W1, 3)
    assert queue.subscribe(W1, 1).given == []
    assert len(queue.locks(W1)) == 3
    assert queue.retract(W1, "a").given == []
    assert queue.retract(W1, "b").given == []
    assert queue.retract(W1, "c").given == [(W1, "d")]


def test_adjusting_nothing(queue: Queue) -> None:
    """P13: options of an unknown subscription are refused, and create none."""
    assert queue.subscribe(W1, 1, must="1").words == ["not-subscribed"]
    assert queue.stats()["subscribers"] == 0


def test_bound(queue: Queue) -> None:
    """P6, guarantee 6: past the bound new subscribers are refused, and present ones may still change their credit."""
    queue.subscribe(W1, 1, max_subscribers=1)
    assert queue.subscribe(W2, 1, max_subscribers=1).words == ["too-many-subscriptions"]
    assert queue.subscribe(W1, 5, max_subscribers=1).words == ["ok"]


def test_old_locks_count(queue: Queue) -> None:
    """Guarantee 3: locks from before count when a JID subscribes again (Q34)."""
    queue.publish(*"abc")
    queue.subscribe(W1, 2)
    queue.unsubscribe(W1)
    assert queue.subscribe(W1, 2).given == []
    assert queue.retract(W1, "a").given == [(W1, "c")]


def test_keeps_its_turn(queue: Queue) -> None:
    """A changed credit does not change the turn."""
    queue.subscribe(W1, 9)
    queue.publish("a")
    queue.subscribe(W2, 9)
    queue.subscribe(W1, 8)
    assert queue.publish("b").given == [(W2, "b")]


def test_hard_jids(queue: Queue) -> None:
    """RFC 7622: resources hold blanks, line ends and any script."""
    jids = ["w@x/two words", "w@x/ ", "w@x/a\nb", "wörker@exämple/🐇 🐇", "w@x/a/b/c", "w@x"]
    for jid in jids:
        queue.subscribe(jid, 1)
    queue.publish(*(f"i{n}" for n in range(len(jids))))
    assert queue.stats()["in_flight"] == len(jids)
    told = queue.run("list_subscribers").rows[1]
    assert sorted(told) == sorted(jids)
    for jid in jids:
        assert queue.unsubscribe(jid, release="1").words == ["ok"]
    assert queue.stats()["in_flight"] == 0


def test_credit_that_is_just_used_up(queue: Queue) -> None:
    """Guarantee 3: a subscriber with its credit used up is not next, whatever set the credit."""
    queue.publish("a", "b")
    queue.subscribe(W1, 3)
    queue.subscribe(W1, 2)
    queue.subscribe(W2, 5)
    assert queue.publish("c", "d").given == [(W2, "c"), (W2, "d")]
    assert len(queue.locks(W1)) == 2


def test_large_items_come_in_parts(queue: Queue) -> None:
    """X7: one call hands out about a megabyte and says that there is more; the next continues."""
    queue.publish(*(f"i{n}" for n in range(100)), body="x" * 100_000)
    answer = queue.subscribe(W1, 1_000)
    assert (0 < len(answer.deliveries) < 64, answer.more) == (True, 1)
    given = len(answer.deliveries)
    while answer.more:
        answer = queue.expire()
        given += len(answer.deliveries)
    assert given == 100
