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

from broker.model.commands import Bounce, Command, Confirm
from broker.model.core import Outlet, Reply
from broker.model.items import ApprovalAsked, Delivery, Notice, OwnershipLost, SubscriptionChanged
from broker.model.leases import is_lease
from broker.model.names import Jid, Partition
from broker.model.nodes import NodeRecord
from broker.model.problems import CoreUnavailable
from broker.model.qos import Stage
from broker.model.results import Refused, Result
from broker.model.subscriptions import State, Subscription
from broker.redis_core.bell import Bell
from broker.redis_core.deadletters import DeadLetters
from broker.redis_core.directory import Directory
from broker.redis_core.internal import FAILED, LaneCommand, Outcome, fulfil
from broker.redis_core.known import Known
from broker.redis_core.lane import Lane
from broker.redis_core.memory import Memory
from broker.redis_core.metrics import Metrics
from broker.redis_core.proxy import Proxy
from broker.redis_core.pulse import TURN_SECONDS, Pulse, Visits
from broker.redis_core.rounds import Rounds
from broker.redis_core.routes import Routes
from broker.redis_core.server import Server
from broker.redis_core.transfers import MARK
from broker.redis_core.tree import Tree
from broker.redis_core.works import Calls, Works
from broker.scripts.location import lua_directory
from broker.settings import Settings

log = structlog.get_logger()

LATE_SECONDS = 5.0
IDLE_LANES = 10_000
_START_PAUSE_SECONDS = 0.5
_LOOK_SECONDS = 0.01

ALONE = "-"
"""What a core that cannot send is called in scripts while no frontend lives."""


