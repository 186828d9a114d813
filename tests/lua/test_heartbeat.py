"""heartbeat: live frontends, dead ones, due partitions."""

from typing import Any

from broker import keys
from tests.lua.driver import T0
from tests.lua.records import Records


def beat(records: Records, frontend: str, after_ms: int, *rows: tuple[str, str, int]) -> list[Any]:
    """Send a heartbeat so long after the beginning; return the dead frontends and the due partitions."""
    lines = [{"kind": kind, "name": name, "at": at} for kind, name, at in rows]
    code, now, dead, due, _before, _notices, _by, _alive, _format, _least = records.run(
        "heartbeat", *lines, now=T0 + after_ms, frontend=frontend, dead_after_ms=3_000, most=2, beaten=0
    )
    assert (code, now) == ("ok", T0 + after_ms)
    return [[name for name, _age_ms in dead], due]


def test_lapse(records: Records) -> None:
    """Guarantee 4: a frontend without a heartbeat for long is dead, for all, until its takeover is reported."""
    beat(records, "f1", 0)
    assert beat(records, "f2", 2_999) == [[], []]
    assert beat(records, "f2", 3_000) == [["f1"], []]
    assert beat(records, "f3", 3_001) == [["f1"], []]
    assert beat(records, "f2", 3_002, ("taken-over", "f1", 0)) == [[], []]


def test_what_is_sent(records: Records) -> None:
    """Guarantee 4: of a dead frontend is told how old that is which it may not have sent; all, if it has told nothing."""

    def ages(after_ms: int, frontend: str, sent_until: int | str = "", *rows: dict[str, Any]) -> list[Any]:
        at = T0 + after_ms
        fixed = {"now": at, "frontend": frontend, "dead_after_ms": 3_000, "most": 2, "beaten": 0}
        dead: list[Any] = records.run("heartbeat", *rows, **fixed, sent_until=sent_until)[2]
        return dead

    ages(0, "f1", T0 - 1_500)
    ages(0, "f2")
    # A heartbeat that runs late, or twice, tells of an earlier time.
    ages(400, "f1", T0 - 1_600)
    assert ages(3_500, "f3") == [["f2", T0 + 3_500], ["f1", 5_100]]
    over = {"kind": "taken-over", "name": "f1", "at": 0}
    assert ages(3_501, "f3", "", over) == [["f2", T0 + 3_501]]
    assert not records.client.hexists(keys.of_service("sent_until"), "f1")


def test_taken_over_but_alive(records: Records) -> None:
    """A frontend that sends a heartbeat during its takeover stays in the list."""
    beat(records, "f1", 0)
    beat(records, "f1", 5_000)
    beat(records, "f2", 5_001, ("taken-over", "f1", 0))
    assert beat(records, "f2", 8_500) == [["f1"], []]


def test_nameless(records: Records) -> None:
    """R2: a process that cannot send is not listed, leaves due partitions to frontends, and takes them if there is none."""

    def alone(after_ms: int, *rows: dict[str, Any]) -> list[Any]:
        return records.run("heartbeat", *rows, now=T0 + after_ms, frontend="", dead_after_ms=3_000, most=2, beaten=0)[
            2:8
        ]

    beat(records, "f1", 0)
    assert alone(1, {"kind": "due", "name": "a", "at": T0}) == [[], [], "0", [], "", 1]
    assert alone(3_000) == [[], ["a"], "0", [], "", 0]
    assert beat(records, "f2", 3_001) == [["f1"], []]


def test_due(records: Records) -> None:
    """Q35: a due partition goes to one frontend, the earliest first, bounded (X7); the earlier of two times counts."""
    beat(records, "f1", 0, ("due", "a", T0 + 100), ("due", "b", T0 + 50), ("due", "c", T0 + 70), ("due", "a", T0 + 900))
    assert beat(records, "f1", 49) == [[], []]
    assert beat(records, "f2", 200) == [[], ["b", "c"]]
    assert beat(records, "f1", 200) == [[], ["a"]]
    assert beat(records, "f1", 201) == [[], []]


def test_due_at_once(records: Records) -> None:
    """A partition reported as due by now is returned by the same heartbeat."""
    assert beat(records, "f1", 0, ("due", "a", T0)) == [[], ["a"]]


def test_the_beat_before(records: Records) -> None:
    """A frontend learns which of its heartbeats Redis knows: if not its last, Redis has lost data since."""
    seen = [
        records.run("heartbeat", now=T0 + at, frontend=frontend, dead_after_ms=3_000, most=2, beaten=0)[4]
        for at, frontend in ((0, "f1"), (500, "f1"), (600, "f2"), (1_000, "f1"))
    ]
    assert seen == ["0", str(T0), "0", str(T0 + 500)]


def test_notices(records: Records) -> None:
    """One frontend takes the notices of processes that cannot send, bounded, the oldest first."""
    records.client.rpush(records.key("notices"), "one", "two", "three")
    taken = [
        records.run("heartbeat", now=T0, frontend=frontend, dead_after_ms=3_000, most=2, beaten=0)[5]
        for frontend in ("f1", "f2", "f1")
    ]
    assert taken == [["one", "two"], ["three"], []]


def test_stands_as_it_beat_last(records: Records) -> None:
    """Whatever it knows of its earlier heartbeat, it is listed with this one, and gets the earlier one back."""
    told = []
    for at, beaten in ((0, 0), (500, T0), (1_000, T0 + 500), (1_500, T0 + 700), (2_000, 0), (1_900, T0 + 2_000)):
        answer = records.run("heartbeat", now=T0 + at, frontend="f1", dead_after_ms=3_000, most=2, beaten=beaten)
        told.append(int(answer[4]))
        assert records.client.zscore(records.key("frontends"), "f1") == T0 + at
    assert told == [0, T0, T0 + 500, T0 + 1_000, T0 + 1_500, T0 + 2_000]


def test_changed(records: Records) -> None:
    """Guarantee 6: changed nodes are listed with the time, but not those that have been deleted meanwhile."""
    records.client.zadd(records.key("all_nodes"), {"a": 1, "b": 2})
    beat(records, "f1", 0, ("changed", "a", 0), ("changed", "b", 0), ("changed", "gone", 0))
    beat(records, "f2", 7, ("changed", "a", 0))
    assert records.client.zrange(records.key("changed"), 0, -1, withscores=True) == [(b"b", T0), (b"a", T0 + 7)]
