"""raise_numbers: what a partition gives after a copy was put back is above what was given after the copy was made."""

from tests.lua.driver import T0, Queue
from tests.lua.worded import W1

FLOOR = T0 + 3_600_000
"""When the copy is put back, while the clock here is an hour behind."""


def test_above_what_was_given(queue: Queue) -> None:
    """Guarantee 10: with a clock that is behind, tokens and positions are above those of the time that is named; order stays."""
    queue.publish("a", "b")
    (before,) = queue.subscribe(W1, 1).deliveries
    before_ms, token = queue.run("raise_numbers", floor_ms=FLOOR, check="").rows
    assert (before_ms, token) == (queue.now, before.token)
    queue.publish("c")
    queue.retract(W1, before.item)
    after = queue.subscribe(W1, 2).deliveries[-1]
    assert after.item == "c" and after.token > FLOOR * 1000
    assert int(after.position.partition("-")[0]) >= FLOOR


def test_never_lower(queue: Queue) -> None:
    """A time that has passed lowers nothing, and a check changes nothing."""
    queue.publish("a")
    queue.subscribe(W1, 1)
    before = queue.client.hgetall(queue.key("meta"))
    queue.run("raise_numbers", floor_ms=FLOOR, check="1")
    assert queue.client.hgetall(queue.key("meta")) == before
    queue.run("raise_numbers", floor_ms=T0 - 1, check="")
    after = queue.client.hgetall(queue.key("meta"))
    assert int(after[b"token"]) > int(before[b"token"]) and after[b"tail"] == before[b"tail"]
