"""Receives for a pull subscription from several partitions: of one node, or of the leaves below a collection.

The first partition knows the lease, and counts nothing of what is held elsewhere. So all are asked first how much is held there
and whether items wait, and then those where items wait, one after another, until the limit is reached. Two requests at once
may together receive more than that. Must not know who waits, nor how items are locked.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Final

from broker.model.names import Partition
from broker.model.nodes import NodeRecord
from broker.model.results import Refused
from broker.redis_core.collections.asking import FIND_SECONDS
from broker.redis_core.commands.internal import GONE, Leave, Outcome, ReceivedFrom, ReceiveFrom, ReceiveNow
from broker.redis_core.commands.repeated import leave_empty
from broker.redis_core.partitions.pipeline import PartitionPipeline, ask_pipeline
from broker.redis_core.records.cache import NodeCache
from broker.redis_core.records.tree import Tree
from broker.redis_core.registry.merge import received
from broker.redis_core.registry.partitioner import FIRST_PARTITION

_PAGE: Final = 100
"""Partitions that are asked at once."""


class Receiver:
    """Receives from the partitions of one node."""

    def __init__(self, known: NodeCache, tree: Tree, pipeline: Callable[[Partition], PartitionPipeline]) -> None:
        """Read the partitions from the node's record, or those below it from `tree`."""
        self._known = known
        self._tree = tree
        self._pipeline = pipeline
        self._leaves: Sequence[Partition] = ()
        self._found_at = 0.0
        self._turns = count()

    async def receive(self, now: ReceiveNow) -> Outcome:
        """Check the lease, see what is held, and receive what there is room for."""
        record = await self._known.read()
        if record is None:
            return GONE
        command, collects = now.command, record.config.collects
        takes = command.takes and command.only is None
        first = record.partition(FIRST_PARTITION)

        def part(of: Partition, limit: int | None, selector: str = "=") -> ReceiveFrom:
            return ReceiveFrom(
                *(of.node, command.sender, command.jid, None, limit, command.lock_ms, command.last_token_of(of)),
                now.process if limit is not None else "",
                *(selector, of.number, of.incarnation),
                below=collects,
            )

        look = 0 if takes else None
        asked = replace(part(first, None if collects else look), lease_ms=command.lease_ms or 0, below=False)
        begun: Outcome = await ask_pipeline(self._pipeline(first), asked)
        if not isinstance(begun, ReceivedFrom):
            return begun
        others = list(await self._find_leaves(record)) if collects else list(record.partitions[FIRST_PARTITION + 1 :])
        if now.woken:
            others = [each for each in others if each in now.woken]
        selector = begun.selector
        found = {first: begun}
        for page in range(0, len(others), _PAGE):
            looks = [part(each, look, selector) for each in others[page : page + _PAGE]]
            found |= await self._ask(others[page : page + _PAGE], looks)
        if takes:
            limit = begun.received.credit if command.limit is None else command.limit
            held = dict(now.held) | {each: of.received.held[each] for each, of in found.items()}
            waiting = [each for each, of in found.items() if of.waits]
            turn = next(self._turns) % max(1, len(waiting))
            for each in [*waiting[turn:], *waiting[:turn]]:
                room = limit - sum(held.values())
                if room <= 0:
                    break
                more = await self._ask([each], [part(each, held[each] + room, "=" if each == first else selector)])
                found |= more
                held |= {each: of.received.held[each] for each, of in more.items()}
        # A collection's own partition holds nothing; one that cannot answer now may have no owner.
        holding = others if collects else [first, *others]
        owned = bool(holding) and all(each in found and found[each].received.owned for each in holding)
        return replace(received([of.received for of in found.values()]), owned=owned and not now.woken)

    async def leave(self, command: Leave) -> Refused | None:
        """End what a pull subscription to a collection holds in the partitions below it; returns a refusal to be tried again."""
        record = await self._known.read()
        leaves = list(await self._find_leaves(record)) if record is not None else []
        for page in range(0, len(leaves), _PAGE):
            ended = await asyncio.gather(
                *(
                    leave_empty(partial(ask_pipeline, self._pipeline(each)), Leave(each.node, command.jid))
                    for each in leaves[page : page + _PAGE]
                )
            )
            for _subids, outcome in ended:
                if isinstance(outcome, Refused) and outcome.problem.retryable and not outcome.problem.is_gone:
                    return outcome
        return None

    def forget(self) -> None:
        """Read again which partitions are below the collection."""
        self._found_at = -FIND_SECONDS

    async def _find_leaves(self, record: NodeRecord) -> Sequence[Partition]:
        if time.monotonic() - self._found_at > FIND_SECONDS:
            self._leaves = await self._tree.find_all_leaves(record)
            self._found_at = time.monotonic()
        return self._leaves

    async def _ask(
        self, partitions: Sequence[Partition], commands: Sequence[ReceiveFrom]
    ) -> dict[Partition, ReceivedFrom]:
        """Ask partitions; one that cannot answer now, that is deleted or refuses the subscription, has nothing for it."""
        asked = [
            ask_pipeline(self._pipeline(each), command) for each, command in zip(partitions, commands, strict=True)
        ]
        outcomes: list[Outcome] = await asyncio.gather(*asked)
        found = zip(partitions, outcomes, strict=True)
        return {each: outcome for each, outcome in found if isinstance(outcome, ReceivedFrom)}
