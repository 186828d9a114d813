"""lua/hunger.lua: which partitions of a node want credit."""

from typing import Any

from tests.lua.driver import T0
from tests.lua.records import Records


def told(records: Records, *rows: tuple[int, Any], after: int = 0) -> list[list[int]]:
    """Tell of partitions; gives all that want credit."""
    found = [{"partition": partition, "locked": locked} for partition, locked in rows]
    code, answer = records.run("hunger", *found, now=T0 + after)
    assert code == "ok"
    return answer  # type: ignore[no-any-return]


def test_since_when(records: Records) -> None:
    """A partition has waited since what is locked there changed last; one that is fed is forgotten."""
    assert told(records, (7, 2)) == [[7, 2, 0]]
    assert sorted(told(records, (3, 0), (7, 2), after=5)) == [[3, 0, 0], [7, 2, 5]]
    assert sorted(told(records, (3, 1), after=7)) == [[3, 1, 0], [7, 2, 7]]
    assert told(records, (7, ""), after=8) == [[3, 1, 1]]


def test_silence(records: Records) -> None:
    """Guarantee 6: what is not heard of for three seconds is dropped, and the whole by itself after ten."""
    told(records, (1, 0))
    told(records, (2, 0), after=2_000)
    assert told(records, after=3_001) == [[2, 0, 1_001]]
    left: Any = records.client.pttl(records.key("hungry"))
    assert 0 < left <= 10_000
    assert told(records, after=6_000) == [] and records.hash("hungry") == {}
