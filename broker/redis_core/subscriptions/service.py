"""Subscribing, unsubscribing and presence: each changes a partition, then the indexes by JID.

After a crash between the two, bounces and deadlines still end the locks of a subscriber that is gone. Must not know how either
change is made.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol
from weakref import WeakValueDictionary

from broker.model.commands import Presence, Subscribe, Unsubscribe
from broker.model.items.items import Notice, SubscriptionChanged
from broker.model.items.qos import Qos
from broker.model.names import Jid, bare_jid
from broker.model.nodes.pull_subscriptions import is_pull_subscription
from broker.model.nodes.subscriptions import State, Subscription
from broker.model.problems import Problem
from broker.model.results import Done, Refused, Result, Subscribed, Unsubscribed
from broker.redis_core.commands.internal import Ask, Leave, Left
from broker.redis_core.commands.repeated import leave_empty
from broker.redis_core.operations.operation import subid
from broker.redis_core.records.jid_indexes import Entry
from broker.redis_core.records.store import NodeStore, SubscriptionRef
from broker.tasks import start

_AT_ONCE: Final = 1_000
_TOO_MANY: Final = "you are subscribed to as many nodes as you may"


class Groups(Protocol):
    """The interface of group ownership that subscriptions use."""

    async def has_members(self, node: str) -> bool:
        """Return whether the node has members of groups."""

    async def remove_member(self, node: str, jid: Jid) -> bool:
        """Reassign the partitions of a JID that left the node; returns whether it was a group member."""


class Queries(Protocol):
    """What subscriptions ask about others."""

    async def find_occupied(self, entries: Sequence[Entry]) -> set[Entry]:
        """Return the index entries whose JID is subscribed or still holds locks there."""

    async def has_most_leases(self, command: Subscribe) -> bool:
        """Return whether the owner of a new lease has as many on the node as it may."""


class SubscriptionService:
    """Carries out subscribes, unsubscribes and presence."""

    def __init__(
        self, store: NodeStore, queries: Queries, ask: Ask, groups: Groups, notify: Callable[[Notice], None]
    ) -> None:
        """Change subscriptions by `ask`."""
        self._notify = notify
        self._groups = groups
        self._store = store
        self._index = store.subscribed
        self._occupied, self._has_most_leases = queries.find_occupied, queries.has_most_leases
        self._ended: set[Entry] = set()
        self._ask = ask
        # Each call uses its own connection, so without a queue two changes of one JID could change places. A single queue
        # for all JIDs would add up their waits when Redis hangs.
        self._queues: WeakValueDictionary[Jid, asyncio.Lock] = WeakValueDictionary()
        self._expiring: set[Subscription] = set()

    async def subscribe(self, command: Subscribe, outcome: asyncio.Future[Any]) -> Result:
        """Finish a subscription whose change in the partition is under way; most subscribes wait for nothing else."""
        if command.qos is Qos.PULLED:
            return await self._subscribe_pulled(command, outcome)
        entry = SubscriptionRef(command.node, command.jid).entry
        async with self._queue(command.jid):
            (noted,), members = await asyncio.gather(
                self._index.note([entry], self._occupied), self._groups.has_members(command.node)
            )
        result: Result = await outcome
        if isinstance(result, Subscribed) and not result.group and members:
            # A JID that shares the node is no longer a member of a group, and what it owned falls to the members.
            await self._groups.remove_member(command.node, command.jid)
        if isinstance(result, Subscribed) and noted is None:
            await self._ask(Leave(command.node, command.jid, subid=result.subid))
            await self._groups.remove_member(command.node, command.jid)
            return Refused(Problem.TOO_MANY_SUBSCRIPTIONS, _TOO_MANY)
        # A refusal does not change an earlier subscription of this JID; a retryable one leaves the new one undecided. The index
        # entry stays in both cases.
        if isinstance(result, Subscribed) or (noted and noted.existed):
            # The noted entry already counts, so nobody waits for this.
            start(self._settle_entry(entry, command.client if isinstance(result, Subscribed) else None))
        elif noted and isinstance(result, Refused) and not result.problem.retryable:
            await self._index.remove([entry], noted.at_ms)
        return result

    async def _subscribe_pulled(self, command: Subscribe, outcome: asyncio.Future[Any]) -> Result:
        """Finish a pull subscription. Its JID is new: no group has it, and its entry need not be noted again when it is done."""
        entry = SubscriptionRef(command.node, command.jid).entry
        (noted,) = await self._index.note([entry], self._occupied, client=command.client)
        full = bool(noted and command.most and noted.others >= command.most and await self._has_most_leases(command))
        result: Result = await outcome
        if noted and (full or (isinstance(result, Refused) and not result.problem.retryable)):
            await self._index.remove([entry], noted.at_ms)
        if isinstance(result, Subscribed) and (full or noted is None):
            await self._ask(Leave(command.node, command.jid))
            detail = (
                f"you have {command.most} subscriptions to it already, the maximum: end some" if full else _TOO_MANY
            )
            return Refused(Problem.TOO_MANY_SUBSCRIPTIONS, detail)
        return result

    async def unsubscribe(self, command: Unsubscribe, outcome: asyncio.Future[Any]) -> Result:
        """Finish an unsubscribe whose change in the partition is under way."""
        result: Left | Refused = await outcome
        if isinstance(result, Refused):
            return result
        if command.release:
            await self.remove(command.node, command.jid)
            result = replace(result, held=0)
        # No partition knows a group member that owns nothing.
        subscribed = await self._groups.remove_member(command.node, command.jid) or result.ended
        # Locks outlive the subscription (Q34): presence must find a JID that still holds some.
        if result.held == 0 and not result.others:
            await self._remove_entry(command.node, command.jid)
        if not subscribed:
            return Refused(Problem.NOT_SUBSCRIBED, "there is no such subscription")
        return Unsubscribed(command.jid, next(iter(result.ended), subid(command.jid)))

    async def presence(self, command: Presence) -> Result:
        """Record a JID's presence, and end its subscriptions when it goes offline (Q33)."""
        async with self._queue(command.sender):
            refs = await self._store.track_presence(command.sender, here=command.available)
        # All of them, and at once: one whose Redis is away would keep back the others.
        ended = await asyncio.gather(*map(self._remove_offline, refs), return_exceptions=True)
        for fault in ended:
            if isinstance(fault, BaseException):
                raise fault
        return Done()

    async def _remove_offline(self, ref: SubscriptionRef) -> None:
        """End the subscriptions of a JID that went offline.

        A JID that is back at once may have subscribed at another frontend before this is done: so it is told to subscribe again.
        """
        for ended in await self.remove(ref.node, ref.jid):
            self._notify(SubscriptionChanged(Subscription(ref.node, ref.jid, ended, State.NONE), offline=True))

    async def expire(self, expired: Subscription) -> None:
        """End a subscription whose lease expired, and notify its owner (P31); each sweep asks again until that is done."""
        if expired in self._expiring:
            return
        self._expiring.add(expired)
        try:
            for ended in await self.remove(expired.node, expired.jid, expired.subid, lapsed=True):
                self._notify(SubscriptionChanged(replace(expired, subid=ended)))
        finally:
            self._expiring.discard(expired)

    async def remove(
        self, node: str, jid: Jid, whose: str = "", *, lapsed: bool = False, notices: bool = False
    ) -> tuple[str, ...]:
        """End a subscription, or all of a JID, and release all that it holds; returns the subids that ended.

        With `notices`, the subscriber is notified of each lock that ends.
        """
        ended, left = await leave_empty(self._ask, Leave(node, jid, lapsed, subid=whose, notices=notices))
        if isinstance(left, Left) or (isinstance(left, Refused) and left.problem is Problem.NODE_NOT_FOUND):
            if not (isinstance(left, Left) and left.others):
                await self._remove_entry(node, jid)
            # No partition knows a group member that owns nothing.
            was_member = await self._groups.remove_member(node, jid)
            ended = ended or ((subid(jid),) if was_member else ())
        return ended

    def note_ended(self, node: str, jid: Jid) -> None:
        """Note that a subscription ended by itself in some partition; `tidy` checks what is left of it."""
        self._ended.add(SubscriptionRef(node, jid).entry)

    @property
    def has_ended(self) -> bool:
        """Whether `tidy` has something to check."""
        return bool(self._ended)

    async def tidy(self) -> None:
        """Remove the index entries of subscriptions that ended by themselves; those just being made are left to the next call."""
        some = {self._ended.pop() for _ in range(min(_AT_ONCE, len(self._ended)))}
        try:
            some = await self._index.check([*some], self._occupied)
        finally:
            self._ended |= some

    async def _settle_entry(self, entry: Entry, client: str | None) -> None:
        async with self._queue(entry[0]):
            await self._index.note_done([entry], client)

    async def _remove_entry(self, node: str, jid: Jid) -> None:
        # The JID of a pull subscription never comes back, however new its entry is.
        upto_ms = await self._store.now_ms() if is_pull_subscription(jid) else None
        async with self._queue(jid):
            await self._index.remove([SubscriptionRef(node, jid).entry], upto_ms)

    def _queue(self, jid: Jid) -> asyncio.Lock:
        return self._queues.setdefault(bare_jid(jid), asyncio.Lock())
