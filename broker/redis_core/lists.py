"""Lists of who is subscribed where, and of who has which affiliation: for whom they are about, and for a node's owner.

An index by JID says where to look and the node's own records what is so: an entry without its truth is passed over.
Must not know what may be done about any of it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from broker import keys
from broker.model.access import Affiliations, ListSubscribers, Subscriptions
from broker.model.names import Jid, Partition, bare
from broker.model.nodes import Affiliation, NodeRecord
from broker.model.results import AffiliationList, Refused, Result, SubscriptionList
from broker.model.subscriptions import State, Subscription
from broker.redis_core.calls.call import subid
from broker.redis_core.directory import Directory, Seat
from broker.redis_core.internal import GONE, Ask, Scanned, Subscribers
from broker.redis_core.nodes import with_admins
from broker.redis_core.pending import PendingList
from broker.redis_core.policy import refusal
from broker.redis_core.roster import Roster
from broker.redis_core.server import Server

SHOWN: Final = 1_000
"""Subscribers of one node that an owner is shown at once."""


class Lists:
    """Answers what asks for a list."""

    def __init__(  # noqa: PLR0913  (what it reads)
        self,
        server: Server,
        directory: Directory,
        roster: Roster,
        pending: PendingList,
        *,
        admins: frozenset[Jid],
        ask: Ask,
    ) -> None:
        """Read keys from `server`, and partitions by `ask`."""
        self._server = server
        self._directory = directory
        self._roster = roster
        self._pending = pending
        self._admins = admins
        self._ask = ask

    async def subscriptions(self, command: Subscriptions) -> Result:
        """List the sender's own (P10)."""
        if command.node is not None and await self._directory.read(command.node) is None:
            return GONE
        seats = [seat for seat in await self._directory.seats(command.sender) if command.node in {None, seat.node}]
        found = dict.fromkeys(await self._taken(seats), State.SUBSCRIBED)
        for seat in await self._pending.of(command.sender):
            if command.node in {None, seat.node}:
                found.setdefault(seat, State.PENDING)
        ordered = sorted(found.items(), key=lambda entry: (entry[0].node, entry[0].jid))
        return SubscriptionList(tuple(_subscription(seat, state) for seat, state in ordered))

    async def affiliations(self, command: Affiliations) -> Result:
        """List the sender's own (P10)."""
        whose = bare(command.sender)
        if command.node is None:
            return AffiliationList(tuple(await self._directory.standings(whose)))
        record = await self._read(command.node)
        if record is None:
            return GONE
        standing = record.affiliation(whose)
        return AffiliationList(() if standing is Affiliation.NONE else ((record.name, standing),))

    async def subscribers(self, command: ListSubscribers) -> Result:
        """List who is subscribed, for an owner; those who wait are not among them (XEP-0060 §8.8.1.2)."""
        record = await self._read(command.node)
        if record is None:
            return GONE
        if refused := refusal(command, record):
            return refused
        members = await self._roster.members(record.name)
        # A member of a group has its credit in the partitions that it owns, if it owns any.
        jids = {member.jid: (0, 0) for member in members.values()}
        for partition in record.partitions:
            scan, ended = "0", len(jids) > SHOWN
            while not ended:
                part = await self._ask(Subscribers(record.name, scan, partition.number))
                if isinstance(part, Refused):
                    return part
                if not isinstance(part, Scanned):
                    break
                for jid, credit, holding in zip(part.jids, part.credits, part.holdings, strict=True):
                    has, holds = jids.get(jid, (0, 0))
                    jids[jid] = (has + credit, holds + holding)
                scan = part.scan
                ended = scan == "0" or len(jids) > SHOWN
        shown = sorted(jids)[:SHOWN]
        listed = tuple(Subscription(record.name, jid, subid(jid), State.SUBSCRIBED, *jids[jid]) for jid in shown)
        return SubscriptionList(listed, more=len(jids) > SHOWN)

    async def states(self, record: NodeRecord, jids: Iterable[Jid]) -> dict[Jid, State]:
        """Tell how far the subscriptions of these JIDs to a node have come."""
        seats = [Seat(record.name, jid) for jid in dict.fromkeys(jids)]
        taken = set(await self._taken(seats))
        waiting = await self._pending.all(record.name)
        found = {seat.jid: State.PENDING if seat.jid in waiting else State.NONE for seat in seats}
        return found | {seat.jid: State.SUBSCRIBED for seat in taken}

    async def _taken(self, seats: Sequence[Seat]) -> list[Seat]:
        """Give those of the seats that are subscribed: members of groups, and whoever a partition knows."""
        nodes = list(dict.fromkeys(seat.node for seat in seats))
        partitions: dict[str, list[Partition]] = {node: [] for node in nodes}
        for partition in await self._directory.partitions(nodes):
            partitions[partition.node].append(partition)
        there = [seat for seat in seats if partitions[seat.node]]
        found = await self._known(there, lambda seat: keys.of_node("members", seat.node))
        found |= await self._known(
            [seat for seat in there if seat not in found],
            lambda seat: keys.of_partition("subscribers", partitions[seat.node][0]),
        )
        # Who shares a node or reads it is known in all of its partitions; who owns some of them, in those alone.
        for seat in there:
            if seat not in found:
                others = [keys.of_partition("subscribers", each) for each in partitions[seat.node][1:]]
                asked = [("HEXISTS", name, subid(seat.jid)) for name in others]
                if any(await self._server.commands(asked)):
                    found.add(seat)
        return [seat for seat in there if seat in found]

    async def _known(self, seats: Sequence[Seat], key: Callable[[Seat], str]) -> set[Seat]:
        asked = [("HEXISTS", key(seat), subid(seat.jid)) for seat in seats]
        return {seat for seat, there in zip(seats, await self._server.commands(asked), strict=True) if there}

    async def _read(self, node: str) -> NodeRecord | None:
        record = await self._directory.read(node)
        return record and with_admins(record, self._admins)


def _subscription(seat: Seat, state: State) -> Subscription:
    return Subscription(seat.node, seat.jid, subid(seat.jid), state)
