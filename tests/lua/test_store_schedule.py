"""store_schedule: a schedule's record is replaced only by those that have read it."""

from typing import Any

from tests.lua.driver import T0, Answer, Queue

MINUTE = 60_000


def store(queue: Queue, name: str, expected: str, record: str, item: str = "", *, at: int | str = "") -> Answer:
    """Store a schedule."""
    row: dict[str, Any] = {"id": name, "expected": expected, "record": record, "item": item, "at": at}
    return queue.run("store_schedule", row)


def test_compared(queue: Queue) -> None:
    """Of two that have read the same record one replaces it; a repeat changes nothing."""
    assert store(queue, "a", "", "one", "item", at=T0 + MINUTE).words == ["ok"]
    for wrong in ("", "other", "on"):
        assert store(queue, "a", wrong, "two", at=T0).words == ["changed"]
    assert store(queue, "a", "one", "two", at=T0 + 2 * MINUTE).words == ["ok"]
    assert store(queue, "a", "one", "two", at=T0 + 2 * MINUTE).words == ["changed"]
    assert queue.run("read_schedules", {"id": "a"}).rows == [T0, ["a", "two", "item"]]


def test_due(queue: Queue) -> None:
    """The partition is due with its first schedule; when it is, the outbox has it, and again in case its frontend dies."""
    assert store(queue, "a", "", "one", at=T0 + MINUTE).due == T0 + MINUTE
    assert store(queue, "b", "", "one", at=T0 + 2 * MINUTE).due == T0 + MINUTE
    sweep = queue.run("sweep")
    assert (sweep.outbox, sweep.due) == (False, T0 + MINUTE)
    queue.now += MINUTE
    sweep = queue.run("sweep")
    assert (sweep.outbox, sweep.due) == (True, queue.now + 5_000)
    assert queue.told(sweep, "schedule") == {"schedule/a": ["one", ""]}
    assert store(queue, "a", "one", "two").due == T0 + 2 * MINUTE
    assert store(queue, "b", "one", "").due == 0
    assert queue.run("sweep").due == 0


def test_while_it_is_worked_on(queue: Queue) -> None:
    """One that is still due stays with who has read it, and comes again in five seconds each time that this fails."""
    store(queue, "a", "", "one", at=T0)
    for _attempt in range(3):
        assert queue.read_outbox() == {"schedule/a": ["one", ""]}
        assert queue.run("sweep").due == queue.now + 5_000
        queue.now += 5_000
    queue.read_outbox()
    answer = store(queue, "a", "one", "two", at=queue.now)
    assert answer.rows == [["ok", queue.now]] and not answer.outbox and answer.due == queue.now + 5_000
    assert store(queue, "a", "two", "three", at=queue.now + 1).due == queue.now + 1


def test_earlier_things(queue: Queue) -> None:
    """A schedule does not put off what is due before it."""
    queue.subscribe("w@x/1", 1)
    queue.publish("a")
    store(queue, "a", "", "one", at=T0 + 2 * MINUTE)
    assert queue.run("sweep").due == T0 + MINUTE


def test_deleted(queue: Queue) -> None:
    """Without a record a schedule is deleted, with its item and its time; other nodes' keys and this one's rest stay."""
    before = queue.kept()
    store(queue, "a", "", "one", "item", at=T0)
    assert store(queue, "a", "one", "").words == ["ok"]
    assert store(queue, "a", "one", "").words == ["changed"]
    assert store(queue, "a", "", "").words == ["ok"]
    assert queue.kept() == before


def test_too_many(queue: Queue) -> None:
    """A node has at most so many schedules; those that it has may still change."""
    for name in "abc":
        assert store(queue, name, "", "one", "item").words == ["ok"]
    assert store(queue, "d", "", "one", "item").words == ["too-many"]
    assert store(queue, "c", "one", "two").words == ["ok"]
    assert store(queue, "c", "two", "").words == ["ok"]
    assert store(queue, "d", "", "one", "item").words == ["ok"]
