"""inspect_items: all details of items."""

from typing import Any

from tests.lua.driver import T0, Queue
from tests.lua.worded import ALICE, HARD, W1, W2


def look(queue: Queue, *items: str, **fixed: Any) -> list[list[Any]]:  # noqa: ANN401  (columns of many types)
    """Inspect; return rows."""
    found: list[list[Any]] = queue.run("inspect_items", *({"item": item} for item in items), **fixed).rows[1]
    return found


def test_every_state(queue: Queue) -> None:
    """Each item comes with its state, its present payload, its lock, its attempts and its former holders."""
    queue.publish("a", key="k")
    queue.publish("b", "c", "d", "e")
    queue.subscribe(W1, 3)
    queue.unlock(W1, "b", delay_ms=5_000)
    queue.unlock(W1, "c", dead_letter="1")
    queue.publish("e", body="new")
    queue.subscribe(W1, 0)
    queue.unlock(W1, "d")
    rows = {row[1]: row[2:] for row in look(queue)}
    assert [row[0] for row in rows.values()] == ["locked", "delayed", "dying", "waiting", "locked"]
    state, by, key, published, body, attempts, until_ms, lock, holders, *_asked = rows["a"]
    assert (state, by, key, published, body, attempts, until_ms, holders) == (
        "locked",
        ALICE,
        "k",
        T0,
        "a at 0",
        1,
        0,
        [],
    )
    assert lock == [W1, lock[1], T0, T0 + 60_000, "f1", ""]
    history = f"{T0} released {len(W1)} {W1} "
    assert rows["b"][5:] == [1, T0 + 5_000, [], [W1], 4, 0, history, []]
    assert rows["d"][5:] == [1, 0, [], [W1], 4, 0, history, []]
    # A locked item is shown with its holder's payload, not with the later one.
    assert (rows["e"][0], rows["e"][4]) == ("locked", "e at 0")


def test_goes_on(queue: Queue) -> None:
    """It reads the log in bounded parts, up to the given end, and returns its position."""
    queue.publish(*(f"i{n}" for n in range(5)))
    end = look(queue)[2][0]
    names, after = [], "0-0"
    while after:
        after, found = queue.run("inspect_items", limit=2, past=after).rows
        names += [row[1] for row in found]
    assert names == [f"i{n}" for n in range(5)]
    assert [row[1] for row in look(queue, till=end)] == ["i0", "i1", "i2"]
    come, found = queue.run("inspect_items", max_bytes=1).rows
    assert ([row[1] for row in found], come) == (["i0"], found[0][0])


def test_by_name(queue: Queue) -> None:
    """Items are found by ids of any kind; unknown ones are skipped."""
    queue.publish(*HARD)
    made = queue.publish("").rows[0][1]
    assert [row[1] for row in look(queue, *HARD, made, "nothing")] == [*HARD, made]


def test_what_is_done_is_not_there(unopened: Queue) -> None:
    """Entries that retention keeps are no items; those of a log are."""
    unopened.open(keep_items=100)
    unopened.publish("a", "b")
    unopened.subscribe(W2, 1)
    unopened.retract(W2, "a")
    assert [row[1] for row in look(unopened)] == ["b"]
    assert look(unopened, "a") == []


def test_a_log(unopened: Queue) -> None:
    """What a log keeps can be looked at too."""
    unopened.open(queueing="0", keep_items=100)
    unopened.publish("a")
    assert [row[1:3] for row in look(unopened)] == [["a", "kept"]]
