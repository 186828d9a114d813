"""Subscriptions that several partitions of a node know: each reader of a log, and each lease, is known to the first one.

Must not know pipelines, or what a subscription gives.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from weakref import WeakValueDictionary

from broker.model.commands import Options, SetSubscriptionOptions, Subscribe, Unsubscribe
from broker.model.items.qos import Qos
from broker.model.names import Jid
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import Refused, Subscribed
from broker.redis_core.commands.internal import AnyCommand, Leave, Left, Outcome, SubscribeLog
from broker.redis_core.operations.operation import subid
from broker.redis_core.ports import AskPartition
from broker.redis_core.registry.partitioner import FIRST_PARTITION
from broker.redis_core.subscriptions import log_readers


class PartitionedSubscriptions:
    """Changes a subscription in all partitions, one change at a time for each subscription."""

    def __init__(self, ask: AskPartition) -> None:
        """Send commands by `ask`."""
        self._ask = ask
        # Two changes of one subscription would disturb each other; an unsubscribe between them would leave one behind.
        self._queues: WeakValueDictionary[Jid, asyncio.Lock] = WeakValueDictionary()

    async def set_options(self, command: SetSubscriptionOptions, partitions: int) -> Outcome:
        """Change a subscription: the first partition decides, and a log reader has the full credit of each that it reads."""
        async with self._queue(command.jid):
            begun: Outcome = await self._ask(FIRST_PARTITION, command)
            if not (isinstance(begun, Subscribed) and begun.reads):
                return begun
            outcomes = await self._ask_all(range(FIRST_PARTITION + 1, partitions), command)
        return next((outcome for outcome in outcomes if isinstance(outcome, Refused)), begun)

    async def subscribe_log(self, command: Subscribe, partitions: int) -> Outcome:
        """Start a log reader in the partitions that it reads, then let the other partitions know it."""
        try:
            chosen = log_readers.partitions_to_read(command, partitions)
        except MalformedRequest as wrong:
            return Refused(wrong.problem, wrong.detail)
        others = [number for number in range(partitions) if number not in chosen]
        async with self._queue(command.jid):
            # The last partition comes first and alone: if it refuses, nothing has changed (E7).
            *others_read, last = chosen
            begun = [await self._ask(last, log_readers.subscribe_command(command, last, reading=True))]
            if isinstance(begun[0], Subscribed):
                asked = [log_readers.subscribe_command(command, number, reading=True) for number in others_read]
                begun = [*await self._ask_each(others_read, asked), *begun]
            outcome = log_readers.merge_subscribed(begun)
            if isinstance(outcome, Subscribed):
                told = await self._ask_each(
                    others, [log_readers.subscribe_command(command, number, reading=False) for number in others]
                )
                # The first partition knows the expiry, whether it is read or not.
                ends = [each.until_ms for each in told if isinstance(each, Subscribed)]
                outcome = replace(outcome, until_ms=max(outcome.until_ms, *ends, 0))
            return outcome

    async def leave(self, command: Unsubscribe | Leave, partitions: int) -> list[Outcome]:
        """End a subscription in every partition; returns the outcomes in order."""
        others = range(FIRST_PARTITION + 1, partitions)
        async with self._queue(command.jid):
            if isinstance(command, Leave) and command.lapsed:
                # In the first partition last: until then it remembers the expiry.
                outcomes = await self._ask_all(others, replace(command, lapsed=False))
                if any(isinstance(outcome, Refused) for outcome in outcomes):
                    return outcomes
                ended = await self._ask(FIRST_PARTITION, command)
                if isinstance(ended, Refused) and ended.problem is Problem.SUPERSEDED:
                    # A log reader renewed its lease while the other partitions removed it.
                    await self._tell_reader(command, others)
                # Several frontends may expire it at once: the one that ends it in the first partition reports it.
                return [ended, *(replace(each, ended=()) if isinstance(each, Left) else each for each in outcomes)]
            # The first partition decides; nothing else changes if it refuses.
            begun: Outcome = await self._ask(FIRST_PARTITION, command)
            if isinstance(begun, Refused):
                return [begun]
            if isinstance(command, Unsubscribe) and isinstance(begun, Left):
                # The first partition has told the subid.
                whose = next(iter(begun.ended), subid(command.jid))
                command = Leave(command.node, command.jid, release=False, subid=whose)
            return [begun, *await self._ask_all(others, command)]

    async def _tell_reader(self, command: Leave, others: Sequence[int]) -> None:
        known = await self._ask(FIRST_PARTITION, Options(command.node, command.jid, command.jid, ""))
        if isinstance(known, Subscribed) and known.reads:
            about = command.node, command.jid, command.jid, known.credit, Qos.UNACKNOWLEDGED, ""
            await self._ask_each(others, [SubscribeLog(*about, number) for number in others])

    def _queue(self, jid: Jid) -> asyncio.Lock:
        return self._queues.setdefault(jid, asyncio.Lock())

    async def _ask_all(self, numbers: Sequence[int], command: AnyCommand) -> list[Outcome]:
        return await self._ask_each(numbers, [command] * len(numbers))

    async def _ask_each(self, numbers: Sequence[int], commands: Sequence[AnyCommand]) -> list[Outcome]:
        return list(await asyncio.gather(*map(self._ask, numbers, commands)))
