"""get_subscription: the granted options of a subscription."""

from broker.redis_core.operations.operation import subid
from tests.lua.driver import Queue
from tests.lua.worded import W1, W2


def test_credit(queue: Queue) -> None:
    """P13, Q9: the credit in force, or that there is no such subscription."""
    queue.subscribe(W1, 7)
    answer = queue.run("get_subscription", {"subid": subid(W1), "named": ""}, {"subid": subid(W2), "named": ""})
    assert answer.rows == [["ok", 7, "unacknowledged", 0, subid(W1)], ["not-subscribed"]]
