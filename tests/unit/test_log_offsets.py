"""Offsets: texts in the order of the log, of one partition of one incarnation of a node (E17, E18, EX6)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.model import offsets
from broker.model.names import Partition
from broker.model.problems import MalformedRequest, Problem

HERE = Partition("jobs", "8e71964d", 3)
numbers = st.integers(0, 2**64 - 1)

ROLLOVERS = [
    (ms, seq) for ms in (0, 9, 10, 99, 100, 999_999, 1_000_000, 2**64 - 1) for seq in (0, 9, 10, 99, 100, 2**64 - 1)
]


def test_rollovers() -> None:
    """EX6: where the number of digits changes the order stays, and every text is read back."""
    texts = [offsets.write_offset(HERE, f"{ms}-{seq}") for ms, seq in ROLLOVERS]
    assert texts == sorted(texts) and len(set(map(len, texts))) == 1
    assert [offsets.read(text, HERE) for text in texts] == [f"{ms}-{seq}" for ms, seq in ROLLOVERS]


@given(one=st.tuples(numbers, numbers), other=st.tuples(numbers, numbers))
def test_order(one: tuple[int, int], other: tuple[int, int]) -> None:
    """E18: the lexicographic order is the order of the log."""
    first, second = (offsets.write_offset(HERE, f"{ms}-{seq}") for ms, seq in (one, other))
    assert (first < second) == (one < other)


@pytest.mark.parametrize(
    "there", [Partition("jobs", "8e71964d", 4), Partition("jobs", "8e71964e", 3), Partition("job", "8e71964d", 3)]
)
def test_of_another(there: Partition) -> None:
    """E17: the offset of another partition, of an earlier incarnation, or of another node is not found here."""
    with pytest.raises(MalformedRequest) as refused:
        offsets.read(offsets.write_offset(there, "5-0"), HERE)
    assert refused.value.problem is Problem.OFFSET_NOT_FOUND and refused.value.detail


@pytest.mark.parametrize("position", [f"{2**64}-0", f"0-{2**64}"])
def test_beyond_any_position(position: str) -> None:
    """E17: an impossible position is not found, though it has the right check; Redis would report an error of ours."""
    with pytest.raises(MalformedRequest) as refused:
        offsets.read(offsets.write_offset(HERE, position), HERE)
    assert refused.value.problem is Problem.OFFSET_NOT_FOUND and "future" in refused.value.detail


def test_made_up() -> None:
    """E17: a receiver cannot construct one: another position with the check of a known offset is refused."""
    known = offsets.write_offset(HERE, "1795232955075-0")
    for made_up in (known.replace("5075", "5076", 1), known[:-8] + "00000000", f"{10**20 - 1}" * 2 + known[40:]):
        with pytest.raises(MalformedRequest) as refused:
            offsets.read(made_up, HERE)
        assert refused.value.problem is Problem.OFFSET_NOT_FOUND


@pytest.mark.parametrize(
    "text", ["", "@", "@earliest ", "latest", ">", ">@latest", "-1", "1-0", "9" * 16, "٣" * 52, "0" * 51, "x" * 52,
             "0" * 10_000_000, ">>" + "0" * 50]
)  # fmt: skip
def test_garbage(text: str) -> None:
    """A malformed offset is refused, however long."""
    with pytest.raises(MalformedRequest) as refused:
        offsets.write_start(text, HERE)
    assert refused.value.problem is Problem.OFFSET_INVALID and refused.value.detail.startswith(
        "an offset as the service"
    )


def test_starts() -> None:
    """E20, EX4, EX9: words and times as they are; an offset alone is inclusive, after `>` exclusive."""
    offset = offsets.write_offset(HERE, "5-7")
    assert [offsets.write_start(start, HERE) for start in ("@earliest", "@latest", "0015", offset, f">{offset}")] == [
        "@earliest", "@latest", "t15", "=5-7", ">5-7"
    ]  # fmt: skip


def test_the_partition_of_a_start() -> None:
    """An offset names its partition, and no other start does."""
    offset = offsets.write_offset(HERE, "5-7")
    assert [offsets.read_partition(start) for start in (offset, f">{offset}", "@earliest", "@latest", "15")] == [
        3, 3, None, None, None
    ]  # fmt: skip
