"""Names of things."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.model.names import Partition, bare, prepared, resource


def test_jids() -> None:
    """RFC 7622: the resource begins at the first slash and may hold more of them."""
    assert (bare("a@x/b/c"), resource("a@x/b/c")) == ("a@x", "b/c")
    assert (bare("a@x"), resource("a@x")) == ("a@x", "")


def test_typed_jids() -> None:
    """Servers stamp all but the resource in lower case; a person need not."""
    assert prepared(" Alice@Example.ORG/Home ") == "alice@example.org/Home"


@given(st.text(min_size=1), st.text("0123456789abcdef", min_size=1), st.integers(0, 99))
def test_partitions_are_read_back(node: str, incarnation: str, number: int) -> None:
    """Whatever a node is called, its partition's name says which it is."""
    partition = Partition(node, incarnation, number)
    assert Partition.parse(str(partition)) == partition


@pytest.mark.parametrize("text", ["", "a", "a/0", "a@b", "@b/0", "a@/0", "a@b/x"])
def test_what_is_no_partition(text: str) -> None:
    """A peer may send anything as the name of a partition: it is a ValueError."""
    with pytest.raises(ValueError):  # noqa: PT011  (two places raise it, in words of their own)
        Partition.parse(text)