class RedisCore:
    """The queue over one Redis, as one frontend process runs it."""

    def __init__(self, settings: Settings, outlet: Outlet | None) -> None:
        """Make a core that hands deliveries and notices to `outlet`; nothing runs before `start`.

        Without an outlet it is no frontend: whatever there is to send is left to those that are. Started or not, it serves
        those who come for their items.
        """
        self.frontend = secrets.token_hex(4) if outlet else ""
        self.admins = frozenset(settings.admins)
        self.once_ms = int(settings.qos_window_seconds * 1000)
        self.retry = settings.retry
        self.metrics = Metrics()
        self._server = Server.connect(settings.redis_url, lua_directory(), settings.redis_timeout)
        self.memory = Memory(self._server, self.metrics)
        proxy = Proxy(self._server, self.background)
        self.ending = asyncio.Event()
        self.ended_by = ""
        self._outlet: Outlet = outlet or proxy
        self._proxy = None if outlet else proxy
        self._directory = Directory(self._server, settings.journal_records, settings.node_quota)
        self._tree = Tree(self._server, self._directory)
        calls = Calls(self._begin, self._ask, self.ask, self._changed, self._forget, self._recount)
        self._works = Works(self._server, self._directory, self._tree, settings, self, calls, self._tell)
        self.owners, self.approvals = self._works.owners, self._works.approvals
        self._letters = DeadLetters(self._directory, self._works.nodes, self._ask)
        self._pulse = Pulse(self._server, self.frontend, Bell(self._server, settings.redis_timeout))
        self._rounds = Rounds(self, self._directory, self._pulse, self._ask, self._works.assured.finish)
        self._routes: dict[str, Routes] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._carrying: set[tuple[str, int, bytes]] = set()
        self._running: list[asyncio.Task[None]] = []

    # What the doors see.

    def submit(self, command: Command, reply: Reply) -> None:
        """Take a command; see `broker.model.core.Core`."""
        began = time.monotonic()

        def answer(result: Result) -> None:
            self.metrics.turn.observe(time.monotonic() - began)
            self.metrics.tally(command, result)
            reply(result)

        asked: Any = command
        if work := self._works.of.get(type(asked)):
            self._spawn(work(asked), answer)
        else:
            node = asked.partition.node if isinstance(asked, Bounce | Confirm) else asked.node
            self.routes(node).submit(asked, answer)

    async def ask(self, command: Command) -> Result:
        """Submit a command and wait for its outcome."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self.submit(command, partial(fulfil, future))
        return await future

    # What the composer sees.

    async def start(self) -> None:
        """Start the pulse, waiting for Redis as long as it takes; then look at every partition once."""
        while True:
            await self._pulse.turn(self._act)
            if not self._pulse.failure:
                break
            await asyncio.sleep(_START_PAUSE_SECONDS)
        self._running = [asyncio.create_task(self._pulse.run(self._act))]
        if self.frontend:
            self.background(self._rounds.visit_all)

    def link(self, up: bool) -> None:  # noqa: FBT001  (an event with two values)
        """Hear that the door's stream is up or down: a frontend that cannot send must not look alive."""
        self._pulse.beating = up
        if up and self._running:
            # What was handed out and not written when the stream broke is sent again, unless others took it over.
            for lane in self.lanes():
                lane.resume()

    def disconnected(self, by: str) -> None:
        """Hear that this frontend is to end: others do what it owes, so the composer should not wait."""
        self.ended_by = by
        self.ending.set()

    def healthy(self) -> list[str]:
        """Give the reasons for which this frontend should get no work; none is health."""
        reasons = [self._pulse.failure] if self._pulse.failure else []
        if self._pulse.beating and time.monotonic() - self._pulse.last_turn > LATE_SECONDS:
            reasons.append(f"the dispatch loop has not turned for {LATE_SECONDS:.0f} s")
        return reasons

    async def measure(self) -> None:
        """Set the gauges of every node and of Redis's memory."""
        await self._rounds.measure()
        await self.memory.measure()

    def hurry(self) -> None:
        """Let nobody wait any more for what may come."""
        self._works.fetching.close()

    async def drain(self, seconds: float) -> None:
        """Let what is under way end and tell Redis what is sent; at most so many seconds."""
        for task in self._running:
            task.cancel()
        try:
            async with asyncio.timeout(seconds):
                await self._rest()
                for lane in self.lanes():
                    if lane.marked:
                        lane.close()
                await self._rest()
        except TimeoutError:
            log.warning("drained in part: what is not marked sent, others will send again")

    async def _rest(self) -> None:
        # Polled: what it waits for is many small things of others, and a hundred looks a second cost nothing.
        while not self._still():  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_SECONDS)

    def _still(self) -> bool:
        """Tell whether nothing is under way and nothing unsent that could be sent."""
        written = self._outlet.flushed() or not self._pulse.beating
        return written and not self._tasks and all(routes.quiet for routes in self._routes.values())

    async def stop(self) -> None:
        """Leave the list of frontends and close the connection."""
        for task in (*self._running, *self._tasks):
            task.cancel()
        if not self._proxy and all(not lane.unmarked and lane.quiet for lane in self.lanes()):
            try:
                await self._pulse.resign()
            except CoreUnavailable as error:
                log.warning("could not resign", error=str(error))
        await self._server.close()

    # What lanes see.

    def deliver(self, delivery: Delivery) -> None:
        """Hand a delivery to the door."""
        if delivery.stage is not Stage.DELIVER:
            self.metrics.count("delivered")
        self._outlet.deliver(delivery)

    def notify(self, notice: Notice) -> None:
        """Hand a notice to the door; what an owner has lost is for others to have."""
        self._tell(notice)
        if isinstance(notice, OwnershipLost):
            self.background(partial(self.owners.lost, notice))

    def congested(self) -> bool:
        """Tell whether the door has more to write than it should."""
        return self._outlet.congested()

    def flushed(self) -> bool:
        """Tell whether the door has written all that it was handed."""
        return self._outlet.flushed()

    def announce(self, partition: Partition, due_ms: int) -> None:
        """Note when a partition next needs a visit; one that cannot send says at once what a frontend is to do soon."""
        if self._proxy and (not self._running or due_ms <= self._pulse.now_ms() + 1000 * TURN_SECONDS):
            self._proxy.announce(partition, due_ms)
        else:
            self._pulse.announce(partition, due_ms)

    def count(self, what: str, amount: int = 1) -> None:
        """Count for the metrics."""
        self.metrics.count(what, amount)

    def lapsed(self, node: str, jid: Jid, subid: str) -> None:
        """End a subscription whose lease is over."""
        self.background(partial(self._works.lapse, Subscription(node, jid, subid, State.NONE)))

    def filled(self, jid: Jid) -> None:
        """Wake who waits for a lease's items."""
        self._works.fetching.filled(jid)

    def hand_over(self, record: NodeRecord, partition: int, letter: list[Any]) -> None:
        """Bring a dead letter to its node, unless it is on its way already."""
        name = (record.name, partition, letter[0])
        if name not in self._carrying:
            self._carrying.add(name)
            self.background(partial(self._carry, name, record, partition, letter))

    # Small change.

    async def _act(self, visits: Visits) -> None:
        """Do what one turn of the pulse has found; one that cannot send looks everywhere when it is alone, or no more."""
        if self._proxy:
            before, self.frontend = self.frontend, ALONE if visits.alone else ""
            if before != self.frontend:
                # Whom it passed over while nobody was there to send, a frontend has to hear of.
                self.background(self._rounds.visit_all)
        await self._rounds.act(visits)

    def _tell(self, notice: Notice) -> None:
        # Nobody is there to hear what a lease would be told.
        if not is_lease(_told(notice)):
            self._outlet.notify(notice)

    def _begin(self, command: LaneCommand) -> asyncio.Future[Any]:
        """Give a command its place among its sender's now, and let its outcome be awaited."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.routes(command.node).submit(command, partial(fulfil, future))
        return future

    async def _ask(self, command: LaneCommand) -> Outcome:
        outcome: Outcome = await self._begin(command)
        return outcome

    async def _carry(self, name: tuple[str, int, bytes], record: NodeRecord, partition: int, letter: list[Any]) -> None:
        try:
            if letter[5].startswith(MARK):
                await self._works.transfers.carry(record, partition, letter)
            elif await self._letters.carry(record, partition, letter):
                self.metrics.count("dead_lettered")
        finally:
            self._carrying.discard(name)

    def routes(self, node: str) -> Routes:
        """Give the lanes of a node's partitions."""
        routes = self._routes.get(node)
        if routes is None:
            known = Known(node, self._directory, self.admins)
            lane = partial(Lane, known, server=self._server, directory=self._directory, around=self)
            routes = self._routes[node] = Routes(known, lane, self.background, self._tree, self.routes)
        return routes

    def every(self) -> list[Routes]:
        """Give the routes of all nodes that are known here."""
        return list(self._routes.values())

    def lanes(self) -> list[Lane]:
        """Give the lanes there are, but for idle ones when there are many."""
        if len(self._routes) > IDLE_LANES:
            for node in [node for node, routes in self._routes.items() if routes.idle]:
                del self._routes[node]
        return [lane for routes in self._routes.values() for lane in routes.lanes()]

    def _changed(self, node: str) -> None:
        self._forget(node)
        # It may have more partitions now, or members who are not admitted any more.
        self.background(partial(self.owners.settle, node))

    def _forget(self, node: str) -> None:
        if node in self._routes:
            self._routes[node].forget()

    async def _recount(self, node: str) -> None:
        routes = self.routes(node)
        await routes.known.read()
        await routes.recount()

    def _spawn(self, work: Coroutine[Any, Any, Result], answer: Callable[[Result], None]) -> None:
        """Answer with what a work comes to; what it has begun has its place among its sender's commands already."""
        task = self._task(partial(self._answered, work, answer))
        # Nobody awaits it when the task is cancelled before it begins, and Python would warn of that.
        task.add_done_callback(lambda _task: work.close())

    async def _answered(self, work: Coroutine[Any, Any, Result], answer: Callable[[Result], None]) -> None:
        try:
            result = await work
        except CoreUnavailable as error:
            result = Refused(error.problem, str(error))
        except Exception:
            log.exception("a command failed")
            result = FAILED
        answer(result)

    def background(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Run something that nobody waits for; what goes wrong is logged. A core that stops may never begin it."""
        self._task(work)

    def _task(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _guarded(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        try:
            await work()
        except CoreUnavailable as error:
            log.warning("background work put off", error=str(error))
        except Exception:
            log.exception("background work failed")


def _told(notice: Notice) -> Jid:
    match notice:
        case SubscriptionChanged():
            return notice.subscription.jid
        case ApprovalAsked():
            return notice.owner
    return notice.subscriber
