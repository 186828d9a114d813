"""configure: a node's options change."""

from tests.lua.records import Records


def test_replaces_what_was_read(records: Records) -> None:
    """P23: the options that the caller read are replaced and the revision rises; on anything newer it is told `stale`."""
    records.run("declare", {"name": "x", "value": "1"}, incarnation="i1", owner="a@x", created=7)
    assert records.run("configure", {"name": "y", "value": "2"}, incarnation="i1", revision=1) == ["ok"]
    assert records.hash("options") == {"y": "2"} and records.hash("node")["revision"] == "2"
    for stale in ({"incarnation": "i1", "revision": 1}, {"incarnation": "i2", "revision": 2}):
        assert records.run("configure", {"name": "z", "value": "3"}, **stale) == ["stale"]
    assert records.hash("options") == {"y": "2"}


def test_of_no_node(records: Records) -> None:
    """A node that is gone is not brought back."""
    assert records.run("configure", {"name": "z", "value": "3"}, incarnation="i1", revision=1) == ["stale"]
    assert records.client.keys(f"*{records.whose}*") == []


def test_moves(records: Records) -> None:
    """XEP-0248: options and the place in the tree change together; without a parent it is the root's."""
    records.run("declare", incarnation="i1", owner="a@x", created=7)
    records.run("configure", incarnation="i1", revision=1, parent="all", parent_life="i7")
    assert records.hash("node") == {
        "incarnation": "i1", "revision": "2", "created": "7", "creator": "a@x", "parent": "all", "parent_life": "i7",
    }  # fmt: skip
    records.run("configure", incarnation="i1", revision=2)
    assert records.hash("node") == {"incarnation": "i1", "revision": "3", "created": "7", "creator": "a@x"}
