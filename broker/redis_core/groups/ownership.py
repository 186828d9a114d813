"""Ownership of partitions: joins, leaves, explicit assignments, ownership renewals, and the rebalancing that follows.

One operation decides each acquisition atomically. This module orders several and repeats until the assignment is balanced.
All steps are idempotent, so another frontend may continue them. Must not know credit or any door.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakValueDictionary

from broker.model.commands import Options, RenewOwnership, Subscribe
from broker.model.items.items import Notice, Owned, OwnershipGained, OwnershipLost
from broker.model.items.qos import Sending
from broker.model.names import Jid
from broker.model.nodes.groups import DEFAULT_GROUP, share
from broker.model.nodes.nodes import MAX_SUBSCRIBERS, NodeRecord
from broker.model.problems import Problem
from broker.model.results import OwnershipsRenewed, Refused, Result, Subscribed
from broker.redis_core.commands.internal import (
    GONE,
    AcquirePartition,
    Ask,
    Leave,
    Outcome,
    ReleasePartition,
    RenewPartition,
)
from broker.redis_core.commands.repeated import leave_empty
from broker.redis_core.groups.rebalancing import (
    Move,
    acquisition,
    find_changed,
    find_own_moves,
    plan_rebalance,
)
from broker.redis_core.operations.operation import subid, subids
from broker.redis_core.operations.subscriptions import UNSELECTED
from broker.redis_core.records.group_members import GroupMembers, Member, PartitionOwnership
from broker.redis_core.records.store import NodeStore
from broker.redis_core.registry.admission import admit
from broker.redis_core.registry.partitioner import FIRST_PARTITION
from broker.redis_core.registry.rows import refusal
from broker.redis_core.subscriptions import log_readers
from broker.tasks import start

_ATTEMPTS = 10
"""Rebalancing attempts while others change the assignment; the next sweep does the rest."""

_PAUSE_SECONDS = 0.005

_STREAM = Refused(Problem.OPTIONS_INVALID, "log readers share partitions, so they cannot own them")
_FULL = Refused(Problem.TOO_MANY_SUBSCRIPTIONS, "the node has as many members of groups as it may")


def owns(command: Subscribe) -> bool:
    """Return whether a subscription is to own partitions: an explicitly named partition is not shared (E8, E10)."""
    return bool(command.partitions and not command.start) or bool(command.group) or command.epoch is not None


Finish = Callable[[Subscribe, "asyncio.Future[Any]"], Awaitable[Result]]
"""Finishes a subscription that is under way and records it for presence."""


class Ownership:
    """Carries out commands about the ownership of partitions."""

    def __init__(self, members: GroupMembers, store: NodeStore, ask: Ask, notify: Callable[[Notice], None]) -> None:
        """Send commands by `ask`; `notify` sends a notice to an owner."""
        self._notify = notify
        self._store = store
        self._members = members
        self._ask = ask
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._next: dict[str, asyncio.Task[None]] = {}

    async def validate(self, command: Subscribe) -> Refused | None:
        """Refuse an invalid request before anything is changed (E7, E26)."""
        record = await self._store.read_with_admins(command.node)
        if record is None:
            return GONE
        if log_readers.makes_log_reader(command, record):
            return _STREAM if command.group or command.epoch is not None else None
        return refusal(command, record) or _invalid_options(command, record)

    async def subscribe(self, command: Subscribe, finish: Finish) -> Result:
        """Acquire all named partitions or none; without names, join the group and take a share.

        A valid request is subscribed through `finish`.
        """
        return await self.validate(command) or await finish(command, start(self._acquire(command)))

    async def _acquire(self, command: Subscribe) -> Result:
        record = await self._store.read_with_admins(command.node)
        if record is None:
            return GONE
        if log_readers.makes_log_reader(command, record):
            # Partitions of a log are read by name and have no owners.
            return await self._ask(command)  # type: ignore[return-value]
        mine = await self._owned_by(record, command.jid)
        if mine and await self._shares(command.node, command.jid):
            # A change to shared use was cut short: all of what it left ends.
            mine = []
        return await (
            self._acquire_named(command, record, mine)
            if command.partitions
            else self._join_group(command, record, mine)
        )

    async def renew(self, command: RenewOwnership) -> Result:
        """Renew all ownerships of the sender (EX16)."""
        record = await admit(self._store, command, command.node)
        if isinstance(record, Refused):
            return record
        return OwnershipsRenewed(await self._renew_all(record, command.sender, subids(command.sender).split()))

    async def options(self, command: Options, outcome: asyncio.Future[Any]) -> Result:
        """Return what a subscription owns; `outcome` is the first partition's answer, for a subscription that shares the node."""
        record = await self._store.read_with_admins(command.node)
        known: Result = await outcome
        if record is None or (isinstance(known, Refused) and known.problem is not Problem.NOT_SUBSCRIBED):
            return known
        member = await self._members.member(command.node, command.jid)
        owned = await self._renew_all(record, command.jid, [subid(command.jid)])
        if not (member or owned):
            return known
        group = member.group if member else owned[0].group
        credit = member.credit if member else sum(each.credit for each in owned)
        return Subscribed(command.jid, subid(command.jid), credit, group=group, owned=owned)

    async def _renew_all(self, record: NodeRecord, sender: Jid, whose: Sequence[str]) -> tuple[Owned, ...]:
        mine = [each for each in await self._members.ownerships(record) if each.subid in whose]
        renewed = await asyncio.gather(
            *(self._ask(RenewPartition(record.name, sender, each.partition)) for each in mine)
        )
        return tuple(owned for owned in renewed if isinstance(owned, Owned))

    async def has_members(self, node: str) -> bool:
        """Return whether the node has members of groups."""
        return await self._members.count(node) > 0

    async def remove_member(self, node: str, jid: Jid) -> bool:
        """Remove a member that left and reassign its partitions; returns whether it was a member."""
        record = await self._store.read_with_admins(node)
        if record is None:
            return False
        removed = await self._members.remove(record, jid)
        if member := removed.member:
            # A frontend that had planned before may have assigned it a partition since its subscription ended or changed.
            late = [each for each in await self._owned_by(record, jid) if each.group == member.group]
            await self._release_all(node, jid, late)
        if removed.others:
            await self.rebalance(node)
        return removed.member is not None

    async def handle_loss(self, notice: OwnershipLost) -> None:
        """Handle the involuntary loss of a partition."""
        record = await self._store.read_with_admins(notice.node)
        if record is None:
            return
        member = await self._members.member(notice.node, notice.subscriber)
        if member is not None and notice.reason in {"lapsed", "gone"}:
            # A member that stops renewing leaves its group: otherwise the group would keep assigning partitions to it.
            await self._members.remove(record, notice.subscriber)
            theirs = await self._owned_by(record, notice.subscriber)
            await self._release_all(notice.node, notice.subscriber, theirs, notice.reason)
        if notice.reason != "moved":
            await self.rebalance(notice.node)

    async def rebalance(self, node: str) -> None:
        """Rebalance partitions over group members until nothing is left to hand over.

        Callers that come during a rebalance share the next one: a thousand lost partitions must not cause a thousand of them.
        """
        waiting = self._next.get(node)
        if waiting is None:
            waiting = self._next[node] = start(self._rebalance_next(node))
        await asyncio.shield(waiting)

    async def _rebalance_next(self, node: str) -> None:
        async with self._locks.setdefault(node, asyncio.Lock()):
            del self._next[node]
            await self._rebalance(node)

    async def _rebalance(self, node: str) -> None:
        planned: list[Move] = []
        for attempt in range(_ATTEMPTS):
            if attempt:
                # A random pause keeps concurrent frontends from undoing each other's work in step.
                await asyncio.sleep(random.uniform(0, _PAUSE_SECONDS * 2**attempt))  # noqa: S311  (guards nothing)
            members = await self._members.members(node)
            # A member that left its group while a partition was being assigned to it may never have received it: take it back.
            late = [move for move in planned if not _is_member(move.member, members)]
            await asyncio.gather(*(self._release(node, move) for move in late))
            record = await self._store.read_with_admins(node) if members else None
            if record is None:
                return
            ownerships = await self._members.ownerships(record)
            # Who has changed since something was assigned to it gets that for what it asks for now.
            if changed := find_own_moves(find_changed(planned, members), ownerships):
                planned = changed
                await asyncio.gather(*(self._hand_over(record, move) for move in changed))
                continue
            planned = plan_rebalance(members, ownerships)
            if not any(await asyncio.gather(*(self._hand_over(record, move) for move in planned))):
                return

    async def _hand_over(self, record: NodeRecord, move: Move) -> bool:
        """Assign a partition to a member; returns whether another rebalancing attempt is worthwhile."""
        if not move.acquires:
            await self._release(record.name, move)
            # A member of another group may be waiting for it.
            return True
        wanted = acquisition(record.name, move)
        outcome = await self._ask(wanted)
        if _is_superseded(outcome) and not await self._shares(record.name, move.member.jid):
            # The partition alone knows it, from a time before it became a member.
            outcome = await self._ask(replace(wanted, alone=False))
        match outcome:
            case Owned():
                self._notify(OwnershipGained(record.name, move.member.jid, outcome))
                return True
            case Refused(
                problem=Problem.SUPERSEDED
                | Problem.FORBIDDEN
                | Problem.CLOSED_NODE
                | Problem.APPROVAL_REQUIRED
                | Problem.TOO_MANY_SUBSCRIPTIONS
            ):
                await self._members.remove_unchanged(record, move.member)
                return True
        # Stale: the partition has changed hands meanwhile, so plan anew.
        return isinstance(outcome, Refused) and outcome.problem is Problem.UNAVAILABLE

    async def _release(self, node: str, move: Move) -> None:
        await self._ask(ReleasePartition(node, move.member.jid, move.ownership.partition, move.member.group, "moved"))

    async def _acquire_named(
        self, command: Subscribe, record: NodeRecord, mine: Sequence[PartitionOwnership]
    ) -> Result:
        numbers = sorted(set(command.partitions))
        acquisitions = [
            AcquirePartition(
                command.node,
                command.sender,
                command.jid,
                credit,
                command.sending,
                command.group or DEFAULT_GROUP,
                command.epoch,
                number,
            )
            for number, credit in zip(numbers, _divide(_credit(command), len(numbers)), strict=True)
        ]
        # A dry run first: a request that cannot be met as a whole takes nothing from others and gives up nothing.
        for outcome in await asyncio.gather(*(self._ask(replace(wanted, dry=True)) for wanted in acquisitions)):
            if isinstance(outcome, Refused):
                return outcome
        # A subscriber that names its partitions leaves automatic assignment.
        member = await self._members.member(command.node, command.jid)
        await self._members.remove(record, command.jid)
        # Release partitions that are no longer asked for first: their credit moves to the others.
        await self._release_all(command.node, command.jid, [each for each in mine if each.partition not in numbers])
        if not mine:
            await self._end_shared(command)
        less, rest = await self._split_lowered(command, record, acquisitions)
        outcomes = [*await asyncio.gather(*map(self._ask, less)), *await asyncio.gather(*map(self._ask, rest))]
        owned = tuple(sorted((each for each in outcomes if isinstance(each, Owned)), key=lambda each: each.partition))
        refused = next((outcome for outcome in outcomes if isinstance(outcome, Refused)), None)
        if refused:
            had = {each.partition for each in mine}
            await self._release_all(command.node, command.jid, [each for each in owned if each.partition not in had])
            if member is not None:
                await self._members.join(record, member)
        await self.rebalance(command.node)
        return refused or self._result(command, owned)

    async def _split_lowered(
        self, command: Subscribe, record: NodeRecord, acquisitions: Sequence[AcquirePartition]
    ) -> tuple[list[AcquirePartition], list[AcquirePartition]]:
        """Split off acquisitions that lower their credit: they go first, so the sum never exceeds the request (guarantee 3)."""
        renewed = await self._renew_all(record, command.sender, [subid(command.jid)])
        credit = {owned.partition: owned.credit for owned in renewed}
        less = [wanted for wanted in acquisitions if wanted.credit < credit.get(wanted.partition, 0)]
        return less, [wanted for wanted in acquisitions if wanted not in less]

    async def _join_group(self, command: Subscribe, record: NodeRecord, mine: Sequence[PartitionOwnership]) -> Result:
        credit = _credit(command)
        each = share(credit, record.config.partitions)
        member = Member(command.group, credit, each, command.sending, command.jid)
        before = await self._members.member(command.node, command.jid)
        if before is None and await self._members.count(command.node) >= MAX_SUBSCRIBERS:
            return _FULL
        if not mine or before is None or before.group != member.group:
            # Partitions acquired by name or in another group do not count for the new group. All of that ends before anything is
            # assigned in the new group, so that the credit counts once wherever this is cut short.
            await self._members.remove(record, command.jid)
            await self._end_shared(command)
        if not await self._members.join(record, member):
            return _FULL
        await self.rebalance(command.node)
        # Without an epoch: a partition that the member already owns keeps its epoch and gets the new credit.
        acquisitions = [
            AcquirePartition(
                command.node,
                command.sender,
                command.jid,
                each,
                command.sending,
                command.group,
                None,
                ownership.partition,
            )
            for ownership in await self._owned_by(record, command.jid)
            if ownership.group == command.group
        ]
        outcomes = await asyncio.gather(*map(self._ask, acquisitions))
        return self._result(command, tuple(outcome for outcome in outcomes if isinstance(outcome, Owned)))

    async def _end_shared(self, command: Subscribe) -> None:
        """End the subscription of one that shared the node until now: a JID has one subscription, and its credit once."""
        await leave_empty(self._ask, Leave(command.node, command.jid))

    async def _shares(self, node: str, jid: Jid) -> bool:
        """Return whether a JID shares the node; its first partition decides, whatever other partitions know from before."""
        question = AcquirePartition(
            node, jid, jid, 1, Sending(), DEFAULT_GROUP, None, FIRST_PARTITION, dry=True, alone=True
        )
        return _is_superseded(await self._ask(question))

    async def _owned_by(self, record: NodeRecord, jid: Jid) -> list[PartitionOwnership]:
        whose = subid(jid)
        return [each for each in await self._members.ownerships(record) if each.subid == whose]

    async def _release_all(
        self, node: str, jid: Jid, owned: Iterable[PartitionOwnership | Owned], reason: str = ""
    ) -> None:
        asked = [ReleasePartition(node, jid, each.partition, each.group, reason) for each in owned]
        await asyncio.gather(*map(self._ask, asked))

    def _result(self, command: Subscribe, owned: tuple[Owned, ...]) -> Subscribed:
        group = command.group or DEFAULT_GROUP
        granted = (command.jid, subid(command.jid), _credit(command), command.qos)
        return Subscribed(*granted, group=group, owned=owned, batch=command.batch)


