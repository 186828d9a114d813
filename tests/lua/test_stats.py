"""stats: counts."""

from random import Random

import pytest

from tests.lua.dependencies import record
from tests.lua.driver import T0, Queue
from tests.lua.test_browse import everything
from tests.lua.test_cancel import cancel
from tests.lua.test_hints import asked
from tests.lua.test_move_items import arrived, transfer
from tests.lua.worded import W1, W2

EMPTY = {
    "waiting": 0, "eligible": 0, "delayed": 0, "in_flight": 0, "dying": 0, "oldest_ms": 0, "subscribers": 0,
    "credit_free": 0,
}  # fmt: skip

AFTER = "after"


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
    assert (*queue.ever(), queue.removed()) == (3, 1, 2, 1)


@pytest.mark.parametrize("keep", [0, 10])
def test_removed_is_not_finished(unopened: Queue, keep: int) -> None:
    """X7: only an acknowledgement finishes an item; whatever else ends an entry removes it, versions of items too."""
    queue = unopened
    queue.open(keep_items=keep, keep_ms=60_000 if keep else 0)
    queue.publish(*"abcdefg")
    # Three versions of one item, and one with a time to live.
    queue.publish("a")
    queue.publish("a")
    queue.publish("old", hints=asked(ttl_ms=1_000))
    arrived(queue, transfer(queue, "g"))
    cancel(queue, "f", owner="1")
    queue.now += 2_000
    queue.expire()
    queue.subscribe(W1, 3)
    # A version that waits for a lock goes with it, or is an item of its own.
    queue.publish("b", "c")
    cancel(queue, "b", owner="1")
    for item in "aced":
        queue.retract(W1, item)
    published, finished, _ = queue.ever()
    assert finished == 4
    assert published == finished + queue.removed() + queue.stats()["in_flight"] and queue.stats()["waiting"] == 0
    queue.retract(W1, "c")
    queue.run("purge")
    published, finished, _ = queue.ever()
    assert (finished, queue.removed()) == (5, published - 5)


def unowned(queue: Queue) -> int:
    """Return whether the partition is counted as one without an owner."""
    return int(queue.run("stats").rows[15])


def test_partitions_without_an_owner(unopened: Queue) -> None:
    """A partition of several is counted while nobody owns it: before it has an owner, and when the owner's lease has ended."""
    queue = unopened
    queue.open(partitions=3)
    assert unowned(queue) == 1
    queue.attach(W1)
    assert unowned(queue) == 0
    queue.now += 60_001
    queue.expire()
    assert unowned(queue) == 1


@pytest.mark.parametrize("options", [{"partitions": 1}, {"partitions": 3, "queueing": "0"}])
def test_what_needs_no_owner(unopened: Queue, options: dict[str, object]) -> None:
    """The only partition of a queue is shared by its subscribers, and readers of a log share its partitions."""
    unopened.open(**options)
    assert unowned(unopened) == 0


def resting(queue: Queue, hints: str) -> None:
    """Publish many items with these hints; with `after` they wait for another."""
    names = [f"x{number}" for number in range(150)]
    queue.publish(*names, hints=f"0 4 0 \0{record('parent')}" if hints == AFTER else hints)


@pytest.mark.parametrize(("late", "most"), [(1, 5), (100, 5), (101, 1_005)])
@pytest.mark.parametrize("hints", [AFTER, "60000 4 0"], ids=["dependent", "delayed"])
def test_behind_items_that_wait_for_something(queue: Queue, hints: str, late: int, most: int) -> None:
    """Late items behind many that may not go out are never hidden; behind very many, many have at most an earlier age."""
    queue.publish("first")
    resting(queue, hints)
    queue.subscribe(W1, 1)
    queue.now += 1_000
    queue.publish(*(f"late{number}" for number in range(late)))
    queue.now += 5
    assert queue.stats()["eligible"] == late
    assert 5 <= queue.stats()["oldest_ms"] <= most
    queue.retract(W1, "first")
    assert [lock[0] for lock in queue.locks(W1)] == ["late0"]
    assert queue.stats()["oldest_ms"] == (5 if late > 1 else 0)


@pytest.mark.parametrize("hints", [AFTER, "60000 4 0", "0 9 0"], ids=["dependent", "delayed", "urgent"])
def test_behind_many_that_went_by(queue: Queue, hints: str) -> None:
    """What dispatch has passed or handed out has no age, and hides nothing that comes later."""
    queue.subscribe(W1, 150)
    resting(queue, hints)
    queue.now += 1_000
    assert queue.stats()["oldest_ms"] == 0
    queue.subscribe(W1, 0)
    queue.publish("late")
    queue.now += 5
    assert (queue.stats()["eligible"], queue.stats()["oldest_ms"]) == (1, 5)


