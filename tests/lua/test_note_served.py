"""note_served: where a dead frontend may have left something."""

from tests.lua.driver import T0
from tests.lua.records import Records


def test_noted(records: Records) -> None:
    """Each partition is noted once, and the notes go some time after the last one."""
    for some in (("a", "b"), ("b", "c")):
        rows = [{"partition": each} for each in some]
        assert records.run("note_served", *rows, keep_seconds=60, old_seconds="") == ["ok"]
    assert records.client.zrange(records.key("served_partitions"), 0, -1) == [b"a", b"b", b"c"]
    assert 0 < records.client.ttl(records.key("served_partitions")) <= 60


def test_what_is_not_noted_again_goes(records: Records) -> None:
    """Guarantee 6: a partition that the frontend has dropped, or of a node that was created again, is not looked at for ever."""
    for after_ms, some, old in ((0, "ab", ""), (9_999, "b", 10), (10_000, "", 10)):
        rows = [{"partition": each} for each in some]
        records.run("note_served", *rows, now=T0 + after_ms, keep_seconds=60, old_seconds=old)
    assert records.client.zrange(records.key("served_partitions"), 0, -1, withscores=True) == [(b"b", T0 + 9_999)]
