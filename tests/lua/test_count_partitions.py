"""count_partitions: the partitions of an owner's nodes, which share a quota."""

from typing import Any

from tests.lua.records import Records

NOW = 1_700_000_000_000


def note(records: Records, *nodes: str) -> None:
    """Note nodes as created."""
    for node in nodes:
        given = {"index": "created_nodes", "kind": "coming", "member": node, "idle_seconds": 60, "most": 100}
        assert records.run("add_to_index", now=NOW, **given)[0] == "ok"


def count(records: Records, node: str, partitions: int, known: dict[str, int] | None = None, at: int = 0) -> list[Any]:
    """Count a node's partitions to a quota of ten."""
    rows = [{"node": name, "count": each} for name, each in (known or {}).items()]
    return records.run("count_partitions", *rows, now=NOW + at, node=node, count=partitions, most=10)


def counts(records: Records) -> dict[str, int]:
    """Return what is counted."""
    return {node: int(text.split()[0]) for node, text in records.hash("created_partitions").items()}


def test_room(records: Records) -> None:
    """They are counted up to the quota; a node that is counted again takes no more, and frees nothing."""
    note(records, "a", "b", "c")
    for node, partitions, answer in (("a", 4, "measure"), ("b", 6, "measure")):
        assert count(records, node, partitions) == [answer]
        assert count(records, node, partitions, {node: partitions}) == ["ok"]
    assert count(records, "c", 1, {"c": 1}) == ["too-many", 10]
    assert count(records, "a", 1) == ["ok"]
    assert counts(records) == {"a": 4, "b": 6, "c": 1}


def test_nodes_that_are_gone(records: Records) -> None:
    """What is stored of a node that its owner no longer has makes room."""
    note(records, "a", "b")
    assert count(records, "a", 9, {"a": 9}) == ["ok"]
    records.client.zrem(records.key("created_nodes"), "a")
    assert count(records, "b", 9) == ["ok"]
    assert counts(records) == {"b": 9}


def test_what_a_record_says(records: Records) -> None:
    """It holds for a node that was not counted, and a minute after a count: a change under way is counted before it is there."""
    note(records, "a", "b")
    assert count(records, "a", 8, {"a": 8, "b": 2}) == ["ok"]
    assert counts(records) == {"a": 8, "b": 2}
    assert count(records, "b", 3, {"a": 1}, at=60_000) == ["too-many", 8]
    assert count(records, "b", 3, {"a": 1}, at=60_001) == ["ok"]
    assert counts(records) == {"a": 1, "b": 3}
