"""remove_pending: only the caller that removes a request sends the notice."""

import pytest

from tests.lua.records import Records

NOW = 1_700_000_000_000


@pytest.fixture
def node(records: Records) -> Records:
    """Return a node with a pending request that has been claimed."""
    records.run("create_node", incarnation="i1", owner="a@x", created=7)
    records.run(
        "request_subscription", now=100, incarnation="i1", jid="w@x/1", request="5 assured - - - -", most=9, most_each=9
    )
    records.run("claim_pending", now=NOW, jid="w@x/1", late_ms=5000)
    return records


def test_by_whoever_took_it_up(node: Records) -> None:
    """With its stamp it ends, once."""
    assert node.run("remove_pending", jid="w@x/1", stamp=NOW) == ["ok"]
    assert node.run("remove_pending", jid="w@x/1", stamp=NOW) == ["gone"]
    assert node.hash("pending") == {}


def test_by_one_who_is_late(node: Records) -> None:
    """With an older stamp nothing ends: another has claimed it since."""
    node.run("claim_pending", now=NOW + 9000, jid="w@x/1", late_ms=5000)
    assert node.run("remove_pending", jid="w@x/1", stamp=NOW) == ["waiting"]
    assert len(node.hash("pending")) == 1


def test_by_the_subscriber(node: Records) -> None:
    """Without a stamp it ends, whoever has claimed it: it was withdrawn, or refused."""
    assert node.run("remove_pending", jid="w@x/1", stamp="") == ["ok"]
    assert node.run("remove_pending", jid="w@x/1", stamp=NOW) == ["gone"]
