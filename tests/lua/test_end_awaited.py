"""The end of an item is forgotten when all that wait for it know it."""

from tests.lua.dependencies import asked
from tests.lua.driver import Queue
from tests.lua.worded import ALICE


def test_forgotten(queue: Queue) -> None:
    """A report may come twice, and one for nobody removes what nobody waits for any more."""
    queue.publish("a")
    (_, _, token) = asked(queue, "a", "r")
    queue.retract(ALICE, "a", owner="1")
    for _ in range(2):
        queue.run("end_awaited", {"reference": "s"}, token=token)
        assert {"outcomes", "awaited", "handovers_told"} <= queue.kept()
    for _ in range(2):
        queue.run("end_awaited", {"reference": "r"}, token=token)
        assert queue.kept() == {"meta"}
