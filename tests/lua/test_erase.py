"""erase: what belongs to an account goes from a partition, in whatever state, and nothing else."""

from collections import Counter

import pytest

from tests.lua.driver import Queue
from tests.lua.test_complete import ASKED, complete
from tests.lua.worded import ALICE, BOB, W1

_CALLS = 300
_KINDS = ("items", "held", "leaving", "ends", "records")


def erase(queue: Queue, jid: str = ALICE, held: str = "", looks: str = "") -> dict[str, int]:
    """Erase until the end; returns the counts of all calls."""
    total, past = Counter[str](), "log 0-0"
    for _ in range(_CALLS):
        past, *counts = queue.run("erase", jid=jid, held=held, looks=looks, past=past).rows
        total.update(dict(zip(_KINDS, counts, strict=True)))
        if not past:
            return {name: count for name, count in total.items() if count}
    pytest.fail("it never ends")


def test_waiting(queue: Queue) -> None:
    """Items that wait, rest or were replaced go; those of others stay, and nothing is counted twice."""
    queue.publish("a", "named", by=ALICE)
    queue.publish("rests", hints="60000 9 90000", by=ALICE)
    queue.publish("named", body="new", by=ALICE)
    queue.publish("theirs", by=BOB)
    queue.publish("theirs", body="mine", by=ALICE)
    queue.publish("b", by=BOB)
    assert erase(queue, looks="1") == {"items": 4} and len(queue.browse()) == 5
    assert erase(queue) == {"items": 4}
    assert (list(queue.browse()), erase(queue)) == (["b"], {})
    assert erase(queue, BOB) == {"items": 1} and queue.kept() == {"meta"}


def test_held(queue: Queue) -> None:
    """What is held stays unless that is asked for; then its holder is told, and its credit takes the next item."""
    queue.publish("a", by=ALICE)
    token = queue.subscribe(W1, 1).deliveries[0].token
    queue.publish("a", body="new", by=ALICE)
    queue.publish("b", by=BOB)
    assert erase(queue) == {"held": 1}
    answer = queue.run("erase", jid=ALICE, held="1", looks="", past="log 0-0")
    assert (answer.rows[1:], answer.notices) == ([1, 0, 0, 0, 0], [["cancelled", W1, "a", token]])
    assert answer.given == [(W1, "b")]
    assert erase(queue, W1.split("/")[0]) == {"records": 1} and queue.journal() == []


def test_finished(unopened: Queue) -> None:
    """Entries that a queue keeps after their work go, and are no longer counted as kept."""
    unopened.open(keep_items=5)
    unopened.subscribe(W1, 1)
    for item, by in (("a", ALICE), ("b", BOB)):
        unopened.publish(item, by=by)
        unopened.retract(W1, item)
    assert erase(unopened) == {"items": 1}
    assert unopened.read() == ["b"] and unopened.retained()[0] == 1


def test_log(unopened: Queue) -> None:
    """Entries of a log go; a later one of the same id keeps its name."""
    unopened.open(queueing="0", keep_items=50)
    unopened.publish("a", "a", by=ALICE)
    unopened.publish("a", by=BOB)
    assert erase(unopened) == {"items": 2}
    assert unopened.read() == ["a"] and unopened.retained()[0] == 1
    assert unopened.client.hlen(unopened.key("index")) == 1


def test_ends(queue: Queue) -> None:
    """Ends of items that the account asked about go, with their results."""
    queue.publish("a", hints=ASKED, by=ALICE)
    queue.subscribe(W1, 1)
    complete(queue, "a", "one")
    assert erase(queue, BOB) == {} and erase(queue) == {"ends": 1}
    assert not {"results", "result_expiry"} & queue.kept()


def test_on_its_way(queue: Queue) -> None:
    """A dead letter on its way is counted: it will be found where it goes."""
    queue.publish("a", by=ALICE)
    queue.subscribe(W1, 1)
    queue.unlock(W1, "a", dead_letter="1")
    assert erase(queue) == {"leaving": 1}


def test_bounded(queue: Queue) -> None:
    """One call does a part; what comes next is told."""
    for number in range(30):
        queue.publish(*(f"{number}-{each}" for each in range(10)), body="x" * 20_000, by=ALICE)
    first = queue.run("erase", jid=ALICE, held="", looks="", past="log 0-0").rows
    assert first[0].startswith("log ") and 0 < first[1] < 300
    assert erase(queue) == {"items": 300 - first[1]} and not queue.browse()
