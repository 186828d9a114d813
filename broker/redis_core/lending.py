"""How credit moves between the partitions of one node to where items wait for it. Must not know where it comes from.

A script that finds items and no credit says so; the frontend that ran it looks for free credit in the other partitions, and
notes in Redis that the partition is in need, so that whoever frees credit elsewhere gives some. Nothing here is needed for
safety: what gets lost on the way is missed until the next count.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any

from broker.model.names import Jid
from broker.model.results import Refused
from broker.redis_core.calls.workers import gift
from broker.redis_core.internal import Deposit, Gift, Leave, Outcome, Recount, Withdraw, Withdrawn
from broker.redis_core.places import BANK
from broker.redis_core.seats import Ask

TOLD = 4
"""So many partitions in need are named to a script."""

FIRST_WAVE = 4
"""So many partitions are asked for credit at once at first, and twice as many each time after."""


@dataclass(frozen=True, slots=True, order=True)
class Need:
    """A partition wants credit: how much is locked there, and since when that is so, in seconds of a steady clock.

    They sort as they are to be served: who has least first, and of those who has waited longest.
    """

    locked: int
    since: float
    wanted: int = field(default=1, compare=False)


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
        background: Callable[[Coroutine[Any, Any, Any]], None],
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
        self._searching: set[int] = set()
        self._stirred = False
        self._partitions = 1

    def wants(self, number: int) -> str:
        """Name those in need to a script of the partition `number`, with what is locked there."""
        if not (self._wanting or self._others):
            return ""
        needs = {**self._others, **self._wanting}
        needs.pop(number, None)
        return " ".join(f"{to} {needs[to].locked}" for to in sorted(needs, key=needs.__getitem__)[:TOLD])

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
        wanted, spare, locked, gifts, ended = report
        self._stirred = True
        self._partitions = partitions
        self._spare[number] = spare
        for row in gifts:
            self._give(int(row[0]), gift(row))
        for jid in ended:
            self._submit(Leave(self._node, Jid(jid.decode())))
        self._others.pop(number, None)
        known = self._wanting.pop(number, None)
        if wanted:
            since = known.since if known and known.locked == locked else time.monotonic()
            self._wanting[number] = Need(locked, since, wanted)
        if bool(wanted) != bool(known):
            self._background(self._tell({number: locked if wanted else ""}))
        if wanted and not known:
            self._search(number)
        elif spare:
            for needy in sorted(self._wanting, key=self._wanting.__getitem__)[:TOLD]:
                self._search(needy)

    def breathe(self) -> None:
        """Look around, in the rhythm of the pulse: who is in need, and whether there is anything for them."""
        if self._stirred or self._wanting:
            self._stirred = False
            self._background(self._tell({number: need.locked for number, need in self._wanting.items()}))
            for number in self._wanting:
                self._search(number)

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
        # Lost, or dropped for a count that has begun since and may have missed it: a new count tells.
        if not deposit.cancelled() and isinstance(deposit.result(), Refused):
            self._submit(Recount(self._node, subid))

    def _search(self, number: int) -> None:
        if number not in self._searching:
            self._searching.add(number)
            self._background(self._searched(number, self._wanting[number].wanted))

    async def _searched(self, number: int, wanted: int) -> None:
        """Ask the others for free credit, those first that seem to have some, in ever larger waves."""
        try:
            others = [other for other in range(self._partitions) if other != number]
            others.sort(key=lambda other: -self._spare.get(other, 1))
            wave = FIRST_WAVE
            while others and wanted > 0:
                asked = [self._ask(other, Withdraw(self._node, "", wanted)) for other in others[:wave]]
                del others[:wave]
                wave *= 2
                for outcome in await asyncio.gather(*asked):
                    for given in outcome.gifts if isinstance(outcome, Withdrawn) else ():
                        wanted -= given.amount
                        self._give(number, given)
        finally:
            self._searching.discard(number)
