"""renew: a lock's time begins again."""

from tests.lua.driver import T0, Queue
from tests.lua.worded import W1, W2


def test_time_begins_anew(queue: Queue) -> None:
    """QX12: the deadline moves to a lock time from now, the token stays, and nothing expires before."""
    queue.publish("a")
    token = queue.subscribe(W1, 1).deliveries[0].token
    queue.now += 50_000
    answer = queue.renew(W1, "a")
    assert answer.rows == [["ok", token, T0 + 110_000]] and answer.due == T0 + 110_000
    queue.now += 59_999
    assert queue.expire().notices == []
    queue.now += 1
    assert queue.expire().notices == [["unlocked", W1, "a", token]]


def test_for_so_long(queue: Queue) -> None:
    """RX8: a lock may have its own time, shorter or longer than the node's."""
    queue.publish("a")
    token = queue.subscribe(W1, 1).deliveries[0].token
    answer = queue.renew(W1, "a", lock_ms=100_000)
    assert answer.rows == [["ok", token, T0 + 100_000]] and answer.due == T0 + 100_000
    assert queue.renew(W1, "a", lock_ms=1_000).due == T0 + 1_000
    queue.now += 1_000
    assert queue.expire().notices == [["unlocked", W1, "a", token]]


def test_of_no_lock(queue: Queue) -> None:
    """QX12: without a lock nothing is renewed, and no deadline is set."""
    queue.publish("a")
    assert queue.renew("alice@x/1", "a").words == ["lock-lost"]
    assert queue.renew(W2, "a").words == ["forbidden"]
    assert "lock_deadlines" not in queue.kept()


def test_batch(queue: Queue) -> None:
    """Each row has its own result."""
    queue.publish("a", "b")
    queue.subscribe(W1, 1)
    asked = [("a", ""), ("b", ""), ("c", ""), ("a", 99)]
    rows = [{**queue.holder(W1, item, token), "lock_ms": "", "progress": "", "begun": ""} for item, token in asked]
    assert queue.run("renew", *rows).words == ["ok", "forbidden", "item-not-found", "lock-lost"]


def test_progress(queue: Queue) -> None:
    """What a holder tells is shown while its lock lasts: to owners, and to those that look at the item. Others tell nothing."""
    queue.publish("a", "b")
    token = queue.subscribe(W1, 1).deliveries[0].token

    def told(item: str = "a") -> list[str]:
        (row,) = queue.run("inspect_items", {"item": item}).rows[1]
        return [row[9][5] if row[9] else "", queue.page(item)[0][0][6]]

    assert told() == ["", ""]
    queue.now += 5
    assert queue.renew(W1, "a", token, progress="0.4 half of it").words == ["ok"]
    assert queue.renew(W2, "a", progress="1 done").words == ["forbidden"]
    queue.now += 5
    assert queue.renew(W1, "a").words == ["ok"]
    assert told() == [f"{T0 + 5} 0.4 half of it"] * 2 and told("b") == ["", ""]
    queue.renew(W1, "a", progress="- nearly")
    assert told() == [f"{T0 + 10} - nearly"] * 2
    queue.unlock(W1, "a")
    assert queue.run("inspect_items", {"item": "a"}).rows[1][0][9][5:] == [""]
    assert "progress" not in queue.kept()


def test_no_progress_is_left(queue: Queue) -> None:
    """Guarantee 1: however a lock ends, nothing is left of what its holder told."""
    queue.publish("a", "b", "c")
    queue.subscribe(W1, 3)
    for item in ("a", "b", "c"):
        queue.renew(W1, item, progress="0.1 x")
    queue.retract(W1, "a")
    queue.run("cancel", {"sender": "alice@x/1", "owner": "", "item": "b", "request": "cancel"})
    assert "progress" in queue.kept()
    queue.now += 60_001
    queue.expire()
    assert "progress" not in queue.kept()
