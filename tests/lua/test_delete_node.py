"""delete_node: a node's record is deleted."""

from tests.lua.records import Records


def test_only_the_life_that_was_deleted(records: Records) -> None:
    """P24: the record of another incarnation of the node stays, and one that has changed since it was read."""
    records.run("create_node", {"name": "x", "value": "1"}, incarnation="i1", owner="a@x", created=7)
    assert records.run("delete_node", incarnation="i0", revision=1) == ["stale"]
    assert records.run("delete_node", incarnation="i1", revision=2) == ["stale"]
    assert records.run("delete_node", incarnation="i1", revision=1) == ["ok"]
    assert records.run("delete_node", incarnation="i1", revision=1) == ["stale"]
    assert records.client.keys(f"*{records.whose}*") == []
