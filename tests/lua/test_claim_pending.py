"""claim_pending: one frontend at a time creates an approved subscription."""

from typing import Any

import pytest

from tests.lua.records import Records


@pytest.fixture
def node(records: Records) -> Records:
    """Return a node with a pending request, whose resource has blanks."""
    records.run("create_node", incarnation="i1", owner="a@x", created=7)
    records.run(
        "request_subscription",
        now=100,
        incarnation="i1",
        jid="w@x/my desk",
        request="5 assured g 7 - 0,3",
        most=9,
        most_each=9,
    )
    return records


def consider(node: Records, now: int, jid: str = "w@x/my desk") -> list[Any]:
    """Claim it."""
    return node.run("claim_pending", now=now, jid=jid, late_ms=5000)


def test_one_at_a_time(node: Records) -> None:
    """A claim is exclusive for a while; then another may claim it, under a stamp of its own."""
    now = 1_700_000_000_000
    assert consider(node, now) == ["ok", str(now), "5 assured g 7 - 0,3"]
    assert consider(node, now + 4999) == ["waiting"]
    assert consider(node, now + 5000) == ["ok", str(now + 5000), "5 assured g 7 - 0,3"]


def test_gone(node: Records) -> None:
    """A request that is gone cannot be claimed."""
    assert consider(node, 1_700_000_000_000, "v@x/1") == ["gone"]
