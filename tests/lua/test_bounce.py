"""bounce: a delivery bounced."""

from collections import Counter
from typing import Any

from broker.redis_core.operations.operation import subid
from tests.lua.driver import Answer, Queue
from tests.lua.worded import W1, W2
from tests.operations import EXAMPLES, shape


def test_passes_on(queue: Queue) -> None:
    """Q18: the lock ends at once, the item goes to another, the record says why, and the subscription stays."""
    queue.subscribe(W1, 1)
    delivery = queue.publish("a").deliveries[0]
    queue.subscribe(W2, 1)
    answer = queue.bounce(W1, delivery)
    assert answer.words == ["ok"] and answer.given == [(W2, "a")]
    assert [r["type"] for r in queue.journal()] == ["bounced"]
    assert queue.stats()["subscribers"] == 2


def test_gone(queue: Queue) -> None:
    """P30: when no later delivery can arrive the subscription ends, and its items go to others."""
    queue.subscribe(W1, 3)
    delivery = queue.publish(*"abc").deliveries[1]
    queue.subscribe(W2, 3)
    answer = queue.bounce(W1, delivery, gone="1")
    assert answer.given == [(W2, "a"), (W2, "b"), (W2, "c")]
    assert queue.run("list_subscribers").rows[1] == [W2]


def test_three_in_a_row(queue: Queue) -> None:
    """P30: the third bounce in a row ends the subscription."""
    queue.subscribe(W1, 1)
    delivery = queue.publish("a").deliveries[0]
    delivery = queue.bounce(W1, delivery).deliveries[0]
    delivery = queue.bounce(W1, delivery).deliveries[0]
    assert queue.bounce(W1, delivery).deliveries == []
    assert queue.stats()["subscribers"] == 0
    assert queue.browse() == {"a": "waiting"}


def test_acknowledgement_between(queue: Queue) -> None:
    """P30: a delivery that arrives resets the count: three bounces in a long life end nothing."""
    queue.subscribe(W1, 1)
    for n in range(6):
        delivery = queue.publish(f"i{n}").deliveries[0]
        assert queue.bounce(W1, delivery).given == [(W1, f"i{n}")]
        queue.retract(W1, f"i{n}")
    assert queue.stats()["subscribers"] == 1


def test_forged(queue: Queue) -> None:
    """Bad input: a forged or late error message changes nothing."""
    queue.subscribe(W1, 1)
    delivery = queue.publish("a").deliveries[0]
    assert queue.bounce(W2, delivery).words == ["lock-lost"]
    assert queue.bounce(W1, delivery, token=delivery.token + 1).words == ["lock-lost"]
    assert queue.bounce(W1, delivery._replace(position="no position at all")).words == ["lock-lost"]
    assert len(queue.locks(W1)) == 1 and queue.journal() == []


def test_twice_in_one_batch(queue: Queue) -> None:
    """A bounce reported twice ends one lock and counts once."""
    queue.subscribe("w@x", 1)
    delivery = queue.publish("a").deliveries[0]
    who = queue.holder("w@x/1", "")
    row = {
        "sender": who["sender"],
        "subids": who["subids"],
        "position": delivery.position,
        "token": delivery.token,
        "gone": "",
        "stage": "unacknowledged",
        "others": "",
    }
    assert queue.run("bounce", row, row).words == ["ok", "lock-lost"]
    assert queue.client.hvals(queue.key("subscribers")) == [b"1 1 unacknowledged w@x"]


def gone_with_many(queue: Queue, count: int) -> Answer:
    """Give a worker so many locks, and bounce as gone."""
    queue.subscribe(W1, count)
    for first in range(100, count, 100):
        queue.publish(*(f"i{number}" for number in range(first, first + 100)))
    return queue.bounce(W1, queue.publish(*(f"i{number}" for number in range(100))).deliveries[0], gone="1")


def visit(queue: Queue) -> None:
    """Sweep as long as more is due."""
    while queue.expire().more:
        pass


def test_gone_with_many(queue: Queue) -> None:
    """A9: a worker found gone with more locks than one script may end keeps none: sweeps give back the rest at once."""
    answer = gone_with_many(queue, 700)
    assert answer.more == 1 and 0 < queue.stats()["in_flight"] < 700
    note: Any = queue.client.hget(queue.key("locks_to_release"), subid(W1))
    assert shape(EXAMPLES["sq:{jobs@8e71964d/0}:locks_to_release"]).fullmatch(f"{subid(W1)} → {note.decode()}")
    visit(queue)
    assert queue.stats()["in_flight"] == 0 and "locks_to_release" not in queue.kept()
    assert Counter((record["type"], record["reason"]) for record in queue.journal()) == {
        ("bounced", ""): 1,
        ("bounced", "gone"): 699,
    }


def test_back_again(queue: Queue) -> None:
    """A9: one that subscribes again while its earlier locks are given back keeps its later ones."""
    gone_with_many(queue, 700)
    queue.now += 1
    queue.subscribe(W1, 750)
    before = {row[0]: row[1] for row in queue.locks(W1)}
    visit(queue)
    after = {row[0]: row[1] for row in queue.locks(W1)}
    assert len(after) == 700 and "locks_to_release" not in queue.kept()
    assert min(after.values()) > min(before.values())
    # Each was handed out again, to it alone.
    assert all(queue.renew(W1, item, token).words == ["ok"] for item, token in list(after.items())[:50])
    assert queue.stats()["in_flight"] == 700
