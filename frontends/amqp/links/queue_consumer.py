"""A consumer's link to a queue: it receives locked items, and its outcomes end the locks.

Each link has a pull subscription of its own, as over HTTP. The subscription's credit follows the link's, and the link
returns all items it holds when it ends. Must not know how a link is attached.
"""

import asyncio
import math
import time
from collections import OrderedDict
from functools import partial
from typing import Final

import structlog

from broker.model.commands import NO_TOKEN, Fetch, Retract, SetSubscriptionOptions, Stats, Unlock, Unsubscribe
from broker.model.frozen import frozen
from broker.model.names import Jid, Partition
from broker.model.options import MAX_CREDIT
from broker.model.problems import CorruptRecord, Problem
from broker.model.results import Counted, Fetched, HeldItem, Refused, Result
from broker.tasks import serve
from frontends.amqp.errors import DETACHED, INTERNAL, STOLEN, Fault, fault
from frontends.amqp.links.context import LinkContext
from frontends.amqp.links.lock_keeper import LEASE_MS, PAUSE_SECONDS, LockKeeper, Then
from frontends.amqp.messages import deliveries
from frontends.amqp.messages.lock_ref import LockRef
from frontends.amqp.protocol.links import Outgoing
from frontends.amqp.protocol.outcomes import Outcome

_WAIT_SECONDS: Final = 60.0
_BEAT_SECONDS: Final = 3.0
"""The time between two fetches of a link without credit, which keep its subscription alive."""

_LOOK_SECONDS: Final = 0.15
_LOOKS: Final = (1, 5)
"""How long, and how often, a drain looks for items that may go out: of one partition, and of several, between which credit moves.

A number of looks, because a slow service takes longer for each, and for the moves too.
"""

_SETTLE_PAUSE_SECONDS: Final = 0.005
"""Consumers that settle usually add credit in the next frame: wait this long before lowering their credit."""

_UNSENT_BYTES: Final = 1_048_576
_ELSEWHERE_MS: Final = 2_000
"""How long an item that this consumer cannot take waits for other consumers."""

_ELSEWHERE_MOST: Final = 1_000

_OVER: Final = frozenset({Problem.NOT_SUBSCRIBED, Problem.LEASE_OVER})

_log = structlog.get_logger("stanzaq.amqp")


@frozen
class LinkSubscription:
    """The pull subscription of a link: its node (`several`: with several partitions), its owner, and the JID generated for it."""

    node: str
    several: bool
    owner: Jid
    jid: Jid
    subid: str


