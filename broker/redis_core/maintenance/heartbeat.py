"""The heartbeat of a frontend: one call every half second reports due times and returns due partitions and dead frontends.

An idle frontend costs no more than this loop and a slow background scan, however many nodes there are. A wake-up makes the next
heartbeat come at once. Must not know what a sweep does.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import structlog

from broker import keys
from broker.model.frozen import frozen
from broker.model.names import Partition
from broker.model.problems import CoreUnavailable, OperationDefect, OtherFormat
from broker.redis_core.redis_client.client import Answer, Server, Value
from broker.redis_core.redis_client.failure_log import FailureLog
from broker.redis_core.redis_client.wakeup import Wakeup
from broker.store_format import OWN, StoreFormat
from broker.tasks import start

log = structlog.get_logger()

HEARTBEAT_SECONDS = 0.5
DEAD_AFTER_MS = 2_000
"""A frontend without a heartbeat for so long is dead: others take it over and send its deliveries again within 5 s."""

ALL_SENT_MS: Final = 4_000_000_000_000_000
"""The time until which all is sent of a frontend that has stopped in order: after all others."""

MAX_SWEEPS = 1_000
"""Sweeps that a frontend runs at once at most; it leaves other due partitions to other frontends, or to its next heartbeat."""

CHANGES_SECONDS = 2.0
"""Interval between reports of changed nodes: a busy node is reported once in an interval."""

LISTEN_PAUSE_SECONDS = 0.02
"""Pause between a wake-up and the next wait: one heartbeat serves all wake-ups that come meanwhile."""


@frozen
class DeadFrontend:
    """A dead frontend, and the time, of this process's steady clock, before which all that was handed to it is sent."""

    name: str
    sent_until: float


@dataclass(slots=True)
class HeartbeatResult:
    """What a heartbeat returned: due partitions, dead frontends, and notices left by processes that cannot send.

    With `disconnected_by` the frontend does nothing but end. `state_unknown` is set when the reply to the last heartbeat was lost
    or when a promoted replica does not know that heartbeat: due partitions may have been removed without being swept. It is set
    too when another master of a cluster has returned, with partitions that may be overdue again. So the frontend sweeps all. An
    `early` heartbeat only fetches more due partitions than the last one could take. `store` is the format of the store.
    """

    due: list[Partition] = field(default_factory=list)
    dead: list[DeadFrontend] = field(default_factory=list)
    state_unknown: bool = False
    notices: list[bytes] = field(default_factory=list)
    disconnected_by: str = ""
    no_live_frontend: bool = False
    early: bool = False
    store: StoreFormat = OWN


Act = Callable[[HeartbeatResult], Awaitable[None]]
"""Does the work that a heartbeat returned."""


