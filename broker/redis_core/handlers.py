"""Handlers of the commands that need more than one operation.

Makes the handlers and connects them. Must not know when a command comes, nor who waits for its outcome.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from broker.model.commands import Browse, Options, Subscribe, Unsubscribe
from broker.model.items.qos import Qos
from broker.model.names import Jid
from broker.model.nodes.nodes import NodeRecord
from broker.model.nodes.pull_subscriptions import is_lease_record
from broker.model.nodes.subscriptions import Subscription
from broker.model.results import Browsed, Refused, Result
from broker.redis_core.commands.internal import PassOn
from broker.redis_core.exactly_once import ExactlyOnce
from broker.redis_core.groups.ownership import Ownership, owns
from broker.redis_core.maintenance.instances import Instances
from broker.redis_core.maintenance.restoring import Restoring
from broker.redis_core.nodes.erasure import Erasure
from broker.redis_core.nodes.history import Histories
from broker.redis_core.nodes.inspection import Inspection
from broker.redis_core.nodes.listing import NodeListing
from broker.redis_core.nodes.records import Records
from broker.redis_core.nodes.service import NodeService
from broker.redis_core.outbox.dependencies import DependencyService
from broker.redis_core.outbox.item_moves import ItemMoves
from broker.redis_core.outbox.publishes import PublishService
from broker.redis_core.ports import HandlerPort
from broker.redis_core.quotas.service import QuotaService
from broker.redis_core.records.group_members import GroupMembers
from broker.redis_core.records.pending_requests import PendingList
from broker.redis_core.records.validation import Rules, creators
from broker.redis_core.redis_client.client import Server
from broker.redis_core.schedules.firing import FiringSchedules
from broker.redis_core.schedules.service import Schedules
from broker.redis_core.schedules.storage import ScheduleStorage
from broker.redis_core.subscriptions.approvals import Approvals
from broker.redis_core.subscriptions.leases import Leases
from broker.redis_core.subscriptions.queries import SubscriptionQueries
from broker.redis_core.subscriptions.receiving import Receiving
from broker.redis_core.subscriptions.service import SubscriptionService
from broker.settings import Settings


class Handlers:
    """All handlers; a row of the registry names the one that carries out its command."""

    approvals: Approvals
    dependencies: DependencyService
    erasure: Erasure
    exactly_once: ExactlyOnce
    histories: Histories
    inspection: Inspection
    instances: Instances
    leases: Leases
    listing: NodeListing
    lists: SubscriptionQueries
    nodes: NodeService
    quotas: QuotaService
    owners: Ownership
    receiving: Receiving
    subscriptions: SubscriptionService
    item_moves: ItemMoves
    publishes: PublishService
    restoring: Restoring
    firing: FiringSchedules
    schedules: Schedules

    def __init__(self, server: Server, records: Records, settings: Settings, core: HandlerPort, door: str) -> None:
        """Make all handlers of a frontend at a door."""
        store = records.store
        rules = Rules(
            store.roles,
            creators(settings, door),
            settings.node_defaults,
            settings.node_quota,
            settings.partition_quota,
        )
        members, pending = GroupMembers(server), PendingList(server, store)
        ask = core.ask_partition
        self._core = core
        self.owners = Ownership(members, store, ask, core.tell)
        self.lists = SubscriptionQueries(server, store, members, pending, ask)
        self.subscriptions = SubscriptionService(store, self.lists, ask, self.owners, core.tell)
        self.leases = Leases(store, self.subscriptions, core)
        self.approvals = Approvals(store, pending, self.lists, self, core.tell)
        self.nodes = NodeService(records, rules, core, self.approvals, server.lacks)
        self.exactly_once = ExactlyOnce(server, settings, core.ask, self.nodes.admits)
        self.dependencies = DependencyService(store, core)
        self.receiving = Receiving(core.begin, core.count, core.name, self._pass_on)
        self.publishes = PublishService(store, core, self.lists.is_subscribed, self.receiving.acknowledge)
        self.listing = NodeListing(server, store, records.tree)
        self.inspection = Inspection(store, rules, ask)
        self.quotas = QuotaService(store, rules, records.quotas)
        self.erasure = Erasure(rules)
        self.histories = Histories(server, store, ask)
        self.instances = Instances(server, rules)
        self.item_moves = ItemMoves(store, rules, ask, self.inspection)
        storage = ScheduleStorage(ask)
        self.firing = FiringSchedules(store, storage, core)
        self.schedules = Schedules(store, storage, self.firing)
        self.restoring = Restoring(store, ask, self.schedules.catch_up)

    # Used by approvals.

    async def make(self, command: Subscribe) -> Result:
        """Make a subscription."""
        return await self._subscription(command)()

    async def remove(self, node: str, jid: Jid, whose: str = "") -> tuple[str, ...]:
        """End subscriptions and return their subids; the subscriber is notified of each lock that ends."""
        return await self.subscriptions.remove(node, jid, whose, notices=True)

    async def assign(self, record: NodeRecord, changes: Mapping[Jid, str]) -> Refused | None:
        """Change affiliations and apply the consequences."""
        return await self.nodes.assign(record, changes)

    def _pass_on(self, command: PassOn) -> None:
        """Submit a command whose outcome nobody waits for."""
        self._core.begin(command)

    # Commands that several handlers share.

    async def expire_subscription(self, expired: Subscription) -> None:
        """End a subscription whose lease has expired, and the record of a lease over several queues."""
        await self.subscriptions.expire(expired)
        if is_lease_record(expired.node):
            await self.leases.end_unused(expired.node, 0)

    def browse(self, command: Browse) -> Coroutine[Any, Any, Result]:
        """Return a page of items."""
        return self._browse(command, self._core.begin(command))

    async def _browse(self, command: Browse, first: Awaitable[Any]) -> Result:
        """Repeat a browse until a page has items: clients take a page without items for the last one (XEP-0059 §2.2)."""
        outcome = await first
        # One operation reads a bounded number of entries, and all of them may be old versions.
        while isinstance(outcome, Browsed) and not outcome.items and outcome.reached is not None:
            end, backwards = outcome.reached, command.backwards
            command = replace(command, after=None if backwards else end, before=end if backwards else None)
            outcome = await self._core.ask_partition(command)
        return outcome  # type: ignore[no-any-return]

    def options(self, command: Options) -> Coroutine[Any, Any, Result]:
        """Return the options of a subscription, and what it owns."""
        return self.owners.options(command, self._core.begin(command))

    def unsubscribe(self, command: Unsubscribe) -> Coroutine[Any, Any, Result]:
        """End a subscription, or withdraw one that waits for approval."""
        if is_lease_record(command.node):
            return self.leases.unsubscribe(command)
        begun = self._core.begin(command)
        return self.approvals.unsubscribe(command, partial(self.subscriptions.unsubscribe, command, begun))

    def subscribe(self, command: Subscribe) -> Coroutine[Any, Any, Result]:
        """Make a subscription, or let it wait for approval."""
        if command.destinations:
            return self.leases.subscribe(command)
        begun = self._subscription(command)
        # A pull subscription cannot be notified of an approval: it is refused until its owner is admitted.
        return begun() if command.qos is Qos.PULLED else self.approvals.subscribe(command, begun)

    def _subscription(self, command: Subscribe) -> Callable[[], Coroutine[Any, Any, Result]]:
        """Submit a subscription now, which fixes its order; returns what finishes it."""
        if owns(command):
            return partial(self.owners.subscribe, command, self.subscriptions.subscribe)
        return partial(self.subscriptions.subscribe, command, self._core.begin(command))
