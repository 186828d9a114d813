"""The core: routes every command to its node's router or to a handler, and keeps the frontend alive by heartbeats.

Keeps nothing but checked caches and calls under way; all state is in Redis. Must not know any door beyond the outlet
that it was given.
"""

import asyncio
import contextlib
import secrets
import time
from bisect import bisect_left
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import structlog

from broker import keys
from broker.model.commands import Command, Retract, RetractBatch
from broker.model.core import COMMAND_BYTES, WAITING_BYTES, Outlet, Reply
from broker.model.items.items import ApprovalAsked, Delivery, Notice, OwnershipLost, SubscriptionChanged
from broker.model.items.qos import Stage
from broker.model.names import Jid, Partition
from broker.model.nodes.pull_subscriptions import is_pull_subscription
from broker.model.nodes.subscriptions import State, Subscription
from broker.model.problems import CoreUnavailable, Problem
from broker.model.results import AcknowledgedAndReceived, Refused, Result, RetractedBatch, Unaffiliated
from broker.model.roles import Roles, Said
from broker.redis_core.audit import Audit
from broker.redis_core.commands.internal import Outcome, PartitionCommand
from broker.redis_core.handlers import Handlers
from broker.redis_core.maintenance.heartbeat import HEARTBEAT_SECONDS, Heartbeat, HeartbeatResult
from broker.redis_core.maintenance.instances import DoorHeartbeat, FrontendDetails
from broker.redis_core.maintenance.relay import Relay
from broker.redis_core.maintenance.sent_until import SentUntil
from broker.redis_core.maintenance.sweeper import Sweeper
from broker.redis_core.maintenance.upgrades import Upgrades
from broker.redis_core.maintenance.usage import UsageSamples
from broker.redis_core.metrics import BUCKETS, REASONS, WAITS, Metrics
from broker.redis_core.nodes.records import Records
from broker.redis_core.operations.maintenance import JournalRecord, journal_command, journal_records
from broker.redis_core.outbox.leaving_items import ItemDeliverer
from broker.redis_core.outbox.outbox import Outbox
from broker.redis_core.outbox.replies import ReplyDeliverer
from broker.redis_core.partitions.pipeline import PartitionPipeline
from broker.redis_core.partitions.served_partitions import ServedPartitions
from broker.redis_core.quotas.stored import Quotas
from broker.redis_core.quotas.use import QuotaUse
from broker.redis_core.records.cache import NodeCache
from broker.redis_core.records.store import NodeStore
from broker.redis_core.records.tree import Tree
from broker.redis_core.redis_client.client import Server
from broker.redis_core.redis_client.libraries import Libraries
from broker.redis_core.redis_client.memory import Memory
from broker.redis_core.redis_client.wakeup import Wakeup, Wakeups
from broker.redis_core.registry.rows import ROLES, ROWS, UNKNOWN
from broker.redis_core.routing.router import NodeRouter, RoutingContext
from broker.scripts.location import lua_directory
from broker.settings import Settings
from broker.store_format import FORMAT
from broker.tasks import FAILED, Answer, Tasks, fulfil, keep_running

log = structlog.get_logger()

LATE_SECONDS = 5.0
IDLE_PIPELINES = 10_000
_START_PAUSE_SECONDS = 0.5
_LOOK_SECONDS = 0.01

_SPARE_BYTES = 4_194_304
"""Additional limit for commands without an item, so that locks and leases can be ended."""

_TOO_MUCH = Refused(Problem.OUT_OF_MEMORY, "too many commands wait for Redis: ask again later")

NO_FRONTEND = "-"
"""The name of a frontend in the calls of a core that cannot send, while no frontend lives."""


