"""lua/listing/find_repeat.lua: whether a publish repeats a stored one, as `publish` would answer it, in a full Redis."""

from random import Random
from typing import Any

import pytest

from tests.lua.dependencies import record, wait
from tests.lua.driver import Answer, Queue
from tests.lua.worded import W1


def find(queue: Queue, item: str = "", once: str = "", hints: str = "", **fixed: Any) -> Answer:  # noqa: ANN401
    """Ask for one publish."""
    return queue.run("find_repeat", {"item": item, "once": once, "hints": hints}, **fixed)


def waiting(once: str = "") -> str:
    """Return the hints of an item that waits for another."""
    return f"0 4 0 \0{record('p', once=once)}"


def test_find(queue: Queue) -> None:
    """X1, S14: by id where the node ignores repeats, by ticket anywhere, also when the item is gone; nothing is stored."""
    queue.publish("a", once="t\0d", dedupe="ignore")
    queue.publish("b")
    kept = queue.kept()
    assert find(queue, "a", dedupe="ignore").rows == [["duplicate", "a"]]
    assert find(queue, "a").rows == find(queue, "c", "u").rows == find(queue, "", dedupe="ignore").rows
    assert find(queue, "a").rows == [["out-of-memory"]]
    assert find(queue, "a", "t\0d").rows == find(queue, "a", "t").rows == [["duplicate", "a"]]
    assert find(queue, "a", "t\0e").rows == [["duplicate", "a", 1]]
    # An item of before the option counts while it is there.
    assert find(queue, "b", dedupe="ignore").words == ["duplicate"]
    assert queue.kept() == kept
    queue.run("purge")
    assert find(queue, "a", dedupe="ignore").words == ["duplicate"]
    assert find(queue, "b", dedupe="ignore").words == ["out-of-memory"]
    queue.now += 600_000
    assert find(queue, "a", dedupe="ignore").words == ["out-of-memory"]
    assert find(queue, "a", "t").words == ["duplicate"]


def test_items_that_wait(queue: Queue) -> None:
    """An item that waits for others is a repeat of any with its id."""
    position = wait(queue, "child", "p")
    assert find(queue, "child").words == ["out-of-memory"]
    assert find(queue, "child", hints=waiting()).rows == [["duplicate", "child", 0, ["0", position, record("p")]]]
    assert find(queue, "other", hints=waiting()).words == ["out-of-memory"]


@pytest.mark.parametrize("dedupe", ["ignore", "overwrite"])
def test_as_publish(queue: Queue, dedupe: str) -> None:
    """It says of each publish what `publish` then does, through locks, ends and versions."""
    chance = Random(7)
    queue.subscribe(W1, 2)
    seen = set()
    for _ in range(250):
        queue.now += chance.choice((0, 1_000, 300_000))
        name, once, waits = chance.choice("abcdef"), chance.choice(("", "", "t", "u\0d", "u\0e")), chance.random() < 0.2
        if chance.random() < 0.4:
            held = [lock[0] for lock in queue.locks(W1)]
            if held:
                queue.retract(W1, chance.choice(held))
        hints = waiting(once) if waits else ""
        told = find(queue, name, once, hints, dedupe=dedupe).words[0]
        word = queue.publish(name, once=once, dedupe=dedupe, hints=hints).words[0]
        assert (told, word) in {("duplicate", "duplicate"), ("out-of-memory", "ok")}
        seen.add(word)
    assert seen == {"ok", "duplicate"}
