"""Groups: partitions are assigned evenly, with few moves, and the same by every frontend."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.model.nodes.groups import GROUP_BYTES, assign_evenly, is_name, share

NAMES = tuple("abcdefgh")
members = st.dictionaries(st.sampled_from(NAMES), st.integers(1, 40), max_size=8)
holders = st.dictionaries(st.integers(0, 30), st.none() | st.sampled_from((*NAMES, "z")), max_size=31)


@given(most=members, held=holders)
def test_spread(most: dict[str, int], held: dict[int, str | None]) -> None:
    """E10, EX19: one owner each, within each member's limit, as even as that allows, and with the fewest moves."""
    after = assign_evenly(most, held)
    sizes = Counter(after.values())
    assert len(after) == min(len(held), sum(most.values()))
    assert set(after) <= set(held) and set(after.values()) <= set(most)
    assert all(sizes[name] <= most[name] for name in most)
    # A member with over one less than another is at its limit.
    assert all(sizes[a] >= sizes[b] - 1 or sizes[a] == most[a] for a in most for b in most)
    had = Counter(holder for holder in held.values() if holder in most)
    kept = sum(held[number] == name for number, name in after.items())
    assert kept == sum(min(had[name], sizes[name]) for name in most)
    assert assign_evenly(most, after | {number: None for number in held if number not in after}) == after


@given(most=members, held=holders, order=st.randoms(use_true_random=False))
def test_the_same_by_all(most: dict[str, int], held: dict[int, str | None], order: object) -> None:
    """Every frontend computes the same, in whatever order it learned of members."""
    assert assign_evenly(dict(reversed(most.items())), dict(reversed(held.items()))) == assign_evenly(most, held)


@given(most=st.dictionaries(st.sampled_from(NAMES), st.just(40), min_size=2), count=st.integers(1, 30))
def test_few_moves(most: dict[str, int], count: int) -> None:
    """When one member comes or goes, no more partitions move than it gains or leaves."""
    everyone = assign_evenly(most, dict.fromkeys(range(count)))
    fewer = dict(list(most.items())[1:])
    gone = next(iter(most))
    without = assign_evenly(fewer, dict(everyone))
    assert sum(without[number] != everyone[number] for number in everyone) == Counter(everyone.values())[gone]
    again = assign_evenly(most, dict(without))
    assert sum(again[number] != without[number] for number in without) == Counter(again.values())[gone]


@given(credit=st.integers(1, 1000), count=st.integers(1, 1024))
def test_share(credit: int, count: int) -> None:
    """Guarantee 3: the parts never exceed the whole, and each is above zero."""
    each = share(credit, count)
    assert each >= 1
    assert each * min(credit, count) <= credit
    assert credit // each >= min(credit, count)


@pytest.mark.parametrize(
    ("text", "good"),
    [("g", True), ("$default", True), ("ünï", True), ("x" * GROUP_BYTES, True), ("", False), ("x" * 256, False)]
    + [(f"a{blank}b", False) for blank in " \t\n\0\u2028\u3000"],
)
def test_names(text: str, *, good: bool) -> None:
    """E26: a group's name has no blanks, because lists of groups have."""
    assert is_name(text) == good
