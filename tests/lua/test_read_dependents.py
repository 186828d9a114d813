"""Items that wait are read by id or by position; others have no parents."""

from tests.lua.dependencies import note, parents, record, wait
from tests.lua.driver import Queue


def test_read(queue: Queue) -> None:
    """Its record is there until it goes out."""
    position = wait(queue, "c", "a")
    queue.publish("d")
    rows = [{"item": "", "position": position}, {"item": "d", "position": ""}, {"item": "e", "position": ""}]
    found, *none = queue.run("read_dependents", *rows).rows
    assert found[:3] == ["ok", "0", position] and none == [["ok"], ["ok"]]
    made = queue.publish("", hints=f"0 4 0 \0{record()}").rows[0][1]
    assert queue.run("read_dependents", {"item": made, "position": ""}).rows[0][2] == made.partition("-")[2]
    assert parents(queue, "c") == [""]
    note(queue, position, 1, "acknowledged")
    assert parents(queue, "c") == []
