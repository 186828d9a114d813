"""Leases over several queues: each has a record of its own, which ends with it. Must not know how a lease receives.

The record is kept like a node's, under the name of the lease: so its partition lends references as a collection's does, with one
prefetch for all its queues. But it is no node: nobody lists it, it counts for no quota, and it needs no right to create nodes.
"""

from typing import Final

from broker.model.commands import Subscribe, Unsubscribe
from broker.model.names import bare_jid
from broker.model.nodes.nodes import NodeRecord
from broker.model.nodes.options import AccessModel, NodeConfig
from broker.model.nodes.pull_subscriptions import is_lease_record
from broker.model.nodes.tree import NodeType
from broker.model.problems import Problem
from broker.model.results import Refused, Result, Unsubscribed
from broker.redis_core.commands.internal import Scanned
from broker.redis_core.commands.repeated import subscribers
from broker.redis_core.ports import HandlerPort
from broker.redis_core.records.store import NodeStore
from broker.redis_core.registry.partitioner import FIRST_PARTITION
from broker.redis_core.subscriptions.service import SubscriptionService

UNUSED_MS = 600_000
"""How old a record is at least that is removed since its lease has not begun: it does within seconds."""

_CONFIG: Final = NodeConfig(node_type=NodeType.COLLECTION, access_model=AccessModel.WHITELIST)


class Leases:
    """Makes and ends leases over several queues."""

    def __init__(self, store: NodeStore, subscriptions: SubscriptionService, core: HandlerPort) -> None:
        """Keep records in `store`, and subscribe the leases to them."""
        self._store = store
        self._subscriptions = subscriptions
        self._core = core

    async def subscribe(self, command: Subscribe) -> Result:
        """Make a lease and its record."""
        record = await self._store.create(
            command.node, bare_jid(command.sender), _CONFIG, destinations=command.destinations
        )
        if record is None:
            return Refused(Problem.NODE_EXISTS, "there is a lease of this name")
        await self._store.open(record)
        outcome = await self._subscriptions.subscribe(command, self._core.begin(command))
        if isinstance(outcome, Refused):
            # An answer may have been lost.
            await self._subscriptions.remove(command.node, command.jid)
            await self._end(record)
        return outcome

    async def unsubscribe(self, command: Unsubscribe) -> Result:
        """End a lease and its record."""
        outcome = await self._subscriptions.unsubscribe(command, self._core.begin(command))
        if isinstance(outcome, Unsubscribed) and (record := await self._read(command.node)):
            await self._end(record)
        return outcome

    async def end_unused(self, name: str, older_ms: int | None = None) -> None:
        """Remove a record without its lease, if it is old enough: who made it may have died before the lease began."""
        record = await self._read(name)
        if record is None:
            return
        if await self._store.now_ms() - record.created_ms < (UNUSED_MS if older_ms is None else older_ms):
            return
        found = [part async for part in subscribers(self._core.ask_partition, name, FIRST_PARTITION)]
        if all(isinstance(part, Scanned) and not part.jids for part in found):
            await self._end(record)

    async def _read(self, name: str) -> NodeRecord | None:
        record = await self._store.read(name) if is_lease_record(name) else None
        return record if record and record.destinations else None

    async def _end(self, record: NodeRecord) -> None:
        """Remove a record whose lease has ended; in its queues what it does not keep goes back first."""
        await self._core.withdraw_references(record.name)
        await self._store.delete(record)
        self._core.node_changed(record.name)
