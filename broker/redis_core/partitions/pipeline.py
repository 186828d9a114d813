"""The pipeline of one partition: batches commands, runs one call at a time, and hands out the deliveries of its answer.

Since a partition has one call under way, its commands keep their order, commands that arrive meanwhile form the next
batches, other partitions get their turn at Redis between two calls, and after a lost reply the pipeline knows exactly which
deliveries it has not seen. If commands wait when a reply with many answers comes, their call is sent before those are given, so
that Redis and this process work at once. The cached node record may be old; every operation checks its revision. So a pipeline
keeps nothing that another frontend would miss.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, assert_never

import structlog

from broker import keys
from broker.model.commands import Publish
from broker.model.items.durability import Durability
from broker.model.items.items import NodeEvent, OwnershipLost
from broker.model.names import Partition
from broker.model.nodes.nodes import NodeRecord
from broker.model.problems import CoreUnavailable, CorruptRecord, OperationDefect, Problem
from broker.model.results import Published, Refused
from broker.redis_core.commands.collections import Asks
from broker.redis_core.commands.dependency_parts import DependentStored
from broker.redis_core.commands.internal import (
    GONE,
    AnyCommand,
    Outcome,
    ReceivedFrom,
    ReceiveFrom,
    Scanned,
    Sweep,
    TakeOver,
    ignore_outcome,
)
from broker.redis_core.operations.operation import (
    LeaseOver,
    LockOver,
    OperationNotice,
    OperationReply,
    ReferencesFreed,
    SubscriptionOver,
    ToCount,
    TurnDue,
    Values,
    WorkWaits,
)
from broker.redis_core.partitions import delivery_batches
from broker.redis_core.partitions.batching import Batch, make_batches, remove_later
from broker.redis_core.ports import CorePort, NodePort
from broker.redis_core.records.cache import NodeCache
from broker.redis_core.redis_client.client import Line, Server
from broker.redis_core.redis_client.durability import DurableCall
from broker.redis_core.registry.authorization import accepting
from broker.redis_core.registry.rows import CALLS, ROWS, refusal
from broker.scripts.answers import Answer
from broker.tasks import FAILED, STOPPED, Request, fulfil, start

if TYPE_CHECKING:
    from asyncio import Task

log = structlog.get_logger()

_CHANGING = Refused(Problem.UNAVAILABLE, "the node is being changed")
_COMMAND = attrgetter("judged")
_RETRIES = 5
_TURNS = 4
"""Turns of the event loop until a call is written: it is gathered with others, and its connection is looked at."""
_MANY = 32
"""Answers and deliveries of a reply that are given during the next call: fewer take less time than smaller calls cost."""
_WIDE_CALLS = 100
"""Calls with all keys after one that needed them."""
_QUIET = {ReceiveFrom, Sweep}
_STORED = Durability.STORED
_NOTHING_UNSEEN = float("inf")


class PartitionPipeline:
    """Sends one partition's commands to Redis."""

    def __init__(self, cache: NodeCache, *, number: int, router: NodePort, server: Server, core: CorePort) -> None:
        """Make an idle pipeline for the partition `number` of a node; commands for another partition go to `router`."""
        self.node = cache.node
        self.number = number
        self._cache = cache
        self._router = router
        self._server = server
        self._store = cache.store
        self._core = core
        self._pending: deque[Request] = deque()
        self._batches: deque[Batch] = deque()
        self._running: Task[None] | None = None
        self._incarnation = ""
        self._partition = Partition(cache.node, "", number)
        self._noted = False
        self._wide_calls = 0
        self._received = 0
        self._received_at = float("-inf")
        self._called_at = _NOTHING_UNSEEN
        self._unread_since = _NOTHING_UNSEEN
        self._lost_since = _NOTHING_UNSEEN
        self._reply_lost = False
        self._search_after: int | None = None
        self._session = core.lost_replies
        self._unread: tuple[NodeRecord, Batch, list[Request], OperationReply, str] | None = None
        self._unconfirmed = 0

    def submit(self, command: AnyCommand, reply: Callable[[Any], None]) -> None:
        """Queue a command; all commands of one turn of the event loop are sent together."""
        self._pending.append(Request(command, reply))
        if self._running is None:
            self._running = start(self._run())

    def sweep(self) -> None:
        """Sweep the partition, which also looks for lost deliveries."""
        self.submit(Sweep(self.node, self.number), ignore_outcome)

    @property
    def quiet(self) -> bool:
        """Whether no command is waiting or under way."""
        return self._running is None and not self._pending and not self._unconfirmed

    @property
    def idle(self) -> bool:
        """Whether the pipeline may be dropped: it is quiet, has nothing to look for, and all that it has received is sent."""
        return self.quiet and self.seen_until == _NOTHING_UNSEEN and self._received_at <= self._core.sent_until

    @property
    def reply_lost(self) -> bool:
        """Whether a reply was lost, so that its deliveries must still be looked for."""
        return self._reply_lost

    @property
    def partition(self) -> Partition:
        """The partition, of the incarnation that was called last."""
        return self._partition

    @property
    def seen_until(self) -> float:
        """The time, of the steady clock, before which all that was handed out here has come; infinite if nothing is under way."""
        return min(self._called_at, self._unread_since, self._lost_since)

    async def _run(self) -> None:
        try:
            while self._pending or self._batches:
                if not self._batches:
                    self._batches.extend(make_batches(self._pending))
                    self._pending.clear()
                if self._reply_lost:
                    self._reply_lost = False
                    # Look for lost deliveries before new ones. Calls without a name have none.
                    if not (self._core.sends and self._noted):
                        self._end_search()
                    else:
                        self._batches.appendleft(Batch(TakeOver, CALLS[TakeOver], [Request(*self._search_call())]))
                # One call per round trip: Redis would run several at once without a turn for others.
                await self._carry_out(self._batches.popleft())
                if self._unread is not None and not (self._batches or self._pending):
                    self._give()
        finally:
            self._running = None
            if self._batches or self._pending:
                # This task was cancelled, or has a defect.
                waiting = self._take_waiting()
                self._give()
                self._answer(waiting, STOPPED)

    def _take_waiting(self) -> list[Request]:
        """Remove and return all requests behind the present batch."""
        requests = [*(request for batch in self._batches for request in batch.requests), *self._pending]
        self._batches.clear()
        self._pending.clear()
        return requests

    async def _carry_out(self, batch: Batch) -> None:
        """Run a batch's operation, again if the cached record was old; on any exception all requests are answered or wait."""
        requests = batch.requests
        try:
            for attempt in range(_RETRIES):
                if not batch.requests:
                    break
                await self._try_batch(batch, last=attempt == _RETRIES - 1)
        except Exception as error:  # noqa: BLE001  (logged)
            self._recover(error, batch.kind, requests)
        except BaseException:
            self._fail(requests)
            raise

    def _recover(self, error: Exception, kind: type, requests: list[Request]) -> None:
        """Answer those who wait after a defect of this program or of a record: the pipeline continues."""
        self._log_defect(error, kind)
        self._note_lost_reply()
        self._fail(requests)

    def _log_defect(self, error: Exception, kind: type) -> None:
        log.error("pipeline failed", exc_info=error, node=self.node, partition=self.number, command=kind.__name__)

    def _fail(self, requests: Iterable[Request]) -> None:
        """Answer the requests that are owed an answer; commands that the operation had no time for are waiting again."""
        waiting = {id(request) for request in self._pending}
        self._answer((each for each in requests if not each.answered and id(each) not in waiting), FAILED)

    def _note_lost_reply(self) -> None:
        """Note that a reply was lost: the operation may have run, or may run late."""
        # What has come is handed out first, so that it is not looked for.
        self._give()
        # The next call begins a session: once it has run, Redis refuses late calls of an earlier session.
        self._core.lost_replies += 1
        self._session = self._core.lost_replies
        self._reply_lost = True
        if self._search_after is None:
            # Until a search is complete, what it hands out shows nothing of what it has not looked at.
            self._search_after = self._received
        self._lost_since, self._called_at = min(self._lost_since, self._called_at), _NOTHING_UNSEEN

    async def _try_batch(self, batch: Batch, *, last: bool) -> None:
        """Carry out a batch; it keeps the part that was judged by an old record and must be repeated."""
        requests, batch.requests = batch.requests, []
        try:
            cached = self._cache.record
            record = self._adopt(cached or await self._renew())
            allowed, refused = self._authorize(record, requests)
            if refused and cached is not None:
                # A refusal runs no operation that would find the record old, so refuse by a fresh record only.
                record = self._adopt(await self._renew())
                allowed, refused = self._authorize(record, requests)
            # Refused commands are answered; only the others still need an answer.
            requests = allowed
            for request, reason in refused:
                request(reason)
            if record is None or not requests:
                return
            batch.requests = requests
            if not self._noted and self._core.sends and not await self._note(batch):
                self._answer(requests, FAILED)
                batch.requests = []
                return
            level = batch.confirm or record.config.confirm
            durable = batch.durable = (
                DurableCall(level) if level is not _STORED and issubclass(batch.kind, Publish) else None
            )
            if durable and batch.confirm and (lacks := await self._server.lacks(level)):
                self._answer(requests, Refused(Problem.NOT_ACCEPTABLE, f"confirm: {lacks}"))
                batch.requests = []
                return
            self._called_at = time.monotonic()
            name = batch.call.operation
            exchange = self._server.run_all([self._write_call(record, batch, name)], durable)
            reply = (await (exchange if self._unread is None else self._give_during(exchange)))[0]
            if not isinstance(reply, Exception) and reply.code == b"wide":
                self._wide_calls = _WIDE_CALLS
                reply = (await self._server.run_all([self._write_call(record, batch, name)], durable))[0]
            full = isinstance(reply, CoreUnavailable) and reply.problem is Problem.OUT_OF_MEMORY
            # An operation that only reads has written nothing that could be waited for.
            if full and batch.call.when_full and durable is None:
                name = batch.call.when_full
                reply = (await self._server.run_all([self._write_call(record, batch, name)]))[0]
        except CoreUnavailable as error:
            self._note_lost_reply()
            # Commands that arrived during the call fail too: they have waited for Redis already.
            self._answer([*requests, *self._take_waiting()], Refused(error.problem, error.detail))
            batch.requests = []
            return
        batch.requests = self._take_reply(record, batch, reply, name)
        self._called_at = _NOTHING_UNSEEN
        refusal_of_all = await self._bring_up_to_date(record) if batch.requests else None
        if refusal_of_all is not None or last:
            self._answer(batch.requests, refusal_of_all or _CHANGING)
            batch.requests = []

    async def _give_during(self, exchange: Coroutine[Any, Any, list[Any]]) -> list[Any]:
        """Give the answers of the last call while Redis runs the next one."""
        replies = start(exchange)
        try:
            for _turn in range(_TURNS):
                await asyncio.sleep(0)
            self._give()
            return await replies
        finally:
            self._give()
            # A fault refers to this frame, and the task to the fault.
            del replies

    async def _renew(self) -> NodeRecord | None:
        """Read the record, which takes a round trip: answers that are there are given first."""
        self._give()
        return await self._cache.renew()

    def _adopt(self, record: NodeRecord | None) -> NodeRecord | None:
        """Start over when the node was created again under the same name."""
        if record is not None and record.incarnation != self._incarnation:
            self._give()
            self._incarnation = record.incarnation
            self._core.served.drop([self._partition])
            self._partition = record.partition(self.number)
            self._received, self._reply_lost, self._noted = 0, False, False
            self._end_search()
        return record

    async def _bring_up_to_date(self, old: NodeRecord) -> Refused | None:
        """Read the record and bring the partition up to it; returns a refusal if that fails."""
        try:
            record = self._adopt(await self._cache.renew())
            if record and await self._store.open(record, (self.number,)):
                return None
            # The partition is deleted and the record is not: somebody's deletion was cut short, so finish it.
            if record and record.incarnation == old.incarnation:
                jids = await self._store.delete(record)
                for jid in jids if record.config.notify_delete else ():
                    self._core.notify(NodeEvent(self.node, jid, "delete"))
        except (CoreUnavailable, OperationDefect, CorruptRecord) as error:
            log.warning("record not renewed", node=self.node, partition=self.number, error=str(error))
            self._cache.forget()
            return FAILED
        self._cache.forget()
        return GONE

    def _authorize(
        self, record: NodeRecord | None, requests: list[Request]
    ) -> tuple[list[Request], list[tuple[Request, Refused]]]:
        """Split requests into allowed and refused ones; without a record all are refused."""
        if record is None:
            return [], [(request, GONE) for request in requests]
        allowed, refused, quotas = [], [], self._core.quota_use
        incarnations = {"", record.incarnation}
        for request in requests:
            command = request.command
            reason = refusal(command, record)
            if getattr(command, "incarnation", "") not in incarnations:
                # The command is for another incarnation.
                reason = GONE
            if reason is None:
                if isinstance(command, Publish):
                    refused_for = command.refused or accepting(command, record)
                    if not refused_for and quotas.used_up:
                        refused_for = quotas.judge(record.creator)
                    request.judged = replace(command, refused=refused_for) if refused_for else command
                allowed.append(request)
            else:
                refused.append((request, reason))
        return allowed, refused

    def _write_call(self, record: NodeRecord, batch: Batch, name: str) -> Line:
        """Write the call of a batch's operation, or of the one that runs instead."""
        call, core = batch.call, self._core
        operation = self._server.operations[name]
        first = batch.requests[0].command
        shared: Values = {
            "now": "",
            "revision": record.revision,
            "frontend": self._sender(),
            "number": self.number,
            "once_ms": core.once_ms,
            "retry": core.retry,
        }
        rows: Iterable[Values] = ()
        if call.row is not None:
            rows = map(call.row, map(_COMMAND, batch.requests), repeat(record))
        elif call.rows is not None:
            rows = call.rows(first, record)
        # A partition that was not plain is asked again after many calls.
        needed = operation.keys if self._wide_calls else operation.plain
        self._wide_calls = max(0, self._wide_calls - 1)
        names = keys.all_of_partition(needed, self._partition)
        fixed = call.fixed(first, record)
        if name != call.operation:
            fixed = {each: fixed[each] for each in operation.arguments if each in fixed}
        return self._server.write_call(name, names, fixed, rows, shared)

    async def _note(self, batch: Batch) -> bool:
        """Note that this partition may hand something out here, before it does. For a scan it need not: others may serve it.

        Returns whether the call may go on: without the note it has no name, which a takeover needs.
        """
        if _is_passing(batch.requests[0].command):
            return True
        self._give()
        try:
            await self._core.served.note(self._partition)
        except CoreUnavailable:
            return batch.kind is not TakeOver
        self._noted = True
        return True

    def _sender(self) -> str:
        """Return who is to send what the next call hands out: nobody, as long as the partition is not noted."""
        name = self._core.frontend
        if not self._core.sends:
            return name
        if not self._noted:
            return ""
        return f"{name}/{self._session}" if self._session else name

    def _take_reply(self, record: NodeRecord, batch: Batch, reply: Answer | Exception, name: str) -> list[Request]:
        """Take the reply of an operation to a batch; returns its requests when the record was old.

        Its answers are given at once, or, if they are many and there is a next call, while Redis runs that one.
        """
        if isinstance(reply, Exception):
            problem = reply.problem if isinstance(reply, CoreUnavailable) else Problem.UNAVAILABLE
            about = {"node": self.node, "partition": self.number, "command": batch.kind.__name__}
            log.error("script failed", **about, problem=problem.value, error=str(reply))
            self._answer(batch.requests, Refused(problem, str(reply) if isinstance(reply, CoreUnavailable) else ""))
            return []
        read = OperationReply.read(reply, self._partition, record.config)
        if read is None:
            return batch.requests
        # An operation answers its rows in order and may stop after the first (lua/lib/budget.lua).
        done = 1 if batch.call.row is None else max(1, len(read.rows))
        if rest := batch.requests[done:]:
            self._pending.extendleft(reversed(remove_later(rest, self._batches)))
        self._unread = record, batch, batch.requests[:done], read, name
        self._unread_since = self._called_at
        many = done + len(read.deliveries) >= _MANY
        if not (many and (self._batches or self._pending)):
            self._give()
        return []

    def _give(self) -> None:  # noqa: C901  (a reply has many parts, and none may keep another from being given)
        """Answer the commands of the last call, and hand out its deliveries, also if an answer cannot be read."""
        if self._unread is None:
            return
        (record, batch, requests, read, name), self._unread = self._unread, None
        kind, call, results, answers = batch.kind, batch.call, list[Outcome](), self._server.answers(name)
        try:
            parts = (
                [replace(read, rows=answers.read_rows(read.rows))]
                if call.row is None
                else map(answers.read_row, read.rows)
            )
            results = list(map(call.result, map(_COMMAND, requests), parts, repeat(record)))
            if batch.durable is not None:
                self._answer_later(requests, results, batch.durable)
            else:
                for request, result in zip(requests, results, strict=True):
                    request(result)
            if issubclass(kind, Publish):
                for each in results:
                    stored = each.published if isinstance(each, DependentStored) else each
                    if isinstance(stored, Published) and not stored.duplicate:
                        self._core.quota_use.published[record.creator] += 1
        except Exception as error:  # noqa: BLE001  (logged)
            self._log_defect(error, kind)
            self._fail(requests)
        try:
            self._hand_out(read)
            if self._server.operations[call.operation].writes and not (
                kind in _QUIET and _is_unchanged(requests, results, read)
            ):
                self._core.partition_changed(self._partition)
            if read.more and (call.row is not None or ROWS[kind].hands_out):
                self._go_on()
        except Exception as error:  # noqa: BLE001  (logged)
            self._log_defect(error, kind)
        self._unread_since = _NOTHING_UNSEEN

    def _answer_later(self, requests: list[Request], results: Sequence[Outcome], durable: DurableCall) -> None:
        """Answer publishes once they are as durable as asked, or known not to be; those that are refused at once."""
        stored = []
        for request, result in zip(requests, results, strict=True):
            if isinstance(result, Refused):
                request(result)
            else:
                stored.append((request, result))
        if stored:
            self._unconfirmed += 1
            start(self._confirm(stored, durable))

    async def _confirm(self, stored: Sequence[tuple[Request, Outcome]], durable: DurableCall) -> None:
        why = "this process is stopping"
        try:
            why = await durable.failure()
        finally:
            self._unconfirmed -= 1
            told = f"the item is stored, but not {durable.level.value}: {why}: publish it again with the same id"
            for request, result in stored:
                request(Refused(Problem.TIMED_OUT, told) if why else result)

    def _go_on(self) -> None:
        """Hand out more, which a congested door gets with the next heartbeat only."""
        if self._core.congested():
            self._core.announce(self._partition, 1)
        else:
            self.submit(Sweep(self.node, self.number), ignore_outcome)

    def _search_call(self, upto: int | None = None, scan: str = "0") -> tuple[TakeOver, Callable[[Any], None]]:
        """Return the command that looks for own deliveries that have not come, and what takes its outcome."""
        command = TakeOver(self.node, self._core.frontend, 0, self._search_after, upto, scan, self.number)
        return command, self._on_searched

    def _on_searched(self, outcome: Outcome) -> None:
        if isinstance(outcome, Scanned) and outcome.scan != "0":
            self.submit(*self._search_call(outcome.upto, outcome.scan))
        elif isinstance(outcome, Refused) and outcome.problem.retryable:
            self._reply_lost = True
        elif not self._reply_lost:
            self._end_search()

    def _end_search(self) -> None:
        self._lost_since, self._search_after = _NOTHING_UNSEEN, None

    def _handle_notice(self, notice: OperationNotice) -> None:  # noqa: C901  (a table of cases)
        match notice:
            case OwnershipLost():
                self._core.notify(notice)
            case LockOver(ended, expired):
                self._core.notify(ended)
                if expired:
                    self._core.count("expired", node=self.node)
            case LeaseOver(jid, whose):
                self._core.lease_expired(self.node, jid, whose)
            case SubscriptionOver(jid):
                self._core.subscription_ended(self.node, jid)
            case ReferencesFreed(collection, words):
                self._core.free_references(collection, words)
            case Asks():
                self._router.on_asks(self._partition, notice)
            case TurnDue():
                self._router.on_turn_due()
            case WorkWaits(process, whose):
                self._core.wake(process, self._partition, whose)
            case ToCount(counter, amount):
                self._core.count(counter, amount, self.node)
            case _:
                assert_never(notice)

    def _hand_out(self, read: OperationReply) -> None:
        partition = self._partition
        for notice in read.notices:
            try:
                self._handle_notice(notice)
            except Exception:
                # The deliveries of the reply are handed out all the same.
                log.exception("a notice could not be handled", node=self.node)
        for made in read.deliveries:
            self._received = max(self._received, made.sequence)
        handed = read.deliveries
        if handed:
            self._received_at = time.monotonic()
        for batch in (handed,) if len(handed) == 1 else delivery_batches.batch_deliveries(handed) if handed else ():
            try:
                self._core.deliver(batch)
            except Exception:
                # Send the other deliveries of the reply; the locks of these expire.
                log.exception("a delivery could not be sent", node=self.node, item=batch[0].item_id)
        if read.outbox_due:
            self._core.follow_outbox(partition)
        if read.due_ms:
            self._core.announce(partition, read.due_ms)

    def _answer(self, requests: Iterable[Request], result: Outcome) -> None:
        for request in requests:
            request(result)


def _is_unchanged(requests: list[Request], results: Sequence[Outcome], read: OperationReply) -> bool:
    """Return whether a receive or a sweep has certainly changed nothing that is measured."""
    command = requests[0].command
    quiet = not any(map(_locks, results)) and (isinstance(command, ReceiveFrom) or _is_passing(command))
    return quiet and not (read.deliveries or read.notices or read.outbox_due)


def _is_passing(command: AnyCommand) -> bool:
    return isinstance(command, Sweep) and command.passing


def _locks(result: Outcome) -> bool:
    """Return whether items were locked by a receive."""
    return isinstance(result, ReceivedFrom) and any(item.locked_now for item in result.received.items)


def ask_pipeline(pipeline: PartitionPipeline, command: AnyCommand) -> asyncio.Future[Any]:
    """Submit a command to a pipeline and return its outcome as a future."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    pipeline.submit(command, partial(fulfil, future))
    return future
