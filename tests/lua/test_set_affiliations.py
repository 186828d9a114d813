"""set_affiliations: who may do what with a node."""

import pytest

from tests.lua.driver import T0
from tests.lua.records import Records


@pytest.fixture
def node(records: Records) -> Records:
    """Return a node that a@x owns."""
    records.run("create_node", incarnation="i1", owner="a@x", created=7)
    return records


def change(node: Records, most: int = 10, incarnation: str = "i1", **changes: str) -> list[str]:
    """Set affiliations of NAME@x."""
    rows = [{"jid": f"{name}@x", "affiliation": affiliation} for name, affiliation in changes.items()]
    return node.run("set_affiliations", *rows, incarnation=incarnation, most=most)


def test_deltas(node: Records) -> None:
    """P26: only the named ones change, `none` removes, and the revision rises so that all frontends notice."""
    assert change(node, b="publisher", c="outcast") == ["ok"]
    assert change(node, b="none", d="owner") == ["ok"]
    assert node.hash("affiliations") == {"a@x": "owner", "c@x": "outcast", "d@x": "owner"}
    assert node.hash("node")["revision"] == str(T0 * 1000 + 1)


def test_one_owner_stays(node: Records) -> None:
    """P2: refused as a whole when no owner would be left."""
    assert change(node, b="publisher", a="none") == ["no-owner"]
    assert change(node, a="outcast") == ["no-owner"]
    assert node.hash("affiliations") == {"a@x": "owner"}
    assert change(node, b="owner", a="none") == ["ok"]


def test_bound(node: Records) -> None:
    """Guarantee 6: the list does not grow past its bound."""
    assert change(node, most=2, b="member", c="member") == ["too-many"]
    assert change(node, most=2, b="member") == ["ok"]
    assert change(node, most=2, b="none", c="member") == ["ok"]


def test_of_another_life(node: Records) -> None:
    """A node that was deleted and recreated is not changed for the old one."""
    assert change(node, incarnation="i0", b="owner") == ["stale"]
