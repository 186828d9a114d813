"""force_release: locks end by an owner's command."""

from broker.redis_core.operations.operation import subid
from tests.lua.driver import Answer, Queue
from tests.lua.worded import W1, W2


def release(queue: Queue, *items: str, holder: str = "") -> Answer:
    """End locks."""
    return queue.run("force_release", *({"item": item} for item in items), subid=subid(holder) if holder else "")


def test_items(queue: Queue) -> None:
    """The holder is notified and fenced out, the item goes to another at once; unlocked items are skipped."""
    queue.publish("a", "b")
    token = queue.subscribe(W1, 1).deliveries[0].token
    queue.subscribe(W2, 1)
    queue.retract(W2, "b")
    answer = release(queue, "a", "a", "b", "nothing")
    assert (answer.rows, answer.notices, answer.given) == ([1, 0], [["ended", W1, "a", token]], [(W2, "a")])
    assert queue.retract(W1, "a", token).words == ["locked-by-another"]
    assert [(record["type"], record["reason"]) for record in queue.journal()][-1] == ("released", "forced")


def test_all_of_a_holder(queue: Queue) -> None:
    """X7: all locks of a holder end in bounded parts; locks of others stay."""
    queue.subscribe(W1, 400)
    for first in range(0, 400, 200):
        queue.publish(*(f"i{n}" for n in range(first, first + 200)))
    queue.subscribe(W1, 0)
    queue.publish("other")
    queue.subscribe(W2, 1)
    assert release(queue, holder=W1).rows == [300, 100]
    assert release(queue, holder=W1).rows == [100, 0]
    assert release(queue, holder=W1).rows == [0, 0]
    assert queue.stats()["in_flight"] == 1 and queue.stats()["waiting"] == 400


def test_without_a_name(queue: Queue) -> None:
    """Released by a caller that cannot send: the lock has ended, and the next sweep hands the item out."""
    queue.publish("a")
    queue.subscribe(W1, 1)
    queue.subscribe(W2, 1)
    queue.frontend = ""
    answer = release(queue, "a")
    assert (len(answer.notices), answer.deliveries, answer.due) == (1, [], queue.now)
    queue.frontend = "f2"
    assert queue.expire().given == [(W2, "a")]
