"""Subscribing, unsubscribing and presence: a step in a partition, and one in the indexes by JID.

Should a crash fall between the two, the safety nets hold: bounces and deadlines end the locks of whoever is gone. Must
not know how either step is carried out.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Protocol
from weakref import WeakValueDictionary

from broker.model.commands import Presence, Subscribe, Unsubscribe
from broker.model.items import Notice, SubscriptionChanged
from broker.model.names import Jid, bare
from broker.model.problems import Problem
from broker.model.results import Done, Refused, Result, Subscribed, Unsubscribed
from broker.model.subscriptions import Subscription
from broker.redis_core.commands.internal import Ask, Leave, Left
from broker.redis_core.commands.repeated import leave_empty
from broker.redis_core.operations.operation import subid
from broker.redis_core.records.jid_indexes import Entry, Truth
from broker.redis_core.records.store import NodeStore, SubscriptionRef
from broker.tasks import start

_AT_ONCE: Final = 1_000


class Groups(Protocol):
    """What is needed of those who share partitions out among the members of groups."""

    async def takes_part(self, node: str, jid: Jid) -> bool:
        """Tell whether somebody is a member of a group of a node."""

    async def left(self, node: str, jid: Jid) -> bool:
        """Let others have what one who has left a node owned there; tells whether it took part in a group."""


class SubscriptionService:
    """Carries out what concerns a worker's coming and going."""

    def __init__(
        self, store: NodeStore, occupied: Truth, ask: Ask, groups: Groups, notify: Callable[[Notice], None]
    ) -> None:
        """Change subscriptions by `ask`; `occupied` tells who is subscribed, or holds something still."""
        self._notify = notify
        self._groups = groups
        self._store = store
        self._index = store.subscribed
        self._occupied = occupied
        self._ended: set[Entry] = set()
        self._ask = ask
        # Each call has a connection of its own: without a queue, coming and going of one JID could change places. One for
        # all JIDs would add up their waits when Redis hangs.
        self._queues: WeakValueDictionary[Jid, asyncio.Lock] = WeakValueDictionary()
        self._lapsing: set[Subscription] = set()

    async def subscribe(self, command: Subscribe, outcome: asyncio.Future[Any]) -> Result:
        """Finish a subscription whose step in the partition is under way; for most it is all that is waited for."""
        entry = SubscriptionRef(command.node, command.jid).entry
        async with self._queue(command.jid):
            (noted,), member = await asyncio.gather(
                self._index.note([entry], self._occupied), self._groups.takes_part(command.node, command.jid)
            )
        result: Result = await outcome
        if isinstance(result, Subscribed) and not result.group and member:
            # Whoever shares the node is no member of a group any more.
            await self._groups.left(command.node, command.jid)
        if isinstance(result, Subscribed) and noted is None:
            await self._ask(Leave(command.node, command.jid, subid=result.subid))
            await self._groups.left(command.node, command.jid)
            return Refused(Problem.TOO_MANY_SUBSCRIPTIONS, "you are subscribed to as many nodes as you may")
        # A refusal says nothing of an earlier subscription of the same JID, and one that may pass nothing of this one.
        if isinstance(result, Subscribed) or (noted and noted.known):
            # What is noted counts already: nobody need wait for this.
            start(self._settled(entry))
        elif noted and isinstance(result, Refused) and not result.problem.retryable:
            await self._index.strike([entry], noted.at_ms)
        return result

    async def unsubscribe(self, command: Unsubscribe, outcome: asyncio.Future[Any]) -> Result:
        """Finish a departure whose step in the partition is under way."""
        result: Left | Refused = await outcome
        if isinstance(result, Refused):
            return result
        if command.release:
            await self.remove(command.node, command.jid)
            result = replace(result, held=0)
        # A member that owns nothing just now is known to no partition.
        subscribed = await self._groups.left(command.node, command.jid) or result.ended
        # Locks outlive the subscription (Q34): presence must find whoever still holds some.
        if result.held == 0 and not result.others:
            await self._left(command.node, command.jid)
        if not subscribed:
            return Refused(Problem.NOT_SUBSCRIBED, "there is no such subscription")
        return Unsubscribed(command.jid, next(iter(result.ended), subid(command.jid)))

    async def presence(self, command: Presence) -> Result:
        """Note who came or went, and end what went with it (Q33)."""
        async with self._queue(command.sender):
            refs = await self._store.attend(command.sender, here=command.available)
        for ref in refs:
            await self.remove(ref.node, ref.jid)
        return Done()

    async def lapse(self, over: Subscription) -> None:
        """End a subscription whose lease is over, and tell whose it was (P31); every visit asks for it until that is done."""
        if over in self._lapsing:
            return
        self._lapsing.add(over)
        try:
            for ended in await self.remove(over.node, over.jid, over.subid, lapsed=True):
                self._notify(SubscriptionChanged(replace(over, subid=ended)))
        finally:
            self._lapsing.discard(over)

    async def remove(
        self, node: str, jid: Jid, whose: str = "", *, lapsed: bool = False, told: bool = False
    ) -> tuple[str, ...]:
        """End a subscription, or all that a JID has, without its owner's doing, with all it holds; gives those that ended.

        Its owner is `told` of each lock that ends.
        """
        ended, left = await leave_empty(self._ask, Leave(node, jid, lapsed, subid=whose, told=told))
        if isinstance(left, Left) or (isinstance(left, Refused) and left.problem is Problem.NODE_NOT_FOUND):
            if not (isinstance(left, Left) and left.others):
                await self._left(node, jid)
            # A member that owns nothing just now is known to no partition.
            was = await self._groups.left(node, jid)
            ended = ended or ((subid(jid),) if was else ())
        return ended

    def ended(self, node: str, jid: Jid) -> None:
        """Hear that a subscription has ended by itself in some partition; `tidy` looks what is left of it."""
        self._ended.add(SubscriptionRef(node, jid).entry)

    @property
    def untidy(self) -> bool:
        """There is something for `tidy` to look at."""
        return bool(self._ended)

    async def tidy(self) -> None:
        """Strike off what has ended by itself since the last time."""
        ended, self._ended = list(self._ended), set()
        for first in range(0, len(ended), _AT_ONCE):
            await self._index.check(ended[first : first + _AT_ONCE], self._occupied)

    async def _settled(self, entry: Entry) -> None:
        async with self._queue(entry[0]):
            await self._index.settle([entry])

    async def _left(self, node: str, jid: Jid) -> None:
        async with self._queue(jid):
            await self._index.strike([SubscriptionRef(node, jid).entry])

    def _queue(self, jid: Jid) -> asyncio.Lock:
        return self._queues.setdefault(bare(jid), asyncio.Lock())
