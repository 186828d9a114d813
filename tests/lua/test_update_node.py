"""update_node: a node's options change."""

from tests.lua.driver import T0
from tests.lua.records import Records

FIRST = T0 * 1000


def test_replaces_what_was_read(records: Records) -> None:
    """P23: the options that the caller read are replaced and the revision rises; a newer record answers `stale`."""
    records.run("create_node", {"name": "x", "value": "1"}, incarnation="i1", owner="a@x", created=7)
    assert records.run("update_node", {"name": "y", "value": "2"}, incarnation="i1", revision=1) == ["ok", str(FIRST)]
    assert records.hash("options") == {"y": "2"} and records.hash("node")["revision"] == str(FIRST)
    for stale in ({"incarnation": "i1", "revision": 1}, {"incarnation": "i2", "revision": FIRST}):
        assert records.run("update_node", {"name": "z", "value": "3"}, **stale) == ["stale"]
    assert records.hash("options") == {"y": "2"}


def test_of_no_node(records: Records) -> None:
    """A deleted node is not created again."""
    assert records.run("update_node", {"name": "z", "value": "3"}, incarnation="i1", revision=1) == ["stale"]
    assert records.client.keys(f"*{records.whose}*") == []


def test_moves(records: Records) -> None:
    """XEP-0248: options and parent change together; without a parent the node belongs to the root."""
    records.run("create_node", incarnation="i1", owner="a@x", created=7)
    records.run("update_node", incarnation="i1", revision=1, parent="all", parent_life="i7")
    assert records.hash("node") == {
        "incarnation": "i1", "revision": str(FIRST), "created": "7", "creator": "a@x", "format": "9", "parent": "all",
        "parent_life": "i7",
    }  # fmt: skip
    records.run("update_node", incarnation="i1", revision=FIRST)
    assert records.hash("node") == {
        "incarnation": "i1",
        "revision": str(FIRST + 1),
        "created": "7",
        "creator": "a@x",
        "format": "9",
    }


def test_no_revision_twice(records: Records) -> None:
    """Guarantee 1: two states of a record have two revisions, also when the first was lost with the last second."""
    records.run("create_node", incarnation="i1", owner="a@x", created=7)
    lost = records.run("update_node", {"name": "y", "value": "2"}, incarnation="i1", revision=1)[1]
    records.client.hset(records.key("node"), "revision", 1)
    found = records.run("update_node", {"name": "y", "value": "3"}, incarnation="i1", revision=1, now=T0 + 1)[1]
    assert int(found) > int(lost)
