"""move_items: items move to other nodes."""

from typing import Any

from tests.lua.driver import Answer, Queue
from tests.lua.worded import W1, W2


def survey(queue: Queue) -> dict[str, tuple[str, str]]:
    """Return position and state of each item by its id."""
    return {row[1]: (row[0], row[2]) for row in queue.run("inspect_items").rows[1]}


def transfer(queue: Queue, *items: str, to: str = "other", **fixed: Any) -> Answer:  # noqa: ANN401
    """Move items."""
    known = survey(queue)
    return queue.run("move_items", *({"position": known[item][0], "item": item, "to": to} for item in items), **fixed)


def arrived(queue: Queue, answer: Answer) -> None:
    """Let all arrive."""
    queue.end(*queue.told(answer, "item"))


def test_wherever_they_wait(queue: Queue) -> None:
    """Items that came back, are delayed or are not reached yet: each moves once, and the rest keeps its order."""
    queue.publish("a", "b", "c", "d", "e", "f")
    made = queue.publish("").rows[0][1]
    queue.subscribe(W1, 3)
    queue.subscribe(W1, 1)
    queue.unlock(W1, "b")
    queue.unlock(W1, "c", delay_ms=5_000)
    answer = transfer(queue, "b", "c", "e", made)
    assert answer.words == ["ok"] * 4
    letters = sorted(queue.letters(answer), key=lambda one: one.body)
    told = [(one.item, one.body, one.attempts, one.jid, one.target) for one in letters if one.item != made]
    assert told == [(item, f"{item} at 0", tries, ">other", "other") for item, tries in (("b", 1), ("c", 1), ("e", 0))]
    assert len(letters) == 4
    counted = queue.stats()
    assert [counted[name] for name in ("waiting", "delayed", "in_flight", "dying")] == [2, 0, 1, 4]
    assert survey(queue)[made][1] == "dying"
    queue.end(*(one.entry for one in letters))
    queue.subscribe(W2, 10)
    assert [item for item, (_, state) in survey(queue).items() if state == "locked"] == ["a", "d", "f"]
    for jid, item in ((W1, "a"), (W2, "d"), (W2, "f")):
        assert queue.retract(jid, item).words == ["ok"]
    assert not {"log", "index", "replaced", "ready", "delayed", "history", "outbox", "outbox_items"} & queue.kept()


def test_is_taken_up_again(queue: Queue) -> None:
    """Until it has arrived it is due again, also when its id is in use again meanwhile."""
    queue.publish("a", "b", body="one")
    (letter,) = queue.letters(transfer(queue, "b"))
    queue.publish("b", body="two")
    queue.now += 5_000
    assert queue.letters(queue.expire()) == [letter]
    queue.end(letter.entry)
    queue.now += 10_000
    assert not queue.expire().outbox
    queue.subscribe(W1, 10)
    assert queue.bodies() == {"a": "one", "b": "two"}


def test_the_latest_version_goes(queue: Queue) -> None:
    """A republished item moves with its new payload, and nothing of it stays."""
    queue.publish("a", body="one")
    queue.publish("a", body="two")
    (letter,) = queue.letters(transfer(queue, "a"))
    assert letter.body == "two"
    queue.end(letter.entry)
    assert queue.client.xlen(queue.key("log")) == 0 and queue.subscribe(W1, 1).given == []


def test_not_what_is_held(queue: Queue) -> None:
    """An item that is locked, on its way, gone, or has another id by now stays."""
    queue.publish("a", "b", "c")
    known = survey(queue)
    queue.subscribe(W1, 1)
    transfer(queue, "b")
    rows = [{"position": known[item][0], "item": item, "to": "other"} for item in ("a", "b")]
    rows += [{"position": known["c"][0], "item": "x", "to": "other"}, {"position": "1-1", "item": "c", "to": "other"}]
    assert queue.run("move_items", *rows).words == ["item-not-found"] * 4


def test_the_next_of_a_group(unopened: Queue) -> None:
    """When the head of a group has moved, the next one of the group goes out."""
    unopened.open(ordered="1")
    unopened.publish("a", "b", key="k")
    unopened.subscribe(W1, 1)
    unopened.unlock(W1, "a", delay_ms=60_000)
    answer = transfer(unopened, "a")
    assert answer.given == [(W1, "b")]
    arrived(unopened, answer)
    unopened.retract(W1, "b")
    assert not {"group_heads", "group_of", "group_blocked", "log"} & unopened.kept()


def test_a_head_that_the_cursor_has_not_reached(unopened: Queue) -> None:
    """A later version that became an item of its own heads its group from beyond the cursor: its group goes on without it."""
    unopened.open(ordered="1")
    unopened.publish("a", key="k")
    unopened.subscribe(W1, 1)
    unopened.publish("free")
    unopened.publish("b", key="k")
    unopened.publish("a", key="k", body="later")
    assert unopened.retract(W1, "a").given == [(W1, "a")]
    assert unopened.unlock(W1, "a", delay_ms=60_000).given == [(W1, "free")]
    arrived(unopened, transfer(unopened, "a"))
    assert unopened.retract(W1, "free").given == [(W1, "b")]
    unopened.retract(W1, "b")
    assert not {"group_heads", "group_of", "group_blocked", "log"} & unopened.kept()
