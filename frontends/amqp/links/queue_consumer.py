"""A link over which a worker receives the items of a queue: they are locked for it, and what it says of one ends its lock.

The link has a lease of its own, as there are over HTTP: a subscription whose items are come for. Its credit follows the link's,
and all that it holds is given back when the link goes. Must not know how a link is attached.
"""

import asyncio
import math
import time
from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog

from broker.model.commands import Adjust, Fetch, Retract, Unlock, Unsubscribe
from broker.model.names import Jid, Partition
from broker.model.options import MAX_CREDIT
from broker.model.problems import CorruptRecord, Problem
from broker.model.results import Fetched, HeldItem, Refused, Result
from broker.tasks import serve
from frontends.amqp.errors import DETACHED, INTERNAL, STOLEN, Fault, fault
from frontends.amqp.links.context import LinkContext
from frontends.amqp.links.lock_keeper import AWAY, LEASE_MS, PAUSE_SECONDS, LockKeeper, Then
from frontends.amqp.messages import deliveries
from frontends.amqp.messages.lock_ref import LockRef
from frontends.amqp.protocol.links import Outgoing
from frontends.amqp.protocol.outcomes import Outcome

_WAIT_SECONDS: Final = 60.0
_BEAT_SECONDS: Final = 3.0
"""Between two looks of a link without credit, which keep its lease."""

_DRAIN_SECONDS: Final = (0.05, 0.75)
"""How long credit that is drained waits for items on their way: in one partition, and where credit has to get to theirs first."""

_LULL_SECONDS: Final = 0.005
"""Who settles often gives credit at once after it: so long its lock is not ended while its credit would go down."""

_UNSENT_BYTES: Final = 1_048_576
_ELSEWHERE_MS: Final = 2_000
"""So long an item that is for others alone waits for them, before it is seen again who is there."""

_ELSEWHERE_MOST: Final = 1_000
_NEVER: Final = 2**53

_OVER: Final = frozenset({Problem.NOT_SUBSCRIBED, Problem.LEASE_OVER})

_log = structlog.get_logger("stanzaq.amqp")


@dataclass(frozen=True, slots=True)
class Lease:
    """The subscription of a link: of which node, with `several` partitions perhaps, whose, and the JID made up for it."""

    node: str
    several: bool
    owner: Jid
    jid: Jid
    subid: str


