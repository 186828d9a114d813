"""browse: look, and touch nothing."""

from tests.lua.driver import T0, Queue
from tests.lua.worded import ALICE, W1


def everything(queue: Queue) -> None:
    """Put an item into each state there is."""
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
    first = queue.run("browse", {"item": "locked"}).rows
    assert first == [["locked", "locked", ALICE, T0, "one"]]


def test_by_id(queue: Queue) -> None:
    """P21: the ones asked for, in the order asked; what is not there is left out."""
    everything(queue)
    assert queue.browse("waiting", "none", "locked", "0-5-5") == {"waiting": "waiting", "locked": "locked"}


def test_an_item_has_one_name(queue: Queue) -> None:
    """The place of an item with its publisher's id is no name of it."""
    queue.publish("a")
    assert queue.browse(f"0-{T0}-0", f"0-{T0}-00") == {}


def test_limits(queue: Queue) -> None:
    """X7: cut by number and by bytes, and it says so; one item is always shown, however big."""
    queue.publish(*"abc", body="x" * 100)
    answer = queue.run("browse", limit=2)
    assert (len(answer.rows), answer.more) == (2, 1)
    answer = queue.run("browse", limit=3)
    assert (len(answer.rows), answer.more) == (3, 0)
    answer = queue.run("browse", max_bytes=250)
    assert (len(answer.rows), answer.more) == (2, 1)
    answer = queue.run("browse", max_bytes=1)
    assert (len(answer.rows), answer.more) == (1, 1)
