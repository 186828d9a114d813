"""Handlers of the commands that need more than one script, by the type of the command.

Makes these parts and joins them. Must not know when a command comes, nor who waits for its outcome.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

from broker.model import commands
from broker.model.commands import Command, Subscribe
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
from broker.redis_core.groups.ownership import Around, Ownership, owns
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

Work = Callable[[Any], Coroutine[Any, Any, Result]]


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
    """The parts, and who does what."""

    def __init__(  # noqa: PLR0913, PLR0917  (what they work with)
        self,
        server: Server,
        store: NodeStore,
        tree: Tree,
        settings: Settings,
        core: Around,
        calls: HandlerPorts,
        notify: Callable[[Notice], None],
    ) -> None:
        """Make them; `notify` tells those whom a change concerns."""
        admins = frozenset(settings.admins)
        rules = Rules(admins, settings.node_creation is NodeCreation.ADMINS, settings.default_queueing)
        members, pending = GroupMembers(server), PendingList(server, store)
        self._calls = calls
        self.owners = Ownership(core, members, store, calls.ask, calls.forget)
        lists = SubscriptionQueries(server, store, members, pending, admins=admins, ask=calls.ask)
        self.subscriptions = SubscriptionService(store, lists.occupied, calls.ask, self.owners, notify)
        # Whoever loses its subscription by others' doing hears which locks end with it.
        remove = partial(self.subscriptions.remove, told=True)
        self.approvals = Approvals(
            store,
            pending,
            lists,
            admins=admins,
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
        listing = NodeListing(server, store, tree, admins)
        inspection = Inspection(store, rules, calls.ask)
        self.histories = Histories(server, store, rules, calls.ask)
        instances = Instances(server, rules)
        self.transfers = ItemMoves(store, rules, calls.ask, inspection)
        self.of: dict[type, Work] = {
            commands.Hold: self.assured.hold,
            commands.Deliver: self.assured.deliver,
            commands.Reserve: self.assured.reserve,
            commands.Redeem: self.assured.redeem,
            commands.Subscribe: self._subscribe,
            commands.Fetch: self.fetching.fetch,
            commands.Unsubscribe: lambda command: self.approvals.unsubscribe(
                command, partial(self.subscriptions.unsubscribe, command, calls.begin(command))
            ),
            commands.Options: lambda command: self.owners.options(command, calls.begin(command)),
            commands.Keep: self.owners.keep,
            commands.Presence: self.subscriptions.presence,
            commands.Subscriptions: lists.subscriptions,
            commands.Affiliations: lists.affiliations,
            commands.ListSubscribers: lists.subscribers,
            commands.ManageSubscribers: self.approvals.manage,
            commands.Approve: self.approvals.approve,
            commands.ListPending: self.approvals.pending,
            commands.SendPending: self.approvals.send,
            commands.Affiliate: self.nodes.affiliate,
            commands.Declare: self.nodes.declare,
            commands.Configure: self.nodes.configure,
            commands.Describe: self.nodes.describe,
            commands.Delete: self.nodes.delete,
            commands.Purge: self.nodes.purge,
            commands.Associate: self.nodes.placement.associate,
            commands.Dissociate: self.nodes.placement.dissociate,
            commands.Children: listing.children,
            commands.Nodes: listing.page,
            commands.Browse: lambda command: browse(command, calls.begin(command), calls.ask),
            commands.Release: self.nodes.release,
            commands.Survey: inspection.survey,
            commands.Overview: inspection.overview,
            commands.ShowHistory: self.histories.show,
            commands.Transfer: self.transfers.transfer,
            commands.Frontends: instances.list,
            commands.Disconnect: instances.disconnect,
        }

    async def lapse(self, over: Subscription) -> None:
        """End a subscription whose lease is over, and a collection that was made for it."""
        if own_view(over.node, over.jid):
            await self.nodes.delete(commands.Delete(over.node, bare(over.jid)))
        else:
            await self.subscriptions.lapse(over)

    def _subscribe(self, command: Subscribe) -> Coroutine[Any, Any, Result]:
        begun = self._subscription(command)
        # Nobody is there to be told of an approval: a lease is refused until its owner is admitted.
        return begun() if command.qos is Qos.PULLED else self.approvals.subscribe(command, begun)

    def _subscription(self, command: Subscribe) -> Callable[[], Coroutine[Any, Any, Result]]:
        """Give a subscription its place among its sender's commands, and what waits for it."""
        if owns(command):
            return partial(self.owners.subscribe, command, self.subscriptions.subscribe)
        return partial(self.subscriptions.subscribe, command, self._calls.begin(command))
