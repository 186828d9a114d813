"""renew_ownership: an owner renews its lease."""

from tests.lua.driver import Queue
from tests.lua.worded import W1, W2


def test_starts_the_lease_anew(queue: Queue) -> None:
    """EX16: a heartbeat restarts the lease, and returns what is owned; the fence stays."""
    fence = queue.attach(W1, 4).rows[0][2]
    queue.now += 50_000
    answer = queue.keep(W1)
    assert answer.rows == [["ok", "g", "4", fence, queue.now + 60_000, 10]]
    assert answer.due == queue.now + 60_000
    queue.now += 59_999
    assert queue.expire().notices == []


def test_of_whoever_owns_nothing(queue: Queue) -> None:
    """EX16: a JID that owns nothing here is told so, and gets nothing by asking."""
    assert queue.keep(W1).words == ["not-subscribed"]
    lease = queue.attach(W1).rows[0][3]
    queue.now += 1_000
    assert queue.keep(W2).words == ["not-subscribed"]
    assert queue.keep(W1).rows[0][4] == lease + 1_000
