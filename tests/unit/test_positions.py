"""Places of items: the order of a list over several partitions."""

import pytest

from broker.model.items.dependencies import Dependent
from broker.model.positions import Position


def test_written_and_read() -> None:
    """A place is written like an id of the service's own, and read back."""
    assert str(Position(1_700_000_000_000, 5, 12)) == "12-1700000000000-5"
    assert Position.parse("12-1700000000000-5") == Position(1_700_000_000_000, 5, 12)


@pytest.mark.parametrize("text", ["", "1-2", "1-2-3-4", "-1-2-3", "a-2-3", "1-٣-3", "12345-1-1", f"0-{'1' * 19}-1"])
def test_no_place(text: str) -> None:
    """A place that was never returned is refused."""
    with pytest.raises(ValueError, match="not a place"):
        Position.parse(text)


def test_order() -> None:
    """The time decides, then the number in its ms, then the partition."""
    assert Position(1, 0, 9) < Position(1, 1, 0) < Position(1, 1, 1) < Position(2, 0, 0) < Position(10, 0, 0)


@pytest.mark.parametrize(
    ("position", "scan"),
    [("5-3", "7 5-2"), ("5-0", "7 4-18446744073709551615"), ("1795296953485-10", "7 1795296953485-9")],
)
def test_place_of_a_dependent(position: str, scan: str) -> None:
    """A list that goes on from the position before an item begins with it."""
    assert Dependent.read(f"life/7/{position}/2/a/b") == Dependent("a/b", scan)
