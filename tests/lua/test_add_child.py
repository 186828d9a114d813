"""add_child: a child of a collection is recorded."""

from tests.lua.records import Records


def test_notes_within_bounds(records: Records) -> None:
    """H4: children are bounded, each recorded once; a collection of another incarnation records none."""
    records.run("create_node", incarnation="i1", owner="a@x", created=7)
    assert records.run("add_child", incarnation="i1", child="a", since=1, most=2) == ["ok"]
    assert records.run("add_child", incarnation="i1", child="b", since=2, most=2) == ["ok"]
    assert records.run("add_child", incarnation="i1", child="c", since=3, most=2) == ["too-many"]
    assert records.run("add_child", incarnation="i1", child="a", since=9, most=2) == ["ok"]
    assert records.run("add_child", incarnation="i0", child="c", since=3, most=9) == ["stale"]
    assert records.client.zrange(records.key("children"), 0, -1, withscores=True) == [(b"a", 1), (b"b", 2)]
