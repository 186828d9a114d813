"""How credit moves between the partitions of one node to where items wait for it. Must not know where it comes from.

A script that finds items and no credit says so; the frontend that ran it looks for free credit in the other partitions, and
notes in Redis that the partition is in need, so that whoever frees credit elsewhere gives some. Nothing here is needed for
safety: what gets lost on the way is missed until the next count.
"""

import asyncio
import math
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any

from broker.model.names import Jid
from broker.model.problems import Problem
from broker.model.results import Refused
from broker.redis_core.calls.workers import gift
from broker.redis_core.credit import Deposit, Gift, Recount, Withdraw, Withdrawn
from broker.redis_core.internal import Leave, Outcome
from broker.redis_core.places import BANK
from broker.redis_core.seats import Ask

TOLD = 4
"""So many partitions in need are named to a script."""

ANYONE = "*"
"""Among those whose credit is wanted: all who take whatever comes."""

DOUBTED = 64
"""Of so many partitions that had no credit to spare it is found out with each breath whether they have some now."""

FIRST_WAVE = 4
"""So many partitions are asked for credit at once at first, and twice as many each time after."""


@dataclass(frozen=True, slots=True, order=True)
class Need:
    """A partition wants credit: how much is locked there, and since when that is so, in seconds of a steady clock.

    They sort as they are to be served: who has least first, and of those who has waited longest. Where subscriptions select,
    `whom` names those whose credit is of use (see `Withdraw`).
    """

    locked: int
    since: float
    wanted: int = field(default=1, compare=False)
    whom: tuple[str, ...] = field(default=(), compare=False)


_SATISFIED = Need(sys.maxsize, math.inf)

Board = Callable[[list[dict[str, Any]]], Awaitable[list[list[int]]]]
"""Tells Redis which partitions want credit; gives number, locked and ms of waiting of all that do."""


