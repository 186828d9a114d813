"""note_format: a node's record says to which format it was upgraded."""

from tests.lua.records import Records


def test_there_or_gone(records: Records) -> None:
    """It is noted of a node that exists; a deleted one does not come back."""
    assert records.run("note_format", format=10) == ["gone"]
    assert records.hash("node") == {}
    records.client.hset(records.key("node"), mapping={"incarnation": "8e71964d", "format": "9"})
    assert records.run("note_format", format=10) == ["ok"]
    assert records.hash("node") == {"incarnation": "8e71964d", "format": "10"}
