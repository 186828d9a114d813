"""What became of an item is found by its id while it is there or its end is kept; its end reaches all that wait for it."""

import pytest

from tests.lua.dependencies import asked, note, wait
from tests.lua.driver import Queue
from tests.lua.worded import ALICE, W1


def test_life(queue: Queue) -> None:
    """The script that ends an item keeps its end until all who wait know it, and lets a frontend tell each of them."""
    queue.publish("a", "b")
    (_, number, token) = asked(queue, "a", "r1")
    assert number == "0" and asked(queue, "a", "r1") == ["awaited", "0", token], "a repeat"
    assert asked(queue, "a", "r2") == ["awaited", "0", token]
    assert asked(queue, "a", "r3", register=False) == ["awaited", "0", token]
    queue.subscribe(W1, 5)
    assert not queue.retract(W1, "b").outbox
    children = [f"child/{token}/{name}" for name in ("r1", "r2")]
    told = queue.told(queue.retract(W1, "a"), "child")
    assert list(told) == children and told[children[0]][0].startswith("acknowledged 0 1 0 ")
    assert asked(queue, "a", "r1") == ["awaited", "0", token], "until it knows the end"
    assert asked(queue, "a", "r3") == ["unknown"]
    queue.end(children[0])
    queue.now += 5_000
    assert list(queue.told(queue.expire(), "child")) == children[1:]
    queue.end(children[1])
    queue.now += 10_000
    assert not queue.expire().outbox
    assert queue.kept() == {"meta", "subscribers", "ready_subscribers", "journal"}


@pytest.mark.parametrize("how", ["cancelled", "dead", "moved", "purged", "deleted", "expired", "node-full"])
def test_ends(unopened: Queue, how: str) -> None:
    """However an item leaves its queue, those that wait are told."""
    queue = unopened
    queue.open(max_deliveries=1)
    queue.publish("a", hints="0 4 1000")
    (_, _, token) = asked(queue, "a", "r")
    match how:
        case "cancelled":
            answer = queue.run("cancel", {"sender": ALICE, "owner": "1", "item": "a", "request": ""})
        case "dead":
            queue.subscribe(W1, 1)
            answer = queue.unlock(W1, "a")
        case "moved":
            answer = queue.run("move_items", {"position": token, "item": "a", "to": "other"})
        case "purged":
            answer = queue.run("purge")
        case "deleted":
            answer = queue.retract(ALICE, "a", owner="1")
        case "expired":
            queue.now += 1_000
            answer = queue.expire()
        case _:
            answer = queue.publish("b", max_items=1, node_full="retract-oldest")
    ((line,),) = queue.told(answer, f"child/{token}").values()
    state = {"moved": "dead", "node-full": "dead", "purged": "cancelled", "deleted": "cancelled"}.get(how, how)
    assert line.split()[0] == state


def test_versions(queue: Queue) -> None:
    """Who waits for an item waits for its later version, also for one that takes its place when the lock ends."""
    queue.publish("a")
    (_, _, token) = asked(queue, "a", "r")
    queue.publish("a", hints="0 9 0")
    assert asked(queue, "a", "s") == ["awaited", "0", token]
    queue.subscribe(W1, 1)
    queue.publish("a")
    queue.unlock(W1, "a")
    assert asked(queue, "a", "t", token=token) == ["awaited", "0", token]
    assert asked(queue, "a", "u", token="1-1") == ["unknown"], "another item of this id"
    queue.expire()
    told = queue.told(queue.retract(W1, "a"), "child")
    assert list(told) == [f"child/{token}/{name}" for name in "rst"]


def test_kept_end(unopened: Queue) -> None:
    """stanzaq#result_seconds: an end that is kept is found, unless the id has a new item; then for as long as it is kept."""
    queue = unopened
    queue.open(result_ms=10_000)
    queue.publish("a", "b", hints="0 4 0 @alice@x/one")
    queue.subscribe(W1, 5)
    queue.retract(W1, "a")
    state, _, line = asked(queue, "a", "r")
    assert (state, line.split()[0]) == ("ended", "acknowledged")
    assert asked(queue, "a", "r", token="5-5")[0] == "ended"
    assert asked(queue, "b", "r")[0] == "awaited"
    queue.publish("a")
    assert asked(queue, "a", "s")[0] == "awaited"
    queue.retract(W1, "a")
    queue.now += 10_000
    assert asked(queue, "a", "t") == ["unknown"]


def test_unfinished(queue: Queue) -> None:
    """Nobody can wait for an item before its own parents know that it waits, so there is no circle."""
    position = wait(queue, "a", "b")
    assert asked(queue, "a", "r") == ["unfinished", "0"]
    note(queue, position, 1, "awaited")
    assert asked(queue, "a", "r")[0] == "awaited"
    # The end of `b` reaches `a`, and its end whoever waits for `a`.
    answer = note(queue, position, 1, "dead")
    assert list(queue.told(answer, "child")) == [f"child/{position}/r"]