class QueueConsumer:
    """One worker's link."""

    def __init__(self, link: Outgoing, context: LinkContext, lease: Lease) -> None:
        """Begin without credit; nothing runs before `start`."""
        self.link = link
        self._lease = lease
        self._core = context.core
        self._flush = context.connection.flush
        self._credit = 0
        self._holding = LockKeeper(context.core, self._look)
        self._leaving = 0
        self._leaving_bytes = 0
        self._endings: list[tuple[Retract | Unlock, Then]] = []
        self._elsewhere: OrderedDict[tuple[Partition, str], None] = OrderedDict()
        self._seen: dict[Partition, int] = {}
        self._looked_at = 0.0
        self._blocked = False
        self._news = asyncio.Event()
        self._stirred = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._over = False

    def start(self) -> None:
        """Begin to deliver."""
        self.link.prepare()
        self.link.told = self._told
        self._tasks = [serve(work, self._failed) for work in (self._deliver(), self._tend())]
        self.wake()

    def stop(self) -> None:
        """Deliver no more, and give back at once what has no outcome."""
        if self._over:
            return
        self._over = True
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        # What is acknowledged before it is sent, and was not sent, is not done.
        if not self.link.settles:
            self._submit(len(self._endings))
        self._endings.clear()
        self._holding.clear()
        self.link.forget()
        lease = self._lease
        self._core.submit(Unsubscribe(lease.node, lease.owner, lease.jid, "", release=True), _ignored)

    def wake(self) -> None:
        """Look again: there is credit, or an outcome."""
        self._news.set()
        self._stirred.set()

    def on_credit(self) -> None:
        """Look again if there may be room now."""
        if self._blocked and self.link.unsent <= _UNSENT_BYTES // 2:
            self._blocked = False
            self._stirred.set()

    def _look(self) -> None:
        self._news.set()

    def _failed(self, error: Exception) -> None:
        if not isinstance(error, Fault):
            _log.error("a worker's link failed", node=self._lease.node, exc_info=error)
        self.stop()
        self.link.end(error if isinstance(error, Fault) else Fault(INTERNAL))
        self._flush()

    # What is to be had.

    async def _deliver(self) -> None:
        """Come for items as long as there is credit, and keep the lease."""
        while True:
            self._stirred.clear()
            self._blocked = self._cramped
            rests = self._looked_at + _BEAT_SECONDS - time.monotonic()
            if self._room() > 0 and not self._blocked:
                self._take(await self._fetched(_WAIT_SECONDS))
            elif rests > 0:
                await _within(self._stirred, rests)
            else:
                self._take(await self._fetched(0))

    async def _fetched(self, wait: float) -> Fetched:
        lease = self._lease
        while True:
            # Who does not read is not fetched for.
            after = dict.fromkeys(self._seen, _NEVER) if self._cramped else dict(self._seen)
            found = await self._core.ask(Fetch(lease.node, lease.owner, lease.jid, LEASE_MS, wait, after))
            if isinstance(found, Fetched):
                self._looked_at = time.monotonic()
                self._holding.heard(found.until_ms - LEASE_MS)
                return found
            if not isinstance(found, Refused):
                raise Fault(INTERNAL)
            if found.problem in _OVER:
                raise Fault(DETACHED, "the link's lease is over: attach again")
            if found.problem not in AWAY:
                raise fault(found)
            await asyncio.sleep(PAUSE_SECONDS)

    def _take(self, found: Fetched) -> None:
        """Send what was found; what there is no credit for any more goes back."""
        for item in sorted(found.items, key=lambda item: item.token):
            if self._cramped:
                break
            if item.token <= self._seen.get(item.partition, 0):
                # Another look has had it.
                continue
            self._seen[item.partition] = item.token
            lock_ref = LockRef.of(self._lease.jid, item)
            if (item.partition, item.item_id) in self._elsewhere:
                self._end(lock_ref.give_back(untried=True, delay_ms=_ELSEWHERE_MS))
            elif self._room() <= 0:
                self._end(lock_ref.give_back(untried=True))
            else:
                self._send(lock_ref, item)
        self._flush()

    def _send(self, lock_ref: LockRef, item: HeldItem) -> None:
        try:
            message = deliveries.message(item)
        except CorruptRecord as wrong:
            # Its lock runs out like any other; after its last attempt it is a dead letter.
            _log.error("an item cannot be read", node=self._lease.node, item=item.item_id, error=str(wrong))
            return
        if len(message) > self.link.most_bytes:
            # Part 2 §2.7.3: longer than its worker takes; others may take it.
            self._not_again(lock_ref)
            self._end(lock_ref.give_back(untried=True, delay_ms=_ELSEWHERE_MS))
            return
        if self.link.settles:
            # At most once: it is done before it is sent.
            self._leaving += 1
            self._leaving_bytes += len(message)
            self._end(lock_ref.acknowledge(), partial(self._left, message))
        else:
            self._holding.add(self.link.send(message), lock_ref, item.deadline_ms)

    def _left(self, message: bytes, refusal: Refused | None) -> None:
        self._leaving -= 1
        self._leaving_bytes -= len(message)
        if refusal is None and not self._over and self.link.open_for() > 0:
            # Without credit any more it is lost: that is what at most once means.
            self.link.send(message)
        self.wake()
        self._flush()

    def _room(self) -> int:
        """Give how many more may be sent."""
        return min(self.link.open_for(), MAX_CREDIT - len(self._holding)) - self._leaving

    @property
    def _cramped(self) -> bool:
        """Tell whether the peer does not read what it has."""
        return self.link.unsent + self._leaving_bytes > _UNSENT_BYTES

    # What becomes of it.

    def _told(self, number: int, outcome: Outcome, settled: bool) -> None:  # noqa: FBT001  (as the link tells it)
        lock_ref = self._holding.pop(number)
        if lock_ref is None:
            self.link.answer(number, Fault(STOLEN, "the lock was over: the item may be another's"))
            return
        if outcome.elsewhere:
            self._not_again(lock_ref)
        self._end(lock_ref.end(outcome), _unheard if settled else partial(self._answer, number))

    def _not_again(self, lock_ref: LockRef) -> None:
        self._elsewhere[lock_ref.partition, lock_ref.item_id] = None
        if len(self._elsewhere) > _ELSEWHERE_MOST:
            self._elsewhere.popitem(last=False)

    def _answer(self, number: int, refusal: Refused | None) -> None:
        self.link.answer(number, fault(refusal) if refusal else None)
        self._flush()

    def _end(self, command: Retract | Unlock, then: Then | None = None) -> None:
        self._endings.append((command, then or _unheard))
        self._news.set()

    async def _tend(self) -> None:
        """Let credit follow the link's, end locks, renew those that go on, and drain."""
        while True:
            await _within(self._news, self._holding.due_seconds)
            self._news.clear()
            if self._endings and self._wanted() < self._credit and not self.link.settles:
                await _within(self._news, _LULL_SECONDS)
                self._news.clear()
            # Credit goes down before locks end: nothing takes the place of one that nobody wants replaced.
            counted = len(self._endings)
            await self._level()
            self._submit(counted)
            self._holding.renew()
            if self.link.draining and self.link.open_for() > 0:
                await self._drain()

    def _submit(self, count: int) -> None:
        """End the first ones of the locks that are to end."""
        endings, self._endings = self._endings[:count], self._endings[count:]
        for command, then in endings:
            self._holding.end(command, then, certain=self.link.settles)

    def _wanted(self) -> int:
        return len(self._holding) + max(0, self._room())

    async def _level(self) -> None:
        """Let the subscription have as much credit as the link gives for, with what it holds."""
        wanted = self._wanted()
        if wanted == self._credit:
            return
        lease = self._lease
        found = await self._core.ask(Adjust(lease.node, lease.owner, lease.jid, lease.subid, wanted))
        if not isinstance(found, Refused):
            self._credit = wanted
        elif found.problem in _OVER:
            raise Fault(DETACHED, "the link's lease is over: attach again")
        elif found.problem in AWAY:
            await asyncio.sleep(PAUSE_SECONDS)
            self._news.set()
        else:
            raise fault(found)

    async def _drain(self) -> None:
        """Send what there is, and give back the credit that is left."""
        more = self._room() > 0
        if more:
            found = await self._fetched(_DRAIN_SECONDS[self._lease.several])
            self._take(found)
            more = bool(found.items)
        if not (more or self._leaving):
            self.link.drained()
            self._flush()
        self._news.set()


async def _within(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(None if seconds == math.inf else max(0.0, seconds)):
            await event.wait()
    except TimeoutError:
        pass


def _ignored(_result: Result) -> None:
    """Let it be: a lease that is not ended ends by itself."""


def _unheard(_refusal: Refused | None) -> None:
    """Let it be: who has settled waits for nothing."""