def _is_superseded(outcome: Outcome) -> bool:
    return isinstance(outcome, Refused) and outcome.problem is Problem.SUPERSEDED


def _is_member(member: Member, members: Mapping[str, Member]) -> bool:
    """Return whether a member is still one of its group."""
    known = members.get(subid(member.jid))
    return known is not None and known.group == member.group


def _credit(command: Subscribe) -> int:
    """Return an owner's credit; a request without credit has been refused."""
    return command.credit or 0


def _invalid_options(command: Subscribe, record: NodeRecord) -> Refused | None:  # noqa: PLR0911  (a table of cases)
    group, count = command.group or DEFAULT_GROUP, record.config.partitions
    unknown = [number for number in command.partitions if not 0 <= number < count]
    if not record.config.admits(group):
        return Refused(Problem.GROUP_NOT_FOUND, f"the node has no group {group}")
    if unknown:
        return Refused(Problem.PARTITION_NOT_FOUND, f"the node has no partition {unknown[0]}: it has {count}")
    if command.epoch is not None and not command.partitions:
        return Refused(Problem.OPTIONS_INVALID, "an epoch applies to one partition: name the partition")
    if command.credit is None:
        return Refused(Problem.OPTIONS_REQUIRED)
    if command.selector:
        return Refused(Problem.OPTIONS_INVALID, UNSELECTED)
    if command.credit < len(set(command.partitions)):
        return Refused(Problem.OPTIONS_INVALID, "an owner needs at least one credit for each of its partitions")
    return None


def _divide(credit: int, count: int) -> list[int]:
    """Divide an owner's credit over its partitions, at least one each."""
    least, over = divmod(credit, count)
    return [least + (place < over) for place in range(count)]
