"""A subscription in a node of several partitions: known in each of them, its credit counted by the bank.

Each step is one script and may be the last: what a crash leaves is less credit than is due, until the next count. Must not
know how credit moves to where it is wanted.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakValueDictionary

from broker.model.commands import Adjust, Subscribe, Unsubscribe
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import Done, Refused, Subscribed
from broker.redis_core import streams
from broker.redis_core.calls.call import kin, subid
from broker.redis_core.credit import Deposit, Recount, Sat, Settle, Settled, Sit, Withdraw, Withdrawn
from broker.redis_core.internal import Begun, Leave, Left, Outcome
from broker.redis_core.places import BANK

Ask = Callable[[int, Any], asyncio.Future[Any]]
"""Gives a command to one partition."""


class Seats:
    """Carries out what concerns one subscription in all partitions, one thing at a time for each."""

    def __init__(self, ask: Ask, others: Callable[[int], Awaitable[Sequence[int]]]) -> None:
        """Ask partitions by `ask`; `others` gives those besides the bank, of so many or more if the node has grown since."""
        self._ask = ask
        self._others = others
        # Two counts of one subscription would disturb each other, and an unsubscribe in between would leave a seat behind.
        self._queues: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()
        self._recounting: set[str] = set()

    async def take(self, command: Subscribe | Adjust | Recount, partitions: int) -> Outcome:
        """Make or change a subscription, or count its credit anew: one count that waits does for all who ask for one."""
        whose = command.subid if isinstance(command, Recount) else subid(command.jid)
        if isinstance(command, Recount):
            if whose in self._recounting:
                return Done()
            self._recounting.add(whose)
        async with self._queue(whose):
            self._recounting.discard(whose)
            begun: Begun | Outcome = await self._ask(BANK, command)
            if isinstance(begun, Subscribed) and begun.reads:
                # Each partition that is read has all of a reader's credit.
                others = await self._others(partitions)
                outcomes = await self._all(others, [command] * len(others))
                return next((outcome for outcome in outcomes if isinstance(outcome, Refused)), begun)
            if not isinstance(begun, Begun):
                return begun
            # Asked now that the count has begun: whatever comes later is of a later one.
            return await self._count(command.node, begun, await self._others(partitions))

    async def follow(self, command: Subscribe, partitions: int) -> Outcome:
        """Begin a stream where it reads, and only when that is done let the other partitions know of it."""
        try:
            chosen = streams.chosen(command, partitions)
        except MalformedRequest as wrong:
            return Refused(wrong.problem, wrong.detail)
        others = [number for number in range(partitions) if number not in chosen]
        async with self._queue(subid(command.jid)):
            # The last one first and alone: what there is to refuse is refused there, and nothing is changed (E7).
            *others_read, last = chosen
            begun = [await self._ask(last, streams.follow(command, last, reading=True))]
            if isinstance(begun[0], Subscribed):
                asked = [streams.follow(command, number, reading=True) for number in others_read]
                begun = [*await self._all(others_read, asked), *begun]
            outcome = streams.followed(begun)
            if isinstance(outcome, Subscribed):
                told = await self._all(others, [streams.follow(command, number, reading=False) for number in others])
                # The bank knows until when, whether it is read or not.
                ends = [each.until_ms for each in told if isinstance(each, Subscribed)]
                outcome = replace(outcome, until_ms=max(outcome.until_ms, *ends, 0))
            return outcome

    async def leave(self, command: Unsubscribe | Leave, partitions: int) -> list[Outcome]:
        """End a subscription in every partition; gives their outcomes in their order."""
        if isinstance(command, Leave) and command.lapsed:
            return await self._lapse(command, partitions)
        async with self._queue(subid(command.jid)):
            # The bank judges, and what it refuses is not begun.
            outcomes: list[Outcome] = [await self._ask(BANK, command)]
            asked: set[int] = set()
            begun = outcomes[0]
            if isinstance(command, Unsubscribe) and isinstance(begun, Left):
                # Which one it is, the bank has told.
                whose = next(iter(begun.ended), subid(command.jid))
                command = Leave(command.node, command.jid, release=False, subid=whose)
            while not isinstance(begun, Refused) and (
                more := [number for number in await self._others(partitions) if number not in asked]
            ):
                outcomes += await self._all(more, [command] * len(more))
                asked.update(more)
        return outcomes

    async def _lapse(self, command: Leave, partitions: int) -> list[Outcome]:
        """End a subscription whose lease is over in the bank last of all, which knows of it until then."""
        async with self._queue(subid(command.jid)):
            others = await self._others(partitions)
            outcomes = await self._all(others, [replace(command, lapsed=False)] * len(others))
            if any(isinstance(outcome, Refused) for outcome in outcomes):
                return outcomes
            ended = await self._ask(BANK, command)
        if isinstance(ended, Refused) and ended.problem is Problem.SUPERSEDED:
            # It was renewed while it was taken out of the others: they are to know it again.
            await self.take(Recount(command.node, command.subid or subid(command.jid)), partitions)
        return [ended, *outcomes]

    async def _count(self, node: str, begun: Begun, others: Sequence[int]) -> Outcome:
        seat = begun.subscribed
        several = seat.subid != subid(seat.jid)
        sit = Sit(node, seat.subid, seat.jid, seat.qos, begun.born, several, scope=seat.scope, selector=seat.selector)
        sits = await self._all(others, [sit] * len(others))
        for outcome in sits:
            if isinstance(outcome, Refused):
                # Another count has begun since, or Redis is away: then a later one ends what this one has left.
                return seat if outcome.problem is Problem.SUPERSEDED else outcome
        parts = {number: sat for number, sat in zip(others, sits, strict=True) if isinstance(sat, Sat) and sat.credit}
        lent = sum(part.credit for part in parts.values())
        settled = await self._ask(BANK, Settle(node, seat.subid, begun.born, lent))
        if isinstance(settled, Settled):
            if settled.excess:
                await self._recall(node, seat.subid, settled.excess, parts)
            else:
                owing = [number for number, part in parts.items() if part.owes]
                await self._all(owing, [replace(sit, forgive=True)] * len(owing))
            return seat
        if isinstance(settled, Refused) and settled.problem is Problem.NOT_SUBSCRIBED:
            # It ended while it was counted: no partition may go on knowing it, but as the owner that it has become since.
            await self._all(others, [Leave(node, seat.jid, subid=seat.subid, born=begun.born)] * len(others))
        return seat if isinstance(settled, Refused) and settled.problem is Problem.SUPERSEDED else settled

    async def _recall(self, node: str, whose: str, excess: int, parts: Mapping[int, Sat]) -> None:
        """Take back what the subscriber may not hold any more, wherever it lies: no answer before that is done.

        What is free goes first. If that does not do, it holds too much: nothing is to take the place of any of its locks until
        a count finds that it does not.
        """
        lying = list(parts)
        while excess > 0 and lying:
            # As many at once as have it by the count; where there is less meanwhile, it is made up for by those that follow.
            asked: dict[int, Withdraw] = {}
            due = excess
            while due > 0 and lying:
                number = lying.pop(0)
                amount = min(parts[number].credit, due)
                asked[number] = Withdraw(node, whose, amount)
                due -= amount
            excess -= await self._taken_back(node, asked)
        if excess > 0:
            await self._taken_back(node, {number: Withdraw(node, whose, excess, recall=True) for number in parts})

    async def _taken_back(self, node: str, asked: Mapping[int, Withdraw]) -> int:
        outcomes = await self._all(list(asked), list(asked.values()))
        gifts = [gift for outcome in outcomes if isinstance(outcome, Withdrawn) for gift in outcome.gifts]
        await self._all([BANK] * len(gifts), [Deposit(node, gift.subid, gift.born, gift.amount) for gift in gifts])
        return sum(gift.amount for gift in gifts)

    def _queue(self, whose: str) -> asyncio.Lock:
        return self._queues.setdefault(kin(whose), asyncio.Lock())

    async def _all(self, numbers: Sequence[int], commands: Sequence[Any]) -> list[Outcome]:
        return list(await asyncio.gather(*map(self._ask, numbers, commands)))
