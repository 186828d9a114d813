"""Which deliveries of one script call go to the door together."""

from dataclasses import replace

from broker.model.items.items import Delivery
from broker.model.items.qos import Stage
from broker.model.names import Jid, Partition
from broker.redis_core.partitions.delivery_batches import BYTES, batch_deliveries

A, B = Jid("a@x/1"), Jid("b@x/1")


def handed(token: int, subscriber: Jid = A, batch: int = 3, size: int = 1) -> Delivery:
    """Return a delivery."""
    where = (Partition("jobs", "i1"), f"{token}-0", f"item{token}")
    return Delivery(*where, subscriber, token, 1, 20, 0, Jid("p@x"), b"x" * size, token, batch=batch)


def tokens(*deliveries: Delivery) -> list[list[int]]:
    """Return the tokens of each batch."""
    return [[each.token for each in batch] for batch in batch_deliveries(deliveries)]


def test_one_by_one() -> None:
    """Without the option every delivery is alone, in order."""
    assert tokens(*(handed(number, batch=1) for number in range(4))) == [[0], [1], [2], [3]]


def test_each_subscriber_by_its_own_option() -> None:
    """Q30: subscribers stay in the order in which each was handed its first item; no batch has more than its option says."""
    mixed = [handed(number, (A, B)[number % 2], (3, 2)[number % 2]) for number in range(10)]
    assert tokens(*mixed) == [[0, 2, 4], [1, 3], [5, 7], [6, 8], [9]]


def test_bytes() -> None:
    """A batch of several items has at most so many bytes; a larger item goes alone, and nothing is dropped."""
    sizes = (BYTES // 2, BYTES - BYTES // 2, 1, BYTES + 1, 1, 1)
    items = [handed(number, batch=100, size=size) for number, size in enumerate(sizes)]
    assert tokens(*items) == [[0, 1], [2], [3], [4, 5]]


def test_what_is_not_alike() -> None:
    """A batch has one collection, one subscription and one stage, and a notice begins one message."""
    first = handed(0)
    others = [
        replace(first, token=1, collection="all"),
        replace(first, token=2, subid="5"),
        replace(first, token=3, stage=Stage.ACKNOWLEDGED),
        replace(first, token=4, stage=Stage.DELIVER, message="1.a"),
        replace(first, token=5, stage=Stage.DELIVER, message="1.b"),
    ]
    assert tokens(first, *others, replace(others[3], token=6)) == [[0], [1], [2], [3], [4, 6], [5]]
