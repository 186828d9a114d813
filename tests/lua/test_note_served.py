"""note_served: where a dead frontend may have left something."""

from tests.lua.records import Records


def test_noted(records: Records) -> None:
    """Each partition is noted once, and the notes go some time after the last one."""
    for some in (("a", "b"), ("b", "c")):
        assert records.run("note_served", *({"partition": each} for each in some), keep_seconds=60) == ["ok"]
    assert records.client.zrange(records.key("served_partitions"), 0, -1) == [b"a", b"b", b"c"]
    assert 0 < records.client.ttl(records.key("served_partitions")) <= 60