class Lending:
    """What a frontend knows of the credit in one node's partitions, and what it does about it."""

    def __init__(
        self,
        node: str,
        ask: Ask,
        submit: Callable[[Any], None],
        board: Board,
        background: Callable[[Callable[[], Coroutine[Any, Any, Any]]], None],
    ) -> None:
        """Ask partitions by `ask`, the whole node by `submit`."""
        self._node = node
        self._ask = ask
        self._submit = submit
        self._board = board
        self._background = background
        self._turns = count()
        self._spare: dict[int, int] = {}
        self._wanting: dict[int, Need] = {}
        self._others: dict[int, Need] = {}
        self._barren: set[int] = set()
        self._doubts = count()
        self._searching = False
        self._stirred = False
        self._partitions = 1

    def wants(self, number: int, tag: str) -> str:
        """Name those in need to a script of the partition `number`, with what is locked there and the `tag` of whose they are."""
        if not (self._wanting or self._others):
            return ""
        needs = {**self._others, **self._wanting}
        needs.pop(number, None)
        # A script that gives something away does not look who it is from.
        needs = {to: need for to, need in needs.items() if not need.whom}
        return " ".join(f"{to} {needs[to].locked} {tag}" for to in sorted(needs, key=needs.__getitem__)[:TOLD])

    def freest(self, partitions: int) -> int:
        """Choose a partition where credit is free as far as is known, else the next in turn."""
        turn = next(self._turns)
        best = max(range(turn, turn + partitions), key=lambda number: self._spare.get(number % partitions, 0))
        chosen = best % partitions
        if self._spare.get(chosen):
            self._spare[chosen] -= 1
        return chosen

    def learned(self, number: int, partitions: int, report: list[Any]) -> None:
        """Hear what a script of the partition `number` says of credit."""
        wanted, spare, locked, gifts, ended, owing, whom = report
        self._stirred = True
        self._partitions = partitions
        self._spare[number] = spare
        if spare:
            self._barren.discard(number)
        else:
            self._barren.add(number)
        for row in gifts:
            self._give(int(row[0]), gift(row))
        for jid in ended:
            self._submit(Leave(self._node, Jid(jid.decode())))
        for subid in owing:
            # What it holds beyond its credit here may be within all of its credit now.
            self._submit(Recount(self._node, subid.decode()))
        self._others.pop(number, None)
        known = self._wanting.pop(number, None)
        if wanted:
            since = known.since if known and known.locked == locked else time.monotonic()
            self._wanting[number] = Need(locked, since, wanted, tuple(name.decode() for name in whom))
        told = bool(wanted) and not whom
        if told != (known is not None and not known.whom):
            self._background(partial(self._tell, {number: locked if told else ""}))
        if (wanted and not known) or (spare and self._wanting):
            self._search()

    def breathe(self) -> None:
        """Look around, in the rhythm of the pulse: who is in need, and whether there is anything for them."""
        if self._stirred or self._wanting:
            self._stirred = False
            told = {number: need.locked for number, need in self._wanting.items() if not need.whom}
            self._background(partial(self._tell, told))
        if self._wanting:
            # What others have freed is not heard of here. All partitions at once would be too many to ask with each breath.
            self._barren.difference_update(next(self._doubts) % self._partitions for _ in range(DOUBTED))
            self._search()

    async def spread(self, subid: str, credit: int, partitions: int) -> None:
        """Give each partition its even part of a subscriber's credit, which lies in the bank: items may come anywhere."""
        part = credit // partitions
        if part:
            outcome = await self._ask(BANK, Withdraw(self._node, subid, part * (partitions - 1)))
            for given in outcome.gifts if isinstance(outcome, Withdrawn) else ():
                left = given.amount
                for number in range(BANK + 1, partitions):
                    amount = min(part, left)
                    left -= amount
                    if amount:
                        self._give(number, replace(given, amount=amount))

    @property
    def idle(self) -> bool:
        """Nothing is under way."""
        return not self._searching

    async def _tell(self, locked: Mapping[int, int | str]) -> None:
        found = await self._board([{"partition": number, "locked": locked[number]} for number in locked])
        now = time.monotonic()
        self._others = {
            number: Need(many, now - waited / 1000) for number, many, waited in found if number not in self._wanting
        }

    def _give(self, to: int, given: Gift) -> None:
        for needs in (self._wanting, self._others):
            if to in needs:
                # Until it speaks for itself: others come before it now.
                needs[to] = replace(needs[to], locked=needs[to].locked + given.amount, since=time.monotonic())
        deposit = self._ask(to, Deposit(self._node, given.subid, given.born, given.amount))
        deposit.add_done_callback(partial(self._given, given.subid))

    def _given(self, subid: str, deposit: asyncio.Future[Outcome]) -> None:
        # What is lost a new count gives back. One that has begun since does so by itself, and another would supersede others.
        outcome = None if deposit.cancelled() else deposit.result()
        if isinstance(outcome, Refused) and outcome.problem is not Problem.SUPERSEDED:
            self._submit(Recount(self._node, subid))

    def _search(self) -> None:
        if not self._searching:
            self._searching = True
            self._background(self._searched)

    async def _searched(self) -> None:
        """Ask once for all that anybody's credit helps, and once for those that certain subscribers' does."""
        try:
            for choosy in (False, True):
                await self._collected(choosy=choosy)
        finally:
            self._searching = False

    async def _collected(self, *, choosy: bool) -> None:
        """Ask for free credit: those first that seem to have some, in ever larger waves."""
        others = [number for number in range(self._partitions) if number not in self._barren]
        others.sort(key=lambda number: -self._spare.get(number, 1))
        wanted: dict[int, int] = {}
        wave = FIRST_WAVE
        while others:
            needs = {number: need for number, need in self._wanting.items() if bool(need.whom) is choosy}
            wanted = {number: need.wanted for number, need in needs.items()} | wanted
            most = sum(wanted.values())
            if not most:
                break
            whom = {number: needs[number].whom if number in needs else () for number in wanted}
            names = tuple(sorted({name for number in wanted if wanted[number] for name in whom[number]}))
            asked = others[:wave]
            outcomes = await asyncio.gather(
                *(self._ask(number, Withdraw(self._node, "", most, whom=names)) for number in asked)
            )
            for number, outcome in zip(asked, outcomes, strict=True):
                gifts = outcome.gifts if isinstance(outcome, Withdrawn) else ()
                if gifts and not choosy:
                    # Whatever was thought of it.
                    wanted[number] = 0
                self._share(number, gifts, wanted, whom)
            del others[:wave]
            wave *= 2

    def _share(
        self, giver: int, gifts: Sequence[Gift], wanted: dict[int, int], whom: Mapping[int, Sequence[str]]
    ) -> None:
        """Give what a partition could spare to those in need evenly, and the rest back."""
        if not gifts:
            self._barren.add(giver)
        named = {name for names in whom.values() for name in names}

        def helps(to: int, given: Gift) -> bool:
            # Who is named nowhere takes whatever comes.
            who = given.subid if given.subid in named or not named else ANYONE
            return not named or who in whom.get(to, ())

        for given in gifts:
            left = given.amount
            needy = sorted((to for to, amount in wanted.items() if amount and helps(to, given)), key=self._need)
            for place, to in enumerate(needy):
                amount = min(wanted[to], -(-left // (len(needy) - place)))
                wanted[to] -= amount
                left -= amount
                if amount:
                    self._give(to, replace(given, amount=amount))
            if left:
                self._give(giver, replace(given, amount=left))

    def _need(self, number: int) -> Need:
        return self._wanting.get(number, _SATISFIED)
