"""read_log: the log as it is, whatever happened to the items."""

import pytest

from tests.lua.driver import T0, Queue
from tests.lua.worded import W1


@pytest.fixture
def log(unopened: Queue) -> Queue:
    """Return a queue that keeps ten entries, and has a, b done, c locked and d waiting."""
    unopened.open(keep_items=10)
    unopened.subscribe(W1, 1)
    unopened.publish("a", "b", "c", "d", key="g")
    unopened.retract(W1, "a")
    unopened.retract(W1, "b")
    return unopened


def test_all(log: Queue) -> None:
    """E22: from the earliest to the latest, done or not, with all fields of each."""
    _code, gap, earliest, latest, after, found = log.log_page()
    assert (gap, earliest, latest, after) == (0, f"{T0}-0", f"{T0}-3", f"{T0}-3")
    assert [row[1] for row in found] == ["a", "b", "c", "d"]
    assert found[0] == [f"{T0}-0", "a", "g", "alice@x", "a at 0"]


@pytest.mark.parametrize(
    ("start", "limit", "items", "more"),
    [
        ("@earliest", 2, "ab", 1),
        ("@earliest", 4, "abcd", 0),
        (f">{T0}-0", 2, "bc", 1),
        (f"={T0}-2", 9, "cd", 0),
        (f">{T0}-3", 9, "", 0),
        ("@latest", 9, "", 0),
        ("@earliest", 0, "", 1),
        ("@latest", 0, "", 0),
        (f"t{T0}", 1, "a", 1),
    ],
)
def test_parts(log: Queue, start: str, limit: int, items: str, more: int) -> None:
    """It continues after the last answer, and says whether there is more."""
    answer = log.run("read_log", start=start, limit=limit)
    assert ([row[1] for row in answer.rows[0][5]], answer.more) == (list(items), more)


def test_bytes(unopened: Queue) -> None:
    """It is cut by size too, but never to nothing."""
    unopened.open()
    unopened.publish("a", "b", "c", body="x" * 100)
    answer = unopened.run("read_log", start="@earliest", max_bytes=250)
    assert ([row[1] for row in answer.rows[0][5]], answer.rows[0][4], answer.more) == (["a", "b"], f"{T0}-1", 1)
    answer = unopened.run("read_log", start=f">{T0}-1", max_bytes=50)
    assert ([row[1] for row in answer.rows[0][5]], answer.more) == (["c"], 0)


def test_many(unopened: Queue) -> None:
    """More than one round of reading returns all of them, once, in order."""
    unopened.open(queueing="0", keep_items=1000)
    names = [f"i{number}" for number in range(70)]
    unopened.publish(*names)
    assert unopened.read(limit=100) == names
    assert unopened.read(limit=50) == names[:50]


def test_gap(unopened: Queue) -> None:
    """EX7: only a reader that asks for trimmed entries has a gap."""
    unopened.open(queueing="0", keep_items=2)
    unopened.publish("a", "b", "c", "d")
    assert unopened.log_page(f"={T0}-1")[:3] == ["ok", 1, f"{T0}-2"]
    assert unopened.log_page(f">{T0}-1")[1] == 0
    assert unopened.log_page()[1] == 0


def test_nothing(queue: Queue) -> None:
    """An empty log has an end and no beginning; a start in the future is refused."""
    assert queue.log_page() == ["ok", 0, "", "0-0", "0-0", []]
    assert queue.log_page(f"={T0}-0") == ["offset-not-found"]
    assert queue.log_page(f"t{T0 + 1}") == ["offset-not-found"]


def test_the_services_ids(queue: Queue) -> None:
    """An item without a publisher's id has the same id as in its delivery."""
    queue.publish("")
    assert queue.read() == [f"0-{T0}-0"]


def test_a_deleted_entry_is_a_gap_where_it_was(unopened: Queue) -> None:
    """EX7: a read that ends before a deleted entry has no gap; one that trimming overtook has it at once."""
    unopened.open(queueing="0", keep_items=9)
    unopened.publish(*"abcdef")
    unopened.retract("alice@x/1", "e")
    gaps = []
    for start in ("@earliest", f">{T0}-0", f">{T0}-2", f">{T0}-4"):
        _code, gap, *_, found = unopened.log_page(start, limit=2)
        gaps.append((gap, [row[1] for row in found]))
    assert gaps == [(0, ["a", "b"]), (0, ["b", "c"]), (1, ["d", "f"]), (0, ["f"])]
    unopened.open(revision=2, queueing="0", keep_items=4)
    unopened.expire()
    assert unopened.log_page(f"={T0}-0", limit=1)[1] == 1