@pytest.mark.parametrize("hints", [AFTER, "60000 4 0"], ids=["dependent", "delayed"])
def test_without_any_credit(queue: Queue, hints: str) -> None:
    """In an empty queue the same holds though nobody has credit: the age is exact."""
    resting(queue, hints)
    assert (queue.stats()["eligible"], queue.stats()["oldest_ms"]) == (0, 0)
    queue.now += 1_000
    assert (queue.stats()["eligible"], queue.stats()["oldest_ms"]) == (0, 0)
    queue.publish("late")
    queue.now += 5
    assert (queue.stats()["eligible"], queue.stats()["oldest_ms"]) == (1, 5)


def test_behind_versions(queue: Queue) -> None:
    """Nor behind many new versions of items that are locked."""
    names = [f"i{number}" for number in range(150)]
    queue.publish(*names)
    queue.publish(*names)
    queue.subscribe(W1, 150)
    queue.now += 1_000
    queue.publish("late")
    queue.now += 5
    assert (queue.stats()["eligible"], queue.stats()["oldest_ms"]) == (1, 5)


def test_a_delay_of_a_later_version(queue: Queue) -> None:
    """X1: whether an item is delayed is said by its present version."""
    queue.publish("a", hints="60000 4 0")
    queue.publish("a", hints="")
    queue.now += 5
    assert (queue.stats()["eligible"], queue.stats()["oldest_ms"]) == (1, 5)
    queue.publish("a", hints="60000 4 0")
    assert (queue.stats()["eligible"], queue.stats()["oldest_ms"]) == (0, 0)


def test_oldest_of_all_priorities(queue: Queue) -> None:
    """The oldest is that of any priority, also of items that nobody selects."""
    for selector in ("", "color = 'red'"):
        if selector:
            queue.subscribe(W1, 5, selector=selector)
        queue.publish("low", hints="0 0 0")
        queue.now += 300
        queue.publish("usual")
        queue.now += 300
        queue.publish("high", hints="0 9 0")
        queue.now += 5
        assert (queue.stats()["eligible"], queue.stats()["oldest_ms"]) == (3, 605)
        queue.run("purge")


def test_oldest_with_turns(unopened: Queue) -> None:
    """An item that came back and has no turn yet may be older than all that have one."""
    unopened.open(fair="key")
    unopened.publish("a", key="k")
    unopened.subscribe(W1, 1)
    unopened.now += 300
    unopened.publish("b", key="k")
    # As if the budget of the call that brings it back ended before it has a turn again.
    unopened.client.zadd(unopened.key("ready"), {f"{T0}-0": T0 * 1024})
    assert unopened.stats()["oldest_ms"] == 300


@pytest.mark.parametrize("fair", ["", "key"])
def test_as_pages_tell(unopened: Queue, fair: str) -> None:
    """Whatever happens to items, it is the age of the oldest that pages show as waiting, and `eligible` is their number."""
    queue, chance = unopened, Random(3)
    queue.open(fair=fair)
    seen = set()
    for step in range(150):
        queue.now += chance.choice((0, 7, 400))
        held = [lock[0] for lock in queue.locks(W1)]
        match chance.choice(("publish", "publish", "credit", "retract", "unlock", "select")):
            case "publish":
                name = chance.choice(("", f"i{chance.randrange(step + 1)}"))
                hints = chance.choice(("", "", "0 9 0", "0 1 0", "900 4 0", f"0 4 0 \0{record('parent')}", "0 4 2000"))
                queue.publish(name, key=chance.choice("ab"), hints=hints)
            case "credit":
                queue.subscribe(W1, chance.choice((0, 0, 1, 4)))
            case "retract" if held:
                queue.retract(W1, chance.choice(held))
            case "unlock" if held:
                queue.unlock(W1, chance.choice(held), delay_ms=chance.choice((0, 900)))
            case "select" if not fair:
                queue.subscribe(W2, 1, selector=chance.choice(("", "color = 'red'")))
        queue.expire()
        waiting = [int(row[5].split("-")[1]) for row in queue.page(limit=1_000)[0] if row[1] == "waiting"]
        stats = queue.stats()
        oldest = queue.now - min(waiting) if waiting else 0
        assert (stats["eligible"], stats["oldest_ms"]) == (len(waiting), oldest), step
        seen.add(bool(waiting))
    assert seen == {True, False}
