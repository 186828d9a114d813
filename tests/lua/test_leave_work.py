"""leave_work: what a process that cannot send leaves for the frontends."""

from typing import Any

from tests.lua.records import Records


def test_what_is_left(records: Records) -> None:
    """The earliest time of a partition holds, the last notices stay for a while, and wake-ups count as one."""
    kept = {"most": 2, "kept_seconds": 60}
    due = [{"kind": "due", "text": name, "at": at} for name, at in (("a", 5), ("b", 7), ("a", 3), ("b", 9))]
    notices = [{"kind": "notice", "text": text, "at": 0} for text in ("one", "two", "three")]
    for wake in ("", "1", "1"):
        assert records.run("leave_work", *due, *notices, wake=wake, **kept) == ["ok"]
    client: Any = records.client
    assert client.zrange(records.key("due"), 0, -1, withscores=True) == [(b"a", 3.0), (b"b", 7.0)]
    assert client.lrange(records.key("notices"), 0, -1) == [b"two", b"three"]
    assert client.lrange(records.key("wakeup"), 0, -1) == [b"1"]
    assert 0 < client.ttl(records.key("notices")) <= 60


def test_nothing(records: Records) -> None:
    """A wake-up alone leaves nothing else."""
    assert records.run("leave_work", wake="1", most=2, kept_seconds=60) == ["ok"]
    assert [records.client.exists(records.key(name)) for name in ("due", "notices", "wakeup")] == [0, 0, 1]
