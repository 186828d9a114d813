"""Receives for a pull subscription from several partitions: of one node, or of the leaves below a collection.

The first partition knows the lease. Below a collection, which counts what it lends, each item is received under a reference. Of a
node's own partitions each counts alone: all are asked how much is held there, and two requests at once may together receive
more than the limit. Must not know who waits, nor how items are locked.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Final

from broker.model.names import Partition
from broker.model.nodes.nodes import NodeRecord
from broker.redis_core.collections.asking import FIND_SECONDS
from broker.redis_core.collections.turns import Turns
from broker.redis_core.commands.collections import Pull
from broker.redis_core.commands.internal import GONE, Outcome, ReceivedFrom, ReceiveFrom, ReceiveNow
from broker.redis_core.operations.operation import subid
from broker.redis_core.operations.subscriptions import MOST_RECEIVED
from broker.redis_core.partitions.pipeline import PartitionPipeline, ask_pipeline
from broker.redis_core.records.cache import NodeCache
from broker.redis_core.records.tree import Tree
from broker.redis_core.registry.merge import received
from broker.redis_core.registry.partitioner import FIRST_PARTITION

_PAGE: Final = 100
"""Partitions that are asked at once."""

_Found = dict[Partition, ReceivedFrom]


class Receiver:
    """Receives from the partitions of one node."""

    def __init__(
        self, cache: NodeCache, tree: Tree, pipeline: Callable[[Partition], PartitionPipeline], turns: Turns
    ) -> None:
        """Read the partitions from the node's record, or those below it from `tree`; a collection lends in its `turns`."""
        self._cache = cache
        self._tree = tree
        self._pipeline = pipeline
        self._collection = turns
        self._leaves: Sequence[Partition] = ()
        self._found_at = 0.0
        self._turns = count()

    async def receive(self, now: ReceiveNow) -> Outcome:
        """Check the lease, see what is held, and receive what there is room for."""
        record = await self._cache.read()
        if record is None:
            return GONE
        command, collects, takes = now.command, record.config.collects, now.takes
        first = record.partition(FIRST_PARTITION)
        looks = _part(now, first, 0 if takes and not collects else None)
        asked = replace(looks, lease_ms=command.lease_ms or 0, credit=command.limit)
        begun: Outcome = await ask_pipeline(self._pipeline(first), asked)
        if not isinstance(begun, ReceivedFrom):
            return begun
        limit = begun.received.credit if command.limit is None else command.limit
        turn = next(self._turns)
        if collects:
            others = _rotate(_choose(await self._find_leaves(record), now), turn)
            below, short = await self._receive_below(now, begun.selector, others, limit)
            found = {first: begun} | below
        else:
            others = _choose(record.partitions[FIRST_PARTITION + 1 :], now)
            found, short = {first: begun} | await self._look(now, others, begun.selector), False
            if takes:
                waiting = [each for each in _rotate([first, *others], turn) if each in found and found[each].waits]
                found |= await self._receive_here(now, begun.selector, waiting, found, limit)
                short = bool(waiting) and sum({**now.held, **_held(found)}.values()) >= limit
        # A collection's own partition holds nothing; one that cannot answer now may have no owner.
        holding = others if collects else [first, *others]
        owned = bool(holding) and all(each in found and found[each].received.owned for each in holding)
        return replace(received([of.received for of in found.values()]), owned=owned and not now.woken, short=short)

    async def _look(self, now: ReceiveNow, some: Sequence[Partition], selector: str, *, below: bool = False) -> _Found:
        """See what is held in partitions, and whether items wait there."""
        look = 0 if now.takes else None
        found: _Found = {}
        for page in range(0, len(some), _PAGE):
            asked = [replace(_part(now, each, look, selector), below=below) for each in some[page : page + _PAGE]]
            found |= await self._ask(asked)
        return found

    async def _receive_here(
        self,
        now: ReceiveNow,
        selector: str,
        waiting: Sequence[Partition],
        looked: Mapping[Partition, ReceivedFrom],
        limit: int,
    ) -> _Found:
        """Receive from partitions of the node, until as many items are held in all that were looked at as there may be."""
        held = {**now.held, **_held(looked)}
        found: _Found = {}
        for each in waiting:
            room = limit - sum(held.values())
            if room <= 0:
                break
            known = "=" if each.number == FIRST_PARTITION else selector
            more = await self._ask([_part(now, each, held[each] + room, known)])
            found |= more
            held |= _held(more)
        return found

    async def _receive_below(
        self, now: ReceiveNow, selector: str, leaves: Sequence[Partition], limit: int
    ) -> tuple[_Found, bool]:
        """Look at queues below the collection, and receive under the references that it lends, until it lends no more.

        Returns also whether items wait that it has lent nothing for.
        """
        found: _Found = {}
        left, short = limit, False
        for page in range(0, len(leaves), _PAGE):
            looked = await self._look(now, leaves[page : page + _PAGE], selector, below=True)
            found |= looked
            waiting = [each for each, of in looked.items() if of.waits] if now.takes else []
            while waiting and left and not short:
                some, wanted = list[Partition](), 0
                while waiting and wanted < left:
                    some.append(waiting.pop(0))
                    wanted += min(looked[some[-1]].waits, MOST_RECEIVED)
                lent, used = await self._receive_some(now, selector, {each: looked[each] for each in some}, left, found)
                left, short = left - used, lent < min(wanted, left)
        return found, short

    async def _receive_some(
        self, now: ReceiveNow, selector: str, some: Mapping[Partition, ReceivedFrom], limit: int, outcomes: _Found
    ) -> tuple[int, int]:
        """Receive from queues below the collection at once; returns how many references it lent, and how many may be in use."""
        command = now.command
        pulls = [
            Pull(each, subid(command.jid), min(of.waits, limit, MOST_RECEIVED), command.limit, of.stamp_ms, of.lock_ms)
            for each, of in some.items()
        ]
        loans = await asyncio.gather(*map(self._collection.pull, pulls))
        asked, unused = list[ReceiveFrom](), list[str]()
        for each, loan in zip(some, loans, strict=True):
            # A process that has slept sends none.
            if time.monotonic() > loan.sent_until:
                unused += loan.names
            elif loan.names:
                asked.append(replace(_part(now, each, len(loan.names), selector), below=True, loan=loan))
        more = await self._ask(asked)
        outcomes |= more
        # Without an answer only the queue knows what became of them.
        unused += [name for of in more.values() for name in of.unused]
        self._collection.book((name, "unused") for name in unused)
        lent = sum(len(loan.names) for loan in loans)
        return lent, lent - len(unused)

    def forget(self) -> None:
        """Read again which partitions are below the collection."""
        self._found_at = -FIND_SECONDS

    async def _find_leaves(self, record: NodeRecord) -> Sequence[Partition]:
        if time.monotonic() - self._found_at > FIND_SECONDS:
            self._leaves = list(await self._tree.find_leaves(record))
            self._found_at = time.monotonic()
        return self._leaves

    async def _ask(self, commands: Sequence[ReceiveFrom]) -> _Found:
        """Ask partitions; one that cannot answer now, that is deleted or refuses the subscription, has nothing for it."""
        partitions = [Partition(each.node, each.incarnation, each.partition) for each in commands]
        asked = [
            ask_pipeline(self._pipeline(each), command) for each, command in zip(partitions, commands, strict=True)
        ]
        outcomes: list[Outcome] = await asyncio.gather(*asked)
        found = zip(partitions, outcomes, strict=True)
        return {each: outcome for each, outcome in found if isinstance(outcome, ReceivedFrom)}


def _held(outcomes: Mapping[Partition, ReceivedFrom]) -> dict[Partition, int]:
    """Return how many items are held in each partition."""
    return {each: of.received.held[each] for each, of in outcomes.items()}


def _choose(partitions: Sequence[Partition], now: ReceiveNow) -> list[Partition]:
    """Return the partitions to ask: of one that was woken only those that woke it."""
    return [each for each in partitions if not now.woken or each in now.woken]


def _rotate(partitions: Sequence[Partition], turn: int) -> list[Partition]:
    """Return partitions so that each time another one is the first."""
    first = turn % max(1, len(partitions))
    return [*partitions[first:], *partitions[:first]]


def _part(now: ReceiveNow, of: Partition, limit: int | None, selector: str = "=") -> ReceiveFrom:
    """Return the command for one partition."""
    command = now.command
    return ReceiveFrom(
        *(of.node, command.sender, command.jid, None, limit, command.lock_ms, command.last_token_of(of)),
        now.process if limit is not None else "",
        *(selector, of.number, of.incarnation),
    )
