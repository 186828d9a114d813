"""check_format: a store has one format; an empty one gets that of the first frontend."""

import pytest

from tests.lua.records import Records


def test_empty(records: Records) -> None:
    """The first frontend records its format in an empty store, once."""
    assert [records.run("check_format", format=2) for _ in range(2)] == [["ok", 2]] * 2
    assert records.hash("store") == {"format": "2"}


@pytest.mark.parametrize(("asked", "answer"), [(1, ["newer", 2]), (2, ["ok", 2]), (3, ["older", 2])])
def test_noted(records: Records, asked: int, answer: list[object]) -> None:
    """A recorded format stays."""
    records.run("check_format", format=2)
    assert records.run("check_format", format=asked) == answer
    assert records.hash("store") == {"format": "2"}


def test_nothing_noted(records: Records) -> None:
    """A store with nodes and without a format is older than all formats, and none is recorded."""
    records.client.zadd(records.key("all_nodes"), {"jobs": 1})
    assert records.run("check_format", format=1) == ["older", 0]
    assert records.hash("store") == {}
