"""The references of a collection."""

from broker.redis_core.operations.operation import subid
from tests.lua.driver import Queue
from tests.lua.worded import W1


def test_listed(unopened: Queue) -> None:
    """Each has its name, its subscriber, its queue and its deadline; a queue's name may have blanks."""
    unopened.open(partitions="0")
    unopened.subscribe(W1, 2, scope="items all")
    unopened.turn(queue="a b@life/3", asks=2, named="t")
    cursor, rows = unopened.run("list_references", scan="0").rows
    assert cursor == "0"
    assert sorted(rows) == [[f"t-{number}", subid(W1), "a b@life/3", unopened.now + 3_000, ""] for number in range(2)]
