"""read_handovers: hand-overs are read when they are about to be made, within a bound (A7)."""

from tests.lua.driver import Queue
from tests.lua.worded import W1

BYTES = 10_000


def dying(queue: Queue, count: int) -> list[str]:
    """Let items die; return their positions."""
    names = [f"i{number}" for number in range(count)]
    queue.publish(*names, body="x" * BYTES)
    queue.subscribe(W1, count)
    return [queue.unlock(W1, name, dead_letter="1").handovers[0].position for name in names]


def test_scripts_tell_no_payload(queue: Queue) -> None:
    """Guarantee 6: however large and many items are on their way, a script reports only their positions."""
    positions = dying(queue, 300)
    queue.now += 5_000
    first = queue.expire().handovers
    second = queue.expire().handovers
    assert sorted(told.position for told in (*first, *second)) == sorted(positions)
    assert (len(first), len(second)) == (200, 100)
    assert all(len(told.position + told.to + told.note) < 100 for told in first)
    assert queue.expire().handovers == []


def test_within_a_bound(queue: Queue) -> None:
    """Guarantee 6: reads are bounded in bytes, which one item alone may exceed."""
    rows = [{"position": position} for position in dying(queue, 5)]
    assert len(queue.run("read_handovers", *rows, max_bytes=2 * BYTES).rows) == 2
    assert len(queue.run("read_handovers", *rows, max_bytes=1).rows) == 1
    assert len(queue.run("read_handovers", *rows, max_bytes=9 * BYTES).rows) == 5


def test_where_it_may_have_arrived(queue: Queue) -> None:
    """A7: the first destination of an item is stored, and stays until the item is known not to be there."""
    (position,) = dying(queue, 1)
    for note in ("4 first", "1 second"):
        (letter,) = queue.run("read_handovers", {"position": position}, note=note).rows
        assert letter[-2] == "4 first"
    queue.now += 5_000
    assert queue.expire().handovers[0].note == "4 first"
    queue.handed(position, arrived="")
    (letter,) = queue.run("read_handovers", {"position": position}, note="1 second").rows
    assert letter[4:-1] == [1, W1, "released", "", "1 second"]


def test_once_more_when_another_has_arrived(queue: Queue) -> None:
    """A7: deferred hand-overs are reported at once when another has arrived, each once; the longest unreported first."""
    dying(queue, 3)
    queue.now += 1_000
    assert queue.expire().handovers == []
    assert len(queue.expire(told_before=queue.now).handovers) == 3
    assert queue.expire(told_before=queue.now).handovers == []
    queue.now += 4_999
    assert queue.expire().handovers == []
    assert queue.expire().due == queue.now + 1


def test_of_what_is_gone(queue: Queue) -> None:
    """An arrived hand-over is not read any more; one whose entry was removed by hand is forgotten."""
    first, second = dying(queue, 2)
    queue.handed(first)
    queue.client.xdel(queue.key("log"), second)
    assert queue.run("read_handovers", {"position": first}, {"position": second}).rows == []
    assert not {"handovers", "handovers_told"} & queue.kept()
