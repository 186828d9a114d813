"""end_outcomes: publishers were told."""

from tests.lua.driver import Queue
from tests.lua.test_complete import ASKED, told
from tests.lua.worded import W1


def test_some_of_several(queue: Queue) -> None:
    """Those that were told are forgotten, once or twice; the others are announced again."""
    queue.publish("a", "b", "c", hints=ASKED)
    queue.subscribe(W1, 3)
    places = {item: told(queue.retract(W1, item))[0] for item in ("a", "b", "c")}
    for _ in range(2):
        queue.run("end_outcomes", *({"position": places[item][1]} for item in ("a", "c")))
    queue.now += 5_000
    assert told(queue.expire()) == [places["b"]]
