"""Moves credit of one coordinator: carries reports to the coordinator and its grants to partitions.

Keeps only reports that could not be sent; the coordinator repeats a grant that is not confirmed. Must not know where partitions
are.
"""

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial

from broker.model.problems import CoreUnavailable
from broker.model.results import Refused
from broker.redis_core.commands.credit import (
    CreditUsage,
    Demand,
    Grant,
    GrantCredit,
    Granted,
    HandOut,
    Holding,
    Holdings,
    ListHoldings,
    ListUsage,
)
from broker.redis_core.commands.internal import Outcome
from broker.redis_core.ports import AskPartition
from broker.redis_core.registry.partitioner import COORDINATOR


class Balancer:
    """Moves the credit of the subscribers of one node or collection."""

    def __init__(self, node: str, ask: AskPartition) -> None:
        """Send commands to partitions by `ask`."""
        self._node = node
        self._ask = ask
        self._unreported: dict[tuple[int, str], Holding] = {}

    def report(self, holdings: Sequence[Holding] = (), demand: Demand | None = None) -> asyncio.Future[Outcome]:
        """Report to the coordinator; returns its answer."""
        reported = self._ask(COORDINATOR, GrantCredit(self._node, tuple(holdings), demand))
        reported.add_done_callback(partial(self._on_reported, holdings))
        return reported

    async def request_credit(self, demand: Demand) -> int | None:
        """Report a partition's demand; returns the amount granted now, or None when the report failed."""
        outcome = await self.report(demand=demand)
        return outcome.amount if isinstance(outcome, Granted) else None

    def deliver(self, grants: Iterable[Grant]) -> None:
        """Carry grants to their partitions."""
        for each in grants:
            delivered = self._ask(each.number, HandOut(self._node, each.subid, each.grant, each.amount))
            delivered.add_done_callback(partial(self._on_granted, each))

    def tick(self) -> None:
        """Send failed reports again."""
        if self._unreported:
            unreported, self._unreported = self._unreported, {}
            self.report(tuple(unreported.values()))

    async def audit(self, others: Sequence[int]) -> tuple[str, ...]:
        """Compare the coordinator's ledger with what the partitions hold; returns subids unknown where they should be known.

        Either side may be wrong: a frontend may die before it reports the end of a lock, and a failover loses a second of writes.
        What partitions hold is added first, then each entry is checked: a lock that was added may have ended meanwhile.
        """
        for number in others:
            past, more = "", True
            while more:
                held = await self._ask(number, ListHoldings(self._node, past=past))
                if not isinstance(held, Holdings):
                    break
                if held.rows:
                    # Sent once: later it would be out of date, and nothing would check it.
                    await self._ask(COORDINATOR, GrantCredit(self._node, _holdings(number, held, full=True)))
                past, more = held.past, held.past != ""
        unknown: dict[str, None] = {}
        scan, ended = "0", False
        while not ended:
            usage = await self._ask(COORDINATOR, ListUsage(self._node, scan))
            if not isinstance(usage, CreditUsage):
                return ()
            await self._check_usage(usage, set(others))
            unknown |= dict.fromkeys(subid for subid, _number, shut in usage.pairs if shut)
            scan, ended = usage.scan, usage.scan == "0"
        return tuple(unknown)

    async def check(self, number: int, subids: Sequence[str]) -> None:
        """Correct what the ledger has of these subscribers in one partition.

        The ledger forgets an entry that is over, and so cannot tell an old count of locks from a new one. Whoever adds counts to
        it therefore checks them afterwards: the end of a lock that was not counted any more is reported to an entry that exists.
        """
        held = await self._ask(number, ListHoldings(self._node, tuple(subids)))
        if isinstance(held, Holdings):
            await self.report(_holdings(number, held))

    async def _check_usage(self, usage: CreditUsage, others: set[int]) -> None:
        asked: dict[int, list[str]] = {}
        for subid, number, _shut in usage.pairs:
            asked.setdefault(number, []).append(subid)
        for number, subids in asked.items():
            if number in others:
                await self.check(number, subids)
            elif number != COORDINATOR:
                await self._ask(COORDINATOR, GrantCredit(self._node, gone=tuple((number, subid) for subid in subids)))

    def _on_reported(self, holdings: Sequence[Holding], reported: asyncio.Future[Outcome]) -> None:
        outcome = _outcome(reported)
        if isinstance(outcome, Refused) and not outcome.problem.is_gone:
            for each in holdings:
                before = self._unreported.get((each.number, each.subid))
                if before is None or before.version < each.version:
                    self._unreported[each.number, each.subid] = each

    def _on_granted(self, grant: Grant, delivered: asyncio.Future[Outcome]) -> None:
        outcome = _outcome(delivered)
        if isinstance(outcome, Refused) and outcome.problem.is_gone:
            self._ask(COORDINATOR, GrantCredit(self._node, gone=((grant.number, grant.subid),)))


def _outcome(future: asyncio.Future[Outcome]) -> Outcome | None:
    """Return the outcome of a command; None when it was cancelled."""
    if future.cancelled():
        return None
    error = future.exception()
    if isinstance(error, CoreUnavailable):
        return Refused(error.problem, str(error))
    return future.result()


def _holdings(number: int, held: Holdings, *, full: bool = False) -> tuple[Holding, ...]:
    return tuple(Holding(number, each.subid, held.version, each.held, each.last, full=full) for each in held.rows)
