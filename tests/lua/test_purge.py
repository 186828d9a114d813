"""purge: drop waiting items."""

from tests.lua.driver import Queue
from tests.lua.test_browse import everything
from tests.lua.worded import W1


def test_leaves_the_locked(queue: Queue) -> None:
    """P25: waiting and delayed items go; locked ones, the versions behind them, and items that leave stay."""
    everything(queue)
    assert queue.run("purge").rows == [3]
    assert queue.browse() == {"locked": "locked", "dying": "dying"}
    queue.subscribe(W1, 1)
    assert [(d.item, d.body) for d in queue.retract(W1, "locked").deliveries] == [("locked", "parked")]


def test_leaves_nothing_behind(queue: Queue) -> None:
    """Guarantee 6: nothing is left of dropped items, wherever they were."""
    queue.publish(*"abcd", "")
    queue.subscribe(W1, 2)
    queue.unlock(W1, "b", delay_ms=5_000)
    queue.unsubscribe(W1, release="1")
    queue.publish(*"abd")
    assert queue.run("purge").rows == [5]
    assert queue.kept() == {"meta", "journal"}
    assert queue.subscribe(W1, 5).deliveries == []


def test_in_bounded_parts(queue: Queue) -> None:
    """X7: 300 at once, with a word that there are more; delayed ones come last."""
    queue.publish(*(f"d{n}" for n in range(10)))
    queue.subscribe(W1, 10)
    for n in range(10):
        queue.unlock(W1, f"d{n}", delay_ms=5_000)
    queue.unsubscribe(W1)
    queue.publish(*(f"i{n}" for n in range(300)))
    counts = []
    while True:
        answer = queue.run("purge")
        counts.append((answer.rows[0], answer.more))
        if answer.rows[0] == 0:
            break
    assert counts == [(300, 1), (10, 0), (0, 0)]


def test_large_items_that_nobody_selects(queue: Queue) -> None:
    """Guarantee 6: a call reads no more payload than its budget allows, wherever items wait, and the next ones do the rest."""
    queue.subscribe(W1, 1, selector="color = 'red'")
    for number in range(60):
        queue.publish(f"{number}", body="x" * 262_144)
    answer = queue.run("purge")
    dropped = list(answer.rows)
    while answer.more:
        answer = queue.run("purge")
        dropped += answer.rows
    assert sum(dropped) == 60 and max(dropped) <= 2_000 * 4_096 / 262_144
