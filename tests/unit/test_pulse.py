"""The pulse: what it tells, what it owes after a fault, what it asks for."""

# ruff: noqa: ANN401  (stands in for what Redis answers)

from typing import TYPE_CHECKING, Any, cast

from broker.model.names import Partition
from broker.model.problems import CoreUnavailable
from broker.redis_core.maintenance.heartbeat import Heartbeat, HeartbeatResult
from broker.scripts.location import lua_directory
from broker.scripts.source import operation

if TYPE_CHECKING:
    from broker.redis_core.redis_client.client import Server
    from broker.redis_core.redis_client.wakeup import Wakeup

NOW = 1_700_000_000_000
JOBS = Partition("jobs", "i1")


class Heart:
    """A server that answers heartbeats with what a test says, or fails."""

    def __init__(self) -> None:
        """Begin with nothing due and nobody lapsed."""
        self.beats: list[list[dict[str, Any]]] = []
        self.now = NOW
        self.lapsed: list[bytes] = []
        self.due: list[bytes] = []
        self.away = False
        self.known = 0
        self.by = b""
        self.operations = {"heartbeat": operation(lua_directory(), "heartbeat")}

    def call(self, _name: str, _keys: list[str], _fixed: dict[str, Any], rows: Any) -> Any:
        """Write down what is told."""
        self.beats.append(list(rows))

    async def run(self, _call: Any) -> list[Any]:
        """Answer a beat."""
        if self.away:
            msg = "away"
            raise CoreUnavailable(msg)
        before, self.known = self.known, self.now
        return [b"ok", self.now, self.lapsed, self.due, b"%d" % before, [], self.by, 1]


class Turns:
    """A pulse over a heart, and what its turns found."""

    def __init__(self) -> None:
        """Make both."""
        self.heart = Heart()
        self.pulse = Heartbeat(cast("Server", self.heart), "f1", cast("Wakeup", None))
        self.found: list[HeartbeatResult] = []

    async def turn(self) -> None:
        """Beat once."""
        await self.pulse.beat(self._act)

    async def _act(self, visits: HeartbeatResult) -> None:
        self.found.append(visits)


async def test_tells_the_earliest() -> None:
    """The earliest time that became known since the last beat is told, and once."""
    turns = Turns()
    await turns.turn()
    for due in (NOW + 60_000, NOW + 50_000, NOW + 61_000):
        turns.pulse.announce(JOBS, due)
    await turns.turn()
    await turns.turn()
    assert turns.heart.beats[1:] == [[{"kind": "due", "name": str(JOBS), "at": NOW + 50_000}], []]


async def test_tells_a_later_time() -> None:
    """Guarantee 4: a later time is told as well, since another frontend may have taken the partition off the list meanwhile."""
    turns = Turns()
    for due in (NOW + 60_000, NOW + 61_000):
        turns.pulse.announce(JOBS, due)
        await turns.turn()
    assert turns.heart.beats[-1] == [{"kind": "due", "name": str(JOBS), "at": NOW + 61_000}]


async def test_owes_after_a_fault() -> None:
    """What a failed beat was to tell goes with the next; the fault is shown until then."""
    turns = Turns()
    turns.heart.away = True
    turns.pulse.announce(JOBS, NOW + 60_000)
    turns.pulse.report_taken_over("f9")
    await turns.turn()
    assert turns.pulse.failure == "away" and turns.found == []
    turns.heart.away = False
    await turns.turn()
    assert turns.pulse.failure == ""
    assert turns.heart.beats[0] == turns.heart.beats[1] != []


async def test_tells_anew_after_a_fault() -> None:
    """Redis may have lost what it was told before it went: all is visited, and what that finds is told again."""
    turns = Turns()
    turns.pulse.announce(JOBS, NOW + 60_000)
    await turns.turn()
    turns.heart.away = True
    await turns.turn()
    turns.heart.away = False
    await turns.turn()
    assert turns.found[-1].state_unknown
    turns.pulse.announce(JOBS, NOW + 60_000)
    await turns.turn()
    assert turns.heart.beats[-1] == turns.heart.beats[0] != []
    assert not turns.found[-1].state_unknown


async def test_tells_anew_after_a_loss() -> None:
    """A replica that took over in silence may not have heard what Redis was told last: it shows by the beat that it knows."""
    turns = Turns()
    turns.pulse.announce(JOBS, NOW + 60_000)
    await turns.turn()
    turns.heart.now += 500
    await turns.turn()
    turns.heart.known -= 500
    turns.heart.now += 500
    await turns.turn()
    turns.pulse.announce(JOBS, NOW + 60_000)
    await turns.turn()
    assert turns.heart.beats[-1] == turns.heart.beats[0] != []
    assert [visits.state_unknown for visits in turns.found] == [False, False, True, False]


async def test_asks_for_visits() -> None:
    """What is due and who has lapsed is what a turn asks for."""
    turns = Turns()
    turns.heart.due, turns.heart.lapsed = [str(JOBS).encode()], [b"f2"]
    await turns.turn()
    assert turns.found == [HeartbeatResult([JOBS], ["f2"])]


async def test_disconnected() -> None:
    """Issue 8: a turn that learns that this frontend is to end asks for that."""
    turns = Turns()
    turns.heart.by = b"admin@x"
    await turns.turn()
    assert turns.found[0].disconnected_by == "admin@x"


async def test_a_visit_takes_what_was_announced_with_it() -> None:
    """Guarantee 4: whoever takes a partition off the list must announce its next time, even if it had announced a later one."""
    turns = Turns()
    turns.pulse.announce(JOBS, NOW + 8_000)
    await turns.turn()
    # Another frontend has announced an earlier time, and this one is given the visit.
    turns.heart.due = [str(JOBS).encode()]
    await turns.turn()
    turns.heart.due = []
    turns.pulse.announce(JOBS, NOW + 9_000)
    await turns.turn()
    assert turns.heart.beats[-1] == [{"kind": "due", "name": str(JOBS), "at": NOW + 9_000}]
