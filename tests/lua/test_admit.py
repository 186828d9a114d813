"""admit: items come from other nodes."""

from typing import Any

from tests.lua.driver import T0, Answer, Queue
from tests.lua.worded import W1


def admit(queue: Queue, item: str, ticket: str, body: str = "x", **fixed: Any) -> Answer:  # noqa: ANN401
    """Take an item in."""
    return queue.run("admit", {"item": item, "key": "", "by": "alice@x", "body": body, "once": ticket}, **fixed)


def test_once(queue: Queue) -> None:
    """An item is taken in once by its ticket, also when it is done meanwhile, and is handed out like any other."""
    queue.subscribe(W1, 1)
    answer = admit(queue, "a", "t1")
    assert (answer.rows, answer.given) == ([["ok", "a"]], [(W1, "a")])
    queue.retract(W1, "a")
    assert admit(queue, "a", "t1").words == ["duplicate"]
    assert admit(queue, "a", "t2").words == ["ok"]


def test_two_of_one_name(queue: Queue) -> None:
    """One whose id another has here, waiting or locked, takes its ticket for an id: nothing is replaced."""
    queue.publish("a", body="here")
    assert admit(queue, "a", "life-0-1-1", "came").rows == [["ok", "life-0-1-1"]]
    assert queue.bodies() == {"a": "here", "life-0-1-1": "came"}
    queue.subscribe(W1, 1)
    assert admit(queue, "a", "life-0-1-2", "came").rows == [["ok", "life-0-1-2"]]
    # Long after, when the ticket is forgotten: it is still there.
    queue.now += 100_000_000
    assert admit(queue, "a", "life-0-1-2", "came").words == ["duplicate"]


def test_ids_that_the_service_makes(queue: Queue) -> None:
    """An id that the service made once keeps its name; one that it may yet make is not given away."""
    made = queue.publish("").rows[0][1]
    queue.subscribe(W1, 1)
    queue.retract(W1, made)
    assert admit(queue, made, "t1").rows == [["ok", made]]
    assert queue.retract(W1, made).words == ["ok"]
    assert admit(queue, f"0-{T0 + 9}-0", "t2").rows == [["ok", "t2"]]


def test_full(queue: Queue) -> None:
    """A full node takes nothing in."""
    queue.publish("a")
    assert admit(queue, "b", "t1", max_items="1").words == ["node-full"]
    assert admit(queue, "b", "t1").words == ["ok"]
