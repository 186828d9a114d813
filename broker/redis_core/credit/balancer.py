"""One coordinator's side in a frontend: carries reports to it, and its grants to the partitions that they are for.

Nothing is kept here but what could not be told yet: the coordinator sends a grant again that it hears nothing of. Must not know
where partitions are.
"""

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial

from broker.model.problems import CoreUnavailable, Problem
from broker.model.results import Refused
from broker.redis_core.commands.credit import (
    Demand,
    Grant,
    GrantCredit,
    Granted,
    HandOut,
    Holding,
    Holdings,
    ListHoldings,
    ListUsage,
    Usage,
)
from broker.redis_core.commands.internal import Outcome
from broker.redis_core.ports import AskPartition
from broker.redis_core.registry.partitioner import COORDINATOR

GONE = (Problem.NODE_NOT_FOUND, Problem.PARTITION_NOT_FOUND)
"""Refusals of a partition that is no more."""


class Balancer:
    """Carries what concerns the credit of one node's, or one collection's, subscribers."""

    def __init__(self, node: str, ask: AskPartition) -> None:
        """Ask partitions by `ask`."""
        self._node = node
        self._ask = ask
        self._untold: dict[tuple[int, str], Holding] = {}

    def tell(self, holdings: Sequence[Holding] = (), demand: Demand | None = None) -> asyncio.Future[Outcome]:
        """Tell the coordinator; gives its answer."""
        told = self._ask(COORDINATOR, GrantCredit(self._node, tuple(holdings), demand))
        told.add_done_callback(partial(self._told, holdings))
        return told

    async def want(self, demand: Demand) -> int | None:
        """Tell what a partition wants; gives how much it is granted now, None when that could not be told."""
        outcome = await self.tell(demand=demand)
        return outcome.amount if isinstance(outcome, Granted) else None

    def carry(self, grants: Iterable[Grant]) -> None:
        """Bring grants to the partitions that they are for."""
        for each in grants:
            carried = self._ask(each.number, HandOut(self._node, each.subid, each.grant, each.amount))
            carried.add_done_callback(partial(self._carried, each))

    def tick(self) -> None:
        """Tell again what could not be told."""
        if self._untold:
            untold, self._untold = self._untold, {}
            self.tell(tuple(untold.values()))

    async def audit(self, others: Sequence[int]) -> tuple[str, ...]:
        """Hold the coordinator's ledger against what partitions say; gives who is not known where it should be.

        Both may have lost something: a frontend that died told nothing of a lock's end, a failover loses a second of either.
        """
        unknown: dict[str, None] = {}
        scan, ended = "0", False
        while not ended:
            usage = await self._ask(COORDINATOR, ListUsage(self._node, scan))
            if not isinstance(usage, Usage):
                return ()
            await self._checked(usage, set(others))
            unknown |= dict.fromkeys(subid for subid, _number, shut in usage.pairs if shut)
            scan, ended = usage.scan, usage.scan == "0"
        for number in others:
            past, more = "", True
            while more:
                held = await self._ask(number, ListHoldings(self._node, past=past))
                if not isinstance(held, Holdings):
                    break
                if held.rows:
                    await self.tell(_full(number, held))
                past, more = held.past, held.past != ""
        return tuple(unknown)

    async def _checked(self, usage: Usage, others: set[int]) -> None:
        asked: dict[int, list[str]] = {}
        for subid, number, _shut in usage.pairs:
            asked.setdefault(number, []).append(subid)
        for number, subids in asked.items():
            if number not in others and number != COORDINATOR:
                await self._ask(COORDINATOR, GrantCredit(self._node, gone=tuple((number, subid) for subid in subids)))
                continue
            held = await self._ask(number, ListHoldings(self._node, tuple(subids))) if number != COORDINATOR else None
            if isinstance(held, Holdings):
                await self.tell(_full(number, held))

    def _told(self, holdings: Sequence[Holding], told: asyncio.Future[Outcome]) -> None:
        outcome = _outcome(told)
        if isinstance(outcome, Refused) and outcome.problem not in GONE:
            for each in holdings:
                before = self._untold.get((each.number, each.subid))
                if before is None or before.version < each.version:
                    self._untold[each.number, each.subid] = each

    def _carried(self, grant: Grant, carried: asyncio.Future[Outcome]) -> None:
        outcome = _outcome(carried)
        if isinstance(outcome, Refused) and outcome.problem in GONE:
            self._ask(COORDINATOR, GrantCredit(self._node, gone=((grant.number, grant.subid),)))


def _outcome(future: asyncio.Future[Outcome]) -> Outcome | None:
    """Give how a question turned out; None when it was given up."""
    if future.cancelled():
        return None
    error = future.exception()
    if isinstance(error, CoreUnavailable):
        return Refused(error.problem, str(error))
    return future.result()


def _full(number: int, held: Holdings) -> tuple[Holding, ...]:
    return tuple(Holding(number, each.subid, held.version, each.held, each.last, full=True) for each in held.rows)
