"""raise_revision: a node's record gets a revision above its partitions'."""

import pytest

from tests.lua.driver import T0
from tests.lua.records import Records


@pytest.fixture
def node(records: Records) -> Records:
    """Return a node."""
    option = {"name": "stanzaq#partitions", "value": "2"}
    records.run("create_node", option, incarnation="i1", owner="a@x", created=7)
    records.run("update_node", option, {"name": "y", "value": "2"}, incarnation="i1", revision=1)
    return records


def advance(node: Records, revision: int, incarnation: str = "i1") -> tuple[list[object], int]:
    """Raise it; return the answer and the new revision."""
    answer = node.run("raise_revision", incarnation=incarnation, revision=revision, now=T0 + 1)
    return answer, int(node.hash("node")["revision"]) - T0 * 1000


def test_as_new(node: Records) -> None:
    """A record as new as the partition does not change, however old the record that the caller read."""
    assert advance(node, T0 * 1000) == (["ok", 0], 0)
    assert advance(node, 5) == (["ok", 0], 0)


def test_older(node: Records) -> None:
    """It is newer than the partition afterwards, and than any other partition may be; its options stay."""
    assert advance(node, T0 * 1000 + 7) == (["ok", 1], 1_000)
    assert advance(node, T0 * 1000 + 2_000) == (["ok", 1], 2_001)
    assert node.hash("options") == {"stanzaq#partitions": "2", "y": "2"}


def test_of_another_life(node: Records) -> None:
    """A deleted or recreated node is not changed for the old one."""
    assert advance(node, T0 * 1000 + 7, "i0") == (["stale"], 0)
    node.client.delete(node.key("node"))
    assert node.run("raise_revision", incarnation="i1", revision=7, now=T0) == ["stale"]
