"""lua/listing/find_item.lua: whether an item is in a partition, and whether the sender holds it."""

from typing import Any

from tests.lua.driver import Queue

W1, W2 = "w1@x/a", "w2@x/b"


def test_find(queue: Queue) -> None:
    """Only its holder holds it, under its own token; a waiting item is found, an unknown one is not.

    Q27: a request that was answered here is known, unless it has a token of a present lock.
    """
    queue.publish("a", "b")
    (delivery,) = queue.subscribe(W1, 1).deliveries

    def found(jid: str, item: str, token: Any = "", request: str = "") -> str:  # noqa: ANN401
        (word,) = queue.run("find_item", queue.asked(jid, item, token, request=request)).words
        return word

    assert found(W1, "a") == found(W1, "a", delivery.token) == "held"
    assert found(W1, "a", delivery.token + 1) == "lock-lost"
    assert found(W2, "a") == found(W1, "b") == "forbidden"
    assert found(W1, "c") == "item-not-found"
    assert found(W1, "a", request="r") == "held"
    queue.retract(W1, "a", delivery.token, request="r")
    assert found(W1, "a") == found(W1, "a", request="s") == found(W2, "a", request="r") == "item-not-found"
    assert found(W1, "a", request="r") == found(W1, "a", delivery.token, "r") == "replayed"
