"""A subscription to a node of several partitions: every partition knows it, the coordinator keeps its credit.

Each step is one script. After a crash between two steps some credit cannot be used until the subscription is registered again.
Must not know how credit reaches the partitions that want it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakValueDictionary

from broker.model.commands import SetSubscriptionOptions, Subscribe, Unsubscribe
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import Done, Refused, Subscribed
from broker.redis_core.commands.credit import (
    SHUT,
    GrantCredit,
    Holding,
    Registered,
    RegisterReader,
    RegisterSubscription,
    ReregisterSubscription,
)
from broker.redis_core.commands.internal import Begun, Leave, Left, Outcome
from broker.redis_core.operations.operation import subid, subid_family
from broker.redis_core.ports import AskPartition
from broker.redis_core.registry.partitioner import COORDINATOR
from broker.redis_core.subscriptions import log_readers

_ENDED = Refused(Problem.NOT_SUBSCRIBED, "the subscription was ended before it was complete: subscribe again")


class PartitionedSubscriptions:
    """Changes a subscription in all partitions, one change at a time for each subscription."""

    def __init__(
        self,
        ask: AskPartition,
        others: Callable[[int], Awaitable[Sequence[int]]],
        check: Callable[[int, Sequence[str]], Awaitable[None]],
    ) -> None:
        """Send commands by `ask`; `others(n)` returns the partitions besides the coordinator, of n or more.

        `check(n, subids)` corrects what the coordinator believes that subscribers hold in a partition.
        """
        self._ask = ask
        self._others = others
        self._check = check
        # Two registrations of one subscription would disturb each other; an unsubscribe between them would leave one behind.
        self._queues: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()
        self._waiting: set[str] = set()

    async def subscribe(
        self, command: Subscribe | SetSubscriptionOptions | ReregisterSubscription, partitions: int
    ) -> Outcome:
        """Make, change or register a subscription; a waiting registration serves all callers that ask for one."""
        whose = command.subid if isinstance(command, ReregisterSubscription) else subid(command.jid)
        if isinstance(command, ReregisterSubscription):
            if whose in self._waiting:
                return Done()
            self._waiting.add(whose)
        async with self._queue(whose):
            self._waiting.discard(whose)
            begun: Begun | Outcome = await self._ask(COORDINATOR, command)
            if isinstance(begun, Subscribed) and begun.reads:
                # Each partition that is read has the full credit of a log reader.
                others = await self._others(partitions)
                if isinstance(command, ReregisterSubscription):
                    return await self._reader_registered(command, begun, others)
                outcomes = await self._ask_all(others, [command] * len(others))
                return next((outcome for outcome in outcomes if isinstance(outcome, Refused)), begun)
            if not isinstance(begun, Begun):
                return begun
            # Read the partitions now: one that is added later registers subscriptions itself.
            return await self._register(command.node, begun, await self._others(partitions))

    async def subscribe_log(self, command: Subscribe, partitions: int) -> Outcome:
        """Start a log reader in the partitions that it reads, then let the other partitions know it."""
        try:
            chosen = log_readers.partitions_to_read(command, partitions)
        except MalformedRequest as wrong:
            return Refused(wrong.problem, wrong.detail)
        others = [number for number in range(partitions) if number not in chosen]
        async with self._queue(subid(command.jid)):
            # The last partition comes first and alone: if it refuses, nothing has changed (E7).
            *others_read, last = chosen
            begun = [await self._ask(last, log_readers.subscribe_command(command, last, reading=True))]
            if isinstance(begun[0], Subscribed):
                asked = [log_readers.subscribe_command(command, number, reading=True) for number in others_read]
                begun = [*await self._ask_all(others_read, asked), *begun]
            outcome = log_readers.merge_subscribed(begun)
            if isinstance(outcome, Subscribed):
                told = await self._ask_all(
                    others, [log_readers.subscribe_command(command, number, reading=False) for number in others]
                )
                # The coordinator knows the expiry, whether it is read or not.
                ends = [each.until_ms for each in told if isinstance(each, Subscribed)]
                outcome = replace(outcome, until_ms=max(outcome.until_ms, *ends, 0))
            return outcome

    async def leave(self, command: Unsubscribe | Leave, partitions: int) -> list[Outcome]:
        """End a subscription in every partition; returns the outcomes in order."""
        if isinstance(command, Leave) and command.lapsed:
            return await self._expire(command, partitions)
        async with self._queue(subid(command.jid)):
            # The coordinator decides; nothing else changes if it refuses.
            outcomes: list[Outcome] = [await self._ask(COORDINATOR, command)]
            asked: set[int] = set()
            begun = outcomes[0]
            if isinstance(command, Unsubscribe) and isinstance(begun, Left):
                # The coordinator has told the subid.
                whose = next(iter(begun.ended), subid(command.jid))
                command = Leave(command.node, command.jid, release=False, subid=whose)
            while not isinstance(begun, Refused) and (
                more := [number for number in await self._others(partitions) if number not in asked]
            ):
                outcomes += await self._ask_all(more, [command] * len(more))
                asked.update(more)
        return outcomes

    async def _expire(self, command: Leave, partitions: int) -> list[Outcome]:
        """End a subscription whose lease expired, in the coordinator last: until then it remembers the expiry."""
        async with self._queue(subid(command.jid)):
            others = await self._others(partitions)
            outcomes = await self._ask_all(others, [replace(command, lapsed=False)] * len(others))
            if any(isinstance(outcome, Refused) for outcome in outcomes):
                return outcomes
            ended = await self._ask(COORDINATOR, command)
        if isinstance(ended, Refused) and ended.problem is Problem.SUPERSEDED:
            # The lease was renewed while the other partitions removed it: register it there again.
            await self.subscribe(ReregisterSubscription(command.node, command.subid or subid(command.jid)), partitions)
        # Several frontends may expire it at once: the one that ends it in the coordinator reports it.
        return [ended, *(replace(each, ended=()) if isinstance(each, Left) else each for each in outcomes)]

    async def _reader_registered(
        self, command: ReregisterSubscription, begun: Subscribed, others: Sequence[int]
    ) -> Outcome:
        """Let partitions know a log reader that they do not know yet."""
        outcomes = await self._ask_all(others, [RegisterReader(command.node, begun.jid, begun.credit)] * len(others))
        told = await self._ask(COORDINATOR, command)
        if isinstance(told, Refused) and told.problem is Problem.NOT_SUBSCRIBED:
            # The subscription ended meanwhile.
            await self._ask_all(others, [Leave(command.node, begun.jid, subid=begun.subid)] * len(others))
        return next((outcome for outcome in outcomes if isinstance(outcome, Refused)), begun)

    async def _register(self, node: str, begun: Begun, others: Sequence[int]) -> Outcome:
        """Register a subscription in the other partitions and report holdings to the coordinator: then its credit counts."""
        subscribed = begun.subscribed
        several = subscribed.subid != subid(subscribed.jid)
        register = RegisterSubscription(
            node,
            subscribed.subid,
            subscribed.jid,
            subscribed.sending,
            begun.registration,
            several,
            subscribed.scope,
            subscribed.selector,
        )
        outcomes = await self._ask_all(others, [register] * len(others))
        holdings, gone = [], []
        for number, outcome in zip(others, outcomes, strict=True):
            match outcome:
                case Registered():
                    last = int(begun.registration)
                    holdings.append(
                        Holding(
                            number,
                            subscribed.subid,
                            outcome.version,
                            outcome.held,
                            last,
                            SHUT if outcome.shut else 0,
                            full=True,
                        )
                    )
                case Refused(problem=Problem.SUPERSEDED):
                    # A later registration is under way.
                    return subscribed
                case Refused(problem=Problem.NODE_NOT_FOUND | Problem.PARTITION_NOT_FOUND):
                    gone.append((number, subscribed.subid))
                case _:
                    return outcome
        ended = (subscribed.subid, begun.registration)
        told = await self._ask(COORDINATOR, GrantCredit(node, tuple(holdings), None, ended, tuple(gone)))
        if isinstance(told, Refused) and told.problem is Problem.NOT_SUBSCRIBED:
            # The subscription ended meanwhile: remove it everywhere, unless the JID has become an owner since.
            leave = Leave(node, subscribed.jid, subid=subscribed.subid, born=begun.registration)
            await self._ask_all(others, [leave] * len(others))
            return _ENDED
        if isinstance(told, Refused):
            return told
        # A lock may have ended after it was counted.
        await asyncio.gather(*(self._check(each.number, (each.subid,)) for each in holdings if each.held))
        return subscribed

    def _queue(self, whose: str) -> asyncio.Lock:
        return self._queues.setdefault(subid_family(whose), asyncio.Lock())

    async def _ask_all(self, numbers: Sequence[int], commands: Sequence[Any]) -> list[Outcome]:
        return list(await asyncio.gather(*map(self._ask, numbers, commands)))
