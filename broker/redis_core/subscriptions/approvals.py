"""Subscriptions that need an owner's approval (XEP-0060 §8.6): they are stored, owners decide, and they are made or refused.

An approval makes the subscriber a member, so that it may subscribe again without a new approval. `decide_pending` does what
follows from the node's record and is idempotent: if a frontend dies after the affiliation is stored, the next background scan
continues. Must not know how a subscription is made, or any door.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from broker.model.commands import (
    Approve,
    ListPending,
    ListRequests,
    ManageSubscribers,
    SendPending,
    Subscribe,
    Unsubscribe,
)
from broker.model.items.items import ApprovalAsked, Notice, SubscriptionChanged
from broker.model.names import Jid, bare_jid, is_account
from broker.model.nodes.nodes import Affiliation, NodeRecord
from broker.model.nodes.subscriptions import Change, State, Subscription
from broker.model.problems import Problem
from broker.model.results import Done, Listing, Managed, Refused, Result, Subscribed, SubscriptionList, Unsubscribed
from broker.redis_core.commands.internal import GONE
from broker.redis_core.operations.operation import subid
from broker.redis_core.records.pending_requests import PendingList
from broker.redis_core.records.store import NodeStore
from broker.redis_core.registry.admission import admit
from broker.redis_core.registry.rows import refusal
from broker.redis_core.subscriptions.queries import SubscriptionQueries

_ASKED_MOST: Final = 100
"""Owners that are notified of one request; the others find it by `ListPending`."""


class SubscriberDecisions(Protocol):
    """Carries out a decision about subscribers."""

    async def make(self, command: Subscribe) -> Result:
        """Make a subscription."""

    async def remove(self, node: str, jid: Jid, whose: str = "") -> tuple[str, ...]:
        """End subscriptions and return their subids; the subscriber is notified of each lock that ends."""

    async def assign(self, record: NodeRecord, changes: Mapping[Jid, str]) -> Refused | None:
        """Change affiliations and apply the consequences."""


class Approvals:
    """Carries out commands about approvals."""

    def __init__(
        self,
        store: NodeStore,
        pending: PendingList,
        lists: SubscriptionQueries,
        subscribers: SubscriberDecisions,
        notify: Callable[[Notice], None],
    ) -> None:
        """Make and end subscriptions by `subscribers`; `notify` sends notices to subscribers and owners."""
        self._store = store
        self._pending = pending
        self._lists = lists
        self._subscribers = subscribers
        self._notify = notify

    async def remove(self, node: str, jid: Jid) -> tuple[str, ...]:
        """End a JID's subscriptions and return their subids."""
        return await self._subscribers.remove(node, jid)

    async def subscribe(self, command: Subscribe, begun: Callable[[], Awaitable[Result]]) -> Result:
        """Store a subscription that needs approval, and ask the owners."""
        result = await begun()
        if not (isinstance(result, Refused) and result.problem is Problem.APPROVAL_REQUIRED):
            return result
        # The stored record: administrators count as owners of every node and are not notified.
        record = await self._store.read(command.node)
        if record is None:
            return GONE
        first = await self._pending.add(record, command)
        if isinstance(first, Refused):
            return first
        asked = _subscription(command.node, command.jid, State.PENDING)
        if first:
            # Once for a bare JID: a worker that returns under new resources makes the same request.
            # Neither a domain nor a group reads messages.
            owners = [jid for jid, has in record.affiliations.items() if has is Affiliation.OWNER and is_account(jid)]
            for owner in owners[:_ASKED_MOST]:
                self._notify(ApprovalAsked(owner, asked))
        # An owner may have decided before the request was stored.
        await self.decide_pending(command.node)
        if not await self._pending.waits(command.node, command.jid):
            return await self._subscribers.make(replace(command, again=True))
        asks = (command.jid, asked.subid, command.credit or 0, command.qos)
        return Subscribed(*asks, state=State.PENDING, batch=command.batch)

    async def unsubscribe(self, command: Unsubscribe, begun: Callable[[], Awaitable[Result]]) -> Result:
        """Finish an unsubscribe; a request that waits for approval is withdrawn."""
        result = await begun()
        if isinstance(result, Refused) and result.problem is not Problem.NOT_SUBSCRIBED:
            return result
        if await self._pending.remove(command.node, command.jid):
            return Unsubscribed(command.jid, subid(command.jid))
        return result

    async def approve(self, command: Approve) -> Result:
        """Carry out an owner's decision."""
        record = await admit(self._store, command, command.node)
        if isinstance(record, Refused):
            return record
        if command.subid not in {"", subid(command.jid)}:
            return Refused(Problem.SUBID_INVALID, "the subid does not belong to this subscription")
        # A decision is about the bare JID, like the affiliation that it sets. Without a request, another owner has decided or the
        # subscriber has withdrawn it.
        asked = [jid for jid in await self._pending.all(command.node) if bare_jid(jid) == bare_jid(command.jid)]
        if command.allow and asked:
            return await self._admit(record, asked) or Done()
        for jid in asked:
            await self._refuse(command.node, jid)
        return Done()

    async def manage(self, command: ManageSubscribers) -> Result:
        """Change subscriptions one by one; returns those that could not be changed (P26)."""
        record = await admit(self._store, command, command.node)
        if isinstance(record, Refused):
            return record
        before = await self._lists.states(record, [change.jid for change in command.changes])
        named = {change: _find_named(change, before[change.jid]) for change in command.changes}
        for change, those in named.items():
            if change.state == State.NONE.value:
                await self._end(command.node, change, those)
        approved = [
            change.jid
            for change, those in named.items()
            if change.state == State.SUBSCRIBED.value and any(each.state is State.PENDING for each in those)
        ]
        if approved:
            await self._admit(record, approved)
        after = await self._lists.states(record, [change.jid for change in command.changes])
        failed: list[Subscription] = []
        for change, those in named.items():
            now = _find_named(change, after[change.jid]) or (
                Subscription(command.node, change.jid, change.subid, State.NONE),
            )
            kept = [each for each in now if each.state.value != change.state]
            failed += kept if those else after[change.jid]
        return Managed(tuple(failed))

    async def list_pending(self, command: ListPending) -> Result:
        """List nodes with pending requests: the sender's own, and for an administrator the first of all."""
        if self._store.roles.lets(command):
            names = list(await self._store.names())
        else:
            held = await self._store.affiliations_of(bare_jid(command.sender))
            names = [node for node, affiliation in held if affiliation is Affiliation.OWNER]
        counts = await self._pending.counts(names)
        return Listing(tuple(name for name, count in zip(names, counts, strict=True) if count))

    async def list_requests(self, command: ListRequests | SendPending) -> SubscriptionList | Refused:
        """List the pending requests of a node, one of each bare JID."""
        record = await admit(self._store, command, command.node)
        if isinstance(record, Refused):
            return record
        asked = {bare_jid(jid): jid for jid in await self._pending.all(command.node)}
        return SubscriptionList(tuple(_subscription(command.node, jid, State.PENDING) for jid in asked.values()))

    async def send(self, command: SendPending) -> Result:
        """Send an owner all pending requests of a node."""
        found = await self.list_requests(command)
        if isinstance(found, Refused):
            return found
        for each in found.subscriptions:
            self._notify(ApprovalAsked(command.sender, each))
        return Done()

    async def decide_pending(self, node: str) -> None:
        """Make the pending subscriptions that the node's record now admits, and refuse those that it forbids."""
        waiting = await self._pending.all(node)
        record = await self._store.read_with_admins(node) if waiting else None
        if record is None:
            return
        # They were asked for over XMPP, which knows no tokens.
        record = replace(record, groups_of=None)
        for jid, command in waiting.items():
            refused = refusal(command, record)
            if refused is None:
                await self._make(node, jid)
            elif refused.problem is not Problem.APPROVAL_REQUIRED:
                await self._refuse(node, jid)

    async def end_all(self, node: str) -> list[Jid]:
        """Remove all pending requests without notices; returns their JIDs."""
        return [jid for jid in await self._pending.jids(node) if await self._pending.remove(node, jid)]

    async def _admit(self, record: NodeRecord, jids: list[Jid]) -> Refused | None:
        """Make JIDs without an affiliation members; that decides their requests too."""
        strangers = {bare_jid(jid): Affiliation.MEMBER.value for jid in jids}
        new = {jid: member for jid, member in strangers.items() if record.affiliation(jid) is Affiliation.NONE}
        if new:
            return await self._subscribers.assign(record, new)
        await self.decide_pending(record.name)
        return None

    async def _make(self, node: str, jid: Jid) -> None:
        claimed = await self._pending.claim(node, jid)
        if claimed is None:
            return
        result = await self._subscribers.make(claimed.command)
        if isinstance(result, Refused) and (result.problem.retryable or result.problem is Problem.APPROVAL_REQUIRED):
            # It stays pending and is tried again.
            return
        ended = await self._pending.remove(node, jid, claimed.stamp)
        if ended:
            made = isinstance(result, Subscribed)
            self._notify_state(node, jid, State.SUBSCRIBED if made else State.NONE)
        elif ended is False and isinstance(result, Subscribed):
            # The subscriber withdrew the request while the subscription was being made.
            await self._subscribers.remove(node, jid, result.subid)

    async def _refuse(self, node: str, jid: Jid) -> None:
        if await self._pending.remove(node, jid):
            self._notify_state(node, jid, State.NONE)

    async def _end(self, node: str, change: Change, those: Sequence[Subscription]) -> None:
        if any(each.state is State.PENDING for each in those):
            await self._refuse(node, change.jid)
        if any(each.state is State.SUBSCRIBED for each in those):
            for ended in await self._subscribers.remove(node, change.jid, change.subid):
                self._notify(SubscriptionChanged(Subscription(node, change.jid, ended, State.NONE)))

    def _notify_state(self, node: str, jid: Jid, state: State) -> None:
        self._notify(SubscriptionChanged(_subscription(node, jid, state)))


def _find_named(change: Change, those: Sequence[Subscription]) -> tuple[Subscription, ...]:
    """Return the subscriptions that a change names: without a subid all of the JID."""
    return tuple(each for each in those if change.subid in {"", each.subid})


def _subscription(node: str, jid: Jid, state: State) -> Subscription:
    return Subscription(node, jid, subid(jid), state)
