"""The partition of a command (E6, E8, E14)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.model.commands import Cancel, Complete, CompleteAndPublish, Publish, Renew, Retract, Stats, Unlock
from broker.model.names import Jid
from broker.redis_core.registry.partitioner import PartitionChoice, partition_of_id
from broker.redis_core.registry.rows import ROWS, choose_partition

ME = Jid("a@x/1")
counts = st.integers(1, 1024)


def publish(item: str | None = None, partition: int | None = None, key: str = "") -> Publish:
    """Publish to a node."""
    return Publish("n", ME, item, b"", 0, partition=partition, key=key)


@given(counts, st.text(min_size=1), st.text())
def test_key(count: int, key: str, item: str) -> None:
    """E14: items of one group key share a partition, whatever their ids; the partition named wins over it (E6, E8)."""
    chosen = choose_partition(publish(item or None, key=key), count)
    assert chosen == choose_partition(publish(key=key), count) and chosen in range(count)
    assert choose_partition(publish(item or None, partition=count - 1, key=key), count) == count - 1
    assert choose_partition(publish(partition=count, key=key), count) is PartitionChoice.NOWHERE


@given(counts, st.text(min_size=1))
def test_id(count: int, item: str) -> None:
    """An item with only its publisher's id is in the partition where that id is looked for first."""
    chosen = choose_partition(publish(item), count)
    assert choose_partition(Retract("n", ME, item), count) == chosen and chosen in range(count)


@pytest.mark.parametrize(("item", "number"), [("7-1700000000000-3", 7), ("0-1-0", 0)])
def test_made(item: str, number: int) -> None:
    """An id that the service made names its partition; one of an unknown partition is like any other."""
    assert choose_partition(Retract("n", ME, item), 8) == partition_of_id(item, 8) == number
    assert choose_partition(Retract("n", ME, "9-1-0"), 8) in range(8)
    assert choose_partition(Retract("n", ME, item), 1) == 0


def test_searched() -> None:
    """E14: commands that end or renew a lock look in other partitions too, for the item may be anywhere."""
    assert {kind for kind, row in ROWS.items() if row.searched} == {
        Retract,
        Complete,
        CompleteAndPublish,
        Cancel,
        Unlock,
        Renew,
    }


@pytest.mark.parametrize(
    ("command", "where"), [(publish(), PartitionChoice.ANY), (Stats("n", ME), PartitionChoice.ALL)]
)
def test_elsewhere(command: Any, where: PartitionChoice) -> None:  # noqa: ANN401
    """A command without a name goes where credit is free; one on the node goes to all."""
    assert choose_partition(command, 8) is where


def test_stable() -> None:
    """E14: the hash never changes: another would send the items of a key to two partitions during an upgrade."""
    assert [choose_partition(publish(key=key), 16) for key in ("a", "customer-7", "ü")] == [12, 2, 5]
