"""The core: takes every command, sends it to its node's lane or to the work on nodes, and keeps the frontend's pulse.

Holds nothing that is not in Redis but caches that scripts check and calls that are under way. Must not know any door
beyond the outlet that it was given.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import structlog

from broker.model.commands import (
    Affiliate,
    Command,
    Configure,
    Declare,
    Delete,
    Describe,
    Nodes,
    Presence,
    Publish,
    Purge,
    Retract,
    Stats,
    Subscribe,
    Unlock,
    Unsubscribe,
    Bounce,
)
from broker.model.core import Outlet, Reply
from broker.model.items import Delivery, Notice
from broker.model.names import Jid, Partition
from broker.model.nodes import NodeRecord
from broker.model.problems import CoreUnavailable, Problem
from broker.model.results import Counted, Done, Published, Refused, Result, Retracted, Subscribed, Unlocked, Unsubscribed
from broker.redis_core.deadletters import DeadLetters
from broker.redis_core.directory import Directory, Seat
from broker.redis_core.calls.call import subid
from broker.redis_core.internal import Expire, Leave, Left, Resend, Scanned
from broker.redis_core.lane import Lane
from broker.redis_core.metrics import Metrics
from broker.redis_core.nodes import NodeWork, Rules
from broker.redis_core.pulse import Pulse, Visits
from broker.redis_core.server import Server
from broker.scripts.location import lua_directory
from broker.settings import NodeCreation, Settings

log = structlog.get_logger()

LATE_SECONDS = 5.0
JOURNAL_RECORDS = 100_000
IDLE_LANES = 10_000
LOOK_EVERY = 5
"""Turns of the pulse between two looks in passing: idle cost stays under 20 commands a second, those in scripts counted."""

_START_PAUSE_SECONDS = 0.5
_UNAVAILABLE = Refused(Problem.UNAVAILABLE, "the service could not carry this out")


class RedisCore:
    """The queue over one Redis, as one frontend process runs it."""

    def __init__(self, settings: Settings, outlet: Outlet) -> None:
        """Make a core that hands deliveries and notices to `outlet`; nothing runs before `start`."""
        self.frontend = secrets.token_hex(4)
        self.admins = frozenset(settings.admins)
        self.metrics = Metrics()
        self._outlet = outlet
        self._server = Server.connect(settings.redis_url, lua_directory(), settings.redis_timeout)
        self._directory = Directory(self._server, JOURNAL_RECORDS, settings.node_quota)
        rules = Rules(self.admins, settings.node_creation is NodeCreation.ADMINS, settings.default_queueing)
        self._nodes = NodeWork(self._directory, rules, self._ask, self._changed, outlet.notify)
        self._letters = DeadLetters(self._directory, self._nodes, self._ask)
        self._pulse = Pulse(self._server, self.frontend, self._act)
        self._lanes: dict[str, Lane] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._carrying: set[tuple[str, bytes]] = set()
        self._rescuing: set[str] = set()
        self._turns = 0
        self._looked = 0
        self._running: list[asyncio.Task[None]] = []

    # What the doors see.

    def submit(self, command: Command, reply: Reply) -> None:
        """Take a command; see `broker.model.core.Core`."""
        began = time.monotonic()

        def answer(result: Result) -> None:
            self.metrics.turn.observe(time.monotonic() - began)
            self._tally(command, result)
            reply(result)

        match command:
            case Subscribe():
                self._spawn(self._subscribe(command, self._start(command)), answer)
            case Unsubscribe():
                self._spawn(self._unsubscribe(command, self._start(command)), answer)
            case Presence():
                self._spawn(self._presence(command), answer)
            case Declare():
                self._spawn(self._nodes.declare(command), answer)
            case Configure():
                self._spawn(self._nodes.configure(command), answer)
            case Affiliate():
                self._spawn(self._nodes.affiliate(command), answer)
            case Describe():
                self._spawn(self._nodes.describe(command), answer)
            case Delete():
                self._spawn(self._nodes.delete(command), answer)
            case Purge():
                self._spawn(self._nodes.purge(command), answer)
            case Nodes():
                self._spawn(self._nodes.nodes(command), answer)
            case Bounce():
                self._lane(command.partition.node).submit(command, answer)
            case _:
                self._lane(command.node).submit(command, answer)

    async def ask(self, command: Command) -> Result:
        """Submit a command and wait for its outcome."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self.submit(command, partial(_fulfil, future))
        return await future

    # What the composer sees.

    async def start(self) -> None:
        """Start the pulse, waiting for Redis as long as it takes; then look at every partition once."""
        while True:
            await self._pulse.turn()
            if not self._pulse.failure:
                break
            await asyncio.sleep(_START_PAUSE_SECONDS)
        self._running = [asyncio.create_task(self._pulse.run())]
        self._background(self._visit_all())

    def link(self, up: bool) -> None:  # noqa: FBT001  (an event with two values)
        """Hear that the door's stream is up or down: a frontend that cannot send must not look alive."""
        self._pulse.beating = up
        if up and self._running:
            # What was handed out and not written when the stream broke is sent again, unless others took it over.
            for lane in list(self._lanes.values()):
                self._background(self._rescue_lane(lane, self.frontend))

    def healthy(self) -> list[str]:
        """Give the reasons for which this frontend should get no work; none is health."""
        reasons = [self._pulse.failure] if self._pulse.failure else []
        if self._pulse.beating and time.monotonic() - self._pulse.last_turn > LATE_SECONDS:
            reasons.append(f"the dispatch loop has not turned for {LATE_SECONDS:.0f} s")
        return reasons

    async def drain(self, seconds: float) -> None:
        """Let what is under way end and tell Redis what is sent; at most so many seconds."""
        for task in self._running:
            task.cancel()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            busy = [lane for lane in self._lanes.values() if not lane.quiet]
            if not busy and not self._tasks and self._outlet.flushed():
                break
            await asyncio.sleep(0.01)
        for lane in [lane for lane in self._lanes.values() if lane.unmarked]:
            lane.mark()
        await asyncio.wait_for(asyncio.gather(*(lane.settled() for lane in self._lanes.values())), max(seconds, 1))

    async def stop(self) -> None:
        """Leave the list of frontends and close the connection."""
        for task in (*self._running, *self._tasks):
            task.cancel()
        if all(not lane.unmarked and lane.quiet for lane in self._lanes.values()):
            try:
                await self._pulse.resign()
            except CoreUnavailable as error:
                log.warning("could not resign", error=str(error))
        await self._server.close()

    # What lanes see.

    def deliver(self, delivery: Delivery) -> None:
        """Hand a delivery to the door."""
        self.metrics.count("delivered")
        self._outlet.deliver(delivery)

    def notify(self, notice: Notice) -> None:
        """Hand a notice to the door."""
        self._outlet.notify(notice)

    def flushed(self) -> bool:
        """Tell whether the door has written all that it was handed."""
        return self._outlet.flushed()

    def announce(self, partition: Partition, due_ms: int) -> None:
        """Note when a partition next needs a visit."""
        self._pulse.announce(partition, due_ms)

    def count(self, what: str, amount: int = 1) -> None:
        """Count for the metrics."""
        self.metrics.count(what, amount)

    def hand_over(self, record: NodeRecord, letter: list[Any]) -> None:
        """Bring a dead letter to its node, unless it is on its way already."""
        name = (record.name, letter[0])
        if name not in self._carrying:
            self._carrying.add(name)
            self._background(self._carry(name, record, letter))

    # Commands of several steps.

    def _start(self, command: Command) -> "asyncio.Future[Any]":
        """Give the lane a command now, so that it keeps its place among its sender's."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._lane(command.node).submit(command, partial(_fulfil, future))  # type: ignore[union-attr]
        return future

    async def _subscribe(self, command: Subscribe, outcome: "asyncio.Future[Any]") -> Result:
        seats = await self._directory.attend("subscribed", command.jid, command.node)
        result: Result = await outcome
        if isinstance(result, Subscribed) and seats is None:
            await self._ask(Leave(command.node, command.jid))
            return Refused(Problem.TOO_MANY_SUBSCRIPTIONS, "you are subscribed to as many nodes as you may")
        if isinstance(result, Refused):
            await self._directory.attend("left", command.jid, command.node)
        return result

    async def _unsubscribe(self, command: Unsubscribe, outcome: "asyncio.Future[Any]") -> Result:
        result = await outcome
        if not isinstance(result, Left):
            return result  # type: ignore[no-any-return]
        # Locks outlive the subscription (Q34): presence must find whoever still holds some.
        if result.held == 0:
            await self._directory.attend("left", command.jid, command.node)
        if not result.was_subscribed:
            return Refused(Problem.NOT_SUBSCRIBED, "there is no such subscription")
        return Unsubscribed(command.jid, subid(command.jid))

    async def _presence(self, command: Presence) -> Result:
        kind = "available" if command.available else "unavailable"
        for seat in await self._directory.attend(kind, command.sender) or ():
            await self._leave(seat)
        return Done()

    async def _leave(self, seat: Seat) -> None:
        while True:
            left = await self._ask(Leave(seat.node, seat.jid))
            if isinstance(left, Left) and left.held > 0:
                continue
            if isinstance(left, Left) or left.problem is Problem.NODE_NOT_FOUND:
                await self._directory.attend("left", seat.jid, seat.node)
            return

    async def _carry(self, name: tuple[str, bytes], record: NodeRecord, letter: list[Any]) -> None:
        try:
            if await self._letters.carry(record, letter):
                self.metrics.count("dead_lettered")
        finally:
            self._carrying.discard(name)

    # The pulse's work.

    async def _act(self, visits: Visits) -> None:
        for partition in visits.due:
            self._lane(partition.node).submit(Expire(partition.node), partial(self._visited, partition))
        for frontend in visits.lapsed:
            if frontend != self.frontend and frontend not in self._rescuing:
                self._rescuing.add(frontend)
                log.warning("frontend lapsed", frontend=frontend)
                self._background(self._rescue(frontend))
        for lane in list(self._lanes.values()):
            if (lane.doubtful or lane.unmarked) and lane.quiet:
                lane.mark()
        self._drop_idle()
        self._turns += 1
        if self._turns % LOOK_EVERY == 0:
            await self._look_in_passing()

    def _visited(self, partition: Partition, result: Any) -> None:
        """A visit that failed is owed again: nobody else knows of it."""
        if isinstance(result, Refused) and result.problem is not Problem.NODE_NOT_FOUND:
            self._pulse.announce(partition, int(self._pulse.now_ms()))

    async def _look_in_passing(self) -> None:
        """Visit one partition, the next in the list each time, round and round: finds what events missed."""
        names = await self._directory.names(self._looked, 1)
        self._looked = self._looked + 1 if names else 0
        for node in names:
            self._lane(node).submit(Expire(node), _ignored)

    async def _visit_all(self) -> None:
        async for node in self._all_nodes():
            await self._ask(Expire(node))

    async def _rescue(self, frontend: str) -> None:
        try:
            complete = True
            async for node in self._all_nodes():
                complete = await self._rescue_lane(self._lane(node), frontend) and complete
                await self._ask(Expire(node))
            if complete:
                self._pulse.rescued(frontend)
        finally:
            self._rescuing.discard(frontend)

    async def _rescue_lane(self, lane: Lane, frontend: str) -> bool:
        scan, upto = "0", None
        while True:
            result = await self._ask(Resend(lane.node, frontend, None, upto, scan))
            if not isinstance(result, Scanned):
                return isinstance(result, Refused) and result.problem is Problem.NODE_NOT_FOUND
            scan, upto = result.scan, result.upto
            if scan == "0":
                return True

    async def _all_nodes(self) -> Any:
        first = 0
        while names := await self._directory.names(first):
            for node in names:
                yield node
            first += len(names)

    async def measure(self) -> None:
        """Set the gauges of every node."""
        async for node in self._all_nodes():
            counted = await self._ask(Stats(node, Jid("")))
            if isinstance(counted, Counted):
                self.metrics.gauge(node, counted)

    # Small change.

    def _lane(self, node: str) -> Lane:
        lane = self._lanes.get(node)
        if lane is None:
            lane = self._lanes[node] = Lane(node, self._server, self._directory, self)
        return lane

    def _drop_idle(self) -> None:
        if len(self._lanes) > IDLE_LANES:
            for node in [node for node, lane in self._lanes.items() if lane.idle]:
                del self._lanes[node]

    def _changed(self, node: str) -> None:
        if node in self._lanes:
            self._lanes[node].forget()

    async def _ask(self, command: Any) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._lane(command.node).submit(command, partial(_fulfil, future))
        return await future

    def _spawn(self, work: Coroutine[Any, Any, Result], answer: Callable[[Result], None]) -> None:
        self._background(self._answered(work, answer))

    async def _answered(self, work: Coroutine[Any, Any, Result], answer: Callable[[Result], None]) -> None:
        try:
            result = await work
        except CoreUnavailable as error:
            result = Refused(error.problem, str(error))
        except Exception:
            log.exception("a command failed")
            result = _UNAVAILABLE
        answer(result)

    def _background(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            await work
        except CoreUnavailable as error:
            log.warning("background work put off", error=str(error))
        except Exception:
            log.exception("background work failed")

    def _tally(self, command: Command, result: Result) -> None:
        match result:
            case Refused():
                self.metrics.count("refused")
            case Published(duplicate=duplicate):
                self.metrics.count("duplicates" if duplicate else "published")
            case Retracted(replayed=False):
                self.metrics.count("acknowledged")
            case Unlocked(replayed=False):
                self.metrics.count("released")
            case Done() if isinstance(command, Bounce):
                self.metrics.count("bounced")


def _fulfil(future: "asyncio.Future[Any]", result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _ignored(_result: Any) -> None:
    """Answer nobody."""
