"""end_handover: a hand-over has arrived."""

from tests.lua.driver import Queue, text
from tests.lua.worded import W1


def test_forgets(queue: Queue) -> None:
    """Design §5: the second step of a hand-over frees the item, with its later version, and may be repeated."""
    queue.publish("a", body="one")
    queue.publish("a", body="two")
    queue.subscribe(W1, 1)
    (letter,) = queue.letters(queue.unlock(W1, "a", dead_letter="1"))
    assert letter.body == "two"
    for _ in range(2):
        assert queue.handed(letter.position).words == ["ok"]
    assert queue.kept() == {"meta", "subscribers", "ready_subscribers", "journal"}


def test_of_something_else(queue: Queue) -> None:
    """Only hand-overs are ended: a waiting or locked position stays."""
    queue.publish("a", "b")
    queue.subscribe(W1, 1)
    for position, _ in queue.client.xrange(queue.key("log")) or []:
        queue.handed(text(position))
    assert queue.browse() == {"a": "locked", "b": "waiting"}
