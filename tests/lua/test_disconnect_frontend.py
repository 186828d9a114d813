"""disconnect_frontend: a frontend has to end, and the others take over."""

import pytest

from tests.lua.driver import T0
from tests.lua.records import Records
from tests.lua.test_heartbeat import beat


def disconnect(records: Records, frontend: str, after_ms: int, by: str = "admin@x", most: int = 3) -> bool:
    """Disconnect a frontend so long after the beginning; return whether it was listed."""
    _ok, listed = records.run(
        "disconnect_frontend", now=T0 + after_ms, frontend=frontend, by=by, keep_ms=60_000, most=most
    )
    return bool(listed)


def ended_by(records: Records, frontend: str, after_ms: int, beaten: int = 0) -> str:
    """Send a heartbeat with the last one; return who has disconnected this frontend."""
    given = {"dead_after_ms": 3_000, "most": 2, "beaten": beaten}
    return str(records.run("heartbeat", now=T0 + after_ms, frontend=frontend, **given)[6])


def test_lapsed_until_it_is_taken_over(records: Records) -> None:
    """Issue 8: it counts as dead at once, whatever heartbeats it sends; each tells it to end, and gives it no work."""
    beat(records, "f1", 0)
    beat(records, "f2", 0, ("due", "p", T0 + 100))
    records.client.rpush(records.key("notices"), "one")
    assert disconnect(records, "f1", 100)
    assert ended_by(records, "f1", 200) == ended_by(records, "f1", 300) == "admin@x"
    assert beat(records, "f1", 400, ("due", "q", T0)) == [[], []]
    assert beat(records, "f2", 401) == [["f1"], ["q", "p"]]
    assert ended_by(records, "f2", 402) == ""


@pytest.mark.parametrize("lives", [False, True])
def test_looked_at_twice(records: Records, lives: bool) -> None:  # noqa: FBT001  (a parameter)
    """Issue 8: it may have handed something out until it ended, so it is taken over a second time, and then removed."""
    beat(records, "f1", 0)
    disconnect(records, "f1", 100)
    assert beat(records, "f2", 200, ("taken-over", "f1", 0)) == [[], []]
    if lives:
        assert ended_by(records, "f1", 1_000) == "admin@x"
    assert beat(records, "f2", 3_199) == [[], []]
    assert beat(records, "f2", 3_200) == [["f1"], []]
    assert beat(records, "f2", 3_300, ("taken-over", "f1", 0)) == [[], []]
    # One that hung so long is listed once more when it wakes, for what it does until it ends.
    assert ended_by(records, "f1", 50_000) == "admin@x"
    assert beat(records, "f2", 53_000) == [["f1"], []]


@pytest.mark.parametrize("taken_over", [False, True])
def test_one_that_knows_its_last_beat(records: Records, taken_over: bool) -> None:  # noqa: FBT001  (a parameter)
    """Issue 8: a heartbeat asks for disconnects only if its last one is not listed, which a disconnect and a takeover cause."""
    assert ended_by(records, "f1", 0) == ended_by(records, "f1", 500, T0) == ""
    disconnect(records, "f1", 600)
    if taken_over:
        beat(records, "f2", 700, ("taken-over", "f1", 0))
    assert ended_by(records, "f1", 1_000, T0 + 500) == ended_by(records, "f1", 1_500, T0 + 1_000) == "admin@x"


def test_one_that_has_lapsed(records: Records) -> None:
    """Issue 8: one that hung until it was removed from the list is told to end as well, when it wakes."""
    assert not disconnect(records, "f1", 0)
    assert beat(records, "f2", 10_000) == [[], []]
    assert ended_by(records, "f1", 10_000) == "admin@x"


def test_bounded(records: Records) -> None:
    """Guarantee 6: old entries are removed, and the oldest of many."""
    for number in range(5):
        beat(records, f"f{number}", 0)
        disconnect(records, f"f{number}", number, by=f"a{number}@x")
    told = {f"f{number}": f"{T0 + number} a{number}@x" for number in (2, 3, 4)}
    assert records.hash("disconnected") == told
    beat(records, "f9", 60_003)
    disconnect(records, "f9", 60_003, by="late@x")
    assert records.hash("disconnected") == {"f4": told["f4"], "f9": f"{T0 + 60_003} late@x"}
