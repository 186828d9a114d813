"""check_format: a store has one format; an empty one gets that of the first frontend."""

import pytest

from tests.lua.records import Records


def test_empty(records: Records) -> None:
    """An empty store fits any format; the first frontend records its own, once."""
    assert records.run("check_format", format=2, begin="") == ["ok", 2]
    assert records.hash("store") == {}
    assert [records.run("check_format", format=2, begin="1") for _ in range(2)] == [["ok", 2]] * 2
    assert records.hash("store") == {"format": "2"}


@pytest.mark.parametrize("begin", ["", "1"])
@pytest.mark.parametrize(("asked", "answer"), [(1, ["newer", 2]), (2, ["ok", 2]), (3, ["older", 2])])
def test_noted(records: Records, asked: int, answer: list[object], begin: str) -> None:
    """A recorded format stays."""
    records.run("check_format", format=2, begin="1")
    assert records.run("check_format", format=asked, begin=begin) == answer
    assert records.hash("store") == {"format": "2"}


def test_nothing_noted(records: Records) -> None:
    """A store with nodes and without a format is older than all formats, and none is recorded."""
    records.client.zadd(records.key("all_nodes"), {"jobs": 1})
    assert records.run("check_format", format=1, begin="1") == ["older", 0]
    assert records.hash("store") == {}
