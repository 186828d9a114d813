"""A consumer's link to a queue: it receives locked items, and its outcomes end the locks.

Each link has a pull subscription of its own, as over HTTP, and receives while the peer gives it credit. It returns all items
that it holds when it ends. Must not know how a link is attached.
"""

import asyncio
import math
import time
from collections import OrderedDict
from functools import partial
from typing import Final

import structlog

from broker.model.commands import Receive, Retract, Unlock, Unsubscribe
from broker.model.frozen import frozen
from broker.model.names import Jid, Partition
from broker.model.nodes.options import MAX_CREDIT
from broker.model.problems import CorruptRecord, Problem
from broker.model.results import HeldItem, Received, Refused, Result
from broker.tasks import serve, start
from frontends.amqp.errors import DETACHED, INTERNAL, LOCKED, STOLEN, Fault, fault
from frontends.amqp.links.context import LinkContext
from frontends.amqp.links.lock_keeper import PAUSE_SECONDS, LockKeeper, Then
from frontends.amqp.messages import deliveries
from frontends.amqp.messages.lock_ref import LOCK_MS, LockRef
from frontends.amqp.protocol.links import Outgoing
from frontends.amqp.protocol.outcomes import Outcome

LEASE_MS: Final = 15_000
"""A link that has not looked for so long is gone."""

_WAIT_SECONDS: Final = 60.0
_BEAT_SECONDS: Final = 5.0
"""The time between two looks of a link without credit, which keep its subscription alive."""

_SETTLE_PAUSE_SECONDS: Final = 0.005
"""Consumers that settle usually add credit in the next frame: wait this long before receiving for less credit."""

_UNSENT_BYTES: Final = 1_048_576
_ELSEWHERE_MS: Final = 2_000
"""How long an item that this consumer cannot take waits for other consumers."""

_ELSEWHERE_MOST: Final = 1_000

_OVER: Final = frozenset({Problem.NOT_SUBSCRIBED, Problem.LEASE_OVER})
_ENDED: Final = frozenset({Problem.ITEM_NOT_FOUND, Problem.LOCK_LOST, Problem.LOCKED_BY_ANOTHER, Problem.FORBIDDEN})
"""Refusals of an outcome that comes after the lock has ended."""

_STOLEN: Final = Fault(STOLEN, "the lock has ended: another consumer may have the item, or somebody has cancelled it")

_log = structlog.get_logger("stanzaq.amqp")


@frozen
class LinkSubscription:
    """The pull subscription of a link: its node (`several`: with several partitions), its owner, and the JID generated for it."""

    node: str
    several: bool
    owner: Jid
    jid: Jid


