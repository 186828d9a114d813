"""stand: where a bare JID has an affiliation (P10)."""

from typing import Any

from tests.lua.records import Records


def stand(records: Records, kind: str, node: str, now: int = 1, *, before: int = 0, most: int = 3) -> None:
    """Note a node or forget it."""
    assert records.run("stand", kind=kind, node=node, now=now, before=before, most=most) == ["ok"]


def noted(records: Records) -> list[str]:
    """Give the nodes, the longest noted first."""
    found: list[Any] = records.client.zrange(records.key("affiliated"), 0, -1)
    return [name.decode() for name in found]


def test_the_longest_noted_gives_way(records: Records) -> None:
    """Guarantee 6: the list has a bound; what is noted anew is the youngest."""
    for now, node in enumerate(("a", "b", "c", "a", "d")):
        stand(records, "noted", node, now)
    assert noted(records) == ["c", "a", "d"]


def test_forgotten_unless_noted_since(records: Records) -> None:
    """A note comes before its affiliation: one that is younger than the caller's knowledge stays."""
    stand(records, "noted", "a", 5)
    stand(records, "forgotten", "a", 9, before=4)
    assert noted(records) == ["a"]
    stand(records, "forgotten", "a", 9, before=5)
    assert noted(records) == []
