"""Who owns which partition: members of groups, and who names partitions; heartbeats; what follows when one comes or goes.

A script decides each attach by itself; here is only the order of several, and what is done again until nothing is left to
do. All of it is idempotent, so that any frontend may go on where another has stopped. Must not know credit or any door.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakValueDictionary

from broker.model.commands import Keep, Options, Subscribe
from broker.model.groups import DEFAULT_GROUP, share
from broker.model.items import Notice, Owned, OwnershipGained, OwnershipLost
from broker.model.names import Jid
from broker.model.nodes import NodeRecord
from broker.model.problems import Problem
from broker.model.results import Kept, Refused, Result, Subscribed
from broker.redis_core.commands.internal import GONE, AcquirePartition, Ask, Leave, ReleasePartition, RenewOwnership
from broker.redis_core.commands.repeated import leave_empty
from broker.redis_core.groups.rebalancing import Move, handing_over, moves
from broker.redis_core.operations.operation import subid, subids
from broker.redis_core.operations.subscriptions import UNSELECTED
from broker.redis_core.records.group_members import GroupMembers, Member, PartitionOwnership
from broker.redis_core.records.store import NodeStore
from broker.redis_core.registry.rows import refusal
from broker.redis_core.subscriptions import log_readers
from broker.tasks import start

_ATTEMPTS = 10
"""How often a spread is computed anew at most when others change it meanwhile; the rest is left to the next visit."""

_PAUSE_SECONDS = 0.005

_STREAM = Refused(Problem.OPTIONS_INVALID, "a stream takes nothing from others, so its partitions are not owned")
_FULL = Refused(Problem.TOO_MANY_SUBSCRIPTIONS, "the node has as many members of groups as it may")


def owns(command: Subscribe) -> bool:
    """Tell whether a subscription is to own what it asks for: a partition that is named is shared with nobody (E8, E10)."""
    return bool(command.partitions and not command.start) or bool(command.group) or command.epoch is not None


Attend = Callable[[Subscribe, "asyncio.Future[Any]"], Awaitable[Result]]
"""Finishes a subscription that is under way: presence is to find it."""


class Ownership:
    """Carries out what concerns the ownership of partitions."""

    def __init__(
        self,
        members: GroupMembers,
        store: NodeStore,
        ask: Ask,
        changed: Callable[[str], None],
        notify: Callable[[Notice], None],
    ) -> None:
        """Ask pipelines by `ask`, which hear by `changed` that a node may have grown; `notify` tells owners."""
        self._notify = notify
        self._store = store
        self._members = members
        self._ask = ask
        self._changed = changed
        self._spreads: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._awaited: dict[str, asyncio.Task[None]] = {}

    async def hindrance(self, command: Subscribe) -> Refused | None:
        """Refuse what no attach is needed to refuse, and so nothing is changed for (E7, E26)."""
        record = await self._store.read_with_admins(command.node)
        if record is None:
            return GONE
        # Pipelines may know the node as it was before it grew.
        self._changed(command.node)
        if log_readers.reads(command, record):
            return _STREAM if command.group or command.epoch is not None else None
        return refusal(command, record) or _misfit(command, record)

    async def subscribe(self, command: Subscribe, attend: Attend) -> Result:
        """Attach an owner: to all that it asks for, or to none of it; or to what falls to it in its group.

        `attend` subscribes it, once nothing hinders it.
        """
        return await self.hindrance(command) or await attend(command, start(self._attach(command)))

    async def _attach(self, command: Subscribe) -> Result:
        record = await self._store.read_with_admins(command.node)
        if record is None:
            return GONE
        if log_readers.reads(command, record):
            # A log's partitions are read where they are named, and nobody owns them.
            return await self._ask(command)  # type: ignore[return-value]
        whose = subid(command.jid)
        had = {each.partition for each in await self._members.standings(record) if each.subid == whose}
        return await (
            self._attach_named(command, record, had) if command.partitions else self._joined(command, record, had)
        )

    async def keep(self, command: Keep) -> Result:
        """Renew the leases of all that the sender owns (EX16)."""
        record = await self._store.read_with_admins(command.node)
        if record is None:
            return GONE
        if refused := refusal(command, record):
            return refused
        return Kept(await self._kept(record, command.sender, subids(command.sender).split()))

    async def options(self, command: Options, outcome: asyncio.Future[Any]) -> Result:
        """Tell what a subscription owns; `outcome` is what the coordinator knows, nothing unless it shares the node."""
        record = await self._store.read_with_admins(command.node)
        known: Result = await outcome
        if record is None or (isinstance(known, Refused) and known.problem is not Problem.NOT_SUBSCRIBED):
            return known
        member = await self._members.member(command.node, command.jid)
        owned = await self._kept(record, command.jid, [subid(command.jid)])
        if not (member or owned):
            return known
        group = member.group if member else owned[0].group
        credit = member.credit if member else sum(each.credit for each in owned)
        return Subscribed(command.jid, subid(command.jid), credit, group=group, owned=owned)

    async def _kept(self, record: NodeRecord, sender: Jid, whose: Sequence[str]) -> tuple[Owned, ...]:
        mine = [each for each in await self._members.standings(record) if each.subid in whose]
        kept = await asyncio.gather(*(self._ask(RenewOwnership(record.name, sender, each.partition)) for each in mine))
        return tuple(owned for owned in kept if isinstance(owned, Owned))

    async def takes_part(self, node: str, jid: Jid) -> bool:
        """Tell whether somebody is a member of a group."""
        return await self._members.member(node, jid) is not None

    async def left(self, node: str, jid: Jid) -> bool:
        """Strike off one who has left and let others have what it owned; gives whether it was a member."""
        record = await self._store.read_with_admins(node)
        if record is None:
            return False
        struck = await self._members.strike(record, jid)
        if struck.others:
            await self.settle(node)
        return struck.was

    async def lost(self, notice: OwnershipLost) -> None:
        """Do what follows when a partition has been lost without its owner's doing."""
        record = await self._store.read_with_admins(notice.node)
        if record is None:
            return
        member = await self._members.member(notice.node, notice.subscriber)
        if member is not None and notice.reason in {"lapsed", "gone"}:
            # Who does not say that it is there leaves its group: else what it is given would wait for it again and again.
            await self._members.strike(record, notice.subscriber)
            whose = subid(notice.subscriber)
            theirs = [each.partition for each in await self._members.standings(record) if each.subid == whose]
            asked = [ReleasePartition(notice.node, notice.subscriber, number, notice.reason) for number in theirs]
            await asyncio.gather(*map(self._ask, asked))
        if notice.reason != "moved":
            await self.settle(notice.node)

    async def settle(self, node: str) -> None:
        """Spread partitions over the members of groups anew, until nothing is left to be handed over.

        Whoever asks while one spread is being computed waits for the next, and that is one for all who do: a thousand
        partitions that are lost at once are no reason for a thousand.
        """
        awaited = self._awaited.get(node)
        if awaited is None:
            awaited = self._awaited[node] = start(self._settle_next(node))
        await asyncio.shield(awaited)

    async def _settle_next(self, node: str) -> None:
        async with self._spreads.setdefault(node, asyncio.Lock()):
            del self._awaited[node]
            await self._settle(node)

    async def _settle(self, node: str) -> None:
        planned: list[Move] = []
        for attempt in range(_ATTEMPTS):
            if attempt:
                # Frontends that spread at the same time must not go on undoing each other's work in step.
                await asyncio.sleep(random.uniform(0, _PAUSE_SECONDS * 2**attempt))  # noqa: S311  (guards nothing)
            members = await self._members.members(node)
            # Who left while something was handed over to it may have gone before it had it.
            late = [move for move in planned if subid(move.member.jid) not in members]
            await asyncio.gather(*(self._take_away(node, move) for move in late))
            record = await self._store.read_with_admins(node) if members else None
            if record is None:
                return
            standings = await self._members.standings(record)
            if await self._divided(record, members, standings):
                continue
            planned = moves(members, standings)
            if not any(await asyncio.gather(*(self._hand_over(record, move) for move in planned))):
                return

    async def _divided(
        self, record: NodeRecord, members: Mapping[str, Member], standings: Sequence[PartitionOwnership]
    ) -> bool:
        """Divide the credit of members anew whose node has grown; False when there is none.

        What such a member owns is handed over to itself: with all its locks ended, it holds nothing beyond its new part when
        it gets more partitions (guarantee 3).
        """
        count = record.config.partitions
        outgrown = [name for name, member in members.items() if member.share > share(member.credit, count)]
        for name in outgrown:
            member = replace(members[name], share=share(members[name].credit, count))
            theirs = [each for each in standings if each.subid == name and each.group == member.group]
            await asyncio.gather(*(self._hand_over(record, Move(member, standing)) for standing in theirs))
            await self._members.join(record, member)
        return bool(outgrown)

    async def _hand_over(self, record: NodeRecord, move: Move) -> bool:
        """Let a member have a partition; False when there is nothing to be gained by thinking of it anew."""
        if not move.given:
            await self._take_away(record.name, move)
            # Another group may have a member who waits for it.
            return True
        outcome = await self._ask(handing_over(record.name, move))
        match outcome:
            case Owned():
                self._notify(OwnershipGained(record.name, move.member.jid, outcome))
                return True
            case Refused(
                problem=Problem.FORBIDDEN
                | Problem.CLOSED_NODE
                | Problem.APPROVAL_REQUIRED
                | Problem.TOO_MANY_SUBSCRIPTIONS
            ):
                await self._members.strike(record, move.member.jid)
                return True
        # It has changed hands meanwhile, or it is another's now.
        return isinstance(outcome, Refused) and outcome.problem is Problem.UNAVAILABLE

    async def _take_away(self, node: str, move: Move) -> None:
        await self._ask(ReleasePartition(node, move.member.jid, move.standing.partition, "moved"))

    async def _attach_named(self, command: Subscribe, record: NodeRecord, had: set[int]) -> Result:
        numbers = sorted(set(command.partitions))
        attaches = [
            AcquirePartition(
                command.node,
                command.sender,
                command.jid,
                credit,
                command.qos,
                command.group or DEFAULT_GROUP,
                command.epoch,
                number,
            )
            for number, credit in zip(numbers, _parts(_credit(command), len(numbers)), strict=True)
        ]
        # Asked first, so that nobody is put out, and nothing that was had is given up, for what cannot be had as a whole.
        for outcome in await asyncio.gather(*(self._ask(replace(attach, dry=True)) for attach in attaches)):
            if isinstance(outcome, Refused):
                return outcome
        # Whoever names partitions is no longer one whose partitions the service chooses, or gives back.
        member = await self._members.member(command.node, command.jid)
        await self._members.strike(record, command.jid)
        # What was its own and is asked for no more goes first: its credit is to lie in the others.
        await self._detach(command, had.difference(numbers))
        await self._unshare(command, had)
        less, rest = await self._parted(command, record, attaches)
        outcomes = [*await asyncio.gather(*map(self._ask, less)), *await asyncio.gather(*map(self._ask, rest))]
        owned = tuple(sorted((each for each in outcomes if isinstance(each, Owned)), key=lambda each: each.partition))
        refused = next((outcome for outcome in outcomes if isinstance(outcome, Refused)), None)
        if refused:
            await self._detach(command, {each.partition for each in owned} - had)
            if member is not None:
                await self._members.join(record, member)
        await self.settle(command.node)
        return refused or self._subscribed(command, owned)

    async def _parted(
        self, command: Subscribe, record: NodeRecord, attaches: Sequence[AcquirePartition]
    ) -> tuple[list[AcquirePartition], list[AcquirePartition]]:
        """Part those whose credit becomes less, which go first, so that it never holds more than it asks for (guarantee 3)."""
        kept = await self._kept(record, command.sender, [subid(command.jid)])
        credit = {owned.partition: owned.credit for owned in kept}
        less = [attach for attach in attaches if attach.credit < credit.get(attach.partition, 0)]
        return less, [attach for attach in attaches if attach not in less]

    async def _joined(self, command: Subscribe, record: NodeRecord, had: set[int]) -> Result:
        credit = _credit(command)
        each = share(credit, record.config.partitions)
        member = Member(command.group, credit, each, command.qos, command.jid)
        before = await self._members.member(command.node, command.jid)
        if not await self._members.join(record, member):
            return _FULL
        if before is None or before.group != member.group:
            # What it had asked for itself or had in another group is not what falls to it now, nor is its credit there.
            had = set()
        await self._unshare(command, had)
        await self.settle(command.node)
        whose = subid(command.jid)
        mine = [found for found in await self._members.standings(record) if found.subid == whose]
        # Without an epoch: what it had already goes on, with what it asks for now.
        attaches = [
            AcquirePartition(
                command.node, command.sender, command.jid, each, command.qos, command.group, None, standing.partition
            )
            for standing in mine
            if standing.group == command.group
        ]
        outcomes = await asyncio.gather(*map(self._ask, attaches))
        return self._subscribed(command, tuple(outcome for outcome in outcomes if isinstance(outcome, Owned)))

    async def _unshare(self, command: Subscribe, had: set[int]) -> None:
        """End the subscription of one who shared the node with others until now: a JID has one, and its credit once."""
        if not had:
            await leave_empty(self._ask, Leave(command.node, command.jid))

    async def _detach(self, command: Subscribe, partitions: set[int]) -> None:
        asked = [ReleasePartition(command.node, command.jid, number) for number in sorted(partitions)]
        await asyncio.gather(*map(self._ask, asked))

    def _subscribed(self, command: Subscribe, owned: tuple[Owned, ...]) -> Subscribed:
        group = command.group or DEFAULT_GROUP
        return Subscribed(command.jid, subid(command.jid), _credit(command), command.qos, group=group, owned=owned)


