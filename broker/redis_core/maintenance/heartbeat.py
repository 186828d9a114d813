"""The heartbeat of a frontend: a loop of one script call every half second tells what is due, and which frontends are dead.

Idle cost is this loop's alone: one heartbeat a turn and now and then a partition looked at in passing, however many nodes
there are. Where a process asks for it the next turn comes at once. Must not know what a visit does.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

import structlog

from broker import keys
from broker.model.names import Partition
from broker.model.problems import CoreUnavailable, OtherFormat, ScriptDefect
from broker.redis_core.redis_client.client import Server, Value
from broker.redis_core.redis_client.failure_log import FailureLog
from broker.redis_core.redis_client.wakeup import Wakeup

log = structlog.get_logger()

HEARTBEAT_SECONDS = 0.5
DEAD_AFTER_MS = 3_000
"""A frontend unheard for so long has lapsed: with a turn and a rescue on top its deliveries are re-sent within 5 s."""

MAX_SWEEPS = 1_000
"""Most visits that a frontend has under way: what is due beyond that is left to other frontends, or is taken soon after."""

CHANGES_SECONDS = 2.0
"""Between two heartbeats that tell which nodes have changed: a busy one is told of once in so long."""

LISTEN_PAUSE_SECONDS = 0.02
"""Between a ring that is heard and listening again: what else comes in meanwhile is found by the same turn."""


@dataclass(slots=True)
class HeartbeatResult:
    """What the heartbeat asks for: partitions that are due, frontends that have lapsed, notices that others could not tell.

    With a `disconnected_by` it asks for nothing else but that this frontend ends.

    After a beat whose answer was lost it is `blind`: what that beat took from the list of due partitions, nobody knows. So it is
    when Redis does not know of the beat before: a replica has taken over that had not heard of it. It is `alone` while no
    frontend lives. It comes `early` where the beat before has left something that is due: then there is only that to do.
    """

    due: list[Partition] = field(default_factory=list)
    dead: list[str] = field(default_factory=list)
    state_unknown: bool = False
    notices: list[bytes] = field(default_factory=list)
    disconnected_by: str = ""
    no_live_frontend: bool = False
    early: bool = False


Act = Callable[[HeartbeatResult], Awaitable[None]]
"""What does the work that a turn has found."""


class Heartbeat:
    """Keeps one frontend alive in Redis and learns what there is to do."""

    def __init__(self, server: Server, frontend: str, wakeup: Wakeup) -> None:
        """Beat for `frontend`, or without a name for a core that cannot send; nothing happens before `run` or `turn`."""
        self._server = server
        self._wakeup = wakeup
        self._wake = asyncio.Event()
        self._frontend = frontend
        self._announced: dict[str, int] = {}
        self._unsent_due: dict[str, int] = {}
        self._taken_over: list[str] = []
        self._changed: set[str] = set()
        self._changes_sent_at = 0.0
        self._skew_ms = 0.0
        self._last_beat_ms = 0
        self._state_unknown = False
        self._beat_early = False
        self.free_sweeps = MAX_SWEEPS
        """How many more visits may be begun: the next beat takes as many partitions that are due."""
        self.more_due = False
        """The last beat has taken as many as it might, so that more may be due."""
        self.beating = True
        self.last_beat = time.monotonic()
        self._failures = FailureLog("heartbeat failed")
        self._wakeup_failures = FailureLog("wake-ups cannot be received")

    @property
    def failure(self) -> str:
        """Why the last turn failed; empty when it did not."""
        return self._failures.reason

    def now_ms(self) -> float:
        """Give Redis's time by the last heartbeat: good enough to decide what to announce, nothing else."""
        return time.monotonic() * 1000 + self._skew_ms

    def announce(self, partition: Partition, due_ms: int) -> None:
        """Tell with the next heartbeat when a partition needs a visit, unless an earlier visit is announced already."""
        name = str(partition)
        known = self._announced.get(name, 0)
        if self.now_ms() < known <= due_ms:
            return
        self._announced[name] = self._unsent_due[name] = due_ms

    def report_taken_over(self, frontend: str) -> None:
        """Tell with the next heartbeat that all of a lapsed frontend's deliveries are taken over."""
        self._taken_over.append(frontend)

    def report_changed(self, node: str) -> None:
        """Tell with one of the next heartbeats that something has happened to a node."""
        self._changed.add(node)

    async def run(self, act: Act) -> None:
        """Beat until cancelled."""
        while True:
            # Spread, so that frontends do not beat together.
            await self._pause(HEARTBEAT_SECONDS * random.uniform(0.8, 1.2))  # noqa: S311  (guards nothing)
            if self.beating:
                await self.beat(act)

    def beat_now(self) -> None:
        """Have the next beat come at once."""
        self._beat_early = True
        self._wake.set()

    async def live_frontends(self) -> list[str]:
        """Name the frontends that have not lapsed, in an order that is the same for all."""
        since = int(self.now_ms()) - DEAD_AFTER_MS
        found = await self._server.command("ZRANGEBYSCORE", keys.of_service("frontends"), f"({since}", "+inf")
        return sorted(name.decode() for name in found)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        self._wake.clear()

    async def listen(self) -> None:
        """Have the next beat at once when something wakes it, until cancelled."""
        while True:
            pause = HEARTBEAT_SECONDS
            # One that does not beat leaves wake-ups to those who do.
            if self.beating:
                try:
                    if await self._wakeup.wait():
                        self._wake.set()
                    pause = LISTEN_PAUSE_SECONDS
                except (CoreUnavailable, ScriptDefect) as error:
                    self._wakeup_failures.report(error)
                else:
                    self._wakeup_failures.recovered()
            await asyncio.sleep(pause)

    async def beat(self, act: Act) -> bool:
        """Beat once and act on what it finds; tells whether it went well: a fault is noted and the next turn tries again."""
        went_well = await self.attempt(partial(self._beat_and_act, act))
        if went_well:
            self.last_beat = time.monotonic()
        return went_well

    async def _beat_and_act(self, act: Act) -> None:
        await act(await self._beat())

    async def attempt(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Do something that Redis is needed for, and tell whether it went well; a fault is noted. Raises OtherFormat."""
        try:
            await work()
        except OtherFormat:
            raise
        except (CoreUnavailable, ScriptDefect) as error:
            self._failures.report(error)
        except Exception as error:
            # A defect of ours, so the place is wanted; the same one twice a second is not.
            reason = str(error) or type(error).__name__
            if reason != self.failure:
                log.exception("turn failed")
            self._failures.reason = reason
        else:
            self._failures.recovered()
            return True
        return False

    def mark_state_unknown(self) -> None:
        """Say that what is due may not be known: the next turn asks for a visit to all."""
        self._state_unknown = True

    async def _beat(self) -> HeartbeatResult:
        due_times, taken_over = self._unsent_due, self._taken_over
        self._unsent_due, self._taken_over = {}, []
        changed: set[str] = set()
        if time.monotonic() - self._changes_sent_at > CHANGES_SECONDS:
            changed, self._changed = self._changed, set()
        early, self._beat_early = self._beat_early, False
        most = self.free_sweeps
        try:
            now, dead, due, before, notices, by, alive = await self._call(due_times, taken_over, changed, most)
        except (CoreUnavailable, ScriptDefect):
            self.mark_state_unknown()
            # A Redis that comes back may have lost what it was told last: all that the visits find is told anew.
            self._announced = {}
            self._unsent_due = due_times | self._unsent_due
            self._taken_over += taken_over
            self._changed |= changed
            raise
        if changed:
            self._changes_sent_at = time.monotonic()
        self._skew_ms = now - time.monotonic() * 1000
        if self._frontend and before != self._last_beat_ms:
            self.mark_state_unknown()
            self._announced = due_times
        self._last_beat_ms = now
        for partition in due:
            # Taken off the list for this visit, with whatever was announced for later.
            self._announced.pop(partition.decode(), None)
        for name in list(self._announced):
            if self._announced[name] <= now:
                del self._announced[name]
        self.more_due = len(due) == most
        state_unknown, self._state_unknown = self._state_unknown, False
        partitions = [Partition.parse(name.decode()) for name in due]
        frontends = [name.decode() for name in dead]
        return HeartbeatResult(partitions, frontends, state_unknown, notices, by.decode(), not alive, early)

    async def _call(
        self, due_times: Mapping[str, int], taken_over: Iterable[str], changed: Iterable[str], most: int
    ) -> tuple[int, list[bytes], list[bytes], int, list[bytes], bytes, int]:
        rows: list[dict[str, Value]] = [{"kind": "due", "name": name, "at": at} for name, at in due_times.items()]
        rows += [{"kind": "rescued", "name": name, "at": 0} for name in taken_over]
        rows += [{"kind": "changed", "name": name, "at": 0} for name in changed]
        fixed: dict[str, Value] = {
            "now": "",
            "frontend": self._frontend,
            "lapse_ms": DEAD_AFTER_MS,
            "most": most,
            "beaten": self._last_beat_ms,
        }
        names = [keys.of_service(name) for name in self._server.header("heartbeat").keys]
        _code, now, dead, due, before, notices, by, alive = await self._server.run(
            self._server.arguments("heartbeat", names, fixed, rows)
        )
        return now, dead, due, int(before), notices, by, alive

    async def deregister(self) -> None:
        """Tell for the last time what will be due, and leave the list: nothing of this one is to be taken over."""
        await self._call(self._unsent_due, self._taken_over, self._changed, 0)
        await self._server.commands(
            [
                ("ZREM", keys.of_service("frontends"), self._frontend),
                ("HDEL", keys.of_service("disconnected"), self._frontend),
            ]
        )
