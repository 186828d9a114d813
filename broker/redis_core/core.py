"""The core: takes every command, sends it to its node's router or to a handler, and keeps the frontend alive by heartbeats.

Holds nothing that is not in Redis but caches that scripts check and calls that are under way. Must not know any door
beyond the outlet that it was given.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

import structlog

from broker.model.commands import Command, Hold, Publish, Redeem
from broker.model.core import COMMAND_BYTES, WAITING_BYTES, Outlet, Reply
from broker.model.items import ApprovalAsked, Delivery, Notice, OwnershipLost, SubscriptionChanged
from broker.model.leases import is_lease
from broker.model.names import Jid, Partition
from broker.model.nodes import NodeRecord
from broker.model.problems import CoreUnavailable, Problem
from broker.model.qos import Stage
from broker.model.results import Refused, Result
from broker.model.subscriptions import State, Subscription
from broker.redis_core.commands.admin_parts import Handover
from broker.redis_core.commands.internal import Outcome, PartitionCommand, fulfil
from broker.redis_core.delivery.handovers import Handovers
from broker.redis_core.delivery.relay import Relay
from broker.redis_core.handlers import Handlers
from broker.redis_core.maintenance.heartbeat import HEARTBEAT_SECONDS, Heartbeat, HeartbeatResult
from broker.redis_core.maintenance.instances import DoorHeartbeat
from broker.redis_core.maintenance.sweeper import Sweeper
from broker.redis_core.metrics import Metrics
from broker.redis_core.partitions.pipeline import PartitionPipeline
from broker.redis_core.records.cache import NodeCache
from broker.redis_core.records.store import NodeStore
from broker.redis_core.records.tree import Tree
from broker.redis_core.redis_client.client import Server
from broker.redis_core.redis_client.libraries import Libraries
from broker.redis_core.redis_client.memory import Memory
from broker.redis_core.redis_client.store_format import check_format
from broker.redis_core.redis_client.wakeup import Wakeup
from broker.redis_core.registry.rows import ROWS, UNKNOWN
from broker.redis_core.routing.router import NodeRouter
from broker.scripts.location import lua_directory
from broker.settings import Settings
from broker.tasks import FAILED, Answer, Tasks, keep_running

log = structlog.get_logger()

LATE_SECONDS = 5.0
IDLE_PIPELINES = 10_000
_START_PAUSE_SECONDS = 0.5
_LOOK_SECONDS = 0.01

_SPARE_BYTES = 4_194_304
"""So much more may wait of commands without an item, so that locks and leases can be ended."""

_TOO_MUCH = Refused(Problem.OUT_OF_MEMORY, "too much waits for Redis already: ask again later")

ALONE = "-"
"""What a core that cannot send is called in scripts while no frontend lives."""


class RedisCore:
    """The queue over one Redis, as one frontend process runs it."""

    def __init__(self, settings: Settings, outlet: Outlet | None, door: str = "") -> None:
        """Make a core that hands deliveries and notices to `outlet`; nothing runs before `start`.

        Without an outlet it is no frontend: whatever there is to send is left to those that are. Started or not, it serves
        those who come for their items, through the `door` that it is listed under.
        """
        self.name = secrets.token_hex(4)
        self.frontend = self.name if outlet else ""
        self.sends = outlet is not None
        self.lost_replies = 0
        self.once_ms = int(settings.qos_window_seconds * 1000)
        self.retry = settings.retry
        self.metrics = Metrics()
        self._server = Server.connect(
            settings.redis_url, lua_directory(), settings.redis_timeout, settings.redis_packaging
        )
        self.memory = Memory(self._server, self.metrics)
        relay = Relay(self._server, self.background)
        self.ending = asyncio.Event()
        self.ended_by = ""
        self._outlet: Outlet = outlet or relay
        self._relay = None if outlet else relay
        self._store = NodeStore(self._server, settings.journal_records, settings.node_quota, frozenset(settings.admins))
        self._tree = Tree(self._server, self._store)
        self._handlers = Handlers(self._server, self._store, self._tree, settings, self)
        self._work = {kind: row.handler(self._handlers) for kind, row in ROWS.items() if row.handler}
        self.owners, self.approvals = self._handlers.owners, self._handlers.approvals
        self.histories = self._handlers.histories
        self._handovers = Handovers(
            self._store, self._handlers.nodes, self.ask_partition, self.background, self.metrics.count
        )
        self._heartbeat = Heartbeat(self._server, self.frontend, Wakeup(self._server, settings.redis_timeout))
        self._door = DoorHeartbeat(self._server, f"{door} {self.name}", self._heartbeat.now_ms) if door else None
        self._libraries = Libraries(self._server)
        self._sweeper = Sweeper(self, self._store, self._heartbeat, self.ask_partition, self._in_passing)
        self._routes: dict[str, NodeRouter] = {}
        self._tasks = Tasks()
        self._waiting_bytes = 0
        self._running: list[asyncio.Task[None]] = []

    async def _in_passing(self) -> None:
        await self._handlers.assured.finish()
        await self._libraries.tidy()

    # What the doors see.

    def submit(self, command: Command, reply: Reply) -> None:
        """Take a command; see `broker.model.core.Core`."""
        began = time.monotonic()
        item_bytes = _item_bytes(command)
        size = COMMAND_BYTES + item_bytes
        if self._waiting_bytes + size > WAITING_BYTES + (0 if item_bytes else _SPARE_BYTES):
            self.metrics.count("refused")
            reply(_TOO_MUCH)
            return
        self._waiting_bytes += size

        def answer(result: Result) -> None:
            self._waiting_bytes -= size
            self.metrics.turn.observe(time.monotonic() - began)
            if name := ROWS.get(type(command), UNKNOWN).metric(result):
                self.metrics.count(name)
            reply(result)

        owed = Answer(answer)
        try:
            self._submit(command, owed)
        except Exception:
            log.exception("a command failed", command=type(command).__name__)
            owed(FAILED)

    def _submit(self, asked: Command, answer: Answer) -> None:
        if work := self._work.get(type(asked)):
            # What it has begun has its place among its sender's commands already.
            self._tasks.answer(work(asked), answer)
        else:
            # One that concerns no node has a handler.
            self.routes(getattr(asked, "node", "")).submit(asked, answer)

    async def ask(self, command: Command) -> Result:
        """Submit a command and wait for its outcome."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self.submit(command, partial(fulfil, future))
        return await future

    # What the composer sees.

    async def reach(self) -> None:
        """Find out whether Redis answers, and is for this version; raises CoreUnavailable, and OtherFormat."""
        await self._server.everywhere("TIME")
        await check_format(self._server, begin=False)

    async def start(self) -> None:
        """Start the heartbeat, waiting for Redis as long as it takes; then look at every partition once. Raises OtherFormat."""
        check = partial(check_format, self._server, begin=True)
        # Polled: whether Redis answers is known by asking it.
        while not (await self._heartbeat.attempt(check) and await self._heartbeat.beat(self._act)):  # noqa: ASYNC110
            await asyncio.sleep(_START_PAUSE_SECONDS)
        if self.sends:
            self._running.append(keep_running(self._heartbeat.listen))
        self._running.append(keep_running(partial(self._heartbeat.run, self._act)))
        if self.frontend:
            self.background(self._sweeper.sweep_all)

    def link(self, up: bool) -> None:  # noqa: FBT001  (an event with two values)
        """Hear that the door's stream is up or down: a frontend that cannot send must not look alive."""
        self._heartbeat.beating = up
        if up and self._running:
            # What was handed out and not written when the stream broke is sent again, unless others took it over.
            for pipeline in self.pipelines():
                pipeline.resume()

    def disconnected(self, by: str) -> None:
        """Hear that this frontend is to end: others do what it owes, so the composer should not wait."""
        self.ended_by = by
        self.ending.set()

    def healthy(self) -> list[str]:
        """Give the reasons for which this frontend should get no work; none is health."""
        reasons = [self._heartbeat.failure] if self._heartbeat.failure else []
        if self._heartbeat.beating and time.monotonic() - self._heartbeat.last_beat > LATE_SECONDS:
            reasons.append(f"the dispatch loop has not turned for {LATE_SECONDS:.0f} s")
        return reasons

    async def measure(self) -> None:
        """Set the gauges of every node and of Redis's memory."""
        await self._sweeper.measure()
        await self.memory.measure()

    def hurry(self) -> None:
        """Let nobody wait any more for what may come."""
        self._handlers.fetching.close()

    async def drain(self, seconds: float) -> None:
        """Let what is under way end and tell Redis what is sent; at most so many seconds."""
        for task in self._running:
            task.cancel()
        try:
            async with asyncio.timeout(seconds):
                # What the heartbeat had begun to hand out it notes for others as it ends.
                await asyncio.gather(*self._running, return_exceptions=True)
                await self._rest()
                for pipeline in self.pipelines():
                    if pipeline.marked:
                        pipeline.close()
                await self._rest()
        except TimeoutError:
            log.warning("drained in part: what is not marked sent, others will send again")

    async def _rest(self) -> None:
        # Polled: what it waits for is many small things of others, and a hundred looks a second cost nothing.
        while not self._still():  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_SECONDS)

    def _still(self) -> bool:
        """Tell whether nothing is under way and nothing unsent that could be sent."""
        written = self._outlet.flushed() or not self._heartbeat.beating
        return written and not self._tasks and all(routes.quiet for routes in self._routes.values())

    async def stop(self) -> None:
        """Leave the list of frontends and close the connection."""
        for task in self._running:
            task.cancel()
        self._tasks.cancel()
        if not self._relay and all(not pipeline.unmarked and pipeline.quiet for pipeline in self.pipelines()):
            try:
                await self._heartbeat.deregister()
            except CoreUnavailable as error:
                log.warning("could not deregister", error=str(error))
        if self._door:
            with contextlib.suppress(CoreUnavailable):
                await self._door.leave()
        await self._server.close()

    # What pipelines see.

    def deliver(self, delivery: Delivery) -> None:
        """Hand a delivery to the door."""
        if delivery.stage is not Stage.DELIVER:
            self.metrics.count("delivered")
        self._outlet.deliver(delivery)

    def notify(self, notice: Notice) -> None:
        """Hand a notice to the door; what an owner has lost is for others to have."""
        self.tell(notice)
        if isinstance(notice, OwnershipLost):
            self._handlers.subscriptions.ended(notice.node, notice.subscriber)
            self.background(partial(self.owners.lost, notice))

    def congested(self) -> bool:
        """Tell whether the door has more to write than it should."""
        return self._outlet.congested()

    def flushed(self) -> bool:
        """Tell whether the door has written all that it was handed."""
        return self._outlet.flushed()

    def announce(self, partition: Partition, due_ms: int) -> None:
        """Note when a partition next needs a visit; one that cannot send says at once what a frontend is to do soon."""
        if self._relay and (not self._running or due_ms <= self._heartbeat.now_ms() + 1000 * HEARTBEAT_SECONDS):
            self._relay.announce(partition, due_ms)
        else:
            self._heartbeat.announce(partition, due_ms)

    def changed(self, partition: Partition) -> None:
        """Note that a node is to be measured anew; a command of the shell, which has no heartbeat, has a frontend visit it."""
        if self._relay and not self._running:
            self._relay.announce(partition, 0)
        else:
            self._heartbeat.report_changed(partition.node)

    def count(self, what: str, amount: int = 1) -> None:
        """Count for the metrics."""
        self.metrics.count(what, amount)

    def lapsed(self, node: str, jid: Jid, subid: str) -> None:
        """End a subscription whose lease is over."""
        self.background(partial(self._handlers.lapse, Subscription(node, jid, subid, State.NONE)))

    def gone(self, node: str, jid: Jid) -> None:
        """Let a subscription that has ended by itself in one partition end in the others, and what it has left be looked for."""
        self.routes(node).ended(jid)
        self._handlers.subscriptions.ended(node, jid)

    def filled(self, jid: Jid) -> None:
        """Wake who waits for a lease's items."""
        self._handlers.fetching.filled(jid)

    def hand_over(self, record: NodeRecord, partition: int, told: Sequence[Handover]) -> None:
        """Bring items to their other nodes."""
        self._handovers.tell(record, partition, told)

    # Small change.

    async def _act(self, visits: HeartbeatResult) -> None:
        """Do what one turn of the heartbeat has found; one that cannot send looks everywhere when it is alone, or no more."""
        if self._relay:
            before, self.frontend = self.frontend, ALONE if visits.no_live_frontend else ""
            if before != self.frontend:
                # Whom it passed over while nobody was there to send, a frontend has to hear of.
                self.background(self._sweeper.sweep_all)
        if self._door:
            # Redis may have no memory left: what cannot be told now is told with the next beat.
            with contextlib.suppress(CoreUnavailable):
                await self._door.beat()
        await self._sweeper.act(visits)
        if self._handlers.subscriptions.untidy:
            self.background(self._handlers.subscriptions.tidy)

    def tell(self, notice: Notice) -> None:
        """Hand a notice to the door, if anybody is there to hear it."""
        # Nobody is there to hear what a lease would be told.
        if not is_lease(_told(notice)):
            self._outlet.notify(notice)

    def begin(self, command: PartitionCommand) -> asyncio.Future[Any]:
        """Give a command its place among its sender's now, and let its outcome be awaited."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.routes(command.node).submit(command, partial(fulfil, future))
        return future

    async def ask_partition(self, command: PartitionCommand) -> Outcome:
        """Give a command its place, and wait for its outcome."""
        outcome: Outcome = await self.begin(command)
        return outcome

    def routes(self, node: str) -> NodeRouter:
        """Give the pipelines of a node's partitions."""
        routes = self._routes.get(node)
        if routes is None:
            known = NodeCache(node, self._store)
            pipeline = partial(PartitionPipeline, known, server=self._server, core=self)
            routes = self._routes[node] = NodeRouter(known, pipeline, self._tasks, self._tree, self.routes)
        return routes

    def every(self) -> list[NodeRouter]:
        """Give the routes of all nodes that are known here."""
        return list(self._routes.values())

    def pipelines(self) -> list[PartitionPipeline]:
        """Give the pipelines there are, but for idle ones when there are many."""
        if len(self._routes) > IDLE_PIPELINES:
            for node in [node for node, routes in self._routes.items() if routes.idle]:
                del self._routes[node]
        return [pipeline for routes in self._routes.values() for pipeline in routes.pipelines()]

    def node_changed(self, node: str) -> None:
        """Hear of a node whose record is another now."""
        self.forget(node)
        # It may have more partitions now, or members who are not admitted any more.
        self.background(partial(self.owners.settle, node))

    def forget(self, node: str) -> None:
        """Read a node's record anew with its next command."""
        if node in self._routes:
            self._routes[node].forget()

    async def register_all(self, node: str) -> None:
        """Make subscriptions known in the partitions that a node has now."""
        routes = self.routes(node)
        await routes.known.read()
        await routes.register_all()
        await routes.audit()

    def background(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Run something that nobody waits for; what goes wrong is logged. A core that stops may never begin it."""
        self._tasks.background(work)


def _item_bytes(command: Command) -> int:
    match command:
        case Publish() | Redeem():
            return len(command.envelope)
        case Hold():
            return len(command.publish.envelope)
    return 0


def _told(notice: Notice) -> Jid:
    match notice:
        case SubscriptionChanged():
            return notice.subscription.jid
        case ApprovalAsked():
            return notice.owner
    return notice.subscriber