class Heartbeat:
    """Keeps one frontend alive in Redis and fetches its work."""

    def __init__(self, server: Server, frontend: str, wakeup: Wakeup, look: Callable[[], float]) -> None:
        """Send heartbeats for `frontend`; a core that cannot send has no name. Nothing is sent before `run` or `beat`.

        `look` returns the time, of the steady clock, before which all that was handed to this frontend is sent.
        """
        self._server = server
        self._wakeup = wakeup
        self._wake = asyncio.Event()
        self._frontend = frontend
        self._look = look
        self._unsent_due: dict[Partition, int] = {}
        self._taken_over: list[str] = []
        self.changed: set[str] = set()
        """The nodes that have changed: one of the next heartbeats reports them."""
        self._changes_sent_at = 0.0
        self.skew_ms = 0.0
        """What Redis's time was ahead of this process's steady clock at the last heartbeat."""
        self._last_beat_ms = 0
        self._returns = 0
        self._state_unknown = False
        self._beat_early = False
        self.free_sweeps = MAX_SWEEPS
        """How many more sweeps may begin: the next heartbeat takes at most so many due partitions."""
        self.more_due = False
        """The last heartbeat took as many partitions as it might: more may be due."""
        self.beating = True
        self.last_beat = time.monotonic()
        self._failures = FailureLog("heartbeat failed")
        self._wakeup_failures = FailureLog("wake-ups cannot be received")

    @property
    def failure(self) -> str:
        """Why the last heartbeat failed; empty when it succeeded."""
        return self._failures.reason

    def now_ms(self) -> float:
        """Return Redis's time by the last heartbeat: good enough to decide what to announce, nothing else."""
        return time.monotonic() * 1000 + self.skew_ms

    def announce(self, partition: Partition, due_ms: int) -> bool:
        """Report a partition's due time with the next heartbeat; returns whether no earlier one waits for that.

        Also after an earlier time was reported: another frontend may have swept the partition since, and found nothing due.
        """
        known = self._unsent_due.get(partition)
        if known is not None and known <= due_ms:
            return False
        self._unsent_due[partition] = due_ms
        return True

    def report_taken_over(self, frontend: str) -> None:
        """Report with the next heartbeat that all deliveries of a dead frontend are taken over."""
        self._taken_over.append(frontend)

    async def run(self, act: Act) -> None:
        """Send heartbeats until cancelled."""
        while True:
            # Jitter keeps frontends from sending together.
            await self._pause(HEARTBEAT_SECONDS * random.uniform(0.8, 1.2))  # noqa: S311  (guards nothing)
            if self.beating:
                await self.beat(act)

    def beat_now(self) -> None:
        """Send the next heartbeat at once."""
        self._beat_early = True
        self._wake.set()

    async def live_frontends(self) -> list[str]:
        """Return the names of the live frontends, in the same order for all callers."""
        since = int(self.now_ms()) - DEAD_AFTER_MS
        found = await self._server.command("ZRANGEBYSCORE", keys.of_service("frontends"), f"({since}", "+inf")
        return sorted(name.decode() for name in found)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        self._wake.clear()

    async def listen(self) -> None:
        """Send the next heartbeat at once after each wake-up, until cancelled."""
        while True:
            pause = HEARTBEAT_SECONDS
            # A frontend without heartbeats leaves wake-ups to the others.
            if self.beating:
                try:
                    if await self._wakeup.wait():
                        self._wake.set()
                    pause = LISTEN_PAUSE_SECONDS
                except (CoreUnavailable, OperationDefect) as error:
                    self._wakeup_failures.report(error)
                else:
                    self._wakeup_failures.note_success()
            await asyncio.sleep(pause)

    async def beat(self, act: Act) -> bool:
        """Send one heartbeat and act on its result. Returns False on a fault, which is logged; the next heartbeat tries again."""
        went_well = await self.attempt(partial(self._beat_and_act, act))
        if went_well:
            self.last_beat = time.monotonic()
        return went_well

    async def _beat_and_act(self, act: Act) -> None:
        """Send a heartbeat and act on its result.

        The due partitions that it took are on no list any more, so they are announced again if this fails or is cancelled.
        """
        beat = start(self._beat())
        try:
            await act(await asyncio.shield(beat))
        except BaseException:
            with contextlib.suppress(CoreUnavailable, OperationDefect):
                for partition in (await beat).due:
                    self.announce(partition, int(self.now_ms()))
            raise

    async def attempt(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Do work that needs Redis and return whether it succeeded; a fault is logged. Raises OtherFormat."""
        try:
            await work()
        except OtherFormat:
            raise
        except Exception as error:  # noqa: BLE001  (logged)
            self._failures.report(error)
        else:
            self._failures.note_success()
            return True
        return False

    def mark_state_unknown(self) -> None:
        """Assume that due partitions were lost: the next result asks for a sweep of all."""
        self._state_unknown = True

    async def _beat(self) -> HeartbeatResult:
        due_times, taken_over = self._unsent_due, self._taken_over
        self._unsent_due, self._taken_over = {}, []
        changed: set[str] = set()
        if time.monotonic() - self._changes_sent_at > CHANGES_SECONDS:
            changed, self.changed = self.changed, set()
        early, self._beat_early = self._beat_early, False
        most = self.free_sweeps
        began = time.monotonic()
        try:
            answer = await self._call(due_times, taken_over, changed, most, self._sent_until_ms())
        except BaseException:
            self.mark_state_unknown()
            for partition, due_ms in due_times.items():
                self.announce(partition, due_ms)
            self._taken_over += taken_over
            self.changed |= changed
            raise
        if changed:
            self._changes_sent_at = time.monotonic()
        self.skew_ms = answer.now_ms - time.monotonic() * 1000
        returns = self._server.returns
        if (self._frontend and int(answer.beat_ms) != self._last_beat_ms) or returns != self._returns:
            self.mark_state_unknown()
        self._last_beat_ms, self._returns = answer.now_ms, returns
        partitions = list(_partitions(answer.due))
        self.more_due = len(answer.due) == most
        state_unknown, self._state_unknown = self._state_unknown, False
        # The ages are of a moment after `began`.
        dead = [DeadFrontend(each.name.decode(), began - each.age_ms / 1000) for each in answer.dead]
        by, alone = answer.by.decode(), not answer.live
        # Redis may have lost it; then it is noted again with the next change of a list of nodes.
        store = StoreFormat(answer.format, answer.least) if answer.format else OWN
        return HeartbeatResult(partitions, dead, state_unknown, answer.notices, by, alone, early, store)

    def _sent_until_ms(self) -> int | str:
        """Return until when all is sent, by Redis's clock: it is known, and never too late, from the last heartbeat on.

        A heartbeat that runs late or twice claims no more than this.
        """
        known = self._frontend and self._last_beat_ms
        return int(self._look() * 1000 + self.skew_ms) if known else ""

    async def _call(
        self,
        due_times: Mapping[Partition, int],
        taken_over: Iterable[str],
        changed: Iterable[str],
        most: int,
        sent_until: Value,
    ) -> Answer:
        rows: list[dict[str, Value]] = [{"kind": "due", "name": str(due), "at": at} for due, at in due_times.items()]
        rows += [{"kind": "taken-over", "name": name, "at": 0} for name in taken_over]
        rows += [{"kind": "changed", "name": name, "at": 0} for name in changed]
        fixed: dict[str, Value] = {
            "now": "",
            "frontend": self._frontend,
            "dead_after_ms": DEAD_AFTER_MS,
            "most": most,
            "beaten": self._last_beat_ms,
            "sent_until": sent_until,
        }
        names = [keys.of_service(name) for name in self._server.operations["heartbeat"].keys]
        return await self._server.run(self._server.write_call("heartbeat", names, fixed, rows))

    async def deregister(self, *, listed: bool) -> None:
        """Report the last due times, and that all is sent, and leave the list of frontends unless it is to stay `listed`."""
        await self._call(self._unsent_due, self._taken_over, self.changed, 0, ALL_SENT_MS if self._frontend else "")
        if not listed:
            await self._server.commands(
                [
                    ("ZREM", keys.of_service("frontends"), self._frontend),
                    ("HDEL", keys.of_service("sent_until"), self._frontend),
                    ("HDEL", keys.of_service("disconnected"), self._frontend),
                ]
            )


def _partitions(names: Iterable[bytes]) -> Iterator[Partition]:
    """Read names of partitions; only somebody with redis-cli lists another."""
    for name in names:
        try:
            yield Partition.parse(name.decode())
        except ValueError as error:
            log.warning("the list of due partitions had another name", error=str(error))
