"""lua/lib/items/journal.lua: what the node's option `stanzaq#journal` adds to records."""

import pytest

from tests.lua.driver import Queue
from tests.lua.test_cancel import cancel
from tests.lua.worded import W1

NAMED = {"publisher": "alice@x", "key": "gold"}


def _found(queue: Queue) -> list[tuple[str | int, ...]]:
    return [(row["type"], row["item"], row.get("publisher", ""), row.get("key", "")) for row in queue.journal()]


def _end_all(queue: Queue) -> None:
    """Let attempts end in every way, the last one before it began."""
    queue.publish("done", "back", "bad", "gone", "late", key="gold")
    queue.publish("old", key="gold", hints="3600000 4 5000")
    queue.subscribe(W1, 5)
    queue.retract(W1, "done")
    queue.unlock(W1, "back", delay_ms=3_600_000)
    queue.unlock(W1, "bad", dead_letter="1")
    cancel(queue, "gone")
    queue.now += 60_000
    queue.expire()


ENDS = {
    ("acknowledged", "done"), ("released", "back"), ("dead-lettered", "bad"), ("cancelled", "gone"),
    ("expired", "late"), ("perished", "old"),
}  # fmt: skip


@pytest.mark.parametrize("names", ["publisher", "key", "publisher key", ""])
def test_named(unopened: Queue, names: str) -> None:
    """Records of every end name who published the item and its key, as the option says; without it, neither."""
    unopened.open(journal=names)
    _end_all(unopened)
    expected = tuple(value if name in names.split() else "" for name, value in NAMED.items())
    assert {row[:2] for row in _found(unopened)} >= ENDS
    assert {row[2:] for row in _found(unopened)} == {expected}
    # It is bounded all the same.
    assert unopened.client.xlen(unopened.key("journal")) < 20


def test_of_the_delivered_version(unopened: Queue) -> None:
    """It is the publisher of the version that was delivered; an item without a key has none."""
    unopened.open(journal="publisher key")
    unopened.publish("a")
    unopened.publish("a", by="bob@x")
    unopened.subscribe(W1, 1)
    unopened.publish("a", by="carol@x", key="k")
    unopened.retract(W1, "a")
    unopened.retract(W1, "a")
    assert _found(unopened) == [("acknowledged", "a", "bob@x", ""), ("acknowledged", "a", "carol@x", "k")]


def test_an_entry_that_is_gone(unopened: Queue) -> None:
    """Where somebody has removed the entry, the record has its usual fields."""
    unopened.open(journal="publisher key")
    unopened.publish("a")
    unopened.subscribe(W1, 1)
    unopened.client.delete(unopened.key("log"))
    unopened.retract(W1, "a")
    assert _found(unopened) == [("acknowledged", "a", "", "")]