class QueueConsumer:
    """One consumer's link."""

    def __init__(self, link: Outgoing, context: LinkContext, subscription: LinkSubscription) -> None:
        """Start without credit; nothing runs before `start`."""
        self.link = link
        self._subscription = subscription
        self._core = context.core
        self._flush = context.connection.flush
        self._outgoing = 0
        self._outgoing_bytes = 0
        self._endings: list[tuple[Retract | Unlock, Then]] = []
        self._excluded: OrderedDict[tuple[Partition, str], None] = OrderedDict()
        self._seen: dict[Partition, int] = {}
        self._looked_at = 0.0
        self._asking: asyncio.Task[Result] | None = None
        self._asked_for = 0
        self._ending = 0
        self._was_blocked = False
        self._news = asyncio.Event()
        self._holding = LockKeeper(context.core, self._news.set)
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._stopped = False

    def start(self) -> None:
        """Start to deliver."""
        self.link.prepare()
        self.link.on_outcome = self._on_outcome
        self._tasks = [serve(work, self._fail) for work in (self._deliver(), self._maintain())]
        self.wake()

    def stop(self) -> None:
        """Stop delivering, and return all items without an outcome at once."""
        if self._stopped:
            return
        self._stopped = True
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        # A task that was cancelled refers to its frames, and so to this consumer.
        self._tasks.clear()
        # With at-most-once, an item whose message was not sent must not be acknowledged.
        if not self.link.settles:
            self._submit(len(self._endings))
        self._endings.clear()
        self._holding.clear()
        self.link.forget()
        subscription = self._subscription
        self._core.submit(
            Unsubscribe(subscription.node, subscription.owner, subscription.jid, "", release=True), _ignore_result
        )

    def wake(self) -> None:
        """Look again: there may be credit or an outcome."""
        self._news.set()
        self._changed.set()
        if self.link.draining:
            self._ask_anew()

    def on_credit(self) -> None:
        """Look again if output was blocked and no longer is."""
        if self._was_blocked and self.link.unsent <= _UNSENT_BYTES // 2:
            self._was_blocked = False
            self.wake()

    def _fail(self, error: Exception) -> None:
        if not isinstance(error, Fault):
            _log.error("a worker's link failed", node=self._subscription.node, exc_info=error)
        self.stop()
        self.link.end(error if isinstance(error, Fault) else Fault(INTERNAL))
        self._flush()

    # Receiving items.

    async def _deliver(self) -> None:
        """Receive items while there is credit, and keep the subscription alive."""
        while True:
            self._changed.clear()
            self._was_blocked = self._was_blocked or self._output_full
            rests = self._looked_at + _BEAT_SECONDS - time.monotonic()
            if self._room() > 0 and not self._was_blocked:
                draining = self.link.draining
                found = await self._receive(0 if draining else _WAIT_SECONDS)
                if found:
                    self._take(found)
                    if draining and not found.items and not self._outgoing and self._count_wanted() <= self._asked_for:
                        self.link.drained()
                        self._flush()
            elif rests > 0:
                await _wait_at_most(self._changed, rests)
            elif found := await self._receive(0):
                self._take(found)

    async def _receive(self, wait: float) -> Received | None:
        """Receive up to the link's credit; None if that has changed meanwhile."""
        # What ends counts no more, in the same partition: its end goes first.
        self._submit(len(self._endings))
        self._asked_for = self._count_wanted()
        subscription, takes = self._subscription, self._room() > 0 and not self._output_full
        command = Receive(
            *(subscription.node, subscription.owner, subscription.jid, LEASE_MS, wait, dict(self._seen)),
            limit=self._asked_for,
            lock_ms=LOCK_MS,
            takes=takes,
        )
        while True:
            self._asking = start(self._core.ask(command))
            try:
                found = await self._asking
            except asyncio.CancelledError:
                if self._stopped or self._is_cancelled():
                    raise
                return None
            finally:
                self._asking.cancel()
                self._asking = None
            if isinstance(found, Received):
                self._looked_at = time.monotonic()
                self._holding.set_redis_time(found.until_ms - LEASE_MS)
                if found.owned and not self._outgoing:
                    raise Fault(LOCKED, "workers own all partitions: attach again when one is free")
                return found
            if not isinstance(found, Refused):
                raise Fault(INTERNAL)
            if found.problem in _OVER:
                raise Fault(DETACHED, "the link's subscription has expired: attach again")
            if not found.problem.is_ours:
                raise fault(found)
            await asyncio.sleep(PAUSE_SECONDS)

    @staticmethod
    def _is_cancelled() -> bool:
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0

    def _ask_anew(self) -> None:
        """Give up a wait for items that began with other credit."""
        if self._asking is not None:
            self._asking.cancel()

    def _take(self, found: Received) -> None:
        """Send the received items; return those whose credit has gone meanwhile."""
        for item in sorted(found.items, key=lambda item: item.token):
            if self._output_full:
                break
            if item.token <= self._seen.get(item.partition, 0):
                # An earlier answer had it.
                continue
            self._seen[item.partition] = item.token
            lock_ref = LockRef.of(self._subscription.jid, item)
            if (item.partition, item.item_id) in self._excluded:
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
            # Its lock expires like any other; after its last attempt it becomes a dead letter.
            _log.error("an item cannot be read", node=self._subscription.node, item=item.item_id, error=str(wrong))
            return
        if len(message) > self.link.most_bytes:
            # Part 2 §2.7.3: too long for this consumer; others may take it.
            self._exclude(lock_ref)
            self._end(lock_ref.give_back(untried=True, delay_ms=_ELSEWHERE_MS))
            return
        if self.link.settles:
            # At most once: acknowledge before sending.
            self._outgoing += 1
            self._outgoing_bytes += len(message)
            self._end(lock_ref.acknowledge(), partial(self._on_acknowledged, message))
        else:
            self._holding.add(self.link.send(message), lock_ref, item.deadline_ms)

    def _on_acknowledged(self, message: bytes, refusal: Refused | None) -> None:
        self._outgoing -= 1
        self._outgoing_bytes -= len(message)
        if refusal is None and not self._stopped and self.link.open_for() > 0:
            # Without credit the item is lost, as at-most-once allows.
            self.link.send(message)
        self.wake()
        self._flush()

    def _room(self) -> int:
        """Return how many more messages may be sent."""
        return min(self.link.open_for(), MAX_CREDIT - len(self._holding)) - self._outgoing

    @property
    def _output_full(self) -> bool:
        """Tell whether too much output is waiting for the peer."""
        return self.link.unsent + self._outgoing_bytes > _UNSENT_BYTES

    # Outcomes.

    def _on_outcome(self, number: int, outcome: Outcome, settled: bool) -> None:  # noqa: FBT001  (the link's signature)
        lock_ref = self._holding.pop(number)
        if lock_ref is None:
            self.link.answer(number, _STOLEN)
            return
        if outcome.elsewhere:
            self._exclude(lock_ref)
        self._end(lock_ref.end(outcome), _ignore_refusal if settled else partial(self._answer, number))

    def _exclude(self, lock_ref: LockRef) -> None:
        self._excluded[lock_ref.partition, lock_ref.item_id] = None
        if len(self._excluded) > _ELSEWHERE_MOST:
            self._excluded.popitem(last=False)

    def _answer(self, number: int, refusal: Refused | None) -> None:
        stolen = refusal is not None and refusal.problem in _ENDED
        self.link.answer(number, _STOLEN if stolen else fault(refusal) if refusal else None)
        self._flush()

    def _end(self, command: Retract | Unlock, then: Then | None = None) -> None:
        self._endings.append((command, then or _ignore_refusal))
        self._news.set()

    async def _maintain(self) -> None:
        """End locks, renew the others, and receive anew for less credit."""
        while True:
            await _wait_at_most(self._news, self._holding.due_seconds)
            self._news.clear()
            if self._asking and self._count_wanted() < self._asked_for:
                if not self.link.settles:
                    await _wait_at_most(self._news, _SETTLE_PAUSE_SECONDS)
                    self._news.clear()
                if self._count_wanted() < self._asked_for:
                    # Before locks end, so that no new items arrive for credit that is gone.
                    self._ask_anew()
            self._submit(len(self._endings))
            self._holding.renew()

    def _submit(self, count: int) -> None:
        """End the first `count` of the locks that are to end."""
        endings, self._endings = self._endings[:count], self._endings[count:]
        for command, then in endings:
            self._ending += 1
            self._holding.end(command, partial(self._on_ended, then), certain=self.link.settles)

    def _on_ended(self, then: Then, refusal: Refused | None) -> None:
        """Answer an outcome. A wait may have begun while its item still counted, in another partition."""
        self._ending -= 1
        if self._subscription.several and not self._ending:
            self._ask_anew()
        then(refusal)

    def _count_wanted(self) -> int:
        return len(self._holding) + max(0, self._room())


async def _wait_at_most(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(None if seconds == math.inf else max(0.0, seconds)):
            await event.wait()
    except TimeoutError:
        pass


def _ignore_result(_result: Result) -> None:
    """Ignore the result: a subscription that is not ended expires."""


def _ignore_refusal(_refusal: Refused | None) -> None:
    """Ignore the result: the peer has settled already and waits for none."""