class QueueConsumer:
    """One consumer's link."""

    def __init__(self, link: Outgoing, context: LinkContext, subscription: LinkSubscription) -> None:
        """Start without credit; nothing runs before `start`."""
        self.link = link
        self._subscription = subscription
        self._core = context.core
        self._flush = context.connection.flush
        self._credit = 0
        self._outgoing = 0
        self._outgoing_bytes = 0
        self._endings: list[tuple[Retract | Unlock, Then]] = []
        self._excluded: OrderedDict[tuple[Partition, str], None] = OrderedDict()
        self._seen: dict[Partition, int] = {}
        self._looked_at = 0.0
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
        """Fetch items while there is credit, and keep the subscription alive."""
        while True:
            self._changed.clear()
            self._was_blocked = self._was_blocked or self._output_full
            rests = self._looked_at + _BEAT_SECONDS - time.monotonic()
            if self._room() > 0 and not self._was_blocked:
                self._take(await self._fetch(_WAIT_SECONDS))
            elif rests > 0:
                await _wait_at_most(self._changed, rests)
            else:
                self._take(await self._fetch(0))

    async def _fetch(self, wait: float) -> Fetched:
        subscription = self._subscription
        while True:
            # A peer that does not read gets no new items.
            after = dict.fromkeys(self._seen, NO_TOKEN) if self._output_full else dict(self._seen)
            found = await self._core.ask(
                Fetch(subscription.node, subscription.owner, subscription.jid, LEASE_MS, wait, after)
            )
            if isinstance(found, Fetched):
                self._looked_at = time.monotonic()
                self._holding.set_redis_time(found.until_ms - LEASE_MS)
                return found
            if not isinstance(found, Refused):
                raise Fault(INTERNAL)
            if found.problem in _OVER:
                raise Fault(DETACHED, "the link's subscription has expired: attach again")
            if not found.problem.is_ours:
                raise fault(found)
            await asyncio.sleep(PAUSE_SECONDS)

    def _take(self, found: Fetched) -> None:
        """Send the fetched items; return those without credit."""
        for item in sorted(found.items, key=lambda item: item.token):
            if self._output_full:
                break
            if item.token <= self._seen.get(item.partition, 0):
                # Another fetch has returned it already.
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
            self.link.answer(number, Fault(STOLEN, "the lock has expired: another consumer may have the item"))
            return
        if outcome.elsewhere:
            self._exclude(lock_ref)
        self._end(lock_ref.end(outcome), _ignore_refusal if settled else partial(self._answer, number))

    def _exclude(self, lock_ref: LockRef) -> None:
        self._excluded[lock_ref.partition, lock_ref.item_id] = None
        if len(self._excluded) > _ELSEWHERE_MOST:
            self._excluded.popitem(last=False)

    def _answer(self, number: int, refusal: Refused | None) -> None:
        self.link.answer(number, fault(refusal) if refusal else None)
        self._flush()

    def _end(self, command: Retract | Unlock, then: Then | None = None) -> None:
        self._endings.append((command, then or _ignore_refusal))
        self._news.set()

    async def _maintain(self) -> None:
        """Adjust the credit, end locks, renew the others, and drain."""
        while True:
            await _wait_at_most(self._news, self._holding.due_seconds)
            self._news.clear()
            if self._endings and self._count_wanted() < self._credit and not self.link.settles:
                await _wait_at_most(self._news, _SETTLE_PAUSE_SECONDS)
                self._news.clear()
            # Lower the credit before ending locks, so that no new items arrive for credit that is gone.
            counted = len(self._endings)
            await self._adjust_credit()
            self._submit(counted)
            self._holding.renew()
            if self.link.draining and self.link.open_for() > 0:
                await self._drain()

    def _submit(self, count: int) -> None:
        """End the first `count` of the locks that are to end."""
        endings, self._endings = self._endings[:count], self._endings[count:]
        for command, then in endings:
            self._holding.end(command, then, certain=self.link.settles)

    def _count_wanted(self) -> int:
        return len(self._holding) + max(0, self._room())

    async def _adjust_credit(self) -> None:
        """Set the subscription's credit to the link's credit plus the held items."""
        wanted = self._count_wanted()
        if wanted == self._credit:
            return
        subscription = self._subscription
        found = await self._core.ask(
            SetSubscriptionOptions(subscription.node, subscription.owner, subscription.jid, subscription.subid, wanted)
        )
        if not isinstance(found, Refused):
            self._credit = wanted
        elif found.problem in _OVER:
            raise Fault(DETACHED, "the link's subscription has expired: attach again")
        elif found.problem.is_ours:
            await asyncio.sleep(PAUSE_SECONDS)
            self._news.set()
        else:
            raise fault(found)

    async def _drain(self) -> None:
        """Send the available items, then return the remaining credit; items that the peer has to make room for are available."""
        if self._output_full:
            self._was_blocked = True
            return
        more = self._room() > 0 and await self._send_available()
        # Credit that came meanwhile was not looked for.
        if not (more or self._outgoing or self._count_wanted() > self._credit):
            self.link.drained()
            self._flush()
        self._news.set()

    async def _send_available(self) -> bool:
        """Send what this consumer can get; returns whether it was anything. Other items may go out to other consumers alone."""
        subscription = self._subscription
        counted = await self._core.ask(Stats(subscription.node, subscription.owner))
        nothing = isinstance(counted, Counted) and not counted.eligible
        for _look in range(1 if nothing else _LOOKS[subscription.several]):
            if self._output_full:
                # Nothing is fetched until the peer has made room.
                return True
            found = await self._fetch(0 if nothing else _LOOK_SECONDS)
            self._take(found)
            if found.items or self._room() <= 0:
                return True
        return False


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