def _credit(command: Subscribe) -> int:
    """Give the credit that an owner asks for: whoever asks for none has been refused."""
    return command.credit or 0


def _misfit(command: Subscribe, record: NodeRecord) -> Refused | None:  # noqa: PLR0911  (a table of cases)
    group, count = command.group or DEFAULT_GROUP, record.config.partitions
    unknown = [number for number in command.partitions if not 0 <= number < count]
    if not record.config.admits(group):
        return Refused(Problem.GROUP_NOT_FOUND, f"the node has no group {group}")
    if unknown:
        return Refused(Problem.PARTITION_NOT_FOUND, f"the node has no partition {unknown[0]}: it has {count}")
    if command.epoch is not None and not command.partitions:
        return Refused(Problem.OPTIONS_INVALID, "an epoch is of a partition: name it")
    if command.credit is None:
        return Refused(Problem.OPTIONS_REQUIRED)
    if command.selector:
        return Refused(Problem.OPTIONS_INVALID, UNSELECTED)
    if command.credit < len(set(command.partitions)):
        return Refused(Problem.OPTIONS_INVALID, "an owner has at least one credit for each of its partitions")
    return None


def _parts(credit: int, count: int) -> list[int]:
    """Divide an owner's credit over its partitions, of which each has one at least."""
    least, over = divmod(credit, count)
    return [least + (place < over) for place in range(count)]
