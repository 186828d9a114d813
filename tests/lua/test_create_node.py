"""create_node: a node's record is created."""

from tests.lua.records import Records


def test_creates_once(records: Records) -> None:
    """P22: the first creates the record with its owner and options, a second changes nothing."""
    option = {"name": "stanzaq#lock_seconds", "value": "5"}
    assert records.run("create_node", option, incarnation="i1", owner="a@x", created=7) == ["ok"]
    assert records.run("create_node", incarnation="i2", owner="b@x", created=8) == ["node-exists"]
    assert records.hash("node") == {
        "incarnation": "i1",
        "revision": "1",
        "created": "7",
        "creator": "a@x",
        "format": "9",
    }
    assert records.hash("options") == {"stanzaq#lock_seconds": "5"}
    assert records.hash("affiliations") == {"a@x": "owner"}


def test_below_a_collection(records: Records) -> None:
    """XEP-0248: a node names its parent, with the parent's incarnation."""
    records.run("create_node", incarnation="i1", owner="a@x", created=7, parent="all", parent_life="i7")
    assert records.hash("node") == {
        "incarnation": "i1", "revision": "1", "created": "7", "creator": "a@x", "format": "9", "parent": "all",
        "parent_life": "i7",
    }  # fmt: skip
