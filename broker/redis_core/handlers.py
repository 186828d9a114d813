"""Handlers of the commands that need more than one script.

Makes these parts and joins them. Must not know when a command comes, nor who waits for its outcome.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

from broker.model.commands import Browse, Command, Delete, Options, Subscribe, Unsubscribe
from broker.model.items import Notice
from broker.model.leases import own_view
from broker.model.names import bare
from broker.model.qos import Qos
from broker.model.results import Result
from broker.model.subscriptions import Subscription
from broker.redis_core.commands.internal import Ask, PartitionCommand
from broker.redis_core.delivery.browsing import browse
from broker.redis_core.delivery.exactly_once import ExactlyOnce
from broker.redis_core.delivery.inspection import Inspection
from broker.redis_core.delivery.item_moves import ItemMoves
from broker.redis_core.groups.ownership import Ownership, owns
from broker.redis_core.maintenance.instances import Instances
from broker.redis_core.nodes.history import Histories
from broker.redis_core.nodes.listing import NodeListing
from broker.redis_core.nodes.service import NodeService
from broker.redis_core.records.group_members import GroupMembers
from broker.redis_core.records.pending_requests import PendingList
from broker.redis_core.records.store import NodeStore
from broker.redis_core.records.tree import Tree
from broker.redis_core.records.validation import Rules
from broker.redis_core.redis_client.client import Server
from broker.redis_core.subscriptions.approvals import Approvals
from broker.redis_core.subscriptions.long_poll import LongPoll
from broker.redis_core.subscriptions.queries import SubscriptionQueries
from broker.redis_core.subscriptions.service import SubscriptionService
from broker.settings import NodeCreation, Settings


@dataclass(frozen=True, slots=True)
class HandlerPorts:
    """What works call upon: `begin` gives a command its place among its sender's now, `ask` awaits it as well.

    `submit` takes what a door might ask. `changed` hears of a node whose record is another now, `forget` of one whose record
    is to be read anew, `register_all` of one with other partitions.
    """

    begin: Callable[[PartitionCommand], asyncio.Future[Any]]
    ask: Ask
    submit: Callable[[Command], Awaitable[Result]]
    changed: Callable[[str], None]
    forget: Callable[[str], None]
    register_all: Callable[[str], Awaitable[None]]


class Handlers:
    """The parts; a row of the registry names the one that carries out its command."""

    approvals: Approvals
    assured: ExactlyOnce
    fetching: LongPoll
    histories: Histories
    inspection: Inspection
    instances: Instances
    listing: NodeListing
    lists: SubscriptionQueries
    nodes: NodeService
    owners: Ownership
    subscriptions: SubscriptionService
    transfers: ItemMoves

    def __init__(  # noqa: PLR0913, PLR0917  (what they work with)
        self,
        server: Server,
        store: NodeStore,
        tree: Tree,
        settings: Settings,
        calls: HandlerPorts,
        notify: Callable[[Notice], None],
    ) -> None:
        """Make them; `notify` tells those whom a change concerns."""
        rules = Rules(store.admins, settings.node_creation is NodeCreation.ADMINS, settings.default_queueing)
        members, pending = GroupMembers(server), PendingList(server, store)
        self._calls = calls
        self.owners = Ownership(members, store, calls.ask, calls.forget, notify)
        self.lists = SubscriptionQueries(server, store, members, pending, calls.ask)
        self.subscriptions = SubscriptionService(store, self.lists.occupied, calls.ask, self.owners, notify)
        # Whoever loses its subscription by others' doing hears which locks end with it.
        remove = partial(self.subscriptions.remove, told=True)
        self.approvals = Approvals(
            store,
            pending,
            self.lists,
            subscribe=lambda command: self._subscription(command)(),
            remove=remove,
            notify=notify,
        )
        self.nodes = NodeService(
            store,
            tree,
            rules=rules,
            ask=calls.ask,
            changed=calls.changed,
            register_all=calls.register_all,
            notify=notify,
            remove=remove,
            pending=self.approvals,
        )
        self.approvals.nodes = self.nodes
        self.assured = ExactlyOnce(server, settings, calls.submit, self.nodes.admits)
        self.fetching = LongPoll(calls.ask)
        self.listing = NodeListing(server, store, tree)
        self.inspection = Inspection(store, rules, calls.ask)
        self.histories = Histories(server, store, calls.ask)
        self.instances = Instances(server, rules)
        self.transfers = ItemMoves(store, rules, calls.ask, self.inspection)

    async def lapse(self, over: Subscription) -> None:
        """End a subscription whose lease is over, and a collection that was made for it."""
        if own_view(over.node, over.jid):
            await self.nodes.delete(Delete(over.node, bare(over.jid)))
        else:
            await self.subscriptions.lapse(over)

    def browse(self, command: Browse) -> Coroutine[Any, Any, Result]:
        """Look at a page of items."""
        return browse(command, self._calls.begin(command), self._calls.ask)

    def options(self, command: Options) -> Coroutine[Any, Any, Result]:
        """Tell the options of a subscription, and what it owns."""
        return self.owners.options(command, self._calls.begin(command))

    def unsubscribe(self, command: Unsubscribe) -> Coroutine[Any, Any, Result]:
        """End a subscription, or take one back that waits for approval."""
        begun = self._calls.begin(command)
        return self.approvals.unsubscribe(command, partial(self.subscriptions.unsubscribe, command, begun))

    def subscribe(self, command: Subscribe) -> Coroutine[Any, Any, Result]:
        """Make a subscription, or let it wait for approval."""
        begun = self._subscription(command)
        # Nobody is there to be told of an approval: a lease is refused until its owner is admitted.
        return begun() if command.qos is Qos.PULLED else self.approvals.subscribe(command, begun)

    def _subscription(self, command: Subscribe) -> Callable[[], Coroutine[Any, Any, Result]]:
        """Give a subscription its place among its sender's commands, and what waits for it."""
        if owns(command):
            return partial(self.owners.subscribe, command, self.subscriptions.subscribe)
        return partial(self.subscriptions.subscribe, command, self._calls.begin(command))
