"""lua/find.lua: whether an item is in a partition, and whether who asks holds it."""

from typing import Any

from tests.lua.driver import Queue

W1, W2 = "w1@x/a", "w2@x/b"


def test_find(queue: Queue) -> None:
    """Held by its holder and nobody else, under its own token; what waits is there, what nobody published is not."""
    queue.publish("a", "b")
    (delivery,) = queue.subscribe(W1, 1).deliveries

    def found(jid: str, item: str, token: Any = "") -> str:  # noqa: ANN401
        (word,) = queue.run("find", queue.holder(jid, item, token)).words
        return word

    assert found(W1, "a") == found(W1, "a", delivery.token) == "held"
    assert found(W1, "a", delivery.token + 1) == "lock-lost"
    assert found(W2, "a") == found(W1, "b") == "forbidden"
    assert found(W1, "c") == "item-not-found"
    queue.retract(W1, "a", delivery.token)
    assert found(W1, "a") == "item-not-found"
