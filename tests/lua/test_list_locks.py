"""list_locks: a worker's locks."""

from tests.lua.driver import T0, Queue
from tests.lua.worded import W1


def test_listed(queue: Queue) -> None:
    """QX11: item, token, attempt and deadline, the earliest deadline first, of the full and the bare subscription."""
    queue.publish("a")
    first = queue.subscribe("w1@x", 1).token
    queue.now += 10
    queue.publish("b")
    second = queue.subscribe(W1, 1).token
    queue.renew(W1, "a")
    queue.now += 10
    queue.renew(W1, "a")
    assert queue.locks(W1) == [["b", second, 1, T0 + 60_010], ["a", first, 1, T0 + 60_020]]
    assert queue.locks("w1@x/other") == [["a", first, 1, T0 + 60_020]]
    assert queue.locks("w1@x") == [["a", first, 1, T0 + 60_020]]
    assert queue.locks("nobody@x/1") == []


def test_bounded(queue: Queue) -> None:
    """X7: at most 1,000 are listed, which is the highest credit."""
    for first in range(0, 1_200, 200):
        queue.publish(*(f"i{n}" for n in range(first, first + 200)), max_items=10_000)
    queue.subscribe(W1, 1_200)
    while queue.expire().more:
        pass
    assert queue.stats()["in_flight"] == 1_200
    assert len(queue.locks(W1)) == 1_000
