"""lua/lib/locks/worker_deaths.lua: which attempts count when locks end without their workers' word."""

from collections.abc import Iterable

import pytest

from tests.lua.driver import Queue
from tests.lua.worded import ALICE, W1, W2

TEN = tuple("abcdefghij")


def tries(queue: Queue) -> dict[str, int]:
    """Return the number of tries of each item."""
    rows = queue.run("inspect_items", *({"item": item} for item in TEN)).rows[1]
    return {row[1]: row[7] for row in rows}


def counted(queue: Queue) -> str:
    """Name the waiting items that have lost an attempt."""
    return "".join(item for item, count in tries(queue).items() if count)


def hold(queue: Queue, *, items: Iterable[str] = TEN) -> None:
    """Hand items to one worker, the next one each ms."""
    queue.subscribe(W1, 10)
    for item in items:
        assert queue.publish(item).given == [(W1, item)]
        queue.now += 1


def begin(queue: Queue, *items: str) -> None:
    """Tell that work on items has begun."""
    for item in items:
        assert queue.renew(W1, item, begun="1").words == ["ok"]


def leave(queue: Queue) -> None:
    """Unsubscribe the worker and free its locks, as a presence that ends."""
    assert queue.unsubscribe(W1, release="1").words == ["ok"]


def lapse(queue: Queue) -> list[str]:
    """Sweep whenever a lock ends, until none is left; return which items each sweep freed."""
    queue.unsubscribe(W1)
    found = []
    while "lock_deadlines" in queue.kept():
        queue.now = max(queue.now, queue.expire().due)
        found.append("".join(notice[2] for notice in queue.expire().notices))
    return found


def test_of_a_silent_worker_the_oldest_counts(queue: Queue) -> None:
    """A worker that told nothing and leaves has begun the item that it has had for longest."""
    hold(queue)
    leave(queue)
    assert counted(queue) == "a" and "progress" not in queue.kept()


def test_what_had_begun_counts(queue: Queue) -> None:
    """Of a worker that told what it had begun, these count and no others; a plain renewal tells nothing."""
    hold(queue)
    begin(queue, "c")
    queue.renew(W1, "e", progress="0.5 half")
    queue.renew(W1, "a")
    leave(queue)
    assert counted(queue) == "ce" and "progress" not in queue.kept()


@pytest.mark.parametrize("told", ["", "d", "dg", "a"])
def test_locks_that_end_one_after_another(queue: Queue, told: str) -> None:
    """The locks of a dead worker end in different sweeps, the oldest perhaps last: it is one death."""
    hold(queue)
    begin(queue, *told)
    for item in "gea":
        queue.now += 10
        queue.renew(W1, item)
    ended = lapse(queue)
    assert len(ended) > 5 and sorted("".join(ended)) == list(TEN)
    assert counted(queue) == (told or "a") and "progress" not in queue.kept()


def test_many_locks_end_a_part_at_a_time(queue: Queue) -> None:
    """A subscription with more locks than one call may end is one death, whatever a new one holds meanwhile."""
    queue.subscribe(W1, 1000)
    names = [f"i{number}" for number in range(700)]
    queue.publish(*names)
    while queue.expire().more:
        pass
    answer = queue.unsubscribe(W1, release="1")
    assert answer.rows[0][1] == 400
    queue.subscribe(W1, 1)
    while queue.expire().more:
        pass
    (held,) = queue.locks(W1)
    rows = queue.run("inspect_items", *({"item": item} for item in names)).rows[1]
    assert {row[1] for row in rows if row[7]} == {"i0", held[0]}


def test_a_bounce_from_somebody_who_is_there(queue: Queue) -> None:
    """What bounces although its receiver is there may be the cause: each item has lost an attempt."""
    queue.subscribe(W1, 10)
    deliveries = queue.publish(*"abc").deliveries
    queue.subscribe(W2, 0)
    queue.subscribe(W1, 0, must="1")
    for delivery in deliveries[::-1]:
        queue.bounce(W1, delivery)
    assert counted(queue) == "abc" and "progress" not in queue.kept()


def test_a_bounce_that_ends_the_subscription(queue: Queue) -> None:
    """What bounces where nobody is has not begun; of what the worker had received before, the oldest counts."""
    queue.subscribe(W1, 10)
    deliveries = queue.publish(*"abcd").deliveries
    queue.bounce(W1, deliveries[2], gone="1")
    assert counted(queue) == "a" and "progress" not in queue.kept()


def test_each_subscriber_dies_alone(queue: Queue) -> None:
    """What one worker told says nothing of another."""
    queue.subscribe(W1, 5)
    queue.subscribe(W2, 5)
    held: dict[str, list[str]] = {W1: [], W2: []}
    for item in TEN:
        ((jid, _),) = queue.publish(item).given
        held[jid].append(item)
    begin(queue, held[W1][2])
    queue.unsubscribe(W1)
    queue.unsubscribe(W2)
    queue.now += 70_000
    queue.expire()
    assert sorted(counted(queue)) == sorted([held[W1][2], held[W2][0]])


