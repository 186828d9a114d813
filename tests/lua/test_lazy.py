"""Fragments that are built when they are first used: what runs for every item of a plain partition builds none of them."""

from dataclasses import replace

import pytest
import redis

from tests.lua.driver import SCRIPTS, Queue

WORKER = "w1@x/a"
BUILDING = "fragment[1](fragment)"


@pytest.fixture
def bare(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> Queue:
    """Give a partition whose hot scripts have no lazy fragments: they fail where one would be built."""
    for name in ("publish", "retract", "unlock"):
        found = SCRIPTS[name]
        assert found.text.count(BUILDING) == 1
        monkeypatch.setitem(
            SCRIPTS, name, replace(found, text=found.text.replace(BUILDING, "error('built: ' .. name)"))
        )
    return queue


@pytest.mark.parametrize("runner", ["valkey"], indirect=True)
def test_plain_partitions_build_none(bare: Queue) -> None:
    """Design §5: publish, hand out, acknowledge and give back cost no more for what selects, reads, keeps or lends elsewhere."""
    bare.publish("gone", "again", "")
    bare.publish("again")
    assert bare.retract("alice@x", "gone", owner="1").words == ["ok"]
    bare.subscribe(WORKER, 3)
    given = bare.publish("one", "two").given
    assert given == [(WORKER, "one")]
    assert bare.unlock(WORKER, "one").given == [(WORKER, "one")]
    assert bare.retract(WORKER, "one").given == [(WORKER, "two")]
    bare.subscribe("w2@x/a", 1, selector="color = 'red'")
    with pytest.raises(redis.ResponseError, match="built"):
        bare.publish("three")
