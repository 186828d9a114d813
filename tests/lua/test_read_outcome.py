"""read_outcome: how items have ended, for as long as their node keeps it."""

from typing import Any

import pytest

from tests.lua.driver import T0, Queue
from tests.lua.test_complete import ASKED, complete, line, lines
from tests.lua.worded import ALICE, BOB, W1

LOOKS = f"0 4 0 @{ALICE}"


def kept(queue: Queue, item: str, by: str = f"{ALICE}/two", owner: str = "") -> str:
    """Read a kept outcome."""
    return str((queue.run("read_outcome", {"sender": by, "owner": owner, "item": item}).rows[0][1:] or [""])[0])


def test_kept_results(queue: Queue) -> None:
    """stanzaq#result_seconds: the end stays readable so long, for its publisher and owners; a new item's replaces it."""
    queue.open(revision=2, result_ms=10_000)
    queue.publish("a", hints=ASKED, revision=2)
    queue.publish("b", hints=LOOKS, revision=2)
    queue.subscribe(W1, 5, revision=2)
    assert lines(queue, complete(queue, "a", "one")) == [line("acknowledged", "a", result="one")]
    assert lines(queue, complete(queue, "b", "two")) == [], "it looks for the end, and is not told"
    assert kept(queue, "a") == kept(queue, "a", "owner@x/1", "1") == line("acknowledged", "a", result="one")
    assert kept(queue, "b") == line("acknowledged", "b", result="two", jid=f"@{ALICE}")
    assert kept(queue, "a", f"{BOB}/1") == kept(queue, "none") == ""
    queue.now += 9_999
    queue.publish("b", hints=LOOKS)
    complete(queue, "b", "three")
    queue.now += 1
    assert kept(queue, "a") == "" and kept(queue, "b").endswith(" three")
    queue.expire()
    assert queue.client.hkeys(queue.key("results")) == [b"b"]
    queue.now += 10_000
    queue.expire()
    assert not {"results", "result_expiry"} & queue.kept()


def test_kept_for_an_hour(queue: Queue) -> None:
    """By default an end that somebody asked for stays readable for an hour, also in a partition of an earlier version."""
    queue.publish("a", hints=LOOKS)
    queue.subscribe(W1, 1)
    complete(queue, "a", "one")
    assert not queue.client.hexists(queue.key("meta"), "result_ms")
    queue.now += 3_599_999
    assert kept(queue, "a") == line("acknowledged", "a", result="one", jid=f"@{ALICE}")
    queue.now += 1
    assert kept(queue, "a") == ""


def test_results_make_room(queue: Queue) -> None:
    """All results of a partition take at most 64 MiB: those that would expire first are removed, and the new one stays."""
    queue.open(revision=2, result_ms=10_000)
    meta = queue.key("meta")
    for item in ("a", "b", "c"):
        queue.publish(item, hints=LOOKS, revision=2)
    queue.subscribe(W1, 5, revision=2)
    complete(queue, "a", "x" * 100)
    one = int(queue.client.hget(meta, "results") or 0)
    assert one == len(kept(queue, "a"))
    queue.now += 1
    complete(queue, "b", "y" * 100)
    assert int(queue.client.hget(meta, "results") or 0) == 2 * one
    # As after many more.
    queue.client.hset(meta, "results", str(64 * 2**20))
    complete(queue, "c", "z" * 100)
    assert (kept(queue, "a"), kept(queue, "b")) == ("", "") and kept(queue, "c").endswith("z" * 100)
    # Also when a result was never counted.
    queue.client.hset(meta, "results", "1")
    queue.publish("c", hints=LOOKS)
    assert queue.client.hget(meta, "results") is None and "results" not in queue.kept()


def test_not_kept(queue: Queue) -> None:
    """Where stanzaq#result_seconds is 0 an end is only told."""
    queue.open(revision=2, result_ms=0)
    queue.publish("a", hints=ASKED, revision=2)
    queue.subscribe(W1, 1, revision=2)
    complete(queue, "a")
    assert kept(queue, "a") == "" and "results" not in queue.kept()
    assert queue.now == T0


def test_a_name_that_looks_like_a_mark(queue: Queue) -> None:
    """A JID may begin with `=` (RFC 7622 §3.3): its publisher is told, and nobody else reads the end."""
    queue.open(revision=2, result_ms=10_000)
    publisher = f"={ALICE}"
    queue.publish("a", by=publisher, hints=f"0 4 0 {publisher}/home", revision=2)
    queue.subscribe(W1, 5, revision=2)
    told = line("acknowledged", "a", result="one", jid=f"{publisher}/home")
    assert lines(queue, complete(queue, "a", "one")) == [told]
    assert kept(queue, "a", publisher) == told and kept(queue, "a") == ""


@pytest.mark.parametrize("hints", [ASKED, LOOKS])
def test_who_learns_that_an_item_is_awaited(queue: Queue, hints: str) -> None:
    """Only its publisher and owners: a stranger's answer is the same, and as soon, whether there is such an item or not."""

    def told(by: str, owner: str = "") -> list[Any]:
        rows: list[Any] = queue.run("read_outcome", {"sender": by, "owner": owner, "item": "a"}).rows
        return rows

    nothing = told(f"{BOB}/1")
    queue.publish("a", hints=hints)
    queue.subscribe(W1, 1)
    for _ in range(2):
        assert told(f"{BOB}/1") == nothing == [["ok"]]
        assert told(f"{ALICE}/two") == told("owner@x/1", "1") == [["ok", ""]]
        # A later version waits while the first one is held.
        queue.publish("a", hints=hints)
