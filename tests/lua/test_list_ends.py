"""list_ends: how items have ended, the latest first, for as long as their node keeps it."""

from tests.lua.driver import Queue
from tests.lua.test_complete import ASKED, complete, line
from tests.lua.worded import W1


def test_ends(queue: Queue) -> None:
    """Those that the node keeps are listed, at most so many and about so many bytes of them."""
    queue.open(revision=2, result_ms=10_000)
    queue.subscribe(W1, 5, revision=2)
    for item in ("a", "b", "c"):
        queue.publish(item, hints=ASKED, revision=2)
        complete(queue, item, "done")
        queue.now += 1_000

    def listed(limit: int = 5, max_bytes: int = 1_000) -> list[tuple[int, str]]:
        (found,) = queue.run("list_ends", limit=limit, max_bytes=max_bytes).rows
        return [(expires - queue.now, str(outcome)) for expires, outcome in found]

    ends = [
        (left, line("acknowledged", item, result="done")) for item, left in (("c", 9_000), ("b", 8_000), ("a", 7_000))
    ]
    assert listed() == ends
    assert listed(limit=2) == ends[:2] and listed(max_bytes=1) == ends[:1]
    queue.now += 8_000
    assert [left for left, _ in listed()] == [1_000]
