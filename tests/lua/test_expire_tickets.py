"""expire_tickets: an item's old node knows that it has arrived, and its ticket need not be kept."""

from tests.lua.driver import Queue
from tests.lua.test_accept_entry import admit

HOUR = 3_600_000


def admitted(queue: Queue, once_ms: int) -> str:
    """Bring an item."""
    return admit(queue, "a", "t", once_ms=once_ms).words[0]


def test_kept_until_then(queue: Queue) -> None:
    """A7: a ticket is kept while its item may be sent again, and a while longer for late scripts."""
    assert admitted(queue, 10 * HOUR) == "ok"
    queue.now += 9 * HOUR
    assert admitted(queue, 10 * HOUR) == "duplicate"
    for _ in range(2):
        assert queue.run("expire_tickets", {"ticket": "t"}, once_ms=HOUR // 2).words == ["ok"]
    queue.now += HOUR // 4
    assert admitted(queue, 10 * HOUR) == "duplicate"
    queue.now += HOUR // 4
    assert admitted(queue, 10 * HOUR) == "ok"


def test_of_something_else(queue: Queue) -> None:
    """An unknown ticket is not added."""
    assert queue.run("expire_tickets", {"ticket": "t"}, once_ms=HOUR).words == ["ok"]
    assert queue.client.exists(queue.key("dedupe")) == 0
