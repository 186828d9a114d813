"""The heartbeat: what it reports, what it repeats after a failure, what it returns."""

# ruff: noqa: ANN401  (stands in for what Redis answers)

import time
from typing import TYPE_CHECKING, Any, cast

from broker.model.names import Partition
from broker.model.problems import CoreUnavailable
from broker.redis_core.maintenance.heartbeat import ALL_SENT_MS, Heartbeat, HeartbeatResult
from broker.scripts.answers import Answer, find_answers
from broker.scripts.location import lua_directory
from broker.scripts.source import operation

if TYPE_CHECKING:
    from broker.redis_core.redis_client.client import Server
    from broker.redis_core.redis_client.wakeup import Wakeup

NOW = 1_700_000_000_000
JOBS = Partition("jobs", "i1")


class Heart:
    """A server that answers heartbeats as a test says, or fails."""

    def __init__(self) -> None:
        """Begin with nothing due and no dead frontend."""
        self.beats: list[list[dict[str, Any]]] = []
        self.told: list[Any] = []
        self.now = NOW
        self.lapsed: list[tuple[bytes, int]] = []
        self.due: list[bytes] = []
        self.away = False
        self.known = 0
        self.by = b""
        self.returns = 0
        self.operations = {"heartbeat": operation(lua_directory(), "heartbeat")}

    def write_call(self, _name: str, _keys: list[str], fixed: dict[str, Any], rows: Any) -> Any:
        """Record the reports."""
        self.beats.append(list(rows))
        self.told.append(fixed["sent_until"])

    async def run(self, _call: Any) -> Answer:
        """Answer a heartbeat."""
        if self.away:
            msg = "away"
            raise CoreUnavailable(msg)
        before, self.known = self.known, self.now
        reply = [b"ok", self.now, self.lapsed, self.due, b"%d" % before, [], self.by, 1, 0, 0]
        return find_answers(self.operations)("heartbeat").read(reply)


class Turns:
    """A heartbeat and its results."""

    def __init__(self) -> None:
        """Make both."""
        self.heart = Heart()
        self.sent_until = time.monotonic()
        self.heartbeat = Heartbeat(cast("Server", self.heart), "f1", cast("Wakeup", None), lambda: self.sent_until)
        self.found: list[HeartbeatResult] = []

    async def turn(self) -> None:
        """Send one heartbeat."""
        await self.heartbeat.beat(self._act)

    async def _act(self, visits: HeartbeatResult) -> None:
        self.found.append(visits)


async def test_tells_the_earliest() -> None:
    """The earliest time since the last heartbeat is reported, and once."""
    turns = Turns()
    await turns.turn()
    for due in (NOW + 60_000, NOW + 50_000, NOW + 61_000):
        turns.heartbeat.announce(JOBS, due)
    await turns.turn()
    await turns.turn()
    assert turns.heart.beats[1:] == [[{"kind": "due", "name": str(JOBS), "at": NOW + 50_000}], []]


async def test_tells_a_later_time() -> None:
    """Guarantee 4: a later time is reported as well, since another frontend may have taken the partition off the list."""
    turns = Turns()
    for due in (NOW + 60_000, NOW + 61_000):
        turns.heartbeat.announce(JOBS, due)
        await turns.turn()
    assert turns.heart.beats[-1] == [{"kind": "due", "name": str(JOBS), "at": NOW + 61_000}]


async def test_owes_after_a_fault() -> None:
    """Reports of a failed heartbeat go with the next; the failure is shown until then."""
    turns = Turns()
    turns.heart.away = True
    turns.heartbeat.announce(JOBS, NOW + 60_000)
    turns.heartbeat.report_taken_over("f9")
    await turns.turn()
    assert turns.heartbeat.failure == "away" and turns.found == []
    turns.heart.away = False
    await turns.turn()
    assert turns.heartbeat.failure == ""
    assert turns.heart.beats[0] == turns.heart.beats[1] != []


async def test_tells_anew_after_a_fault() -> None:
    """Redis may have lost reports before it went away: all partitions are swept, and the results are reported again."""
    turns = Turns()
    turns.heartbeat.announce(JOBS, NOW + 60_000)
    await turns.turn()
    turns.heart.away = True
    await turns.turn()
    turns.heart.away = False
    await turns.turn()
    assert turns.found[-1].state_unknown
    turns.heartbeat.announce(JOBS, NOW + 60_000)
    await turns.turn()
    assert turns.heart.beats[-1] == turns.heart.beats[0] != []
    assert not turns.found[-1].state_unknown


async def test_tells_anew_after_a_loss() -> None:
    """A promoted replica may lack the last reports: the heartbeat that it knows shows this."""
    turns = Turns()
    turns.heartbeat.announce(JOBS, NOW + 60_000)
    await turns.turn()
    turns.heart.now += 500
    await turns.turn()
    turns.heart.known -= 500
    turns.heart.now += 500
    await turns.turn()
    turns.heartbeat.announce(JOBS, NOW + 60_000)
    await turns.turn()
    assert turns.heart.beats[-1] == turns.heart.beats[0] != []
    assert [visits.state_unknown for visits in turns.found] == [False, False, True, False]


async def test_a_master_returns() -> None:
    """Another master of the cluster may have lost a sweep, of a partition that is on no list any more."""
    turns = Turns()
    await turns.turn()
    turns.heart.returns += 1
    await turns.turn()
    await turns.turn()
    assert [visits.state_unknown for visits in turns.found] == [False, True, False]


async def test_asks_for_visits() -> None:
    """A heartbeat returns due partitions and dead frontends."""
    turns = Turns()
    turns.heart.due, turns.heart.lapsed = [str(JOBS).encode()], [(b"f2", 5_000)]
    began = time.monotonic()
    await turns.turn()
    (found,) = turns.found
    (dead,) = found.dead
    assert (found.due, dead.name) == ([JOBS], "f2")
    # Told by this process's clock, and never too late.
    assert began - 5 <= dead.sent_until <= time.monotonic() - 5


async def test_tells_what_is_sent() -> None:
    """Guarantee 4: by Redis's clock, as the last heartbeat knows it; a late reply makes the time earlier, never later."""
    turns = Turns()
    await turns.turn()
    assert turns.heart.told == [""]
    turns.sent_until = time.monotonic() - 2
    turns.heart.now += 500
    await turns.turn()
    assert NOW - 2_500 <= turns.heart.told[1] <= NOW - 1_990
    await turns.heartbeat.deregister(listed=True)
    assert turns.heart.told[2] == ALL_SENT_MS


async def test_disconnected() -> None:
    """Issue 8: a heartbeat tells a disconnected frontend to end."""
    turns = Turns()
    turns.heart.by = b"admin@x"
    await turns.turn()
    assert turns.found[0].disconnected_by == "admin@x"


async def test_a_visit_takes_what_was_announced_with_it() -> None:
    """Guarantee 4: a frontend that takes a partition off the list must report its next time, even after a later one."""
    turns = Turns()
    turns.heartbeat.announce(JOBS, NOW + 8_000)
    await turns.turn()
    # Another frontend has reported an earlier time, and this one gets the sweep.
    turns.heart.due = [str(JOBS).encode()]
    await turns.turn()
    turns.heart.due = []
    turns.heartbeat.announce(JOBS, NOW + 9_000)
    await turns.turn()
    assert turns.heart.beats[-1] == [{"kind": "due", "name": str(JOBS), "at": NOW + 9_000}]
