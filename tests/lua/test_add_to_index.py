"""add_to_index: the nodes of a bare JID, in indexes that are written before the change (P6, P10)."""

from typing import Any

import pytest

from tests.lua.records import Records

NOW = 1_700_000_000_000

each_index = pytest.mark.parametrize("index", ["nodes", "pending_nodes", "affiliated", "created_nodes"])


def note(
    records: Records, member: str, kind: str = "coming", *, index: str = "nodes", at: int = 0, most: int = 2
) -> list[Any]:
    """Add an entry, so many ms after the first."""
    found: list[Any] = records.run(
        "add_to_index", index=index, kind=kind, member=member, now=NOW + at, idle_seconds=60, most=most
    )
    return found[:3]


def scores(records: Records, index: str) -> dict[str, int]:
    """Return the entries of an index with their times since the first, negative while the change is under way."""
    found: Any = records.client.zrange(records.key(index), 0, -1, withscores=True)
    return {name.decode(): int(abs(score) - NOW if score > 0 else NOW - abs(score)) for name, score in found}


@each_index
def test_bound(records: Records, index: str) -> None:
    """Guarantee 6: a full index takes no new entry, but a known one, and a settled one always."""
    assert note(records, "a", index=index) == ["ok", str(NOW), 0]
    assert note(records, "b", index=index) == ["ok", str(NOW), 0]
    assert note(records, "c", index=index) == ["too-many"]
    assert note(records, "a", index=index, at=5) == ["ok", str(NOW + 5), 1]
    assert note(records, "c", "settled", index=index, at=6) == ["ok", str(NOW + 6), 0]
    assert scores(records, index) == {"a": -5, "b": 0, "c": 6}


@each_index
def test_the_longest_known_gives_way(records: Records, index: str) -> None:
    """Guarantee 6: where an index evicts, the oldest entry goes, and never one whose change is under way."""
    note(records, "coming", index=index)
    note(records, "old", "settled", index=index, at=1)
    assert note(records, "new", "evict", index=index, at=2) == ["ok", str(NOW + 2), 0]
    assert scores(records, index) == {"coming": 0, "new": -2}
    assert note(records, "newer", "evict", index=index, at=3) == ["too-many"]


def test_counts_the_others(records: Records) -> None:
    """The answer says how many other entries there are, so that a limit on some of them need not list them."""
    for member, others in (("a", 0), ("b", 1), ("a", 1)):
        found = records.run(
            "add_to_index", index="nodes", kind="coming", member=member, now=NOW, idle_seconds=60, most=9
        )
        assert found[3] == others
