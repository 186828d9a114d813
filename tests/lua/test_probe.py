"""p."""
from tests.lua.driver import Queue, T0
def test_probe(queue: Queue) -> None:
    """Probe."""
    a = queue.publish("a", "", "b")
    print(a)
    a = queue.subscribe("w1@x/r s", 2)
    print(a)
    a = queue.retract("w1@x/r s", "a")
    print(a)
    print(queue.unlock("w1@x/r s","b"), queue.renew("w1@x/r s","b"), queue.expire(), queue.locks("w1@x/r s"), queue.browse(), queue.stats(), queue.kept(), queue.journal())
    d = queue.retract("w1@x/r s","b").deliveries
    queue.unsubscribe("w1@x/r s", release="1")
