"""browse: list items, change nothing."""

from itertools import chain

from tests.lua.driver import T0, Queue
from tests.lua.worded import ALICE, W1


def everything(queue: Queue) -> None:
    """Put an item into each state."""
    queue.publish("locked", "delayed", "dying", body="one")
    queue.subscribe(W1, 3)
    queue.unlock(W1, "delayed", delay_ms=5_000)
    queue.unlock(W1, "dying", dead_letter="1")
    queue.publish("locked", body="parked")
    queue.subscribe(W1, 0)
    queue.now += 1
    queue.publish("waiting", "", body="one")
    queue.publish("waiting", body="two")


def test_states(queue: Queue) -> None:
    """P21: each item once, in order, with its state; versions behind a lock or replaced are not items."""
    everything(queue)
    made = f"0-{T0 + 1}-1"
    assert queue.browse() == {
        "locked": "locked", "delayed": "delayed", "dying": "dying", "waiting": "waiting", made: "waiting",
    }  # fmt: skip
    assert queue.bodies()["waiting"] == "two" and queue.bodies()["locked"] == "one"
    rows, reached = queue.page("locked")
    assert (rows, reached) == ([["locked", "locked", ALICE, T0, "one", f"0-{T0}-0", ""]], "")


def test_by_id(queue: Queue) -> None:
    """P21: the requested items in the requested order, without unknown ones."""
    everything(queue)
    assert queue.browse("waiting", "none", "locked", "0-5-5") == {"waiting": "waiting", "locked": "locked"}


def test_an_item_has_one_name(queue: Queue) -> None:
    """The position of an item with its publisher's id is not a second id."""
    queue.publish("a")
    assert queue.browse(f"0-{T0}-0", f"0-{T0}-00") == {}


def test_limits(queue: Queue) -> None:
    """X7: cut by number and by bytes, which is reported; one item is always shown, however big."""
    queue.publish(*"abc", body="x" * 100)
    for fixed, shown in (({"limit": 2}, 2), ({"limit": 3}, 3), ({"max_bytes": 250}, 2), ({"max_bytes": 1}, 1)):
        rows, reached = queue.page(**fixed)
        assert (len(rows), reached) == (shown, "" if shown == 3 else rows[-1][5])


def test_count(queue: Queue) -> None:
    """XEP-0059 §2.7: the number of items, without listing any; finished ones and versions do not count."""
    queue.open(revision=2, keep_items=10)
    everything(queue)
    queue.publish("done")
    queue.subscribe(W1, 10)
    queue.retract(W1, "done")
    assert queue.run("browse", limit=0).rows == [5, "", []]


def pages(queue: Queue, most: int, **fixed: str) -> list[list[str]]:
    """Go through all items page by page, forwards or backwards."""
    found, end = [], "before" if fixed else "after"
    while True:
        rows, reached = queue.page(limit=most, **fixed)
        found.append([row[0] for row in rows])
        if not reached:
            return found
        fixed[end] = reached


def test_pages(queue: Queue) -> None:
    """XEP-0059 §2.2, §2.3, §2.5: forwards and backwards through all items, each once and in order, whatever state they are in."""
    everything(queue)
    whole = list(queue.browse())
    for most in (1, 2, 3, 50):
        # Versions take room in a page and are not shown.
        assert all(len(page) <= most for page in pages(queue, most))
        assert list(chain(*pages(queue, most))) == whole
        assert list(chain(*reversed(pages(queue, most, backwards="1")))) == whole


def test_pages_beside_what_is_kept(queue: Queue) -> None:
    """Kept entries of finished items are skipped, and items are found wherever they are, in the order of the log."""
    queue.open(revision=2, keep_items=100)
    queue.publish(*(f"i{n}" for n in range(12)))
    queue.subscribe(W1, 10)
    for number in (0, 3, 4, 9):
        queue.retract(W1, f"i{number}")
    queue.unlock(W1, "i5", delay_ms=9_000)
    queue.unlock(W1, "i6", dead_letter="1")
    queue.subscribe(W1, 0)
    queue.unlock(W1, "i8")
    left = ["i1", "i2", "i5", "i6", "i7", "i8", "i10", "i11"]
    assert list(chain(*pages(queue, 3))) == left
    assert pages(queue, 3, backwards="1") == [left[5:], left[2:5], left[:2]]


def test_a_place_outlives_its_item(queue: Queue) -> None:
    """A page continues after an item that has gone, and shows newer ones."""
    queue.publish(*"abcd")
    _rows, reached = queue.page(limit=2)
    queue.subscribe(W1, 2)
    queue.subscribe(W1, 0)
    queue.retract(W1, "b")
    queue.publish("e")
    assert [row[0] for row in queue.page(after=reached)[0]] == ["c", "d", "e"]
    assert [row[0] for row in queue.page(before=reached, backwards="1")[0]] == ["a"]


def test_places_of_other_partitions(queue: Queue) -> None:
    """Of equal positions that of the lower partition comes first: none is shown twice, and none is skipped."""
    queue.publish("a")
    here, there = f"0-{T0}-0", f"1-{T0}-0"
    assert queue.browse(after=here) == {} == queue.browse(after=there)
    assert queue.browse(before=here, backwards="1") == {}
    assert queue.browse(before=there, backwards="1") == {"a": "waiting"}


def test_versions_alone(queue: Queue) -> None:
    """A part of the log without items differs from its end."""
    queue.publish("a", "b", body="one")
    queue.publish("a", "b", body="two")
    queue.publish("c")
    rows, reached = queue.page(limit=2)
    assert [row[0] for row in rows] == ["a", "b"]
    rows, reached = queue.page(limit=2, after=reached)
    assert (rows, reached != "") == ([], True)
    assert list(queue.browse(limit=2, after=reached)) == ["c"]
