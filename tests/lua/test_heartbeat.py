"""heartbeat: who lives, who has lapsed, what is due."""

from typing import Any

from tests.lua.driver import T0
from tests.lua.records import Records


def beat(records: Records, frontend: str, after_ms: int, *rows: tuple[str, str, int]) -> list[Any]:
    """Beat once, so long after the beginning; gives who has lapsed and what is due."""
    lines = [{"kind": kind, "name": name, "at": at} for kind, name, at in rows]
    code, now, lapsed, due, _before, _notices, _by, _alive = records.run(
        "heartbeat", *lines, now=T0 + after_ms, frontend=frontend, lapse_ms=3_000, most=2, beaten=0
    )
    assert (code, now) == ("ok", T0 + after_ms)
    return [lapsed, due]


def test_lapse(records: Records) -> None:
    """Guarantee 4: who has not beaten for 3 s has lapsed, for everybody, until its rescue is told."""
    beat(records, "f1", 0)
    assert beat(records, "f2", 2_999) == [[], []]
    assert beat(records, "f2", 3_000) == [["f1"], []]
    assert beat(records, "f3", 3_001) == [["f1"], []]
    assert beat(records, "f2", 3_002, ("rescued", "f1", 0)) == [[], []]


def test_rescued_but_alive(records: Records) -> None:
    """A frontend that beats again while it is being rescued stays in the list."""
    beat(records, "f1", 0)
    beat(records, "f1", 5_000)
    beat(records, "f2", 5_001, ("rescued", "f1", 0))
    assert beat(records, "f2", 8_500) == [["f1"], []]


def test_nameless(records: Records) -> None:
    """R2: one that cannot send stands in no list, leaves what is due to those that can, and takes it when there is none."""

    def alone(after_ms: int, *rows: dict[str, Any]) -> list[Any]:
        return records.run("heartbeat", *rows, now=T0 + after_ms, frontend="", lapse_ms=3_000, most=2, beaten=0)[2:]

    beat(records, "f1", 0)
    assert alone(1, {"kind": "due", "name": "a", "at": T0}) == [[], [], "0", [], "", 1]
    assert alone(3_000) == [[], ["a"], "0", [], "", 0]
    assert beat(records, "f2", 3_001) == [["f1"], []]


def test_due(records: Records) -> None:
    """Q35: what is due is given to one frontend, the earliest first, bounded (X7); the earlier of two notes counts."""
    beat(records, "f1", 0, ("due", "a", T0 + 100), ("due", "b", T0 + 50), ("due", "c", T0 + 70), ("due", "a", T0 + 900))
    assert beat(records, "f1", 49) == [[], []]
    assert beat(records, "f2", 200) == [[], ["b", "c"]]
    assert beat(records, "f1", 200) == [[], ["a"]]
    assert beat(records, "f1", 201) == [[], []]


def test_due_at_once(records: Records) -> None:
    """What is noted as due by now is answered by the same beat."""
    assert beat(records, "f1", 0, ("due", "a", T0)) == [[], ["a"]]


def test_the_beat_before(records: Records) -> None:
    """A frontend learns which of its beats Redis knows of: another than its last, and Redis has lost what came since."""
    seen = [
        records.run("heartbeat", now=T0 + at, frontend=frontend, lapse_ms=3_000, most=2, beaten=0)[4]
        for at, frontend in ((0, "f1"), (500, "f1"), (600, "f2"), (1_000, "f1"))
    ]
    assert seen == ["0", str(T0), "0", str(T0 + 500)]


def test_notices(records: Records) -> None:
    """What others could not tell is taken by one frontend, bounded, the oldest first."""
    records.client.rpush(records.key("notices"), "one", "two", "three")
    taken = [
        records.run("heartbeat", now=T0, frontend=frontend, lapse_ms=3_000, most=2, beaten=0)[5]
        for frontend in ("f1", "f2", "f1")
    ]
    assert taken == [["one", "two"], ["three"], []]


def test_stands_as_it_beat_last(records: Records) -> None:
    """Whatever it knows of the beat before, it stands in the list with its last one, and is told of the one before."""
    told = []
    for at, beaten in ((0, 0), (500, T0), (1_000, T0 + 500), (1_500, T0 + 700), (2_000, 0), (1_900, T0 + 2_000)):
        answer = records.run("heartbeat", now=T0 + at, frontend="f1", lapse_ms=3_000, most=2, beaten=beaten)
        told.append(int(answer[4]))
        assert records.client.zscore(records.key("frontends"), "f1") == T0 + at
    assert told == [0, T0, T0 + 500, T0 + 1_000, T0 + 1_500, T0 + 2_000]
