"""Lists of subscriptions and affiliations, for the subscriber and for a node's owner.

An index by JID says where to look; the node's own records decide, so an outdated entry is skipped. Must not know how
subscriptions are changed.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from broker import keys
from broker.model.commands import Affiliations, ListSubscribers, Subscribe, Subscriptions
from broker.model.names import Jid, Partition, bare_jid
from broker.model.nodes.nodes import MAX_SUBSCRIBERS, Affiliation, NodeRecord
from broker.model.nodes.pull_subscriptions import is_lease_record, lease_seconds
from broker.model.nodes.subscriptions import State, Subscription
from broker.model.pages import Page
from broker.model.results import AffiliationList, Refused, Result, SubscriptionList
from broker.redis_core.commands.internal import GONE, Ask
from broker.redis_core.commands.repeated import subscribers
from broker.redis_core.operations.operation import subid
from broker.redis_core.records.group_members import GroupMembers
from broker.redis_core.records.jid_indexes import Entry
from broker.redis_core.records.pending_requests import PendingList
from broker.redis_core.records.store import NodeStore, SubscriptionRef
from broker.redis_core.redis_client.client import Server
from broker.redis_core.redis_client.connections import Line
from broker.redis_core.registry.admission import admit

SHOWN: Final = 1_000
"""Subscribers of a node that an owner sees at once."""

_AT_ONCE: Final = 1_000


class SubscriptionQueries:
    """Answers list commands."""

    def __init__(
        self,
        server: Server,
        store: NodeStore,
        members: GroupMembers,
        pending: PendingList,
        ask: Ask,
    ) -> None:
        """Read keys from `server`, and partitions by `ask`."""
        self._server = server
        self._store = store
        self._members = members
        self._pending = pending
        self._ask = ask

    async def subscriptions(self, command: Subscriptions) -> Result:
        """List the sender's subscriptions (P10)."""
        if command.node is not None and await self._store.read(command.node) is None:
            return GONE
        refs = [ref for ref in await self._store.subscription_refs(command.sender) if command.node in {None, ref.node}]
        existing = await self._existing(refs)
        found = [each for theirs in existing.values() for each in theirs]
        waiting = [ref for ref in await self._pending.of(command.sender) if command.node in {None, ref.node}]
        found += [_subscription(ref, State.PENDING) for ref in waiting if ref not in existing]
        return SubscriptionList(tuple(sorted(found, key=lambda each: (each.node, each.jid))))

    async def affiliations(self, command: Affiliations) -> Result:
        """List the sender's affiliations (P10)."""
        whose = bare_jid(command.sender)
        if command.node is None:
            return AffiliationList(tuple(await self._store.affiliations_of(whose)))
        record = await self._store.read_with_admins(command.node)
        if record is None:
            return GONE
        affiliation = record.affiliation_of(command)
        return AffiliationList(() if affiliation is Affiliation.NONE else ((record.name, affiliation),))

    async def subscribers(self, command: ListSubscribers) -> Result:
        """List the subscribers of a node for an owner, without pending ones (XEP-0060 §8.8.1.2)."""
        record = await admit(self._store, command, command.node)
        if isinstance(record, Refused):
            return record
        members = await self._members.members(record.name)
        # Pages are sorted, so all subscribers must be read first.
        most = SHOWN if command.page is None else MAX_SUBSCRIBERS
        # A group member's credit lies in the partitions that it owns, if any.
        found = {(member.jid, whose): (0, 0) for whose, member in members.items()}
        for partition in record.partitions:
            if len(found) > most:
                break
            async for part in subscribers(self._ask, record.name, partition.number):
                if isinstance(part, Refused):
                    return part
                # Subscribers through a collection are shown by their JIDs.
                names = (whose or subid(jid) for jid, whose in zip(part.jids, part.subids, strict=True))
                theirs = zip(part.credits, part.holdings, strict=True)
                for who, (credit, holding) in zip(zip(part.jids, names, strict=True), theirs, strict=True):
                    has, holds = found.get(who, (0, 0))
                    found[who] = (has + credit, holds + holding)
                if len(found) > most:
                    break
        listed = [Subscription(record.name, *who, State.SUBSCRIBED, *parts) for who, parts in found.items()]
        shown = _cut_page(listed, command.page)
        return replace(shown, subscriptions=await self._name_clients(shown.subscriptions))

    async def _name_clients(self, subscriptions: Sequence[Subscription]) -> tuple[Subscription, ...]:
        entries = [SubscriptionRef(each.node, each.jid).entry for each in subscriptions]
        clients = await self._commands([("HGET", keys.of_jid("clients", whose), member) for whose, member in entries])
        return tuple(
            replace(each, client=(client or b"").decode()) for each, client in zip(subscriptions, clients, strict=True)
        )

    async def states(self, record: NodeRecord, jids: Iterable[Jid]) -> dict[Jid, tuple[Subscription, ...]]:
        """Return the subscriptions of these JIDs to a node with their states; a JID without any has one in state `none`."""
        refs = [SubscriptionRef(record.name, jid) for jid in dict.fromkeys(jids)]
        existing = await self._existing(refs)
        waiting = await self._pending.all(record.name)

        def other(ref: SubscriptionRef) -> tuple[Subscription, ...]:
            return (_subscription(ref, State.PENDING if ref.jid in waiting else State.NONE),)

        return {ref.jid: tuple(existing.get(ref, ())) or other(ref) for ref in refs}

    async def has_most_leases(self, command: Subscribe) -> bool:
        """Return whether the owner of a new lease has as many on the node as it may; two at once may exceed that by one.

        Leases over several queues count together.
        """
        several = bool(command.destinations)
        found = await self._store.subscription_refs(command.jid)
        refs = [ref for ref in found if ref.node == command.node or (several and is_lease_record(ref.node))]
        leases = [ref for ref in refs if lease_seconds(ref.jid) and ref.jid != command.jid]
        return len(leases) >= command.most and len(await self._existing(leases)) >= command.most

    async def is_subscribed(self, node: str, jid: Jid) -> bool:
        """Return whether a bare JID is subscribed to a node, with any resource."""
        refs = [ref for ref in await self._store.subscription_refs(jid) if ref.node == node]
        return bool(await self._existing(refs))

    async def find_occupied(self, entries: Sequence[Entry]) -> set[Entry]:
        """Return the index entries whose JID is subscribed or still holds locks there (Q34)."""
        refs = {SubscriptionRef.of(entry): entry for entry in entries}
        existing = await self._existing(list(refs))
        rest = [ref for ref in refs if ref not in existing]
        partitions: dict[str, list[Partition]] = {ref.node: [] for ref in rest}
        for partition in await self._store.partitions(list(partitions)):
            partitions[partition.node].append(partition)
        there = [(ref, each, subid(ref.jid)) for ref in rest for each in partitions[ref.node]]
        asked: list[Line] = [
            ("ZCOUNT", keys.of_partition("locks_by_subscriber", each), name, name) for _ref, each, name in there
        ]
        # Without a subscription, the subids of a JID are stored only while it holds locks.
        asked += [("HEXISTS", keys.of_partition("subids", each), name) for _ref, each, name in there]
        holding = {ref for (ref, *_), count in zip(there * 2, await self._commands(asked), strict=True) if count}
        return {entry for ref, entry in refs.items() if ref in existing or ref in holding}

    async def _commands(self, lines: Sequence[Line]) -> list[Any]:
        replies: list[Any] = []
        for first in range(0, len(lines), _AT_ONCE):
            replies += await self._server.commands(lines[first : first + _AT_ONCE])
        return replies

    async def _existing(self, refs: Sequence[SubscriptionRef]) -> dict[SubscriptionRef, list[Subscription]]:
        """Return the subscriptions of the given JIDs; group members are looked up in `members`, others in each partition."""
        nodes = list(dict.fromkeys(ref.node for ref in refs))
        partitions: dict[str, list[Partition]] = {node: [] for node in nodes}
        for partition in await self._store.partitions(nodes):
            partitions[partition.node].append(partition)
        there = [ref for ref in refs if partitions[ref.node]]
        members = await self._having(there, lambda ref: keys.of_node("members", ref.node), _first)
        found = await self._read_subids(there, lambda ref: partitions[ref.node][0])
        # All partitions know a subscriber that shares or reads the node; an owner is known in its own partitions only.
        others = [(ref, each) for ref in there if not (members[ref] or found[ref]) for each in partitions[ref.node][1:]]
        asked = [("HEXISTS", keys.of_partition("subscribers", each), subid(ref.jid)) for ref, each in others]
        for (ref, _), known in zip(others, await self._commands(asked), strict=True):
            if known:
                members[ref] = _first(ref)
        names = {ref: members[ref] or found[ref] for ref in there}
        return {
            ref: [Subscription(ref.node, ref.jid, name, State.SUBSCRIBED) for name in theirs]
            for ref, theirs in names.items()
            if theirs
        }

    async def _read_subids(
        self, refs: Sequence[SubscriptionRef], first: Callable[[SubscriptionRef], Partition]
    ) -> dict[SubscriptionRef, Sequence[str]]:
        """Return the subids that a node's first partition knows; only where a JID had several they are stored."""
        asked = [("HGET", keys.of_partition("subids", first(ref)), subid(ref.jid)) for ref in refs]
        lines = dict(zip(refs, await self._commands(asked), strict=True))
        return await self._having(
            refs,
            lambda ref: keys.of_partition("subscribers", first(ref)),
            lambda ref: lines[ref].decode().split() if lines[ref] else _first(ref),
        )

    async def _having(
        self,
        refs: Sequence[SubscriptionRef],
        key: Callable[[SubscriptionRef], str],
        names: Callable[[SubscriptionRef], Sequence[str]],
    ) -> dict[SubscriptionRef, Sequence[str]]:
        """Return, of the names of each ref, those that its key has."""
        lines = await self._commands([("HMGET", key(ref), *names(ref)) for ref in refs])
        return {
            ref: [name for name, line in zip(names(ref), theirs, strict=True) if line is not None]
            for ref, theirs in zip(refs, lines, strict=True)
        }


def _first(ref: SubscriptionRef) -> Sequence[str]:
    return (subid(ref.jid),)


def _cut_page(subscriptions: Iterable[Subscription], page: Page | None) -> SubscriptionList:
    """Return a page of subscriptions to one node, in their order."""
    by_place = {each.place: each for each in subscriptions}
    places, wanted = sorted(by_place), page or Page(SHOWN)
    shown = tuple(by_place[place] for place in wanted.cut(places))
    more = len(shown) < len(places)
    return SubscriptionList(shown, more, wanted.first(places), len(places)) if page else SubscriptionList(shown, more)


def _subscription(ref: SubscriptionRef, state: State) -> Subscription:
    return Subscription(ref.node, ref.jid, subid(ref.jid), state)