class RedisCore:
    """The queue over one Redis, as one frontend process runs it."""

    def __init__(self, settings: Settings, outlet: Outlet | None, door: str = "") -> None:
        """Make a core that hands deliveries and notices to `outlet`; nothing runs before `start`.

        Without an outlet it is no frontend: it leaves sending to frontends. Started or not, it serves pull subscriptions, and is
        listed under its `door`.
        """
        keys.use_prefix(settings.key_prefix)
        self.name = secrets.token_hex(4)
        self.frontend = self.name if outlet else ""
        self.sends = outlet is not None
        self.lost_replies = 0
        self.once_ms = int(settings.qos_window_seconds * 1000)
        self.retry = settings.retry
        self.metrics = Metrics(door or "xmpp")
        self._server = Server.connect(
            settings.redis_url,
            lua_directory(),
            settings.redis_timeout,
            settings.redis_packaging,
            settings.redis_replicas,
        )
        self.memory = Memory(self._server, self.metrics)
        relay = Relay(self._server, self.background)
        self.refusal: Refused | None = None
        """What each command is answered instead of being executed."""
        self.ending = asyncio.Event()
        self.ended_why = ""
        self.breaks = 0
        self._outlet: Outlet = outlet or relay
        self._relay = None if outlet else relay
        self.roles = Roles(frozenset(settings.admins), settings.roles, ROLES)
        self._store = NodeStore(self._server, settings.journal_records, self.roles)
        tree, self._quotas, self._tasks = Tree(self._server, self._store), Quotas(self._server, self._store), Tasks()
        own_door = door or ("xmpp" if outlet else "")
        self._handlers = Handlers(self._server, Records(self._store, tree, self._quotas), settings, self, own_door)
        subscribed = self._handlers.lists.is_subscribed
        self._routing = RoutingContext(self._tasks, tree, self.router, subscribed)
        self._work = {kind: attrgetter(row.handler)(self._handlers) for kind, row in ROWS.items() if row.handler}
        self._audit = self._make_audit(own_door) if settings.audit else None
        if self._audit:
            self._work = self._audit.watch(self._work)
        self.owners, self.approvals = self._handlers.owners, self._handlers.approvals
        self.histories, self.leases = self._handlers.histories, self._handlers.leases
        dependencies = self._handlers.dependencies
        items = ItemDeliverer(self._store, self._handlers.nodes, self)
        deliverers = {
            "item": items.deliver,
            "reply": ReplyDeliverer(self).deliver,
            "child": dependencies.tell_children,
            "left": dependencies.leave_parents,
            "parents": dependencies.ask_parents,
            "schedule": self._handlers.firing.deliver,
            "publish": self._handlers.publishes.deliver,
        }
        self._outbox = Outbox(self, deliverers, items.held)
        self._heartbeat = Heartbeat(
            self._server, self.frontend, Wakeup(self._server, settings.redis_timeout), self._look_what_is_sent
        )
        self._wakeups = Wakeups(self._server, self.name, settings.redis_timeout, self.background)
        self.quota_use = QuotaUse(self._server, self._quotas, self._heartbeat.now_ms, self.count)
        self._door = DoorHeartbeat(self._server, f"{door} {self.name}", self._heartbeat.now_ms) if door else None
        self._upgrades = Upgrades(self._server, self._store, self.name)
        self._details = FrontendDetails(
            self._server, self.name, door or "xmpp", self._heartbeat.now_ms, settings.drain_seconds
        )
        self._usage = UsageSamples(self._server, door or "xmpp", self.name, self.metrics.tally)
        self._libraries = Libraries(self._server)
        self._sweeper = Sweeper(self, self._store, self._heartbeat, self.ask_partition, self._occasional_work)
        self._routers: dict[str, NodeRouter] = {}
        self.served = ServedPartitions(self._server, self.frontend)
        self._sent = SentUntil(time.monotonic())
        self._waiting_bytes = 0
        self._running: list[asyncio.Task[None]] = []

    def _make_audit(self, door: str) -> Audit:
        nodes = self._handlers.nodes
        return Audit(self._server, self._store, self._quotas, nodes, self.ask, door or "command line")

    async def _occasional_work(self) -> None:
        await self._handlers.exactly_once.finish()
        await self._libraries.tidy()
        if self._audit:
            await self._audit.finish()

    # Used by doors.

    def submit(self, command: Command, reply: Reply) -> asyncio.Task[None] | None:
        """Submit a command; see `broker.model.core.Core`."""
        if self.refusal:
            reply(self.refusal)
            return None
        item_bytes = len(getattr(command, "envelope", b"")) + getattr(command, "more_bytes", 0)
        size = COMMAND_BYTES + item_bytes
        if self._waiting_bytes + size > WAITING_BYTES + (0 if item_bytes else _SPARE_BYTES):
            self.metrics.refuse(_TOO_MUCH.problem.value, getattr(command, "node", ""))
            reply(_TOO_MUCH)
            return None
        self._waiting_bytes += size
        once = Answer(partial(self._end, command, time.monotonic(), reply))
        try:
            work = self._work.get(type(command))
            if work and ((handled := ROWS[type(command)].handled) is None or handled(command)):
                # The handler has already queued its first command, so it keeps the sender's order.
                task = self._tasks.answer(work(command), once)
                return task if ROWS[type(command)].waits else None
            # A command without a node has a handler.
            self.router(getattr(command, "node", "")).submit(command, once)
        except Exception:
            log.exception("a command failed", command=type(command).__name__)
            once(FAILED)
        return None

    def _end(self, command: Command, began: float, reply: Reply, result: Result) -> None:
        """Count a command that is done, and pass on its result; without helpers, since every command comes here."""
        kind = type(command)
        row = ROWS.get(kind, UNKNOWN)
        # What `submit` has added.
        self._waiting_bytes -= (
            COMMAND_BYTES + len(getattr(command, "envelope", b"")) + getattr(command, "more_bytes", 0)
        )
        tally, now = self.metrics.tally, time.monotonic()
        tally.seconds[kind] += now - began
        tally.commands[kind][bisect_left(BUCKETS, now - began)] += 1
        told = result.outcome if isinstance(result, AcknowledgedAndReceived) else result
        if isinstance(told, Refused | Unaffiliated):
            self.metrics.refuse(told.problem.value, getattr(command, "node", ""))
        elif name := row.metric(told):
            amount = len(result.ended) if isinstance(result, RetractedBatch) else 1
            tally.counts[name] += amount
            if name in REASONS:
                served = tally.nodes[getattr(command, "node", "")]
                served.ended[name] += amount
                if isinstance(command, Retract | RetractBatch) and name == "acknowledged":
                    # A token is Redis's time in microseconds, at which the lock was made.
                    now_us = (now * 1000 + self._heartbeat.skew_ms) * 1000
                    for each in command.items if isinstance(command, RetractBatch) else (command,):
                        if each.token:
                            seconds = max(0.0, (now_us - each.token) / 1e6)
                            served.services[bisect_left(WAITS, seconds)] += 1
                            served.served += seconds
        reply(result)

    async def ask(self, command: Command) -> Result:
        """Submit a command and wait for its outcome."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        task = self.submit(command, partial(fulfil, future))
        try:
            return await future
        finally:
            if task:
                task.cancel()

    # Used by `frontends.compose`.

    async def reach(self) -> None:
        """Check that Redis answers and has this version's format; raises CoreUnavailable and OtherFormat."""
        await self._server.everywhere("TIME")
        await self._store.check_format()

    async def start(self) -> None:
        """Start the heartbeat, waiting for Redis as long as it takes, then sweep every partition once. Raises OtherFormat."""
        # Polling is the only way to find out whether Redis answers.
        while not (await self._heartbeat.attempt(self._upgrades.prepare) and await self._heartbeat.beat(self._act)):  # noqa: ASYNC110
            await asyncio.sleep(_START_PAUSE_SECONDS)
        await self.quota_use.refresh()
        if self.sends:
            self._running.append(keep_running(self._heartbeat.listen))
            # Another process does that when its first heartbeat finds no frontend.
            self.background(self._sweeper.sweep_all)
        else:
            self._running.append(keep_running(partial(self._wakeups.listen, self._handlers.receiving.wake)))
        self._running.append(keep_running(partial(self._heartbeat.run, self._act)))
        self.background(self._describe)
        # An older program may have been here since the store was upgraded.
        self.background(self._upgrades.work_beside)

    async def _describe(self) -> None:
        """Say where this frontend runs; it serves as well without."""
        with contextlib.suppress(CoreUnavailable):
            await self._details.register()

    def on_stream_state(self, up: bool) -> None:  # noqa: FBT001  (an event with two values)
        """Note that the door's stream is up or down: a frontend that cannot send must not look alive."""
        self._heartbeat.beating = up
        self.breaks += 1
        if not up:
            self._sent.break_off()
        elif self._running:
            self.background(partial(self._resume, self.breaks))
            # It may have been taken for dead.
            self.background(self._describe)
        else:
            self._sent.resume()

    async def _resume(self, breaks: int) -> None:
        """Send again what may not have been sent before the stream broke, unless others took it over or it breaks again."""
        await self._sweeper.send_again(self.sent_until, lambda: self.breaks == breaks)
        if self.breaks == breaks:
            self._sent.resume()

    def disconnected(self, by: str) -> None:
        """End this frontend at an administrator's request: others take over, so the process need not wait."""
        self._leave(f"disconnected by {by}")

    def _leave(self, why: str) -> None:
        self.ended_why = why
        self.ending.set()

    def healthy(self) -> list[str]:
        """Return the reasons why this frontend should get no work; empty when healthy."""
        reasons = [each for each in (self._heartbeat.failure, self._upgrades.waits_for) if each]
        if self._heartbeat.beating and time.monotonic() - self._heartbeat.last_beat > LATE_SECONDS:
            reasons.append(f"the dispatch loop has not turned for {LATE_SECONDS:.0f} s")
        return reasons

    async def measure(self) -> None:
        """Set the gauges of every node and of Redis's memory, and note what processes have used."""
        await self._sweeper.measure()
        await self.memory.measure()
        await self._usage.note(int(self._heartbeat.now_ms()))
        self.metrics.quotas.measured = await self._quotas.statuses()

    async def journal(self, after: Mapping[Partition, str], most: int) -> dict[Partition, list[JournalRecord]]:
        """Read up to `most` records of each journal after a position, or the newest if that is empty; for the shell."""
        found = await self._server.commands([journal_command(journal, at, most) for journal, at in after.items()])
        read = zip(after.items(), found, strict=True)
        return {journal: journal_records(at, entries) for (journal, at), entries in read}

    def cancel_waits(self) -> None:
        """End all long polls."""
        self._handlers.receiving.close()

    async def drain(self, seconds: float) -> None:
        """Finish work under way, within so many seconds."""
        for task in self._running:
            task.cancel()
        try:
            async with asyncio.timeout(seconds):
                # As it ends, the heartbeat announces due partitions that it has not swept.
                await asyncio.gather(*self._running, return_exceptions=True)
                await self._wait_idle()
                self._sent.close(time.monotonic())
        except TimeoutError:
            log.warning("drained in part: other frontends will send the last deliveries again")

    async def _wait_idle(self) -> None:
        # Polled: it waits for many small things of others, and a hundred checks a second cost nothing.
        while not self._is_idle():  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_SECONDS)

    def _is_idle(self) -> bool:
        """Return whether nothing is under way and all that can be sent is sent."""
        written = self._outlet.flushed() or not self._heartbeat.beating
        return written and not self._tasks and all(router.quiet for router in self._routers.values())

    async def stop(self) -> None:
        """Report what is due, leave the list of frontends if all is sent, and close the connections."""
        for task in self._running:
            task.cancel()
        self._tasks.cancel()
        # Others take over from a frontend that has not sent all. From a process that cannot send nobody does.
        if self._running if self._relay else all(pipeline.idle for pipeline in self.pipelines()):
            try:
                # Others end the sessions in the partitions of one that has lost replies.
                listed = self.sends and self.lost_replies > 0
                await self._heartbeat.deregister(listed=listed)
                if self.sends and not listed:
                    await self.served.clear()
            except CoreUnavailable as error:
                log.warning("could not deregister", error=str(error))
        with contextlib.suppress(CoreUnavailable):
            await self._details.leave()
            if self._door:
                await self._door.leave()
        await self._server.close()

    # Used by pipelines.

    def deliver(self, batch: Sequence[Delivery]) -> None:
        """Count a batch of deliveries and hand it to the door; without helpers, since every delivery comes here."""
        if batch[0].stage is not Stage.DELIVER:
            tally = self.metrics.tally
            tally.counts["delivered"] += len(batch)
            served = tally.nodes[batch[0].partition.node]
            for made in batch:
                # A new delivery has Redis's time in microseconds as both numbers; an entry of a log has no token.
                if made.sequence == made.token:
                    if made.attempt == 1 and not made.untried:
                        ready_ms = made.ready_ms or int(made.position.partition("-")[0])
                        seconds = max(0.0, made.token / 1e6 - ready_ms / 1e3)
                        served.waits[bisect_left(WAITS, seconds)] += 1
                        served.waited += seconds
                elif made.token:
                    tally.counts["resent"] += 1
        self._outlet.deliver(batch)

    def notify(self, notice: Notice) -> None:
        """Hand a notice to the door; a lost partition is assigned to others."""
        self.tell(notice)
        if isinstance(notice, OwnershipLost):
            self._handlers.subscriptions.note_ended(notice.node, notice.subscriber)
            self.background(partial(self.owners.handle_loss, notice))

    def congested(self) -> bool:
        """Return whether the door has too much to write."""
        return self._outlet.congested()

    def flushed(self) -> bool:
        """Return whether the door has written all that it was handed."""
        return self._outlet.flushed()

    def announce(self, partition: Partition, due_ms: int) -> None:
        """Note when a partition is next due. A core that cannot send notes it at once, and tells a frontend if that is soon.

        Nobody takes over from such a core if it is killed before its next heartbeat.
        """
        soon = not self._running or due_ms <= self._heartbeat.now_ms() + 1000 * HEARTBEAT_SECONDS
        if self._relay is None:
            self._heartbeat.announce(partition, due_ms)
        elif soon or self._heartbeat.announce(partition, due_ms):
            self._relay.announce(partition, due_ms, wake=soon)

    def partition_changed(self, partition: Partition) -> None:
        """Note that a node must be measured again; a command of the shell, without a heartbeat, lets a frontend sweep it."""
        if self._relay and not self._running:
            self._relay.announce(partition, 0, wake=True)
        else:
            self._heartbeat.changed.add(partition.node)

    def count(self, what: str, amount: int = 1, node: str = "", waits_ms: Sequence[int] = ()) -> None:
        """Add to a counter; ends, and waits for a first delivery, are counted by their node."""
        self.metrics.tally.counts[what] += amount
        if what in REASONS:
            self.metrics.tally.nodes[node].ended[what] += amount
        for wait_ms in waits_ms:
            self.metrics.tally.nodes[node].wait(max(0, wait_ms) / 1000)

    def lease_expired(self, node: str, jid: Jid, subid: str) -> None:
        """End a subscription whose lease has expired."""
        self.background(partial(self._handlers.expire_subscription, Subscription(node, jid, subid, State.NONE)))

    def subscription_ended(self, node: str, jid: Jid) -> None:
        """End a subscription in all partitions that has ended by itself in one of them, and check its index entries."""
        self.router(node).on_subscription_ended(jid)
        self._handlers.subscriptions.note_ended(node, jid)

    def free_references(self, collection: str, words: Sequence[tuple[str, str]]) -> None:
        """Tell a collection how locks under its references have ended."""
        self.router(collection).turns.book(words)

    def wake(self, process: str, partition: Partition, subid: str) -> None:
        """Wake the pull subscription that waits in a process for items of a partition."""
        if process == self.name:
            self._handlers.receiving.wake(partition, subid)
        else:
            self._wakeups.send(process, partition, subid)

    def follow_outbox(self, partition: Partition) -> None:
        """Deliver what is due in the outbox of a partition."""
        self._outbox.follow(partition)

    async def note_token(self, jid: Jid, said: Said) -> None:
        """Note what a verified token says, before a command of its account is given."""
        await self._store.note_token(jid, said)

    def forget_tokens(self) -> None:
        """Forget what tokens have said, whose settings are others now."""
        self._store.forget_tokens()

    # Used within the core.

    async def _act(self, result: HeartbeatResult) -> None:
        """Do what a heartbeat returned; a core that cannot send sweeps all when the last frontend dies or the first one comes."""
        if result.store.least > FORMAT:
            # What this heartbeat took is still done: nobody else knows of it.
            self._leave(f"the store is upgraded, and {result.store.refusal()[1]}")
        elif result.store.is_upgradable:
            self.background(self._upgrades.work_beside)
        if self._relay:
            before, self.frontend = self.frontend, NO_FRONTEND if result.no_live_frontend else ""
            if before != self.frontend:
                # Sweeps skip subscribers that nobody can send to: they must be served once a frontend lives.
                self.background(self._sweeper.sweep_all)
        if self._door:
            # When Redis has no memory left, the next heartbeat registers the door.
            with contextlib.suppress(CoreUnavailable):
                await self._door.beat()
        await self._sweeper.act(result)
        if self._quotas.due:
            self.background(self.quota_use.refresh)
        if self._handlers.subscriptions.has_ended:
            self.background(self._handlers.subscriptions.tidy)

    def tell(self, notice: Notice) -> None:
        """Hand a notice to the door, unless it is for a pull subscription."""
        # A pull subscription receives no notices.
        if not is_pull_subscription(_recipient(notice)):
            self._outlet.notify(notice)

    def begin(self, command: PartitionCommand) -> asyncio.Future[Any]:
        """Submit a command now, which fixes its order, and return its outcome as a future."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.router(command.node).submit(command, partial(fulfil, future))
        return future

    async def ask_partition(self, command: PartitionCommand) -> Outcome:
        """Submit a command and wait for its outcome."""
        outcome: Outcome = await self.begin(command)
        return outcome

    def router(self, node: str) -> NodeRouter:
        """Return the router of a node."""
        router = self._routers.get(node)
        if router is None:
            known = NodeCache(node, self._store)
            pipeline = partial(PartitionPipeline, known, server=self._server, core=self)
            router = self._routers[node] = NodeRouter(known, pipeline, self._routing)
        return router

    def routers(self) -> list[NodeRouter]:
        """Return the routers of all nodes that are cached here."""
        return list(self._routers.values())

    def pipelines(self) -> list[PartitionPipeline]:
        """Return all open pipelines."""
        return [pipeline for router in self._routers.values() for pipeline in router.pipelines()]

    @property
    def sent_until(self) -> float:
        """The time, of the steady clock, before which all that was handed to this frontend is sent."""
        return self._sent.time

    def _look_what_is_sent(self) -> float:
        """Look what has come and what has left the process; returns the same."""
        now = time.monotonic()
        received = min((pipeline.seen_until for pipeline in self.pipelines()), default=now)
        return self._sent.look(now, min(received, now), written=self._outlet.flushed())

    def drop_idle(self) -> None:
        """Drop idle pipelines when there are many, and the routers of nodes that have none left."""
        if sum(router.size for router in self._routers.values()) <= IDLE_PIPELINES:
            return
        for node, router in list(self._routers.items()):
            self.served.drop(router.drop_idle())
            if router.empty:
                del self._routers[node]

    def node_changed(self, node: str) -> None:
        """Handle a changed node record."""
        self.forget(node)
        # It may have members that it no longer admits.
        self.background(partial(self.owners.rebalance, node))

    def forget(self, node: str) -> None:
        """Drop a node's cached record; its next command reads it again."""
        if node in self._routers:
            self._routers[node].forget()

    async def withdraw_references(self, node: str) -> None:
        """End what subscribers of a collection hold in queues not below it or closed to them, and what is to end anyway."""
        await self.router(node).apply_tree()

    def background(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Run something in the background and log its errors. A core that stops may never begin it."""
        self._tasks.background(work)


def _recipient(notice: Notice) -> Jid:
    match notice:
        case SubscriptionChanged():
            return notice.subscription.jid
        case ApprovalAsked():
            return notice.owner
    return notice.subscriber
