"""end_entries: what has arrived, or is for nobody any more, leaves the outbox with everything that it had."""

import pytest

from tests.lua.dependencies import asked, note, states, wait
from tests.lua.driver import Queue, text
from tests.lua.test_read_outbox import cancel, die, fill, scores
from tests.lua.worded import ALICE, W1


@pytest.mark.parametrize("is_read", [False, True])
def test_nothing_is_left(queue: Queue, is_read: bool) -> None:  # noqa: FBT001
    """The last step of a delivery frees all that was kept for it, and may be repeated."""
    queue.publish("dead", body="an earlier version")
    left = set(fill(queue))
    assert not is_read or queue.read_outbox().keys() == left
    for entry in sorted(left):
        assert len(scores(queue)) == len(left)
        for _ in range(2):
            assert queue.end(entry).words == ["ok"]
        left.remove(entry)
    queue.now += 90_000
    assert not queue.expire().outbox and queue.run("purge").rows == [1], "the item whose parents were asked for"
    stays = {"meta", "subscribers", "ready_subscribers", "journal", "schedules", "schedule_items"}
    assert queue.kept() == stays | {"results", "result_expiry"}


def test_some_of_several(queue: Queue) -> None:
    """Others stay, and so does what was never on its way: a waiting or locked item is not ended under its position."""
    die(queue, "a", "b", "c")
    first, second, third = scores(queue)
    queue.publish("d", "e")
    assert queue.end(first, third).words == ["ok", "ok"]
    for position, _ in queue.client.xrange(queue.key("log")) or []:
        if f"item/{text(position)}" != second:
            queue.end(f"item/{text(position)}", f"reply/{text(position)}")
    assert queue.browse() == {"b": "dying", "d": "locked", "e": "locked"}
    assert list(scores(queue)) == [second]


def test_goes_on(queue: Queue) -> None:
    """With a target an item stays, unless it has been read since: then it may have arrived at the earlier target."""
    die(queue, "a")
    (entry,) = queue.read_outbox()
    for _ in range(2):
        assert queue.end(entry, "item/1-1", target="elsewhere", attempt=1).words == ["ok", "superseded"]
    queue.now += 5_000
    assert queue.read_outbox()[entry][4:8] == [W1, "torn", "", "elsewhere"]
    assert queue.end(entry, target="later", attempt=1).words == ["superseded"]
    queue.now += 10_000
    assert queue.read_outbox()[entry][7] == "elsewhere"


def test_children(queue: Queue) -> None:
    """An end goes with the last child that learns of it, or is gone."""
    queue.publish("a")
    (token,) = {asked(queue, "a", name)[2] for name in "rst"}
    entries = [f"child/{token}/{name}" for name in "rst"]
    cancel(queue, "a")
    for number, entry in enumerate(entries):
        assert queue.client.hkeys(queue.key("outbox_records")) == [f"end/{token}".encode()]
        assert list(scores(queue)) == entries[number:]
        for _ in range(2):
            queue.end(entry)
    assert not {"awaited", "outbox", "outbox_records", "replies"} & queue.kept()


def test_a_child_that_leaves_early(queue: Queue) -> None:
    """Its parents' partitions forget it, so that `awaited` has no more than there are children; others still wait."""
    queue.publish("a", "b")
    tokens = [asked(queue, item, f"{item}{number}")[2] for number in range(2) for item in "ab"][:2]
    first, second = (f"child/{token}/{item}" for token, item in zip(tokens, "ab", strict=True))
    queue.end(f"{second}0", f"{second}none", "child/1-1/none")
    assert queue.client.zcard(queue.key("awaited")) == 2 * 3
    assert list(queue.told(cancel(queue, "b"), "child")) == [f"{second}1"]
    # Nobody waits any more for an item that has not ended; somebody may again.
    queue.end(f"{second}1", f"{first}0", f"{first}1")
    assert "awaited" not in queue.kept() and asked(queue, "a", "a2") == ["awaited", "0", tokens[0]]
    queue.end(f"{first}2")
    assert not queue.retract(ALICE, "a", owner="1").outbox
    assert queue.kept() == {"meta"}


def test_only_parents_that_know_it_are_told(queue: Queue) -> None:
    """An item that leaves while no parent knows it leaves nothing; otherwise its record says which ones are to forget it."""
    wait(queue, "a", "p")
    assert not cancel(queue, "a").outbox
    position = wait(queue, "b", "p", "q")
    note(queue, position, 2, "awaited")
    ((left,),) = queue.told(cancel(queue, "b"), "left").values()
    assert states(left) == ["", "awaited"] and list(scores(queue)) == [f"left/{position}"]
