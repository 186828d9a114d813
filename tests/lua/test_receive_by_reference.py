"""What a queue does for subscribers of collections: it asks, locks under references, and says what has become of them."""

import pytest

from broker.redis_core.operations.operation import subid
from tests.lua.driver import TOP, Answer, Queue
from tests.lua.worded import W1, W2


@pytest.fixture
def leaf(unopened: Queue) -> Queue:
    """Return a queue below a collection."""
    unopened.open(above="1")
    return unopened


def asked(answer: Answer) -> list[int]:
    """Return for how many items the queue asks."""
    return [notice[1] for notice in answer.notices if notice[0] == "asks"]


def freed(answer: Answer) -> list[list[str]]:
    """Return what it says of references."""
    return [notice[1:] for notice in answer.notices if notice[0] == "freed"]


def test_asks_nobody(queue: Queue) -> None:
    """A queue without a collection above has nobody to ask."""
    assert queue.publish("a").notices == [] and queue.expire().due == 0


def test_asks(leaf: Queue) -> None:
    """A queue asks when items begin to wait, and again after a while, in growing steps."""
    assert asked(leaf.publish("a", "b")) == [2]
    assert asked(leaf.publish("c")) == []
    steps = []
    for _ in range(5):
        answer = leaf.expire()
        steps.append((answer.due - leaf.now) // 1_000)
        leaf.now = answer.due
    assert steps == [2, 4, 8, 16, 16]
    assert asked(leaf.expire()) == [3]


def test_its_own_come_first(leaf: Queue) -> None:
    """A queue's own subscribers take first; a collection's get what these leave, one item under each reference."""
    leaf.publish(*"abcd")
    leaf.subscribe(W1, 1)
    answer = leaf.lend(W2, "r1", "r2")
    assert answer.rows == ["locked", "locked"] and answer.given == [(W2, "b"), (W2, "c")]
    assert [delivery.collection for delivery in answer.deliveries] == [TOP, TOP]
    # The rest is asked for at once.
    assert asked(answer) == [1]
    done = leaf.retract(W1, "a")
    assert done.given == [(W1, "d")] and freed(done) == []


def test_once(leaf: Queue) -> None:
    """A reference locks one item; late ones, and those without an item, come back unused."""
    leaf.publish("a", "b")
    assert leaf.lend(W1, "r1").given == [(W1, "a")]
    again = leaf.lend(W1, "r1")
    assert again.rows == ["locked"] and again.given == []
    assert leaf.lend(W1, "r2", deadline=leaf.now).rows == ["unused"]
    # The clock went back since the queue asked: it asks again by the new time.
    assert leaf.lend(W1, "r2", deadline=leaf.now + 3_001).rows == ["unused"]
    assert leaf.lend(W1, "r3", admitted="").rows == ["passed"]
    assert leaf.lend(W1, "r4", "r5").rows == ["locked", "unused"]


def test_owned_and_paused(leaf: Queue) -> None:
    """E28: nothing goes to others while the partition is owned, or the node is paused."""
    leaf.publish("a")
    leaf.attach(W2, credit=1)
    assert leaf.lend(W1, "r1").rows == ["unused"]
    leaf.unsubscribe(W2, release="1")
    leaf.open(revision=2, above="1", paused="1")
    assert leaf.lend(W1, "r2").rows == ["unused"] and asked(leaf.publish("b")) == []


@pytest.mark.parametrize(
    ("end", "word"),
    [
        ("retract", "reached"),
        ("unlock", "ended"),
        ("cancel", "ended"),
        ("expire", "ended"),
        ("bounce", "bounced"),
        ("gone", "gone"),
    ],
)
def test_ends(leaf: Queue, end: str, word: str) -> None:
    """However a lock ends, the collection is told once, and nothing is left of the reference."""
    leaf.publish("a")
    (delivery,) = leaf.lend(W1, "r1").deliveries
    match end:
        case "retract":
            answer = leaf.retract(W1, "a")
            assert answer.rows == [["ok", W1, TOP]]
        case "unlock":
            answer = leaf.unlock(W1, "a", delay_ms=1_000)
        case "cancel":
            answer = leaf.run("cancel", {"sender": "alice@x/1", "owner": "1", "item": "a", "request": ""})
        case "expire":
            leaf.now += 60_001
            answer = leaf.expire()
        case _:
            answer = leaf.bounce(W1, delivery, gone="1" if end == "gone" else "")
    assert freed(answer) == [[TOP, f"r1 {word}"]]
    assert "references" not in leaf.kept()


def test_a_batch_that_bounces(leaf: Queue) -> None:
    """P30: a delivery of several items counts as one."""
    leaf.publish("a", "b")
    answer = leaf.lend(W1, "r1", "r2", sending="unacknowledged2")
    assert freed(leaf.bounce(W1, *answer.deliveries)) == [[TOP, "r1 bounced r2 ended"]]


def test_who_held_it(leaf: Queue) -> None:
    """D9: who had an item through a collection is no stranger, directly or not; an owner can end its locks."""
    leaf.publish("a", "b")
    leaf.lend(W1, "r1", "r2")
    leaf.unlock(W1, "a", delay_ms=60_000)
    assert leaf.retract(W1, "a").words == ["lock-lost"] and leaf.retract(W2, "a").words == ["forbidden"]
    assert [row[0] for row in leaf.locks(W1)] == ["b"]
    answer = leaf.run("force_release", subid=subid(W1))
    assert answer.rows == [1, 0] and answer.notices[0][:3] == ["ended", W1, "b"]


def test_a_late_renewal(leaf: Queue) -> None:
    """A lock that is over and not swept yet is not renewed: its credit may have been lent again; a queue's own may be."""
    leaf.subscribe(W2, 1)
    leaf.publish("a", "b")
    leaf.lend(W1, "r1")
    leaf.now += 59_000
    assert leaf.renew(W1, "b").words == ["ok"]
    leaf.now += 60_000
    assert leaf.renew(W1, "b").words == ["lock-lost"] and leaf.renew(W2, "a").words == ["ok"]


def test_last_holders(leaf: Queue) -> None:
    """Q30: the queue says who gave its first items back."""
    leaf.publish("a", "b")
    leaf.lend(W1, "r1")
    answer = leaf.unlock(W1, "a")
    leaf.now += 60_000
    asks = next(notice for notice in leaf.expire().notices if notice[0] == "asks")
    assert freed(answer) and asks[4].split()[0] == subid(W1)


def test_last_holders_in_turns(leaf: Queue) -> None:
    """Q30: of a fair order, too: the first items are those that go out next."""
    leaf.open(revision=2, above="1", fair="key")
    leaf.publish("a", key="x")
    leaf.lend(W1, "r1")
    leaf.unlock(W1, "a", delay_ms=0)
    leaf.now += 60_000
    asks = next(notice for notice in leaf.expire().notices if notice[0] == "asks")
    assert asks[4] == subid(W1)


def test_selecting(leaf: Queue) -> None:
    """A collection takes what a queue's own subscribers do not select."""
    leaf.subscribe(W2, 5, selector="color = 'red'")
    assert asked(leaf.publish("a")) == [1]
    assert leaf.lend(W1, "r1", "r2").rows == ["locked", "unused"]


def test_limits(leaf: Queue) -> None:
    """A node's bounds hold for collections, and it asks for no more than may go out."""
    leaf.open(revision=2, above="1", limits="1 0 0 0")
    assert asked(leaf.publish("a", "b")) == [1]
    assert leaf.lend(W1, "r1", "r2").rows == ["locked", "unused"]
    assert asked(leaf.retract(W1, "a")) == [1]


def test_no_collection_any_more(leaf: Queue) -> None:
    """A queue that has asked and leaves its collections is not swept for that any more."""
    leaf.publish("a")
    assert leaf.expire().due == leaf.now + 2_000
    leaf.open(revision=2, above="")
    leaf.now += 5_000
    assert leaf.expire().due == 0
