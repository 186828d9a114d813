"""One partition's lane: gathers its commands, runs their scripts one call after another, and hands out what they answer.

With a single call under way per partition, commands keep their order, what arrives meanwhile gathers into the next
batch, and after a lost reply the lane knows exactly which deliveries it never saw. The node's record may be an old one and is
checked by every script (revision), so a lane holds nothing that another frontend does not.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, get_args

import structlog

from broker import keys
from broker.model.items import LockEnded, NodeEvent
from broker.model.names import Jid, Partition
from broker.model.nodes import NodeRecord
from broker.model.oversight import Release
from broker.model.problems import CoreUnavailable, CorruptRecord, Problem, ScriptDefect
from broker.model.results import Refused
from broker.redis_core.around import Neighbours, Surroundings
from broker.redis_core.batches import Batch, Ticket, batched
from broker.redis_core.calls import OF
from broker.redis_core.calls.call import Reply, delivery, ownership_lost, subscription
from broker.redis_core.directory import Directory
from broker.redis_core.internal import FAILED, GONE, DeadLetter, Expire, Internal, Outcome, Resend, Scanned, ignored
from broker.redis_core.known import Known
from broker.redis_core.marks import Marks
from broker.redis_core.parts import Admit, TransferPart
from broker.redis_core.policy import refusal
from broker.redis_core.server import Arguments, Server

log = structlog.get_logger()

_COLLECTS = Refused(Problem.PUBLISH_UNSUPPORTED, "a collection takes no items")
_CHANGING = Refused(Problem.UNAVAILABLE, "the node is being changed")
_RETRIES = 5
_RESIGNED = "-"

_INTERNAL = get_args(Internal)

_HANDING_OUT = (Expire, Release, TransferPart)
"""Commands that go alone and hand items out."""


class Lane:
    """The way of one partition's commands to Redis."""

    def __init__(  # noqa: PLR0913  (its place, and what it works with)
        self,
        known: Known,
        *,
        number: int,
        neighbours: Neighbours,
        server: Server,
        directory: Directory,
        around: Surroundings,
    ) -> None:
        """Make an idle lane for the partition `number` of a node."""
        self.node = known.node
        self.number = number
        self._known = known
        self._neighbours = neighbours
        self._server = server
        self._directory = directory
        self._around = around
        self._pending: deque[Ticket] = deque()
        self._running: asyncio.Task[None] | None = None
        self._incarnation = ""
        self._marks = Marks()
        self._closing = False
        self._doubts = 0

    def submit(self, command: Any, reply: Callable[[Any], None]) -> None:
        """Take a command; all that is submitted in one loop turn goes together."""
        self._pending.append((command, reply))
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._run())

    def mark(self) -> None:
        """Visit the partition on the lane's own account: to tell what is sent, and to look for what was lost."""
        self.submit(Expire(self.node, self.number), ignored)

    def close(self) -> None:
        """Visit it for the last time before the stream is closed in order."""
        self._closing = True
        self.mark()

    def resume(self) -> None:
        """Send again what is not surely sent: the stream broke behind it."""
        self.submit(*self._search(self._marks.sent))

    @property
    def quiet(self) -> bool:
        """Nothing is under way."""
        return self._running is None and not self._pending

    @property
    def idle(self) -> bool:
        """Nothing under way, nothing owed: the lane may be dropped."""
        return self.quiet and not self.doubtful and not self.unmarked

    @property
    def doubtful(self) -> bool:
        """A reply was lost, and deliveries made in it may still have to be looked for."""
        return self._doubts > 0

    @property
    def unmarked(self) -> bool:
        """Deliveries have been handed out that Redis has not been told are sent."""
        return self._marks.owed

    @property
    def marked(self) -> bool:
        """Deliveries have been handed out here: Redis may hold a mark of them."""
        return self._marks.received > 0

    async def _run(self) -> None:
        try:
            while self._pending:
                tickets = [self._pending.popleft() for _ in range(len(self._pending))]
                for attempt in range(_RETRIES):
                    tickets = await self._turn(tickets, last=attempt == _RETRIES - 1)
                    if not tickets:
                        break
        finally:
            self._running = None

    async def _turn(self, tickets: list[Ticket], *, last: bool) -> list[Ticket]:
        """Carry out tickets; gives those that judged by an old record and have to go again."""
        try:
            if self._doubts:
                self._doubts -= 1
                tickets = [self._search(self._marks.received), *tickets]
            cached = self._known.record
            record = self._met(await self._known.read())
            allowed, refused = self._judged(record, tickets)
            if refused and cached is not None:
                # No script follows a refusal and would find the record old, so none is given by an old one.
                record = self._met(await self._known.renew())
                allowed, refused = self._judged(record, tickets)
            # From here on only those are owed an answer whom the policy has not refused.
            tickets = allowed
            for ticket, reason in refused:
                self._reply(ticket, reason)
            if record is None:
                return []
            calls = [(batch, self._arguments(record, batch)) for batch in batched(tickets)]
            replies = await self._server.run_all([call for _batch, call in calls])
        except CoreUnavailable as error:
            # Any of the scripts may have run, and run late: what it handed out is looked for twice.
            self._doubts = 2
            self._marks.untold()
            # Whoever came during the call has waited for Redis too, and would else wait for it twice as long as is set.
            waited = [*tickets, *self._pending]
            self._pending.clear()
            self._answer(waited, Refused(error.problem, str(error)))
            return []
        except Exception:
            # Ours or a record's fault: whoever asked gets an answer all the same, and the lane goes on.
            log.exception("lane failed", node=self.node, partition=self.number)
            self._answer(tickets, FAILED)
            return []
        again: list[Ticket] = []
        for (batch, _call), reply in zip(calls, replies, strict=True):
            again += self._settle(record, batch, reply)
        hindrance = await self._renewed(record) if again else None
        if hindrance is not None or last:
            self._answer(again, hindrance or _CHANGING)
            again = []
        return again

    def _met(self, record: NodeRecord | None) -> NodeRecord | None:
        """Begin anew when the node is another of the same name."""
        if record is not None and record.incarnation != self._incarnation:
            self._incarnation = record.incarnation
            self._marks, self._doubts = Marks(), 0
        return record

    async def _renewed(self, old: NodeRecord) -> Refused | None:
        """Read the record anew and bring the partition up to it; gives a reason if nobody can be served."""
        try:
            record = self._met(await self._known.renew())
            if record and await self._directory.open(record, (self.number,)):
                return None
            # The partition is deleted and its record is not: whoever deleted the node did not come to the end of it.
            if record and record.incarnation == old.incarnation:
                jids = await self._directory.delete(record)
                for jid in jids if record.config.notify_delete else ():
                    self._around.notify(NodeEvent(self.node, jid, "delete"))
        except (CoreUnavailable, ScriptDefect, CorruptRecord) as error:
            log.warning("record not renewed", node=self.node, partition=self.number, error=str(error))
            self._known.forget()
            return FAILED
        self._known.forget()
        return GONE

    def _judged(
        self, record: NodeRecord | None, tickets: list[Ticket]
    ) -> tuple[list[Ticket], list[tuple[Ticket, Refused]]]:
        """Part those whom the policy lets through from those whom it refuses; without a record it refuses all."""
        if record is None:
            return [], [(ticket, GONE) for ticket in tickets]
        allowed, refused = [], []
        for ticket in tickets:
            command = ticket[0]
            reason = None if isinstance(command, _INTERNAL) else refusal(command, record)
            if getattr(command, "incarnation", "") not in {"", record.incarnation}:
                # Of another life of the node.
                reason = GONE
            if isinstance(command, DeadLetter | Admit) and record.config.collects:
                reason = _COLLECTS
            if reason is None:
                allowed.append(ticket)
            else:
                refused.append((ticket, reason))
        return allowed, refused

    def _arguments(self, record: NodeRecord, batch: Batch) -> Arguments:
        call = OF[batch.kind]
        header = self._server.header(call.script)
        first = batch.tickets[0][0]
        shared: dict[str, Any] = {
            "now": "",
            "revision": record.revision,
            "frontend": self._around.frontend,
            "sent": self._mark() if "sent" in header.arguments else None,
            "number": self.number,
            "once_ms": self._around.once_ms,
            "retry": self._around.retry,
            "wants": self._neighbours.wants(record.partition(self.number)) if "wants" in header.arguments else None,
        }
        fixed = {name: value for name, value in shared.items() if name in header.arguments} | dict(
            call.fixed(first, record)
        )
        if call.row is not None:
            rows = [call.row(command, record) for command, _reply in batch.tickets]
        else:
            rows = call.rows(first, record) if call.rows else []
        partition = record.partition(self.number)
        return self._server.arguments(
            call.script, [keys.of_partition(name, partition) for name in header.keys], fixed, rows
        )

    def _mark(self) -> int | str:
        if self._around.flushed():
            self._marks.flushed(time.monotonic(), closing=self._closing)
            if self._closing:
                self._marks.tell()
                return _RESIGNED
        mark = self._marks.tell()
        return "" if mark is None else mark

    def _settle(self, record: NodeRecord, batch: Batch, reply: Any) -> list[Ticket]:
        """Answer a batch and hand out what its script gave; gives its tickets back when the record was old."""
        if isinstance(reply, Exception):
            problem = reply.problem if isinstance(reply, CoreUnavailable) else Problem.UNAVAILABLE
            about = {"node": self.node, "partition": self.number, "command": batch.kind.__name__}
            log.error("script failed", **about, problem=problem.value, error=str(reply))
            self._answer(batch.tickets, Refused(problem, str(reply) if isinstance(reply, CoreUnavailable) else ""))
            return []
        if reply[0] != b"ok":
            return batch.tickets
        call = OF[batch.kind]
        try:
            read = Reply.read(reply)
            parts = [read] if call.row is None else read.rows
            results = [call.result(ticket[0], part, record) for ticket, part in zip(batch.tickets, parts, strict=True)]
        except Exception:
            # What cannot be read is a defect of ours: the rest of the round trip is settled all the same.
            log.exception("reply not understood", node=self.node, partition=self.number, command=batch.kind.__name__)
            self._answer(batch.tickets, FAILED)
            return []
        for ticket, result in zip(batch.tickets, results, strict=True):
            self._reply(ticket, result)
        self._hand_out(record, read)
        # A door that has much to write is left alone: the pulse visits again, since what was handed out is not marked yet.
        if read.more and (call.row is not None or batch.kind in _HANDING_OUT) and not self._around.congested():
            self.submit(Expire(self.node, self.number), ignored)
        return []

    def _search(self, after: int, upto: int | None = None, scan: str = "0") -> Ticket:
        """Look for deliveries of this frontend's own that it has not seen or not written: all that come after `after`."""
        return Resend(self.node, self._around.frontend, after, upto, scan, self.number), partial(self._searched, after)

    def _searched(self, after: int, outcome: Outcome) -> None:
        if isinstance(outcome, Scanned) and outcome.scan != "0":
            self.submit(*self._search(after, outcome.upto, outcome.scan))

    def _tell(self, partition: Partition, notices: list[list[Any]]) -> None:
        for kind, *values in notices:
            if kind == b"lost":
                self._around.notify(ownership_lost(values, partition))
            elif kind == b"lapsed":
                self._around.lapsed(self.node, Jid(values[0].decode()), values[1].decode())
            elif kind == b"perished":
                self._around.count("perished", values[0])
            elif kind == b"filled":
                self._around.count("delivered", values[1])
                self._around.filled(Jid(values[0].decode()))
            else:
                jid, item, token, *told = values
                whose = subscription(*told)
                self._around.notify(LockEnded(self.node, Jid(jid.decode()), item.decode(), token, *whose))
                if kind == b"unlocked":
                    self._around.count("expired")

    def _hand_out(self, record: NodeRecord, read: Reply) -> None:
        partition = record.partition(self.number)
        self._tell(partition, read.notices)
        for row in read.deliveries:
            made = delivery(row, partition, record.config)
            self._around.deliver(made)
            self._marks.received = max(self._marks.received, made.sequence)
        if read.lending:
            self._neighbours.learned(partition, record.config.partitions, read.lending)
        for letter in read.handovers:
            self._around.hand_over(record, self.number, letter)
        if read.due_ms:
            self._around.announce(partition, read.due_ms)

    def _answer(self, tickets: list[Ticket], result: Any) -> None:
        for ticket in tickets:
            self._reply(ticket, result)

    def _reply(self, ticket: Ticket, result: Any) -> None:
        try:
            ticket[1](result)
        except Exception:
            # The lane serves many senders: one whose answer cannot be worded must not stop the others.
            log.exception("an answer could not be given", node=self.node, command=type(ticket[0]).__name__)
