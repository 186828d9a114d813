"""check_format: a store has one format; an empty one gets that of the first frontend."""

import pytest

from tests.lua.records import Records


def test_empty(records: Records) -> None:
    """The first frontend records its format in an empty store, once, with the least one that understands it."""
    assert [records.run("check_format", format=3, least=2) for _ in range(2)] == [["ok", 3, 2]] * 2
    assert records.hash("store") == {"format": "3", "least": "2"}


@pytest.mark.parametrize(
    ("asked", "answer", "noted"),
    [(1, [3, 2], "3"), (2, [2, 2], "2"), (3, [3, 2], "3"), (4, [3, 2], "3")],
    ids=["too old", "older", "same", "newer"],
)
def test_noted(records: Records, asked: int, answer: list[int], noted: str) -> None:
    """A recorded format stays, unless an older version that may use the store comes back: what it writes is upgraded again."""
    records.run("check_format", format=3, least=2)
    assert records.run("check_format", format=asked, least=asked) == ["ok", *answer]
    assert records.hash("store") == {"format": noted, "least": "2"}


def test_nothing_noted(records: Records) -> None:
    """A store with nodes and without a format is older than all formats, and none is recorded."""
    records.client.zadd(records.key("all_nodes"), {"jobs": 1})
    assert records.run("check_format", format=1, least=1) == ["ok", 0, 0]
    assert records.hash("store") == {}
