"""Who waits for an item that has ended is read in pages, until all know it."""

from tests.lua.dependencies import asked
from tests.lua.driver import Queue
from tests.lua.worded import ALICE


def test_pages(queue: Queue) -> None:
    """Each is named once, and an item that has not ended has no end to tell."""
    queue.publish("a", "aa")
    names = [f"life/0/1-{number}/0/a b" for number in range(25)]
    tokens = {asked(queue, "a", name)[2] for name in names}
    (token,) = tokens
    asked(queue, "aa", "other")
    assert queue.run("read_awaited", token=token, after="", limit=100).rows == []
    queue.retract(ALICE, "a", owner="1")
    seen: list[str] = []
    while page := queue.run("read_awaited", token=token, after=seen[-1] if seen else "", limit=10).rows[1]:
        seen += page
    assert seen == sorted(names)
