"""Questions about references."""

from tests.lua.driver import TOP, Queue
from tests.lua.worded import W1


def test_told(unopened: Queue) -> None:
    """A lock's time left is told, and what nobody knows; with a reason a lock ends, and a holder is notified of some."""
    unopened.open(above="1")
    unopened.publish("a", "b")
    unopened.lend(W1, "r1", "r2")
    unopened.now += 1_000

    def check(*looks: tuple[str, str]) -> list[str]:
        rows = ({"reference": name, "deadline": deadline, "reason": why} for name, why in looks)
        answer = unopened.run("check_references", *rows)
        said.extend(answer.notices)
        return [str(row) for row in answer.rows]

    deadline = unopened.now
    said: list[list[object]] = []
    assert check(("r1", ""), ("r2", ""), ("r3", "")) == ["59000", "59000", "unknown"]
    assert not said
    assert check(("r1", "withdrawn"), ("r2", "unavailable")) == ["ended", "ended"]
    told = [notice for notice in said if notice[0] == "ended"]
    assert [(notice[1], notice[2], notice[4]) for notice in told] == [(W1, "a", TOP)]
    assert check(("r1", ""), ("r2", "")) == ["unknown", "unknown"]
    # A receive that is under way may come, until its deadline; before its time began, the clock went back.
    deadline = unopened.now + 1
    assert check(("r3", "")) == ["early"]
    deadline = unopened.now + 3_001
    assert check(("r3", "")) == ["unknown"]
    assert set(unopened.browse().values()) == {"waiting"}
