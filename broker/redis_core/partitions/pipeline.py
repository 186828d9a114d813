"""The pipeline of one partition: batches commands, runs one script call at a time, and hands out the deliveries of its answer.

Since a partition has one call under way, its commands keep their order, commands that arrive meanwhile form the next
batches, other partitions get their turn at Redis between two calls, and after a lost reply the pipeline knows exactly which
deliveries it has not seen. If commands wait when a reply with many answers comes, their call is sent before those are given, so
that Redis and this process work at once. The cached node record may be old; every script checks its revision. So a pipeline
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
from broker.model.items import NodeEvent, OwnershipLost
from broker.model.names import Partition
from broker.model.nodes import NodeRecord
from broker.model.problems import CoreUnavailable, CorruptRecord, Problem, ScriptDefect
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
    fulfil,
    ignore_outcome,
)
from broker.redis_core.operations.operation import (
    LeaseOver,
    LockOver,
    ReferencesFreed,
    ScriptNotice,
    ScriptReply,
    SubscriptionOver,
    ToCount,
    TurnDue,
    Values,
    WorkWaits,
    split_reply,
)
from broker.redis_core.partitions import delivery_batches
from broker.redis_core.partitions.batching import Batch, make_batches, remove_later
from broker.redis_core.partitions.send_marks import SendMarks
from broker.redis_core.ports import CorePort, NodePort
from broker.redis_core.records.cache import NodeCache
from broker.redis_core.redis_client.client import Line, Server
from broker.redis_core.registry.authorization import accepting
from broker.redis_core.registry.rows import CALLS, ROWS, refusal
from broker.tasks import FAILED, STOPPED, Request, start

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
_DEREGISTERED = "-"
_QUIET = {ReceiveFrom, Sweep}


class PartitionPipeline:
    """Sends one partition's commands to Redis."""

    def __init__(self, known: NodeCache, *, number: int, router: NodePort, server: Server, core: CorePort) -> None:
        """Make an idle pipeline for the partition `number` of a node; commands for another partition go to `router`."""
        self.node = known.node
        self.number = number
        self._cache = known
        self._router = router
        self._server = server
        self._store = known.store
        self._core = core
        self._pending: deque[Request] = deque()
        self._batches: deque[Batch] = deque()
        self._running: Task[None] | None = None
        self._incarnation = ""
        self._partition = Partition(known.node, "", number)
        self._marks = SendMarks()
        self._closing = False
        self._reply_lost = False
        self._session = core.lost_replies
        self._began = False
        self._unread: tuple[NodeRecord, type, list[Request], ScriptReply] | None = None

    def submit(self, command: AnyCommand, reply: Callable[[Any], None]) -> None:
        """Queue a command; all commands of one turn of the event loop are sent together."""
        self._pending.append(Request(command, reply))
        if self._running is None:
            self._running = start(self._run())

    def sweep(self) -> None:
        """Sweep the partition, which also reports sent deliveries and looks for lost ones."""
        self.submit(Sweep(self.node, self.number), ignore_outcome)

    def close(self) -> None:
        """Sweep it for the last time before the stream is closed."""
        self._closing = True
        self.sweep()

    def resume(self) -> None:
        """Send deliveries again that may not have been sent before the stream broke."""
        self._search(self._marks.sent)

    @property
    def quiet(self) -> bool:
        """Whether no command is waiting or under way."""
        return self._running is None and not self._pending

    @property
    def idle(self) -> bool:
        """Whether the pipeline may be dropped: it is quiet and has nothing to report or to look for."""
        return self.quiet and not self.reply_lost and not self.unreported

    @property
    def reply_lost(self) -> bool:
        """Whether a reply was lost, so that its deliveries must still be looked for."""
        return self._reply_lost

    @property
    def unreported(self) -> bool:
        """Whether deliveries were handed out that are not yet reported to Redis as sent."""
        return self._marks.unreported

    def must_report(self) -> bool:
        """Return whether deliveries are sent that Redis does not know to be; the door is asked once a second at most."""
        if time.monotonic() >= self._marks.look_at:
            self._look()
        return self._marks.sent != self._marks.reported

    @property
    def may_be_marked(self) -> bool:
        """Whether Redis may hold a sent mark of this frontend, of its deliveries or of a session."""
        return self._marks.received > 0 or self._began

    async def _run(self) -> None:
        try:
            while self._pending or self._batches:
                if not self._batches:
                    self._batches.extend(make_batches(self._pending))
                    self._pending.clear()
                if self._reply_lost:
                    self._reply_lost = False
                    # Look for lost deliveries before new ones. A process that cannot send has none: its clients pull.
                    if self._core.sends:
                        self._batches.appendleft(
                            Batch(TakeOver, CALLS[TakeOver], [Request(*self._take_over_call(self._marks.received))])
                        )
                # One call per round trip: Redis would run several scripts at once without a turn for others.
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
        """Run a batch's script, again if the cached record was old; on any exception all requests are answered or wait again."""
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
        """Answer the requests that are owed an answer; commands that the script had no time for are waiting again."""
        waiting = {id(request) for request in self._pending}
        self._answer((each for each in requests if not each.answered and id(each) not in waiting), FAILED)

    def _note_lost_reply(self) -> None:
        """Note that a reply was lost: the script may have run, or may run late."""
        # What has come is handed out first, so that it is not looked for.
        self._give()
        # The next call begins a session: once it has run, Redis refuses late calls of an earlier session.
        self._core.lost_replies += 1
        self._session = self._core.lost_replies
        self._reply_lost = True
        self._marks.forget_report()

    async def _try_batch(self, batch: Batch, *, last: bool) -> None:
        """Carry out a batch; it keeps the part that was judged by an old record and must be repeated."""
        requests, batch.requests = batch.requests, []
        try:
            cached = self._cache.record
            record = self._adopt(cached or await self._renew())
            allowed, refused = self._authorize(record, requests)
            if refused and cached is not None:
                # A refusal runs no script that would find the record old, so refuse by a fresh record only.
                record = self._adopt(await self._renew())
                allowed, refused = self._authorize(record, requests)
            # Refused commands are answered; only the others still need an answer.
            requests = allowed
            for request, reason in refused:
                request(reason)
            if record is None or not requests:
                return
            batch.requests = requests
            exchange = self._server.run_all([self._call(record, batch, batch.call.script)])
            reply = (await (exchange if self._unread is None else self._give_during(exchange)))[0]
            if batch.call.when_full and isinstance(reply, CoreUnavailable) and reply.problem is Problem.OUT_OF_MEMORY:
                reply = (await self._server.run_all([self._call(record, batch, batch.call.when_full)]))[0]
        except CoreUnavailable as error:
            self._note_lost_reply()
            # Commands that arrived during the call fail too: they have waited for Redis already.
            self._answer([*requests, *self._take_waiting()], Refused(error.problem, error.detail))
            batch.requests = []
            return
        batch.requests = self._take_reply(record, batch, reply)
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
            self._partition = record.partition(self.number)
            self._marks, self._reply_lost = SendMarks(), False
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
        except (CoreUnavailable, ScriptDefect, CorruptRecord) as error:
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

    def _call(self, record: NodeRecord, batch: Batch, name: str) -> Line:
        """Write the call of a batch's operation, or of the one that runs instead."""
        call, core, session = batch.call, self._core, self._session
        operation = self._server.operations[name]
        first = batch.requests[0].command
        shared: Values = {
            "now": "",
            "revision": record.revision,
            "frontend": f"{core.frontend}/{session}" if session and core.sends else core.frontend,
            "sent": self._new_sent_mark() if "sent" in operation.arguments else "",
            "number": self.number,
            "once_ms": core.once_ms,
            "retry": core.retry,
        }
        rows: Iterable[Values] = ()
        if call.row is not None:
            rows = map(call.row, map(_COMMAND, batch.requests), repeat(record))
        elif call.rows is not None:
            rows = call.rows(first, record)
        names = keys.all_of_partition(operation.keys, self._partition)
        fixed = call.fixed(first, record)
        if name != call.script:
            fixed = {each: fixed[each] for each in operation.arguments if each in fixed}
        return self._server.call(name, names, fixed, rows, shared)

    def _new_sent_mark(self) -> int | str:
        """Return how far deliveries are sent; empty where Redis knows it."""
        if (self._closing or time.monotonic() >= self._marks.look_at) and self._look() and self._closing:
            self._marks.report()
            return _DEREGISTERED
        marks = self._marks
        return "" if marks.sent == marks.reported else marks.report() or ""

    def _look(self) -> bool:
        """Look whether all deliveries have left the process, and note it."""
        flushed = self._core.flushed()
        if flushed:
            self._marks.flushed(time.monotonic(), closing=self._closing)
        return flushed

    def _take_reply(self, record: NodeRecord, batch: Batch, reply: list[Any] | Exception) -> list[Request]:
        """Take the reply to a batch; returns its requests when the record was old.

        Its answers are given at once, or, if they are many and there is a next call, while Redis runs that one.
        """
        if isinstance(reply, Exception):
            problem = reply.problem if isinstance(reply, CoreUnavailable) else Problem.UNAVAILABLE
            about = {"node": self.node, "partition": self.number, "command": batch.kind.__name__}
            log.error("script failed", **about, problem=problem.value, error=str(reply))
            self._answer(batch.requests, Refused(problem, str(reply) if isinstance(reply, CoreUnavailable) else ""))
            return []
        read = ScriptReply.read(reply, self._partition, record.config)
        if read is None:
            return batch.requests
        # A script answers its rows in order and may stop after the first (lua/lib/budget.lua).
        done = 1 if batch.call.row is None else max(1, len(read.rows))
        if rest := batch.requests[done:]:
            self._pending.extendleft(reversed(remove_later(rest, self._batches)))
        self._unread = record, batch.kind, batch.requests[:done], read
        # The last call of a stream that closes tells Redis that all deliveries before it are sent.
        many = done + len(read.deliveries) >= _MANY
        if self._closing or not (many and (self._batches or self._pending)):
            self._give()
        return []

    def _give(self) -> None:
        """Answer the commands of the last call, and hand out its deliveries, also if an answer cannot be read."""
        if self._unread is None:
            return
        (record, kind, requests, read), self._unread = self._unread, None
        call, results = CALLS[kind], list[Outcome]()
        try:
            parts = [read] if call.row is None else map(split_reply, read.rows)
            results = list(map(call.result, map(_COMMAND, requests), parts, repeat(record)))
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
            if self._server.operations[call.script].writes and not (
                kind in _QUIET and _is_unchanged(requests, results, read)
            ):
                self._core.partition_changed(self._partition)
            # A congested door gets no more now: the heartbeat sweeps again, since these deliveries are not reported as sent yet.
            if read.more and (call.row is not None or ROWS[kind].hands_out) and not self._core.congested():
                self.submit(Sweep(self.node, self.number), ignore_outcome)
        except Exception as error:  # noqa: BLE001  (logged)
            self._log_defect(error, kind)

    def _search(self, after: int, upto: int | None = None, scan: str = "0") -> None:
        """Look for this frontend's own deliveries after `after` that it has not seen or not written."""
        self.submit(*self._take_over_call(after, upto, scan))

    def _take_over_call(
        self, after: int, upto: int | None = None, scan: str = "0"
    ) -> tuple[TakeOver, Callable[[Any], None]]:
        # This call begins the session in this partition.
        self._began |= self._session > 0
        command = TakeOver(self.node, self._core.frontend, after, upto, scan, self.number)
        return command, partial(self._on_taken_over, after)

    def _on_taken_over(self, after: int, outcome: Outcome) -> None:
        if isinstance(outcome, Scanned):
            if outcome.scan != "0":
                self._search(after, outcome.upto, outcome.scan)
        elif isinstance(outcome, Refused) and outcome.problem.retryable:
            self._reply_lost = True

    def _handle_notice(self, notice: ScriptNotice) -> None:  # noqa: C901  (a table of cases)
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

    def _hand_out(self, read: ScriptReply) -> None:
        partition = self._partition
        for notice in read.notices:
            try:
                self._handle_notice(notice)
            except Exception:
                # The deliveries of the reply are handed out all the same.
                log.exception("a notice could not be handled", node=self.node)
        for made in read.deliveries:
            self._marks.received = max(self._marks.received, made.sequence)
        handed = read.deliveries
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


def _is_unchanged(requests: list[Request], results: Sequence[Outcome], read: ScriptReply) -> bool:
    """Return whether a receive or a sweep has certainly changed nothing that is measured."""
    command = requests[0].command
    quiet = not any(map(_locks, results)) and (
        isinstance(command, ReceiveFrom) or (isinstance(command, Sweep) and command.passing)
    )
    return quiet and not (read.deliveries or read.notices or read.outbox_due)


def _locks(result: Outcome) -> bool:
    """Return whether items were locked by a receive."""
    return isinstance(result, ReceivedFrom) and any(item.waited_ms is not None for item in result.received.items)


def ask_pipeline(pipeline: PartitionPipeline, command: AnyCommand) -> asyncio.Future[Any]:
    """Submit a command to a pipeline and return its outcome as a future."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    pipeline.submit(command, partial(fulfil, future))
    return future
