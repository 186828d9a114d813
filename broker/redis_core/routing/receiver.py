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
from broker.model.nodes import NodeRecord
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
        self, known: NodeCache, tree: Tree, pipeline: Callable[[Partition], PartitionPipeline], turns: Turns
    ) -> None:
        """Read the partitions from the node's record, or those below it from `tree`; a collection lends in its `turns`."""
        self._known = known
        self._tree = tree
        self._pipeline = pipeline
        self._collection = turns
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
        look = 0 if takes else None
        asked = replace(_part(now, first, None if collects else look), lease_ms=command.lease_ms or 0)
        begun: Outcome = await ask_pipeline(self._pipeline(first), asked)
        if not isinstance(begun, ReceivedFrom):
            return begun
        others = list(await self._find_leaves(record)) if collects else list(record.partitions[FIRST_PARTITION + 1 :])
        if now.woken:
            others = [each for each in others if each in now.woken]
        found = {first: begun}
        for page in range(0, len(others), _PAGE):
            some = others[page : page + _PAGE]
            looks = [replace(_part(now, each, look, begun.selector), below=collects) for each in some]
            found |= await self._ask(looks)
        if takes:
            waiting = [each for each, of in found.items() if of.waits]
            turn = next(self._turns) % max(1, len(waiting))
            waiting = [*waiting[turn:], *waiting[:turn]]
            limit = begun.received.credit if command.limit is None else command.limit
            if collects:
                found |= await self._receive_below(now, begun.selector, {each: found[each] for each in waiting}, limit)
            else:
                found |= await self._receive_here(now, begun.selector, waiting, found, limit)
        # A collection's own partition holds nothing; one that cannot answer now may have no owner.
        holding = others if collects else [first, *others]
        owned = bool(holding) and all(each in found and found[each].received.owned for each in holding)
        return replace(received([of.received for of in found.values()]), owned=owned and not now.woken)

    async def _receive_here(
        self,
        now: ReceiveNow,
        selector: str,
        waiting: Sequence[Partition],
        looked: Mapping[Partition, ReceivedFrom],
        limit: int,
    ) -> _Found:
        """Receive from partitions of the node, until as many items are held in all that were looked at as there may be."""
        held = dict(now.held) | {each: of.received.held[each] for each, of in looked.items()}
        found: _Found = {}
        for each in waiting:
            room = limit - sum(held.values())
            if room <= 0:
                break
            known = "=" if each.number == FIRST_PARTITION else selector
            more = await self._ask([_part(now, each, held[each] + room, known)])
            found |= more
            held |= {each: of.received.held[each] for each, of in more.items()}
        return found

    async def _receive_below(
        self, now: ReceiveNow, selector: str, waiting: Mapping[Partition, ReceivedFrom], limit: int
    ) -> _Found:
        """Receive from queues below the collection under the references that it lends, until it lends no more."""
        command = now.command
        found: _Found = {}
        for each, of in waiting.items():
            wanted = min(limit, of.waits, MOST_RECEIVED)
            pull = Pull(each, subid(command.jid), wanted, command.limit, of.stamp_ms, of.lock_ms)
            loan = await self._collection.pull(pull)
            unused = loan.names
            # A process that has slept sends none.
            if loan.names and time.monotonic() <= loan.sent_until:
                asked = replace(_part(now, each, len(loan.names), selector), below=True, loan=loan)
                more = await self._ask([asked])
                found |= more
                # Without an answer only the queue knows what became of them.
                unused = more[each].unused if more else ()
            self._collection.book((name, "unused") for name in unused)
            limit -= len(loan.names) - len(unused)
            if not limit or (len(loan.names) < wanted and not unused):
                break
        return found

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


def _part(now: ReceiveNow, of: Partition, limit: int | None, selector: str = "=") -> ReceiveFrom:
    """Return the command for one partition."""
    command = now.command
    return ReceiveFrom(
        *(of.node, command.sender, command.jid, None, limit, command.lock_ms, command.last_token_of(of)),
        now.process if limit is not None else "",
        *(selector, of.number, of.incarnation),
    )
