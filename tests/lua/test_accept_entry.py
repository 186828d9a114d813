"""accept_entry: items from other nodes, and of schedules."""

from typing import Any

import pytest

from tests.lua.driver import T0, Answer, Queue
from tests.lua.worded import W1


def admit(queue: Queue, item: str, ticket: str, body: str = "x", **more: Any) -> Answer:  # noqa: ANN401
    """Bring an item."""
    row = {"item": item, "key": "", "by": "alice@x", "body": body, "ticket": ticket}
    return queue.run("accept_entry", {**row, "hints": more.pop("hints", "")}, **more)


def test_once(queue: Queue) -> None:
    """A ticket admits an item once, also when it is finished meanwhile; it is handed out like any other."""
    queue.subscribe(W1, 1)
    answer = admit(queue, "a", "t1")
    assert (answer.rows, answer.given) == ([["ok", "a"]], [(W1, "a")])
    queue.retract(W1, "a")
    assert admit(queue, "a", "t1").words == ["duplicate"]
    assert admit(queue, "a", "t2").words == ["ok"]


def test_two_of_one_name(queue: Queue) -> None:
    """An item whose id another has here, waiting or locked, gets an id that the service makes: nothing is replaced."""
    queue.publish("a", body="here")
    for body in ("came", "came too"):
        (row,) = admit(queue, "a", f"life-0-{body}", body).rows
        assert row[0] == "ok" and row[1].startswith(f"0-{T0}-")
        assert queue.bodies()[row[1]] == body and queue.bodies()["a"] == "here"
        queue.subscribe(W1, 1)


@pytest.mark.parametrize("dedupe", ["ignore", "overwrite"])
@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("ticketed", [False, True])
def test_forged(queue: Queue, dedupe: str, done: bool, ticketed: bool) -> None:  # noqa: FBT001
    """A7: nothing that anybody publishes under an item's id or its ticket, before or after, is taken for the item."""
    forged, names = {"once": "life-0-1-1"} if ticketed else {}, ("life-0-1-1", "handed life-0-1-1")
    for name in names:
        assert queue.publish(name, dedupe=dedupe, **forged).words[0] in {"ok", "duplicate"}
    if done:
        queue.subscribe(W1, 5)
        for name in names:
            queue.retract(W1, name)
    (row,) = admit(queue, "life-0-1-1", "life-0-1-1", "letter", dedupe=dedupe).rows
    assert row[0] == "ok" and queue.bodies()[row[1]] == "letter"
    assert queue.publish("life-0-1-1", body="forged", dedupe=dedupe).words[0] in {"ok", "duplicate"}
    assert admit(queue, "life-0-1-1", "life-0-1-1", "letter", dedupe=dedupe).words == ["duplicate"]


def test_ids_that_the_service_makes(queue: Queue) -> None:
    """An id that the service has made stays; one that it may still make is not accepted."""
    made = queue.publish("").rows[0][1]
    queue.subscribe(W1, 1)
    queue.retract(W1, made)
    assert admit(queue, made, "t1").rows == [["ok", made]]
    assert queue.retract(W1, made).words == ["ok"]
    (row,) = admit(queue, f"0-{T0 + 9}-0", "t2").rows
    assert row[0] == "ok" and row[1] != f"0-{T0 + 9}-0"


def test_full(queue: Queue) -> None:
    """A full node accepts nothing."""
    queue.publish("a")
    assert admit(queue, "b", "t1", max_items="1").words == ["node-full"]
    assert admit(queue, "b", "t1").words == ["ok"]


def test_with_hints(queue: Queue) -> None:
    """Q32: the item of a schedule has a delay, a priority and a time to live; one from another node has none."""
    admit(queue, "late", "t1", hints="5000 4 0")
    admit(queue, "usual", "t2")
    admit(queue, "urgent", "t3", hints="0 9 0")
    assert queue.subscribe(W1, 5).given == [(W1, "urgent"), (W1, "usual")]
    queue.now += 5_000
    assert queue.run("sweep").given == [(W1, "late")]
