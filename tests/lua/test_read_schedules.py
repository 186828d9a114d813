"""read_schedules: schedules by their ids, and pages of all."""

from typing import Any

from tests.lua.driver import T0, Queue


def store(queue: Queue, name: str, at: int | str = "", item: str = "item") -> None:
    """Make a schedule."""
    row: dict[str, Any] = {"id": name, "expected": "", "record": f"record {name}", "item": item, "at": at}
    queue.run("store_schedule", row, most=1000)


def read(queue: Queue, **asked: Any) -> list[Any]:  # noqa: ANN401
    """Return the schedules that are read, after the time."""
    now, *found = queue.run("read_schedules", **asked).rows
    assert now == queue.now
    return found


def test_by_id(queue: Queue) -> None:
    """One schedule comes with its item, an unknown one not at all."""
    store(queue, "a")
    assert queue.run("read_schedules", {"id": "a"}).rows == [T0, ["a", "record a", "item"]]
    assert queue.run("read_schedules", {"id": "b"}).rows == [T0]


def test_pages(queue: Queue) -> None:
    """Pages are by id, without items."""
    for name in ("b", "a", "d", "c"):
        store(queue, name, T0)
    assert read(queue, limit=2) == [["a", "record a", ""], ["b", "record b", ""]]
    assert [name for name, *_ in read(queue, after="b")] == ["c", "d"]
    assert read(queue, after="d") == []