def test_each_death_counts(queue: Queue) -> None:
    """A worker that comes back, takes the items again and dies has a second death."""
    hold(queue)
    for count in (1, 2, 3):
        queue.now += 61_000
        assert len(queue.expire().given) == 10
        assert tries(queue) == dict.fromkeys(TEN, 1) | {"a": count + 1}
    leave(queue)
    assert tries(queue) == dict.fromkeys(TEN, 0) | {"a": 4}


def test_a_lock_that_was_renewed_is_of_a_later_death(queue: Queue) -> None:
    """A worker that lost one lock, and lives, has another death when it dies."""
    hold(queue, items="abc")
    begin(queue, "b")
    queue.now += 30_000
    queue.renew(W1, "a")
    queue.renew(W1, "c")
    queue.subscribe(W1, 0, must="1")
    queue.now += 30_000
    assert [notice[2] for notice in queue.expire().notices] == ["b"]
    queue.renew(W1, "c")
    queue.renew(W1, "a")
    leave(queue)
    assert counted(queue) == "ab"


def test_a_poison_item_dies_alone(unopened: Queue) -> None:
    """Of ten items one kills its worker, which tells what it begins: the nine others lose nothing."""
    unopened.open(max_deliveries=3)
    unopened.publish(*TEN)
    answers = []
    for _ in range(3):
        unopened.subscribe(W1, 10)
        begin(unopened, "f")
        answers.append(unopened.unsubscribe(W1, release="1"))
    (letter,) = unopened.letters(answers[-1])
    assert (letter.item, letter.attempts) == ("f", 3)
    assert {item: count for item, count in tries(unopened).items() if item != "f"} == dict.fromkeys("abcdeghij", 0)
    assert {delivery.attempt for delivery in unopened.subscribe(W1, 10).deliveries} == {1}


def test_items_that_rest(unopened: Queue) -> None:
    """An attempt that does not count needs no rest: the items come back at once, only the culprit rests."""
    unopened.open(retry_delay="2000 10000 3 0")
    unopened.publish(*TEN)
    unopened.subscribe(W1, 10)
    leave(unopened)
    states = unopened.browse()
    assert [item for item in TEN if states[item] == "delayed"] == ["a"]


def test_untried_for_ever(unopened: Queue) -> None:
    """An item that comes back untried a hundred times is still at its first attempt, and its history stays short."""
    unopened.open(max_deliveries=2)
    unopened.publish("a")
    unopened.subscribe(W1, 1)
    for _ in range(100):
        (delivery,) = unopened.unlock(W1, "a", untried="1").deliveries
        assert delivery.attempt == 1
    (history,) = unopened.client.hvals(unopened.key("history"))
    assert len(history) < 2200
    (again,) = unopened.unlock(W1, "a").deliveries
    assert again.attempt == 2
    (letter,) = unopened.letters(unopened.unlock(W1, "a"))
    assert letter.attempts == 2


@pytest.mark.parametrize(("told", "counts"), [("", "a"), ("b", "b")])
def test_of_a_pull_subscriber(queue: Queue, told: str, counts: str) -> None:
    """A pull subscriber that is gone has begun the oldest that it received, or what it told; what it did not receive waits."""
    queue.publish(*"abcd")
    queue.subscribe(W1, 3, "pulled")
    assert [row[0] for row in queue.receive(W1)[2]] == ["a", "b", "c"]
    begin(queue, *told)
    leave(queue)
    assert counted(queue) == counts


def test_the_holder_s_own_word_counts(queue: Queue) -> None:
    """A release counts, begun or not; so does an owner's by force."""
    hold(queue, items="abcd")
    queue.subscribe(W1, 0, must="1")
    begin(queue, "d")
    queue.unlock(W1, "b")
    queue.run("force_release", {"item": "c"}, subid="")
    leave(queue)
    assert counted(queue) == "bcd"


def test_a_new_owner(unopened: Queue) -> None:
    """Locks from before an attach end as a death of each holder."""
    unopened.open(partitions=1)
    hold(unopened, items="abc")
    begin(unopened, "b")
    unopened.attach(ALICE, credit=0)
    while unopened.expire().more:
        pass
    assert counted(unopened) == "b"


def test_nothing_is_left_of_a_worker(queue: Queue) -> None:
    """What is remembered of a death goes with the locks that it concerns."""
    hold(queue, items="abcd")
    queue.subscribe(W1, 0, must="1")
    queue.renew(W1, "b")
    queue.now += 60_000 - 3
    queue.expire()
    assert len(queue.client.hkeys(queue.key("progress"))) == 3
    queue.renew(W1, "c")
    assert len(queue.client.hkeys(queue.key("progress"))) == 2
    for item in "bcd":
        queue.retract(W1, item)
    assert "progress" not in queue.kept()


def test_silent_workers_cost_no_write(queue: Queue) -> None:
    """A worker with one item leaves nothing to remember."""
    hold(queue, items="a")
    queue.now += 61_000
    queue.expire()
    assert "progress" not in queue.kept()
