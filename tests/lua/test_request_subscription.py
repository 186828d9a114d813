"""request_subscription: subscriptions that wait for an owner's approval, and their bounds (P5, P27)."""

from typing import Any

import pytest

from tests.lua.records import Records

WANTED = "5 unacknowledged - - - -"


@pytest.fixture
def node(records: Records) -> Records:
    """Return a node."""
    records.run("create_node", incarnation="i1", owner="a@x", created=7)
    return records


def apply(
    node: Records, jid: str, now: int = 1, *, most: int = 10, most_each: int = 2, incarnation: str = "i1"
) -> list[Any]:
    """Add a request."""
    return node.run(
        "request_subscription",
        now=now,
        incarnation=incarnation,
        jid=jid,
        request=WANTED,
        most=most,
        most_each=most_each,
    )


def test_waits(node: Records) -> None:
    """It is stored with its options, once."""
    assert apply(node, "w@x/1", now=7) == ["ok", 0, ""]
    assert apply(node, "w@x/1", now=8) == ["pending-subscription"]
    assert node.hash("pending") == {"w@x/1": f"7 0 {WANTED}"}


def test_one_s_own_oldest_gives_way(node: Records) -> None:
    """Guarantee 6: a JID that returns under ever new resources does not fill the list, nor push others out."""
    apply(node, "v@x/1", now=1)
    for number in (2, 3):
        assert apply(node, f"w@x/{number}", now=number) == ["ok", number - 2, ""]
    assert apply(node, "w@x/4", now=4) == ["ok", 2, "w@x/2"]
    assert set(node.hash("pending")) == {"v@x/1", "w@x/3", "w@x/4"}


def test_bound(node: Records) -> None:
    """Guarantee 6: past the bound nobody new may wait; a waiting JID replaces its own request."""
    assert apply(node, "v@x/1", most=3) == ["ok", 0, ""]
    assert apply(node, "w@x/1", most=3) == ["ok", 0, ""]
    assert apply(node, "w@x/2", now=2, most=3) == ["ok", 1, ""]
    assert apply(node, "u@x/1", most=3) == ["too-many"]
    assert apply(node, "w@x/3", now=3, most=3) == ["ok", 2, "w@x/1"]


def test_of_another_life(node: Records) -> None:
    """A node that was deleted and recreated meanwhile has no request."""
    assert apply(node, "w@x/1", incarnation="i0") == ["gone"]
    assert node.hash("pending") == {}


def test_goes_with_its_node(node: Records) -> None:
    """P24: requests go with their node."""
    apply(node, "w@x/1")
    assert node.run("delete_node", incarnation="i1", revision=1) == ["ok"]
    assert node.hash("pending") == {}
